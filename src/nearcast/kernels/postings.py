"""Posting lists in one pool: append, remove, scan.

A posting is a clause's box as four float32 and the clause row: 20 bytes, read from front to back. Rounding keeps
order (a <= b is still a <= b afterwards), so a box and a message that touch still touch when both are rounded;
what only seems to is refused by the decision, on float64. Each list has room to grow. A full one moves to a room of the
next power of two, one that has become short to a smaller one, and an empty one has none; rooms that are left serve
other lists (``slabs``). A clause has one posting: ``Homes`` finds it, so removal is constant time (the last posting of
the list takes the free place).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.slabs import END, allot, release, size_class

__all__ = ["FULL", "Homes", "Pool", "add", "candidates", "is_short", "remove", "rewrite", "shorten", "widen"]

_START = config.POSTING_START
_SHORT = config.POSTING_SHORT

FULL = -1  # returned by candidates when the output has no room


class Pool(NamedTuple):
    """Posting lists; the arrays of postings are longer than the part in use."""

    starts: NDArray[np.int64]  # of each list
    sizes: NDArray[np.int32]
    rooms: NDArray[np.int32]
    boxes: NDArray[np.float32]  # [room, 4], of each posting
    rows: NDArray[np.int32]  # in a free room, the link to the next one


class Homes(NamedTuple):
    """The list of each clause's posting, and its position there."""

    lists: NDArray[np.int32]
    positions: NDArray[np.int32]


@kernel
def widen(pool: Pool, slabs: NDArray[np.int64], end: int, target: int, need: int) -> bool:
    """Move a list to a room for *need* postings or more; tell whether the pool, which ends at *end*, had one."""
    starts, sizes, rooms, boxes, rows = pool
    k = size_class(max(need, _START))
    if slabs[END] + (1 << k) > end:
        return False
    start, size, at = starts[target], sizes[target], allot(slabs, rows, k, 0)
    boxes[at : at + size] = boxes[start : start + size]
    rows[at : at + size] = rows[start : start + size]
    release(slabs, rows, start, rooms[target], 0)
    starts[target] = at
    rooms[target] = 1 << k
    return True


@kernel
def is_short(size: int, room: int) -> Any:
    """Tell whether a list fills so little of its room that it should have a smaller one, or none."""
    return size == 0 or (_SHORT * size <= room and room > _START)


@kernel
def shorten(pool: Pool, slabs: NDArray[np.int64], end: int, target: int) -> None:
    """Move a list that has become short to a smaller room; it stays where the pool is full."""
    size = pool.sizes[target]
    if size > 0:
        widen(pool, slabs, end, target, 2 * size)
    else:
        release(slabs, pool.rows, pool.starts[target], pool.rooms[target], 0)
        pool.rooms[target] = 0


@kernel
def add(
    pool: Pool,
    slabs: NDArray[np.int64],
    end: int,
    homes: Homes,
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    targets: NDArray[np.int64],
    begin: int,
) -> int:
    """Append clause rows to lists from number *begin* on; return the first that found the pool full, or their number.

    The pool has room until *end*; *boxes* are those of all clauses.
    """
    starts, sizes, rooms, posting_boxes, posting_rows = pool
    lists, positions = homes
    for i in range(begin, rows.size):
        c, target = rows[i], targets[i]
        size = sizes[target]
        if size == rooms[target] and not widen(pool, slabs, end, target, size + 1):
            return i
        at = starts[target] + size
        for k in range(4):
            posting_boxes[at, k] = np.float32(boxes[c, k])
        posting_rows[at] = c
        lists[c] = target
        positions[c] = size
        sizes[target] = size + 1
    return rows.size


@kernel
def remove(pool: Pool, slabs: NDArray[np.int64], end: int, homes: Homes, rows: NDArray[np.int64]) -> None:
    """Remove the postings of clause rows."""
    starts, sizes, rooms, boxes, posting_rows = pool
    lists, positions = homes
    for c in rows:
        target, position = lists[c], positions[c]
        last = sizes[target] - 1
        start = starts[target]
        if position != last:
            boxes[start + position] = boxes[start + last]
            posting_rows[start + position] = posting_rows[start + last]
            positions[posting_rows[start + position]] = position
        sizes[target] = last
        lists[c] = -1
        if is_short(last, rooms[target]):
            shorten(pool, slabs, end, target)


@kernel
def rewrite(pool: Pool, homes: Homes, boxes: NDArray[np.float64], rows: NDArray[np.int64]) -> None:
    """Write the boxes of clause rows over those of their postings."""
    lists, positions = homes
    for c in rows:
        at = pool.starts[lists[c]] + positions[c]
        for k in range(4):
            pool.boxes[at, k] = np.float32(boxes[c, k])


@kernel
def candidates(
    starts: NDArray[np.int64],
    sizes: NDArray[np.int32],
    boxes: NDArray[np.float32],
    rows: NDArray[np.int32],
    target: int,
    query: NDArray[np.float32],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Write the clauses of one list whose box touches the box *query*; return the new end, or FULL if there is no room.

    No branch depends on the data: half of the boxes of a list may touch, and a mispredicted branch would cost more than
    the write.
    """
    start, size = starts[target], sizes[target]
    if filled + size > out.size:
        return FULL
    xmin, ymin, xmax, ymax = query[0], query[1], query[2], query[3]
    for at in range(start, start + size):
        out[filled] = rows[at]
        filled += (
            (boxes[at, 0] <= xmax) & (boxes[at, 2] >= xmin) & (boxes[at, 1] <= ymax) & (boxes[at, 3] >= ymin)
        )
    return filled
