"""Posting lists in which a clause may stand more than once, in different lists."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel
from nearcast.kernels.postings import Pool
from nearcast.matching.structures.postings import PostingLists

__all__ = ["SharedLists"]


class SharedLists(PostingLists):
    """Numbered lists of clause rows; who posts remembers where, and the dead are swept out of a list together."""

    def lay(self, boxes: NDArray[np.float64], rows: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        """Post all *rows* at once, each list as long as it must be."""
        sizes = np.bincount(targets)
        self._used = len(rows)
        self.pool = Pool(
            offsets_of(sizes)[:-1],
            np.zeros(len(sizes), np.int32),
            sizes.astype(np.int32),
            np.empty((len(rows), 4), np.float32),
            np.empty(len(rows), np.int32),
        )
        self.post(boxes, rows, targets)

    def post(self, boxes: NDArray[np.float64], rows: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        """Post more rows, ``rows[i]`` in the list ``targets[i]``; lists and pool grow as needed."""
        if len(targets) and targets.max() >= len(self.pool.starts):
            self._more_lists(int(targets.max()) + 1)
        done = 0
        while done < len(rows):
            done, self._used = _post(self.pool, boxes, rows, targets, done, self._used, config.POSTING_START)
            if done < len(rows):
                self._make_room(int(self.pool.sizes[targets[done]]))

    def sweep(self, lists: NDArray[Any], alive: NDArray[np.bool_]) -> None:
        """Take dead clause rows out of the given lists."""
        _sweep(self.pool, lists, alive)


@kernel
def _post(
    pool: Pool,
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    targets: NDArray[np.int32],
    begin: int,
    used: int,
    room: int,
) -> Any:
    """Append postings from number *begin* on; returns (next, used) when done or when the pool is full."""
    starts, sizes, rooms, posting_boxes, posting_rows = pool
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
        sizes[target] = size + 1
    return rows.size, used


@kernel
def _sweep(pool: Pool, lists: NDArray[Any], alive: NDArray[np.bool_]) -> None:
    starts, sizes, _, boxes, rows = pool
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
        sizes[target] = stop - start
