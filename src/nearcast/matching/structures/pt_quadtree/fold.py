"""Fold newcomers into a PT-Quadtree without changing its regions: merge their entries into the lists.

Regions are divided only when the whole tree is built. The tree counts the items that each leaf would hand down if it
were divided; when newcomers crowd a leaf, the caller rebuilds the tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel
from nearcast.matching.structures.pt_quadtree.pivots import counted, parents_of
from nearcast.matching.structures.pt_quadtree.quadtree import (
    Entries,
    Frame,
    Quadtree,
    by_node,
    cells_of,
    sum_up,
    write_cards,
)
from nearcast.matching.structures.token_order import LAST

__all__ = ["fold_quadtree"]

_FINEST = config.QUADTREE_LEVELS
_MOST_ENTRIES = (config.QUADTREE_SPAN + 1) ** 2  # of an item


def fold_quadtree(
    frame: Frame,
    tree: Quadtree,
    entries: Entries,
    moved: NDArray[np.int32],
    items: NDArray[np.int32],
    clause_rows: NDArray[np.int32],
    boxes: NDArray[np.float32],
    offsets: NDArray[np.int64],
    tokens: NDArray[np.int32],
) -> tuple[Quadtree, Entries]:
    """Return the tree with its old items renumbered and with new items.

    *moved* has the new number of each old item, or -1 if it is removed; the order stays. The new items have the
    ascending numbers *items*; their other arguments are as in ``build_quadtree``.
    """
    pairs = np.empty((_MOST_ENTRIES * len(items), 2), np.int32)
    falling = tree.falling.copy()
    cells = np.empty((len(items), 5), np.int32)
    cells_of(frame, boxes, config.QUADTREE_SPAN, cells)
    pairs = pairs[: _hand_down(tree, cells, falling, pairs)]
    new_starts = offsets_of(np.bincount(pairs[:, 0], minlength=len(tree.first)))
    sorted_pairs = np.empty_like(pairs)
    by_node(pairs, 0, new_starts[:-1].copy(), sorted_pairs)
    new = np.ascontiguousarray(sorted_pairs[:, 1])

    count = int(np.count_nonzero(moved >= 0)) + len(items)
    cards = np.empty((count, config.QUADTREE_CARD), np.int32)
    _move_cards(entries.cards, moved, cards)
    new_cards, new_heads = (
        np.empty((len(items), config.QUADTREE_CARD), np.int32),
        np.empty(len(items), np.uint16),
    )
    write_cards(clause_rows, offsets, tokens, new_cards, new_heads)
    cards[items] = new_cards

    most = len(entries.items) + len(new)
    entry_boxes, entry_items, heads = (
        np.empty((most, 4), np.float32),
        np.empty(most, np.int32),
        np.empty(most, np.uint16),
    )
    starts, mbrs = np.empty_like(tree.starts), tree.boxes.copy()
    total = _merge_lists(
        tree.starts,
        entries,
        moved,
        new_starts,
        new,
        items,
        boxes,
        new_heads,
        starts,
        mbrs,
        entry_boxes,
        entry_items,
        heads,
    )
    under, leaves = np.diff(starts), (tree.first == 0).astype(np.int64)
    sum_up(tree.first, under, leaves, mbrs)
    always = tree.always.copy()
    keys = np.empty(len(new) * len(tree.levels), np.int64)
    stamps = np.zeros(
        LAST
        + 1
        - int(min(tokens.min(initial=LAST), tree.rest.min(initial=LAST), tree.cover.min(initial=LAST))),
        np.int32,
    )
    keys = keys[
        : _unmet(tree, parents_of(tree.first), new_starts, new, offsets, tokens, stamps, always, keys)
    ]
    old = np.repeat(np.arange(len(tree.first)), np.diff(tree.rest_offsets)) << 32 | tree.rest
    rest, _ = counted(np.concatenate([old, np.sort(keys)]))
    return (
        tree._replace(
            boxes=mbrs,
            starts=starts,
            under=under,
            falling=falling,
            rest_offsets=offsets_of(np.bincount(rest >> 32, minlength=len(tree.first))),
            rest=(rest & 0xFFFFFFFF).astype(np.int32),
            always=always,
        ),
        Entries(entry_boxes[:total], entry_items[:total], heads[:total], cards),
    )


@kernel
def _hand_down(
    tree: Quadtree, cells: NDArray[np.int32], falling: NDArray[np.int64], out: NDArray[np.int32]
) -> Any:
    """Write (node, item) for each list that an item belongs to, items ascending; return how many.

    *falling* counts the items that each leaf would hand down if it were divided.
    """
    first, columns, rows = tree.first, tree.columns, tree.rows
    stack = np.empty((3 * _FINEST + 4, 2), np.int64)  # node, level
    filled = 0
    for i in range(cells.shape[0]):
        stack[0] = 0
        top = 1
        while top > 0:
            top -= 1
            node, level = stack[top, 0], stack[top, 1]
            deeper = cells[i, 4] > level
            if not deeper or first[node] == 0:
                falling[node] += deeper
                out[filled, 0] = node
                out[filled, 1] = i
                filled += 1
                continue
            shift = _FINEST - (level + 1)
            left, low = cells[i, 0] >> shift, cells[i, 1] >> shift
            right, high = cells[i, 2] >> shift, cells[i, 3] >> shift
            for child in range(first[node], first[node] + 4):
                if left <= columns[child] <= right and low <= rows[child] <= high:
                    stack[top, 0] = child
                    stack[top, 1] = level + 1
                    top += 1
    return filled


@kernel
def _move_cards(cards: NDArray[np.int32], moved: NDArray[np.int32], out: NDArray[np.int32]) -> None:
    for i in range(moved.size):
        if moved[i] >= 0:
            for k in range(cards.shape[1]):
                out[moved[i], k] = cards[i, k]


@kernel
def _merge_lists(
    starts: NDArray[np.int64],
    entries: Entries,
    moved: NDArray[np.int32],
    new_starts: NDArray[np.int64],
    new: NDArray[np.int32],
    items: NDArray[np.int32],
    boxes: NDArray[np.float32],
    new_heads: NDArray[np.uint16],
    out_starts: NDArray[np.int64],
    mbrs: NDArray[np.float32],
    out_boxes: NDArray[np.float32],
    out_items: NDArray[np.int32],
    out_heads: NDArray[np.uint16],
) -> Any:
    """Write the lists, with the remaining old entries and the new ones by item; widen the boxes of nodes."""
    old_boxes, old_items, old_heads, _ = entries
    filled = 0
    for node in range(starts.size - 1):
        out_starts[node] = filled
        j, j_end = new_starts[node], new_starts[node + 1]
        limit = items[new[j]] if j < j_end else LAST  # of the next new entry
        for i in range(starts[node], starts[node + 1] + 1):
            end = i == starts[node + 1]
            item = LAST if end else moved[old_items[i]]
            while j < j_end and limit < item:
                for k in range(4):
                    out_boxes[filled, k] = boxes[new[j], k]
                for k in range(2):
                    mbrs[node, k] = min(mbrs[node, k], boxes[new[j], k])
                    mbrs[node, k + 2] = max(mbrs[node, k + 2], boxes[new[j], k + 2])
                out_items[filled] = limit
                out_heads[filled] = new_heads[new[j]]
                filled += 1
                j += 1
                limit = items[new[j]] if j < j_end else LAST
            if not end:
                for k in range(4):
                    out_boxes[filled, k] = old_boxes[i, k]
                out_items[filled] = item
                out_heads[filled] = old_heads[i]
                filled += item >= 0
    out_starts[starts.size - 1] = filled
    return filled


@kernel
def _unmet(
    tree: Quadtree,
    parents: NDArray[np.int64],
    new_starts: NDArray[np.int64],
    new: NDArray[np.int32],
    offsets: NDArray[np.int64],
    tokens: NDArray[np.int32],
    stamps: NDArray[np.int32],
    always: NDArray[np.bool_],
    out: NDArray[np.int64],
) -> Any:
    """Write the pivotal tokens that new entries need, as node << 32 | token; return how many there are.

    If no pivotal token of the node hits an entry, its most frequent token becomes pivotal there and in all nodes
    above. An entry without tokens marks its node and all nodes above as *always* to be entered.
    """
    cover_offsets, cover, rest_offsets, rest = tree.cover_offsets, tree.cover, tree.rest_offsets, tree.rest
    filled, above = 0, 0
    for node in range(parents.size):
        if new_starts[node] == new_starts[node + 1]:
            continue
        if parents[node] + 2 != above:  # siblings have the same cover sets above them
            at = parents[node]
            above = at + 2
            while at >= 0:
                _stamp(stamps, cover, cover_offsets[at], cover_offsets[at + 1], -above, -above)
                at = parents[at]
        stamp = node + 1
        _stamp(stamps, cover, cover_offsets[node], cover_offsets[node + 1], stamp, -above)
        _stamp(stamps, rest, rest_offsets[node], rest_offsets[node + 1], stamp, -above)
        for j in range(new_starts[node], new_starts[node + 1]):
            begin, end = offsets[new[j]], offsets[new[j] + 1]
            met = False
            for k in range(begin, end):
                found = stamps[LAST - tokens[k]]
                met |= (found == stamp) | (found == -above)
            if met:
                continue
            at = node
            if begin == end:
                while at >= 0 and not always[at]:
                    always[at] = True
                    at = parents[at]
                continue
            token = tokens[end - 1]
            stamps[LAST - token] = stamp
            while at >= 0 and not _holds(rest, rest_offsets[at], rest_offsets[at + 1], token):
                out[filled] = np.int64(at) << 32 | token
                filled += 1
                at = parents[at]
    return filled


@kernel
def _stamp(
    stamps: NDArray[np.int32], tokens: NDArray[np.int32], first: int, last: int, stamp: int, keep: int
) -> None:
    """Stamp the tokens, except those with the stamp *keep*."""
    for k in range(first, last):
        at = LAST - tokens[k]
        if stamps[at] != keep:
            stamps[at] = stamp


@kernel
def _holds(values: NDArray[np.int32], low: int, high: int, value: int) -> Any:
    """Tell whether a value is among the sorted values[low:high]."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < end and values[low] == value
