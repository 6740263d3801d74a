"""Maintenance (section 3.3.5): insert and remove clauses in place, and list the nodes that need more than that.

The section is that of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe"
(2015). A clause goes down the tree to its leaves. There it is inserted, or its postings become tombstones: their boxes
are set to NaN, which touches nothing. The slots on the way count the clauses. A node is listed when

- it is a leaf of more than θ_p clauses that has grown by half since it was built: it is split, if that pays;
- it is a k-node or an s-node of fewer than θ_p clauses, and many changed: it becomes a leaf;
- it holds ``config.AP_TREE_COVER`` of all clauses or has doubled, and a part of its clauses have changed since it was
  last looked at: it is rebuilt if most of its clauses are in the open cut, or if the divergence of its weights exceeds
  θ_KL.

Even without a drift, weights diverge by chance: by (parts - 1)·changes/(2·w·w_old) on average. Small parts diverge by
more, so the mean is doubled, and three standard deviations are added; only what exceeds this counts as drift. The open
cut of a k-node does not count: it grows as long as new words come, and the nodes below it split by themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.postings import is_short
from nearcast.kernels.slabs import END
from nearcast.matching.structures.ap_tree.build import dummy
from nearcast.matching.structures.ap_tree.layout import (
    BOUNDS,
    BUDGET,
    BUILT,
    CHANGES,
    CHECKED,
    DEAD,
    FLAGS,
    K_NODE,
    KIND,
    LEAF,
    LIST,
    MARKS,
    OFFSET,
    POSTING,
    ROOM,
    ROW,
    SIGNATURE,
    SIZE,
    SLOTS,
    START,
    USED_NODES,
    WEIGHT,
    WIDTH,
    Population,
    Tree,
    allot_leaf,
    allot_node,
    cut_of,
    free_leaf,
    free_node,
    free_slots,
    open_child,
    parts_of,
    room_for,
    strip_of,
)

__all__ = [
    "CLAUSE", "NODE", "PARENT", "SLOT", "STEP", "add", "audit", "clear", "divergence", "drop", "open_parts", "route",
    "rows_below", "shift", "take_as_built",
]  # fmt: skip

# Columns of a way, whose rows are steps: the clause, the parent, the slot in the parent, and the node in the slot.
CLAUSE, PARENT, SLOT, NODE, STEP = 0, 1, 2, 3, 4

_START = config.POSTING_START
_LOOK = config.AP_TREE_LOOK
_TOMBSTONES = config.AP_TREE_TOMBSTONES


@kernel
def route(
    tree: Tree, population: Population, root: int, first: int, last: int, way: NDArray[np.int32]
) -> Any:
    """Write the steps that the clauses from *first* to *last* take down from a root, level by level; return how many.

    A step leads to the node in a slot of its parent, which is -1 if the slot is empty. The first steps lead to the
    root. Returns -1 when *way* is too short. The clauses go down side by side, so that the waits for nodes overlap.
    """
    nodes, floats, lows, children, edges = tree.nodes, tree.node_floats, tree.lows, tree.children, tree.edges
    boxes, offsets, words = population.boxes, population.offsets, population.words
    if last - first > len(way):
        return -1
    for c in range(first, last):
        i = c - first
        way[i, CLAUSE], way[i, PARENT], way[i, SLOT], way[i, NODE] = c, -1, -1, root
    steps, done = last - first, 0
    while done < steps:
        c, node = way[done, CLAUSE], way[done, NODE]
        done += 1
        if node < 0 or nodes[node, KIND] == LEAF:
            continue
        begin, size, rows = nodes[node, SLOTS], nodes[node, SIZE], nodes[node, ROOM]
        left = right = low = high = 0
        if nodes[node, KIND] == K_NODE:
            at = offsets[c] + nodes[node, OFFSET]
            left = size
            if at < offsets[c + 1]:
                left = max(cut_of(lows, begin, begin + size, words[at]) - begin, 0)
            right = left
        else:
            edge = nodes[node, START]
            left, right = strip_of(edges, edge, size, boxes[c, 0]), strip_of(edges, edge, size, boxes[c, 2])
            edge += size - 1
            low, high = strip_of(edges, edge, rows, boxes[c, 1]), strip_of(edges, edge, rows, boxes[c, 3])
            if dummy(boxes, c, floats, node, (right - left + 1) * (high - low + 1)):
                left = right = size * rows
                low = high = 0
        if steps + (right - left + 1) * (high - low + 1) > len(way):
            return -1
        for y in range(low, high + 1):
            for slot in range(begin + y * size + left, begin + y * size + right + 1):
                child = children[slot]
                _prefetch_node(nodes, child)
                way[steps, CLAUSE], way[steps, PARENT] = c, node
                way[steps, SLOT], way[steps, NODE] = slot, child
                steps += 1
    return steps


@kernel
def _prefetch_node(nodes: NDArray[np.int32], node: int) -> None:
    """Begin to load the cache lines of a node: two, at most three."""
    prefetch(nodes, node)
    prefetch(nodes.reshape(-1), node * WIDTH + 15)


@kernel
def _note(
    nodes: NDArray[np.int32],
    node: int,
    change: int,
    leaf: int,
    large: int,
    list_: NDArray[np.int32],
    listed: int,
) -> Any:
    """Count a change of a node, and list the node if it needs a look; return the length of the list."""
    nodes[node, WEIGHT] += change
    nodes[node, CHANGES] += 1
    weight, built, changes = nodes[node, WEIGHT], nodes[node, BUILT], nodes[node, CHANGES]
    if nodes[node, KIND] == LEAF:
        wanted = change > 0 and weight > leaf and 2 * weight > 3 * built and nodes[node, FLAGS] > 0
        wanted = wanted and nodes[node, CHECKED] == 0
    elif weight < leaf:
        wanted = 2 * changes >= weight and nodes[node, CHECKED] >= 0
    else:
        wanted = (weight >= large or weight > 2 * built) and (changes - nodes[node, CHECKED]) * _LOOK > built
    if wanted and listed < list_.size:
        nodes[node, CHECKED] = changes if weight >= leaf else -1
        list_[listed] = node
        listed += 1
    return listed


@kernel
def add(
    tree: Tree,
    population: Population,
    way: NDArray[np.int32],
    begin: int,
    leaf: int,
    large: int,
    list_: NDArray[np.int32],
    listed: int,
) -> Any:
    """Insert clauses along the steps from *begin* on, until done or an array is full; return (next step, nodes listed).

    *leaf* is θ_p. *large* is the least number of clauses for which the divergence of a node is computed.
    """
    nodes, floats, children, weights, used = (
        tree.nodes,
        tree.node_floats,
        tree.children,
        tree.weights,
        tree.used,
    )
    lows, highs, postings, posting_boxes = tree.lows, tree.highs, tree.postings, tree.posting_boxes
    boxes, rows, marks = population.boxes, population.rows, population.marks
    offsets, words = population.offsets, population.words
    for i in range(begin, len(way)):
        node = way[i, NODE]
        if node >= 0 and nodes[node, KIND] == LEAF:
            prefetch(postings, nodes[node, START] + nodes[node, SIZE])
    for i in range(begin, len(way)):
        c, parent, slot, node = way[i, CLAUSE], way[i, PARENT], way[i, SLOT], way[i, NODE]
        if node < 0:
            node = children[slot]  # a clause before this one may have opened it
        if node < 0:
            if used[USED_NODES] == len(nodes):
                return i, listed
            node = allot_node(tree)
            open_child(tree, parent, slot, node)
        is_leaf = nodes[node, KIND] == LEAF
        if is_leaf and nodes[node, SIZE] == nodes[node, ROOM] and not _widen(tree, node):
            return i, listed
        if slot >= 0:
            weights[slot] += 1
            at = offsets[c] + nodes[parent, OFFSET]
            if nodes[parent, KIND] == K_NODE and at < offsets[c + 1]:
                if not lows[slot] <= words[at] <= highs[slot]:
                    nodes[node, LIST] = 0  # messages with this word have not visited the node
                lows[slot] = min(lows[slot], words[at])
                highs[slot] = max(highs[slot], words[at])
        if is_leaf:
            at = _place_for(tree, node, rows[c])
            for k in range(4):
                posting_boxes[at, k] = boxes[c, k]
            for k in range(2):
                floats[node, BOUNDS + k] = min(floats[node, BOUNDS + k], boxes[c, k])
                floats[node, BOUNDS + 2 + k] = max(floats[node, BOUNDS + 2 + k], boxes[c, 2 + k])
            postings[at, ROW] = rows[c]
            for k in range(MARKS):
                postings[at, SIGNATURE + k] = marks[c, k]
        listed = _note(nodes, node, 1, leaf, large, list_, listed)
    return len(way), listed


@kernel
def _place_for(tree: Tree, node: int, row: int) -> Any:
    """Make a place for a row in a leaf that has room, and return it; the caller writes the posting.

    Postings are by ascending row, so new rows come last. A row that was given out again belongs further to the front,
    perhaps on its own tombstone.
    """
    nodes, postings = tree.nodes, tree.postings
    start, end = nodes[node, START], nodes[node, START] + nodes[node, SIZE]
    at = end
    while at > start and postings[at - 1, ROW] > row:
        at -= 1
    if at > start and postings[at - 1, ROW] == row:
        nodes[node, DEAD] -= 1
        return at - 1
    for moved in range(end, at, -1):
        for k in range(POSTING):
            postings[moved, k] = postings[moved - 1, k]
    nodes[node, SIZE] += 1
    return at


@kernel
def _widen(tree: Tree, node: int) -> Any:
    """Make room in a full leaf: remove its tombstones if they are many, or else move it to a larger room.

    Returns False if the pool is too short for that.
    """
    nodes = tree.nodes
    size = nodes[node, SIZE]
    if nodes[node, DEAD] * 2 * _TOMBSTONES < size or nodes[node, DEAD] == 0:
        return _move(tree, node, size + 1)
    _bury(tree, node)
    return True


@kernel
def _move(tree: Tree, node: int, room: int) -> Any:
    """Move a leaf, without its tombstones, to a room for this many postings; tell whether the pool has one."""
    nodes, postings = tree.nodes, tree.postings
    if tree.posting_slabs[END] + 2 * room + _START > len(postings):
        return False
    start, size, old = nodes[node, START], nodes[node, SIZE], nodes[node, ROOM]
    allot_leaf(tree, node, room, False)
    nodes[node, SIZE] = _copy_living(tree.posting_boxes, postings, start, size, postings, nodes[node, START])
    nodes[node, DEAD] = 0
    free_leaf(tree, start, old)
    return True


@kernel
def _bury(tree: Tree, node: int) -> None:
    """Remove the tombstones of a leaf, and give it a smaller room if it has become short."""
    nodes, start = tree.nodes, tree.nodes[node, START]
    nodes[node, SIZE] = _copy_living(
        tree.posting_boxes, tree.postings, start, nodes[node, SIZE], tree.postings, start
    )
    nodes[node, DEAD] = 0
    if is_short(nodes[node, SIZE], nodes[node, ROOM]):
        _move(tree, node, 2 * nodes[node, SIZE])  # it stays where it is if the pool is full


@kernel
def _copy_living(
    posting_boxes: NDArray[np.float32],
    postings: NDArray[np.int32],
    start: int,
    size: int,
    out: NDArray[np.int32],
    at: int,
) -> Any:
    """Copy the living postings of a leaf; return how many there are."""
    kept = 0
    for i in range(start, start + size):
        if not np.isnan(posting_boxes[i, 0]):
            for k in range(POSTING):
                out[at + kept, k] = postings[i, k]
            kept += 1
    return kept


@kernel
def drop(
    tree: Tree,
    population: Population,
    way: NDArray[np.int32],
    begin: int,
    leaf: int,
    large: int,
    list_: NDArray[np.int32],
    listed: int,
) -> Any:
    """Remove clauses along all the steps of a way; *begin* is 0. Return (the number of steps, nodes listed)."""
    nodes, weights, posting_boxes = tree.nodes, tree.weights, tree.posting_boxes
    leaves, spans, rows = _spans(tree, population, way)
    _find(tree.postings, spans, rows)
    for i in range(begin, len(way)):
        if way[i, SLOT] >= 0:
            weights[way[i, SLOT]] -= 1
        listed = _note(nodes, way[i, NODE], -1, leaf, large, list_, listed)
    for i in range(leaves.size):
        nodes[leaves[i], DEAD] += 1
        for k in range(4):
            posting_boxes[spans[i, 0], k] = np.nan
    for node in leaves:  # only after all are marked, because this moves postings
        if nodes[node, DEAD] * _TOMBSTONES > nodes[node, SIZE]:
            _bury(tree, node)
    return len(way), listed


@kernel
def shift(tree: Tree, population: Population, way: NDArray[np.int32]) -> None:
    """Overwrite the boxes of clauses that stay in the leaves at the ends of a way."""
    nodes, floats, posting_boxes = tree.nodes, tree.node_floats, tree.posting_boxes
    _, spans, rows = _spans(tree, population, way)
    _find(tree.postings, spans, rows)
    at = 0
    for i in range(len(way)):
        node, c = way[i, NODE], way[i, CLAUSE]
        if nodes[node, KIND] == LEAF:
            for k in range(4):
                posting_boxes[spans[at, 0], k] = population.boxes[c, k]
            for k in range(2):
                floats[node, BOUNDS + k] = min(floats[node, BOUNDS + k], population.boxes[c, k])
                floats[node, BOUNDS + 2 + k] = max(floats[node, BOUNDS + 2 + k], population.boxes[c, 2 + k])
            at += 1


@kernel
def _spans(tree: Tree, population: Population, way: NDArray[np.int32]) -> Any:
    """Return for each step to a leaf: the leaf, its first and last posting, and the clause row."""
    nodes, clause_rows = tree.nodes, population.rows
    leaves, rows = np.empty(len(way), np.int32), np.empty(len(way), np.int32)
    spans = np.empty((len(way), 2), np.int32)
    count = 0
    for i in range(len(way)):
        node = way[i, NODE]
        if node >= 0 and nodes[node, KIND] == LEAF:
            leaves[count], rows[count] = node, clause_rows[way[i, CLAUSE]]
            spans[count, 0] = nodes[node, START]
            spans[count, 1] = nodes[node, START] + nodes[node, SIZE] - 1
            count += 1
    return leaves[:count], spans[:count], rows[:count]


@kernel
def _find(postings: NDArray[np.int32], spans: NDArray[np.int32], rows: NDArray[np.int32]) -> None:
    """Narrow each span of postings, which are by ascending row, to where the given row is or would be.

    The binary searches take turns, so that their waits for memory overlap.
    """
    for i in range(rows.size):
        prefetch(postings, (spans[i, 0] + spans[i, 1]) >> 1)
    busy = rows.size > 0
    while busy:
        busy = False
        for i in range(rows.size):
            low, high = spans[i, 0], spans[i, 1]
            if low < high:
                middle = (low + high) >> 1
                # The comparison counts as 0 or 1, because a branch on it could not be predicted.
                after = postings[middle, ROW] < rows[i]
                low += (middle + 1 - low) * after
                high -= (high - middle) * (1 - after)
                prefetch(postings, (low + high) >> 1)
                spans[i, 0], spans[i, 1] = low, high
                busy = True


@kernel
def divergence(tree: Tree, node: int) -> Any:
    """Return D_KL(w_old | w) of the weights of a node's parts (section 3.3.5), less what chance explains."""
    nodes, built, weights = tree.nodes, tree.built, tree.weights
    first, size = nodes[node, SLOTS], nodes[node, SIZE]
    by_words = nodes[node, KIND] == K_NODE
    end = first + (size if by_words else size * nodes[node, ROOM]) + 1
    opened = end - 2 if by_words else end
    parts = end - first - by_words
    # Half a clause is added to every part, so that an empty one does not make the divergence infinite.
    old = now = 0.5 * parts
    for slot in range(first, end):
        if slot != opened:
            old += built[slot]
            now += weights[slot]
    found = 0.0
    for slot in range(first, end):
        if slot != opened:
            share = (built[slot] + 0.5) / old
            found += share * np.log(share * now / (weights[slot] + 0.5))
    free = parts - 1
    chance = (2.0 * free + 3.0 * np.sqrt(2.0 * free)) / 2 * nodes[node, CHANGES] / (old * now)
    return found - chance * max(1.0, now / max(nodes[node, WEIGHT], 1))


