"""The decision: does this probe satisfy this clause? This is the one place that says so in compiled code.

A *clause row* is one conjunction with one box; a *probe row* is one message with one box. Either side may be the one
that is stored: :func:`keep_satisfied` decides many clauses for one probe, :func:`keep_satisfying` many probes for one
clause. Boxes are float64 and decide exactly; circles and polygons, which are only bounded by their boxes, are decided
after the search (``matching/refine.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.sets import find, includes, meets

__all__ = [
    "HIGH_OPEN",
    "LOW_OPEN",
    "NEGATED",
    "Clauses",
    "Probes",
    "StoredProbes",
    "boxes_touch",
    "find_value",
    "keep_satisfied",
    "keep_satisfying",
    "keep_valid",
    "test_holds",
]

# Flags of a test on an attribute; none set means low <= value <= high.
LOW_OPEN = 1
HIGH_OPEN = 2
NEGATED = 4


class Clauses(NamedTuple):
    """Clause rows as flat arrays.

    The values of a ragged column are in one array, and its *runs* say where those of each row begin and end there.
    Runs may be in any order, with gaps, because rows come and go in place.
    """

    boxes: NDArray[np.float64]  # [n, 4]: xmin, ymin, xmax, ymax
    keyword_runs: NDArray[np.int32]  # [n, 2]
    keywords: NDArray[np.int32]  # ascending in a row: all must be there
    forbidden_runs: NDArray[np.int32]  # [n, 2]; empty while no clause has forbidden words
    forbidden: NDArray[np.int32]  # ascending in a row: none may be there
    test_runs: NDArray[np.int32]  # [n, 2]; empty while no clause has tests
    test_attributes: NDArray[np.int32]
    test_lows: NDArray[np.float64]
    test_highs: NDArray[np.float64]
    test_flags: NDArray[np.uint8]


class Probes(NamedTuple):
    """Probe rows of a batch as flat arrays; in ragged columns row i has the values offsets[i] to offsets[i + 1]."""

    boxes: NDArray[np.float64]  # [n, 4]; a point is a box without extent
    keyword_offsets: NDArray[np.int64]
    keywords: NDArray[np.int32]  # ascending in a row
    value_offsets: NDArray[np.int64]  # values are ragged, because most messages lack most attributes
    value_attributes: NDArray[np.int32]  # ascending in a row
    values: NDArray[np.float64]  # no NaN


class StoredProbes(NamedTuple):
    """Probe rows of stored messages as flat arrays: the columns of :class:`Probes`, in runs, and when each expires."""

    boxes: NDArray[np.float64]
    keyword_runs: NDArray[np.int32]  # [n, 2], as in Clauses
    keywords: NDArray[np.int32]
    value_runs: NDArray[np.int32]
    value_attributes: NDArray[np.int32]
    values: NDArray[np.float64]
    expires: NDArray[np.int64]  # microseconds; valid before that instant


@kernel
def boxes_touch(a: NDArray[np.float64], i: int, b: NDArray[np.float64], j: int) -> Any:
    """Tell whether box a[i] and box b[j] share a point; boundaries belong to both."""
    return a[i, 0] <= b[j, 2] and a[i, 2] >= b[j, 0] and a[i, 1] <= b[j, 3] and a[i, 3] >= b[j, 1]


@kernel
def find_value(attributes: NDArray[np.int32], start: int, stop: int, attribute: int) -> int:
    """Return the position of an attribute in attributes[start:stop], which is ascending; -1 if it is not there.

    Its distance from the start is at most its number, and exactly that if the row has all attributes.
    """
    at = min(start + attribute, stop - 1)
    if at < start or attributes[at] < attribute:
        return -1
    if attributes[at] == attribute:
        return at
    return find(attributes, start, at, attribute)


@kernel
def test_holds(value: float, low: float, high: float, flags: int) -> bool:
    """Tell whether a test holds for a value; an attribute that is absent satisfies no test, negated or not."""
    above = value > low or (value == low and not flags & LOW_OPEN)
    below = value < high or (value == high and not flags & HIGH_OPEN)
    return (above and below) == (flags & NEGATED == 0)


@kernel
def keep_satisfied(
    clauses: Clauses, probes: Probes, p: int, rows: NDArray[np.int32], first: int, last: int
) -> int:
    """Keep, in place, those of the candidates rows[first:last] that probe *p* satisfies; return the new end.

    Words decide first, then the box, then the tests: an index prunes by boxes, so words refuse most of the remaining
    candidates. The arrays are taken out of their tuples once, because access to a tuple inside the loop would count
    references.
    """
    boxes, keyword_runs, keywords, forbidden_runs, forbidden, test_runs = clauses[:6]
    attributes, lows, highs, flags = clauses[6:]
    probe_boxes, probe_offsets, probe_keywords, value_offsets, value_attributes, values = probes
    start, stop = probe_offsets[p], probe_offsets[p + 1]
    first_value, last_value = value_offsets[p], value_offsets[p + 1]
    any_forbidden, any_tests = forbidden.size > 0, attributes.size > 0
    kept = first
    for i in range(first, last):
        c = rows[i]
        if not includes(probe_keywords, start, stop, keywords, keyword_runs[c, 0], keyword_runs[c, 1]):
            continue
        if not boxes_touch(boxes, c, probe_boxes, p):
            continue
        if any_forbidden and meets(
            probe_keywords, start, stop, forbidden, forbidden_runs[c, 0], forbidden_runs[c, 1]
        ):
            continue
        holds = True
        if any_tests:
            for t in range(test_runs[c, 0], test_runs[c, 1]):
                at = find_value(value_attributes, first_value, last_value, attributes[t])
                if at < 0 or not test_holds(values[at], lows[t], highs[t], flags[t]):
                    holds = False
                    break
        if holds:
            rows[kept] = c
            kept += 1
    return kept


@kernel
def keep_satisfying(
    stored: StoredProbes, clauses: Clauses, c: int, rows: NDArray[np.int32], first: int, last: int
) -> int:
    """Keep, in place, those stored probes of the candidates rows[first:last] that satisfy clause *c*.

    Returns the new end. This is the mirror image of :func:`keep_satisfied`. It does not look at the time; for that, see
    :func:`keep_valid`.
    """
    boxes, keyword_runs, keywords, value_runs, value_attributes, values, _ = stored
    clause_boxes, need_runs, needed, forbidden_runs, forbidden, test_runs = clauses[:6]
    attributes, lows, highs, flags = clauses[6:]
    start, stop = need_runs[c, 0], need_runs[c, 1]
    no_start = no_stop = test_start = test_stop = 0
    if forbidden.size > 0:
        no_start, no_stop = forbidden_runs[c, 0], forbidden_runs[c, 1]
    if attributes.size > 0:
        test_start, test_stop = test_runs[c, 0], test_runs[c, 1]
    kept = first
    for i in range(first, last):
        p = rows[i]
        if not boxes_touch(clause_boxes, c, boxes, p):
            continue
        if start < stop and not includes(
            keywords, keyword_runs[p, 0], keyword_runs[p, 1], needed, start, stop
        ):
            continue
        if no_start < no_stop and meets(
            keywords, keyword_runs[p, 0], keyword_runs[p, 1], forbidden, no_start, no_stop
        ):
            continue
        holds = True
        for t in range(test_start, test_stop):
            at = find_value(value_attributes, value_runs[p, 0], value_runs[p, 1], attributes[t])
            if at < 0 or not test_holds(values[at], lows[t], highs[t], flags[t]):
                holds = False
                break
        if holds:
            rows[kept] = p
            kept += 1
    return kept


@kernel
def keep_valid(
    expires: NDArray[np.int64],
    now: int,
    rows: NDArray[np.int32],
    first: int,
    last: int,
    expired: NDArray[np.int32],
) -> int:
    """Keep, in place, those of the probe rows rows[first:last] that are valid at *now*; return the new end.

    The others are noted in *expired*, which begins with the number of its entries; those that do not fit are left out.
    """
    kept = first
    for i in range(first, last):
        p = rows[i]
        if expires[p] > now:
            rows[kept] = p
            kept += 1
        elif expired[0] + 1 < expired.size:
            expired[0] += 1
            expired[expired[0]] = p
    return kept
