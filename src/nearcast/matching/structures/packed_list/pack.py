"""Packing: which postings of a long list share a block.

The order of a k-d tree: the list is cut at the median of the axis along which the centres of its boxes lie further
apart, and so are the halves, until a block is left. Cuts lie between super-blocks while there are several, then between
blocks. So both are full, and small where the postings are dense, however unevenly they lie.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.matching.structures.packed_list.layout import BLOCK, BLOCK_BITS, NO_PLACE, Lists

__all__ = ["arrange", "clear", "copy_box", "enlarge", "inside", "lay", "pack_range", "within", "write"]

_FAR = 1e30
_DEPTH = 64


@kernel
def within(value: float) -> float:
    """Return a coordinate that can be added and subtracted: boxes without end end far away."""
    return min(max(float(value), -_FAR), _FAR)


@kernel
def _select(order: NDArray[np.int32], keys: NDArray[np.float64], low: int, high: int, middle: int) -> None:
    """Arrange order[low:high] so that the keys before *middle* are no larger than those from it on (Hoare)."""
    first, last = low, high - 1
    while first < last:
        pivot = keys[order[(first + last) >> 1]]
        i, j = first, last
        while i <= j:
            while keys[order[i]] < pivot:
                i += 1
            while keys[order[j]] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            last = j
        elif middle >= i:
            first = i
        else:
            return


@kernel
def arrange(boxes: NDArray[np.float32], n: int, run: int, order: NDArray[np.int32]) -> None:
    """Write to *order* the numbers of the *n* boxes so that each *run* of them lies close together.

    So does each run of ``BLOCK`` runs.
    """
    x, y = np.empty(n), np.empty(n)
    for i in range(n):
        order[i] = i
        x[i] = within(boxes[i, 0]) + within(boxes[i, 2])
        y[i] = within(boxes[i, 1]) + within(boxes[i, 3])
    lows, highs = np.empty(_DEPTH, np.int64), np.empty(_DEPTH, np.int64)
    lows[0], highs[0] = 0, n
    depth = 1
    while depth:
        depth -= 1
        low, high = lows[depth], highs[depth]
        while high - low > run:
            xmin = xmax = x[order[low]]
            ymin = ymax = y[order[low]]
            for i in range(low + 1, high):
                at = order[i]
                xmin, xmax = min(xmin, x[at]), max(xmax, x[at])
                ymin, ymax = min(ymin, y[at]), max(ymax, y[at])
            step = run * BLOCK if high - low > run * BLOCK else run
            middle = low + ((high - low + step - 1) // step + 1) // 2 * step
            if xmax - xmin >= ymax - ymin:
                _select(order, x, low, high, middle)
            else:
                _select(order, y, low, high, middle)
            lows[depth], highs[depth] = middle, high  # the later half waits
            depth += 1
            high = middle


@kernel
def enlarge(into: NDArray[np.float32], i: int, boxes: NDArray[np.float32], j: int) -> None:
    """Make box into[i] contain box boxes[j]."""
    into[i, 0] = min(into[i, 0], boxes[j, 0])
    into[i, 1] = min(into[i, 1], boxes[j, 1])
    into[i, 2] = max(into[i, 2], boxes[j, 2])
    into[i, 3] = max(into[i, 3], boxes[j, 3])


@kernel
def inside(inner: NDArray[np.float32], i: int, outer: NDArray[np.float32], j: int) -> Any:
    """Tell whether inner[i] lies inside of outer[j]."""
    return (
        outer[j, 0] <= inner[i, 0]
        and outer[j, 1] <= inner[i, 1]
        and outer[j, 2] >= inner[i, 2]
        and outer[j, 3] >= inner[i, 3]
    )


@kernel
def copy_box(source: NDArray[Any], i: int, target: NDArray[np.float32], j: int) -> None:
    """Let target[j] be source[i], rounded where it has more digits."""
    target[j, 0] = source[i, 0]
    target[j, 1] = source[i, 1]
    target[j, 2] = source[i, 2]
    target[j, 3] = source[i, 3]


@kernel
def clear(boxes: NDArray[np.float32], i: int) -> None:
    """Make boxes[i] contain nothing."""
    for side in range(4):
        boxes[i, side] = NO_PLACE[side]


@kernel
def write(
    lists: Lists,
    homes: NDArray[np.int32],
    number: int,
    slot: int,
    boxes: NDArray[Any],
    at: int,
    row: int,
    second: int,
    third: int,
) -> None:
    """Write a posting with boxes[at] to a slot of a list, and note where it stands; its row may be complemented."""
    copy_box(boxes, at, lists.boxes, slot)
    lists.rows[slot] = row
    lists.extras[slot, 0] = second
    lists.extras[slot, 1] = third
    clause = max(row, ~row)
    homes[clause, 0] = number
    homes[clause, 1] = slot


@kernel
def lay(
    lists: Lists,
    homes: NDArray[np.int32],
    number: int,
    first: int,
    boxes: NDArray[np.float32],
    rows: NDArray[np.int32],
    extras: NDArray[np.int32],
    run: int,
) -> None:
    """Lay postings into the blocks from super-block *first* on, *run* in each; all but the last of these are full."""
    block_boxes, blocks, super_boxes = lists.block_boxes, lists.blocks, lists.super_boxes
    n = rows.size
    order = np.empty(n, np.int32)
    arrange(boxes, n, run, order)
    block = first << BLOCK_BITS
    for low in range(0, n, run):
        s = block >> BLOCK_BITS
        if block & (BLOCK - 1) == 0:
            clear(super_boxes, s)
            lists.super_changes[s] = 0
        clear(block_boxes, block)
        high = min(low + run, n)
        blocks[block, 1] = high - low
        slot = blocks[block, 0] << BLOCK_BITS
        for i in range(low, high):
            at = order[i]
            write(lists, homes, number, slot, boxes, at, rows[at], extras[at, 0], extras[at, 1])
            enlarge(block_boxes, block, boxes, at)
            slot += 1
        enlarge(super_boxes, s, block_boxes, block)
        block += 1


@kernel
def pack_range(lists: Lists, homes: NDArray[np.int32], start: int, stop: int) -> None:
    """Pack those lists from *start* to *stop* that have blocks; their postings lie in a row, in the order of rows."""
    heads = lists.heads
    for number in range(start, stop):
        if heads[number, 2] >= 0:
            continue
        first, n = heads[number, 0], heads[number, 1]
        slot = lists.blocks[first << BLOCK_BITS, 0] << BLOCK_BITS
        boxes, rows = lists.boxes[slot : slot + n].copy(), lists.rows[slot : slot + n].copy()
        lay(lists, homes, number, first, boxes, rows, lists.extras[slot : slot + n].copy(), BLOCK)
