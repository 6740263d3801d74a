"""A finder that is laid out once: newcomers are scanned until they are many, then all is laid out anew."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from nearcast import config
from nearcast.kernels import kernel
from nearcast.ranking.finder import Finder, Found
from nearcast.ranking.scoring import Metric, score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.subscribers import Asked
    from nearcast.ranking.windows import Stored

__all__ = ["Laid"]


class Laid(Finder):
    """What they share: which rows are in the structure, and which wait."""

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._scale = (metric.radius or 1.0) / metric.max_distance
        self._inside = np.empty(0, np.bool_)
        self._waiting = np.empty(0, np.int32)

    @abstractmethod
    def _lay_out(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Build the structure for these rows."""

    @abstractmethod
    def _retune(self, asked: Asked, rows: NDArray[np.int32]) -> None:
        """Learn new thresholds of rows that are in the structure."""

    @abstractmethod
    def _search(
        self,
        asked: Asked,
        stored: Stored,
        begin: int,
        end: int,
        idf: NDArray[np.float64],
        counters: NDArray[np.int64],
        room: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
        """Find among the rows that are in the structure: offsets, rows, scores, as in :class:`Found`."""

    def add(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Let rows wait; lay all out anew when many do."""
        more = asked.rows - len(self._inside)
        self._inside = np.concatenate([self._inside, np.zeros(more, np.bool_)])
        self._waiting = np.concatenate([self._waiting, rows])
        laid = int(self._inside.sum())
        if len(self._waiting) > max(config.RANKING_WAITING, laid // 8):
            self._inside[self._waiting] = True
            self._waiting = self._waiting[:0]
            self._lay_out(asked, np.flatnonzero(self._inside).astype(np.int32), idf)

    def drop(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Pass over rows from now on."""
        self._inside[rows] = False
        self._waiting = self._waiting[~np.isin(self._waiting, rows)]

    def changed(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Let the structure know new thresholds."""
        self._retune(asked, rows[self._inside[rows]])

    def find(
        self, asked: Asked, stored: Stored, begin: int, end: int, idf: NDArray[np.float64], room: int
    ) -> Found:
        """Search the structure, and score those that wait."""
        counters = np.zeros(4, np.int64)
        offsets, rows, scores = self._search(asked, stored, begin, end, idf, counters, room)
        if not len(self._waiting):
            return Found(offsets, rows, scores, counters)
        done = len(offsets) - 1
        more = _scan_rows(asked, self._waiting, stored, begin, begin + done, idf, self.metric)
        counts = np.diff(offsets) + np.bincount(more[0], minlength=done)
        order = np.argsort(
            np.concatenate([np.repeat(np.arange(done), np.diff(offsets)), more[0]]), kind="stable"
        )
        return Found(
            np.concatenate([[0], np.cumsum(counts)]),
            np.concatenate([rows, more[1]])[order],
            np.concatenate([scores, more[2]])[order],
            counters,
        )


@kernel
def _scan_rows(
    asked: Asked,
    rows: NDArray[np.int32],
    stored: Stored,
    begin: int,
    end: int,
    idf: NDArray[np.float64],
    metric: Metric,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Score some rows for each message: (message, row, score) of those that reach their threshold."""
    room = len(rows) * (end - begin)
    messages, found, scores = np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room)
    count = 0
    for message in range(begin, end):
        for row in rows:
            value, rarest = score(asked, row, stored, message - stored.base, idf, metric)
            if rarest >= 0 and value >= asked.thresholds[row]:
                messages[count], found[count], scores[count] = message - begin, row, value
                count += 1
    return messages[:count], found[:count], scores[:count]
