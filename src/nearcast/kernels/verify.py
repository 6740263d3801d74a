"""The decision: does this probe satisfy this clause? The one place that says so, compiled.

A *clause row* is one conjunction with one box; a *probe row* is one message with one box. Boxes are float64 and decide exactly; circles and
polygons, which their boxes only contain, are settled after the index (``matching/refine.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.sets import includes, meets

__all__ = [
    "HIGH_OPEN",
    "LOW_OPEN",
    "NEGATED",
    "Clauses",
    "Probes",
    "boxes_touch",
    "satisfies",
    "tests_hold",
    "words_hold",
]

# Flags of a test on an attribute; none set means low <= value <= high.
LOW_OPEN = 1
HIGH_OPEN = 2
NEGATED = 4


class Clauses(NamedTuple):
    """Clause rows as flat arrays; ragged columns are CSR (offsets, values)."""

    boxes: NDArray[np.float64]  # [n, 4]: xmin, ymin, xmax, ymax
    keyword_offsets: NDArray[np.int64]
    keywords: NDArray[np.int32]  # ascending in a row: all must be there
    forbidden_offsets: NDArray[np.int64]
    forbidden: NDArray[np.int32]  # ascending in a row: none may be there
    test_offsets: NDArray[np.int64]
    test_attributes: NDArray[np.int32]
    test_lows: NDArray[np.float64]
    test_highs: NDArray[np.float64]
    test_flags: NDArray[np.uint8]


class Probes(NamedTuple):
    """Probe rows as flat arrays."""

    boxes: NDArray[np.float64]  # [n, 4]; a point is a box without extent
    keyword_offsets: NDArray[np.int64]
    keywords: NDArray[np.int32]  # ascending in a row
    attributes: NDArray[np.float64]  # [n, A], NaN where absent


@kernel
def boxes_touch(a: NDArray[np.float64], i: int, b: NDArray[np.float64], j: int) -> Any:
    """Tell whether box a[i] and box b[j] share a point; boundaries belong to both."""
    return a[i, 0] <= b[j, 2] and a[i, 2] >= b[j, 0] and a[i, 1] <= b[j, 3] and a[i, 3] >= b[j, 1]


@kernel
def tests_hold(clauses: Clauses, c: int, probes: Probes, p: int) -> bool:
    """Tell whether every test of clause *c* holds; an absent attribute (NaN) satisfies no test, negated or not."""
    for i in range(clauses.test_offsets[c], clauses.test_offsets[c + 1]):
        attribute = clauses.test_attributes[i]
        if attribute >= probes.attributes.shape[1]:
            return False
        value = probes.attributes[p, attribute]
        if np.isnan(value):
            return False
        flags = clauses.test_flags[i]
        low, high = clauses.test_lows[i], clauses.test_highs[i]
        above = value > low or (value == low and not flags & LOW_OPEN)
        below = value < high or (value == high and not flags & HIGH_OPEN)
        if (above and below) == (flags & NEGATED != 0):
            return False
    return True


@kernel
def words_hold(clauses: Clauses, c: int, probes: Probes, p: int) -> bool:
    """Tell whether the probe has all keywords of clause *c* and none of its forbidden ones."""
    start, stop = probes.keyword_offsets[p], probes.keyword_offsets[p + 1]
    first, last = clauses.keyword_offsets[c], clauses.keyword_offsets[c + 1]
    if not includes(probes.keywords, start, stop, clauses.keywords, first, last):
        return False
    first, last = clauses.forbidden_offsets[c], clauses.forbidden_offsets[c + 1]
    return first == last or not meets(probes.keywords, start, stop, clauses.forbidden, first, last)


@kernel
def satisfies(clauses: Clauses, c: int, probes: Probes, p: int) -> bool:
    """Tell whether probe *p* satisfies clause *c*: words, box, tests."""
    return (
        words_hold(clauses, c, probes, p)
        and boxes_touch(clauses.boxes, c, probes.boxes, p)
        and tests_hold(clauses, c, probes, p)
    )
