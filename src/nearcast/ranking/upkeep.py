"""Buffers while messages come and go: the loops over many of them.

Each thread keeps the buffers of its own part of the rows, those with ``row % parts == part``. What will be needed is
asked for some rows ahead: a buffer is eight cache lines somewhere in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.ranking.buffers import AHEAD, Held, enter, fill, leave, place_of, position_of, prefetch_entries
from nearcast.ranking.updates import Log, remember

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.recall import Best
    from nearcast.ranking.subscribers import Asked

__all__ = ["Pairs", "Share", "arrive", "expire", "refill"]


class Pairs(NamedTuple):
    """Messages and the rows that they concern, one each, in the order of messages."""

    messages: NDArray[np.int64]
    rows: NDArray[np.int32]
    scores: NDArray[np.float64]


class Share(NamedTuple):
    """What one thread does."""

    part: int
    parts: int
    call: int  # the number of the call that changes results


@kernel
def _ask_ahead(
    starts: NDArray[np.int64],
    counts: NDArray[np.int32],
    scores: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    rows: NDArray[np.int32],
    i: int,
    part: int,
    parts: int,
) -> None:
    if i + 2 * AHEAD < len(rows):
        row = rows[i + 2 * AHEAD]
        if row % parts == part:
            prefetch(starts, row)
            prefetch(thresholds, row)
    if i + AHEAD < len(rows):
        row = rows[i + AHEAD]
        if row % parts == part:
            prefetch_entries(scores, starts[row], counts[row])


@kernel
def arrive(
    held: Held,
    asked: Asked,
    pairs: Pairs,
    share: Share,
    log: Log,
    begin: int,
    entered: NDArray[np.bool_],
    raised: NDArray[np.int32],
) -> Any:
    """Put messages into the buffers that they concern, from pair *begin* on; return where it stopped.

    It stops before a buffer, or a log, without room. *entered* tells which pairs were taken, *raised* begins with those
    rows, some more than once, that have a new threshold because their buffer was over its limit; how many is returned
    too.
    """
    starts, rooms, counts, limits, wanted, dominators, seen, scores, keys = held
    thresholds, sizes = asked.thresholds, asked.sizes
    messages, rows, values = pairs
    part, parts, call = share
    log_rows, log_ends, log_scores, log_messages, log_used = log
    higher = 0
    for i in range(begin, len(rows)):
        _ask_ahead(starts, counts, scores, thresholds, rows, i, part, parts)
        row = rows[i]
        if row % parts != part or values[i] < thresholds[row]:
            continue
        start, count, k = starts[row], counts[row], sizes[row]
        if count == rooms[row]:
            return i, higher
        at = place_of(scores, start, count, values[i])
        if at < k and seen[row] != call:
            if not remember(
                log_rows,
                log_ends,
                log_scores,
                log_messages,
                log_used,
                scores,
                keys,
                row,
                start,
                min(count, k),
            ):
                return i, higher
            seen[row] = call
        count = enter(scores, keys, start, count, at, messages[i], values[i], dominators[row])
        entered[i] = True
        if count > limits[row]:
            count = wanted[row]
            thresholds[row] = scores[start + count - 1]
            raised[higher] = row
            higher += 1
        counts[row] = count
    return len(rows), higher


@kernel
def expire(
    held: Held,
    asked: Asked,
    pairs: Pairs,
    share: Share,
    log: Log,
    begin: int,
    short: NDArray[np.int32],
) -> Any:
    """Take messages out of the buffers that held them, from pair *begin* on (Algorithm 2, lines 1 to 3).

    Rows that need others are written to *short*, each once. Return where it stopped, before a log without room, and how
    many are short.
    """
    starts, counts, seen, scores, keys = held.starts, held.counts, held.seen, held.scores, held.keys
    thresholds, sizes = asked.thresholds, asked.sizes
    messages, rows, _ = pairs
    part, parts, call = share
    log_rows, log_ends, log_scores, log_messages, log_used = log
    needy = 0
    for i in range(begin, len(rows)):
        _ask_ahead(starts, counts, scores, thresholds, rows, i, part, parts)
        row = rows[i]
        if row % parts != part:
            continue
        start, count, k = starts[row], counts[row], sizes[row]
        at = position_of(keys, start, count, messages[i])
        if at < 0:
            continue
        if at < k and seen[row] != call:
            if not remember(
                log_rows,
                log_ends,
                log_scores,
                log_messages,
                log_used,
                scores,
                keys,
                row,
                start,
                min(count, k),
            ):
                return i, needy
            seen[row] = call
        leave(scores, keys, start, count, at)
        counts[row] = count - 1
        if count == k and thresholds[row] > 0.0:  # it had k just now: each row once
            short[needy] = row
            needy += 1
    return len(rows), needy


@kernel
def refill(
    held: Held, asked: Asked, rows: NDArray[np.int32], wanted: NDArray[np.int32], ratio: float, best: Best
) -> None:
    """Fill buffers with the best messages of the window (Algorithm 2, lines 4 to 6).

    The threshold is the score of the last of them or, where that is more, the share *ratio* of the k-th score.
    """
    for i in range(len(rows)):
        row, count = rows[i], best.counts[i]
        # With fewer than it asked for it has all that share a word with it: every newcomer that does is taken.
        threshold = best.scores[i, count - 1] if count == wanted[i] else 0.0
        if ratio > 0.0 and count >= asked.sizes[row]:
            threshold = max(threshold, ratio * best.scores[i, asked.sizes[row] - 1])
            while best.scores[i, count - 1] < threshold:
                count -= 1
        fill(held, row, best.scores[i], best.messages[i], count)
        asked.thresholds[row] = threshold
