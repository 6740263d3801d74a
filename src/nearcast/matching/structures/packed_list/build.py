"""Building packed lists as a whole: room for all of them, their postings in the order of the rows, and packing.

Clauses in the lists of their rarest keywords use it, and messages in the lists of their cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.slabs import END, release
from nearcast.kernels.threads import CORES, side_by_side
from nearcast.matching.structures.packed_list.change import code
from nearcast.matching.structures.packed_list.layout import (
    BLOCK,
    BLOCK_BITS,
    FLAT,
    LISTS,
    POSTINGS,
    Lists,
    empty_lists,
    used,
)
from nearcast.matching.structures.packed_list.pack import pack_range, write

__all__ = ["filled", "pack_all", "ranges"]


def filled(
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    targets: NDArray[np.int32],
    extras: NDArray[np.int32],
    homes: NDArray[np.int32],
    count: int,
) -> Lists:
    """Return *count* lists with a posting for each row, in the list that *targets* names; long ones must be packed."""
    lists = _laid_out(np.bincount(targets, minlength=count), count)
    _write_all(lists, boxes, rows, targets, extras, homes)
    return lists


def pack_all(lists: Lists, homes: NDArray[np.int32]) -> None:
    """Pack the long lists by place, on all cores."""
    count = int(lists.state[LISTS])
    sizes = lists.heads[:count, 1].astype(np.int64)
    volume = np.cumsum(np.where(sizes > FLAT, sizes, 0))
    shares = 4 * CORES
    cuts = np.searchsorted(volume, np.linspace(0, volume[-1], shares + 1)[1:-1])
    edges = [0, *cuts.tolist(), count]

    def pack(share: int) -> None:
        pack_range(lists, homes, edges[share], edges[share + 1])

    side_by_side(pack, range(shares), CORES)


def _laid_out(sizes: NDArray[np.int64], lists: int) -> Lists:
    """Return pools for lists of the given sizes: flat ones without spare room, then the chunks of packed ones."""
    packed = sizes > FLAT
    flat = np.where(packed, 0, sizes)
    chunks = np.where(packed, -(-sizes // BLOCK), 0)
    supers = -(-chunks // BLOCK)
    flat_slots = int(flat.sum())
    first_chunk = -(-flat_slots // BLOCK)
    slots, all_supers = (first_chunk + int(chunks.sum())) * BLOCK, int(supers.sum())
    pools = empty_lists(lists, slots, all_supers)
    pools.state[LISTS], pools.state[POSTINGS] = lists, sizes.sum()
    pools.slot_slabs[END], pools.super_slabs[END] = slots, all_supers
    for array in used(pools)[3:]:
        array.fill(0)  # what stays unused is saved, too: the same lists shall give the same files
    heads = pools.heads[:lists]
    heads[:, 0] = np.where(packed, np.cumsum(supers) - supers, np.cumsum(flat) - flat)
    heads[:, 1] = sizes
    heads[:, 2] = np.where(packed, -supers, sizes)
    heads[:, 3] = supers
    block = ranges(heads[:, 0].astype(np.int64) << BLOCK_BITS, chunks)
    pools.blocks[block, 0] = np.arange(first_chunk, first_chunk + len(block))
    pools.chunk_blocks[pools.blocks[block, 0]] = block
    pools.super_counts[:all_supers] = np.bincount(block >> BLOCK_BITS, minlength=all_supers)
    release(pools.slot_slabs, pools.rows, flat_slots, first_chunk * BLOCK - flat_slots, BLOCK_BITS)
    return pools


def ranges(starts: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.int64]:
    """Return the numbers of ranges that begin at *starts*, one range after the other."""
    before = np.cumsum(counts, dtype=np.int64) - counts
    numbers: NDArray[np.int64] = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    return numbers


@kernel
def _write_all(
    lists: Lists,
    clause_boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    targets: NDArray[np.int32],
    extras: NDArray[np.int32],
    homes: NDArray[np.int32],
) -> None:
    """Write the postings of new lists, in the order of the rows."""
    heads, blocks = lists.heads, lists.blocks
    ends = np.empty(lists.state[LISTS], np.int32)
    for number in range(ends.size):
        packed = heads[number, 2] < 0
        ends[number] = blocks[heads[number, 0] << BLOCK_BITS, 0] << BLOCK_BITS if packed else heads[number, 0]
    for i in range(rows.size):
        row, number, second, third = rows[i], targets[i], extras[i, 0], extras[i, 1]
        write(lists, homes, number, ends[number], clause_boxes, row, code(row, second, third), second, third)
        ends[number] += 1
