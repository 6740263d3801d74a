"""The subscription table: place, words, α, k and θ of each subscription.

Figure 5 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding Window" (2017).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import runs_of
from nearcast.kernels.runs import END, allot_runs, copy_runs, empty_room, release_runs
from nearcast.ranking.scoring import lengths, places_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.geometry import Space
    from nearcast.ranking.requests import Requests

__all__ = ["Subscribers", "SubscriptionTable"]


#: A row is one cache line: verifying a candidate costs one cache miss, and one more for its words.
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


class SubscriptionTable(NamedTuple):
    """The subscriptions, as kernels see them. A message that scores below θ cannot become a result."""

    places: NDArray[np.float64]  # [rows, 3]
    alphas: NDArray[np.float64]
    lengths: NDArray[np.float64]  # of the vectors of word weights
    thresholds: NDArray[np.float64]  # θ
    starts: NDArray[np.int64]  # into the words
    counts: NDArray[np.int32]
    sizes: NDArray[np.int32]  # k
    words: NDArray[np.int32]  # ascending within a row
    rows: int  # how many rows were ever in use; the arrays may be longer


class Subscribers:
    """The rows of subscriptions. A row that was freed is used again, and so are the places of its words."""

    def __init__(self) -> None:
        self._table = _growable(np.empty(0, _RECORD))
        self._words = _growable(np.empty(0, np.int32))
        self._alive = _growable(np.empty(0, np.bool_))
        self._free: list[int] = []
        self._room = empty_room()  # the allocator of words

    def __len__(self) -> int:
        return len(self._alive.values) - len(self._free)

    @property
    def rows(self) -> int:
        """How many rows were ever in use."""
        return len(self._alive.values)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._table.nbytes + self._words.nbytes + self._alive.nbytes

    @property
    def table(self) -> SubscriptionTable:
        """The arrays, for kernels."""
        return SubscriptionTable._make([*self._table.columns(), self._words.values, self.rows])

    def all(self) -> NDArray[np.int32]:
        """Return the rows in use, ascending."""
        return np.flatnonzero(self._alive.values).astype(np.int32)

    def add(self, new: Requests, space: Space, idf: NDArray[np.float64]) -> NDArray[np.int32]:
        """Add subscriptions; return their rows."""
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
        given, every = runs_of(new.offsets), np.arange(count)
        runs = np.empty_like(given)
        allot_runs(self._room, self._words.values, runs, every, given)
        copy_runs(given, new.words, runs, every, self._words.reach(int(self._room[END])))
        table["starts"], table["counts"] = runs[:, 0], np.diff(new.offsets)
        self._table.values[rows] = table
        self._alive.values[rows] = True
        return rows

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Free rows."""
        starts, counts = self._table.values["starts"], self._table.values["counts"]
        runs = np.stack([starts[rows], starts[rows] + counts[rows]], axis=1).astype(np.int32)
        release_runs(self._room, self._words.values, runs, np.arange(len(rows)))
        counts[rows] = 0
        self._alive.values[rows] = False
        self._free.extend(rows.tolist())

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        return {
            "table": self._table.values,
            "words": self._words.values,
            "alive": self._alive.values,
            "free": np.array(self._free, np.int64),
            "room": self._room,
        }

    def restore(self, arrays: Arrays) -> None:
        """Restore the table from these arrays."""
        self._table = _growable(arrays["table"].view(_RECORD))
        self._words, self._alive = _growable(arrays["words"]), _growable(arrays["alive"])
        self._free, self._room = arrays["free"].tolist(), arrays["room"]


def _growable(values: NDArray[Any]) -> GrowableArray:
    return GrowableArray(values, borrowed=False, spare=config.RANKING_SPARE_ROOM)
