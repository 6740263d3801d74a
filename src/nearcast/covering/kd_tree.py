"""Rectangles in an adaptive k-d tree (section IV.C)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.covering.buckets import LARGEST
from nearcast.covering.forest import (
    DEEPEST,
    Forest,
    advance,
    empty_forest,
    forest_has_room,
    grown_forest,
    insert_point,
    remove_point,
)
from nearcast.covering.index import RectangleIndex, TreeIndex
from nearcast.covering.operations import (
    Operations,
    Rows,
    Scratch,
    enough_scratch,
    first_clause,
    register,
)
from nearcast.covering.rectangles import covers_rightly, rectangle_covers, rounded
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KDTree"]


class _Tree(NamedTuple):
    """The tree, and the points that decide, as kernels see them."""

    points: NDArray[np.float64]
    signs: NDArray[np.uint64]
    forest: Forest


class KDTree(TreeIndex, RectangleIndex):
    """A k-d tree with buckets; the search begins in the dominating corner."""

    name = "kd-tree"

    def _emptied(self) -> None:
        forest = empty_forest(2 * len(self.rectangles.axes))
        self._arrays = _Tree(self.rectangles.points, self.rectangles.signs, forest)

    def grow(self, points: int) -> None:
        """Make room."""
        forest = grown_forest(self._arrays.forest, 1, len(self.rectangles.points), points)
        self._arrays = _Tree(self.rectangles.points, self.rectangles.signs, forest)


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
    query = scratch.point
    stack, alive, hits = enough_scratch(scratch, forest.used[DEEPEST], forest.buckets.used[LARGEST])
    rounded(points, mine, query)
    stack[0] = forest.roots[0]
    depth, found = 1, 0
    while depth > 0:
        depth, count = advance(forest, stack, depth, query, ~signs[mine], alive, hits, counters)
        for i in range(count):
            other = hits[i]
            if covers_rightly(points, signs, owners, other, mine):
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
