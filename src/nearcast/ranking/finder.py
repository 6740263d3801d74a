"""The interface of an index over subscriptions, and the simplest one: a scan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from nearcast.kernels import kernel
from nearcast.ranking.scoring import Metric, score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.ranking.subscribers import SubscriptionTable
    from nearcast.ranking.windows import MessageTable

__all__ = ["PAIRS", "Finder", "Hits", "ScanFinder", "joined", "wider"]

PAIRS = 4096  # hits that there is room for at first


class Hits(NamedTuple):
    """The subscriptions that messages affect: those of message i are ``rows[offsets[i]:offsets[i + 1]]``."""

    offsets: NDArray[np.int64]
    rows: NDArray[np.int32]
    scores: NDArray[np.float64]
    counters: NDArray[np.int64]  # blocks or cells, those not skipped, postings in these, candidates


def joined(parts: Sequence[Hits]) -> Hits:
    """Return the hits of consecutive runs of messages as one."""
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    return Hits(
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.scores for part in parts]),
        np.sum([part.counters for part in parts], axis=0),
    )


class Finder(ABC):
    """An index over subscriptions: it finds exactly those for which a message scores at least their threshold θ.

    It is told of every change. Between changes, several threads may call :meth:`find` at the same time.
    """

    name: ClassVar[str]

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    @abstractmethod
    def add(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Index new rows."""

    @abstractmethod
    def drop(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Forget rows; *subscriptions* still has them."""

    @abstractmethod
    def update(
        self,
        subscriptions: SubscriptionTable,
        rows: NDArray[np.int32],
        idf: NDArray[np.float64],
        threads: int = 1,
    ) -> None:
        """Take note of new thresholds of rows."""

    def tune(self, lengths: NDArray[np.float64], idf: NDArray[np.float64]) -> None:  # noqa: B027  nothing by default
        """Adapt to the messages in the window, given the lengths of their vectors."""

    @abstractmethod
    def find(
        self,
        subscriptions: SubscriptionTable,
        messages: MessageTable,
        begin: int,
        end: int,
        idf: NDArray[np.float64],
        room: int,
    ) -> Hits:
        """Return the subscriptions that the messages *begin* to *end* affect.

        Once there are *room* hits, the search stops after the current message.
        """

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes; without any, it builds the index again."""
        return {}

    def restore(
        self,
        arrays: Arrays,
        subscriptions: SubscriptionTable,
        rows: NDArray[np.int32],
        idf: NDArray[np.float64],
    ) -> None:
        """Restore the index over *rows* from these arrays."""
        self.add(subscriptions, rows, idf)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return 0

    def stats(self) -> dict[str, Any]:
        """Figures about the index."""
        return {}


@kernel
def wider(array: Any, least: int) -> Any:
    """Return a copy of an array with room for at least *least* entries."""
    more = np.empty(least + least // 2, array.dtype)
    more[: len(array)] = array
    return more


class ScanFinder(Finder):
    """Score every subscription, in time proportional to their number."""

    name = "scan"

    def add(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Do nothing: there is no index."""

    def drop(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Do nothing: a freed row has no words."""

    def update(
        self,
        subscriptions: SubscriptionTable,
        rows: NDArray[np.int32],
        idf: NDArray[np.float64],
        threads: int = 1,
    ) -> None:
        """Do nothing: there is no index."""

    def find(
        self,
        subscriptions: SubscriptionTable,
        messages: MessageTable,
        begin: int,
        end: int,
        idf: NDArray[np.float64],
        room: int,
    ) -> Hits:
        """Score every subscription with every message."""
        offsets, rows, scores = _scan(subscriptions, messages, begin, end, idf, self.metric, room)
        return Hits(offsets, rows, scores, np.zeros(4, np.int64))


@kernel
def _scan(
    subscriptions: SubscriptionTable,
    messages: MessageTable,
    begin: int,
    end: int,
    idf: NDArray[np.float64],
    metric: Metric,
    room: int,
) -> Any:
    offsets = np.zeros(end - begin + 1, np.int64)
    rows, scores = np.empty(PAIRS, np.int32), np.empty(PAIRS)
    found, done = 0, 0
    while done < end - begin and found < room:
        for row in range(subscriptions.rows):
            value, rarest = score(subscriptions, row, messages, begin + done - messages.base, idf, metric)
            if rarest >= 0 and value >= subscriptions.thresholds[row]:
                if found == len(rows):
                    rows, scores = wider(rows, found + 1), wider(scores, found + 1)
                rows[found], scores[found] = row, value
                found += 1
        done += 1
        offsets[done] = found
    return offsets[: done + 1], rows[:found], scores[:found]
