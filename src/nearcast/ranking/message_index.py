"""The message index: it finds the best messages of the window for a subscription.

The index of section 4 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding
Window" (2017), where IR-Tree and S2I are named as examples. New subscriptions and Algorithm 2 (line 5) use it.

The window is divided by time into *segments*. A segment never changes, and is dropped when all its messages have left
the window. Segments side by side are merged into larger ones (:mod:`~nearcast.ranking.merging`). A segment
has a list for each word, in blocks of messages that lie close together; a block has a box and a largest weight. A query
takes the blocks of its words in order of the best score that they allow, and stops when that is below the worst score
that it would keep (:mod:`~nearcast.ranking.segments`). This is a spatial inverted index as in S2I, without a tree.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.kernels.threads import side_by_side
from nearcast.ranking.curve import cube_of
from nearcast.ranking.merging import Merge, segment_of
from nearcast.ranking.scoring import Metric, space_corners
from nearcast.ranking.segments import BestMessages, Segment, scan, search

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.geometry import Space
    from nearcast.ranking.subscribers import SubscriptionTable
    from nearcast.ranking.windows import Messages

__all__ = ["BestMessages", "MessageIndex"]

_FEW = 64  # queries that are worth a call for each segment

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
    "marks": np.uint64,
}
_ROWS = {"boxes": 6, "places": 3}  # the first axis of those with two


class MessageIndex:
    """Segments over the messages of a window."""

    def __init__(self, metric: Metric, space: Space) -> None:
        self._metric = metric
        self._scale = (metric.radius or 1.0) / metric.max_distance
        self._cube = cube_of(space_corners(space) * self._scale)
        self._segments: list[Segment] = []  # oldest first
        self._indexed = 0  # the first message that is in no segment
        self._merges: list[Merge] = []  # in progress; their segments still answer

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(segment.nbytes for segment in self._segments) + sum(merge.nbytes for merge in self._merges)

    def stats(self) -> dict[str, Any]:
        """Figures about the index."""
        return {"segments": len(self._segments)}

    def follow(self, messages: Messages) -> None:
        """Index messages that have arrived, and drop segments that have left the window.

        Each new segment also moves the merges on, by several times its size: faster than segments to merge arrive.
        """
        while self._segments and self._segments[0].end <= messages.first:
            self._segments.pop(0)
        self._indexed = max(self._indexed, messages.first)
        if messages.end - self._indexed < config.RANKING_SEGMENT:
            return
        new = segment_of(messages.table, self._indexed, messages.end, self._scale, self._cube)
        self._segments.append(new)
        self._indexed = messages.end
        for merge in self._merges.copy():
            merged = merge.step(config.RANKING_MERGED * len(new.numbers))
            if merged is not None:
                self._replace(merge, merged)
        while run := self._run():
            self._merges.append(Merge(run, self._cube))

    def restart(self, messages: Messages) -> None:
        """Start again, after messages were renumbered."""
        self._segments, self._merges, self._indexed = [], [], messages.first
        self.follow(messages)

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes: those of all segments, but no merges."""
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
        """Restore the index from these arrays."""
        self._indexed = int(arrays["indexed"][0])
        columns = []
        for name, sizes in zip(_TYPES, arrays["sizes"]):
            parts = np.split(arrays[name], np.cumsum(sizes)[:-1])
            columns.append([part.reshape(_ROWS[name], -1) if name in _ROWS else part for part in parts])
        self._segments = [Segment(*span, *parts) for span, *parts in zip(arrays["spans"].tolist(), *columns)]

    def _run(self) -> list[Segment]:
        """Return segments side by side to merge: as few as reach the next level, none above their own; or none.

        So each merge lifts all of its messages by a level. Small segments between larger ones are merged with these,
        as soon as there are enough of either.
        """
        for level in range(max(map(_level, self._segments), default=-1) + 1):
            enough = config.RANKING_SEGMENT * config.RANKING_MERGE ** (level + 1)
            run: list[Segment] = []
            for segment in self._segments:
                if _level(segment) > level or any(merge.covers(segment) for merge in self._merges):
                    run = []
                    continue
                run.append(segment)
                if len(run) > 1 and segment.end - run[0].begin >= enough:
                    return run
        return []

    def _replace(self, merge: Merge, merged: Segment) -> None:
        """Put a merged segment in the place of those that it was merged from, unless they have all left."""
        self._merges.remove(merge)
        covered = [i for i, segment in enumerate(self._segments) if merge.covers(segment)]
        if covered:
            self._segments[covered[0] : covered[-1] + 1] = [merged]

    def best(
        self,
        subscriptions: SubscriptionTable,
        rows: NDArray[np.int32],
        wanted: NDArray[np.int32],
        messages: Messages,
        idf: NDArray[np.float64],
        threads: int = 1,
    ) -> BestMessages:
        """Return the best messages of the window for each of *rows*, as many as *wanted*."""
        most = int(wanted.max(initial=1))
        best = BestMessages(
            np.empty((len(rows), most)),
            np.empty((len(rows), most), np.int64),
            np.zeros(len(rows), np.int64),
        )
        table = messages.table
        recent = max(self._indexed, messages.first)
        largest_first = sorted(self._segments, key=lambda segment: segment.begin - segment.end)

        def part(piece: tuple[int, int]) -> None:
            here = slice(*piece)
            mine = BestMessages._make(array[here] for array in best)
            query = (subscriptions, rows[here], wanted[here], table, idf, self._metric)
            scan(*query, recent, messages.end, mine)
            for segment in largest_first:
                search(segment, *query, self._scale, messages.first, mine)

        pieces = _pieces(len(rows), threads)
        side_by_side(part, pieces, threads)
        return best


def _pieces(count: int, threads: int) -> list[tuple[int, int]]:
    """Divide queries into ranges for threads to share."""
    each = -(-count // max(1, threads))
    if threads > 1:  # some take longer than others
        each = max(-(-each // 4), min(_FEW, each))
    each = max(1, min(1024, each))
    return [(begin, min(count, begin + each)) for begin in range(0, count, each)]


def _level(segment: Segment) -> int:
    """Return 0 for a small segment, and one more for each time that its size is a merge of those of the level below."""
    size = max(1.0, (segment.end - segment.begin) / config.RANKING_SEGMENT)
    return int(math.log(size, config.RANKING_MERGE) + 1e-9)
