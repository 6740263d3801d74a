"""Posting lists in which a clause may have several postings, in different lists."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.postings import Pool, is_short, shorten, widen
from nearcast.matching.structures.postings import PostingLists

__all__ = ["SharedLists"]


class SharedLists(PostingLists):
    """Numbered lists of clause rows; the caller remembers the lists of a row, and dead rows are removed together."""

    def lay(self, boxes: NDArray[np.float64], rows: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        """Post all *rows* at once; each list has just the room that it needs."""
        self._lay_out(np.bincount(targets))
        self.post(boxes, rows, targets)

    def post(self, boxes: NDArray[np.float64], rows: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        """Post more rows, ``rows[i]`` in the list ``targets[i]``; lists and pool grow as needed."""
        self._more_lists(targets)
        self.postings += len(rows)
        done = 0
        while done < len(rows):
            done = _post(self.pool, self._slabs, self._room, boxes, rows, targets, done)
            if done < len(rows):
                self._make_room(int(targets[done]))

    def sweep(self, lists: NDArray[Any], alive: NDArray[np.bool_]) -> None:
        """Remove dead clause rows from the given lists."""
        self.postings -= _sweep(self.pool, self._slabs, self._room, lists, alive)


@kernel
def _post(
    pool: Pool,
    slabs: NDArray[np.int64],
    end: int,
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    targets: NDArray[np.int32],
    begin: int,
) -> int:
    """Append postings from number *begin* on, until done or the pool is full; return the number of the next one."""
    starts, sizes, rooms, posting_boxes, posting_rows = pool
    for i in range(begin, rows.size):
        c, target = rows[i], targets[i]
        size = sizes[target]
        if size == rooms[target] and not widen(pool, slabs, end, target, size + 1):
            return i
        at = starts[target] + size
        for k in range(4):
            posting_boxes[at, k] = np.float32(boxes[c, k])
        posting_rows[at] = c
        sizes[target] = size + 1
    return rows.size


@kernel
def _sweep(
    pool: Pool, slabs: NDArray[np.int64], end: int, lists: NDArray[Any], alive: NDArray[np.bool_]
) -> int:
    """Remove the postings of dead rows from lists; return how many there were."""
    starts, sizes, rooms, boxes, rows = pool
    gone = 0
    for target in lists:
        start, stop = starts[target], starts[target] + sizes[target]
        at = start
        while at < stop:  # the last posting takes the place of a dead one
            if alive[rows[at]]:
                at += 1
            else:
                stop -= 1
                rows[at] = rows[stop]
                for k in range(4):
                    boxes[at, k] = boxes[stop, k]
        gone += sizes[target] - (stop - start)
        sizes[target] = stop - start
        if is_short(sizes[target], rooms[target]):
            shorten(pool, slabs, end, target)
    return gone
