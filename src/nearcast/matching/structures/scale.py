"""Scales: map values to positions from 0 to 1 that are evenly spread, so that attributes can be cut into cells.

A *scale* belongs to an axis of the place or to an attribute. It is a row of knots, which are quantiles of the values
that clauses ask for or that messages have, and it is linear between two knots. So hot spots, skewed prices and the
codes of strings are spread evenly. The position never falls as the value grows, not even by rounding, so a value inside
an interval stays inside. Values beyond the knots are clipped to 0 or 1. An old scale may be uneven, but never wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.verify import NEGATED, Clauses

__all__ = [
    "ABSENT",
    "Scales",
    "X",
    "Y",
    "box_positions",
    "clause_positions",
    "knots_of",
    "most_tested",
    "position",
    "probe_positions",
    "scales_of",
    "source_name",
    "tests_of",
]

X, Y = -2, -1  # the axes of the place; attributes are numbered from 0
ABSENT = -1.0  # the position where an attribute is not tested, or has no value
_HALVINGS = config.SCALE_KNOT_BITS
_KNOTS = 1 << _HALVINGS


class Scales(NamedTuple):
    """The scales of some axes and attributes."""

    sources: NDArray[np.int32]
    knots: NDArray[np.float64]  # a row for each scale
    slopes: NDArray[np.float64]  # how fast the scale rises after each knot but the last, in knots
    numbers: NDArray[np.int32]  # by source - X: the number of its scale, or -1 if it has none


def scales_of(sources: Sequence[int], knots: Sequence[NDArray[np.float64]]) -> Scales:
    """Return the scales of the given sources."""
    numbers = np.full(max(sources, default=Y) - X + 1, -1, np.int32)
    numbers[np.array(sources, np.int64) - X] = np.arange(len(sources))
    rows = np.array(knots).reshape(len(sources), _KNOTS + 1)
    with np.errstate(divide="ignore", over="ignore"):
        slopes = np.minimum(1 / np.diff(rows, axis=1), np.finfo(np.float64).max)
    return Scales(np.array(sources, np.int32), rows, slopes, numbers)


def knots_of(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the knots of a scale for the given values; infinite ones do not count."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        finite = np.zeros(1)
    ordered = np.sort(finite)
    below = np.arange(_KNOTS + 1) * len(ordered)  # in units of 1 / _KNOTS of a value
    knots: NDArray[np.float64] = ordered[np.maximum(-(-below // _KNOTS) - 1, 0)]
    return knots


def tests_of(clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of the tests of clause rows."""
    if not len(clauses.test_attributes):
        return np.empty(0, np.int64)
    starts, stops = clauses.test_runs[rows, 0], clauses.test_runs[rows, 1]
    counts = stops - starts
    return np.repeat(stops - np.cumsum(counts), counts) + np.arange(counts.sum())


def most_tested(clauses: Clauses, rows: NDArray[np.int64], most: int) -> list[int]:
    """Return at most *most* of the attributes that clause rows test, the most tested ones first."""
    counts = np.bincount(clauses.test_attributes[tests_of(clauses, rows)], minlength=1)
    order = np.argsort(-counts, kind="stable")[:most]
    popular: list[int] = order[counts[order] > 0].tolist()
    return popular


def source_name(source: int, names: Any) -> str:
    """Return the name of an axis or attribute; *names* are those of the attributes, or None."""
    if source in (X, Y):
        return "x" if source == X else "y"
    return str(source) if names is None else str(list(names)[source][0])


@kernel
def position(knots: NDArray[np.float64], slopes: NDArray[np.float64], scale: int, value: float) -> Any:
    """Return the position of a value on a scale, from 0 to 1."""
    if not value >= knots[scale, 0]:
        return 0.0
    if value >= knots[scale, _KNOTS]:
        return 1.0
    low = 0  # knots[low] <= value; the binary search has no branches, which could not be predicted
    for halving in range(_HALVINGS):
        half = _KNOTS >> (halving + 1)
        low += half * (knots[scale, low + half] <= value)
    return (low + min((value - knots[scale, low]) * slopes[scale, low], 1.0)) / _KNOTS


@kernel
def box_positions(
    knots: NDArray[np.float64],
    slopes: NDArray[np.float64],
    numbers: NDArray[np.int32],
    row: int,
    boxes: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Write the ends of a box on the scales of the axes, if the axes have any, to *out* [scales, 2]."""
    for axis in range(2):
        scale = numbers[axis]
        if scale >= 0:
            out[scale, 0] = position(knots, slopes, scale, boxes[row, axis])
            out[scale, 1] = position(knots, slopes, scale, boxes[row, axis + 2])


@kernel
def clause_positions(
    knots: NDArray[np.float64],
    slopes: NDArray[np.float64],
    numbers: NDArray[np.int32],
    c: int,
    boxes: NDArray[np.float64],
    test_runs: NDArray[np.int32],
    attributes: NDArray[np.int32],
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    flags: NDArray[np.uint8],
    out: NDArray[np.float64],
) -> None:
    """Write the interval of clause *c* on each scale to *out* [scales, 2], or ABSENT where it has no test.

    Several tests of an attribute are intersected. A negated test requires the attribute but excludes no value.
    """
    for scale in range(knots.shape[0]):
        out[scale, 0] = ABSENT
    box_positions(knots, slopes, numbers, c, boxes, out)
    if attributes.size == 0:
        return
    for t in range(test_runs[c, 0], test_runs[c, 1]):
        scale = numbers[attributes[t] - X] if attributes[t] - X < numbers.size else -1
        if scale < 0:
            continue
        low, high = 0.0, 1.0
        if flags[t] & NEGATED == 0:
            low, high = position(knots, slopes, scale, lows[t]), position(knots, slopes, scale, highs[t])
        if out[scale, 0] != ABSENT:
            low = max(low, out[scale, 0])
            high = max(low, min(high, out[scale, 1]))  # if tests contradict each other, any position will do
        out[scale, 0], out[scale, 1] = low, high


@kernel
def probe_positions(
    knots: NDArray[np.float64],
    slopes: NDArray[np.float64],
    numbers: NDArray[np.int32],
    p: int,
    boxes: NDArray[np.float64],
    first: int,
    last: int,
    attributes: NDArray[np.int32],
    values: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Write the interval of a message on each scale to *out* [scales, 2], or ABSENT where it lacks the value.

    Its place is ``boxes[p]``, and its values are values[first:last].
    """
    for scale in range(knots.shape[0]):
        out[scale, 0] = ABSENT
    box_positions(knots, slopes, numbers, p, boxes, out)
    for at in range(first, last):
        scale = numbers[attributes[at] - X] if attributes[at] - X < numbers.size else -1
        if scale >= 0:
            out[scale, 0] = out[scale, 1] = position(knots, slopes, scale, values[at])
