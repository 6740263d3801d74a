"""The naive index: a scan of all rectangles. The reference, and what the paper measures against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.covering.index import RectangleIndex
from nearcast.covering.operations import Operations, Rows, Scratch, first_clause, register
from nearcast.covering.rectangles import covers_rightly, rectangle_covers
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.columns.rows.clauses import ClauseStore

__all__ = ["Scan"]


class _Scanned(NamedTuple):
    """Points one after the other, as kernels see them."""

    points: NDArray[np.float64]  # of all clause rows
    signs: NDArray[np.uint64]
    packed: NDArray[np.float64]  # those that are subscribed, packed
    clauses: NDArray[np.int32]  # their clause rows
    places: NDArray[np.int32]  # of each clause row, where it stands
    used: NDArray[np.int64]  # how many there are


class Scan(RectangleIndex):
    """All rectangles, one after the other; the search ends with the k-th that covers."""

    name = "scan"

    def _emptied(self) -> None:
        self._arrays = _Scanned(
            self.rectangles.points,
            self.rectangles.signs,
            np.empty((0, 2 * len(self.rectangles.axes))),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
            np.zeros(1, np.int64),
        )

    def grow(self, points: int) -> None:
        """Make room."""
        old, rows = self._arrays, len(self.rectangles.points)
        need = int(old.used[0]) + points
        packed, clauses, places = old.packed, old.clauses, old.places
        if need > len(packed):
            packed = np.empty((need + need // 2, packed.shape[1]))
            packed[: len(old.packed)] = old.packed
            clauses = np.empty(len(packed), np.int32)
            clauses[: len(old.clauses)] = old.clauses
        if rows > len(places):
            places = np.full(rows + rows // 2, -1, np.int32)
            places[: len(old.places)] = old.places
        self._arrays = _Scanned(
            self.rectangles.points, self.rectangles.signs, packed, clauses, places, old.used
        )

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the rectangles as they stand, and where they do."""
        _, _, packed, clauses, places, used = self._arrays
        own = {"packed": packed[: used[0]], "clauses": clauses[: used[0]], "places": places, "used": used}
        return super().at_rest() | own

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the rectangles."""
        super().restore(store, arrays)
        self._arrays = self._arrays._replace(**{name: arrays[name] for name in _Scanned._fields[2:]})


@kernel
def _find(
    index: _Scanned,
    rows: Rows,
    subject: int,
    k: int,
    out: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: Scratch,
    counters: NDArray[np.int64],
) -> Any:
    points, signs, packed, clauses, _, used = index
    owners = rows.owners
    mine = first_clause(rows, subject)
    dimensions, found = points.shape[1], 0
    for i in range(used[0]):
        d = 0
        while d < dimensions and packed[i, d] >= points[mine, d]:
            d += 1
        if d == dimensions and covers_rightly(points, signs, owners, clauses[i], mine):
            out[found] = owners[clauses[i]]
            found += 1
            if found == k:
                counters[1] += i + 1
                return found
    counters[1] += used[0]
    return found


@kernel
def _add(index: _Scanned, rows: Rows, subject: int, scratch: Scratch) -> None:
    points, _, packed, clauses, places, used = index
    clause, at = first_clause(rows, subject), used[0]
    packed[at, :] = points[clause, :]
    clauses[at], places[clause] = clause, at
    used[0] += 1


@kernel
def _take(index: _Scanned, rows: Rows, subject: int, scratch: Scratch) -> None:
    _, _, packed, clauses, places, used = index
    used[0] -= 1
    clause, last = first_clause(rows, subject), used[0]
    at = places[clause]
    packed[at, :] = packed[last, :]
    clauses[at] = clauses[last]
    places[clauses[at]] = at
    places[clause] = -1


@kernel
def _room(index: _Scanned, count: int) -> Any:
    return index.used[0] + count <= index.clauses.size


register(_Scanned, Operations(_find, _add, _take, _room, rectangle_covers))
