"""What finds the subscriptions that a message concerns: the interface, and the scan."""

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
    from nearcast.ranking.subscribers import Asked
    from nearcast.ranking.windows import Stored

__all__ = ["PAIRS", "Finder", "Found", "Scan", "joined", "wider"]

PAIRS = 4096  # room for subscriptions, at first


class Found(NamedTuple):
    """Subscriptions that messages concern: those of message i are rows[offsets[i]:offsets[i + 1]], with scores."""

    offsets: NDArray[np.int64]
    rows: NDArray[np.int32]
    scores: NDArray[np.float64]
    counters: NDArray[np.int64]  # blocks or cells looked at, those not skipped, postings in them, candidates


def joined(parts: Sequence[Found]) -> Found:
    """Return what was found for messages and for those that follow."""
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    return Found(
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.scores for part in parts]),
        np.sum([part.counters for part in parts], axis=0),
    )


class Finder(ABC):
    """An index over subscriptions; exact: all of those whose score with a message is at least their θ, and only these.

    It is told of every change. Threads may call :meth:`find` at the same time, between changes.
    """

    name: ClassVar[str]

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    @abstractmethod
    def add(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Take rows that are new."""

    @abstractmethod
    def drop(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Forget rows, which are still in *asked*."""

    @abstractmethod
    def changed(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Learn new thresholds of rows."""

    def tune(self, lengths: NDArray[np.float64], idf: NDArray[np.float64]) -> None:  # noqa: B027  nothing by default
        """Learn from the messages in the window, by the lengths of their vectors."""

    @abstractmethod
    def find(
        self, asked: Asked, stored: Stored, begin: int, end: int, idf: NDArray[np.float64], room: int
    ) -> Found:
        """Return the subscriptions that the messages *begin* to *end* concern.

        With *room* of them, no further message is looked at.
        """

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes; none: the index is built anew."""
        return {}

    def restore(
        self, arrays: Arrays, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Take the index over *rows* that these arrays came from."""
        self.add(asked, rows, idf)

    @property
    def nbytes(self) -> int:
        """Memory."""
        return 0

    def stats(self) -> dict[str, Any]:
        """Figures about the structure."""
        return {}


@kernel
def wider(array: Any, least: int) -> Any:
    """Return a copy of an array with room for *least* entries, and some more."""
    more = np.empty(least + least // 2, array.dtype)
    more[: len(array)] = array
    return more


class Scan(Finder):
    """Score every subscription: no structure, time proportional to their number."""

    name = "scan"

    def add(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Nothing to do."""

    def drop(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Nothing to do: a freed row has no words."""

    def changed(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Nothing to do."""

    def find(
        self, asked: Asked, stored: Stored, begin: int, end: int, idf: NDArray[np.float64], room: int
    ) -> Found:
        """Score them all."""
        offsets, rows, scores = _scan(asked, stored, begin, end, idf, self.metric, room)
        return Found(offsets, rows, scores, np.zeros(4, np.int64))


@kernel
def _scan(
    asked: Asked,
    stored: Stored,
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
        for row in range(asked.rows):
            value, rarest = score(asked, row, stored, begin + done - stored.base, idf, metric)
            if rarest >= 0 and value >= asked.thresholds[row]:
                if found == len(rows):
                    rows, scores = wider(rows, found + 1), wider(scores, found + 1)
                rows[found], scores[found] = row, value
                found += 1
        done += 1
        offsets[done] = found
    return offsets[: done + 1], rows[:found], scores[:found]