@kernel
def rows_below(tree: Tree, stack: NDArray[np.int32], top: int, out: NDArray[np.int32], count: int) -> Any:
    """Write the rows of all living postings below the nodes on the stack to *out*, from *count* on.

    Ends when the stack is empty, or when *out* has no room for the leaf on its top. Returns the heights of the stack
    and of *out*. A clause with several postings is written several times.
    """
    nodes, postings, posting_boxes = tree.nodes, tree.postings, tree.posting_boxes
    while top > 0:
        at = stack[top - 1]
        if nodes[at, KIND] == LEAF:
            start, size = nodes[at, START], nodes[at, SIZE]
            if count + size > out.size:
                break
            for i in range(start, start + size):
                out[count] = postings[i, ROW]
                count += not np.isnan(posting_boxes[i, 0])
        top = _replace_by_children(tree, stack, top)
    return top, count


@kernel
def clear(tree: Tree, stack: NDArray[np.int32], top: int, limit: int, kept: int) -> Any:
    """Give back at most *limit* nodes below those on the stack, these included, with all that they own.

    The node *kept* gives back what it owns, but not itself. Returns the new height of the stack.
    """
    nodes = tree.nodes
    for _ in range(limit):
        if top == 0:
            break
        at = stack[top - 1]
        top = _replace_by_children(tree, stack, top)
        if nodes[at, KIND] == LEAF:
            free_leaf(tree, nodes[at, START], nodes[at, ROOM])
        else:
            free_slots(tree, nodes[at, SLOTS], parts_of(nodes, at) + 1)
        if at != kept:
            free_node(tree, at)
    return top


