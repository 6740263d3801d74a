"""HYBRIDPRUNE with LISTPRUNING: a trie narrows the lists that a quadtree has found.

These are functions of Algorithm 3 of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe
Services" (2015).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL
from nearcast.matching.structures.mbr_trie.search import COST, select_pairs, with_room
from nearcast.matching.structures.mbr_trie.trie import Postings, Trie
from nearcast.matching.structures.pt_quadtree.quadtree import Entries, Frame, Quadtree
from nearcast.matching.structures.pt_quadtree.search import corner_of, verify_list

__all__ = ["BY_COST", "DIRECT", "LIST_PRUNING", "hybrid_prune"]

BY_COST, DIRECT, LIST_PRUNING = range(3)  # how the lists that the quadtree found are verified
_LOOK_NS, _HIT_NS, _HALVING_NS = config.LFILTER_LOOK_NS, config.LFILTER_HIT_NS, config.LFILTER_HALVING_NS
_BINARY_NS, _BIT_NS = config.TRIE_BINARY_NS, config.TRIE_BIT_NS


@kernel
def _not_before(items: NDArray[np.int32], begin: int, end: int, target: int) -> int:
    """Return the place of the first item in the sorted items[begin:end] that is not less than *target*."""
    while begin < end:
        middle = (begin + end) >> 1
        if items[middle] < target:
            begin = middle + 1
        else:
            end = middle
    return begin


@kernel
def _pruning_pays(entries: int, lists: int, fanout: int, left: int, share: float) -> Any:
    """Tell whether C_L <= C_V (equations 5 and 6), given the numbers of entries, lists, children and tokens left."""
    finding = min(_BIT_NS * fanout, _BINARY_NS * left * np.log2(fanout + 1.0))
    found = min(fanout * share, left, fanout)
    narrowing = _HALVING_NS * 2.0 * lists * np.log2(entries / lists + 2.0)
    return finding + found * narrowing + entries * share * _LOOK_NS <= entries * (_LOOK_NS + _HIT_NS * share)


@kernel
def hybrid_prune(
    trie: Trie,
    postings: Postings,
    frame: Frame,
    tree: Quadtree,
    entries: Entries,
    alive: NDArray[np.bool_],
    nodes: NDArray[np.int32],
    lists: int,
    how: int,
    share: float,
    tokens: NDArray[np.int32],
    count: int,
    bits: NDArray[np.uint64],
    present: NDArray[np.uint64],
    query: NDArray[np.float32],
    cells: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Write the answers in the lists of the first *lists* of *nodes*; return the new end, or FULL if there is no room.

    A clause row is written as its complement if the clause must still be checked. A stack takes the place of the
    recursion. *bounds* holds the narrowed lists of each node on the way down the trie, by depth, so those of the
    parent are still there when the next child is taken. The comments name the lines of HYBRIDPRUNE.
    """
    node_tokens, firsts, lows, ends, highs, node_boxes, tops, levels = trie
    starts, items, rows, boxes = tree.starts, entries.items, postings.rows, entries.boxes
    bounds = np.empty((levels.size, lists, 2), np.int64)
    corners = np.empty((lists, 2), np.float32)
    for k in range(lists):
        corner_of(frame, tree, nodes[k], cells, corners[k])
    xmin, ymin, xmax, ymax = query[0], query[1], query[2], query[3]
    stack = np.zeros((64, 3), np.int32)  # candidate pairs <n, T_n>, and the depth of n
    top = 1
    while top > 0:
        top -= 1
        node, at, depth = int(stack[top, 0]), int(stack[top, 1]), int(stack[top, 2])
        own, stop = ends[node], highs[node]
        total, busy = 0, 0
        for k in range(lists):  # line 11, LISTPRUNING, for the node itself instead of by its parent
            if depth == 0:
                begin, end = starts[nodes[k]], starts[nodes[k] + 1]
            else:
                begin = _not_before(items, bounds[depth - 1, k, 0], bounds[depth - 1, k, 1], lows[node])
                end = _not_before(items, begin, bounds[depth - 1, k, 1], stop)
            if filled + end - begin > out.size:
                return FULL
            while begin < end and items[begin] < own:  # lines 2 and 3, MBRTRIE-VERIFY: all tokens match
                left, low, right, high = boxes[begin, 0], boxes[begin, 1], boxes[begin, 2], boxes[begin, 3]
                row = rows[items[begin]]
                if (
                    (left <= xmax) & (right >= xmin) & (low <= ymax) & (high >= ymin)
                    and alive[max(row, ~row)]
                    and (left >= corners[k, 0]) & (low >= corners[k, 1])
                ):
                    sure = (left < xmax) & (right > xmin) & (low < ymax) & (high > ymin)
                    out[filled] = row if sure else min(row, ~row)
                    filled += 1
                begin += 1
            bounds[depth, k, 0] = begin
            bounds[depth, k, 1] = end
            total += end - begin
            busy += end > begin
        child, end = int(firsts[node]), int(firsts[node + 1])
        if total == 0 or at == count:
            continue
        if how == DIRECT or (
            how == BY_COST and not _pruning_pays(total, busy, end - child, count - at, share)
        ):
            for k in range(lists):  # lines 5 and 6, PT-QUADTREE-VERIFY
                if bounds[depth, k, 0] == bounds[depth, k, 1]:
                    continue
                filled = verify_list(
                    entries,
                    alive,
                    corners[k],
                    bounds[depth, k, 0],
                    bounds[depth, k, 1],
                    bits,
                    present,
                    query,
                    out,
                    filled,
                )
                if filled == FULL:
                    return FULL
        else:
            # Lines 9 to 12: the pairs of the children go on the stack.
            stack = with_room(stack, top + min(end - child, count - at))
            last = select_pairs(
                node_tokens,
                node_boxes,
                tops,
                node,
                child,
                end,
                tokens,
                at,
                count,
                COST,
                bits,
                query,
                stack,
                top,
            )
            for i in range(top, last):
                stack[i, 2] = depth + 1
            top = last
    return filled
