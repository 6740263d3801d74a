"""The upkeep of buffers while messages come and go: loops over many buffers at once.

Algorithm 2 and section 6.2.1 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over
Sliding Window" (2017): :func:`arrive` is the first type of update in section 6.2.1, :func:`expire` is the second one
and lines 1 to 3 of Algorithm 2, :func:`refill` is lines 4 to 6. Messages that are replaced, which :func:`withdraw`
removes, are not in the paper.

Each thread works on the buffers of its own rows, those with ``row % parts == part``. Memory is prefetched some rows
ahead: a buffer is some cache lines anywhere in memory, and each is read once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import NEVER
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.ranking.buffers import (
    AHEAD,
    EVERYTHING,
    SHIFT,
    BufferTable,
    enter,
    fill,
    leave,
    oldest_of,
    place_of,
    position_of,
    prefetch_entries,
)
from nearcast.ranking.updates import NONE, Events, chained

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.message_index import BestMessages
    from nearcast.ranking.subscribers import SubscriptionTable

__all__ = ["Found", "Pairs", "Share", "arrive", "expire", "log_gains", "refill", "withdraw"]


class Pairs(NamedTuple):
    """Pairs of a message and a row that it affects, in order of messages."""

    messages: NDArray[np.int64]
    rows: NDArray[np.int32]
    scores: NDArray[np.float64]


class Found(NamedTuple):
    """What a loop over the rows of one thread has found."""

    raised: NDArray[np.int32]  # rows with a higher threshold, perhaps more than once
    filled: NDArray[np.int64]  # positions of pairs whose message is now the only one of its buffer


class Share(NamedTuple):
    """The share of one thread in the work of a call."""

    part: int
    parts: int
    call: int  # the number of the call


@kernel
def _prefetch_ahead(
    starts: NDArray[np.int64],
    counts: NDArray[np.int32],
    scores: NDArray[np.float64],
    rows: NDArray[np.int32],
    i: int,
    part: int,
    parts: int,
) -> None:
    """Prefetch the buffers of rows that come after row i."""
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
    buffers: BufferTable,
    subscriptions: SubscriptionTable,
    pairs: Pairs,
    share: Share,
    events: Events,
    begin: int,
    found: Found,
) -> Any:
    """Put messages into the buffers of the rows that they affect, from pair *begin* on.

    If a buffer exceeds its limit, cut it, and raise its threshold. Stop if there is no room in a buffer or for an
    event. Return the pair at which the work stopped, how many messages entered a buffer, and how much was *found*.
    """
    (
        starts,
        thresholds,
        rooms,
        counts,
        sizes,
        limits,
        wanted,
        dominators,
        last_call,
        last_event,
        scores,
        keys,
    ) = buffers
    messages, rows, values = pairs
    part, parts, call = share
    changed, earlier, lost, lost_scores, gained, gained_scores, lost_ranks, gained_ranks, used = events
    raised, filled = found
    entered, higher, first = 0, 0, 0
    for i in range(begin, len(rows)):
        _prefetch_ahead(starts, counts, scores, rows, i, part, parts)
        row = rows[i]
        if row % parts != part or values[i] < thresholds[row]:
            continue
        start, count, k = starts[row], counts[row], sizes[row]
        if count == rooms[row] or used[0] == len(changed):
            return i, entered, higher, first
        if count == 0:
            filled[first] = i
            first += 1
        at = place_of(scores, start, count, values[i])
        if at < k:
            event = chained(changed, earlier, used, last_call, last_event, call, row)
            gained[event], gained_scores[event], gained_ranks[event] = messages[i], values[i], at + 1
            lost[event] = NONE
            if count >= k:
                lost[event], lost_scores[event] = keys[start + k - 1] >> SHIFT, scores[start + k - 1]
                lost_ranks[event] = k
        count = enter(scores, keys, start, count, at, messages[i], values[i], dominators[row])
        entered += 1
        if count > limits[row]:
            count = wanted[row]
            thresholds[row] = subscriptions.thresholds[row] = scores[start + count - 1]
            raised[higher] = row
            higher += 1
        counts[row] = count
    return len(rows), entered, higher, first


@kernel
def expire(
    buffers: BufferTable,
    rows: NDArray[np.int32],
    end: int,
    share: Share,
    events: Events,
    begin: int,
    short: NDArray[np.int32],
    oldest: NDArray[np.int64],
) -> Any:
    """Remove the messages before *end* from the buffers of *rows*, from row *begin* on (Algorithm 2, lines 1 to 3).

    Write the rows to re-evaluate to *short*, and what is the oldest message in each buffer now. Stop if there is no
    room for an event. Return the position at which the work stopped, and the number of short rows.
    """
    starts, thresholds, counts, sizes = buffers.starts, buffers.thresholds, buffers.counts, buffers.sizes
    last_call, last_event, scores, keys = buffers.last_call, buffers.last_event, buffers.scores, buffers.keys
    part, parts, call = share
    changed, earlier, lost, lost_scores, gained, gained_scores, lost_ranks, gained_ranks, used = events
    needy = 0
    for i in range(begin, len(rows)):
        _prefetch_ahead(starts, counts, scores, rows, i, part, parts)
        row = rows[i]
        if row % parts != part:
            continue
        start, count, k = starts[row], counts[row], sizes[row]
        if len(changed) - used[0] < min(count, k):
            return i, needy
        enough, least = count >= k, NEVER
        for at in range(count - 1, -1, -1):  # from the last one on: what moves up stays
            message = keys[start + at] >> SHIFT
            if message >= end:
                least = min(least, message)
                continue
            if at < k:
                event = chained(changed, earlier, used, last_call, last_event, call, row)
                lost[event], lost_scores[event] = message, scores[start + at]
                lost_ranks[event], gained[event] = at + 1, NONE
                if count > k:
                    gained[event], gained_scores[event] = keys[start + k] >> SHIFT, scores[start + k]
                    gained_ranks[event] = k
            leave(scores, keys, start, count, at)
            count -= 1
        counts[row] = count
        oldest[i] = least if count > 0 else NONE
        if enough and count < k and thresholds[row] != EVERYTHING:
            short[needy] = row
            needy += 1
    return len(rows), needy


@kernel
def withdraw(
    buffers: BufferTable,
    subscriptions: SubscriptionTable,
    pairs: Pairs,
    share: Share,
    events: Events,
    begin: int,
    short: NDArray[np.int32],
    raised: NDArray[np.int32],
) -> Any:
    """Remove messages that leave out of turn from the buffers that hold them, from pair *begin* on.

    Such a message may have dominated others that were dropped because of it, and all of them rank behind it. So the
    buffer is cut at its position. If k entries are left, θ becomes the score of the last one, and the row is written to
    *raised*. Otherwise the results from there on are lost until the row, which is written to *short*, is re-evaluated.
    A row may be written more than once. Stop if there is no room for events. Return the pair at which the work stopped,
    and the numbers of short and raised rows.
    """
    starts, thresholds, counts, sizes = buffers.starts, buffers.thresholds, buffers.counts, buffers.sizes
    last_call, last_event, scores, keys = buffers.last_call, buffers.last_event, buffers.scores, buffers.keys
    messages, rows, _ = pairs
    part, parts, call = share
    changed, earlier, lost, lost_scores, gained, _, lost_ranks, _, used = events
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
                event = chained(changed, earlier, used, last_call, last_event, call, row)
                lost[event], lost_scores[event] = keys[start + j] >> SHIFT, scores[start + j]
                lost_ranks[event], gained[event] = j + 1, NONE
            short[needy] = row
            needy += 1
        else:
            thresholds[row] = subscriptions.thresholds[row] = scores[start + at - 1]
            raised[higher] = row
            higher += 1
        counts[row] = at
    return len(rows), needy, higher


@kernel
def refill(
    buffers: BufferTable,
    subscriptions: SubscriptionTable,
    rows: NDArray[np.int32],
    wanted: NDArray[np.int32],
    ratio: float,
    best: BestMessages,
    share: Share,
    oldest: NDArray[np.int64],
) -> None:
    """Fill buffers with the best messages of the window (Algorithm 2, lines 4 to 6).

    θ is the score of the last of these messages or, if that is higher, *ratio* times the k-th score. Write the *oldest*
    message in each buffer.
    """
    for i in range(len(rows)):
        row, count = rows[i], best.counts[i]
        if row % share.parts != share.part:
            continue
        # Fewer than wanted are all the messages that share a word with it: every new one that does is a result.
        threshold = best.scores[i, count - 1] if count == wanted[i] else EVERYTHING
        if ratio > 0.0 and count >= subscriptions.sizes[row]:
            threshold = max(threshold, ratio * best.scores[i, subscriptions.sizes[row] - 1])
            while best.scores[i, count - 1] < threshold:
                count -= 1
        fill(buffers, row, best.scores[i], best.messages[i], count)
        oldest[i] = oldest_of(buffers.keys, buffers.starts[row], buffers.counts[row])
        buffers.thresholds[row] = subscriptions.thresholds[row] = threshold


@kernel
def log_gains(
    buffers: BufferTable,
    rows: NDArray[np.int32],
    before: NDArray[np.int32],
    share: Share,
    events: Events,
    begin: int,
) -> Any:
    """Log the new results of re-evaluated rows, which had ``before[i]`` results until then.

    Stop if there is no room for the events of a row. Return the row at which the work stopped.
    """
    starts, counts, sizes, last_call, last_event = (
        buffers.starts,
        buffers.counts,
        buffers.sizes,
        buffers.last_call,
        buffers.last_event,
    )
    changed, earlier, lost, _, gained, gained_scores, _, gained_ranks, used = events
    part, parts, call = share
    for i in range(begin, len(rows)):
        row = rows[i]
        if row % parts != part:
            continue
        end = min(counts[row], sizes[row])
        if used[0] + end - before[i] > len(changed):
            return i
        for at in range(before[i], end):
            event = chained(changed, earlier, used, last_call, last_event, call, row)
            gained[event], gained_scores[event] = (
                buffers.keys[starts[row] + at] >> SHIFT,
                buffers.scores[starts[row] + at],
            )
            lost[event], gained_ranks[event] = NONE, at + 1
    return len(rows)