@kernel
def _replace_by_children(tree: Tree, stack: NDArray[np.int32], top: int) -> Any:
    """Replace the node on the top of the stack by its children, if it has any; return the new height."""
    nodes, children = tree.nodes, tree.children
    at = stack[top - 1]
    top -= 1
    if nodes[at, KIND] != LEAF:
        first = nodes[at, SLOTS]
        for slot in range(first, first + parts_of(nodes, at) + 1):
            if children[slot] >= 0:
                _prefetch_node(nodes, children[slot])
                stack[top] = children[slot]
                top += 1
    return top


@kernel
def open_parts(tree: Tree, node: int, slots: NDArray[np.int32], scale: float) -> None:
    """Make leaves in empty *slots* of a node, with room for *scale* clauses for each time that a slot is named."""
    slots = np.sort(slots)
    first = 0
    for i in range(slots.size):
        if i + 1 == slots.size or slots[i + 1] != slots[i]:
            child = allot_node(tree)
            open_child(tree, node, slots[i], child)
            allot_leaf(tree, child, room_for(int((i + 1 - first) * scale)), False)
            first = i + 1


@kernel
def take_as_built(tree: Tree, node: int) -> None:
    """Take the weights of a node that was filled clause by clause as those that it was built with.

    The budget of the cells of an s-node is that of the node, divided by the number of cells that a clause is in.
    """
    nodes, floats, children, weights = tree.nodes, tree.node_floats, tree.children, tree.weights
    nodes[node, BUILT] = nodes[node, WEIGHT]
    nodes[node, CHANGES] = nodes[node, CHECKED] = 0
    if nodes[node, KIND] != LEAF:
        first = nodes[node, SLOTS]
        end = first + parts_of(nodes, node) + 1
        copies = 0
        for slot in range(first, end):
            tree.built[slot] = weights[slot]
            copies += weights[slot]
        for slot in range(first, end):
            if children[slot] >= 0 and copies > 0:
                floats[children[slot], BUDGET] = floats[node, BUDGET] * nodes[node, WEIGHT] / copies


@kernel
def audit(tree: Tree, population: Population, way: NDArray[np.int32]) -> Any:
    """Return how many steps end where the clause should be but is not, and how many lead to leaves."""
    nodes, postings, posting_boxes = tree.nodes, tree.postings, tree.posting_boxes
    leaves, spans, rows = _spans(tree, population, way)
    _find(postings, spans, rows)
    lost = 0
    for i in range(len(way)):
        lost += way[i, NODE] < 0
    for i in range(leaves.size):
        at = spans[i, 0]
        lost += nodes[leaves[i], SIZE] == 0 or postings[at, ROW] != rows[i] or np.isnan(posting_boxes[at, 0])
    return lost, leaves.size
