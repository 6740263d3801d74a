"""Rectangles in an adaptive k-d tree (section IV.C)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.covering.buckets import LARGEST, NUMBERS
from nearcast.covering.forest import (
    DEEPEST,
    Forest,
    advance,
    empty_forest,
    forest_has_room,
    grown_forest,
    insert_point,
    remove_point,
    too_deep,
)
from nearcast.covering.index import RectangleIndex
from nearcast.covering.operations import Operations, Rows, Scratch, first_clause, new_scratch, register
from nearcast.covering.rectangles import dominates
from nearcast.covering.scan import rectangle_covers
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KDTree", "enough_scratch", "rounded"]


class _Tree(NamedTuple):
    """The tree, and the points that decide, as kernels see them."""

    points: NDArray[np.float64]
    signs: NDArray[np.uint64]
    forest: Forest


class KDTree(RectangleIndex):
    """A k-d tree with buckets; the search begins in the dominating corner."""

    name = "kd-tree"

    def _emptied(self) -> None:
        forest = empty_forest(2 * len(self.rectangles.axes))
        self._arrays = _Tree(self.rectangles.points, self.rectangles.signs, forest)

    def _grown(self, points: int) -> None:
        forest = grown_forest(self._arrays.forest, 1, len(self.rectangles.points), points)
        self._arrays = _Tree(self.rectangles.points, self.rectangles.signs, forest)

    def scratch(self) -> Scratch:
        """Return room for a search."""
        forest = self._arrays.forest
        return new_scratch(
            forest.low.size,
            int(forest.used[DEEPEST]) + config.COVERING_CHUNK,
            2 * int(forest.buckets.used[LARGEST]),
        )

    def degenerate(self) -> bool:
        """Tell whether a tree is too deep."""
        return too_deep(self._arrays.forest)

    def stats(self) -> dict[str, Any]:
        """Depth, and buckets."""
        forest = self._arrays.forest
        return {"depth": int(forest.used[DEEPEST]), "buckets": int(forest.buckets.used[NUMBERS])}


@kernel
def rounded(points: NDArray[np.float64], row: int, out: NDArray[np.float32]) -> None:
    """Write a point in single precision; the dimensions that pad it are infinite."""
    out[:] = np.inf
    for d in range(points.shape[1]):
        out[d] = points[row, d]


@kernel
def enough_scratch(scratch: Scratch, largest: int) -> Any:
    """Return room for the largest bucket, twice."""
    if scratch.hits.size >= largest:
        return scratch.alive, scratch.hits
    return np.empty(largest, np.int32), np.empty(largest, np.int32)


@kernel
def _find(
    index: _Tree,
    rows: Rows,
    subject: int,
    k: int,
    out: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: Scratch,
    counters: NDArray[np.int64],
) -> Any:
    points, signs, forest = index
    owners = rows.owners
    if forest.roots[0] < 0:
        return 0
    mine = first_clause(rows, subject)
    query, stack = scratch.point, scratch.stack
    alive, hits = enough_scratch(scratch, forest.buckets.used[LARGEST])
    rounded(points, mine, query)
    stack[0] = forest.roots[0]
    depth, found = 1, 0
    while depth > 0:
        depth, count = advance(forest, stack, depth, query, ~signs[mine], alive, hits, counters)
        for i in range(count):
            other = hits[i]
            if other == mine or not dominates(points, signs, other, mine):
                continue
            if owners[other] > subject and dominates(points, signs, mine, other):
                continue
            out[found] = owners[other]
            found += 1
            if found == k:
                return found
    return found


@kernel
def _add(index: _Tree, rows: Rows, subject: int, scratch: Scratch) -> None:
    clause = first_clause(rows, subject)
    rounded(index.points, clause, scratch.point)
    insert_point(index.forest, 0, clause, index.signs[clause], scratch.point, scratch.spare)


@kernel
def _take(index: _Tree, rows: Rows, subject: int, scratch: Scratch) -> None:
    remove_point(index.forest, first_clause(rows, subject), scratch.spare)


@kernel
def _room(index: _Tree, count: int) -> Any:
    return forest_has_room(index.forest, count)


register(_Tree, Operations(_find, _add, _take, _room, rectangle_covers))
