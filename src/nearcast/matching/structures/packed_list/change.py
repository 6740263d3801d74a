"""Changes in place: postings come, go and move, and short lists become packed.

A kernel that finds a pool too small ends before the posting that may not fit; the caller grows the pools and calls
again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.slabs import END, allot, release, size_class
from nearcast.matching.structures.packed_list.layout import BLOCK_BITS, FLAT, POSTINGS, Lists, rooms
from nearcast.matching.structures.packed_list.nodes import (
    block_for,
    copy_posting,
    drop_block,
    lay_into_new_super,
    surround,
    wear,
)
from nearcast.matching.structures.packed_list.pack import copy_box, inside, write

__all__ = ["code", "needs", "post", "shift", "unpost"]


@kernel
def code(row: int, second: int, third: int) -> Any:
    """Return a clause row as it stands in a posting: complemented if it has extras."""
    return row if second == -1 and third == -1 else ~row


@kernel
def needs(lists: Lists, number: int) -> Any:
    """Return the slots and super-blocks of pools that are large enough for any posting to a list."""
    supers = 2 * max(lists.heads[number, 3], 1)
    return lists.slot_slabs[END] + 2 * FLAT, lists.super_slabs[END] + supers


@kernel
def _fits(lists: Lists, number: int, room: Any) -> Any:
    slots, supers = needs(lists, number)
    return slots <= room[0] and supers <= room[1]


@kernel
def _widen_flat(lists: Lists, homes: NDArray[np.int32], number: int) -> None:
    """Move a full flat list to a room of the next power of two."""
    heads = lists.heads
    start, n, room = heads[number, 0], heads[number, 1], heads[number, 2]
    k = size_class(n + 1)
    at = allot(lists.slot_slabs, lists.rows, k, BLOCK_BITS)
    for i in range(n):
        copy_posting(lists, homes, number, start + i, at + i)
    release(lists.slot_slabs, lists.rows, start, room, BLOCK_BITS)
    heads[number, 0] = at
    heads[number, 2] = 1 << k


@kernel
def _to_packed(lists: Lists, homes: NDArray[np.int32], number: int) -> None:
    """Turn a full flat list into a packed one."""
    start, n, room = lists.heads[number, 0], lists.heads[number, 1], lists.heads[number, 2]
    boxes, rows = lists.boxes[start : start + n].copy(), lists.rows[start : start + n].copy()
    extras = lists.extras[start : start + n].copy()
    release(lists.slot_slabs, lists.rows, start, room, BLOCK_BITS)
    lay_into_new_super(lists, homes, number, boxes, rows, extras)


@kernel
def _put(
    lists: Lists,
    homes: NDArray[np.int32],
    number: int,
    box: NDArray[np.float32],
    row: int,
    second: int,
    third: int,
) -> None:
    """Put a posting with box[0] into a list: at the end of a flat one, or into the block that it belongs to."""
    heads, blocks = lists.heads, lists.blocks
    size = heads[number, 1]
    if size == heads[number, 2]:
        if size < FLAT:
            _widen_flat(lists, homes, number)
        else:
            _to_packed(lists, homes, number)
    heads[number, 1] = size + 1
    lists.state[POSTINGS] += 1
    if heads[number, 2] > 0:
        write(lists, homes, number, heads[number, 0] + size, box, 0, row, second, third)
        return
    block = block_for(lists, homes, number, box)
    slot = (blocks[block, 0] << BLOCK_BITS) + blocks[block, 1]
    blocks[block, 1] += 1
    write(lists, homes, number, slot, box, 0, row, second, third)
    surround(lists, block, slot)
    wear(lists, homes, number, block >> BLOCK_BITS)


@kernel
def _take(lists: Lists, homes: NDArray[np.int32], row: int) -> None:
    """Take the posting of a clause row out: the last one of the list or block takes the free place."""
    heads, blocks = lists.heads, lists.blocks
    number, slot = homes[row, 0], homes[row, 1]
    homes[row, 0] = -1
    heads[number, 1] -= 1
    lists.state[POSTINGS] -= 1
    if heads[number, 2] > 0:
        last = heads[number, 0] + heads[number, 1]
        if slot != last:
            copy_posting(lists, homes, number, last, slot)
        if heads[number, 1] == 0:
            release(lists.slot_slabs, lists.rows, heads[number, 0], heads[number, 2], BLOCK_BITS)
            heads[number, 2] = 0
        return
    block = lists.chunk_blocks[slot >> BLOCK_BITS]
    blocks[block, 1] -= 1
    last = (blocks[block, 0] << BLOCK_BITS) + blocks[block, 1]
    if slot != last:
        copy_posting(lists, homes, number, last, slot)
    if blocks[block, 1] == 0:
        drop_block(lists, number, block)
    else:
        wear(lists, homes, number, block >> BLOCK_BITS)


@kernel
def post(
    lists: Lists,
    homes: NDArray[np.int32],
    clause_boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    targets: NDArray[np.int32],
    extras: NDArray[np.int32],
    begin: int,
) -> Any:
    """Post clause rows to lists from number *begin* on; return the next number when a pool has no room for it."""
    room = rooms(lists)
    box = np.empty((1, 4), np.float32)
    for i in range(begin, rows.size):
        row, second, third = rows[i], extras[i, 0], extras[i, 1]
        if not _fits(lists, targets[i], room):
            return i
        copy_box(clause_boxes, row, box, 0)
        _put(lists, homes, targets[i], box, code(row, second, third), second, third)
    return rows.size


@kernel
def unpost(lists: Lists, homes: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
    """Take the postings of clause rows out."""
    for row in rows:
        _take(lists, homes, row)


@kernel
def shift(
    lists: Lists,
    homes: NDArray[np.int32],
    clause_boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    begin: int,
) -> Any:
    """Give the postings of clause rows from number *begin* on the boxes that the clauses have now.

    One that leaves the box of its block goes where it belongs. Return the next number when a pool has no room for it.
    """
    room = rooms(lists)
    box = np.empty((1, 4), np.float32)
    for i in range(begin, rows.size):
        row = rows[i]
        number, slot = homes[row, 0], homes[row, 1]
        copy_box(clause_boxes, row, box, 0)
        if lists.heads[number, 2] > 0 or inside(
            box, 0, lists.block_boxes, lists.chunk_blocks[slot >> BLOCK_BITS]
        ):
            copy_box(box, 0, lists.boxes, slot)
            continue
        if not _fits(lists, number, room):
            return i
        stood, second, third = lists.rows[slot], lists.extras[slot, 0], lists.extras[slot, 1]
        _take(lists, homes, row)
        _put(lists, homes, number, box, stood, second, third)
    return rows.size
