"""What changed: the results before and after, as ``+`` and ``-``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.ranking.buffers import AHEAD, SHIFT, Held, prefetch_entries

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Changes", "Log", "differences", "new_log", "remember"]


class Changes(NamedTuple):
    """Rows of updates, subscription by subscription: first what goes, then what comes, each best first."""

    rows: NDArray[np.int32]
    messages: NDArray[np.int64]
    changes: NDArray[np.int8]
    scores: NDArray[np.float64]
    ranks: NDArray[np.int32]  # from 1: where it was, or where it is now


class Log(NamedTuple):
    """Results as they were, as kernels see them."""

    rows: NDArray[np.int32]
    ends: NDArray[np.int64]  # of the results of each row
    scores: NDArray[np.float64]
    messages: NDArray[np.int64]
    used: NDArray[np.int64]  # rows, and results


def new_log(results: int) -> Log:
    """Return an empty log with room for so many results of one row, and more."""
    room = max(config.RANKING_LOG, results)
    return Log(
        np.empty(room // 4, np.int32),
        np.empty(room // 4, np.int64),
        np.empty(room),
        np.empty(room, np.int64),
        np.zeros(2, np.int64),
    )


@kernel
def remember(
    rows: NDArray[np.int32],
    ends: NDArray[np.int64],
    old_scores: NDArray[np.float64],
    old_messages: NDArray[np.int64],
    used: NDArray[np.int64],
    scores: NDArray[np.float64],
    keys: NDArray[np.int64],
    row: int,
    start: int,
    count: int,
) -> Any:
    """Keep the results of a row, the first *count* entries of its buffer, in a log; say whether there was room."""
    n, end = used[0], used[1]
    if n == len(rows) or end + count > len(old_scores):
        return False
    for i in range(count):
        old_scores[end + i] = scores[start + i]
        old_messages[end + i] = keys[start + i] >> SHIFT
    rows[n], ends[n] = row, end + count
    used[0], used[1] = n + 1, end + count
    return True


def differences(log: Log, held: Held, sizes: NDArray[np.int32]) -> Changes:
    """Return what became of the results since."""
    count, used = log.used.tolist()
    rows = log.rows[:count]
    room = int(used + np.minimum(held.counts[rows], sizes[rows]).sum())
    out = Changes(
        np.empty(room, np.int32),
        np.empty(room, np.int64),
        np.empty(room, np.int8),
        np.empty(room),
        np.empty(room, np.int32),
    )
    made = _differences(held, sizes, log, out)
    return Changes._make(column[:made] for column in out)


@kernel
def _differences(held: Held, sizes: NDArray[np.int32], log: Log, out: Changes) -> Any:
    """Merge the results before and after, both in the order of rank, and write what is in one of them alone."""
    out_rows, out_messages, out_changes, out_scores, out_ranks = out
    rows, ends, scores, messages = log.rows, log.ends, log.scores, log.messages
    now_scores, keys, starts, counts = held.scores, held.keys, held.starts, held.counts
    came = np.empty(1024, np.int64)  # where in the buffer
    count, begin, changed = 0, 0, log.used[0]
    for r in range(changed):
        if r + 2 * AHEAD < changed:
            prefetch(starts, rows[r + 2 * AHEAD])
            prefetch(sizes, rows[r + 2 * AHEAD])
        if r + AHEAD < changed:
            prefetch_entries(now_scores, starts[rows[r + AHEAD]], counts[rows[r + AHEAD]])
        row, end = rows[r], ends[r]
        start = starts[row]
        stop = start + min(counts[row], sizes[row])
        if stop - start > len(came):
            came = np.empty(2 * (stop - start), np.int64)
        i, j, new = begin, start, 0
        while i < end or j < stop:
            if i < end and j < stop and messages[i] == keys[j] >> SHIFT:
                i += 1
                j += 1
            elif i < end and (
                j == stop
                or scores[i] > now_scores[j]
                or (scores[i] == now_scores[j] and messages[i] > keys[j] >> SHIFT)
            ):
                out_rows[count], out_messages[count], out_changes[count] = row, messages[i], -1
                out_scores[count], out_ranks[count] = scores[i], i - begin + 1
                count += 1
                i += 1
            else:
                came[new] = j
                new += 1
                j += 1
        for n in range(new):
            j = came[n]
            out_rows[count], out_messages[count], out_changes[count] = row, keys[j] >> SHIFT, 1
            out_scores[count], out_ranks[count] = now_scores[j], j - start + 1
            count += 1
        begin = end
    return count
