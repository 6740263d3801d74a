"""The layers of an MO-Tree's directory: multi-level overlapping cells for intervals, section 4.3 of its paper.

A layer belongs to an axis of the place or to an attribute. On each level its domain, normalised by the attribute's
scale, is cut into cells that overlap; an interval belongs to the smallest cell that contains it, on one level to the
one whose centre is nearest. The topmost level is one cell; beyond it the layer has a cell for clauses that do not test
the attribute at all, the only one that a message without it looks into.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel

__all__ = ["Layers", "cell_of", "cells_touched"]


class Layers(NamedTuple):
    """The layers of the directory; a row each, and in a row a column for each level."""

    sources: NDArray[np.int32]  # X, Y or the number of an attribute; the layers have the first scales
    firsts: NDArray[np.int32]  # number of the first cell of each level
    counts: NDArray[np.int32]  # c_i
    steps: NDArray[np.float64]  # from the start of one cell to that of the next
    rates: NDArray[np.float64]  # cells that begin on a unit, 0 where there is only one
    widths: NDArray[np.float64]  # w_i
    untested: NDArray[np.int32]  # number of the cell for clauses without a test: as many as the levels have


@kernel
def cell_of(
    counts: NDArray[np.int32],
    firsts: NDArray[np.int32],
    steps: NDArray[np.float64],
    rates: NDArray[np.float64],
    widths: NDArray[np.float64],
    layer: int,
    low: float,
    high: float,
) -> Any:
    """Return the smallest cell that contains the interval, the one with the nearest centre on its level."""
    centre = (low + high) / 2
    levels = counts.shape[1]
    for level in range(levels - 1):
        step, width = steps[layer, level], widths[layer, level]
        if high - low > width:
            continue
        middle = int((centre - width / 2) * rates[layer, level] + 0.5)
        middle = min(max(middle, 0), counts[layer, level] - 1)
        start = step * middle
        if low >= start and high <= start + width:
            return firsts[layer, level] + middle
        for j in (middle - 1, middle + 1):  # as near, but for rounding
            start = step * j
            if 0 <= j < counts[layer, level] and low >= start and high <= start + width:
                return firsts[layer, level] + j
    return firsts[layer, levels - 1]


@kernel
def cells_touched(
    counts: NDArray[np.int32],
    firsts: NDArray[np.int32],
    steps: NDArray[np.float64],
    rates: NDArray[np.float64],
    widths: NDArray[np.float64],
    layer: int,
    low: float,
    high: float,
    out: NDArray[np.int32],
) -> int:
    """Write the cells that the interval touches (those stabbed, where it is one value); return how many."""
    found = 0
    levels = counts.shape[1]
    for level in range(levels - 1):
        step, rate, width = steps[layer, level], rates[layer, level], widths[layer, level]
        first = max(int((low - width) * rate) - 1, 0)
        last = counts[layer, level] - 1
        if rate > 0.0:
            last = min(int(high * rate) + 1, last)
        for j in range(first, last + 1):
            start = step * j
            out[found] = firsts[layer, level] + j
            found += start <= high and start + width >= low
    out[found] = firsts[layer, levels - 1]
    return found + 1
