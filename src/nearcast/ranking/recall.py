"""The message index: it knows which messages of the window are best for a subscription.

Algorithm 2 and new subscriptions ask it. The window is divided by time into *segments*, built once and dropped when
they have left the window; small ones are merged into larger ones (each level eight times as large). A segment has a
list for each word, and in it blocks of messages that lie near each other, with the box of the block and the largest
weight: the spatial inverted index of IR-Tree and S2I, without a tree. A query takes the blocks of its words by the best
score that they allow, and stops when that is below the worst that it would keep.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.kernels import kernel
from nearcast.parallel import side_by_side
from nearcast.ranking.curve import z_order
from nearcast.ranking.scoring import Metric, score, tail_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.subscribers import Asked
    from nearcast.ranking.windows import Messages, Stored

__all__ = ["Best", "Recall"]


class Segment(NamedTuple):
    """Messages *begin* to *end*, by words and places."""

    begin: int
    end: int
    slots: NDArray[np.int32]  # a hash table of lists, -1 where empty
    words: NDArray[np.int32]  # of each list
    lists: NDArray[np.int64]  # [lists + 1] into the blocks
    boxes: NDArray[np.float32]  # [6, blocks]
    heaviest: NDArray[np.float32]  # 1 / length, the largest in the block
    starts: NDArray[np.int64]  # [blocks + 1] into the postings
    numbers: NDArray[np.int32]  # of messages, counted from begin
    places: NDArray[np.float32]  # [3, postings]
    weights: NDArray[np.float32]  # 1 / length


class Best(NamedTuple):
    """The best messages for each of several subscriptions, best first."""

    scores: NDArray[np.float64]  # [queries, most]
    messages: NDArray[np.int64]
    counts: NDArray[np.int64]


class Recall:
    """Segments over the messages of a window."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._scale = (metric.radius or 1.0) / metric.max_distance
        self._segments: list[Segment] = []  # oldest first
        self._indexed = 0  # messages before this one are in segments

    @property
    def nbytes(self) -> int:
        """Memory."""
        return sum(
            part.nbytes for segment in self._segments for part in segment if isinstance(part, np.ndarray)
        )

    def stats(self) -> dict[str, Any]:
        """Figures about the structure."""
        return {"segments": len(self._segments)}

    def follow(self, messages: Messages) -> None:
        """Take messages that have come, drop segments that have left the window."""
        while self._segments and self._segments[0].end <= messages.first:
            self._segments.pop(0)
        self._indexed = max(self._indexed, messages.first)
        if messages.end - self._indexed < config.RANKING_SEGMENT:
            return
        self._segments.append(self._built(messages.stored, self._indexed, messages.end))
        self._indexed = messages.end
        while (run := self._run()) >= config.RANKING_MERGE:
            begin = max(self._segments[-run].begin, messages.first)
            del self._segments[-run:]
            self._segments.append(self._built(messages.stored, begin, messages.end))

    def _run(self) -> int:
        """Return how many of the newest segments are of the same level."""
        levels = [_level(segment.end - segment.begin) for segment in reversed(self._segments)]
        return next((i for i, level in enumerate(levels) if level != levels[0]), len(levels))

    def best(
        self,
        asked: Asked,
        rows: NDArray[np.int32],
        wanted: NDArray[np.int32],
        messages: Messages,
        idf: NDArray[np.float64],
        threads: int = 1,
    ) -> Best:
        """Return the *wanted* best messages of the window for each of *rows*."""
        most = int(wanted.max(initial=1))
        best = Best(
            np.empty((len(rows), most)),
            np.empty((len(rows), most), np.int64),
            np.zeros(len(rows), np.int64),
        )
        stored = messages.stored
        recent = max(self._indexed, messages.first)

        def part(piece: tuple[int, int]) -> None:
            here = slice(*piece)
            mine = Best._make(array[here] for array in best)
            query = (asked, rows[here], wanted[here], stored, idf, self._metric)
            _scan(*query, recent, messages.end, mine)
            for segment in reversed(self._segments):
                _search(segment, *query, self._scale, messages.first, mine)

        pieces = _pieces(len(rows), threads)
        side_by_side(part, pieces, threads)
        return best

    def _built(self, stored: Stored, begin: int, end: int) -> Segment:
        first, last = begin - stored.base, end - stored.base
        offsets = stored.offsets[first : last + 1]
        words = stored.words[offsets[0] : offsets[-1]]
        places = stored.places[first:last]
        owners = np.repeat(np.arange(last - first, dtype=np.int32), np.diff(offsets))
        order = np.argsort(z_order(places)[owners], kind="stable")
        order = order[np.argsort(words[order], kind="stable")]
        words, owners = words[order], owners[order]
        cuts = np.flatnonzero(np.diff(words, prepend=-1, append=-1))
        names = words[cuts[:-1]]
        counts = np.diff(cuts)
        blocks = -(-counts // config.RANKING_BLOCK)
        lists = np.concatenate([[0], np.cumsum(blocks)])
        starts = _block_starts(cuts, blocks, lists)
        slots = np.full(1 << max(4, int(2 * len(names)).bit_length()), -1, np.int32)
        _hash_words(slots, names)
        near = (places[owners] * self._scale).astype(np.float32).T.copy()
        weights = (1.0 / stored.lengths[first:last])[owners].astype(np.float32)
        boxes = np.empty((6, len(starts) - 1), np.float32)
        heaviest = np.empty(len(starts) - 1, np.float32)
        _summaries(starts, near, weights, boxes, heaviest)
        return Segment(begin, end, slots, names, lists, boxes, heaviest, starts, owners, near, weights)


def _pieces(count: int, threads: int) -> list[tuple[int, int]]:
    """Return ranges of queries for threads to share."""
    each = max(1, min(1024, -(-count // max(1, threads))))
    return [(begin, min(count, begin + each)) for begin in range(0, count, each)]


def _level(size: int) -> int:
    """Return 0 for a segment that was never merged, 1 for one of eight such, and so on."""
    return int(math.log(max(1.0, size / config.RANKING_SEGMENT), config.RANKING_MERGE) + 1e-9)


@kernel
def _block_starts(cuts: NDArray[np.int64], blocks: NDArray[np.int64], lists: NDArray[np.int64]) -> Any:
    """Return where blocks begin: those of a list are of about the same size."""
    starts = np.empty(lists[-1] + 1, np.int64)
    for i in range(len(blocks)):
        count = cuts[i + 1] - cuts[i]
        for block in range(blocks[i]):
            starts[lists[i] + block] = cuts[i] + block * count // blocks[i]
    starts[lists[-1]] = cuts[-1]
    return starts


@kernel
def _slot(word: int, mask: int) -> Any:
    return np.int64((np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask


@kernel
def _hash_words(slots: NDArray[np.int32], words: NDArray[np.int32]) -> None:
    mask = len(slots) - 1
    for i in range(len(words)):
        at = _slot(words[i], mask)
        while slots[at] >= 0:
            at = (at + 1) & mask
        slots[at] = i


@kernel
def _summaries(
    starts: NDArray[np.int64],
    places: NDArray[np.float32],
    weights: NDArray[np.float32],
    boxes: NDArray[np.float32],
    heaviest: NDArray[np.float32],
) -> None:
    for block in range(len(heaviest)):
        most = np.float32(0.0)
        for axis in range(3):
            low, high = np.float32(3e38), np.float32(-3e38)
            for i in range(starts[block], starts[block + 1]):
                low, high = min(low, places[axis, i]), max(high, places[axis, i])
            boxes[axis, block], boxes[axis + 3, block] = low, high
        for i in range(starts[block], starts[block + 1]):
            most = max(most, weights[i])
        heaviest[block] = most


@kernel
def _keep(best: Best, query: int, wanted: int, value: float, number: int) -> None:
    """Put a message among the best of a query, if it is one of them."""
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
def _scan(
    asked: Asked,
    rows: NDArray[np.int32],
    wanted: NDArray[np.int32],
    stored: Stored,
    idf: NDArray[np.float64],
    metric: Metric,
    begin: int,
    end: int,
    best: Best,
) -> None:
    """Look at each of the messages that are in no segment yet."""
    for query in range(len(rows)):
        for number in range(begin, end):
            value, rarest = score(asked, rows[query], stored, number - stored.base, idf, metric)
            if rarest >= 0:
                _keep(best, query, wanted[query], value, number)


@kernel
def _search(
    segment: Segment,
    asked: Asked,
    rows: NDArray[np.int32],
    wanted: NDArray[np.int32],
    stored: Stored,
    idf: NDArray[np.float64],
    metric: Metric,
    scale: float,
    first: int,
    best: Best,
) -> None:
    """Let the messages of a segment compete for the best of each query."""
    slots, names, lists = segment.slots, segment.words, segment.lists
    boxes, heaviest, starts = segment.boxes, segment.heaviest, segment.starts
    numbers, places, weights = segment.numbers, segment.places, segment.weights
    words, scores, counts = asked.words, best.scores, best.counts
    slack = np.float32(config.RANKING_SLACK)
    mask = len(slots) - 1
    bounds, blocks, lists_of = np.empty(256, np.float32), np.empty(256, np.int64), np.empty(256, np.int32)
    for query in range(len(rows)):
        row = rows[query]
        alpha, long = asked.alphas[row], asked.lengths[row]
        x = np.float32(asked.places[row, 0] * scale)
        y = np.float32(asked.places[row, 1] * scale)
        z = np.float32(asked.places[row, 2] * scale)
        near_share, word_share = np.float32(alpha), np.float32((1.0 - alpha) / long)
        kept = 0
        for at in range(asked.starts[row], asked.starts[row] + asked.counts[row]):
            word = words[at]
            slot = _slot(word, mask)
            while slots[slot] >= 0 and names[slots[slot]] != word:
                slot = (slot + 1) & mask
            if slots[slot] < 0:
                continue
            tail = tail_of(asked, row, word, idf)
            most = np.float32(math.sqrt(tail))
            tail32 = np.float32(tail)
            low, high = lists[slots[slot]], lists[slots[slot] + 1]
            if kept + high - low > len(bounds):
                wide = 2 * (kept + high - low)
                bounds, blocks, lists_of = _wider(bounds, blocks, lists_of, kept, wide)
            floor = np.float32(-1.0)
            if counts[query] == wanted[query]:
                floor = np.float32(scores[query, wanted[query] - 1]) - slack
            for block in range(low, high):
                a = max(np.float32(0.0), boxes[0, block] - x, x - boxes[3, block])
                b = max(np.float32(0.0), boxes[1, block] - y, y - boxes[4, block])
                c = max(np.float32(0.0), boxes[2, block] - z, z - boxes[5, block])
                near = max(np.float32(0.0), np.float32(1.0) - math.sqrt(a * a + b * b + c * c))
                bound = near_share * near + word_share * min(tail32 * heaviest[block], most)
                bounds[kept], blocks[kept], lists_of[kept] = bound, block, word
                kept += bound >= floor
        order = np.argsort(-bounds[:kept])
        for k in range(kept):
            i = order[k]
            floor = np.float32(-1.0)
            if counts[query] == wanted[query]:
                floor = np.float32(scores[query, wanted[query] - 1]) - slack
            if bounds[i] < floor:
                break
            word = lists_of[i]
            tail = tail_of(asked, row, word, idf)
            most, tail32 = np.float32(math.sqrt(tail)), np.float32(tail)
            for p in range(starts[blocks[i]], starts[blocks[i] + 1]):
                a, b, c = places[0, p] - x, places[1, p] - y, places[2, p] - z
                near = max(np.float32(0.0), np.float32(1.0) - math.sqrt(a * a + b * b + c * c))
                bound = near_share * near + word_share * min(tail32 * weights[p], most)
                number = segment.begin + numbers[p]
                if bound < floor or number < first:
                    continue
                value, rarest = score(asked, row, stored, number - stored.base, idf, metric)
                if rarest == word:  # else another of its words finds it
                    _keep(best, query, wanted[query], value, number)
                    if counts[query] == wanted[query]:
                        floor = np.float32(scores[query, wanted[query] - 1]) - slack


@kernel
def _wider(
    bounds: NDArray[np.float32], blocks: NDArray[np.int64], words: NDArray[np.int32], count: int, wide: int
) -> Any:
    more = np.empty(wide, np.float32), np.empty(wide, np.int64), np.empty(wide, np.int32)
    more[0][:count], more[1][:count], more[2][:count] = bounds[:count], blocks[:count], words[:count]
    return more
