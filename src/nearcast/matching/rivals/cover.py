"""Choose the cells of a quadtree that a clause is attached to: the cost model of the IQ-Tree.

A clause may be attached to any set of cells, of the same level or not, that together contain its region. The cost of a
cell is the probability that a message falls into it and has the clause's word, for then the clause is verified, plus
the cost of keeping the clause in one more cell (``config.CELL_COST``, in verifications per message). Few large cells
are cheap to keep, and many small ones are verified less often; :func:`cover` finds the set of least total cost. Costs
are numbers of verifications, because an index in memory has no pages to read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.matching.structures.grid import Grid, cell_of, grid_over, level_start

__all__ = ["ROOT", "Space", "Span", "cover", "first_met", "place_of", "space_over", "span_of"]

ROOT = 0  # the cell that is the whole space
_CELLS = config.COVER_CELLS
_LEVELS = config.GRID_LEVELS


class Space(NamedTuple):
    """A pyramid of cells, and the share of the messages that falls into each."""

    grid: Grid
    shares: NDArray[np.float32]


class Span(NamedTuple):
    """The columns and rows of the finest level that a box touches."""

    left: int
    low: int
    right: int
    high: int


def space_over(boxes: NDArray[np.float64], points: NDArray[np.float64]) -> Space:
    """Return the cells for clauses with the given *boxes* and messages that come where *points* are."""
    grid = grid_over(boxes)
    side = 1 << (grid.levels - 1)
    columns, rows = (
        np.clip(np.floor((points[:, axis] - low) / extent * side), 0, side - 1).astype(np.int64)
        for axis, (low, extent) in enumerate(((grid.x, grid.width), (grid.y, grid.height)))
    )
    counts = np.bincount(rows * side + columns, minlength=side * side).reshape(side, side)
    levels = [counts]
    while side > 1:
        side //= 2
        levels.append(levels[-1].reshape(side, 2, side, 2).sum(axis=(1, 3)))
    shares = np.concatenate([level.ravel() for level in reversed(levels)]) / max(len(points), 1)
    return Space(grid, shares.astype(np.float32))


@kernel
def span_of(grid: Grid, boxes: NDArray[np.float64], row: int) -> Any:
    """Return the span of one box. A cell's place on a level is that on the finest one, shifted."""
    finest = grid.levels - 1
    return Span(
        cell_of(boxes[row, 0], grid.x, grid.width, finest),
        cell_of(boxes[row, 1], grid.y, grid.height, finest),
        cell_of(boxes[row, 2], grid.x, grid.width, finest),
        cell_of(boxes[row, 3], grid.y, grid.height, finest),
    )


@kernel
def place_of(cell: int) -> Any:
    """Return (level, row, column) of a cell."""
    level = 0
    while level_start(level + 1) <= cell:
        level += 1
    at = cell - level_start(level)
    return level, at >> level, at & ((1 << level) - 1)


@kernel
def first_met(
    grid: Grid,
    boxes: NDArray[np.float64],
    span: Span,
    level: int,
    row: int,
    column: int,
    rows: NDArray[np.int32],
    first: int,
    last: int,
) -> int:
    """Keep of the clauses rows[first:last], found in one cell, those that a message finds nowhere else.

    A message with an extent may touch several cells of a clause. It takes the clause from the cell with the lower
    left corner of what the two have in common.
    """
    finest = grid.levels - 1
    shift = finest - level
    kept = first
    for i in range(first, last):
        c = rows[i]
        left = max(cell_of(boxes[c, 0], grid.x, grid.width, finest), span.left)
        low = max(cell_of(boxes[c, 1], grid.y, grid.height, finest), span.low)
        rows[kept] = c
        kept += (left >> shift == column) & (low >> shift == row)
    return kept


@kernel
def cover(
    space: Space,
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    weights: NDArray[np.float64],
    cell_cost: float,
    offsets: NDArray[np.int64],
) -> Any:
    """Return the cells of each clause row, and fill *offsets*, which cuts them into rows.

    ``weights[i]`` is the probability that a message has the word of ``rows[i]``; a negative one puts it at the root.
    A region in one cell goes down with it at no cost; below the smallest cell that contains it, the least cost is
    found from the bottom up, beginning with the finest level on which it touches ``config.COVER_CELLS`` cells at most.
    """
    grid, shares = space
    finest = grid.levels - 1
    out = np.empty(2 * rows.size + _CELLS, np.int32)
    best = np.empty((_LEVELS, _CELLS))
    split = np.empty((_LEVELS, _CELLS), np.bool_)
    filled = 0
    offsets[0] = 0
    for i in range(rows.size):
        if filled + _CELLS > out.size:
            wider = np.empty(out.size + out.size // 2, np.int32)
            wider[:filled] = out[:filled]
            out = wider
        if weights[i] < 0:
            out[filled] = ROOT
            filled += 1
            offsets[i + 1] = filled
            continue
        left, low, right, high = span_of(grid, boxes, rows[i])
        top = finest
        while _touched(left, low, right, high, finest - top) > 1:
            top -= 1
        shift = finest - top
        cell = level_start(top) + ((low >> shift) << top | left >> shift)
        deepest = top
        # Splitting saves at most all verifications in the cell, and costs one more cell at least.
        if weights[i] * shares[cell] > cell_cost:
            while deepest < finest and _touched(left, low, right, high, finest - deepest - 1) <= _CELLS:
                deepest += 1
        for level in range(deepest, top - 1, -1):
            shift = finest - level
            finer = shift - 1
            at = 0
            for row in range(low >> shift, (high >> shift) + 1):
                for column in range(left >> shift, (right >> shift) + 1):
                    cost = weights[i] * shares[level_start(level) + (row << level | column)] + cell_cost
                    parts = np.inf
                    if level < deepest:
                        parts = 0.0
                        width = (right >> finer) - (left >> finer) + 1
                        for y in range(max(row << 1, low >> finer), min(row << 1 | 1, high >> finer) + 1):
                            for x in range(
                                max(column << 1, left >> finer), min(column << 1 | 1, right >> finer) + 1
                            ):
                                parts += best[level + 1, (y - (low >> finer)) * width + x - (left >> finer)]
                    split[level, at] = parts < cost
                    best[level, at] = min(parts, cost)
                    at += 1
        for level in range(top, deepest + 1):
            shift = finest - level
            coarser = shift + 1
            width = (right >> coarser) - (left >> coarser) + 1
            at = 0
            for row in range(low >> shift, (high >> shift) + 1):
                for column in range(left >> shift, (right >> shift) + 1):
                    above = ((row >> 1) - (low >> coarser)) * width + (column >> 1) - (left >> coarser)
                    reached = level == top or split[level - 1, above]
                    if reached and not split[level, at]:
                        out[filled] = level_start(level) + (row << level | column)
                        filled += 1
                    split[level, at] &= reached  # from here on: this cell and all above it are split
                    at += 1
        offsets[i + 1] = filled
    return out[:filled].copy()


@kernel
def _touched(left: int, low: int, right: int, high: int, shift: int) -> int:
    """Return how many cells a span touches, this many levels above the finest."""
    return ((right >> shift) - (left >> shift) + 1) * ((high >> shift) - (low >> shift) + 1)
