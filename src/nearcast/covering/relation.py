"""Does one clause cover another? Words, places and tests decide here; polygons are left to :mod:`.regions`.

Clause a covers clause b when b cannot be satisfied without a: the keywords of a are among those of b, so are the
forbidden ones, the region of a contains that of b, and every test of a follows from a test of b. That is sound for any
message, also for one that is an area; nothing is said about clauses that only together leave no room.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.covering.operations import Rows, first_clause, next_clause
from nearcast.kernels import kernel
from nearcast.kernels.sets import includes
from nearcast.kernels.sphere import great_circle
from nearcast.kernels.verify import HIGH_OPEN, LOW_OPEN, NEGATED, Clauses

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NO", "UNDECIDED", "YES", "Regions", "clause_covers", "implied", "judge", "relation"]

NO, YES, UNDECIDED = 0, 1, 2


class Regions(NamedTuple):
    """What the boxes of some clause rows only contain, as kernels see it; *shapes* is empty where no row has one."""

    shapes: NDArray[np.int32]  # the number of the row's shape, -1 where the box says all
    circles: NDArray[np.float64]  # [s, 3]: x, y, radius; the radius is NaN where the shape is a polygon
    radius: float  # of the globe; 0 in the plane


@kernel
def clause_covers(clauses: Clauses, regions: Regions, a: int, b: int) -> Any:
    """Tell whether clause *a* covers clause *b*: YES, NO, or UNDECIDED where only their polygons can tell."""
    boxes, keyword_runs, keywords, forbidden_runs, forbidden, test_runs = clauses[:6]
    if not (
        boxes[a, 0] <= boxes[b, 0]
        and boxes[a, 1] <= boxes[b, 1]
        and boxes[a, 2] >= boxes[b, 2]
        and boxes[a, 3] >= boxes[b, 3]
    ):
        return NO
    if not includes(
        keywords,
        keyword_runs[b, 0],
        keyword_runs[b, 1],
        keywords,
        keyword_runs[a, 0],
        keyword_runs[a, 1],
    ):
        return NO
    if forbidden.size > 0 and not includes(
        forbidden,
        forbidden_runs[b, 0],
        forbidden_runs[b, 1],
        forbidden,
        forbidden_runs[a, 0],
        forbidden_runs[a, 1],
    ):
        return NO
    if clauses.test_attributes.size > 0 and not _tests_follow(clauses, test_runs, a, b):
        return NO
    if regions.shapes.size == 0 or regions.shapes[a] < 0:
        return YES
    return _shape_covers(boxes, regions, a, b)


@kernel
def relation(clauses: Clauses, regions: Regions, rows: Rows, a: int, b: int) -> Any:
    """Tell whether subscription *a* covers *b*: each clause of b is covered by one of a.

    One without clauses, which matches nothing, covers nothing and is covered by nothing.
    """
    answer, other = YES, first_clause(rows, b)
    if other < 0:
        return NO
    while other >= 0:
        best, one = NO, first_clause(rows, a)
        while one >= 0 and best != YES:
            here = clause_covers(clauses, regions, one, other)
            if here != NO:
                best = here
            one = next_clause(rows, one)
        if best == NO:
            return NO
        if best == UNDECIDED:
            answer = UNDECIDED
        other = next_clause(rows, other)
    return answer


@kernel
def judge(clauses: Clauses, regions: Regions, rows: Rows, other: int, subject: int) -> Any:
    """Tell whether subscription *other* covers the *subject*, and is not covered by it and younger."""
    answer = relation(clauses, regions, rows, other, subject)
    if answer != NO and other > subject:
        back = relation(clauses, regions, rows, subject, other)
        if back == UNDECIDED:
            return UNDECIDED
        if back == YES:
            # Of two that cover each other the older one does.
            return NO if answer == YES else UNDECIDED
    return answer


@kernel
def _tests_follow(clauses: Clauses, runs: NDArray[np.int32], a: int, b: int) -> Any:
    """Tell whether each test of clause *a* follows from a test of clause *b* on the same attribute."""
    attributes, lows, highs, flags = clauses[6:]
    for i in range(runs[a, 0], runs[a, 1]):
        follows = False
        for j in range(runs[b, 0], runs[b, 1]):
            if attributes[j] == attributes[i] and implied(
                lows[i], highs[i], flags[i], lows[j], highs[j], flags[j]
            ):
                follows = True
                break
        if not follows:
            return False
    return True


@kernel
def implied(low: float, high: float, flags: int, its_low: float, its_high: float, its: int) -> Any:
    """Tell whether a test (*low*, *high*, *flags*) holds for every value that satisfies another one."""
    if flags & NEGATED:
        if its & NEGATED:  # it keeps out at least as much
            return _within(its_low, its_high, its, low, high, flags)
        below = its_high < low or (its_high == low and (its & HIGH_OPEN or flags & LOW_OPEN))
        above = its_low > high or (its_low == high and (its & LOW_OPEN or flags & HIGH_OPEN))
        return bool(below or above)
    if its & NEGATED:  # only the presence of the attribute is known
        return low == -np.inf and high == np.inf and not flags & (LOW_OPEN | HIGH_OPEN)
    return _within(low, high, flags, its_low, its_high, its)


@kernel
def _within(low: float, high: float, flags: int, its_low: float, its_high: float, its: int) -> Any:
    """Tell whether an interval contains another one, by their ends."""
    below = low < its_low or (low == its_low and (not flags & LOW_OPEN or its & LOW_OPEN))
    above = high > its_high or (high == its_high and (not flags & HIGH_OPEN or its & HIGH_OPEN))
    return bool(below and above)


@kernel
def _shape_covers(boxes: NDArray[np.float64], regions: Regions, a: int, b: int) -> Any:
    """Tell whether the shape of clause *a* contains the region of clause *b*, whose box its own box contains."""
    mine, other = regions.shapes[a], regions.shapes[b]
    circles, globe = regions.circles, regions.radius
    if np.isnan(circles[mine, 2]):
        return UNDECIDED
    x, y, radius = circles[mine, 0], circles[mine, 1], circles[mine, 2]
    if other >= 0 and not np.isnan(circles[other, 2]):
        if circles[other, 0] == x and circles[other, 1] == y:
            return YES if circles[other, 2] <= radius else NO
        apart = _distance(x, y, circles[other, 0], circles[other, 1], globe)
        return _inside(apart + circles[other, 2], radius, x, y, globe)
    if other >= 0 and globe == 0.0:
        return UNDECIDED  # the corners of a polygon may reach less far than those of its box
    # On each parallel the point farthest from the centre is an end, on each meridian too, up to a quarter of the globe.
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
    """Tell whether a reach lies within a radius, whatever rounding does to either; near the antipode nothing does."""
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
