"""Values on a common scale from 0 to 1, in equal shares: what partitions of attributes are laid out on.

A *scale* is a row of knots, quantiles of the values that clauses ask for; between two knots it is linear. Hot spots,
skewed prices and the codes of strings come out evenly spread. It never falls as the value grows, in floating point
too, so a value inside an interval stays inside, and what is beyond the knots clips to 0 or 1: a scale may be old, it
is never wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel

__all__ = ["X", "Y", "clause_ends", "position", "scale_of"]

X, Y = -2, -1  # the axes of a place, where attributes have their column numbers from 0 on


def scale_of(ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the knots of a scale for such values; infinite ones do not count."""
    finite = ends[np.isfinite(ends)]
    if not len(finite):
        finite = np.zeros(1)
    return np.quantile(finite, np.linspace(0, 1, config.SCALE_KNOTS + 1), method="inverted_cdf")


@kernel
def position(knots: NDArray[np.float64], scale: int, value: float) -> Any:
    """Return where a value stands on the given row of knots: 0 to 1."""
    last = knots.shape[1] - 1
    if not value >= knots[scale, 0]:
        return 0.0
    if value >= knots[scale, last]:
        return 1.0
    low, high = 0, last  # knots[low] <= value < knots[high]
    while high - low > 1:
        middle = (low + high) >> 1
        if knots[scale, middle] <= value:
            low = middle
        else:
            high = middle
    left, right = knots[scale, low], knots[scale, high]
    return (low + min((value - left) / (right - left), 1.0)) / last


@kernel
def clause_ends(
    source: int,
    c: int,
    boxes: NDArray[np.float64],
    test_offsets: NDArray[np.int64],
    attributes: NDArray[np.int32],
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    flags: NDArray[np.uint8],
) -> Any:
    """Return (tested, low, high) of clause *c* on an axis or attribute: what its tests agree on, ends included.

    A test that is negated asks for the attribute and excludes nothing here.
    """
    if source == X:
        return True, boxes[c, 0], boxes[c, 2]
    if source == Y:
        return True, boxes[c, 1], boxes[c, 3]
    tested, low, high = False, -np.inf, np.inf
    if attributes.size > 0:
        for t in range(test_offsets[c], test_offsets[c + 1]):
            if attributes[t] == source:
                tested = True
                if flags[t] & 4 == 0:
                    low, high = max(low, lows[t]), min(high, highs[t])
    return tested, low, max(low, high)  # tests that contradict each other: any place will do
