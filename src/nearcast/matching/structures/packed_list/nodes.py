"""Blocks and super-blocks of packed lists: they are made, split, tidied, joined and given back.

Each step touches one or two super-blocks, two thousand postings at the most. Only two things grow with the list, both
slowly: choosing a super-block looks at the boxes of all of them, and a list whose region of super-blocks is full moves
to one of double the room, while its postings stay in their slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.slabs import END, allot, release, size_class
from nearcast.matching.structures.packed_list.layout import BLOCK, BLOCK_BITS, FLAT, PATIENCE, Lists, rooms
from nearcast.matching.structures.packed_list.pack import (
    arrange,
    clear,
    copy_box,
    enlarge,
    inside,
    lay,
    within,
    write,
)

__all__ = ["block_for", "copy_posting", "drop_block", "lay_into_new_super", "surround", "wear"]

_FILL = config.PACKED_FILL
# A super-block with no more postings than this has blocks to spare when it is tidied.
_TIDY = _FILL * (BLOCK - BLOCK // 8)
_FEW = BLOCK // 4  # blocks of a super-block that is joined to another,
_JOINED = 3 * BLOCK // 4  # if both together have no more than this


# --- Choosing ------------------------------------------------------------------------------------------------------


@kernel
def _growth(boxes: NDArray[np.float32], i: int, more: NDArray[np.float32], j: int) -> Any:
    """Return by how much the half perimeter of boxes[i] grows if it takes more[j] in, and how long it is now."""
    x1, y1, x2, y2 = within(boxes[i, 0]), within(boxes[i, 1]), within(boxes[i, 2]), within(boxes[i, 3])
    a1, b1, a2, b2 = within(more[j, 0]), within(more[j, 1]), within(more[j, 2]), within(more[j, 3])
    own = (x2 - x1) + (y2 - y1)
    return (max(x2, a2) - min(x1, a1)) + (max(y2, b2) - min(y1, b1)) - own, own


@kernel
def _least(boxes: NDArray[np.float32], start: int, count: int, box: NDArray[np.float32]) -> Any:
    """Return which of *count* boxes grows least when it takes box[0] in; the smaller one among equals."""
    chosen, best = start, (np.inf, np.inf)
    for i in range(start, start + count):  # in most cases box[0] lies inside of some, which is quickly seen
        if inside(box, 0, boxes, i):
            growth = _growth(boxes, i, box, 0)
            if growth < best:
                chosen, best = i, growth
    if best[0] == np.inf:
        for i in range(start, start + count):
            growth = _growth(boxes, i, box, 0)
            if growth < best:
                chosen, best = i, growth
    return chosen


@kernel
def _least_block(lists: Lists, s: int, box: NDArray[np.float32]) -> Any:
    return _least(lists.block_boxes, s << BLOCK_BITS, lists.super_counts[s], box)


@kernel
def block_for(lists: Lists, homes: NDArray[np.int32], number: int, box: NDArray[np.float32]) -> Any:
    """Return the block of a packed list that box[0] belongs to; it has room for a posting."""
    s = _least(lists.super_boxes, lists.heads[number, 0], lists.heads[number, 3], box)
    block = _least_block(lists, s, box)
    if lists.blocks[block, 1] < BLOCK:
        return block
    if lists.super_counts[s] == BLOCK:
        if _postings(lists, s) <= _TIDY:
            _tidy(lists, homes, number, s)
            return _least_block(lists, s, box)
        s, other = _split_super(lists, number, s)
        if _growth(lists.super_boxes, other, box, 0) < _growth(lists.super_boxes, s, box, 0):
            s = other
        block = _least_block(lists, s, box)
        if lists.blocks[block, 1] < BLOCK:
            return block
    new = _split_block(lists, homes, number, block)
    return (
        new if _growth(lists.block_boxes, new, box, 0) < _growth(lists.block_boxes, block, box, 0) else block
    )


# --- Blocks --------------------------------------------------------------------------------------------------------


@kernel
def surround(lists: Lists, block: int, slot: int) -> None:
    """Enlarge the boxes around a posting."""
    enlarge(lists.block_boxes, block, lists.boxes, slot)
    enlarge(lists.super_boxes, block >> BLOCK_BITS, lists.block_boxes, block)


@kernel
def copy_posting(lists: Lists, homes: NDArray[np.int32], number: int, source: int, target: int) -> None:
    """Copy the posting in slot *source* to slot *target* of a list."""
    row, second, third = lists.rows[source], lists.extras[source, 0], lists.extras[source, 1]
    write(lists, homes, number, target, lists.boxes, source, row, second, third)


@kernel
def _add_block(lists: Lists, s: int) -> Any:
    """Give a super-block, which has room for it, one more block, with a chunk and no posting; return the block."""
    block = (s << BLOCK_BITS) + lists.super_counts[s]
    lists.super_counts[s] += 1
    chunk = allot(lists.slot_slabs, lists.rows, BLOCK_BITS, BLOCK_BITS) >> BLOCK_BITS
    lists.blocks[block, 0] = chunk
    lists.blocks[block, 1] = 0
    lists.chunk_blocks[chunk] = block
    clear(lists.block_boxes, block)
    return block


@kernel
def _move_blocks(lists: Lists, source: int, target: int, count: int) -> None:
    """Let the blocks from *target* on be what those from *source* on were; the postings stay in their chunks."""
    block_boxes, blocks, chunk_blocks = lists.block_boxes, lists.blocks, lists.chunk_blocks
    for i in range(count):
        copy_box(block_boxes, source + i, block_boxes, target + i)
        blocks[target + i, 0] = blocks[source + i, 0]
        blocks[target + i, 1] = blocks[source + i, 1]
        chunk_blocks[blocks[target + i, 0]] = target + i


@kernel
def _release_chunk(lists: Lists, block: int) -> None:
    release(lists.slot_slabs, lists.rows, lists.blocks[block, 0] << BLOCK_BITS, BLOCK, BLOCK_BITS)


@kernel
def drop_block(lists: Lists, number: int, block: int) -> None:
    """Take out an empty block, with its super-block if it was the only one, and give all of an empty list back."""
    s = block >> BLOCK_BITS
    _release_chunk(lists, block)
    lists.super_counts[s] -= 1
    last = (s << BLOCK_BITS) + lists.super_counts[s]
    if block != last:
        _move_blocks(lists, last, block, 1)
    if lists.super_counts[s] == 0:
        _drop_super(lists, number, s)


@kernel
def _split_block(lists: Lists, homes: NDArray[np.int32], number: int, block: int) -> Any:
    """Move the half of a full block's postings that lies to one side into a new block, and return that."""
    start = lists.blocks[block, 0] << BLOCK_BITS
    leaving = _side(lists.boxes, start)
    new = _add_block(lists, block >> BLOCK_BITS)
    clear(lists.block_boxes, block)
    lists.blocks[block, 1] = 0
    for i in range(BLOCK):
        target = new if leaving[i] else block
        slot = (lists.blocks[target, 0] << BLOCK_BITS) + lists.blocks[target, 1]
        lists.blocks[target, 1] += 1
        if slot != start + i:
            copy_posting(lists, homes, number, start + i, slot)
        enlarge(lists.block_boxes, target, lists.boxes, slot)
    return new


