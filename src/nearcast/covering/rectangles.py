"""Rectangles as points, so that containment becomes dominance.

Section IV.A of Shen, Tirthapura and Aluru, "Indexing for Subscription Covering in Publish-Subscribe Systems" (2005): a
rectangle ([l1, r1], [l2, r2], …) becomes the point (-l1, r1, -l2, r2, …), and one rectangle contains another if and
only if its point dominates the other's (Fact 1).

The axes are x and y, if any subscription has a box, and the attributes that any of them tests. A subscription that
leaves an axis open is infinite at both ends of it. It does not even need the attribute to be there, unlike a test that
every value satisfies, so a bit for each axis says whether the subscription constrains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns.ragged import runs_take
from nearcast.covering.growing import GrowingArrays
from nearcast.covering.relation import NO, YES
from nearcast.covering.subscriptions import Subscriptions, first_clause
from nearcast.errors import InputError
from nearcast.kernels import kernel
from nearcast.kernels.verify import HIGH_OPEN, LOW_OPEN, NEGATED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import SubscriptionTable
    from nearcast.kernels.verify import Clauses

__all__ = [
    "Corners",
    "Rectangles",
    "attributes_of",
    "rectangle_covers",
    "rectangle_covers_by_age",
    "refusal",
    "rounded",
]

X, Y = -2, -1  # the axes that are not attributes
MOST_AXES = 64  # bits of a sign


class Corners(NamedTuple):
    """The points of rectangles, by clause row, as kernels see them."""

    points: NDArray[np.float64]  # [n, 2 * axes]: -low and high on each axis
    signs: NDArray[np.uint64]  # a bit for each axis that the rectangle constrains


def refusal(table: SubscriptionTable) -> str | None:
    """Say why an index of rectangles cannot hold a table, or return None if it can."""
    clauses = table.clauses
    if len(clauses.keywords) or len(clauses.forbidden):
        return "keywords"
    if table.shapes:
        return "circles or polygons"
    if len(table.owners) > table.size or len(np.unique(table.owners)) < len(table.owners):
        return "several clauses"
    if len(table.owners) < table.size:
        return "no clause at all"
    if (clauses.test_flags & NEGATED).any():
        return "negated tests"
    return None


class Rectangles:
    """Clause rows as points of two dimensions for each axis."""

    def __init__(self) -> None:
        self.axes: list[int] = []
        self._empty()

    @property
    def corners(self) -> Corners:
        """The points of all clause rows; those of free rows mean nothing."""
        return Corners(self._arrays["points"], self._arrays["signs"])

    def fits(self, clauses: Clauses, rows: NDArray[np.int64]) -> bool:
        """Tell whether the given clause rows constrain only axes that there are."""
        return set(_axes(clauses, rows)) <= set(self.axes)

    def check(self, clauses: Clauses) -> None:
        """Raise if the clauses would bring too many axes."""
        count = len({*self.axes, *_axes(clauses, np.arange(len(clauses.boxes)))})
        if count > MOST_AXES:
            raise InputError(f"an index of rectangles has at most {MOST_AXES} axes, not {count}")

    def load(self, clauses: Clauses, rows: NDArray[np.int64]) -> None:
        """Begin anew with the given clause rows, on all axes that were or are used."""
        self.axes = sorted({*self.axes, *_axes(clauses, rows)})
        self._empty()
        self.put(clauses, rows)

    def put(self, clauses: Clauses, rows: NDArray[np.int64]) -> None:
        """Write the points of the given clause rows."""
        points, signs = self.corners_of(clauses, rows)
        self._arrays.reach("points", len(clauses.boxes))[rows] = points
        self._arrays.reach("signs", len(clauses.boxes))[rows] = signs

    def corners_of(self, clauses: Clauses, rows: NDArray[np.int64]) -> Corners:
        """Return the points of the given clause rows, one after the other, on the axes that there are.

        An axis that is not there is left out: no subscription of the index constrains it.
        """
        points = np.full((len(rows), 2 * len(self.axes)), np.inf)
        signs = np.zeros(len(rows), np.uint64)
        place = {axis: i for i, axis in enumerate(self.axes)}
        for axis, low, high in ((X, 0, 2), (Y, 1, 3)):
            if axis in place:
                points[:, 2 * place[axis]] = -clauses.boxes[rows, low]
                points[:, 2 * place[axis] + 1] = clauses.boxes[rows, high]
        if len(clauses.test_attributes):
            offsets, tests = runs_take(clauses.test_runs, np.arange(len(clauses.test_attributes)), rows)
            owners = np.repeat(np.arange(len(rows)), np.diff(offsets))
            known = np.isin(clauses.test_attributes[tests], self.axes)
            tests, owners = tests[known], owners[known]
            columns = np.searchsorted(self.axes, clauses.test_attributes[tests])
            flags = clauses.test_flags[tests]
            lows, highs = clauses.test_lows[tests], clauses.test_highs[tests]
            # An open end at infinity leaves nothing: an interval that every other one contains.
            nothing = (flags & LOW_OPEN > 0) & (lows == np.inf) | (flags & HIGH_OPEN > 0) & (highs == -np.inf)
            lows = np.where(flags & LOW_OPEN, np.nextafter(lows, np.inf), lows)
            highs = np.where(flags & HIGH_OPEN, np.nextafter(highs, -np.inf), highs)
            lows, highs = np.where(nothing, np.inf, lows), np.where(nothing, -np.inf, highs)
            np.minimum.at(points, (owners, 2 * columns), -lows)
            np.minimum.at(points, (owners, 2 * columns + 1), highs)
            np.bitwise_or.at(signs, owners, np.uint64(1) << columns.astype(np.uint64))
        return Corners(points, signs)

    def _empty(self) -> None:
        self._arrays = GrowingArrays(points=np.empty((0, 2 * len(self.axes))), signs=np.empty(0, np.uint64))


def attributes_of(clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the attributes that the given clause rows test."""
    if not len(clauses.test_attributes):
        return clauses.test_attributes
    return runs_take(clauses.test_runs, clauses.test_attributes, rows)[1]


