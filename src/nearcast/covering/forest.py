"""Adaptive k-d trees, any number of them side by side.

Section IV.C of Shen, Tirthapura and Aluru, "Indexing for Subscription Covering in Publish-Subscribe Systems" (2005):
all points are stored at the leaves, in buckets; an inner node has the discriminator, a dimension and the value that
divides its points. Points up to that value are on the left, larger ones on the right. A bucket that exceeds the
overflow limit is split, and one that falls below the underflow limit is merged with its sibling, if that has not been
split and both fit into one bucket.

A query asks for points in the range from its own point to infinity in every dimension (section IV.A). The search
starts at the rightmost leaf, "the top right region of the universe", where points are most likely to dominate the
query, and backtracks to the left only where the range reaches there: :func:`advance`.

The paper splits along dimensions 1, 2, … in turn. Here a split takes the dimension in which the points of the bucket
differ most. And the paper says nothing of insertions in a bad order, which make a tree as deep as a list: then
subtrees are built anew (:mod:`.balance`). A large one is not built in a single call. A *moving* node is put above it,
which divides its points at infinity: whatever comes from now on goes to the left, and what was there is on the right.
Each insertion below that node moves a few points from the right to the left, until the right is empty.
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
    BucketPool,
    Buckets,
    below_top,
    free_bucket,
    has_room,
    new_bucket,
    pour,
    put,
    survivors,
    take_out,
)
from nearcast.covering.growing import GrowingArrays
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays

__all__ = [
    "DEEPEST",
    "EXCESS",
    "LEAF",
    "MOVING",
    "NONE",
    "REBUILDS",
    "STEEP",
    "Forest",
    "ForestArrays",
    "advance",
    "deepest",
    "divide",
    "draw",
    "forest_has_room",
    "free_node",
    "insert_point",
    "is_moving",
    "most_levels",
    "new_node",
    "remove_point",
    "take_point",
]

UNDERFLOW = config.COVERING_UNDERFLOW
_FACTOR = config.COVERING_DEPTH
_MOVES = config.COVERING_MOVES
LEAF = -1  # instead of a dimension
NONE = -1
# Entries of ``used``: nodes numbered so far, the first free one (or NONE), the depth of the deepest leaf ever (without
# moving nodes), points, and for :mod:`.balance`: a clause row at the end of a path that is too deep (or NONE), the
# levels that are allowed beyond the usual, the subtrees that were rebuilt, the moving nodes, the points ever drawn.
NODES, FREE_NODE, DEEPEST, POINTS, STEEP, EXCESS, REBUILDS, MOVING, DRAWN = range(9)

_NODE = np.dtype(
    [
        ("dimension", np.int32),
        ("split", np.float32),
        ("left", np.int32),
        ("right", np.int32),
        ("parent", np.int32),
        ("bucket", np.int32),
        ("points", np.int32),
    ]
)
_FIELDS = ("dimension", "split", "left", "right", "parent", "bucket", "points")


class Forest(NamedTuple):
    """All trees, as kernels see them; tree i has the root roots[i], NONE where it is empty."""

    dimension: NDArray[np.int32]
    split: NDArray[np.float32]  # of a moving node: infinity
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    parent: NDArray[np.int32]  # of a root: -1 - tree; of a free node: the next free one
    bucket: NDArray[np.int32]
    points: NDArray[np.int32]  # how many are in the node, or below it
    roots: NDArray[np.int32]
    low: NDArray[np.float32]  # by dimension: the least and the largest finite coordinate so far
    high: NDArray[np.float32]
    buckets: Buckets
    used: NDArray[np.int64]


class ForestArrays:
    """The arrays of a forest, which grow; kernels see :attr:`view`."""

    def __init__(self, dimensions: int) -> None:
        self._buckets = BucketPool(dimensions)
        width = self._buckets.width
        self._take(
            {
                **{name: np.empty(0, kind[0]) for name, kind in (_NODE.fields or {}).items()},
                "roots": np.empty(0, np.int32),
                "low": np.full(width, np.inf, np.float32),
                "high": np.full(width, -np.inf, np.float32),
                "used": np.array([0, NONE, 0, 0, NONE, 0, 0, 0, 0]),
            }
        )

    def make_room(self, trees: int, rows: int, points: int) -> None:
        """Make room for this many trees, for clause rows up to *rows*, and for this many more points."""
        self._buckets.make_room(rows, points)
        self._grow(trees, 2 * points)

    def make_room_to_rebuild(self, points: int) -> None:
        """Make room to take this many points out and to build another tree of them, with a leaf for each if need be."""
        # A bucket that is emptied into its neighbour may double that one three times.
        self._buckets.reserve(0, points, (LEAST + 2 + 3 * LIMIT) * points + LIMIT)
        self._grow(0, 2 * points + 2)

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes: the part of each that is in use."""
        own = self.view._asdict()
        del own["buckets"]
        own |= {name: own[name][: int(self.view.used[NODES])] for name in _FIELDS}
        return own | nested(buckets=self._buckets.at_rest())

    def restore(self, arrays: Arrays) -> None:
        """Take the forest from its arrays."""
        self._buckets.restore(part_of(arrays, "buckets"))
        self._take(arrays)

    def _take(self, arrays: Arrays) -> None:
        nodes = np.empty(len(arrays["dimension"]), _NODE)
        for name in _FIELDS:
            nodes[name] = arrays[name]
        self._arrays = GrowingArrays(nodes=nodes, roots=arrays["roots"])
        self._range = arrays["low"], arrays["high"]
        self._used = arrays["used"]
        self._grow(0, 2)

    def _grow(self, trees: int, nodes: int) -> None:
        arrays = self._arrays
        arrays.make_room("nodes", int(self._used[NODES]) + nodes)
        arrays.make_room("roots", trees, NONE)
        columns = [arrays["nodes"][name] for name in _FIELDS]
        self.view = Forest._make([*columns, arrays["roots"], *self._range, self._buckets.view, self._used])


