"""The search in one segment of the message index: it finds the best messages for a subscription."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.ranking.finder import wider
from nearcast.ranking.scoring import Metric, score, tail_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.subscribers import SubscriptionTable
    from nearcast.ranking.windows import MessageTable

__all__ = ["BestMessages", "Segment", "scan", "search", "slot_of"]

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


@kernel
def slot_of(word: int, mask: int) -> Any:
    """Return the slot of a hash table at which the search for a word begins."""
    return np.int64((np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask


@kernel
def _keep(best: BestMessages, query: int, wanted: int, value: float, number: int) -> None:
    """Insert a message among the best of a query if it is one of them."""
    scores, messages = best.scores, best.messages
    count = best.counts[query]
    if count == wanted:
        last = count - 1
        if value < scores[query, last] or (value == scores[query, last] and number < messages[query, last]):
            return
        count -= 1
    at = count
    while at > 0 and (
        scores[query, at - 1] < value or (scores[query, at - 1] == value and messages[query, at - 1] < number)
    ):
        scores[query, at] = scores[query, at - 1]
        messages[query, at] = messages[query, at - 1]
        at -= 1
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
    places: NDArray[np.float32],
    weights: NDArray[np.float32],
    low: int,
    high: int,
    query: _Query,
    tail: float,
    out: NDArray[np.float32],
) -> None:
    """Write an upper bound on the score of each message in a block."""
    xs, ys, zs, mine = places[0, low:high], places[1, low:high], places[2, low:high], weights[low:high]
    x, y, z, alpha, share = query
    zero, one = np.float32(0.0), np.float32(1.0)
    most, tail32 = np.float32(math.sqrt(tail)), np.float32(tail)
    for i in range(high - low):
        a, b, c = xs[i] - x, ys[i] - y, zs[i] - z
        near = max(zero, one - np.float32(math.sqrt(a * a + b * b + c * c)))
        out[i] = alpha * near + share * min(tail32 * mine[i], most)


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
    word: int,
    tail: float,
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
    """Score the messages of a block, except those that a rarer common word finds."""
    low, high = segment.starts[block], segment.starts[block + 1]
    _posting_bounds(segment.places, segment.weights, low, high, query, tail, bounds)
    floor = _floor(best, number, wanted, metric)
    count = 0
    for i in range(high - low):
        message = segment.begin + segment.numbers[low + i]
        picks[count] = i
        count += (bounds[i] >= floor) & (message >= first)
    for k in range(count):
        m = segment.begin + segment.numbers[low + picks[k]] - messages.base
        prefetch(messages.places, m)
    for k in range(count):
        m = segment.begin + segment.numbers[low + picks[k]] - messages.base
        prefetch(messages.words, messages.starts[m])
    for k in range(count):
        if bounds[picks[k]] >= _floor(best, number, wanted, metric):
            message = segment.begin + segment.numbers[low + picks[k]]
            value, rarest = score(subscriptions, row, messages, message - messages.base, idf, metric)
            if rarest == word:
                _keep(best, number, wanted, value, message)


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
    slots, names, lists = segment.slots, segment.words, segment.lists
    mask = len(slots) - 1
    bounds, blocks = np.empty(1024, np.float32), np.empty(1024, np.int64)
    words, tails = np.empty(1024, np.int32), np.empty(1024)
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
        floor = _floor(best, number, most, metric)
        kept = 0
        for at in range(subscriptions.starts[row], subscriptions.starts[row] + subscriptions.counts[row]):
            word = subscriptions.words[at]
            slot = slot_of(word, mask)
            while slots[slot] >= 0 and names[slots[slot]] != word:
                slot = (slot + 1) & mask
            if slots[slot] < 0:
                continue
            low, high = lists[slots[slot]], lists[slots[slot] + 1]
            room = kept + high - low
            if room > len(bounds):
                bounds, blocks = wider(bounds, room), wider(blocks, room)
                words, tails = wider(words, room), wider(tails, room)
            tail = tail_of(subscriptions, row, word, idf)
            begin = kept
            _bounds(segment.boxes, segment.heaviest, low, high, query, tail, bounds[begin:])
            for i in range(high - low):
                bound = bounds[begin + i]
                bounds[kept], blocks[kept], words[kept], tails[kept] = bound, low + i, word, tail
                kept += bound >= floor
        looked = 0
        while looked < kept:
            if looked < FIRST:
                _lift(bounds, blocks, words, tails, looked, kept)
            elif looked == FIRST:
                kept = _sort(bounds, blocks, words, tails, looked, kept, _floor(best, number, most, metric))
            if looked == kept or bounds[looked] < _floor(best, number, most, metric):
                break
            _look(
                segment,
                blocks[looked],
                words[looked],
                tails[looked],
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
    bounds: NDArray[np.float32],
    blocks: NDArray[np.int64],
    words: NDArray[np.int32],
    tails: NDArray[np.float64],
    at: int,
    end: int,
) -> None:
    """Swap the block with the highest bound to the front."""
    top = at + np.argmax(bounds[at:end])
    bounds[at], bounds[top] = bounds[top], bounds[at]
    blocks[at], blocks[top] = blocks[top], blocks[at]
    words[at], words[top] = words[top], words[at]
    tails[at], tails[top] = tails[top], tails[at]


@kernel
def _sort(
    bounds: NDArray[np.float32],
    blocks: NDArray[np.int64],
    words: NDArray[np.int32],
    tails: NDArray[np.float64],
    at: int,
    end: int,
    floor: np.float32,
) -> Any:
    """Sort the blocks whose bound reaches the floor, and drop the others; return where they end."""
    left = at
    for i in range(at, end):
        bound = bounds[i]
        bounds[left], blocks[left], words[left], tails[left] = bound, blocks[i], words[i], tails[i]
        left += bound >= floor
    order = at + np.argsort(-bounds[at:left])
    bounds[at:left], blocks[at:left] = bounds[order], blocks[order]
    words[at:left], tails[at:left] = words[order], tails[order]
    return left
