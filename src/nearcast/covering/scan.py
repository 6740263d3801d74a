"""The naive index of rectangles: a scan of all of them. It is the reference, and what section V.C measures against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.covering.g_k import kernels_for
from nearcast.covering.growing import GrowingArrays
from nearcast.covering.index import RectangleIndex
from nearcast.covering.rectangles import rectangle_covers, rectangle_covers_by_age
from nearcast.covering.subscriptions import Scratch, Subscriptions, first_clause
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.columns.rows.clauses import ClauseStore

__all__ = ["Scan"]


class _PointList(NamedTuple):
    """The points of the subscriptions that are there, one after the other, as kernels see them."""

    points: NDArray[np.float64]  # [n, dimensions]
    clauses: NDArray[np.int32]  # the clause row of each
    places: NDArray[np.int32]  # by clause row: the place of its point
    used: NDArray[np.int64]  # one entry: how many points there are


@kernel
def _find(
    index: _PointList,
    held: Subscriptions,
    asked: Subscriptions,
    subject: int,
    k: int,
    out: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: Scratch,
    counters: NDArray[np.int64],
) -> Any:
    points, clauses, _, used = index
    mine = first_clause(asked, subject)
    query = asked.content.points
    dimensions, found = query.shape[1], 0
    for i in range(used[0]):
        d = 0
        while d < dimensions and points[i, d] >= query[mine, d]:
            d += 1
        if d == dimensions and rectangle_covers_by_age(held, clauses[i], asked, subject, mine):
            out[found] = held.owners[clauses[i]]
            found += 1
            if found == k:
                counters[1] += i + 1
                return found
    counters[1] += used[0]
    return found


@kernel
def _add(index: _PointList, held: Subscriptions, subject: int, scratch: Scratch) -> None:
    points, clauses, places, used = index
    clause, at = first_clause(held, subject), used[0]
    points[at, :] = held.content.points[clause, :]
    clauses[at], places[clause] = clause, at
    used[0] += 1


@kernel
def _take(index: _PointList, held: Subscriptions, subject: int, scratch: Scratch) -> None:
    points, clauses, places, used = index
    used[0] -= 1
    clause, last = first_clause(held, subject), used[0]
    at = places[clause]
    points[at, :] = points[last, :]
    clauses[at] = clauses[last]
    places[clauses[at]] = at
    places[clause] = -1


@kernel
def _has_room(index: _PointList, count: int) -> Any:
    return index.used[0] + count <= index.clauses.size


class Scan(RectangleIndex):
    """All rectangles, one after the other; a search ends with the k-th that covers."""

    name = "scan"
    kernels = kernels_for(_find, _add, _take, _has_room, rectangle_covers)

    def _empty(self, rows: int) -> None:
        self._lay_out(
            {
                "points": np.empty((0, 2 * len(self.rectangles.axes))),
                "clauses": np.empty(0, np.int32),
                "places": np.full(rows, -1, np.int32),
                "used": np.zeros(1, np.int64),
            }
        )

    def _reach(self, rows: int) -> None:
        self._arrays.reach("places", rows, -1)
        self.grow(1)

    def grow(self, points: int) -> None:
        """Make room."""
        need = int(self._used[0]) + points
        self._arrays.make_room("points", need)
        self._arrays.make_room("clauses", need)
        self.arrays = _PointList(
            self._arrays["points"], self._arrays["clauses"], self._arrays["places"], self._used
        )

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the points as they are listed."""
        points, clauses, places, used = self.arrays
        own = {"points": points[: used[0]], "clauses": clauses[: used[0]], "places": places, "used": used}
        return super().at_rest() | own

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the list."""
        super().restore(store, arrays)
        self._lay_out(arrays)

    def _lay_out(self, arrays: Arrays) -> None:
        self._arrays = GrowingArrays(**{name: arrays[name] for name in ("points", "clauses", "places")})
        self._used = arrays["used"]
        self.grow(1)