@kernel
def is_moving(forest: Forest, node: int) -> Any:
    """Tell whether the points on the right of a node are being moved to its left."""
    return forest.dimension[node] >= 0 and forest.split[node] == np.inf


@kernel
def deepest(forest: Forest) -> Any:
    """Return how many nodes a path may have."""
    return forest.used[DEEPEST] + forest.used[MOVING]


@kernel
def forest_has_room(forest: Forest, points: int) -> Any:
    """Tell whether there is room for this many more points; there is none while a path is too deep."""
    if forest.used[MOVING] > 0:  # each takes others with it, which are taken out and put in again
        points *= 1 + 2 * _MOVES
    return (
        forest.used[STEEP] < 0
        and forest.used[NODES] + 2 * points <= forest.dimension.size
        and has_room(forest.buckets, points)
    )


@kernel
def new_node(forest: Forest, parent: int) -> Any:
    """Return a new leaf below *parent*; its bucket is to be set."""
    used = forest.used
    node = used[FREE_NODE]
    if node >= 0:
        used[FREE_NODE] = forest.parent[node]
    else:
        node = used[NODES]
        used[NODES] += 1
    forest.dimension[node], forest.parent[node], forest.points[node] = LEAF, parent, 0
    return node


@kernel
def free_node(forest: Forest, node: int) -> None:
    """Give a node back."""
    forest.parent[node] = forest.used[FREE_NODE]
    forest.used[FREE_NODE] = node


@kernel
def most_levels(points: Any) -> Any:
    """Return how many levels a tree of this many points may have; one built at medians has about a third of them."""
    return int(_FACTOR * math.log2(2.0 + points / UNDERFLOW)) + 8


