"""Subtrees that became too deep are built anew, each at the medians of its own points.

Insertions in a bad order, along a rising attribute for instance, always split the same leaf, and the tree becomes a
list. When an insertion ends at a depth that a tree of this many points need not have, the path is walked up to the
lowest node under which there are too many levels for the points, and that subtree alone is rebuilt. This is what
scapegoat trees do (Galperin and Rivest, "Scapegoat Trees", 1993): insertions in order rebuild a small subtree now and
then, and the whole tree about each time that it has doubled. Insertions in random order rebuild nothing.

No insertion waits for a large subtree. Of its points, some that are drawn at random are built anew at once; they have
about the medians of all. The others follow gradually, a few with each insertion that comes that way
(:func:`~nearcast.covering.forest.insert_point`).

Points that are much alike may need a deep tree. Where a rebuilt subtree is still deep, all paths may be twice as deep
from then on, so that it is not rebuilt at each insertion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.covering.buckets import LEAST, LIMIT, free_bucket, new_bucket, put
from nearcast.covering.forest import (
    DEEPEST,
    EXCESS,
    MOVING,
    NONE,
    REBUILDS,
    STEEP,
    Forest,
    ForestArrays,
    deepest,
    divide,
    draw,
    free_node,
    is_moving,
    most_levels,
    new_node,
    take_point,
)
from nearcast.kernels import kernel
from nearcast.kernels.slabs import size_class

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["balance"]

_AT_ONCE = config.COVERING_AT_ONCE
_DRAWN = config.COVERING_DRAWN


def balance(arrays: ForestArrays) -> None:
    """Rebuild the subtree that the last insertion made too deep, if it did."""
    row = int(arrays.view.used[STEEP])
    if row < 0:
        return
    arrays.view.used[STEEP] = NONE
    node = _too_deep(arrays.view, row)
    if node >= 0:
        arrays.make_room_to_rebuild(min(int(arrays.view.points[node]), _AT_ONCE))
        _rebuild(arrays.view, node)


@kernel
def _too_deep(forest: Forest, row: int) -> Any:
    """Return the lowest node above the point of a clause row that has too many levels below it, or NONE."""
    number = forest.buckets.homes[row]
    if number < 0:  # the point has left
        return np.int64(NONE)
    node: Any = np.int64(forest.buckets.node[number])
    levels = 0
    while levels <= most_levels(forest.points[node]) + forest.used[EXCESS]:
        node = np.int64(forest.parent[node])
        if node < 0:
            return np.int64(NONE)
        levels += not is_moving(forest, node)
    return node


@kernel
def _rebuild(forest: Forest, root: int) -> None:
    """Build the subtree of a node anew: at once if it is small, otherwise only some of its points."""
    used, width, total = forest.used, forest.low.size, forest.points[root]
    points = total if total <= _AT_ONCE else _DRAWN
    rows, signs = np.empty(points, np.int32), np.empty(points, np.uint64)
    coordinates = np.empty((width, points), np.float32)
    target = root
    if total <= _AT_ONCE:
        _collect(forest, root, rows, signs, coordinates)
    else:
        target = _set_aside(forest, root)
        point, spare, old = np.empty(width, np.float32), np.empty(width, np.float32), forest.right[root]
        for i in range(points):
            row, sign = draw(forest, old, point)
            take_point(forest, row, old, spare)
            rows[i], signs[i], coordinates[:, i] = row, sign, point
    height = _build(forest, target, rows, signs, coordinates.reshape(-1))
    levels, node = height, forest.parent[target]
    while node >= 0:
        levels += not is_moving(forest, node)
        node = forest.parent[node]
    used[DEEPEST] = max(used[DEEPEST], levels)
    while points < total:  # what follows makes the tree as many levels higher
        points, height = 2 * points, height + 1
    used[EXCESS] = max(used[EXCESS], 2 * height - most_levels(total))
    used[REBUILDS] += 1


@kernel
def _set_aside(forest: Forest, node: int) -> Any:
    """Make an inner node a moving one, with its subtree on the right; return the node on the left, to be built."""
    dimension, split, left, right, parent = (
        forest.dimension,
        forest.split,
        forest.left,
        forest.right,
        forest.parent,
    )
    new, old = new_node(forest, node), new_node(forest, node)
    dimension[old], split[old], forest.points[old] = dimension[node], split[node], forest.points[node]
    left[old], right[old] = left[node], right[node]
    parent[left[old]] = parent[right[old]] = old
    dimension[node], split[node], left[node], right[node] = 0, np.inf, new, old
    forest.used[MOVING] += 1
    return new


@kernel
def _build(
    forest: Forest,
    root: int,
    rows: NDArray[np.int32],
    signs: NDArray[np.uint64],
    coordinates: NDArray[np.float32],
) -> Any:
    """Divide points at medians below a node until each part fits into a bucket; return how many levels there are.

    Coordinates are given dimension by dimension.
    """
    buckets, width, points = forest.buckets, forest.low.size, rows.size
    # Parts that are still to be placed: a node, its points (from, to), the levels above it in the subtree.
    parts = np.empty((points + 1, 4), np.int64)
    parts[0, :] = root, 0, points, 0
    point = np.empty(width, np.float32)
    count, height = 1, 0
    while count > 0:
        count -= 1
        node, begin, end, level = parts[count, 0], parts[count, 1], parts[count, 2], parts[count, 3]
        forest.points[node] = end - begin
        height = max(height, level)
        chosen, middle = -1, np.float32(0.0)
        if end - begin > LIMIT:
            chosen, middle = divide(coordinates, begin, points, end - begin, forest.low, forest.high)
        if chosen < 0:
            number = new_bucket(buckets, 1 << size_class(max(end - begin, LEAST)), node)
            forest.dimension[node], forest.bucket[node] = -1, number
            for i in range(begin, end):
                for d in range(width):
                    point[d] = coordinates[d * points + i]
                put(buckets, number, rows[i], signs[i], point)
            continue
        first = chosen * points
        over = coordinates[first + begin : first + end] > middle
        cut = begin + _part(rows[begin:end], over)
        _part(signs[begin:end], over)
        for d in range(width):
            _part(coordinates[d * points + begin : d * points + end], over)
        left, right = new_node(forest, node), new_node(forest, node)
        forest.dimension[node], forest.split[node] = chosen, middle
        forest.left[node], forest.right[node] = left, right
        parts[count, :] = left, begin, cut, level + 1
        parts[count + 1, :] = right, cut, end, level + 1
        count += 2
    return height


@kernel
def _collect(
    forest: Forest,
    root: int,
    rows: NDArray[np.int32],
    signs: NDArray[np.uint64],
    coordinates: NDArray[np.float32],
) -> None:
    """Write out all points below a node, and free its buckets and all nodes but itself."""
    buckets, width = forest.buckets, forest.low.size
    stack = np.empty(deepest(forest) + 2, np.int32)
    stack[0] = root
    depth, filled = 1, 0
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if forest.dimension[node] >= 0:
            forest.used[MOVING] -= is_moving(forest, node)
            stack[depth], stack[depth + 1] = forest.left[node], forest.right[node]
            depth += 2
        else:
            number = forest.bucket[node]
            at, size = np.int64(buckets.at[number]), buckets.size[number]
            capacity = np.int64(buckets.capacity[number])
            for i in range(size):
                rows[filled + i], signs[filled + i] = buckets.rows[at + i], buckets.signs[at + i]
                for d in range(width):
                    coordinates[d, filled + i] = buckets.coordinates[at * width + d * capacity + i]
            filled += size
            free_bucket(buckets, number)
        if node != root:
            free_node(forest, node)


@kernel
def _part(values: NDArray[Any], over: NDArray[np.bool_]) -> Any:
    """Move the values that are *over* behind the others, in the same order; return how many the others are."""
    before, kept = values.copy(), 0
    for i in range(over.size):
        if not over[i]:
            values[kept] = before[i]
            kept += 1
    at = kept
    for i in range(over.size):
        if over[i]:
            values[at] = before[i]
            at += 1
    return kept
