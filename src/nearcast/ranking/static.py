"""The base of finders that are built once: new rows are scanned until they are many, then the index is built again."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from nearcast import config
from nearcast.kernels import kernel
from nearcast.ranking.finder import Finder, Hits
from nearcast.ranking.scoring import Metric, score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.subscribers import SubscriptionTable
    from nearcast.ranking.windows import MessageTable

__all__ = ["StaticFinder"]


class StaticFinder(Finder):
    """A finder with a static structure. It knows which rows are in the structure and which are waiting."""

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._scale = (metric.radius or 1.0) / metric.max_distance
        self._inside = np.empty(0, np.bool_)
        self._waiting = np.empty(0, np.int32)

    @abstractmethod
    def _lay_out(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Build the structure over these rows."""

    @abstractmethod
    def _retune(self, subscriptions: SubscriptionTable, rows: NDArray[np.int32]) -> None:
        """Take note of new thresholds of rows that are in the structure."""

    @abstractmethod
    def _search(
        self,
        subscriptions: SubscriptionTable,
        messages: MessageTable,
        begin: int,
        end: int,
        idf: NDArray[np.float64],
        counters: NDArray[np.int64],
        room: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
        """Search the structure; return offsets, rows and scores, as in :class:`Hits`."""

    def add(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Let rows wait; build the structure again when many are waiting."""
        more = subscriptions.rows - len(self._inside)
        self._inside = np.concatenate([self._inside, np.zeros(more, np.bool_)])
        self._waiting = np.concatenate([self._waiting, rows])
        laid = int(self._inside.sum())
        if len(self._waiting) > max(config.RANKING_WAITING, laid // 8):
            self._inside[self._waiting] = True
            self._waiting = self._waiting[:0]
            self._lay_out(subscriptions, np.flatnonzero(self._inside).astype(np.int32), idf)

    def drop(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Ignore rows from now on."""
        self._inside[rows] = False
        self._waiting = self._waiting[~np.isin(self._waiting, rows)]

    def update(
        self,
        subscriptions: SubscriptionTable,
        rows: NDArray[np.int32],
        idf: NDArray[np.float64],
        threads: int = 1,
    ) -> None:
        """Pass new thresholds on to the structure."""
        self._retune(subscriptions, rows[self._inside[rows]])

    def find(
        self,
        subscriptions: SubscriptionTable,
        messages: MessageTable,
        begin: int,
        end: int,
        idf: NDArray[np.float64],
        room: int,
    ) -> Hits:
        """Search the structure, and score the rows that are waiting."""
        counters = np.zeros(4, np.int64)
        offsets, rows, scores = self._search(subscriptions, messages, begin, end, idf, counters, room)
        if not len(self._waiting):
            return Hits(offsets, rows, scores, counters)
        done = len(offsets) - 1
        more = _scan_rows(subscriptions, self._waiting, messages, begin, begin + done, idf, self.metric)
        counts = np.diff(offsets) + np.bincount(more[0], minlength=done)
        order = np.argsort(
            np.concatenate([np.repeat(np.arange(done), np.diff(offsets)), more[0]]), kind="stable"
        )
        return Hits(
            np.concatenate([[0], np.cumsum(counts)]),
            np.concatenate([rows, more[1]])[order],
            np.concatenate([scores, more[2]])[order],
            counters,
        )


@kernel
def _scan_rows(
    subscriptions: SubscriptionTable,
    rows: NDArray[np.int32],
    messages: MessageTable,
    begin: int,
    end: int,
    idf: NDArray[np.float64],
    metric: Metric,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Score some rows with each message; return message, row and score of those that reach their threshold."""
    room = len(rows) * (end - begin)
    numbers, found, scores = np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room)
    count = 0
    for message in range(begin, end):
        for row in rows:
            value, rarest = score(subscriptions, row, messages, message - messages.base, idf, metric)
            if rarest >= 0 and value >= subscriptions.thresholds[row]:
                numbers[count], found[count], scores[count] = message - begin, row, value
                count += 1
    return numbers[:count], found[:count], scores[:count]
