"""Changes in place: postings come and go, short lists become packed, full blocks split, worn lists are packed anew.

Free rooms of 1, 2, 4 … slots hang in chains, so that what a list leaves behind serves the next. A kernel that finds a
pool too small ends before the posting that did not fit; the caller grows the pools and calls again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.matching.structures.packed_list.layout import (
    BLOCK,
    BLOCK_BITS,
    FLAT,
    FREE,
    NO_PLACE,
    USED_BLOCKS,
    USED_SLOTS,
    Lists,
)
from nearcast.matching.structures.packed_list.pack import arrange, enlarge, lay, settle, within

__all__ = ["post", "unpost", "write"]

_WEAR, _FILL = config.PACKED_WEAR, config.PACKED_FILL
_LARGEST = BLOCK_BITS + 1  # of the size classes: a room of FLAT slots


@kernel
def _allot(state: NDArray[np.int64], rows: NDArray[np.int32], size_class: int) -> Any:
    """Return a room of 2^size_class slots: a free one, a part of a larger free one, or one at the end of the pool."""
    size, found = 1 << size_class, size_class
    while found <= _LARGEST and state[FREE + found] < 0:
        found += 1
    if found <= _LARGEST:
        at = state[FREE + found]
        state[FREE + found] = rows[at]
    else:
        at = state[USED_SLOTS]
        found = max(size_class, BLOCK_BITS)  # chunks stay aligned
        state[USED_SLOTS] += 1 << found
    _release(state, rows, at + size, (1 << found) - size)
    return at


@kernel
def _release(state: NDArray[np.int64], rows: NDArray[np.int32], at: int, size: int) -> None:
    """Chain a free room of any size, in powers of two; only what is aligned to chunks is chained as chunks."""
    while size > 0:
        room = size if at & (BLOCK - 1) == 0 else min(size, BLOCK - (at & (BLOCK - 1)))
        size_class = 0
        while size_class < _LARGEST and 2 << size_class <= room:
            size_class += 1
        rows[at] = state[FREE + size_class]
        state[FREE + size_class] = at
        at += 1 << size_class
        size -= 1 << size_class


@kernel
def _growth(boxes: NDArray[np.float32], i: int, box: NDArray[np.float32]) -> Any:
    """Return by how much the half perimeter of boxes[i] grows when it takes *box* in, and what it is."""
    x1, y1, x2, y2 = within(boxes[i, 0]), within(boxes[i, 1]), within(boxes[i, 2]), within(boxes[i, 3])
    a1, b1, a2, b2 = within(box[0]), within(box[1]), within(box[2]), within(box[3])
    own = (x2 - x1) + (y2 - y1)
    return (max(x2, a2) - min(x1, a1)) + (max(y2, b2) - min(y1, b1)) - own, own


@kernel
def _choose(lists: Lists, number: int, box: NDArray[np.float32]) -> Any:
    """Return the block of a packed list that grows least when it takes *box* in; the smaller one among equals."""
    heads, super_boxes, block_boxes = lists.heads, lists.super_boxes, lists.block_boxes
    first = heads[number, 0]
    stop = first + heads[number, 3]
    best, best_growth, best_own = first >> BLOCK_BITS, np.inf, np.inf
    for s in range(first >> BLOCK_BITS, (stop + BLOCK - 1) >> BLOCK_BITS):
        growth, own = _growth(super_boxes, s, box)
        if growth < best_growth or (growth == best_growth and own < best_own):
            best, best_growth, best_own = s, growth, own
    low, high = best << BLOCK_BITS, min((best + 1) << BLOCK_BITS, stop)
    chosen, best_growth, best_own = low, np.inf, np.inf
    for b in range(low, high):
        growth, own = _growth(block_boxes, b, box)
        if growth < best_growth or (growth == best_growth and own < best_own):
            chosen, best_growth, best_own = b, growth, own
    return chosen


@kernel
def _new_block(lists: Lists, number: int) -> Any:
    """Give a packed list, which has room for it, one more block, with a chunk and no posting; return the block."""
    heads = lists.heads
    block = heads[number, 0] + heads[number, 3]
    heads[number, 3] += 1
    chunk = _allot(lists.state, lists.rows, BLOCK_BITS) >> BLOCK_BITS
    lists.blocks[block, 0] = chunk
    lists.blocks[block, 1] = 0
    lists.chunk_blocks[chunk] = block
    for side in range(4):
        lists.block_boxes[block, side] = NO_PLACE[side]
        if block & (BLOCK - 1) == 0:
            lists.super_boxes[block >> BLOCK_BITS, side] = NO_PLACE[side]
    return block


@kernel
def _copy(lists: Lists, homes: NDArray[np.int32], number: int, source: int, target: int) -> None:
    """Copy the posting in slot *source* to slot *target* of a list."""
    for side in range(4):
        lists.boxes[target, side] = lists.boxes[source, side]
    lists.rows[target] = lists.rows[source]
    lists.extras[target, 0] = lists.extras[source, 0]
    lists.extras[target, 1] = lists.extras[source, 1]
    settle(homes, lists.rows[target], number, target)


@kernel
def _put(lists: Lists, block: int) -> Any:
    """Give a block that has room one more posting, and return its slot, which is to be written."""
    slot = (lists.blocks[block, 0] << BLOCK_BITS) + lists.blocks[block, 1]
    lists.blocks[block, 1] += 1
    return slot


@kernel
def _surround(lists: Lists, block: int, slot: int) -> None:
    """Enlarge the boxes around a posting."""
    enlarge(lists.block_boxes, block, lists.boxes, slot)
    enlarge(lists.super_boxes, block >> BLOCK_BITS, lists.block_boxes, block)


@kernel
def _split(lists: Lists, homes: NDArray[np.int32], number: int, block: int) -> Any:
    """Move the half of a full block's postings that lies to one side into a new block, and return that."""
    start = lists.blocks[block, 0] << BLOCK_BITS
    order = np.empty(BLOCK, np.int32)
    arrange(lists.boxes[start : start + BLOCK], BLOCK, BLOCK // 2, order)
    other = _new_block(lists, number)
    leaving = np.zeros(BLOCK, np.bool_)
    for i in range(BLOCK // 2, BLOCK):
        leaving[order[i]] = True
    for side in range(4):
        lists.block_boxes[block, side] = NO_PLACE[side]
    lists.blocks[block, 1] = 0
    for i in range(BLOCK):
        target = other if leaving[i] else block
        slot = _put(lists, target)
        _copy(lists, homes, number, start + i, slot)
        _surround(lists, target, slot)
    return other


@kernel
def _repack(lists: Lists, homes: NDArray[np.int32], number: int) -> None:
    """Pack a list anew into its own blocks, with places to spare where there are enough, and free the other chunks.

    Full blocks would split at the next inserts; a list whose blocks have split has enough for spare places.
    """
    first, n, count = lists.heads[number, 0], lists.heads[number, 1], lists.heads[number, 3]
    boxes, rows, extras = np.empty((n, 4), np.float32), np.empty(n, np.int32), np.empty((n, 2), np.int32)
    copied = 0
    for block in range(first, first + count):
        slot, size = lists.blocks[block, 0] << BLOCK_BITS, lists.blocks[block, 1]
        boxes[copied : copied + size] = lists.boxes[slot : slot + size]
        rows[copied : copied + size] = lists.rows[slot : slot + size]
        extras[copied : copied + size] = lists.extras[slot : slot + size]
        copied += size
    run = max(_FILL, (n + count - 1) // count)
    need = max((n + run - 1) // run, 1)
    for block in range(first + need, first + count):
        _release(lists.state, lists.rows, lists.blocks[block, 0] << BLOCK_BITS, BLOCK)
    lists.heads[number, 3] = need
    lay(lists, homes, number, boxes, rows, extras, n, run)


@kernel
def _to_packed(lists: Lists, homes: NDArray[np.int32], number: int) -> None:
    """Turn a full flat list into a packed one."""
    start, n, room = lists.heads[number, 0], lists.heads[number, 1], lists.heads[number, 2]
    boxes, rows = lists.boxes[start : start + n].copy(), lists.rows[start : start + n].copy()
    extras = lists.extras[start : start + n].copy()
    _release(lists.state, lists.rows, start, room)
    lists.heads[number, 0] = lists.state[USED_BLOCKS]
    lists.state[USED_BLOCKS] += BLOCK
    lists.heads[number, 2] = -BLOCK
    lists.heads[number, 3] = 0
    for _ in range((n + BLOCK - 1) >> BLOCK_BITS):
        _new_block(lists, number)
    lay(lists, homes, number, boxes, rows, extras, n, BLOCK)


@kernel
def _widen_flat(lists: Lists, homes: NDArray[np.int32], number: int) -> None:
    """Move a full flat list to a room of the next power of two."""
    heads = lists.heads
    start, n, room = heads[number, 0], heads[number, 1], heads[number, 2]
    size_class = 0
    while 1 << size_class <= n:
        size_class += 1
    at = _allot(lists.state, lists.rows, size_class)
    for i in range(n):
        _copy(lists, homes, number, start + i, at + i)
    _release(lists.state, lists.rows, start, room)
    heads[number, 0] = at
    heads[number, 2] = 1 << size_class


@kernel
def _widen_blocks(lists: Lists, number: int) -> None:
    """Move the blocks of a packed list to a region of double the room; their chunks stay."""
    heads = lists.heads
    old, count, room = heads[number, 0], heads[number, 3], -heads[number, 2]
    new = lists.state[USED_BLOCKS]
    lists.state[USED_BLOCKS] += 2 * room
    lists.blocks[new : new + count] = lists.blocks[old : old + count]
    lists.block_boxes[new : new + count] = lists.block_boxes[old : old + count]
    supers = (count + BLOCK - 1) >> BLOCK_BITS
    to, from_ = new >> BLOCK_BITS, old >> BLOCK_BITS
    lists.super_boxes[to : to + supers] = lists.super_boxes[from_ : from_ + supers]
    for block in range(new, new + count):
        lists.chunk_blocks[lists.blocks[block, 0]] = block
    heads[number, 0] = new
    heads[number, 2] = -2 * room


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
    state, heads = lists.state, lists.heads
    box = np.empty(4, np.float32)
    for i in range(begin, rows.size):
        row, number = rows[i], targets[i]
        size, room = heads[number, 1], heads[number, 2]
        need = 0
        if room < 0 and heads[number, 3] == -room:
            need = 2 * -room
        elif size == FLAT:
            need = BLOCK
        if (
            state[USED_SLOTS] + 2 * FLAT > lists.rows.size
            or state[USED_BLOCKS] + need > lists.blocks.shape[0]
        ):
            return i
        for side in range(4):
            box[side] = clause_boxes[row, side]
        if room >= 0 and size == room:
            if size < FLAT:
                _widen_flat(lists, homes, number)
            else:
                _to_packed(lists, homes, number)
        block = -1
        if heads[number, 2] >= 0:
            slot = heads[number, 0] + size
        else:
            block = _choose(lists, number, box)
            if lists.blocks[block, 1] == BLOCK:
                if heads[number, 3] == -heads[number, 2]:
                    old = heads[number, 0]
                    _widen_blocks(lists, number)
                    block += heads[number, 0] - old
                other = _split(lists, homes, number, block)
                if _growth(lists.block_boxes, other, box) < _growth(lists.block_boxes, block, box):
                    block = other
            slot = _put(lists, block)
        for side in range(4):
            lists.boxes[slot, side] = box[side]
        write(lists, homes, number, slot, row, extras, i)
        heads[number, 1] = size + 1
        if block >= 0:
            _surround(lists, block, slot)
            _wear(lists, homes, number)
    return rows.size


@kernel
def write(
    lists: Lists,
    homes: NDArray[np.int32],
    number: int,
    slot: int,
    row: int,
    extras: NDArray[np.int32],
    i: int,
) -> None:
    """Write all of a posting but its box: the clause row, and its extras, which are extras[i]."""
    plain = extras[i, 0] == -1 and extras[i, 1] == -1
    lists.rows[slot] = row if plain else ~row
    lists.extras[slot, 0] = extras[i, 0]
    lists.extras[slot, 1] = extras[i, 1]
    homes[row, 0] = number
    homes[row, 1] = slot


@kernel
def _wear(lists: Lists, homes: NDArray[np.int32], number: int) -> None:
    """Count a change of a packed list, and pack it anew when it has seen many for its size."""
    lists.changes[number] += 1
    if lists.changes[number] > max(FLAT, _WEAR * lists.heads[number, 1]):
        _repack(lists, homes, number)


@kernel
def unpost(lists: Lists, homes: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
    """Remove the postings of clause rows: the last one of the list or block takes the free place."""
    heads, blocks = lists.heads, lists.blocks
    for row in rows:
        number, slot = homes[row, 0], homes[row, 1]
        packed = heads[number, 2] < 0
        if packed:
            block = lists.chunk_blocks[slot >> BLOCK_BITS]
            blocks[block, 1] -= 1
            last = (blocks[block, 0] << BLOCK_BITS) + blocks[block, 1]
        else:
            last = heads[number, 0] + heads[number, 1] - 1
        heads[number, 1] -= 1
        if slot != last:
            _copy(lists, homes, number, last, slot)
        homes[row, 0] = -1
        if packed:
            _wear(lists, homes, number)
        elif heads[number, 1] == 0:
            _release(lists.state, lists.rows, heads[number, 0], heads[number, 2])
            heads[number, 2] = 0
