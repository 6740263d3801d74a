"""Adaptive k-d trees over points of many dimensions (section IV.C), any number of them side by side.

All points are in buckets at the leaves; a node has the dimension and the value that divide its points: those at most as
large are on the left. A bucket that overflows is split at the median of the dimension in which its points differ most;
one that underflows is poured into its sibling, if that is a leaf too. The search for points that dominate a query
starts at the rightmost leaf, where dominating points are most likely, and backtracks to the left where the query allows
it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.parts import nested, part_of
from nearcast.covering.buckets import (
    LEAST,
    LIMIT,
    Buckets,
    below_top,
    bucket_arrays,
    buckets_from_arrays,
    empty_buckets,
    free_bucket,
    grown_buckets,
    has_room,
    new_bucket,
    pour,
    put,
    survivors,
    take_out,
)
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays

__all__ = [
    "Forest",
    "advance",
    "empty_forest",
    "forest_arrays",
    "forest_from_arrays",
    "forest_has_room",
    "grown_forest",
    "insert_point",
    "remove_point",
    "too_deep",
]

UNDERFLOW = config.COVERING_UNDERFLOW
LEAF = -1  # instead of a dimension
# Entries of ``used``.
NODES, FREE_NODE, DEEPEST, POINTS = range(4)

_NODE = np.dtype(
    [
        ("dimension", np.int32),
        ("split", np.float32),
        ("left", np.int32),
        ("right", np.int32),
        ("parent", np.int32),
        ("bucket", np.int32),
    ]
)


class Forest(NamedTuple):
    """All trees, as kernels see them; tree i hangs on roots[i], -1 where it is empty."""

    dimension: NDArray[np.int32]
    split: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    parent: NDArray[np.int32]  # of a root: -1 - tree; of a node that is free: the next one
    bucket: NDArray[np.int32]
    roots: NDArray[np.int32]
    low: NDArray[np.float32]  # of each dimension: the least and the largest finite coordinate so far
    high: NDArray[np.float32]
    buckets: Buckets
    used: NDArray[np.int64]


def empty_forest(dimensions: int) -> Forest:
    """Return no trees yet."""
    buckets = empty_buckets(dimensions)
    nodes: Any = np.zeros(0, _NODE)
    width = buckets.tops.shape[1]
    return Forest(
        nodes["dimension"],
        nodes["split"],
        nodes["left"],
        nodes["right"],
        nodes["parent"],
        nodes["bucket"],
        np.empty(0, np.int32),
        np.full(width, np.inf, np.float32),
        np.full(width, -np.inf, np.float32),
        buckets,
        np.array([0, -1, 0, 0]),
    )


def grown_forest(old: Forest, trees: int, rows: int, points: int) -> Forest:
    """Return the forest with room for so many trees, for the given rows, and for so many more points."""
    needed = int(old.used[NODES]) + 2 * points
    if needed > len(old.dimension):
        nodes: Any = np.zeros(needed + needed // 2, _NODE)
        for name in _NODE.names or ():
            nodes[name][: len(old.dimension)] = getattr(old, name)
        old = old._replace(**{name: nodes[name] for name in _NODE.names or ()})
    if trees > len(old.roots):
        roots = np.full(trees + trees // 2, -1, np.int32)
        roots[: len(old.roots)] = old.roots
        old = old._replace(roots=roots)
    return old._replace(buckets=grown_buckets(old.buckets, rows, points))


def forest_arrays(forest: Forest) -> dict[str, NDArray[Any]]:
    """Return the flat arrays that :func:`forest_from_arrays` takes: what is in use."""
    own = forest._asdict()
    buckets = own.pop("buckets")
    own |= {name: own[name][: int(forest.used[NODES])] for name in _NODE.names or ()}
    return own | nested(buckets=bucket_arrays(buckets))


def forest_from_arrays(arrays: Arrays) -> Forest:
    """Return the forest that these arrays came from; there is room for one more point."""
    buckets = buckets_from_arrays(part_of(arrays, "buckets"))
    own = {name: arrays[name] for name in Forest._fields if name != "buckets"}
    return grown_forest(Forest(buckets=buckets, **own), 0, 0, 1)


def too_deep(forest: Forest, built: int) -> bool:
    """Tell whether insertions in a bad order have made a tree much deeper than it need be.

    It was as deep as *built* when all points were inserted in a random order: points that are much alike need that.
    """
    points = int(forest.used[POINTS])
    enough = config.COVERING_DEPTH * math.log2(2 + points / UNDERFLOW) + 8
    return bool(forest.used[DEEPEST] > max(enough, 2 * built))


@kernel
def forest_has_room(forest: Forest, points: int) -> Any:
    """Tell whether so many more points find a place."""
    return forest.used[NODES] + 2 * points <= forest.dimension.size and has_room(forest.buckets, points)


@kernel
def _new_node(forest: Forest, parent: int) -> Any:
    used = forest.used
    node = used[FREE_NODE]
    if node >= 0:
        used[FREE_NODE] = forest.parent[node]
    else:
        node = used[NODES]
        used[NODES] += 1
    forest.dimension[node], forest.parent[node] = LEAF, parent
    return node


@kernel
def _free_node(forest: Forest, node: int) -> None:
    forest.parent[node] = forest.used[FREE_NODE]
    forest.used[FREE_NODE] = node


@kernel
def insert_point(
    forest: Forest, tree: int, row: int, sign: int, point: NDArray[np.float32], spare: NDArray[np.float32]
) -> None:
    """Insert the point of a row into a tree; *spare* is room for another point."""
    buckets, dimension = forest.buckets, forest.dimension
    for d in range(point.size):
        if abs(point[d]) < np.inf:
            forest.low[d], forest.high[d] = min(forest.low[d], point[d]), max(forest.high[d], point[d])
    node, depth = forest.roots[tree], 0
    if node < 0:
        node = _new_node(forest, -1 - tree)
        forest.roots[tree] = node
        forest.bucket[node] = new_bucket(buckets, LEAST, node)
    while dimension[node] >= 0:
        node = forest.left[node] if point[dimension[node]] <= forest.split[node] else forest.right[node]
        depth += 1
    number = forest.bucket[node]
    size = buckets.size[number]
    if size >= LIMIT and size == buckets.capacity[number] and _split(forest, node, spare):
        depth += 1
        node = forest.left[node] if point[dimension[node]] <= forest.split[node] else forest.right[node]
        number = forest.bucket[node]
    put(buckets, number, row, sign, point)
    forest.used[POINTS] += 1
    forest.used[DEEPEST] = max(forest.used[DEEPEST], depth)


@kernel
def _split(forest: Forest, node: int, spare: NDArray[np.float32]) -> Any:
    """Divide the points of a full leaf; False where they are all alike."""
    buckets = forest.buckets
    number = forest.bucket[node]
    at, size = np.int64(buckets.at[number]), buckets.size[number]
    capacity, width = np.int64(buckets.capacity[number]), buckets.tops.shape[1]
    best, chosen = np.float32(0.0), -1
    for d in range(width):
        values = buckets.coordinates[at * width + d * capacity : at * width + d * capacity + size]
        spread = _spread(values, forest.low[d], forest.high[d])
        if spread > best:
            best, chosen = spread, d
    if chosen < 0:
        return False
    values = buckets.coordinates[at * width + chosen * capacity : at * width + chosen * capacity + size]
    ordered = np.sort(values)
    middle = ordered[(size - 1) // 2]
    if middle == ordered[size - 1]:  # then everything that is less goes to the left
        middle = np.nextafter(middle, np.float32(-np.inf))
    over = values > middle
    left, right = _new_node(forest, node), _new_node(forest, node)
    forest.dimension[node], forest.split[node] = chosen, middle
    forest.left[node], forest.right[node] = left, right
    forest.bucket[left] = number
    buckets.node[number] = left
    forest.bucket[right] = new_bucket(buckets, LIMIT, right)
    pour(buckets, number, forest.bucket[right], over, spare)
    return True


@kernel
def _spread(values: NDArray[np.float32], low: np.float32, high: np.float32) -> Any:
    """Return how much values differ, as a share of the range of all points; infinite ones count by their number."""
    least, most, infinite = np.float32(np.inf), np.float32(-np.inf), 0
    for value in values:
        if value == np.inf:
            infinite += 1
        elif value > -np.inf:
            least, most = min(least, value), max(most, value)
    spread = np.float32(0.0)
    if most > least and high > low:
        spread = (most - least) / (high - low)
        if not spread > np.float32(0.0):  # the range overflows or vanishes: they do differ
            spread = np.float32(1e-30)
    if 0 < infinite < values.size:
        spread = max(
            spread, np.float32(2.0) * np.float32(min(infinite, values.size - infinite)) / values.size
        )
    elif infinite == 0 and least == np.inf:  # all are -inf
        return np.float32(0.0)
    return spread


@kernel
def remove_point(forest: Forest, row: int, spare: NDArray[np.float32]) -> None:
    """Remove the point of a row; a leaf that underflows is merged with its sibling where both fit into one bucket."""
    buckets, dimension, parent = forest.buckets, forest.dimension, forest.parent
    number = take_out(buckets, row)
    forest.used[POINTS] -= 1
    node = buckets.node[number]
    if parent[node] < 0:
        if buckets.size[number] == 0:
            forest.roots[-1 - parent[node]] = -1
            free_bucket(buckets, number)
            _free_node(forest, node)
        return
    if buckets.size[number] >= UNDERFLOW:
        return
    above = parent[node]
    sibling = forest.left[above] + forest.right[above] - node
    if dimension[sibling] >= 0:
        if buckets.size[number] == 0:  # the sibling takes the place of both
            dimension[above], forest.split[above] = dimension[sibling], forest.split[sibling]
            forest.left[above], forest.right[above] = forest.left[sibling], forest.right[sibling]
            parent[forest.left[above]] = parent[forest.right[above]] = above
            free_bucket(buckets, number)
            _free_node(forest, node)
            _free_node(forest, sibling)
        return
    other = forest.bucket[sibling]
    if buckets.size[number] + buckets.size[other] > LIMIT * 3 // 4:
        return
    pour(buckets, number, other, np.ones(buckets.size[number], np.bool_), spare)
    free_bucket(buckets, number)
    dimension[above], forest.bucket[above] = LEAF, other
    buckets.node[other] = above
    _free_node(forest, node)
    _free_node(forest, sibling)


@kernel
def advance(
    forest: Forest,
    stack: NDArray[np.int32],
    depth: int,
    query: NDArray[np.float32],
    missing: np.uint64,
    alive: NDArray[np.int32],
    out: NDArray[np.int32],
    counters: NDArray[np.int64],
) -> Any:
    """Go on with a search to the next leaf that may have what it looks for.

    ``stack[:depth]`` are the nodes that are left to visit; in the beginning, the root. Return the new depth, and how
    many rows were written to *out*; 0 and 0 where the search is over. Nodes are counted in ``counters[0]``.
    """
    dimension, split, left, right, bucket = (
        forest.dimension,
        forest.split,
        forest.left,
        forest.right,
        forest.bucket,
    )
    at, size, capacity, _, tops, rows, signs, coordinates, _, _, _ = forest.buckets
    while depth > 0:
        depth -= 1
        node = stack[depth]
        counters[0] += 1
        while dimension[node] >= 0:
            if query[dimension[node]] <= split[node]:
                stack[depth] = left[node]
                depth += 1
            node = right[node]
            counters[0] += 1
        number = bucket[node]
        if not below_top(tops, number, query):
            continue
        counters[1] += size[number]
        count = survivors(
            np.int64(at[number]),
            np.int64(size[number]),
            np.int64(capacity[number]),
            coordinates,
            rows,
            signs,
            query,
            missing,
            alive,
            out,
        )
        if count > 0:
            return depth, count
    return 0, 0
