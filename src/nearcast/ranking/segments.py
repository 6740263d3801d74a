"""The search in one segment of the message index: it finds the best messages for a subscription.

The words of a subscription come in order of their lists, the shortest one first. A message counts as found by the first
of its words, so what is read of a list needs to be good enough with the words from this one on. Long lists come last,
and few of their messages are good enough with one or two words. How many of the words a message has is known before it
is read, nearly: a posting has a *mark*, one of 64 bits for each word of its message.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.ranking.finder import wider
from nearcast.ranking.scoring import Metric, score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.subscribers import SubscriptionTable
    from nearcast.ranking.windows import MessageTable

__all__ = ["BestMessages", "Segment", "mark_of", "scan", "search", "slot_of"]

BLOCK = config.RANKING_SEGMENT_BLOCK
FIRST = 4  # blocks that are searched before the others are sorted


class Segment(NamedTuple):
    """The messages *begin* to *end*: a list for each word, in blocks of messages that lie close together."""

    begin: int
    end: int
    slots: NDArray[np.int32]  # a hash table from words to lists, -1 where empty
    words: NDArray[np.int32]  # the word of each list
    lists: NDArray[np.int64]  # [lists + 1] into the blocks
    boxes: NDArray[np.float32]  # [6, blocks]
    heaviest: NDArray[np.float32]  # the largest weight in each block
    starts: NDArray[np.int64]  # [blocks + 1] into the postings
    numbers: NDArray[np.int32]  # message numbers, counted from begin
    places: NDArray[np.float32]  # [3, postings]
    weights: NDArray[np.float32]  # 1 / length of the message's vector
    marks: NDArray[np.uint64]  # a bit for each word of the message

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(part.nbytes for part in self if isinstance(part, np.ndarray))


class BestMessages(NamedTuple):
    """The best messages for each of several queries, best first."""

    scores: NDArray[np.float64]  # [queries, most]
    messages: NDArray[np.int64]
    counts: NDArray[np.int64]


class _Query(NamedTuple):
    """A subscription in single precision: its place, α, and (1 - α) / length of its vector."""

    x: np.float32
    y: np.float32
    z: np.float32
    alpha: np.float32
    share: np.float32


class _Words(NamedTuple):
    """The words of a subscription that a segment has, the one with the shortest list first."""

    lists: NDArray[np.int64]
    sizes: NDArray[np.int64]  # of their lists
    squares: NDArray[np.float32]  # of their weights
    marks: NDArray[np.uint64]
    tails: NDArray[np.float64]  # the sum of the squares from each word on


@kernel
def mark_of(word: int) -> Any:
    """Return the bit that stands for a word, and for every 64th of all others."""
    return np.uint64(1) << ((np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58))


@kernel
def slot_of(word: int, mask: int) -> Any:
    """Return the slot of a hash table at which the search for a word begins."""
    return np.int64((np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask


@kernel
def _keep(best: BestMessages, query: int, wanted: int, value: float, number: int) -> None:
    """Insert a message among the best of a query if it is one of them, and not there already."""
    scores, messages = best.scores, best.messages
    count = best.counts[query]
    if count == wanted:
        last = count - 1
        if value < scores[query, last] or (value == scores[query, last] and number <= messages[query, last]):
            return
        count = last
    at = count
    while at > 0 and (
        scores[query, at - 1] < value or (scores[query, at - 1] == value and messages[query, at - 1] < number)
    ):
        at -= 1
    if at > 0 and messages[query, at - 1] == number:
        return
    for i in range(count, at, -1):
        scores[query, i], messages[query, i] = scores[query, i - 1], messages[query, i - 1]
    scores[query, at], messages[query, at] = value, number
    best.counts[query] = count + 1


@kernel
def scan(
    subscriptions: SubscriptionTable,
    rows: NDArray[np.int32],
    wanted: NDArray[np.int32],
    messages: MessageTable,
    idf: NDArray[np.float64],
    metric: Metric,
    begin: int,
    end: int,
    best: BestMessages,
) -> None:
    """Score every message from *begin* to *end*: those that are in no segment yet."""
    for query in range(len(rows)):
        for number in range(begin, end):
            value, rarest = score(subscriptions, rows[query], messages, number - messages.base, idf, metric)
            if rarest >= 0:
                _keep(best, query, wanted[query], value, number)


@kernel
def _bounds(
    boxes: NDArray[np.float32],
    heaviest: NDArray[np.float32],
    low: int,
    high: int,
    query: _Query,
    tail: float,
    out: NDArray[np.float32],
) -> None:
    """Write an upper bound on the scores of the messages in each block of a list."""
    x0, y0, z0 = boxes[0, low:high], boxes[1, low:high], boxes[2, low:high]
    x1, y1, z1 = boxes[3, low:high], boxes[4, low:high], boxes[5, low:high]
    weights = heaviest[low:high]
    x, y, z, alpha, share = query
    zero, one = np.float32(0.0), np.float32(1.0)
    most, tail32 = np.float32(math.sqrt(tail)), np.float32(tail)
    for i in range(high - low):
        a = max(zero, x0[i] - x, x - x1[i])
        b = max(zero, y0[i] - y, y - y1[i])
        c = max(zero, z0[i] - z, z - z1[i])
        near = max(zero, one - np.float32(math.sqrt(a * a + b * b + c * c)))
        out[i] = alpha * near + share * min(tail32 * weights[i], most)


@kernel
def _posting_bounds(
    segment: Segment,
    low: int,
    high: int,
    query: _Query,
    words: _Words,
    rank: int,
    count: int,
    out: NDArray[np.float32],
) -> None:
    """Write an upper bound on the score of each message in a block of the word at *rank*, with the words after it."""
    xs, ys, zs = segment.places[0, low:high], segment.places[1, low:high], segment.places[2, low:high]
    weights, marks = segment.weights[low:high], segment.marks[low:high]
    x, y, z, alpha, share = query
    zero, one = np.float32(0.0), np.float32(1.0)
    out[: high - low] = words.squares[rank]
    for other in range(rank + 1, count):
        mark, square = words.marks[other], words.squares[other]
        for i in range(high - low):
            out[i] += square if marks[i] & mark else zero
    for i in range(high - low):
        a, b, c = xs[i] - x, ys[i] - y, zs[i] - z
        near = max(zero, one - np.float32(math.sqrt(a * a + b * b + c * c)))
        out[i] = alpha * near + share * weights[i] * out[i]


@kernel
def _floor(best: BestMessages, number: int, wanted: int, metric: Metric) -> Any:
    """Return the score that a message needs to be among the best of a query, lowered by the rounding error."""
    if best.counts[number] < wanted:
        return np.float32(-1.0)
    return np.float32(best.scores[number, wanted - 1] - metric.slack)


@kernel
def _look(
    segment: Segment,
    block: int,
    words: _Words,
    rank: int,
    count: int,
    query: _Query,
    subscriptions: SubscriptionTable,
    row: int,
    messages: MessageTable,
    idf: NDArray[np.float64],
    metric: Metric,
    first: int,
    best: BestMessages,
    number: int,
    wanted: int,
    bounds: NDArray[np.float32],
    picks: NDArray[np.int64],
) -> None:
    """Score the messages of a block that may be good enough."""
    low, high = segment.starts[block], segment.starts[block + 1]
    _posting_bounds(segment, low, high, query, words, rank, count, bounds)
    floor = _floor(best, number, wanted, metric)
    picked = 0
    for i in range(high - low):
        message = segment.begin + segment.numbers[low + i]
        picks[picked] = i
        picked += (bounds[i] >= floor) & (message >= first)
    for k in range(picked):
        m = segment.begin + segment.numbers[low + picks[k]] - messages.base
        prefetch(messages.places, m)
    for k in range(picked):
        m = segment.begin + segment.numbers[low + picks[k]] - messages.base
        prefetch(messages.words, messages.starts[m])
    for k in range(picked):
        if bounds[picks[k]] >= _floor(best, number, wanted, metric):
            message = segment.begin + segment.numbers[low + picks[k]]
            value, rarest = score(subscriptions, row, messages, message - messages.base, idf, metric)
            if rarest >= 0:  # it was not withdrawn
                _keep(best, number, wanted, value, message)


@kernel
def _empty_words(room: int) -> Any:
    return _Words(
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.float32),
        np.empty(room, np.uint64),
        np.empty(room + 1),
    )


@kernel
def _find_words(
    segment: Segment, subscriptions: SubscriptionTable, row: int, idf: NDArray[np.float64], out: _Words
) -> Any:
    """Write the words of a subscription that a segment has; return how many."""
    mask, count = len(segment.slots) - 1, 0
    for at in range(subscriptions.starts[row], subscriptions.starts[row] + subscriptions.counts[row]):
        word = subscriptions.words[at]
        slot = slot_of(word, mask)
        while segment.slots[slot] >= 0 and segment.words[segment.slots[slot]] != word:
            slot = (slot + 1) & mask
        found = np.int64(segment.slots[slot])
        if found < 0:
            continue
        size = segment.starts[segment.lists[found + 1]] - segment.starts[segment.lists[found]]
        i = count
        while i > 0 and out.sizes[i - 1] > size:
            out.lists[i], out.sizes[i] = out.lists[i - 1], out.sizes[i - 1]
            out.squares[i], out.marks[i] = out.squares[i - 1], out.marks[i - 1]
            i -= 1
        out.lists[i], out.sizes[i], out.squares[i], out.marks[i] = (
            found,
            size,
            idf[word] * idf[word],
            mark_of(word),
        )
        count += 1
    out.tails[count] = 0.0
    for i in range(count - 1, -1, -1):
        out.tails[i] = out.tails[i + 1] + out.squares[i]
    return count


@kernel
def search(
    segment: Segment,
    subscriptions: SubscriptionTable,
    rows: NDArray[np.int32],
    wanted: NDArray[np.int32],
    messages: MessageTable,
    idf: NDArray[np.float64],
    metric: Metric,
    scale: float,
    first: int,
    best: BestMessages,
) -> None:
    """Search a segment for messages that are among the best of each query.

    Blocks come in order of their bounds, the highest first. The first few are picked one by one. The others are sorted
    only then, because few of their bounds are still above the worst message that would be kept.
    """
    lists = segment.lists
    words = _empty_words(64)
    bounds, blocks, ranks = np.empty(1024, np.float32), np.empty(1024, np.int64), np.empty(1024, np.int32)
    scratch, picks = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.int64)
    for number in range(len(rows)):
        row, most = rows[number], wanted[number]
        alpha = subscriptions.alphas[row]
        query = _Query(
            np.float32(subscriptions.places[row, 0] * scale),
            np.float32(subscriptions.places[row, 1] * scale),
            np.float32(subscriptions.places[row, 2] * scale),
            np.float32(alpha),
            np.float32((1.0 - alpha) / subscriptions.lengths[row]),
        )
        if subscriptions.counts[row] > len(words.lists):
            words = _empty_words(2 * subscriptions.counts[row])
        count = _find_words(segment, subscriptions, row, idf, words)
        floor = _floor(best, number, most, metric)
        kept = 0
        for rank in range(count):
            low, high = lists[words.lists[rank]], lists[words.lists[rank] + 1]
            room = kept + high - low
            if room > len(bounds):
                bounds, blocks, ranks = wider(bounds, room), wider(blocks, room), wider(ranks, room)
            begin = kept
            _bounds(segment.boxes, segment.heaviest, low, high, query, words.tails[rank], bounds[begin:])
            for i in range(high - low):
                bound = bounds[begin + i]
                bounds[kept], blocks[kept], ranks[kept] = bound, low + i, rank
                kept += bound >= floor
        looked = 0
        while looked < kept:
            if looked < FIRST:
                _lift(bounds, blocks, ranks, looked, kept)
            elif looked == FIRST:
                kept = _sort(bounds, blocks, ranks, looked, kept, _floor(best, number, most, metric))
            if looked == kept or bounds[looked] < _floor(best, number, most, metric):
                break
            _look(
                segment,
                blocks[looked],
                words,
                ranks[looked],
                count,
                query,
                subscriptions,
                row,
                messages,
                idf,
                metric,
                first,
                best,
                number,
                most,
                scratch,
                picks,
            )
            looked += 1


@kernel
def _lift(
    bounds: NDArray[np.float32], blocks: NDArray[np.int64], ranks: NDArray[np.int32], at: int, end: int
) -> None:
    """Swap the block with the highest bound to the front."""
    top = at + np.argmax(bounds[at:end])
    bounds[at], bounds[top] = bounds[top], bounds[at]
    blocks[at], blocks[top] = blocks[top], blocks[at]
    ranks[at], ranks[top] = ranks[top], ranks[at]


@kernel
def _sort(
    bounds: NDArray[np.float32],
    blocks: NDArray[np.int64],
    ranks: NDArray[np.int32],
    at: int,
    end: int,
    floor: np.float32,
) -> Any:
    """Sort the blocks whose bound reaches the floor, and drop the others; return where they end."""
    left = at
    for i in range(at, end):
        bound = bounds[i]
        bounds[left], blocks[left], ranks[left] = bound, blocks[i], ranks[i]
        left += bound >= floor
    order = at + np.argsort(-bounds[at:left])
    bounds[at:left], blocks[at:left], ranks[at:left] = bounds[order], blocks[order], ranks[order]
    return left
