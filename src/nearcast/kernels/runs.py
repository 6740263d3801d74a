"""Runs of any length in a pool of values. Freed runs are chained by length and given out again.

A ragged column keeps the values of all its rows in one pool, and a row's *run* says where its own begin and end. The
allocator of a pool is one small integer array, *room*. Entry ``END`` is the number of values handed out so far, and
entry n, from 1 to ``LONGEST``, is the first free run of exactly n values, or -1. A longer run takes a room of 2^k
values, and entry ``LONGER + k`` is the first free one of these. ``FREE`` counts the free runs. The chains go through
*links*, an integer array of the pool: a free run holds the start of the next one.

The first ``GIVEN`` values are those that the pool began with, one row right behind the other. A long run among them has
no room of its own: it is freed in pieces that serve short ones.

A short run is cut to fit and never joined to its neighbour again. Memory stays bounded all the same: a run of n values
is made only when all of that length are in use, so there are never more of them than rows needed at a time.
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
LONGEST = 64  # of the runs that have just the length they need
LONGER = LONGEST - 6  # the entry of 2^k, from 2^7 on, is this one plus k
GIVEN, FREE = LONGER + 32, LONGER + 33


def empty_room(end: int = 0) -> NDArray[np.int64]:
    """Return the allocator of a pool that begins with *end* values, all in use."""
    room = np.full(FREE + 1, -1, np.int64)
    room[END], room[GIVEN], room[FREE] = end, end, 0
    return room


@kernel
def _class(size: int) -> Any:
    """Return the least k such that 2^k values hold a run of *size*."""
    k = 7
    while 1 << k < size:
        k += 1
    return k


@kernel
def _chain(room: NDArray[np.int64], links: NDArray[np.int32], chain: int, at: int) -> None:
    links[at] = room[chain]
    room[chain] = at
    room[FREE] += 1


@kernel
def _unchain(room: NDArray[np.int64], links: NDArray[np.int32], chain: int) -> Any:
    at = room[chain]
    room[chain] = links[at]
    room[FREE] -= 1
    return at


@kernel
def _release(room: NDArray[np.int64], links: NDArray[np.int32], at: int, size: int) -> None:
    if size > LONGEST and at >= room[GIVEN]:
        _chain(room, links, LONGER + _class(size), at)
        return
    while size > 0:
        piece = min(size, LONGEST)
        _chain(room, links, piece, at)
        at += piece
        size -= piece


@kernel
def _allot(room: NDArray[np.int64], links: NDArray[np.int32], size: int) -> Any:
    """Return where a run of *size* values begins: a free one, the front of a longer free one, or the pool's end."""
    taken = size
    if size > LONGEST:
        chain = LONGER + _class(size)
        if room[chain] >= 0:
            return _unchain(room, links, chain)
        taken = 1 << _class(size)
    elif size > 0 and room[FREE] > 0:
        for length in range(size, LONGEST + 1):
            if room[length] >= 0:
                at = _unchain(room, links, length)
                if length > size:
                    _chain(room, links, length - size, at + size)
                return at
    at = room[END]
    room[END] += taken
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
