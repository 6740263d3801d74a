"""The arrays of the packed list: posting lists, each flat or packed by place.

A *posting* stands in a slot: the clause's box as four float32 (``boxes``), its row (``rows``), and what it needs beside
the keyword of its list (``extras``). A row that is not complemented needs nothing else, so only its box and the row are
read. A complemented one (``~row``) has extras: its next two keywords by rarity, or -1. If the clause itself must decide
(on further keywords, forbidden ones, tests), the second of these is written as ``-3 - code``.

A short list is *flat*: its postings lie in a row. A long one is *packed*, a tree of three levels::

    list         super-blocks, in a row                      heads: first super-block, how many
    super-block  up to 32 blocks of its own, in a row        super_boxes, super_counts
    block        up to 32 postings, in a row, in one chunk   block_boxes, blocks: chunk, postings

Super-block s has room for the blocks from 32 s on, and chunk c for the slots from 32 c on. The postings of a block, and
the blocks of a super-block, are close together, and each has a box around what it holds. So a message reads the boxes
of the super-blocks, of the blocks in those that it touches, and of the postings in the blocks that it touches, each a
run of memory. No block and no super-block is empty, and a change touches one or two super-blocks of its list.

Slots and super-blocks come from two allocators (:mod:`~nearcast.kernels.slabs`). The links of free slots run through
``rows``, those of free super-blocks through ``super_changes``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import roomy
from nearcast.kernels import kernel
from nearcast.kernels.slabs import END, empty_slabs

__all__ = [
    "BLOCK",
    "BLOCK_BITS",
    "FLAT",
    "LISTS",
    "NO_PLACE",
    "PATIENCE",
    "POSTINGS",
    "Lists",
    "empty_lists",
    "grown",
    "rooms",
    "used",
]

BLOCK_BITS = config.PACKED_BLOCK_BITS
BLOCK = 1 << BLOCK_BITS  # slots of a block, and blocks of a super-block
FLAT = 2 * BLOCK  # the most postings of a flat list
_LARGEST_REGION = 31 - BLOCK_BITS  # blocks are numbered by int32

LISTS, POSTINGS, PATIENCE = 0, 1, 2  # entries of Lists.state

NO_PLACE = (np.inf, np.inf, -np.inf, -np.inf)  # a box that touches nothing and adds nothing


class Lists(NamedTuple):
    """Posting lists in pools; the arrays are longer than what is used."""

    # How many lists and postings there are, and for each 64 postings of a super-block, how many changes it bears before
    # it is laid out anew.
    state: NDArray[np.int64]
    slot_slabs: NDArray[np.int64]
    super_slabs: NDArray[np.int64]
    heads: NDArray[np.int32]  # [list, 4]: first slot, postings, room in slots, 0;
    # or first super-block, postings, minus room in super-blocks, super-blocks
    boxes: NDArray[np.float32]  # [slot, 4]
    rows: NDArray[np.int32]  # of each slot
    extras: NDArray[np.int32]  # [slot, 2]
    chunk_blocks: NDArray[np.int32]  # of each 32 slots that belong to a packed list: their block
    block_boxes: NDArray[np.float32]  # [block, 4]
    blocks: NDArray[np.int32]  # [block, 2]: chunk, postings
    super_boxes: NDArray[np.float32]  # [super-block, 4]
    super_counts: NDArray[np.int32]  # blocks of each super-block
    super_changes: NDArray[np.int32]  # of each super-block since it was tidied


def empty_lists(lists: int, slots: int, supers: int) -> Lists:
    """Return room for this many lists, slots and super-blocks; nothing is in use yet."""
    none = Lists(
        np.array([0, 0, config.PACKED_PATIENCE]),
        empty_slabs(BLOCK_BITS + 1),
        empty_slabs(_LARGEST_REGION),
        np.empty((0, 4), np.int32),
        np.empty((0, 4), np.float32),
        np.empty(0, np.int32),
        np.empty((0, 2), np.int32),
        np.empty(0, np.int32),
        np.empty((0, 4), np.float32),
        np.empty((0, 2), np.int32),
        np.empty((0, 4), np.float32),
        np.empty(0, np.int32),
        np.empty(0, np.int32),
    )
    return grown(none, lists, slots, supers)


def grown(lists: Lists, numbers: int = 0, slots: int = 0, supers: int = 0) -> Lists:
    """Return *lists* with room for that many lists, slots and super-blocks; only arrays that are too short change."""
    need = {
        "heads": numbers,
        "boxes": slots,
        "rows": slots,
        "extras": slots,
        "chunk_blocks": (slots + BLOCK - 1) >> BLOCK_BITS,
        "block_boxes": supers << BLOCK_BITS,
        "blocks": supers << BLOCK_BITS,
        "super_boxes": supers,
        "super_counts": supers,
        "super_changes": supers,
    }
    kept = used(lists)._asdict()
    short = {name: rows for name, rows in need.items() if rows > len(getattr(lists, name))}
    return lists._replace(**{name: _wider(kept[name], rows) for name, rows in short.items()})


def _wider(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return a copy of *array* with room for *rows* rows, and half as many again."""
    room = roomy(array, rows + rows // 2)
    room[: len(array)] = array
    return room


def used(lists: Lists) -> Lists:
    """Return the parts of the arrays that are in use."""
    slots, supers = int(lists.slot_slabs[END]), int(lists.super_slabs[END])
    blocks = supers << BLOCK_BITS
    return lists._replace(
        heads=lists.heads[: int(lists.state[LISTS])],
        boxes=lists.boxes[:slots],
        rows=lists.rows[:slots],
        extras=lists.extras[:slots],
        chunk_blocks=lists.chunk_blocks[: slots >> BLOCK_BITS],
        block_boxes=lists.block_boxes[:blocks],
        blocks=lists.blocks[:blocks],
        super_boxes=lists.super_boxes[:supers],
        super_counts=lists.super_counts[:supers],
        super_changes=lists.super_changes[:supers],
    )


@kernel
def rooms(lists: Lists) -> Any:
    """Return how many slots and super-blocks there is room for in all."""
    slots = min(lists.boxes.shape[0], lists.rows.size, lists.extras.shape[0])
    blocks = min(lists.block_boxes.shape[0], lists.blocks.shape[0])
    supers = min(lists.super_boxes.shape[0], lists.super_counts.size, lists.super_changes.size)
    return min(slots, lists.chunk_blocks.size << BLOCK_BITS), min(supers, blocks >> BLOCK_BITS)
