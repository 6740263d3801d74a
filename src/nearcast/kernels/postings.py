"""Posting lists in one pool: append, remove, scan, compact.

A posting is a clause's box as four float32 and the clause row: 20 bytes, read from front to back. Rounding preserves
order (a <= b is still a <= b afterwards), so a box and a message that touch still touch when both are rounded; a pair
that touches only after rounding is refused by the decision, on float64. Each list has room to grow; a full list moves
to the end of the pool and gets twice the room. A clause has one posting, which ``Homes`` finds, so removal takes
constant time: the last posting of the list takes the free place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel

__all__ = ["FULL", "Homes", "Pool", "add", "candidates", "compact", "remove"]

FULL = -1  # returned by candidates when the output has no room


class Pool(NamedTuple):
    """Posting lists; the arrays of postings are longer than the part in use."""

    starts: NDArray[np.int64]  # of each list
    sizes: NDArray[np.int32]
    rooms: NDArray[np.int32]
    boxes: NDArray[np.float32]  # [room, 4], of each posting
    rows: NDArray[np.int32]


class Homes(NamedTuple):
    """The list of each clause's posting, and its position there."""

    lists: NDArray[np.int32]
    positions: NDArray[np.int32]


@kernel
def add(
    pool: Pool,
    homes: Homes,
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    targets: NDArray[np.int64],
    begin: int,
    used: int,
    room: int,
) -> Any:
    """Append the clause rows from ``rows[begin]`` on to their target lists, until all are done or the pool is full.

    Returns (next, used). *boxes* are those of all clauses, *used* is the end of the used part of the pool, and *room*
    is the room that a list gets first.
    """
    starts, sizes, rooms, posting_boxes, posting_rows = pool
    lists, positions = homes
    for i in range(begin, rows.size):
        c, target = rows[i], targets[i]
        size = sizes[target]
        if size == rooms[target]:
            wider = max(room, 2 * size)
            if used + wider > posting_rows.size:
                return i, used
            start = starts[target]
            posting_boxes[used : used + size] = posting_boxes[start : start + size]
            posting_rows[used : used + size] = posting_rows[start : start + size]
            starts[target] = used
            rooms[target] = wider
            used += wider
        at = starts[target] + size
        for k in range(4):
            posting_boxes[at, k] = np.float32(boxes[c, k])
        posting_rows[at] = c
        lists[c] = target
        positions[c] = size
        sizes[target] = size + 1
    return rows.size, used


@kernel
def remove(pool: Pool, homes: Homes, rows: NDArray[np.int64]) -> None:
    """Remove the postings of clause rows."""
    starts, sizes, _, boxes, posting_rows = pool
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


@kernel
def compact(pool: Pool, boxes: NDArray[np.float32], rows: NDArray[np.int32]) -> int:
    """Copy the lists into new arrays one after the other, without spare room; return the end."""
    starts, sizes, rooms, old_boxes, old_rows = pool
    used = 0
    for target in range(starts.size):
        start, size = starts[target], sizes[target]
        if size > 0:
            boxes[used : used + size] = old_boxes[start : start + size]
            rows[used : used + size] = old_rows[start : start + size]
        starts[target] = used
        rooms[target] = size
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
