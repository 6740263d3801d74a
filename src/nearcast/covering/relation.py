"""Does one subscription cover another? Words, places and tests decide here; polygons are left to :mod:`.regions`.

Definition 1 of Shen, Tirthapura and Aluru, "Indexing for Subscription Covering in Publish-Subscribe Systems" (2005):
s1 covers s2 if every notification that matches s2 matches s1. The paper decides that for rectangles. Here a
subscription is any number of clauses, and clause a covers clause b if b cannot be satisfied without a: the keywords of
a are among those of b, and so are its forbidden words; the region of a contains that of b; and every test of a follows
from a test of b. Subscription a covers subscription b if each clause of b is covered by a clause of a.

This never claims too much, also where messages are areas. It misses a clause that only several others cover together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.covering.subscriptions import Subscriptions, first_clause, next_clause
from nearcast.kernels import kernel
from nearcast.kernels.sets import includes
from nearcast.kernels.sphere import great_circle
from nearcast.kernels.verify import HIGH_OPEN, LOW_OPEN, NEGATED, Clauses

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "NO",
    "UNDECIDED",
    "YES",
    "Content",
    "Regions",
    "clause_covers",
    "covers_by_age",
    "full_covers",
    "implied",
    "relation",
]

NO, YES, UNDECIDED = 0, 1, 2


class Regions(NamedTuple):
    """The circles and polygons within the boxes of some clause rows, as kernels see them."""

    # The number of the row's shape, -1 for a plain box; empty where all are plain boxes.
    shapes: NDArray[np.int32]
    circles: NDArray[np.float64]  # [s, 3]: x, y, radius; the radius is NaN where the shape is a polygon
    radius: float  # of the globe; 0 in the plane


class Content(NamedTuple):
    """What clauses ask for, as kernels see it."""

    clauses: Clauses
    regions: Regions


@kernel
def clause_covers(ours: Content, a: int, theirs: Content, b: int) -> Any:
    """Tell whether our clause *a* covers their clause *b*: YES, NO, or UNDECIDED where only polygons can tell."""
    outer, inner = ours.clauses, theirs.clauses
    if not (
        outer.boxes[a, 0] <= inner.boxes[b, 0]
        and outer.boxes[a, 1] <= inner.boxes[b, 1]
        and outer.boxes[a, 2] >= inner.boxes[b, 2]
        and outer.boxes[a, 3] >= inner.boxes[b, 3]
    ):
        return NO
    if not _among(outer.keyword_runs, outer.keywords, a, inner.keyword_runs, inner.keywords, b):
        return NO
    if not _among(outer.forbidden_runs, outer.forbidden, a, inner.forbidden_runs, inner.forbidden, b):
        return NO
    if not _tests_follow(outer, a, inner, b):
        return NO
    if ours.regions.shapes.size == 0 or ours.regions.shapes[a] < 0:
        return YES
    return _shape_covers(ours.regions, a, inner.boxes, theirs.regions, b)


@kernel
def relation(held: Subscriptions, a: int, asked: Subscriptions, b: int) -> Any:
    """Tell whether subscription *a* covers subscription *b*: each clause of b is covered by a clause of a.

    A subscription without clauses matches nothing. It covers nothing and nothing covers it.
    """
    answer, other = YES, first_clause(asked, b)
    if other < 0:
        return NO
    while other >= 0:
        best, one = NO, first_clause(held, a)
        while one >= 0 and best != YES:
            here = clause_covers(held.content, one, asked.content, other)
            if here != NO:
                best = here
            one = next_clause(held, one)
        if best == NO:
            return NO
        if best == UNDECIDED:
            answer = UNDECIDED
        other = next_clause(asked, other)
    return answer


@kernel
def covers_by_age(held: Subscriptions, other: int, asked: Subscriptions, subject: int) -> Any:
    """Tell whether *other* covers the *subject*; of two that cover each other only the older one does.

    Without that rule two equal subscriptions could each rely on the other, and neither would be forwarded.
    """
    if held.ages[other] == asked.ages[subject]:  # the subject itself
        return NO
    answer = relation(held, other, asked, subject)
    if answer != NO and held.ages[other] > asked.ages[subject]:
        back = relation(asked, subject, held, other)
        if back == UNDECIDED:
            return UNDECIDED
        if back == YES:
            return NO if answer == YES else UNDECIDED
    return answer


@kernel
def full_covers(held: Subscriptions, a: int, b: int) -> Any:
    """Tell whether subscription *a* covers subscription *b* of the same set."""
    return relation(held, a, held, b)


@kernel
def _among(
    runs: NDArray[np.int32],
    words: NDArray[np.int32],
    a: int,
    other_runs: NDArray[np.int32],
    others: NDArray[np.int32],
    b: int,
) -> Any:
    """Tell whether the words of clause *a* are among the others, those of clause *b*."""
    if words.size == 0 or runs[a, 0] == runs[a, 1]:
        return True
    return others.size > 0 and includes(
        others, other_runs[b, 0], other_runs[b, 1], words, runs[a, 0], runs[a, 1]
    )


@kernel
def _tests_follow(outer: Clauses, a: int, inner: Clauses, b: int) -> Any:
    """Tell whether each test of clause *a* follows from a test of clause *b* on the same attribute."""
    if outer.test_attributes.size == 0 or outer.test_runs[a, 0] == outer.test_runs[a, 1]:
        return True
    if inner.test_attributes.size == 0:
        return False
    for i in range(outer.test_runs[a, 0], outer.test_runs[a, 1]):
        follows = False
        for j in range(inner.test_runs[b, 0], inner.test_runs[b, 1]):
            if inner.test_attributes[j] == outer.test_attributes[i] and implied(
                outer.test_lows[i],
                outer.test_highs[i],
                outer.test_flags[i],
                inner.test_lows[j],
                inner.test_highs[j],
                inner.test_flags[j],
            ):
                follows = True
                break
        if not follows:
            return False
    return True


@kernel
def implied(low: float, high: float, flags: int, its_low: float, its_high: float, its: int) -> Any:
    """Tell whether a test (*low*, *high*, *flags*) holds for every value that satisfies another test."""
    if flags & NEGATED:
        if its & NEGATED:  # the other test keeps out at least as much
            return _within(its_low, its_high, its, low, high, flags)
        below = its_high < low or (its_high == low and (its & HIGH_OPEN or flags & LOW_OPEN))
        above = its_low > high or (its_low == high and (its & LOW_OPEN or flags & HIGH_OPEN))
        return bool(below or above)
    if its & NEGATED:  # only the presence of the attribute is known
        return low == -np.inf and high == np.inf and not flags & (LOW_OPEN | HIGH_OPEN)
    return _within(low, high, flags, its_low, its_high, its)


@kernel
def _within(low: float, high: float, flags: int, its_low: float, its_high: float, its: int) -> Any:
    """Tell whether an interval contains another one."""
    below = low < its_low or (low == its_low and (not flags & LOW_OPEN or its & LOW_OPEN))
    above = high > its_high or (high == its_high and (not flags & HIGH_OPEN or its & HIGH_OPEN))
    return bool(below and above)


@kernel
def _shape_covers(ours: Regions, a: int, boxes: NDArray[np.float64], theirs: Regions, b: int) -> Any:
    """Tell whether the shape of our clause *a* contains the region of their clause *b*, whose box lies in our box."""
    mine = ours.shapes[a]
    other = -1 if theirs.shapes.size == 0 else theirs.shapes[b]
    globe = ours.radius
    if np.isnan(ours.circles[mine, 2]):
        return UNDECIDED
    x, y, radius = ours.circles[mine, 0], ours.circles[mine, 1], ours.circles[mine, 2]
    if other >= 0 and not np.isnan(theirs.circles[other, 2]):
        if theirs.circles[other, 0] == x and theirs.circles[other, 1] == y:
            return YES if theirs.circles[other, 2] <= radius else NO
        apart = _distance(x, y, theirs.circles[other, 0], theirs.circles[other, 1], globe)
        return _inside(apart + theirs.circles[other, 2], radius, x, y, globe)
    if other >= 0 and globe == 0.0:
        return UNDECIDED  # a polygon may reach less far than the corners of its box
    # The farthest point of a box is a corner. On the globe that holds within a quarter of it to each side.
    west, south, east, north = boxes[b, 0], boxes[b, 1], boxes[b, 2], boxes[b, 3]
    if globe > 0.0:
        if east - west > 180.0:
            return NO
        west, east = (west - x + 540.0) % 360.0 - 180.0, (east - x + 540.0) % 360.0 - 180.0
        if not -90.0 <= west <= east <= 90.0:
            return NO
        west, east = west + x, east + x
    farthest = 0.0
    for corner_x in (west, east):
        for corner_y in (south, north):
            farthest = max(farthest, _distance(x, y, corner_x, corner_y, globe))
    return _inside(farthest, radius, x, y, globe)


@kernel
def _inside(reach: float, radius: float, x: float, y: float, globe: float) -> Any:
    """Tell whether a reach lies within a radius in spite of rounding.

    On the globe that is denied to radii beyond that of the Earth: distances near the antipode err too much.
    """
    if globe > 0.0:
        safe = radius < globe and reach + config.COVERING_PAD_M <= radius
    else:
        safe = reach + config.CIRCLE_PAD * (abs(x) + abs(y) + radius) <= radius
    return YES if safe else NO


@kernel
def _distance(x: float, y: float, other_x: float, other_y: float, globe: float) -> Any:
    if globe == 0.0:
        return math.sqrt((x - other_x) * (x - other_x) + (y - other_y) * (y - other_y))
    return great_circle(x, y, other_x, other_y)
