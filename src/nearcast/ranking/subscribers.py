"""The table of subscriptions (Figure 5): place, words, preference, k, and the score that a message must reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.ranking.scoring import lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
        self._table = GrowableArray(np.empty(0, _RECORD), borrowed=False, spare=config.RANKING_SPARE_ROOM)
        self._words = GrowableArray(np.empty(0, np.int32), borrowed=False, spare=config.RANKING_SPARE_ROOM)
        self._alive = GrowableArray(np.empty(0, np.bool_), borrowed=False, spare=config.RANKING_SPARE_ROOM)
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

    def alive(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say which of these rows there are."""
        good = (rows >= 0) & (rows < self.rows)
        good[good] = self._alive.values[rows[good]]
        return good

    def add(
        self,
        places: NDArray[np.float64],
        alphas: NDArray[np.float64],
        sizes: NDArray[np.int32],
        offsets: NDArray[np.int64],
        words: NDArray[np.int32],
        idf: NDArray[np.float64],
    ) -> NDArray[np.int32]:
        """Take subscriptions; return their rows."""
        count = len(places)
        again = [self._free.pop() for _ in range(min(count, len(self._free)))]
        fresh = np.arange(self.rows, self.rows + count - len(again))
        rows = np.concatenate([np.array(again, np.int64), fresh]).astype(np.int32)
        self._table.fill(len(fresh), 0)
        self._alive.fill(len(fresh), value=False)
        long = np.empty(count)
        lengths(offsets, words, idf, long)
        new = np.zeros(count, _RECORD)
        new["places"], new["alphas"], new["lengths"], new["sizes"] = places, alphas, long, sizes
        new["starts"], new["counts"] = offsets[:-1] + len(self._words.values), np.diff(offsets)
        self._table.values[rows] = new
        self._words.extend(words)
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

    def _pack(self) -> None:
        """Leave the words of freed rows behind."""
        starts, counts = self._table.values["starts"], self._table.values["counts"]
        total = int(counts.sum())
        offsets = np.cumsum(counts) - counts
        picks = np.arange(total) + np.repeat(starts - offsets, counts)
        self._words = GrowableArray(self._words.values[picks], borrowed=False)
        starts[:] = offsets
        self._waste = 0
