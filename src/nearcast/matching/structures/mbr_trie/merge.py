"""Merge two tries in one pass: a large one, some of whose postings were removed, and a small one of newcomers.

Nodes are stored level by level, and siblings by token. So the children of a merged node are two sorted runs, and the
children of the next node follow them: every array is read and written from front to back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.matching.structures.mbr_trie.trie import (
    Postings,
    Trie,
    bound_blocks,
    curve_place,
    tops_of,
)

__all__ = ["merge_tries"]

_NONE = -1  # stands for a node that one of the two tries lacks


def merge_tries(
    trie: Trie, postings: Postings, more: Trie, new: Postings, ranks: int
) -> tuple[Trie, Postings]:
    """Return the trie over the living postings of *trie* and all postings of *more*; there are *ranks* tokens.

    The lists of both are sorted along the same curve, and so are those of the result.
    """
    living = np.zeros(len(postings.rows) + 1, np.int32)  # how many living postings come before each
    np.cumsum(~np.isnan(postings.boxes[:, 0]), dtype=np.int32, out=living[1:])
    most = len(trie.tokens) + len(more.tokens) - 1
    from_a, from_b, tokens, lows, ends, highs = (np.empty(most, np.int32) for _ in range(6))
    first = np.empty(most + 1, np.int32)
    levels = np.empty(max(len(trie.levels), len(more.levels)), np.int64)
    count, height = _merge_nodes(trie, more, living, from_a, from_b, tokens, first, lows, ends, highs, levels)
    tokens, first, levels = tokens[:count], first[: count + 1], levels[: height + 1]
    lows, ends, highs = lows[:count], ends[:count], highs[:count]

    before = np.empty(len(new.rows), np.int32)
    _postings_before(trie, postings, more, new, from_a, from_b, lows, before)
    total = int(living[-1]) + len(new.rows)
    boxes, rows = np.empty((total, 4), np.float32), np.empty(total, np.int32)
    _weave(postings, new, before, boxes, rows)
    mbrs = np.empty((count, 4), np.float32)
    _merge_boxes(trie, from_a, from_b, first, lows, ends, highs, boxes, mbrs)
    merged = Trie(tokens, first, lows, ends, highs, mbrs, tops_of(tokens, levels, ranks), levels)
    return merged, Postings(boxes, rows, bound_blocks(boxes), postings.curve)


@kernel
def _merge_nodes(
    trie: Trie,
    more: Trie,
    living: NDArray[np.int32],
    from_a: NDArray[np.int32],
    from_b: NDArray[np.int32],
    tokens: NDArray[np.int32],
    first: NDArray[np.int32],
    lows: NDArray[np.int32],
    ends: NDArray[np.int32],
    highs: NDArray[np.int32],
    levels: NDArray[np.int64],
) -> Any:
    """Write the nodes that have postings, and which nodes they come from; return the numbers of nodes and levels."""
    tokens_a, first_a, lows_a, ends_a, highs_a = trie.tokens, trie.first, trie.lows, trie.ends, trie.highs
    tokens_b, first_b, lows_b, ends_b, highs_b = more.tokens, more.first, more.lows, more.ends, more.highs
    tokens[0], from_a[0], from_b[0] = -1, 0, 0
    lows[0], highs[0] = 0, living[highs_a[0]] + highs_b[0]
    levels[0], height, tail, node = 0, 0, 1, 0
    while node < tail:
        if node == levels[height]:
            height += 1
            levels[height] = tail
        a, b = from_a[node], from_b[node]
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
            token = tokens_a[i] if i < i_end else tokens_b[j]
            if j < j_end:
                token = min(token, tokens_b[j])
            tokens[tail] = token
            start, from_a[tail], from_b[tail] = at, _NONE, _NONE
            if i < i_end and tokens_a[i] == token:
                left = living[highs_a[i]] - living[lows_a[i]]
                if left > 0:
                    from_a[tail] = i
                    at += left
                i += 1
            if j < j_end and tokens_b[j] == token:
                from_b[tail] = j
                at += highs_b[j] - lows_b[j]
                j += 1
            lows[tail], highs[tail] = start, at
            tail += at > start
        node += 1
    first[tail] = tail
    return tail, height


@kernel
def _postings_before(
    trie: Trie,
    postings: Postings,
    more: Trie,
    new: Postings,
    from_a: NDArray[np.int32],
    from_b: NDArray[np.int32],
    lows: NDArray[np.int32],
    out: NDArray[np.int32],
) -> None:
    """Write for each new posting how many living old ones come before it; lists are sorted along the curve."""
    lows_a, ends_a, lows_b, ends_b = trie.lows, trie.ends, more.lows, more.ends
    boxes_a, boxes_b, curve = postings.boxes, new.boxes, postings.curve
    for node in range(lows.size):
        a, b = from_a[node], from_b[node]
        if b == _NONE:
            continue
        before, i, i_end = lows[node] - lows_b[b], 0, 0
        if a != _NONE:
            i, i_end = lows_a[a], ends_a[a]
        for j in range(lows_b[b], ends_b[b]):
            place = curve_place(boxes_b, j, curve)
            while i < i_end and (np.isnan(boxes_a[i, 0]) or curve_place(boxes_a, i, curve) <= place):
                before += not np.isnan(boxes_a[i, 0])
                i += 1
            out[j] = before


@kernel
def _weave(
    postings: Postings,
    new: Postings,
    before: NDArray[np.int32],
    boxes: NDArray[np.float32],
    rows: NDArray[np.int32],
) -> None:
    """Write the living old postings and the new ones in one order; *before* counts the old ones before each new one."""
    boxes_a, rows_a, boxes_b, rows_b = postings.boxes, postings.rows, new.boxes, new.rows
    at, j = 0, 0
    for i in range(rows_a.size + 1):
        left = i < rows_a.size and not np.isnan(boxes_a[i, 0])
        while j < rows_b.size and before[j] == at - j and (left or i == rows_a.size):
            for k in range(4):
                boxes[at, k] = boxes_b[j, k]
            rows[at] = rows_b[j]
            at += 1
            j += 1
        if left:
            for k in range(4):
                boxes[at, k] = boxes_a[i, k]
            rows[at] = rows_a[i]
            at += 1


@kernel
def _merge_boxes(
    trie: Trie,
    from_a: NDArray[np.int32],
    from_b: NDArray[np.int32],
    first: NDArray[np.int32],
    lows: NDArray[np.int32],
    ends: NDArray[np.int32],
    highs: NDArray[np.int32],
    boxes: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write the MBR of each node: the old one where nothing changed, otherwise that of its list and its children."""
    lows_a, highs_a, boxes_a = trie.lows, trie.highs, trie.boxes
    for node in range(lows.size - 1, -1, -1):
        a = from_a[node]
        if from_b[node] == _NONE and highs_a[a] - lows_a[a] == highs[node] - lows[node]:
            for k in range(4):
                out[node, k] = boxes_a[a, k]
            continue
        out[node, 0], out[node, 1], out[node, 2], out[node, 3] = np.inf, np.inf, -np.inf, -np.inf
        _widen(out, node, boxes, lows[node], ends[node])
        _widen(out, node, out, first[node], first[node + 1])


@kernel
def _widen(out: NDArray[np.float32], node: int, boxes: NDArray[np.float32], begin: int, end: int) -> None:
    for at in range(begin, end):
        for k in range(2):
            out[node, k] = min(out[node, k], boxes[at, k])
            out[node, k + 2] = max(out[node, k + 2], boxes[at, k + 2])
