"""An R-tree in flat arrays whose nodes carry token filters: insert, split, remove, compiled.

A node has ``config.RT_FANOUT`` places side by side, each with a child (in a leaf, a clause) and its box as float32.
Filters and boxes only widen as clauses come; a split makes those of both halves tight again, and so does a rebuild.
Removals leave them as they are, which is looser but still correct.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses
from nearcast.matching.rivals.ranking import NO_WORD, pick_rarest
from nearcast.matching.rivals.tokens import NO_TOKEN, Filters, add_token, clear, copy_tokens, room_for

__all__ = ["FREE", "NO_NODE", "ROOT", "USED", "Tree", "attach", "insert", "refill", "remove"]

NO_NODE = -1
ROOT, USED, FREE = 0, 1, 2  # of Tree.state
_FANOUT = config.RT_FANOUT
_TOKENS = config.RT_REPRESENTATIVES
_FAR = 1e30  # where an unbounded box ends when areas are compared
_HIGHEST = 32  # more levels than any tree has


class Tree(NamedTuple):
    """The nodes; the arrays have room to grow."""

    boxes: NDArray[np.float32]  # [nodes, fanout, 4]
    entries: NDArray[np.int32]  # [nodes, fanout]: clause rows in a leaf, else nodes
    keys: NDArray[np.int32]  # [nodes, fanout]: in a leaf, the rarest token of the clause
    counts: NDArray[np.int32]
    levels: NDArray[np.int32]  # 0 is a leaf
    parents: NDArray[np.int32]  # of a free node: the next free one
    open: NDArray[np.bool_]  # whether a clause without keywords is below
    state: NDArray[np.int64]  # the root, the end of the nodes, the first free one


@kernel
def attach(tree: Tree, node: int, entry: int, box: NDArray[np.float32], key: int) -> None:
    """Put an entry into a node that has a place."""
    at = tree.counts[node]
    for k in range(4):
        tree.boxes[node, at, k] = box[k]
    tree.entries[node, at] = entry
    tree.keys[node, at] = key
    tree.counts[node] = at + 1


@kernel
def _bounds(tree: Tree, node: int, box: NDArray[np.float32]) -> None:
    """Write the box around all entries of a node."""
    boxes = tree.boxes[node]
    for k in range(4):
        box[k] = boxes[0, k]
    for i in range(1, tree.counts[node]):
        for k in range(2):
            box[k] = min(box[k], boxes[i, k])
            box[k + 2] = max(box[k + 2], boxes[i, k + 2])


@kernel
def _place_in(tree: Tree, node: int, entry: int) -> int:
    """Return the place of an entry in a node that has it."""
    at = 0
    while tree.entries[node, at] != entry:
        at += 1
    return at


@kernel
def refill(tree: Tree, filters: Filters, clauses: Clauses, frequency: NDArray[np.int64], node: int) -> bool:
    """Rebuild the filter of a node from its entries; return False, with nothing changed, if the pool is full."""
    runs, keywords = clauses.keyword_runs, clauses.keywords
    count, level = tree.counts[node], tree.levels[node]
    most = count * _TOKENS
    if level > 0:
        most = 0
        for i in range(count):
            most += filters.sizes[tree.entries[node, i]]
    gathered = np.empty(most, np.int64)
    representatives = np.empty(_TOKENS, np.int32)
    open_below = False
    filled = 0
    for i in range(count):
        entry = tree.entries[node, i]
        if level == 0:
            need = pick_rarest(runs, keywords, frequency, entry, representatives)
            open_below |= need == 0
            for k in range(need):
                gathered[filled] = np.int64(representatives[k]) << 8 | need
                filled += 1
        else:
            open_below |= tree.open[entry]
            start = filters.starts[entry]
            for at in range(start, start + (1 << filters.bits[entry])):
                if filters.tokens[at] != NO_TOKEN:
                    gathered[filled] = np.int64(filters.tokens[at]) << 8 | np.int64(filters.needs[at])
                    filled += 1
    found = np.sort(gathered[:filled])
    different = 0
    for i in range(filled):
        different += i == 0 or found[i] >> 8 != found[i - 1] >> 8
    if not room_for(filters, node, different):
        return False
    for i in range(filled):
        add_token(filters, node, found[i] >> 8, found[i] & 255)
    tree.open[node] = open_below
    return True


@kernel
def _slots(size: int) -> int:
    """Return an upper bound of the slots that a filter of this many tokens takes."""
    return 4 * size + (1 << config.RT_FILTER_START)


@kernel
def _nearest(tree: Tree, node: int, box: NDArray[np.float32]) -> int:
    """Return the place of the child whose area grows least by taking the box in; the smaller one among equals."""
    boxes = tree.boxes[node]
    xmin, ymin = max(np.float64(box[0]), -_FAR), max(np.float64(box[1]), -_FAR)
    xmax, ymax = min(np.float64(box[2]), _FAR), min(np.float64(box[3]), _FAR)
    best, least, smallest = 0, np.inf, np.inf
    for i in range(tree.counts[node]):
        left, low = max(np.float64(boxes[i, 0]), -_FAR), max(np.float64(boxes[i, 1]), -_FAR)
        right, high = min(np.float64(boxes[i, 2]), _FAR), min(np.float64(boxes[i, 3]), _FAR)
        area = (right - left) * (high - low)
        grown = (max(right, xmax) - min(left, xmin)) * (max(high, ymax) - min(low, ymin)) - area
        if grown < least or (grown == least and area < smallest):
            best, least, smallest = i, grown, area
    return best


@kernel
def _new_node(tree: Tree, filters: Filters, level: int) -> Any:
    """Return an empty node: one that was freed, or the next unused one."""
    state = tree.state
    node = state[FREE]
    if node != NO_NODE:
        state[FREE] = tree.parents[node]
        clear(filters, node)
    else:
        node = state[USED]
        state[USED] += 1
    tree.counts[node] = 0
    tree.levels[node] = level
    tree.parents[node] = NO_NODE
    tree.open[node] = False
    return node


@kernel
def _split(
    tree: Tree,
    filters: Filters,
    clauses: Clauses,
    frequency: NDArray[np.int64],
    leaves: NDArray[np.int32],
    node: int,
) -> Any:
    """Split a full node in two at the median of its entries' centres, on the axis where they are spread most.

    Returns the parent, which has one entry more.
    """
    boxes, level = tree.boxes[node], tree.levels[node]
    box = np.empty(4, np.float32)
    parent = tree.parents[node]
    if parent == NO_NODE:
        parent = _new_node(tree, filters, level + 1)
        _bounds(tree, node, box)
        attach(tree, parent, node, box, NO_WORD)
        tree.parents[node] = parent
        tree.state[ROOT] = parent
        refill(tree, filters, clauses, frequency, parent)
    centres = np.empty((2, _FANOUT))
    for i in range(_FANOUT):
        for axis in range(2):
            low, high = max(np.float64(boxes[i, axis]), -_FAR), min(np.float64(boxes[i, axis + 2]), _FAR)
            centres[axis, i] = low + high
    spread = [centres[axis].max() - centres[axis].min() for axis in range(2)]
    order = np.argsort(centres[0 if spread[0] >= spread[1] else 1])
    old_boxes, old_entries, old_keys = boxes.copy(), tree.entries[node].copy(), tree.keys[node].copy()
    new = _new_node(tree, filters, level)
    tree.parents[new] = parent
    tree.counts[node] = 0
    for i in range(_FANOUT):
        at = order[i]
        target = node if i < _FANOUT // 2 else new
        entry = old_entries[at]
        attach(tree, target, entry, old_boxes[at], old_keys[at])
        if level == 0:
            leaves[entry] = target
        else:
            tree.parents[entry] = target
    _bounds(tree, node, box)
    tree.boxes[parent, _place_in(tree, parent, node)] = box
    _bounds(tree, new, box)
    attach(tree, parent, new, box, NO_WORD)
    refill(tree, filters, clauses, frequency, node)
    refill(tree, filters, clauses, frequency, new)
    return parent


@kernel
def insert(
    tree: Tree,
    filters: Filters,
    clauses: Clauses,
    frequency: NDArray[np.int64],
    leaves: NDArray[np.int32],
    rows: NDArray[np.int64],
    begin: int,
) -> Any:
    """Insert clause rows from number *begin* on.

    Returns (next, nodes, slots) when done or when a row needs that many more nodes or slots of filters; that row has
    then changed nothing.
    """
    state = tree.state
    runs, keywords = clauses.keyword_runs, clauses.keywords
    representatives = np.empty(_TOKENS, np.int32)
    box = np.empty(4, np.float32)
    path, places = np.empty(_HIGHEST, np.int64), np.empty(_HIGHEST, np.int64)
    for i in range(begin, rows.size):
        c = rows[i]
        for k in range(4):
            box[k] = clauses.boxes[c, k]
        need = pick_rarest(runs, keywords, frequency, c, representatives)
        # Down to the leaf, without a change.
        node, depth = state[ROOT], 0
        path[0] = node
        while tree.levels[node] > 0:
            places[depth] = _nearest(tree, node, box)
            node = tree.entries[node, places[depth]]
            depth += 1
            path[depth] = node
        # What it may take: filters that are full, and the filters of nodes that are going to be split.
        slots, nodes, tokens, splits = 0, 1, 0, True
        for d in range(depth, -1, -1):
            node = path[d]
            slots += 2 << filters.bits[node]
            splits &= tree.counts[node] == _FANOUT - 1
            if splits:
                if d == depth:
                    tokens = _FANOUT * _TOKENS
                else:
                    tokens *= 2  # those of the two that the child below becomes
                    for k in range(tree.counts[node]):
                        tokens += filters.sizes[tree.entries[node, k]]
                slots += 2 * _slots(tokens) + (4 << filters.bits[node])  # the last is for a new root above it
                nodes += 1
        if state[USED] + nodes > tree.counts.size or filters.used[0] + slots > filters.tokens.size:
            return i, nodes, slots
        for d in range(depth + 1):
            node = path[d]
            if d < depth:
                for k in range(2):
                    at = places[d]
                    tree.boxes[node, at, k] = min(tree.boxes[node, at, k], box[k])
                    tree.boxes[node, at, k + 2] = max(tree.boxes[node, at, k + 2], box[k + 2])
            tree.open[node] |= need == 0
            for k in range(need):
                if not add_token(filters, node, representatives[k], need):
                    start, bits = filters.starts[node], filters.bits[node]
                    room_for(filters, node, 1 << bits)
                    copy_tokens(filters, start, bits, node)
                    add_token(filters, node, representatives[k], need)
        leaf = path[depth]
        attach(tree, leaf, c, box, representatives[0] if need > 0 else NO_WORD)
        leaves[c] = leaf
        node = leaf
        while node != NO_NODE and tree.counts[node] == _FANOUT:
            node = _split(tree, filters, clauses, frequency, leaves, node)
    return rows.size, 0, 0


@kernel
def _detach(tree: Tree, node: int, entry: int) -> None:
    """Remove an entry from a node; the last one takes its place."""
    at, last = _place_in(tree, node, entry), tree.counts[node] - 1
    tree.boxes[node, at] = tree.boxes[node, last]
    tree.entries[node, at] = tree.entries[node, last]
    tree.keys[node, at] = tree.keys[node, last]
    tree.counts[node] = last


@kernel
def remove(tree: Tree, filters: Filters, leaves: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
    """Remove clause rows, and nodes that become empty; a root with a single child gives way to it."""
    state = tree.state
    for c in rows:
        node = leaves[c]
        leaves[c] = NO_NODE
        _detach(tree, node, c)
        while tree.counts[node] == 0 and node != state[ROOT]:
            parent = tree.parents[node]
            _detach(tree, parent, node)
            _free(tree, node)
            node = parent
        root = state[ROOT]
        if tree.counts[root] == 0:
            tree.levels[root] = 0
            tree.open[root] = False
            clear(filters, root)
        while tree.levels[root] > 0 and tree.counts[root] == 1:
            state[ROOT] = tree.entries[root, 0]
            _free(tree, root)
            root = state[ROOT]
            tree.parents[root] = NO_NODE


@kernel
def _free(tree: Tree, node: int) -> None:
    tree.counts[node] = 0
    tree.levels[node] = NO_NODE
    tree.parents[node] = tree.state[FREE]
    tree.state[FREE] = node
