"""The relation graph G_k in memory (section III): who covers whom, as far as anybody looked.

An edge has a place of its own: the j-th of those into row t is number ``t * k + j``. The edges out of a row are chained
through their places, both ways, so that one is removed in constant time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Edges", "empty_edges", "grown_edges", "link", "unlink"]


class Edges(NamedTuple):
    """The edges, as kernels see them; -1 stands for none."""

    covers: NDArray[np.int32]  # by edge: the row that covers
    nexts: NDArray[np.int32]  # by edge: the next one out of the same row
    previous: NDArray[np.int32]
    heads: NDArray[np.int32]  # by row: the first edge out of it
    degrees: NDArray[np.int32]  # by row: edges into it; 0: it was forwarded; -1: it is not there


def empty_edges() -> Edges:
    """Return no edges yet."""
    return Edges(*(np.empty(0, np.int32) for _ in Edges._fields))


def grown_edges(old: Edges, rows: int, k: int) -> Edges:
    """Return the edges with room for so many rows."""
    if rows <= len(old.heads):
        return old
    rows += rows // 2
    made = []
    for array, each in zip(old, (k, k, k, 1, 1)):
        longer = np.full(rows * each, -1, np.int32)
        longer[: len(array)] = array
        made.append(longer)
    return Edges._make(made)


@kernel
def link(edges: Edges, row: int, k: int, covering: NDArray[np.int32], count: int) -> None:
    """Add edges from rows that cover *row*, which has none."""
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
    """Take *row* out of the graph; return the first of those that nothing covers any more, -1 for none.

    Each of these names the next one where its first edge would name its neighbour: ``nexts[t * k]``.
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