@kernel
def insert_point(
    forest: Forest, tree: int, row: int, sign: int, point: NDArray[np.float32], spare: NDArray[np.float32]
) -> None:
    """Insert the point of a clause row into a tree; *point* is overwritten, and *spare* is room for another one."""
    for d in range(point.size):
        if abs(point[d]) < np.inf:
            forest.low[d], forest.high[d] = min(forest.low[d], point[d]), max(forest.high[d], point[d])
    node = forest.roots[tree]
    if node < 0:
        node = new_node(forest, -1 - tree)
        forest.roots[tree] = node
        forest.bucket[node] = new_bucket(forest.buckets, LEAST, node)
    moving, above = _file(forest, node, 0, row, sign, point, spare)
    forest.used[POINTS] += 1
    for _ in range(_MOVES):
        if moving < 0 or not is_moving(forest, moving):
            return
        row, sign = draw(forest, forest.right[moving], point)
        take_point(forest, row, moving, spare)
        _file(forest, moving, above, row, sign, point, spare)


@kernel
def _file(
    forest: Forest,
    node: int,
    levels: int,
    row: int,
    sign: int,
    point: NDArray[np.float32],
    spare: NDArray[np.float32],
) -> Any:
    """Put a point into the leaf below *node* that it belongs to; *levels* are above the node.

    Return the highest moving node on the path, or NONE, and the levels above that one.
    """
    buckets, dimension, split, used = forest.buckets, forest.dimension, forest.split, forest.used
    points, moving, above = forest.points, np.int64(NONE), 0
    points[node] += 1
    while dimension[node] >= 0:
        if split[node] < np.inf:
            levels += 1
        elif moving < 0:
            moving, above = np.int64(node), levels
        node = forest.left[node] if point[dimension[node]] <= split[node] else forest.right[node]
        points[node] += 1
    number = forest.bucket[node]
    size = buckets.size[number]
    if size >= LIMIT and size == buckets.capacity[number] and _split(forest, node, spare):
        levels += 1
        node = forest.left[node] if point[dimension[node]] <= split[node] else forest.right[node]
        points[node] += 1
        number = forest.bucket[node]
    put(buckets, number, row, sign, point)
    used[DEEPEST] = max(used[DEEPEST], levels)
    if levels > most_levels(used[POINTS]) + used[EXCESS]:
        used[STEEP] = row
    return moving, above