@kernel
def _side(boxes: NDArray[np.float32], start: int) -> Any:
    """Mark the half of ``BLOCK`` boxes whose centres lie beyond the median, along the axis of their larger extent."""
    order = np.empty(BLOCK, np.int32)
    arrange(boxes[start : start + BLOCK], BLOCK, BLOCK // 2, order)
    leaving = np.zeros(BLOCK, np.bool_)
    for i in range(BLOCK // 2, BLOCK):
        leaving[order[i]] = True
    return leaving


# --- Super-blocks --------------------------------------------------------------------------------------------------


@kernel
def _postings(lists: Lists, s: int) -> Any:
    """Return how many postings a super-block has."""
    count, first = 0, s << BLOCK_BITS
    for block in range(first, first + lists.super_counts[s]):
        count += lists.blocks[block, 1]
    return count


@kernel
def _enclose(lists: Lists, s: int) -> None:
    """Make the box of a super-block the least one around its blocks."""
    clear(lists.super_boxes, s)
    first = s << BLOCK_BITS
    for block in range(first, first + lists.super_counts[s]):
        enlarge(lists.super_boxes, s, lists.block_boxes, block)


@kernel
def _add_super(lists: Lists, number: int) -> Any:
    """Give a list one more super-block, without blocks, and return it; the list may move."""
    heads = lists.heads
    if heads[number, 3] == -heads[number, 2]:
        _move_list(lists, number, size_class(heads[number, 3] + 1))
    s = heads[number, 0] + heads[number, 3]
    heads[number, 3] += 1
    lists.super_counts[s] = 0
    lists.super_changes[s] = 0
    clear(lists.super_boxes, s)
    return s


@kernel
def _move_super(lists: Lists, source: int, target: int) -> None:
    """Let super-block *target* be what *source* was."""
    copy_box(lists.super_boxes, source, lists.super_boxes, target)
    lists.super_counts[target] = lists.super_counts[source]
    lists.super_changes[target] = lists.super_changes[source]
    _move_blocks(lists, source << BLOCK_BITS, target << BLOCK_BITS, lists.super_counts[target])


@kernel
def _move_list(lists: Lists, number: int, k: int) -> None:
    """Move the super-blocks of a list to a region with room for 2^k."""
    heads = lists.heads
    old, room = heads[number, 0], -heads[number, 2]
    new = allot(lists.super_slabs, lists.super_changes, k, 0)
    for i in range(heads[number, 3]):
        _move_super(lists, old + i, new + i)
    release(lists.super_slabs, lists.super_changes, old, room, 0)
    heads[number, 0] = new
    heads[number, 2] = -(1 << k)


@kernel
def _drop_super(lists: Lists, number: int, s: int) -> None:
    """Take out a super-block without blocks; a list that needs a quarter of its region moves to a smaller one."""
    heads = lists.heads
    heads[number, 3] -= 1
    first, count, room = heads[number, 0], heads[number, 3], -heads[number, 2]
    if s != first + count:
        _move_super(lists, first + count, s)
    if count == 0:
        release(lists.super_slabs, lists.super_changes, first, room, 0)
        heads[number, 0] = 0
        heads[number, 2] = 0
    elif 4 * count <= room:
        k = size_class(2 * count)
        if lists.super_slabs[END] + (1 << k) <= rooms(lists)[1]:
            _move_list(lists, number, k)


@kernel
def _split_super(lists: Lists, number: int, s: int) -> Any:
    """Move the half of a full super-block's blocks that lies to one side into a new one; return where both are."""
    before = lists.heads[number, 0]
    new = _add_super(lists, number)
    s += lists.heads[number, 0] - before
    first = s << BLOCK_BITS
    leaving = _side(lists.block_boxes, first)
    lists.super_counts[s] = 0
    for i in range(BLOCK):
        target = new if leaving[i] else s
        block = (target << BLOCK_BITS) + lists.super_counts[target]
        lists.super_counts[target] += 1
        if block != first + i:
            _move_blocks(lists, first + i, block, 1)
    _enclose(lists, s)
    _enclose(lists, new)
    lists.super_changes[s] //= 2
    lists.super_changes[new] = lists.super_changes[s]
    return s, new


@kernel
def lay_into_new_super(
    lists: Lists,
    homes: NDArray[np.int32],
    number: int,
    boxes: NDArray[np.float32],
    rows: NDArray[np.int32],
    extras: NDArray[np.int32],
) -> None:
    """Make a list that has no room packed: lay its postings, few enough for one, into a super-block."""
    heads = lists.heads
    heads[number, 0] = allot(lists.super_slabs, lists.super_changes, 0, 0)
    heads[number, 2] = -1
    heads[number, 3] = 0
    s = _add_super(lists, number)
    count = (rows.size + _FILL - 1) // _FILL
    for _ in range(count):
        _add_block(lists, s)
    lay(lists, homes, number, s, boxes, rows, extras, (rows.size + count - 1) // count)


@kernel
def _tidy(lists: Lists, homes: NDArray[np.int32], number: int, s: int) -> None:
    """Lay the postings of a super-block anew into its own blocks, and give back the chunks that are left over.

    Full blocks would split at the next inserts, so there are places to spare in each if there are blocks enough.
    """
    n, count, first = _postings(lists, s), lists.super_counts[s], s << BLOCK_BITS
    boxes, rows, extras = np.empty((n, 4), np.float32), np.empty(n, np.int32), np.empty((n, 2), np.int32)
    copied = 0
    for block in range(first, first + count):
        slot, size = lists.blocks[block, 0] << BLOCK_BITS, lists.blocks[block, 1]
        boxes[copied : copied + size] = lists.boxes[slot : slot + size]
        rows[copied : copied + size] = lists.rows[slot : slot + size]
        extras[copied : copied + size] = lists.extras[slot : slot + size]
        copied += size
    need = min((n + _FILL - 1) // _FILL, count)
    run = (n + need - 1) // need
    need = (n + run - 1) // run
    for block in range(first + need, first + count):
        _release_chunk(lists, block)
    lists.super_counts[s] = need
    lay(lists, homes, number, s, boxes, rows, extras, run)


@kernel
def _join(lists: Lists, number: int, s: int) -> None:
    """Hand the few blocks of a super-block over to the nearest one that has room for them, if there is one."""
    first = lists.heads[number, 0]
    most = _JOINED - lists.super_counts[s]
    chosen, best = -1, (np.inf, np.inf)
    for other in range(first, first + lists.heads[number, 3]):
        if other != s and lists.super_counts[other] <= most:
            growth = _growth(lists.super_boxes, other, lists.super_boxes, s)
            if growth < best:
                chosen, best = other, growth
    if chosen < 0:
        return
    count = lists.super_counts[s]
    _move_blocks(lists, s << BLOCK_BITS, (chosen << BLOCK_BITS) + lists.super_counts[chosen], count)
    lists.super_counts[chosen] += count
    enlarge(lists.super_boxes, chosen, lists.super_boxes, s)
    _drop_super(lists, number, s)


@kernel
def wear(lists: Lists, homes: NDArray[np.int32], number: int, s: int) -> None:
    """Count a change of a super-block; tidy it when it has seen many for its size, and join it when little is left."""
    lists.super_changes[s] += 1
    changes = lists.super_changes[s]
    if changes > FLAT and 64 * changes > lists.state[PATIENCE] * _postings(lists, s):
        _tidy(lists, homes, number, s)
        if lists.super_counts[s] <= _FEW:
            _join(lists, number, s)
