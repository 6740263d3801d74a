"""Subtrees that became too deep are built anew, each at the medians of its own points.

Insertions in a bad order, along a rising attribute for instance, always split the same leaf, and the tree becomes a
list. When an insertion ends at a depth that a tree of so many points need not have, the path is walked up to the lowest
node under which there are too many levels for the points, and that subtree alone is rebuilt. This is what scapegoat
trees do (Galperin and Rivest, "Scapegoat Trees", 1993): insertions in order rebuild a small subtree now and then, and
the whole tree about each time that it has doubled. Insertions in random order rebuild nothing.

Points that are much alike may need a deep tree. Where a rebuilt subtree is still deep, all paths may be twice as deep
from then on, lest it be rebuilt at each insertion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.covering.buckets import LEAST, LIMIT, free_bucket, new_bucket, put
from nearcast.covering.forest import (
    DEEPEST,
    EXCESS,
    NONE,
    REBUILDS,
    STEEP,
    Forest,
    ForestArrays,
    divide,
    free_node,
    most_levels,
    new_node,
)
from nearcast.kernels import kernel
from nearcast.kernels.slabs import size_class

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["balance"]


def balance(arrays: ForestArrays) -> None:
    """Rebuild the subtree that the last insertion made too deep, if it did."""
    row = int(arrays.view.used[STEEP])
    if row < 0:
        return
    arrays.view.used[STEEP] = NONE
    node, points = _too_deep(arrays.view, row)
    if node >= 0:
        arrays.make_room_to_rebuild(points)
        _rebuild(arrays.view, node, points)


@kernel
def _too_deep(forest: Forest, row: int) -> Any:
    """Return the lowest node above the point of a clause row that has too many levels below it, and its points."""
    buckets, parent = forest.buckets, forest.parent
    number = buckets.homes[row]
    if number < 0:  # the point has left
        return np.int64(NONE), 0
    node, points, levels = np.int64(buckets.node[number]), np.int64(buckets.size[number]), 0
    stack = np.empty(forest.used[DEEPEST] + 2, np.int32)
    while levels <= most_levels(points) + forest.used[EXCESS]:
        above = np.int64(parent[node])
        if above < 0:
            return np.int64(NONE), 0
        points += _count(forest, forest.left[above] + forest.right[above] - node, stack)
        node, levels = above, levels + 1
    return node, points


@kernel
def _count(forest: Forest, root: int, stack: NDArray[np.int32]) -> Any:
    """Return how many points are below a node; *stack* is room for a path."""
    points, depth = 0, 1
    stack[0] = root
    while depth > 0:
        depth -= 1
        node = stack[depth]
        while forest.dimension[node] >= 0:
            stack[depth] = forest.left[node]
            depth += 1
            node = forest.right[node]
        points += forest.buckets.size[forest.bucket[node]]
    return points


@kernel
def _rebuild(forest: Forest, root: int, points: int) -> None:
    """Take all points from below a node, and divide them at medians until each part fits into a bucket."""
    buckets, width = forest.buckets, forest.low.size
    rows, signs = np.empty(points, np.int32), np.empty(points, np.uint64)
    coordinates = np.empty(width * points, np.float32)  # dimension by dimension
    _collect(forest, root, rows, signs, coordinates)
    # Parts that are still to be placed: a node, its points (from, to), the levels above it in the subtree.
    parts = np.empty((points + 1, 4), np.int64)
    parts[0, :] = root, 0, points, 0
    point = np.empty(width, np.float32)
    count, height = 1, 0
    while count > 0:
        count -= 1
        node, begin, end, level = parts[count, 0], parts[count, 1], parts[count, 2], parts[count, 3]
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
    depth, node = height, forest.parent[root]
    while node >= 0:
        depth, node = depth + 1, forest.parent[node]
    used = forest.used
    used[DEEPEST] = max(used[DEEPEST], depth)
    used[EXCESS] = max(used[EXCESS], 2 * height - most_levels(points))
    used[REBUILDS] += 1


@kernel
def _collect(
    forest: Forest,
    root: int,
    rows: NDArray[np.int32],
    signs: NDArray[np.uint64],
    coordinates: NDArray[np.float32],
) -> None:
    """Write out all points below a node, and free its buckets and all nodes but itself."""
    buckets, width, points = forest.buckets, forest.low.size, rows.size
    stack = np.empty(forest.used[DEEPEST] + 2, np.int32)
    stack[0] = root
    depth, filled = 1, 0
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if forest.dimension[node] >= 0:
            stack[depth], stack[depth + 1] = forest.left[node], forest.right[node]
            depth += 2
        else:
            number = forest.bucket[node]
            at, size = np.int64(buckets.at[number]), buckets.size[number]
            capacity = np.int64(buckets.capacity[number])
            for i in range(size):
                rows[filled + i], signs[filled + i] = buckets.rows[at + i], buckets.signs[at + i]
                for d in range(width):
                    coordinates[d * points + filled + i] = buckets.coordinates[at * width + d * capacity + i]
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
