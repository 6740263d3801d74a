"""A pyramid of grids for clauses that have only a place.

A clause is in one cell: that of its lower left corner, on the finest level whose cells are wider and higher than its
box. So on each level a point looks into its own cell and into the neighbours to the left, below, and below left; an
area looks into all cells that it touches and the same neighbours. No clause is found twice. Level 0 is one cell and
takes all larger boxes, unbounded ones included.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel

__all__ = ["Grid", "cell_of", "cells_of", "grid_over", "level_start"]

_FILL = config.GRID_FILL


class Grid(NamedTuple):
    """The bounds and the number of levels; level l has 2^l × 2^l cells, numbered from (4^l - 1) / 3 on."""

    x: float
    y: float
    width: float
    height: float
    levels: int

    @property
    def cells(self) -> int:
        """The number of cells of all levels."""
        return int(4**self.levels - 1) // 3


def grid_over(boxes: NDArray[np.float64], count: int | None = None) -> Grid:
    """Return a grid over the bounds of the given boxes, with about one finest cell for each box.

    If the boxes are only a sample, *count* is the number of all boxes.
    """
    finite = boxes[np.isfinite(boxes).all(axis=1)]
    count = len(boxes) if count is None else count
    levels = 1
    while levels < config.GRID_LEVELS and 4**levels <= count:
        levels += 1
    if not len(finite):
        return Grid(0.0, 0.0, 1.0, 1.0, 1)
    x, y = finite[:, 0].min(), finite[:, 1].min()
    width, height = finite[:, 2].max() - x, finite[:, 3].max() - y
    if not (np.isfinite(width) and np.isfinite(height)):
        return Grid(0.0, 0.0, 1.0, 1.0, 1)
    return Grid(float(x), float(y), float(max(width, 1e-300)), float(max(height, 1e-300)), levels)


@kernel
def level_start(level: int) -> int:
    """Return the number of the first cell of a level."""
    return ((1 << (2 * level)) - 1) // 3


@kernel
def cell_of(value: float, low: float, extent: float, level: int) -> int:
    """Return the column (or row) of a coordinate on a level; the outermost ones extend without end."""
    cells = 1 << level
    return int(min(max(np.floor((value - low) / extent * cells), 0.0), cells - 1.0))


@kernel
def cells_of(grid: Grid, boxes: NDArray[np.float64], rows: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Write the cell of each of the given boxes."""
    for i in range(rows.size):
        xmin, ymin, xmax, ymax = boxes[rows[i]]
        level = grid.levels - 1
        while level > 0:
            cells = 1 << level
            if xmax - xmin <= _FILL * grid.width / cells and ymax - ymin <= _FILL * grid.height / cells:
                break
            level -= 1
        cell = 0
        if level > 0:
            cell = cell_of(ymin, grid.y, grid.height, level) << level | cell_of(
                xmin, grid.x, grid.width, level
            )
        out[i] = level_start(level) + cell
