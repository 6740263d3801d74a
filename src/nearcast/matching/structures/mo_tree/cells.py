"""The layers of an MO-Tree's directory: multi-level overlapping cells for intervals.

This is section 4.3 of Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for
Spatiotemporal-aware Pub/Sub Systems" (2021). A layer belongs to an axis of the place or to an attribute. Its domain is
normalised by the scale of the axis or attribute, and each level cuts it into cells that overlap. An interval belongs to
the smallest cell that contains it; of several on one level, to the one whose centre is nearest. The topmost level is
one cell. The layer has one more cell for clauses that do not test the attribute; a message without the attribute looks
into that cell alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel

__all__ = ["Layers", "cell_of", "cells_touched"]


class Layers(NamedTuple):
    """The layers of the directory: a row for each layer, and a column for each level."""

    sources: NDArray[np.int32]  # X, Y or the number of an attribute; the layers have the first scales
    firsts: NDArray[np.int32]  # the number of the first cell of each level
    counts: NDArray[np.int32]  # c_i
    steps: NDArray[np.float64]  # the distance from the start of one cell to that of the next
    rates: NDArray[np.float64]  # 1 / step, or 0 where there is only one cell
    widths: NDArray[np.float64]  # w_i
    untested: NDArray[np.int32]  # the number of the cell for clauses without a test: after all others


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
    """Return the smallest cell that contains the interval; on its level, the one with the nearest centre."""
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
        for j in (middle - 1, middle + 1):  # by rounding, a neighbour may be the nearest
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
    """Write the cells that the interval touches (for a single value, those that it stabs); return how many."""
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