def _axes(clauses: Clauses, rows: NDArray[np.int64]) -> list[int]:
    """Return the axes that the given clause rows constrain."""
    axes: list[int] = np.unique(attributes_of(clauses, rows)).tolist()
    everywhere = clauses.boxes[rows] == [-np.inf, -np.inf, np.inf, np.inf]
    return axes if everywhere.all() else [X, Y, *axes]


@kernel
def _dominates(ours: Corners, a: int, theirs: Corners, b: int) -> Any:
    """Tell whether our point *a* dominates their point *b* (Definition 3)."""
    for d in range(ours.points.shape[1]):
        if ours.points[a, d] < theirs.points[b, d]:
            return False
    return ours.signs[a] & ~theirs.signs[b] == 0


@kernel
def rectangle_covers_by_age(
    held: Subscriptions, clause: int, asked: Subscriptions, subject: int, its_clause: int
) -> Any:
    """Tell whether a rectangle covers the *subject*; of two that cover each other only the older one does."""
    if not _dominates(held.content, clause, asked.content, its_clause):
        return False
    age, its_age = held.ages[held.owners[clause]], asked.ages[subject]
    return age < its_age or (
        age > its_age and not _dominates(asked.content, its_clause, held.content, clause)
    )


@kernel
def rectangle_covers(held: Subscriptions, a: int, b: int) -> Any:
    """Tell whether subscription *a* covers subscription *b* of the same set."""
    one, other = first_clause(held, a), first_clause(held, b)
    return YES if _dominates(held.content, one, held.content, other) else NO


@kernel
def rounded(corners: Corners, clause: int, out: NDArray[np.float32]) -> None:
    """Write a point in single precision; the dimensions that pad it are infinite."""
    out[:] = np.inf
    for d in range(corners.points.shape[1]):
        out[d] = corners.points[clause, d]
