"""The edges of the relation graph G_k in memory.

Section III.B of Shen, Tirthapura and Aluru, "Indexing for Subscription Covering in Publish-Subscribe Systems" (2005):
an edge leads from a subscription to another one that it covers, and at most k edges lead into each.

An edge has a place of its own: the j-th of those into row t has the number ``t * k + j``. The edges out of a row are
chained in both directions, so one is removed in constant time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.covering.growing import GrowingArrays
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays

__all__ = ["EdgeArrays", "Edges", "link", "unlink"]


class Edges(NamedTuple):
    """The edges, as kernels see them; -1 stands for none."""

    covers: NDArray[np.int32]  # by edge: the row that covers
    nexts: NDArray[np.int32]  # by edge: the next one out of the same row
    previous: NDArray[np.int32]
    heads: NDArray[np.int32]  # by row: the first edge out of it
    # By row: how many edges lead into it. With 0 it was forwarded; with -1 it is not there.
    degrees: NDArray[np.int32]


class EdgeArrays:
    """The arrays of the edges, which grow; kernels see :attr:`view`."""

    def __init__(self, k: int, arrays: Arrays | None = None) -> None:
        self._k = k
        self._arrays = GrowingArrays(**(arrays or {name: np.empty(0, np.int32) for name in Edges._fields}))
        self.reach(0)

    def reach(self, rows: int) -> None:
        """Make room for this many rows in all; new ones are not there yet."""
        each = (self._k, self._k, self._k, 1, 1)
        self.view = Edges(*(self._arrays.reach(name, rows * n, -1) for name, n in zip(Edges._fields, each)))


@kernel
def link(edges: Edges, row: int, k: int, covering: NDArray[np.int32], count: int) -> None:
    """Add edges from *count* rows that cover *row*, which has none."""
    covers, nexts, previous, heads, degrees = edges
    for j in range(count):
        edge, above = row * k + j, covering[j]
        covers[edge], nexts[edge], previous[edge] = above, heads[above], -1
        if heads[above] >= 0:
            previous[heads[above]] = edge
        heads[above] = edge
    degrees[row] = count


@kernel
def _cut(edges: Edges, edge: int) -> None:
    covers, nexts, previous, heads, _ = edges
    if previous[edge] >= 0:
        nexts[previous[edge]] = nexts[edge]
    else:
        heads[covers[edge]] = nexts[edge]
    if nexts[edge] >= 0:
        previous[nexts[edge]] = previous[edge]
    covers[edge] = -1


@kernel
def unlink(edges: Edges, row: int, k: int) -> Any:
    """Delete *row* from the graph; return the first row of T, those it leaves without any edge into them, or -1.

    The rows of T are chained: the one after t is ``nexts[t * k]``, since t has no edge that could need the entry.
    """
    covers, nexts, _, heads, degrees = edges
    for edge in range(row * k, row * k + k):
        if covers[edge] >= 0:
            _cut(edges, edge)
    exposed, edge = -1, heads[row]
    while edge >= 0:
        following, below = nexts[edge], edge // k
        covers[edge] = -1
        degrees[below] -= 1
        if degrees[below] == 0:
            nexts[below * k] = exposed
            exposed = below
        edge = following
    heads[row], degrees[row] = -1, -1
    return exposed
