"""The PT-Quadtree as flat arrays, and its construction.

This is section 4.1 of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015). A
region is a cell of a grid of 2^level by 2^level cells. Cells are compared as whole numbers, and the same function
computes them for boxes and for messages, so a message always shares a cell with the boxes that it touches.

A clause goes down to all regions that its box meets, until a region is a leaf or the next level would spread the clause
over too many: it stops at the deepest level on which its box is at most QUADTREE_SPAN cells wide and high, so it has at
most (QUADTREE_SPAN + 1)^2 entries. Inner nodes therefore have lists too, as in the MX-CIF quadtree that the paper
mentions. An unbounded box stays at the root. Every list is sorted by item, and has its own pivotal tokens.

An entry of a list is a rounded box, an item, and sixteen bits of the clause's rarest token, which rule out almost all
clauses that the message does not satisfy. For the rest, the card of the item decides: it holds the clause row and its
tokens side by side in half a cache line, so that an answer costs one memory access instead of one for each column.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import offsets_of
from nearcast.errors import InputError, shown, whole_number
from nearcast.kernels import kernel
from nearcast.matching.structures.mbr_trie.trie import bound
from nearcast.matching.structures.pt_quadtree.pivots import node_sets, parents_of, pivotal_tokens
from nearcast.matching.structures.token_order import LAST

__all__ = [
    "Entries",
    "Frame",
    "Quadtree",
    "build_quadtree",
    "by_node",
    "cell",
    "cells_of",
    "check_quadtree",
    "check_thresholds",
    "crowded",
    "quadtree_stats",
    "sum_up",
    "write_cards",
]

_FINEST = config.QUADTREE_LEVELS
_SLOT = config.TOKEN_BITS - 1
_SHOWN = config.QUADTREE_CARD - 1  # tokens on a card


class Frame(NamedTuple):
    """The region of the root."""

    x: float
    y: float
    width: float
    height: float


class Quadtree(NamedTuple):
    """The nodes, level by level; node 0 is the root."""

    first: NDArray[np.int32]  # first of four children, or 0 for a leaf
    columns: NDArray[np.int32]  # the cell of the node on its level
    rows: NDArray[np.int32]
    boxes: NDArray[np.float32]  # [nodes, 4]: the MBR of the entries of the node and its descendants
    starts: NDArray[np.int64]  # the beginning of each node's list, and the end
    under: NDArray[np.int64]  # entries in the lists of the node and its descendants
    leaves: NDArray[np.int64]  # leaves among the descendants
    cover_offsets: NDArray[np.int64]  # CSet
    cover: NDArray[np.int32]
    rest_offsets: NDArray[np.int64]  # NSet
    rest: NDArray[np.int32]
    always: NDArray[np.bool_]  # a clause under the node has no token, so every message must enter
    levels: NDArray[np.int64]  # the first node of each level, and the end
    falling: NDArray[np.int64]  # entries that a leaf would hand down if divided, including removed ones


class Entries(NamedTuple):
    """The lists, one after the other."""

    boxes: NDArray[np.float32]  # [n, 4]
    items: NDArray[np.int32]  # ascending in a list
    heads: NDArray[np.uint16]  # the low bits of the rarest token
    # [items, QUADTREE_CARD]: the clause row, then the ranks of tokens, counted from 1; 0 stands for none.
    cards: NDArray[np.int32]


def _frame_over(boxes: NDArray[np.float32]) -> Frame:
    """Return the smallest region that covers all finite boxes."""
    finite = boxes[np.isfinite(boxes).all(axis=1)].astype(np.float64)
    if not len(finite):
        return Frame(0.0, 0.0, 1.0, 1.0)
    x, y = finite[:, 0].min(), finite[:, 1].min()
    width, height = finite[:, 2].max() - x, finite[:, 3].max() - y
    return Frame(float(x), float(y), float(max(width, 1e-300)), float(max(height, 1e-300)))


@kernel
def cell(value: float, low: float, extent: float) -> int:
    """Return the column (or row) of a coordinate on the finest level; the outermost ones extend without end."""
    cells = 1 << _FINEST
    return int(min(max(np.floor((value - low) / extent * cells), 0.0), cells - 1.0))


@kernel
def cells_of(frame: Frame, boxes: NDArray[np.float32], span: int, out: NDArray[np.int32]) -> None:
    """Write for each box its first and last column and row on the finest level, and the deepest level it may reach."""
    for i in range(boxes.shape[0]):
        xmin, ymin = np.float64(boxes[i, 0]), np.float64(boxes[i, 1])
        xmax, ymax = np.float64(boxes[i, 2]), np.float64(boxes[i, 3])
        out[i, 0] = cell(xmin, frame.x, frame.width)
        out[i, 1] = cell(ymin, frame.y, frame.height)
        out[i, 2] = cell(xmax, frame.x, frame.width)
        out[i, 3] = cell(ymax, frame.y, frame.height)
        level = 0
        while (
            level < _FINEST
            and (xmax - xmin) * (2 << level) <= span * frame.width
            and (ymax - ymin) * (2 << level) <= span * frame.height
        ):
            level += 1
        out[i, 4] = level


@kernel
def _push_down(
    pairs: NDArray[np.int32],
    cells: NDArray[np.int32],
    first: NDArray[np.int32],
    columns: NDArray[np.int32],
    rows: NDArray[np.int32],
    level: int,
    out: NDArray[np.int32],
) -> Any:
    """Write (child, item) for each child whose region the item of a pair (node, item) meets; return how many."""
    filled = 0
    shift = _FINEST - (level + 1)
    for i in range(pairs.shape[0]):
        node, item = pairs[i, 0], pairs[i, 1]
        left = max(cells[item, 0] >> shift, 2 * columns[node])
        low = max(cells[item, 1] >> shift, 2 * rows[node])
        right = min(cells[item, 2] >> shift, 2 * columns[node] + 1)
        high = min(cells[item, 3] >> shift, 2 * rows[node] + 1)
        for row in range(low, high + 1):
            for column in range(left, right + 1):
                out[filled, 0] = first[node] + 2 * (row & 1) + (column & 1)
                out[filled, 1] = item
                filled += 1
    return filled


@kernel
def by_node(pairs: NDArray[np.int32], base: int, starts: NDArray[np.int64], out: NDArray[np.int32]) -> None:
    """Sort pairs stably by node; *starts* has the beginnings of the lists of the nodes from *base* on."""
    for i in range(pairs.shape[0]):
        node = pairs[i, 0] - base
        out[starts[node]] = pairs[i]
        starts[node] += 1


def build_quadtree(
    clause_rows: NDArray[np.int32],
    boxes: NDArray[np.float32],
    offsets: NDArray[np.int64],
    tokens: NDArray[np.int32],
    tau_num: int,
    tau_area: float,
) -> tuple[Frame, Quadtree, Entries]:
    """Build a quadtree over items 0, 1, … with the given boxes and tokens; *clause_rows* are as in :class:`Postings`.

    A region is not divided if at most *tau_num* items would go down, or if its share of the root's area is below
    *tau_area*.
    """
    frame = _frame_over(boxes)
    cells = np.empty((len(boxes), 5), np.int32)
    cells_of(frame, boxes, config.QUADTREE_SPAN, cells)
    columns, rows = [np.zeros(1, np.int32)], [np.zeros(1, np.int32)]
    firsts, lists, pressures, levels = [], [], [], [0, 1]
    pairs = np.column_stack([np.zeros(len(boxes), np.int32), np.arange(len(boxes), dtype=np.int32)])
    level = 0
    while True:
        begin, end = levels[-2:]
        nodes = end - begin
        down = cells[pairs[:, 1], 4] > level
        falling = np.bincount(pairs[down, 0] - begin, minlength=nodes)
        split = falling > tau_num
        split &= _may_divide(level, tau_area)
        pressures.append(np.where(split, 0, falling))
        down &= split[pairs[:, 0] - begin]
        lists.append(pairs[~down])
        child = np.zeros(nodes, np.int32)
        child[split] = end + 4 * np.arange(split.sum())
        firsts.append(child)
        if not split.any():
            break
        node_first = np.concatenate([np.zeros(begin, np.int32), child])
        node_columns, node_rows = np.concatenate(columns), np.concatenate(rows)
        pairs = pairs[down]
        pushed = np.empty((4 * len(pairs), 2), np.int32)
        filled = _push_down(pairs, cells, node_first, node_columns, node_rows, level, pushed)
        pushed = pushed[:filled]
        corner = np.tile(np.arange(4, dtype=np.int32), int(split.sum()))
        columns.append(2 * np.repeat(columns[-1][split], 4) + (corner & 1))
        rows.append(2 * np.repeat(rows[-1][split], 4) + (corner >> 1))
        levels.append(end + 4 * int(split.sum()))
        pairs = np.empty_like(pushed)
        starts = offsets_of(np.bincount(pushed[:, 0] - end, minlength=levels[-1] - end))
        by_node(pushed, end, starts, pairs)
        level += 1
    count = levels[-1]
    entries = np.concatenate(lists)
    starts = offsets_of(np.bincount(entries[:, 0], minlength=count))
    items = np.ascontiguousarray(entries[:, 1])
    all_first = np.concatenate(firsts)
    under, leaves = np.diff(starts), (all_first == 0).astype(np.int64)
    mbrs = bound(boxes[items], starts[:-1], starts[1:])
    sum_up(all_first, under, leaves, mbrs)
    cards, heads = np.empty((len(boxes), config.QUADTREE_CARD), np.int32), np.empty(len(boxes), np.uint16)
    write_cards(clause_rows, offsets, tokens, cards, heads)
    pivot_offsets, pivots, bare = pivotal_tokens(starts, items, offsets, tokens)
    sets = node_sets(all_first, np.array(levels), pivot_offsets, pivots, bare, under)
    return (
        frame,
        Quadtree(
            all_first,
            np.concatenate(columns),
            np.concatenate(rows),
            mbrs,
            starts,
            under,
            leaves,
            *sets,
            np.array(levels),
            np.concatenate(pressures),
        ),
        Entries(boxes[items], items, heads[items], cards),
    )


@kernel
def sum_up(
    first: NDArray[np.int32], under: NDArray[np.int64], leaves: NDArray[np.int64], boxes: NDArray[np.float32]
) -> None:
    """Add the entries, leaves and boxes of its children to each node."""
    for node in range(first.size - 1, -1, -1):
        if first[node] > 0:
            for child in range(first[node], first[node] + 4):
                under[node] += under[child]
                leaves[node] += leaves[child]
                for k in range(2):
                    boxes[node, k] = min(boxes[node, k], boxes[child, k])
                    boxes[node, k + 2] = max(boxes[node, k + 2], boxes[child, k + 2])


@kernel
def write_cards(
    rows: NDArray[np.int32],
    offsets: NDArray[np.int64],
    tokens: NDArray[np.int32],
    cards: NDArray[np.int32],
    heads: NDArray[np.uint16],
) -> None:
    """Write the card of each item, and the low bits of its rarest token.

    A card shows the rarest tokens, as many as fit. Its row is a complement if the card is not enough to decide: the
    clause has more tokens, forbidden words or tests.
    """
    cards[:] = 0
    for i in range(rows.size):
        first, count = offsets[i], offsets[i + 1] - offsets[i]
        heads[i] = tokens[first] & _SLOT if count > 0 else _SLOT
        cards[i, 0] = rows[i] if count <= _SHOWN else min(rows[i], ~rows[i])
        for k in range(min(count, _SHOWN)):
            cards[i, k + 1] = LAST - tokens[first + k] + 1


def _may_divide(level: int, tau_area: float) -> bool:
    return level < _FINEST and 4.0**-level >= tau_area


def crowded(tree: Quadtree, tau_num: int, tau_area: float) -> bool:
    """Tell whether a leaf that may be divided would hand down many times *tau_num* items."""
    leaves = sum(_may_divide(level, tau_area) for level in range(len(tree.levels) - 1))
    most = int(tree.falling[: tree.levels[leaves]].max(initial=0))
    return most > config.QUADTREE_CROWDED * tau_num


def check_thresholds(tau_num: Any, tau_area: Any) -> tuple[int, float]:
    """Return the thresholds of a quadtree, checked; a saved index has both as floats."""
    if isinstance(tau_num, float) and tau_num.is_integer():
        tau_num = int(tau_num)
    tau_num = whole_number("tau_num", tau_num, 1)
    if not 0 < tau_area <= 1:
        raise InputError(f"tau_area must be a share of the area above 0 and at most 1, not {shown(tau_area)}")
    return tau_num, float(tau_area)


def quadtree_stats(tree: Quadtree, items: int) -> dict[str, Any]:
    """Return the figures of a quadtree."""
    lists = np.diff(tree.starts)
    used = lists[lists > 0]
    return {
        "quadtree_height": len(tree.levels) - 2,
        "quadtree_nodes_per_level": np.diff(tree.levels).tolist(),
        "quadtree_leaves": int(tree.leaves[0]),
        "entries_per_clause": round(int(tree.starts[-1]) / max(items, 1), 2),
        "longest_node_list": int(used.max(initial=0)),
        "mean_node_list": round(float(used.mean()), 1) if len(used) else 0.0,
        "cover_tokens": len(tree.cover),
        "other_pivotal_tokens": len(tree.rest),
    }


def check_quadtree(
    frame: Frame,
    tree: Quadtree,
    entries: Entries,
    offsets: NDArray[np.int64],
    tokens: NDArray[np.int32],
    standing: NDArray[np.bool_],
) -> list[str]:
    """Check the tree, the order of the lists and the pivotal tokens; return what is wrong.

    *offsets* and *tokens* are those of the items; they mean nothing for an item that is no longer *standing*.
    """
    found = []
    nodes = len(tree.first)
    inner = np.flatnonzero(tree.first)
    parents = parents_of(tree.first)
    children = (tree.first[inner][:, None] + np.arange(4)).ravel()
    if not np.array_equal(np.sort(children), np.arange(1, nodes)):
        return ["some nodes of the quadtree are not the child of exactly one node"]
    if (tree.columns[children] >> 1 != tree.columns[parents[children]]).any() or (
        tree.rows[children] >> 1 != tree.rows[parents[children]]
    ).any():
        found.append("a quadtree node lies outside its parent")
    homes = np.repeat(np.arange(nodes), np.diff(tree.starts))
    if (np.diff(entries.items)[homes[1:] == homes[:-1]] <= 0).any():
        found.append("a list of the quadtree is not sorted")
    cells = np.empty((len(entries.boxes), 5), np.int32)
    cells_of(frame, entries.boxes, config.QUADTREE_SPAN, cells)
    depths = np.repeat(np.arange(len(tree.levels) - 1), np.diff(tree.levels))
    down = np.bincount(homes[cells[:, 4] > depths[homes]], minlength=nodes)
    if (down[inner] > 0).any():
        found.append("an entry of the quadtree stays in an inner node that could hand it down")
    if (down > tree.falling).any():
        found.append("a leaf of the quadtree has more entries to hand down than it counts")
    outer, inner_boxes = tree.boxes[homes], entries.boxes
    if (inner_boxes[:, :2] < outer[:, :2]).any() or (inner_boxes[:, 2:] > outer[:, 2:]).any():
        found.append("an entry lies outside the box of its quadtree node")
    if (tree.boxes[children, :2] < tree.boxes[parents[children], :2]).any() or (
        tree.boxes[children, 2:] > tree.boxes[parents[children], 2:]
    ).any():
        found.append("the box of a quadtree node does not contain those of its children")
    counts = np.diff(offsets)
    shown = (np.arange(_SHOWN) < counts[:, None]) & standing[:, None]
    if (((entries.cards[:, 1:] > 0) & standing[:, None]) != shown).any() or not np.array_equal(
        LAST - (entries.cards[:, 1:][shown] - 1), tokens[(offsets[:-1, None] + np.arange(_SHOWN))[shown]]
    ):
        found.append("a card of the quadtree does not show the tokens of its clause")
    if (entries.cards[(counts > _SHOWN) & standing, 0] >= 0).any():
        found.append("a card of the quadtree seems to show all tokens of a clause that has more")
    if not np.array_equal(np.unique(entries.items), np.arange(len(offsets) - 1)):
        found.append("the quadtree does not hold every clause")
    # A message enters a node if it has one of the tokens collected here, from the node up to the root.
    for node in np.flatnonzero(np.diff(tree.starts)):
        reach: set[int] = set()  # includes the cover sets above
        at = int(node)
        while at != 0:
            at = int(parents[at])
            reach.update(tree.cover[tree.cover_offsets[at] : tree.cover_offsets[at + 1]].tolist())
        for sets in (
            tree.cover[tree.cover_offsets[node] : tree.cover_offsets[node + 1]],
            tree.rest[tree.rest_offsets[node] : tree.rest_offsets[node + 1]],
        ):
            reach.update(sets.tolist())
        items = entries.items[tree.starts[node] : tree.starts[node + 1]]
        for item in items[standing[items]]:
            mine = tokens[offsets[item] : offsets[item + 1]].tolist()
            if mine and reach.isdisjoint(mine):
                found.append(f"no pivotal token of quadtree node {node} hits a clause of its list")
                break
            if not mine and not tree.always[node]:
                found.append(f"quadtree node {node} has a clause without tokens but may not be entered")
                break
    for parent in inner:
        common = set(tree.cover[tree.cover_offsets[parent] : tree.cover_offsets[parent + 1]].tolist())
        for child in range(tree.first[parent], tree.first[parent] + 4):
            for offsets_, values in ((tree.cover_offsets, tree.cover), (tree.rest_offsets, tree.rest)):
                if common & set(values[offsets_[child] : offsets_[child + 1]].tolist()):
                    found.append(f"a token of quadtree node {parent}'s cover set is also in a child's set")
    return found
