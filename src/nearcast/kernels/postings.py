"""Posting lists in one pool: append, remove, scan, compact.

A posting is a clause's box as four float32, rounded outward, and the clause row: 20 bytes, read from front to
back. Each list has room to grow; a full one moves to the end of the pool with double the room. A clause has one
posting: ``list_of[clause]`` and ``position[clause]`` find it, so removal is constant time (the last posting of the
list takes the free place).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses

__all__ = ["FULL", "Homes", "Pool", "add", "candidates", "compact", "fill", "outward", "remove"]

FULL = -1  # what candidates returns when the output has no room


class Pool(NamedTuple):
    """Posting lists; the arrays of postings are longer than what is used."""

    starts: NDArray[np.int64]  # of each list
    sizes: NDArray[np.int32]
    rooms: NDArray[np.int32]
    boxes: NDArray[np.float32]  # [room, 4], of each posting
    rows: NDArray[np.int32]


class Homes(NamedTuple):
    """Where the posting of each clause stands."""

    lists: NDArray[np.int32]
    positions: NDArray[np.int32]


@kernel
def outward(box: NDArray[np.float64], out: NDArray[np.float32]) -> None:
    """Write the smallest float32 box that contains *box*."""
    for i in range(4):
        value = np.float32(box[i])
        if i < 2 and value > box[i]:
            value = np.nextafter(value, np.float32(-np.inf))
        elif i >= 2 and value < box[i]:
            value = np.nextafter(value, np.float32(np.inf))
        out[i] = value


@kernel
def _put(pool: Pool, homes: Homes, target: int, clauses: Clauses, c: int) -> None:
    """Write the posting of clause *c* at the end of a list that has room."""
    position = pool.sizes[target]
    at = pool.starts[target] + position
    outward(clauses.boxes[c], pool.boxes[at])
    pool.rows[at] = c
    homes.lists[c] = target
    homes.positions[c] = position
    pool.sizes[target] = position + 1


@kernel
def fill(
    pool: Pool, homes: Homes, clauses: Clauses, rows: NDArray[np.int64], targets: NDArray[np.int64]
) -> None:
    """Append clause rows to lists that all have room: the bulk build."""
    for i in range(rows.size):
        _put(pool, homes, targets[i], clauses, rows[i])


@kernel
def add(
    pool: Pool,
    homes: Homes,
    clauses: Clauses,
    rows: NDArray[np.int64],
    targets: NDArray[np.int64],
    begin: int,
    used: int,
    room: int,
) -> Any:
    """Append clause rows to lists from number *begin* on; returns (next, used) when done or when the pool is full.

    *used* is the end of the pool; *room* is that of a list's first block.
    """
    for i in range(begin, rows.size):
        target = targets[i]
        size = pool.sizes[target]
        if size == pool.rooms[target]:
            wider = max(room, 2 * size)
            if used + wider > pool.rows.size:
                return i, used
            start = pool.starts[target]
            pool.boxes[used : used + size] = pool.boxes[start : start + size]
            pool.rows[used : used + size] = pool.rows[start : start + size]
            pool.starts[target] = used
            pool.rooms[target] = wider
            used += wider
        _put(pool, homes, target, clauses, rows[i])
    return rows.size, used


@kernel
def remove(pool: Pool, homes: Homes, rows: NDArray[np.int64]) -> None:
    """Remove the postings of clause rows."""
    for c in rows:
        target, position = homes.lists[c], homes.positions[c]
        last = pool.sizes[target] - 1
        start = pool.starts[target]
        if position != last:
            pool.boxes[start + position] = pool.boxes[start + last]
            pool.rows[start + position] = pool.rows[start + last]
            homes.positions[pool.rows[start + position]] = position
        pool.sizes[target] = last
        homes.lists[c] = -1


@kernel
def compact(pool: Pool, boxes: NDArray[np.float32], rows: NDArray[np.int32]) -> int:
    """Copy the lists one after the other into new arrays, without spare room; return the end."""
    used = 0
    for target in range(pool.starts.size):
        start, size = pool.starts[target], pool.sizes[target]
        boxes[used : used + size] = pool.boxes[start : start + size]
        rows[used : used + size] = pool.rows[start : start + size]
        pool.starts[target] = used
        pool.rooms[target] = size
        used += size
    return used


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
    """Write the clauses of one list whose box touches the box *query*; return the new end, or FULL without room.

    No branch depends on the data: half of the boxes of a list may touch, and a wrong guess would cost more than
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