@kernel
def draw(forest: Forest, node: int, out: NDArray[np.float32]) -> Any:
    """Write any point below a node to *out*, in no order; return its clause row and its sign.

    Multiples of the golden section stand in for random numbers, so that a saved graph goes on as it would have.
    """
    forest.used[DRAWN] += 1
    share = (np.uint64(forest.used[DRAWN]) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    rank = np.int64((share * np.uint64(forest.points[node])) >> np.uint64(32))
    while forest.dimension[node] >= 0:
        lower = forest.points[forest.left[node]]
        if rank < lower:
            node = forest.left[node]
        else:
            rank, node = rank - lower, forest.right[node]
    buckets, number = forest.buckets, forest.bucket[node]
    at, capacity = np.int64(buckets.at[number]), np.int64(buckets.capacity[number])
    for d in range(out.size):
        out[d] = buckets.coordinates[at * out.size + d * capacity + rank]
    return np.int64(buckets.rows[at + rank]), buckets.signs[at + rank]


@kernel
def _split(forest: Forest, node: int, spare: NDArray[np.float32]) -> Any:
    """Divide the points of a full leaf among two new ones; return False where they are all alike."""
    buckets = forest.buckets
    number = forest.bucket[node]
    at, size = np.int64(buckets.at[number]), buckets.size[number]
    capacity, width = np.int64(buckets.capacity[number]), buckets.tops.shape[1]
    chosen, middle = divide(buckets.coordinates, at * width, capacity, size, forest.low, forest.high)
    if chosen < 0:
        return False
    first = at * width + chosen * capacity
    over = buckets.coordinates[first : first + size] > middle
    left, right = new_node(forest, node), new_node(forest, node)
    forest.dimension[node], forest.split[node] = chosen, middle
    forest.left[node], forest.right[node] = left, right
    forest.bucket[left] = number
    buckets.node[number] = left
    forest.bucket[right] = new_bucket(buckets, LIMIT, right)
    pour(buckets, number, forest.bucket[right], over, spare)
    forest.points[left] = buckets.size[number]
    forest.points[right] = buckets.size[forest.bucket[right]]
    return True


@kernel
def divide(
    coordinates: NDArray[np.float32],
    first: Any,
    stride: Any,
    size: Any,
    low: NDArray[np.float32],
    high: NDArray[np.float32],
) -> Any:
    """Return the dimension in which points differ most, and their median there; dimension -1 if they are all alike.

    The coordinates of dimension d are the *size* ones from ``first + d * stride`` on. Some of them are up to the value
    that is returned, and some beyond it.
    """
    best, chosen = np.float32(0.0), -1
    for d in range(low.size):
        begin = first + d * stride
        spread = _spread(coordinates[begin : begin + size], low[d], high[d])
        if spread > best:
            best, chosen = spread, d
    if chosen < 0:
        return chosen, best
    values = coordinates[first + chosen * stride : first + chosen * stride + size]
    middle = np.partition(values, (size - 1) // 2)[(size - 1) // 2]
    if middle == values.max():  # nothing is beyond the median: divide just below it
        middle = np.nextafter(middle, np.float32(-np.inf))
    return chosen, middle


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
        if not spread > np.float32(0.0):  # the range overflows or vanishes, but the values do differ
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
    """Remove the point of a clause row."""
    take_point(forest, row, NONE, spare)
    forest.used[POINTS] -= 1


@kernel
def take_point(forest: Forest, row: int, top: int, spare: NDArray[np.float32]) -> None:
    """Take the point of a clause row out of its leaf, for all nodes up to *top*, or up to the root for NONE.

    A leaf that underflows is merged with its sibling if both fit into one.
    """
    buckets, dimension, parent = forest.buckets, forest.dimension, forest.parent
    number = take_out(buckets, row)
    node = buckets.node[number]
    forest.points[node] -= 1
    counted = node
    while counted != top and parent[counted] >= 0:
        counted = parent[counted]
        forest.points[counted] -= 1
    if parent[node] < 0:
        if buckets.size[number] == 0:
            forest.roots[-1 - parent[node]] = NONE
            free_bucket(buckets, number)
            free_node(forest, node)
        return
    if buckets.size[number] >= UNDERFLOW:
        return
    above = parent[node]
    sibling = forest.left[above] + forest.right[above] - node
    if dimension[sibling] >= 0:
        if buckets.size[number] == 0:  # the sibling takes the place of both
            forest.used[MOVING] -= is_moving(forest, above)
            dimension[above], forest.split[above] = dimension[sibling], forest.split[sibling]
            forest.left[above], forest.right[above] = forest.left[sibling], forest.right[sibling]
            parent[forest.left[above]] = parent[forest.right[above]] = above
            free_bucket(buckets, number)
            free_node(forest, node)
            free_node(forest, sibling)
        return
    other = forest.bucket[sibling]
    if buckets.size[number] + buckets.size[other] > LIMIT * 3 // 4:
        return
    pour(buckets, number, other, np.ones(buckets.size[number], np.bool_), spare)
    free_bucket(buckets, number)
    forest.used[MOVING] -= is_moving(forest, above)
    dimension[above], forest.bucket[above] = LEAF, other
    buckets.node[other] = above
    free_node(forest, node)
    free_node(forest, sibling)


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
    """Go on with a search, from right to left, up to the next leaf with points that may dominate the query.

    ``stack[:depth]`` has the nodes that are still to be visited: the root, to begin with. Return the new depth, and how
    many clause rows were written to *out*; both are 0 when the search is over. ``counters`` counts nodes and points.
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
            if query[dimension[node]] <= split[node]:  # the range reaches to the left as well
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
