"""Rectangles as points (section IV.A): [l, r] on each axis becomes (-l, r), and to contain is to dominate.

The axes are x and y, where a subscription has a box, and the attributes that any of them tests. An axis that a
subscription leaves open is infinite at both ends; that its attribute need not even be there is kept as a bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import runs_take
from nearcast.covering.operations import Rows, first_clause
from nearcast.covering.relation import NO, YES
from nearcast.errors import InputError
from nearcast.kernels import kernel
from nearcast.kernels.verify import HIGH_OPEN, LOW_OPEN, NEGATED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import SubscriptionTable
    from nearcast.kernels.verify import Clauses

__all__ = ["Rectangles", "attributes_of", "covers_rightly", "rectangle_covers", "refusal", "rounded"]

X, Y = -2, -1  # the axes that are not attributes
MOST_AXES = 64  # bits of a sign


def refusal(table: SubscriptionTable) -> str | None:
    """Say why an index of rectangles cannot hold a table, or return None."""
    clauses = table.clauses
    if len(clauses.keywords) or len(clauses.forbidden):
        return "keywords"
    if table.shapes:
        return "circles or polygons"
    if len(table.owners) != table.size or len(np.unique(table.owners)) != table.size:
        return "several clauses"
    if (clauses.test_flags & NEGATED).any():
        return "tests that are negated"
    return None


class Rectangles:
    """Clause rows as points of twice as many dimensions as there are axes."""

    def __init__(self) -> None:
        self.axes: list[int] = []
        self._points = GrowableArray(np.empty((0, 0)), borrowed=False)
        self._signs = GrowableArray(np.empty(0, np.uint64), borrowed=False)

    @property
    def points(self) -> NDArray[np.float64]:
        """By clause row: -low and high on each axis."""
        return self._points.values

    @property
    def signs(self) -> NDArray[np.uint64]:
        """By clause row: a bit for each axis that it constrains."""
        return self._signs.values

    def fits(self, clauses: Clauses, begin: int) -> bool:
        """Tell whether the clause rows from *begin* on constrain no axis that was open so far."""
        return set(_axes(clauses, begin)) <= set(self.axes)

    def check(self, clauses: Clauses) -> None:
        """Raise where the clauses would bring too many axes."""
        count = len({*self.axes, *_axes(clauses, 0)})
        if count > MOST_AXES:
            raise InputError(f"an index of rectangles has at most {MOST_AXES} axes, not {count}")

    def load(self, clauses: Clauses) -> None:
        """Begin anew with the given clause rows, on all axes that were or are used."""
        self.axes = sorted({*self.axes, *_axes(clauses, 0)})
        self._points = GrowableArray(np.empty((0, 2 * len(self.axes))), borrowed=False)
        self._signs = GrowableArray(np.empty(0, np.uint64), borrowed=False)
        self.extend(clauses, 0)

    def extend(self, clauses: Clauses, begin: int) -> None:
        """Take the clause rows from *begin* on, which follow those that are there."""
        count = len(clauses.boxes) - begin
        points = np.full((count, 2 * len(self.axes)), np.inf)
        signs = np.zeros(count, np.uint64)
        place = {axis: i for i, axis in enumerate(self.axes)}
        for axis, low, high in ((X, 0, 2), (Y, 1, 3)):
            if axis in place:
                points[:, 2 * place[axis]] = -clauses.boxes[begin:, low]
                points[:, 2 * place[axis] + 1] = clauses.boxes[begin:, high]
        if len(clauses.test_attributes):
            runs = clauses.test_runs[begin:]
            offsets, tests = runs_take(runs, np.arange(len(clauses.test_attributes)), np.arange(count))
            rows = np.repeat(np.arange(count), np.diff(offsets))
            attributes = clauses.test_attributes[tests]
            columns = np.searchsorted(self.axes, attributes)
            flags = clauses.test_flags[tests]
            lows, highs = clauses.test_lows[tests], clauses.test_highs[tests]
            # An open end at infinity leaves nothing: an interval that every other one contains.
            nothing = (flags & LOW_OPEN > 0) & (lows == np.inf) | (flags & HIGH_OPEN > 0) & (highs == -np.inf)
            lows = np.where(flags & LOW_OPEN, np.nextafter(lows, np.inf), lows)
            highs = np.where(flags & HIGH_OPEN, np.nextafter(highs, -np.inf), highs)
            lows, highs = np.where(nothing, np.inf, lows), np.where(nothing, -np.inf, highs)
            np.minimum.at(points, (rows, 2 * columns), -lows)
            np.minimum.at(points, (rows, 2 * columns + 1), highs)
            np.bitwise_or.at(signs, rows, np.uint64(1) << columns.astype(np.uint64))
        self._points.extend(points)
        self._signs.extend(signs)


def attributes_of(clauses: Clauses, begin: int) -> NDArray[np.int32]:
    """Return the attributes that the clause rows from *begin* on test."""
    if not len(clauses.test_attributes):
        return clauses.test_attributes
    rows = np.arange(begin, len(clauses.boxes))
    return runs_take(clauses.test_runs, clauses.test_attributes, rows)[1]


def _axes(clauses: Clauses, begin: int) -> list[int]:
    """Return the axes that the clause rows from *begin* on constrain."""
    axes: list[int] = np.unique(attributes_of(clauses, begin)).tolist()
    everywhere = clauses.boxes[begin:] == [-np.inf, -np.inf, np.inf, np.inf]
    return axes if everywhere.all() else [X, Y, *axes]


@kernel
def dominates(points: NDArray[np.float64], signs: NDArray[np.uint64], a: int, b: int) -> Any:
    """Tell whether point *a* dominates point *b* (Definition 3): rectangle a contains rectangle b (Fact 1)."""
    for d in range(points.shape[1]):
        if points[a, d] < points[b, d]:
            return False
    return signs[a] & ~signs[b] == 0


@kernel
def covers_rightly(
    points: NDArray[np.float64], signs: NDArray[np.uint64], owners: NDArray[np.int32], a: int, b: int
) -> Any:
    """Tell whether rectangle *a* covers another one, *b*; of two that cover each other the older one does."""
    if a == b or not dominates(points, signs, a, b):
        return False
    return owners[a] < owners[b] or not dominates(points, signs, b, a)


@kernel
def rectangle_covers(index: Any, rows: Rows, a: int, b: int) -> Any:
    """Tell whether subscription *a* covers *b*."""
    one, other = first_clause(rows, a), first_clause(rows, b)
    return YES if dominates(index.points, index.signs, one, other) else NO


@kernel
def rounded(points: NDArray[np.float64], row: int, out: NDArray[np.float32]) -> None:
    """Write a point in single precision; the dimensions that pad it are infinite."""
    out[:] = np.inf
    for d in range(points.shape[1]):
        out[d] = points[row, d]
