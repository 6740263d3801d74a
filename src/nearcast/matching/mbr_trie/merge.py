"""Two tries made one: a large one, in part removed, and a small one of newcomers, in one pass over the nodes of both.

Nodes lie level by level and siblings by token, so the children of a merged node are two sorted runs to merge, and
those of the next one follow behind them: every array is read and written from front to back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.matching.mbr_trie.trie import (
    Postings,
    Trie,
    bound,
    bound_blocks,
    curve_place,
    empty_boxes,
    lift_boxes,
    tops_of,
)

__all__ = ["merge_tries"]

_NONE = -1  # the source of a node that one of the two tries does not have


def merge_tries(
    trie: Trie, postings: Postings, more: Trie, new: Postings, ranks: int
) -> tuple[Trie, Postings]:
    """Return the trie of the postings of *trie* that were not removed, and those of *more*, of *ranks* tokens.

    Both are sorted along the same curve, which stays that of the result.
    """
    living = np.zeros(len(postings.rows) + 1, np.int32)  # how many postings are left before each
    np.cumsum(~np.isnan(postings.boxes[:, 0]), dtype=np.int32, out=living[1:])
    most = len(trie.tokens) + len(more.tokens) - 1
    sources = np.empty((most, 2), np.int32)
    tokens, first = np.empty(most, np.int32), np.empty(most + 1, np.int32)
    lows, ends, highs = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32)
    levels = np.empty(max(len(trie.levels), len(more.levels)) + 1, np.int64)
    count, height = _merge_nodes(trie, more, living, sources, tokens, first, lows, ends, highs, levels)
    tokens, first, levels = tokens[:count], first[: count + 1], levels[: height + 1]
    lows, ends, highs = lows[:count], ends[:count], highs[:count]

    total = int(living[-1]) + len(new.rows)
    boxes, rows = np.empty((total, 4), np.float32), np.empty(total, np.int32)
    _merge_postings(trie, postings, more, new, sources[:count], lows, boxes, rows)
    mbrs = empty_boxes(count)
    bound(boxes, lows, ends, mbrs)
    lift_boxes(first, mbrs)
    merged = Trie(tokens, first, lows, ends, highs, mbrs, tops_of(tokens, levels, ranks), levels)
    return merged, Postings(boxes, rows, bound_blocks(boxes), postings.curve)


@kernel
def _merge_nodes(
    trie: Trie,
    more: Trie,
    living: NDArray[np.int32],
    sources: NDArray[np.int32],
    tokens: NDArray[np.int32],
    first: NDArray[np.int32],
    lows: NDArray[np.int32],
    ends: NDArray[np.int32],
    highs: NDArray[np.int32],
    levels: NDArray[np.int64],
) -> Any:
    """Write the nodes that have postings left, and which nodes they come from; return how many, and on how many levels."""
    tokens_a, first_a, lows_a, ends_a, highs_a = trie.tokens, trie.first, trie.lows, trie.ends, trie.highs
    tokens_b, first_b, lows_b, ends_b, highs_b = more.tokens, more.first, more.lows, more.ends, more.highs
    tokens[0] = -1
    sources[0] = 0
    lows[0], highs[0] = 0, living[highs_a[0]] + highs_b[0]
    levels[0], height, tail, node = 0, 0, 1, 0
    while node < tail:
        if node == levels[height]:
            height += 1
            levels[height] = tail
        a, b = sources[node]
        first[node] = tail
        at, i, i_end, j, j_end = lows[node], 0, 0, 0, 0
        if a != _NONE:
            at += living[ends_a[a]] - living[lows_a[a]]
            i, i_end = first_a[a], first_a[a + 1]
        if b != _NONE:
            at += ends_b[b] - lows_b[b]
            j, j_end = first_b[b], first_b[b + 1]
        ends[node] = at
        while i < i_end or j < j_end:
            from_a = i < i_end and (j >= j_end or tokens_a[i] <= tokens_b[j])
            from_b = j < j_end and (i >= i_end or tokens_b[j] <= tokens_a[i])
            size = 0
            sources[tail] = _NONE
            if from_a:
                size = living[highs_a[i]] - living[lows_a[i]]
                tokens[tail] = tokens_a[i]
                if size > 0:
                    sources[tail, 0] = i
                i += 1
            if from_b:
                size += highs_b[j] - lows_b[j]
                tokens[tail] = tokens_b[j]
                sources[tail, 1] = j
                j += 1
            if size > 0:
                lows[tail] = at
                at += size
                highs[tail] = at
                tail += 1
        node += 1
    first[tail] = tail
    return tail, height


@kernel
def _merge_postings(
    trie: Trie,
    postings: Postings,
    more: Trie,
    new: Postings,
    sources: NDArray[np.int32],
    lows: NDArray[np.int32],
    out_boxes: NDArray[np.float32],
    out_rows: NDArray[np.int32],
) -> None:
    """Write the list of each node: what is left of either list, along the curve."""
    lows_a, ends_a, lows_b, ends_b = trie.lows, trie.ends, more.lows, more.ends
    boxes_a, rows_a, boxes_b, rows_b = postings.boxes, postings.rows, new.boxes, new.rows
    curve = postings.curve
    for node in range(lows.size):
        a, b = sources[node]
        at, j, j_end, place = lows[node], 0, 0, 0
        if b != _NONE:
            j, j_end = lows_b[b], ends_b[b]
            if j < j_end:
                place = curve_place(boxes_b, j, curve)
        if a != _NONE:
            for i in range(lows_a[a], ends_a[a]):
                if np.isnan(boxes_a[i, 0]):
                    continue
                while j < j_end and place < curve_place(boxes_a, i, curve):
                    _copy(boxes_b, rows_b, j, out_boxes, out_rows, at)
                    at += 1
                    j += 1
                    if j < j_end:
                        place = curve_place(boxes_b, j, curve)
                _copy(boxes_a, rows_a, i, out_boxes, out_rows, at)
                at += 1
        while j < j_end:
            _copy(boxes_b, rows_b, j, out_boxes, out_rows, at)
            at += 1
            j += 1


@kernel
def _copy(
    boxes: NDArray[np.float32],
    rows: NDArray[np.int32],
    i: int,
    out_boxes: NDArray[np.float32],
    out_rows: NDArray[np.int32],
    at: int,
) -> None:
    for k in range(4):
        out_boxes[at, k] = boxes[i, k]
    out_rows[at] = rows[i]
