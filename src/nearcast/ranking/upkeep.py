"""Buffers while messages come and go: the loops over many of them.

Each thread keeps the buffers of its own part of the rows, those with ``row % parts == part``. What will be needed is
asked for some rows ahead: a buffer is eight cache lines somewhere in memory, and they are looked at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.ranking.buffers import (
    AHEAD,
    EVERYTHING,
    SHIFT,
    Held,
    enter,
    fill,
    leave,
    place_of,
    position_of,
    prefetch_entries,
)
from nearcast.ranking.updates import NONE, Events, chained

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.recall import Best
    from nearcast.ranking.subscribers import Asked

__all__ = ["Pairs", "Share", "arrive", "expire", "gain", "refill", "withdraw"]


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
    rows: NDArray[np.int32],
    i: int,
    part: int,
    parts: int,
) -> None:
    if i + 2 * AHEAD < len(rows):
        row = rows[i + 2 * AHEAD]
        if row % parts == part:
            prefetch(starts, row)
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
    events: Events,
    begin: int,
    entered: NDArray[np.bool_],
    raised: NDArray[np.int32],
) -> Any:
    """Put messages into the buffers that they concern, from pair *begin* on; return where it stopped.

    It stops before a buffer without room, or where there is none for events. *entered* tells which pairs were taken,
    *raised* begins with those rows, some more than once, that have a new threshold because their buffer was over its
    limit; how many is returned too.
    """
    starts, thresholds, rooms, counts, sizes, limits, wanted, dominators, seen, last, scores, keys = held
    messages, rows, values = pairs
    part, parts, call = share
    changed, earlier, lost, lost_scores, won, won_scores, lost_ranks, won_ranks, used = events
    higher = 0
    for i in range(begin, len(rows)):
        _ask_ahead(starts, counts, scores, rows, i, part, parts)
        row = rows[i]
        if row % parts != part or values[i] < thresholds[row]:
            continue
        start, count, k = starts[row], counts[row], sizes[row]
        if count == rooms[row] or used[0] == len(changed):
            return i, higher
        at = place_of(scores, start, count, values[i])
        if at < k:
            event = chained(changed, earlier, used, seen, last, call, row)
            won[event], won_scores[event], won_ranks[event] = messages[i], values[i], at + 1
            lost[event] = NONE
            if count >= k:
                lost[event], lost_scores[event] = keys[start + k - 1] >> SHIFT, scores[start + k - 1]
                lost_ranks[event] = k
        count = enter(scores, keys, start, count, at, messages[i], values[i], dominators[row])
        entered[i] = True
        if count > limits[row]:
            count = wanted[row]
            thresholds[row] = asked.thresholds[row] = scores[start + count - 1]
            raised[higher] = row
            higher += 1
        counts[row] = count
    return len(rows), higher


@kernel
def expire(
    held: Held, pairs: Pairs, share: Share, events: Events, begin: int, short: NDArray[np.int32]
) -> Any:
    """Take messages out of the buffers that held them, from pair *begin* on (Algorithm 2, lines 1 to 3).

    Rows that need others are written to *short*, each once. Return where it stopped, where there was no room for
    events, and how many are short.
    """
    starts, thresholds, counts, sizes = held.starts, held.thresholds, held.counts, held.sizes
    seen, last, scores, keys = held.seen, held.last, held.scores, held.keys
    messages, rows, _ = pairs
    part, parts, call = share
    changed, earlier, lost, lost_scores, won, won_scores, lost_ranks, won_ranks, used = events
    needy = 0
    for i in range(begin, len(rows)):
        _ask_ahead(starts, counts, scores, rows, i, part, parts)
        row = rows[i]
        if row % parts != part:
            continue
        start, count, k = starts[row], counts[row], sizes[row]
        at = position_of(keys, start, count, messages[i])
        if at < 0:
            continue
        if at < k:
            if used[0] == len(changed):
                return i, needy
            event = chained(changed, earlier, used, seen, last, call, row)
            lost[event], lost_scores[event], lost_ranks[event] = messages[i], scores[start + at], at + 1
            won[event] = NONE
            if count > k:
                won[event], won_scores[event] = keys[start + k] >> SHIFT, scores[start + k]
                won_ranks[event] = k
        leave(scores, keys, start, count, at)
        counts[row] = count - 1
        if count == k and thresholds[row] != EVERYTHING:  # it had k just now: each row once
            short[needy] = row
            needy += 1
    return len(rows), needy


@kernel
def withdraw(
    held: Held,
    asked: Asked,
    pairs: Pairs,
    share: Share,
    events: Events,
    begin: int,
    short: NDArray[np.int32],
    raised: NDArray[np.int32],
) -> Any:
    """Take messages that do not leave in their turn out of the buffers that held them, from pair *begin* on.

    Such a message may have dominated others that were let go because of it; all of them rank behind it. So the buffer
    is cut where it was. If k entries are left, the threshold is the score of the last one, and the row is written to
    *raised*. Otherwise all results from there on are lost until the row, written to *short*, gets others. A row may be
    written more than once. Return where it stopped for want of room for events, and how many are short and raised.
    """
    starts, thresholds, counts, sizes = held.starts, held.thresholds, held.counts, held.sizes
    seen, last, scores, keys = held.seen, held.last, held.scores, held.keys
    messages, rows, _ = pairs
    part, parts, call = share
    changed, earlier, lost, lost_scores, won, _, lost_ranks, _, used = events
    needy, higher = 0, 0
    for i in range(begin, len(rows)):
        row = rows[i]
        if row % parts != part:
            continue
        start, count, k = starts[row], counts[row], sizes[row]
        at = position_of(keys, start, count, messages[i])
        if at < 0:
            continue
        if at < k:
            end = min(count, k)
            if used[0] + end - at > len(changed):
                return i, needy, higher
            for j in range(at, end):
                event = chained(changed, earlier, used, seen, last, call, row)
                lost[event], lost_scores[event] = keys[start + j] >> SHIFT, scores[start + j]
                lost_ranks[event], won[event] = j + 1, NONE
            short[needy] = row
            needy += 1
        else:
            thresholds[row] = asked.thresholds[row] = scores[start + at - 1]
            raised[higher] = row
            higher += 1
        counts[row] = at
    return len(rows), needy, higher


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
        threshold = best.scores[i, count - 1] if count == wanted[i] else EVERYTHING
        if ratio > 0.0 and count >= asked.sizes[row]:
            threshold = max(threshold, ratio * best.scores[i, asked.sizes[row] - 1])
            while best.scores[i, count - 1] < threshold:
                count -= 1
        fill(held, row, best.scores[i], best.messages[i], count)
        held.thresholds[row] = asked.thresholds[row] = threshold


@kernel
def gain(
    held: Held,
    rows: NDArray[np.int32],
    before: NDArray[np.int32],
    share: Share,
    events: Events,
    begin: int,
) -> Any:
    """Write down what buffers that had too few results, *before* so many, have found; return where room ended."""
    starts, counts, sizes, seen, last = held.starts, held.counts, held.sizes, held.seen, held.last
    changed, earlier, lost, _, won, won_scores, _, won_ranks, used = events
    part, parts, call = share
    for i in range(begin, len(rows)):
        row = rows[i]
        if row % parts != part:
            continue
        end = min(counts[row], sizes[row])
        if used[0] + end - before[i] > len(changed):
            return i
        for at in range(before[i], end):
            event = chained(changed, earlier, used, seen, last, call, row)
            won[event], won_scores[event] = (
                held.keys[starts[row] + at] >> SHIFT,
                held.scores[starts[row] + at],
            )
            lost[event], won_ranks[event] = NONE, at + 1
    return len(rows)
