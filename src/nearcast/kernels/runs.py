"""Runs of any length in a pool of values. Freed runs are chained by length and given out again.

A ragged column keeps the values of all its rows in one pool; the *run* of a row says where its values begin and end.
The allocator of a pool is one small integer array, *room*: entry ``END`` is the number of values handed out so far,
entry ``n`` (from 1 to ``LONGEST``) is the first free run of exactly n values, or -1, and entry ``LONGER`` is the first
free run that is longer than all of these. ``FREE`` counts the free runs. The chains go through *links*, an integer
array of the pool: a free run holds the start of the next one and, if it is one of the longer ones, its length after it.

A run is cut to fit and never joined to its neighbour again. Memory stays bounded all the same: a run of n values is
made only when all runs of that length are in use, so there are never more of them than rows needed at one time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch

__all__ = ["END", "FREE", "allot_runs", "compare_runs", "copy_runs", "empty_room", "release_runs"]

_AHEAD = config.UPDATE_AHEAD

END = 0
LONGEST = 32  # the longest length that has a chain of its own
LONGER, FREE = LONGEST + 1, LONGEST + 2


def empty_room(end: int = 0) -> NDArray[np.int64]:
    """Return the allocator of a pool whose first *end* values are in use."""
    room = np.full(FREE + 1, -1, np.int64)
    room[END], room[FREE] = end, 0
    return room


@kernel
def _release(room: NDArray[np.int64], links: NDArray[np.int32], at: int, size: int) -> None:
    if size == 0:
        return
    chain = min(size, LONGER)
    room[FREE] += 1
    links[at] = room[chain]
    room[chain] = at
    if chain == LONGER:
        links[at + 1] = size


@kernel
def _allot(room: NDArray[np.int64], links: NDArray[np.int32], size: int) -> Any:
    """Return the start of a run of *size* values: at the front of a free run, or at the end of the pool."""
    if size == 0:
        return np.int64(0)
    if room[FREE] == 0:
        at = room[END]
        room[END] += size
        return at
    for length in range(size, LONGEST + 1):
        at = room[length]
        if at >= 0:
            room[FREE] -= 1
            room[length] = links[at]
            _release(room, links, at + size, length - size)
            return at
    before, at = np.int64(-1), room[LONGER]
    while at >= 0:
        after, length = np.int64(links[at]), np.int64(links[at + 1])
        if length >= size:
            room[FREE] -= 1
            if before < 0:
                room[LONGER] = after
            else:
                links[before] = after
            _release(room, links, at + size, length - size)
            return at
        before, at = at, after
    at = room[END]
    room[END] += size
    return at


@kernel
def allot_runs(
    room: NDArray[np.int64],
    links: NDArray[np.int32],
    runs: NDArray[np.int32],
    rows: NDArray[np.int64],
    like: NDArray[np.int32],
) -> None:
    """Give row ``rows[i]`` a run as long as ``like[i]``; behind ``END`` the pool must have room for all of them."""
    for i in range(rows.size):
        size = like[i, 1] - like[i, 0]
        at = _allot(room, links, size)
        runs[rows[i], 0] = at
        runs[rows[i], 1] = at + size


@kernel
def copy_runs(
    source: NDArray[np.int32],
    values: NDArray[Any],
    runs: NDArray[np.int32],
    rows: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """Copy the values of run ``source[i]`` to the run of row ``rows[i]``, which has the same length."""
    for i in range(rows.size):
        first, at = source[i, 0], runs[rows[i], 0]
        for k in range(source[i, 1] - first):
            out[at + k] = values[first + k]


@kernel
def release_runs(
    room: NDArray[np.int64], links: NDArray[np.int32], runs: NDArray[np.int32], rows: NDArray[np.int64]
) -> None:
    """Free the runs of *rows*, and leave the rows without any."""
    for row in rows:
        first = runs[row, 0]
        _release(room, links, first, runs[row, 1] - first)
        runs[row, 0] = 0
        runs[row, 1] = 0


@kernel
def compare_runs(
    source: NDArray[np.int32],
    values: NDArray[Any],
    runs: NDArray[np.int32],
    stored: NDArray[Any],
    rows: NDArray[np.int64],
    changed: NDArray[np.bool_],
) -> None:
    """Set ``changed[i]`` if run ``source[i]`` differs from the run of row ``rows[i]``."""
    for i in range(rows.size):
        prefetch(runs, rows[i])
    for i in range(rows.size):
        ahead = rows[min(i + _AHEAD, rows.size - 1)]
        prefetch(stored, runs[ahead, 0])
        first, at = source[i, 0], runs[rows[i], 0]
        count = source[i, 1] - first
        if runs[rows[i], 1] - at != count:
            changed[i] = True
            continue
        for k in range(count):
            if stored[at + k] != values[first + k]:
                changed[i] = True
                break
