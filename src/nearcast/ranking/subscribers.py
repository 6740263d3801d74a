"""The table of subscriptions (Figure 5): place, words, preference, k, and the score that a message must reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.ranking.scoring import lengths, places_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.geometry import Space
    from nearcast.ranking.requests import Requests

__all__ = ["Asked", "Subscribers"]


#: A row of the table is one cache line: scoring a candidate costs one miss, and one for its words.
_RECORD = np.dtype(
    [
        ("places", np.float64, 3),
        ("alphas", np.float64),
        ("lengths", np.float64),
        ("thresholds", np.float64),
        ("starts", np.int64),
        ("counts", np.int32),
        ("sizes", np.int32),
    ]
)


class Asked(NamedTuple):
    """The subscriptions, as kernels see them. A score below the threshold θ cannot be a result, now or later."""

    places: NDArray[np.float64]  # [rows, 3]
    alphas: NDArray[np.float64]
    lengths: NDArray[np.float64]  # of the vectors of weights
    thresholds: NDArray[np.float64]
    starts: NDArray[np.int64]  # into the words
    counts: NDArray[np.int32]
    sizes: NDArray[np.int32]  # k
    words: NDArray[np.int32]  # of a row ascending
    rows: int  # that were ever given out; behind them is room


class Subscribers:
    """Rows of subscriptions; a row that was freed is given out again."""

    def __init__(self) -> None:
        self._table = _growable(np.empty(0, _RECORD))
        self._words = _growable(np.empty(0, np.int32))
        self._alive = _growable(np.empty(0, np.bool_))
        self._free: list[int] = []
        self._waste = 0  # words of rows that are free

    def __len__(self) -> int:
        return len(self._alive.values) - len(self._free)

    @property
    def rows(self) -> int:
        """Rows that were ever given out."""
        return len(self._alive.values)

    @property
    def nbytes(self) -> int:
        """Memory."""
        return self._table.nbytes + self._words.nbytes + self._alive.nbytes

    @property
    def asked(self) -> Asked:
        """The arrays, for kernels."""
        return Asked._make([*self._table.columns(), self._words.values, self.rows])

    def all(self) -> NDArray[np.int32]:
        """Return the rows that there are."""
        return np.flatnonzero(self._alive.values).astype(np.int32)

    def add(self, new: Requests, space: Space, idf: NDArray[np.float64]) -> NDArray[np.int32]:
        """Take subscriptions; return their rows."""
        count = len(new.points)
        again = [self._free.pop() for _ in range(min(count, len(self._free)))]
        fresh = np.arange(self.rows, self.rows + count - len(again))
        rows = np.concatenate([np.array(again, np.int64), fresh]).astype(np.int32)
        self._table.fill(len(fresh), 0)
        self._alive.fill(len(fresh), value=False)
        long = np.empty(count)
        lengths(new.offsets, new.words, idf, long)
        table = np.zeros(count, _RECORD)
        table["places"], table["lengths"] = places_of(new.points, space), long
        table["alphas"], table["sizes"] = new.alphas, new.sizes
        table["starts"], table["counts"] = new.offsets[:-1] + len(self._words.values), np.diff(new.offsets)
        self._table.values[rows] = table
        self._words.extend(new.words)
        self._alive.values[rows] = True
        return rows

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Free rows."""
        counts = self._table.values["counts"]
        self._waste += int(counts[rows].sum())
        counts[rows] = 0
        self._alive.values[rows] = False
        self._free.extend(rows.tolist())
        if self._waste > len(self._words.values) // 2 + 1024:
            self._pack()

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        return {
            "table": self._table.values,
            "words": self._words.values,
            "alive": self._alive.values,
            "free": np.array(self._free, np.int64),
        }

    def restore(self, arrays: Arrays) -> None:
        """Take the rows that these arrays came from."""
        self._table = _growable(arrays["table"].view(_RECORD))
        self._words, self._alive = _growable(arrays["words"]), _growable(arrays["alive"])
        self._free = arrays["free"].tolist()
        self._waste = len(arrays["words"]) - int(arrays["table"]["counts"].sum())

    def _pack(self) -> None:
        """Leave the words of freed rows behind."""
        starts, counts = self._table.values["starts"], self._table.values["counts"]
        total = int(counts.sum())
        offsets = np.cumsum(counts) - counts
        picks = np.arange(total) + np.repeat(starts - offsets, counts)
        self._words = _growable(self._words.values[picks])
        starts[:] = offsets
        self._waste = 0


def _growable(values: NDArray[Any]) -> GrowableArray:
    return GrowableArray(values, borrowed=False, spare=config.RANKING_SPARE_ROOM)
