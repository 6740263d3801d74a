"""Rectangles in one adaptive k-d tree: section IV.C of the paper, see :mod:`.forest`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.covering.buckets import LARGEST
from nearcast.covering.forest import (
    Forest,
    ForestArrays,
    advance,
    deepest,
    forest_has_room,
    insert_point,
    remove_point,
)
from nearcast.covering.g_k import kernels_for
from nearcast.covering.index import RectangleIndex, TreeIndex
from nearcast.covering.rectangles import rectangle_covers, rectangle_covers_by_age, rounded
from nearcast.covering.subscriptions import Scratch, Subscriptions, enough_scratch, first_clause
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KDTree"]


@kernel
def _find(
    index: Forest,
    held: Subscriptions,
    asked: Subscriptions,
    subject: int,
    k: int,
    out: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: Scratch,
    counters: NDArray[np.int64],
) -> Any:
    if index.roots[0] < 0:
        return 0
    mine = first_clause(asked, subject)
    query, missing = scratch.point, ~asked.content.signs[mine]
    stack, alive, hits = enough_scratch(scratch, deepest(index), index.buckets.used[LARGEST])
    rounded(asked.content, mine, query)
    stack[0] = index.roots[0]
    depth, found = 1, 0
    while depth > 0:
        depth, count = advance(index, stack, depth, query, missing, alive, hits, counters)
        for i in range(count):
            if rectangle_covers_by_age(held, hits[i], asked, subject, mine):
                out[found] = held.owners[hits[i]]
                found += 1
                if found == k:
                    return found
    return found


@kernel
def _add(index: Forest, held: Subscriptions, subject: int, scratch: Scratch) -> None:
    clause = first_clause(held, subject)
    rounded(held.content, clause, scratch.point)
    insert_point(index, 0, clause, held.content.signs[clause], scratch.point, scratch.spare)


@kernel
def _take(index: Forest, held: Subscriptions, subject: int, scratch: Scratch) -> None:
    remove_point(index, first_clause(held, subject), scratch.spare)


class KDTree(TreeIndex, RectangleIndex):
    """A k-d tree with buckets; a search begins in the dominating corner."""

    name = "kd-tree"
    kernels = kernels_for(_find, _add, _take, forest_has_room, rectangle_covers)

    def _empty(self, rows: int) -> None:
        self._trees = ForestArrays(2 * len(self.rectangles.axes))
        self._trees.make_room(1, rows, 1)
        self._see()

    def _reach(self, rows: int) -> None:
        self._trees.make_room(1, rows, 1)
        self._see()

    def _see(self) -> None:
        self.arrays = self._trees.view
