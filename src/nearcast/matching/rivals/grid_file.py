"""A grid file: as many columns as rows, all of one size, over the bounds of what was there when it was laid out.

What touches a cell is listed in it. What touches more cells than ``config.GRID_FILE_SPREAD`` is listed in one cell
more, the *wide* one, which everybody reads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.errors import whole_number
from nearcast.kernels import kernel
from nearcast.matching.rivals.cover import Span
from nearcast.matching.structures.grid import grid_over

__all__ = ["GridFile", "checked_side", "file_span", "grid_file_over", "keep_first_met", "touched_cells"]

_SPREAD = config.GRID_FILE_SPREAD


class GridFile(NamedTuple):
    """The bounds, and the number of columns; cell (row, column) has the number row · side + column."""

    x: float
    y: float
    width: float
    height: float
    side: int

    @property
    def wide(self) -> int:
        """The number of the wide cell."""
        return self.side * self.side


def checked_side(side: int) -> int:
    """Return the number of columns, or raise an error."""
    return whole_number("side", side, 1, config.GRID_FILE_MOST)


def grid_file_over(boxes: NDArray[np.float64], side: int) -> GridFile:
    """Return a grid over the bounds of the given boxes."""
    bounds = grid_over(boxes)
    return GridFile(bounds.x, bounds.y, bounds.width, bounds.height, side)


@kernel
def _column(value: float, low: float, extent: float, side: int) -> int:
    """Return the column (or row) of a coordinate; the outermost ones extend without end."""
    return int(min(max(np.floor((value - low) / extent * side), 0.0), side - 1.0))


@kernel
def file_span(grid: GridFile, boxes: NDArray[np.float64], row: int) -> Any:
    """Return the columns and rows that one box touches."""
    return Span(
        _column(boxes[row, 0], grid.x, grid.width, grid.side),
        _column(boxes[row, 1], grid.y, grid.height, grid.side),
        _column(boxes[row, 2], grid.x, grid.width, grid.side),
        _column(boxes[row, 3], grid.y, grid.height, grid.side),
    )


@kernel
def touched_cells(
    grid: GridFile, boxes: NDArray[np.float64], rows: NDArray[np.int64], offsets: NDArray[np.int64]
) -> Any:
    """Return the cells of each row, and fill *offsets*, which cuts them into rows."""
    offsets[0] = 0
    for i in range(rows.size):
        left, low, right, high = file_span(grid, boxes, rows[i])
        count = (right - left + 1) * (high - low + 1)
        offsets[i + 1] = offsets[i] + (count if count <= _SPREAD else 1)
    cells = np.empty(offsets[rows.size], np.int32)
    for i in range(rows.size):
        at = offsets[i]
        left, low, right, high = file_span(grid, boxes, rows[i])
        if (right - left + 1) * (high - low + 1) > _SPREAD:
            cells[at] = grid.side * grid.side
            continue
        for row in range(low, high + 1):
            for column in range(left, right + 1):
                cells[at] = row * grid.side + column
                at += 1
    return cells


@kernel
def keep_first_met(
    grid: GridFile,
    boxes: NDArray[np.float64],
    span: Span,
    cell: int,
    rows: NDArray[np.int32],
    first: int,
    last: int,
) -> int:
    """Keep of rows[first:last], found in one cell, those that a question with this span finds nowhere else.

    Both may touch several cells. They meet in the one with the lower left corner of what they have in common.
    """
    kept = first
    for i in range(first, last):
        row = rows[i]
        left = max(_column(boxes[row, 0], grid.x, grid.width, grid.side), span.left)
        low = max(_column(boxes[row, 1], grid.y, grid.height, grid.side), span.low)
        rows[kept] = row
        kept += low * grid.side + left == cell
    return kept
