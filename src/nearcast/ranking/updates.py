"""What changed: the results before and after, as ``+`` and ``-``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.growable import GrowableArray
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.buffers import Held

__all__ = ["Before", "Changes", "differences"]


class Changes(NamedTuple):
    """Rows of updates, subscription by subscription: first what goes, then what comes, each best first."""

    rows: NDArray[np.int32]
    messages: NDArray[np.int64]
    changes: NDArray[np.int8]
    scores: NDArray[np.float64]
    ranks: NDArray[np.int32]  # from 1: where it was, or where it is now


class Before:
    """The results of the rows that a call touches, as they were before it."""

    def __init__(self, seen: NDArray[np.int64], call: int) -> None:
        self._seen, self._call = seen, call  # the last call that touched each row, and the number of this one
        self.rows = GrowableArray(np.empty(0, np.int32), borrowed=False)
        self.offsets = GrowableArray(np.zeros(1, np.int64), borrowed=False)
        self.messages = GrowableArray(np.empty(0, np.int64), borrowed=False)
        self.scores = GrowableArray(np.empty(0), borrowed=False)

    def remember(self, held: Held, sizes: NDArray[np.int32], rows: NDArray[np.int32]) -> None:
        """Keep the results of rows that are touched for the first time."""
        new = np.empty(len(rows), np.int32)
        new = new[: _first_seen(self._seen, self._call, rows, new)]
        if not len(new):
            return
        counts = np.minimum(held.counts[new], sizes[new]).astype(np.int64)
        offsets = np.cumsum(counts)
        messages, scores = np.empty(int(offsets[-1]), np.int64), np.empty(int(offsets[-1]))
        _copy(held, new, counts, messages, scores)
        self.rows.extend(new)
        self.offsets.extend(offsets + self.offsets.values[-1])
        self.messages.extend(messages)
        self.scores.extend(scores)


def differences(before: Before, held: Held, sizes: NDArray[np.int32]) -> Changes:
    """Return what became of the results since."""
    rows, offsets = before.rows.values, before.offsets.values
    room = int(len(before.messages.values) + np.minimum(held.counts[rows], sizes[rows]).sum())
    out = Changes(
        np.empty(room, np.int32),
        np.empty(room, np.int64),
        np.empty(room, np.int8),
        np.empty(room),
        np.empty(room, np.int32),
    )
    count = _differences(held, sizes, rows, offsets, before.messages.values, before.scores.values, out)
    return Changes._make(column[:count] for column in out)


@kernel
def _first_seen(seen: NDArray[np.int64], call: int, rows: NDArray[np.int32], out: NDArray[np.int32]) -> Any:
    count = 0
    for row in rows:
        if seen[row] != call:
            seen[row] = call
            out[count] = row
            count += 1
    return count


@kernel
def _copy(
    held: Held,
    rows: NDArray[np.int32],
    counts: NDArray[np.int64],
    messages: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> None:
    at = 0
    for i in range(len(rows)):
        start = held.starts[rows[i]]
        for j in range(start, start + counts[i]):
            messages[at], scores[at] = held.messages[j], held.scores[j]
            at += 1


@kernel
def _differences(
    held: Held,
    sizes: NDArray[np.int32],
    rows: NDArray[np.int32],
    offsets: NDArray[np.int64],
    messages: NDArray[np.int64],
    scores: NDArray[np.float64],
    out: Changes,
) -> Any:
    """Merge the results before and after, both in the order of rank, and write what is in one of them alone."""
    out_rows, out_messages, out_changes, out_scores, out_ranks = out
    count = 0
    for r in range(len(rows)):
        row = rows[r]
        start = held.starts[row]
        stop = start + min(held.counts[row], sizes[row])
        for coming in range(2):
            i, j = offsets[r], start
            while i < offsets[r + 1] or j < stop:
                ended, left = i == offsets[r + 1], j == stop
                if not ended and not left and messages[i] == held.messages[j]:
                    i += 1
                    j += 1
                    continue
                old = not ended and (
                    left
                    or scores[i] > held.scores[j]
                    or (scores[i] == held.scores[j] and messages[i] > held.messages[j])
                )
                if old and coming == 0:
                    out_rows[count], out_messages[count], out_changes[count] = row, messages[i], -1
                    out_scores[count], out_ranks[count] = scores[i], i - offsets[r] + 1
                    count += 1
                elif not old and coming == 1:
                    out_rows[count], out_messages[count], out_changes[count] = row, held.messages[j], 1
                    out_scores[count], out_ranks[count] = held.scores[j], j - start + 1
                    count += 1
                i += old
                j += not old
    return count
