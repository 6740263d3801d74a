"""The arrays of the packed list: posting lists, each flat or packed by place.

A *posting* stands in a slot: the clause's box as four float32 (``boxes``), its row (``rows``), and what it needs beside
the keyword of its list (``extras``). A row that stands there as it is needs nothing else, so that box and row are all
that is read; one that is complemented (``~row``) has extras: its next two keywords by rarity, or -1. Where there is yet
more to decide (further keywords, forbidden ones, tests: the clause itself tells), the second stands as ``-3 - code``.

A short list is *flat*: its postings lie in a row. A long one is *packed*: its postings lie in blocks of 32 that hold
what is near each other, and 32 blocks make a super-block; block and super-block have a box that contains theirs. So
a message reads the boxes of the super-blocks, of the blocks where those touch, of the postings where these touch,
each a run of memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config

__all__ = [
    "BLOCK",
    "BLOCK_BITS",
    "FLAT",
    "FREE",
    "LISTS",
    "NO_PLACE",
    "USED_BLOCKS",
    "USED_SLOTS",
    "Lists",
    "empty_lists",
    "roomy",
    "widened",
]

BLOCK_BITS = config.PACKED_BLOCK_BITS
BLOCK = 1 << BLOCK_BITS  # slots of a block, and blocks of a super-block
FLAT = 2 * BLOCK  # the most postings of a flat list

# Entries of Lists.state
LISTS, USED_SLOTS, USED_BLOCKS, FREE = 0, 1, 2, 3  # from FREE on: the first free room of 1, 2, 4 … FLAT slots
_STATE = FREE + BLOCK_BITS + 2

NO_PLACE = (np.inf, np.inf, -np.inf, -np.inf)  # a box that touches nothing and adds nothing


class Lists(NamedTuple):
    """Posting lists in pools; the arrays are longer than what is used."""

    state: NDArray[np.int64]
    heads: NDArray[
        np.int32
    ]  # [list, 4]: first slot or block; postings; room in slots, or minus room in blocks; blocks
    changes: NDArray[np.int32]  # of a packed list since it was packed
    boxes: NDArray[np.float32]  # [slot, 4]
    rows: NDArray[np.int32]  # of each slot; in a free room: the next free one
    extras: NDArray[np.int32]  # [slot, 2]
    chunk_blocks: NDArray[np.int32]  # of each 32 slots that belong to a packed list: their block
    block_boxes: NDArray[np.float32]  # [block, 4]
    blocks: NDArray[np.int32]  # [block, 2]: chunk (32 slots), postings
    super_boxes: NDArray[np.float32]  # [block / 32, 4]


def empty_lists(lists: int, slots: int, blocks: int) -> Lists:
    """Return room for so many lists, slots and blocks; the lists have no postings yet."""
    slots, blocks = -(-slots // BLOCK) * BLOCK, -(-blocks // BLOCK) * BLOCK
    state = np.zeros(_STATE, np.int64)
    state[FREE:] = -1
    return Lists(
        state,
        np.zeros((lists, 4), np.int32),
        np.zeros(lists, np.int32),
        np.empty((slots, 4), np.float32),
        np.empty(slots, np.int32),
        np.empty((slots, 2), np.int32),
        np.zeros(slots >> BLOCK_BITS, np.int32),
        np.empty((blocks, 4), np.float32),
        np.zeros((blocks, 2), np.int32),
        np.empty((blocks >> BLOCK_BITS, 4), np.float32),
    )


def roomy(rows: int) -> int:
    """Return with how much room so many rows are kept: a quarter more. What is not used takes no memory yet."""
    return rows * 5 // 4


def widened(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return *array* with room for *rows* rows; the new ones hold anything."""
    wider = np.empty((rows, *array.shape[1:]), array.dtype)
    wider[: len(array)] = array
    return wider
