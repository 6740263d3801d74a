"""The table of subscriptions (Figure 5): place, words, preference, k, and the score that a message must reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.growable import GrowableArray
from nearcast.ranking.scoring import lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Asked", "Subscribers"]


class Asked(NamedTuple):
    """The subscriptions, as kernels see them. A score below the threshold θ cannot be a result, now or later."""

    places: NDArray[np.float64]  # [rows, 3]
    alphas: NDArray[np.float64]
    lengths: NDArray[np.float64]  # of the vectors of weights
    thresholds: NDArray[np.float64]
    sizes: NDArray[np.int32]  # k
    starts: NDArray[np.int64]  # into the words
    counts: NDArray[np.int32]
    words: NDArray[np.int32]  # of a row ascending


class Subscribers:
    """Rows of subscriptions; a row that was freed is given out again."""

    def __init__(self) -> None:
        kinds: dict[str, Any] = {
            "places": np.empty((0, 3)),
            "alphas": np.empty(0),
            "lengths": np.empty(0),
            "thresholds": np.empty(0),
            "sizes": np.empty(0, np.int32),
            "starts": np.empty(0, np.int64),
            "counts": np.empty(0, np.int32),
            "words": np.empty(0, np.int32),
        }
        self._columns = {name: GrowableArray(empty, borrowed=False) for name, empty in kinds.items()}
        self._alive = GrowableArray(np.empty(0, np.bool_), borrowed=False)
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
        return sum(column.nbytes for column in self._columns.values())

    @property
    def asked(self) -> Asked:
        """The arrays, for kernels."""
        return Asked(*(self._columns[name].values for name in Asked._fields))

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
        for name, column in self._columns.items():
            if name != "words":
                column.fill(len(fresh), 0)
        self._alive.fill(len(fresh), value=False)
        used = len(self._columns["words"].values)
        self._columns["words"].extend(words)
        long = np.empty(count)
        lengths(offsets, words, idf, long)
        new = {
            "places": places,
            "alphas": alphas,
            "lengths": long,
            "thresholds": 0.0,
            "sizes": sizes,
            "starts": offsets[:-1] + used,
            "counts": np.diff(offsets),
        }
        for name, values in new.items():
            self._columns[name].values[rows] = values
        self._alive.values[rows] = True
        return rows

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Free rows."""
        self._waste += int(self._columns["counts"].values[rows].sum())
        self._columns["counts"].values[rows] = 0
        self._alive.values[rows] = False
        self._free.extend(rows.tolist())
        if self._waste > len(self._columns["words"].values) // 2 + 1024:
            self._pack()

    def _pack(self) -> None:
        """Leave the words of freed rows behind."""
        starts, counts = self._columns["starts"].values, self._columns["counts"].values
        total = int(counts.sum())
        offsets = np.cumsum(counts) - counts
        picks = np.arange(total) + np.repeat(starts - offsets, counts)
        self._columns["words"] = GrowableArray(self._columns["words"].values[picks], borrowed=False)
        starts[:] = offsets
        self._waste = 0
