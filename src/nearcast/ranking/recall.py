"""The message index: it knows which messages of the window are best for a subscription.

Algorithm 2 and new subscriptions ask it. The window is divided by time into *segments*, built once and dropped when
they have left the window; small ones are merged into larger ones (each level eight times as large). A segment has a
list for each word, and in it blocks of messages that lie near each other, with the box of the block and the largest
weight: the spatial inverted index of IR-Tree and S2I, without a tree. A query takes the blocks of its words by the best
score that they allow, and stops when that is below the worst that it would keep.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.threads import side_by_side
from nearcast.ranking.curve import z_order
from nearcast.ranking.finder import wider
from nearcast.ranking.scoring import Metric
from nearcast.ranking.seek import BLOCK, Best, Segment, scan, search, slot_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.ranking.subscribers import Asked
    from nearcast.ranking.windows import Messages, Stored

__all__ = ["Best", "Recall"]

AHEAD = 16  # messages that are asked for before they are needed
_TYPES: dict[str, Any] = {  # of the arrays of a segment
    "slots": np.int32,
    "words": np.int32,
    "lists": np.int64,
    "boxes": np.float32,
    "heaviest": np.float32,
    "starts": np.int64,
    "numbers": np.int32,
    "places": np.float32,
    "weights": np.float32,
}
_ROWS = {"boxes": 6, "places": 3}  # of those with two axes


class Recall:
    """Segments over the messages of a window."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._scale = (metric.radius or 1.0) / metric.max_distance
        self._segments: list[Segment] = []  # oldest first
        self._indexed = 0  # messages before this one are in segments
        self._list_of = np.empty(0, np.int32)  # of each word, while a segment is built; -1 for none

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

    def restart(self, messages: Messages) -> None:
        """Begin anew, with messages that have other numbers."""
        self._segments, self._indexed = [], messages.first
        self.follow(messages)

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes: those of all segments one behind the other."""
        columns = {
            name: [getattr(segment, name).reshape(-1) for segment in self._segments] for name in _TYPES
        }
        spans = [(segment.begin, segment.end) for segment in self._segments]
        return {
            "spans": np.array(spans, np.int64).reshape(-1, 2),
            "sizes": np.array([[len(part) for part in parts] for parts in columns.values()], np.int64),
            "indexed": np.array([self._indexed]),
            **{name: np.concatenate([np.empty(0, _TYPES[name]), *parts]) for name, parts in columns.items()},
        }

    def restore(self, arrays: Arrays) -> None:
        """Take the segments that these arrays came from."""
        self._indexed = int(arrays["indexed"][0])
        columns = []
        for name, sizes in zip(_TYPES, arrays["sizes"]):
            parts = np.split(arrays[name], np.cumsum(sizes)[:-1])
            columns.append([part.reshape(_ROWS[name], -1) if name in _ROWS else part for part in parts])
        self._segments = [Segment(*span, *parts) for span, *parts in zip(arrays["spans"].tolist(), *columns)]

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
        largest_first = sorted(self._segments, key=lambda segment: segment.begin - segment.end)

        def part(piece: tuple[int, int]) -> None:
            here = slice(*piece)
            mine = Best._make(array[here] for array in best)
            query = (asked, rows[here], wanted[here], stored, idf, self._metric)
            scan(*query, recent, messages.end, mine)
            for segment in largest_first:
                search(segment, *query, self._scale, messages.first, mine)

        pieces = _pieces(len(rows), threads)
        side_by_side(part, pieces, threads)
        return best

    def _built(self, stored: Stored, begin: int, end: int) -> Segment:
        first, last = begin - stored.base, end - stored.base
        known = int(stored.words[stored.starts[first] : stored.stops[last - 1]].max(initial=-1)) + 1
        if known > len(self._list_of):
            self._list_of = np.full(known + known // 4, -1, np.int32)
        names, counts = _count_words(stored, first, last, self._list_of)
        cuts = np.concatenate([[0], np.cumsum(counts)])
        blocks = -(-counts // BLOCK)
        lists = np.concatenate([[0], np.cumsum(blocks)])
        starts = _block_starts(cuts, blocks, lists)
        slots = np.full(1 << max(4, int(2 * len(names)).bit_length()), -1, np.int32)
        _hash_words(slots, names)
        owners, near, weights = (
            np.empty(cuts[-1], np.int32),
            np.empty((3, cuts[-1]), np.float32),
            np.empty(cuts[-1], np.float32),
        )
        order = np.argsort(z_order(stored.places[first:last]))
        _lay_out(stored, first, order, self._scale, self._list_of, cuts[:-1].copy(), owners, near, weights)
        self._list_of[names] = -1
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
def _count_words(stored: Stored, first: int, last: int, list_of: NDArray[np.int32]) -> Any:
    """Give a list to each word of some messages, in *list_of*; return the words, and how often they occur."""
    names, counts = np.empty(1024, np.int32), np.empty(1024, np.int64)
    known = 0
    for m in range(first, last):
        for i in range(stored.starts[m], stored.stops[m]):
            word = stored.words[i]
            if list_of[word] < 0:
                if known == len(names):
                    names, counts = wider(names, known + 1), wider(counts, known + 1)
                list_of[word], names[known], counts[known] = known, word, 0
                known += 1
            counts[list_of[word]] += 1
    return names[:known], counts[:known]


@kernel
def _lay_out(
    stored: Stored,
    first: int,
    order: NDArray[np.int64],
    scale: float,
    list_of: NDArray[np.int32],
    cursors: NDArray[np.int64],
    numbers: NDArray[np.int32],
    places: NDArray[np.float32],
    weights: NDArray[np.float32],
) -> None:
    """Put messages into the lists of their words, in a given order."""
    for number in order:
        m = first + number
        for i in range(stored.starts[m], stored.stops[m]):
            list_ = list_of[stored.words[i]]
            numbers[cursors[list_]] = number
            cursors[list_] += 1
    for p in range(
        len(numbers)
    ):  # once they are in place: one scattered write for each, and one scattered read
        if p + AHEAD < len(numbers):
            prefetch(stored.places, first + numbers[p + AHEAD])
        m = first + numbers[p]
        weights[p] = 1.0 / stored.lengths[m]
        for axis in range(3):
            places[axis, p] = stored.places[m, axis] * scale


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
def _hash_words(slots: NDArray[np.int32], words: NDArray[np.int32]) -> None:
    mask = len(slots) - 1
    for i in range(len(words)):
        at = slot_of(words[i], mask)
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
