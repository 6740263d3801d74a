"""Matching (section 3.2.3, Algorithm 1), for points and for areas.

A point goes into one cell of an s-node, an area into all that it touches, where it may meet a clause more than
once. It takes it in one cell only: in that of the lower left corner of what the clause and the area share. So in each
column but the area's first it leaves out the clauses that began further left, and in each row but the first those that
began further below. All that it carries down is a least xmin and a least ymin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.ap_tree.layout import (
    BOUNDS,
    K_NODE,
    KIND,
    LEAF,
    ROOM,
    ROW,
    SIGNATURE,
    SIZE,
    SLOTS,
    START,
    Tree,
    cut_of,
    rank_words,
    strip_of,
)

__all__ = ["search"]


@kernel
def search(
    tree: Tree,
    ranks: NDArray[np.int32],
    clauses: Clauses,
    probes: Probes,
    room: int,
    start: int,
    stop: int,
    counts: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Match probes; *room* is how many nodes can wait to be visited at a time."""
    nodes, bounds, lows, highs, children = tree[:5]
    edges, postings, boxes = tree.edges, tree.postings, tree.posting_boxes
    probe_boxes, keyword_offsets, keywords = probes.boxes, probes.keyword_offsets, probes.keywords
    most = 0
    for p in range(start, stop):
        most = max(most, keyword_offsets[p + 1] - keyword_offsets[p])
    words = np.empty(most, np.int32)
    waiting = np.empty((room, 2), np.int32)  # node, and the first word that counts (η)
    least = np.empty((room, 2), np.float32)  # xmin and ymin from which clauses count
    for p in range(start, stop):
        last = filled
        total = keyword_offsets[p + 1] - keyword_offsets[p]
        signature = rank_words(ranks, keywords, keyword_offsets[p], keyword_offsets[p + 1], words, 0)
        missing = np.int32(~signature)
        xmin, ymin = np.float32(probe_boxes[p, 0]), np.float32(probe_boxes[p, 1])
        xmax, ymax = np.float32(probe_boxes[p, 2]), np.float32(probe_boxes[p, 3])
        waiting[0, 0], waiting[0, 1] = 0, 0
        least[0, 0], least[0, 1] = -np.inf, -np.inf
        top = 1
        while top > 0:
            top -= 1
            node, eta = waiting[top, 0], waiting[top, 1]
            left, below = least[top, 0], least[top, 1]
            kind, size, first = nodes[node, KIND], nodes[node, SIZE], nodes[node, SLOTS]
            if kind == LEAF:
                if (
                    bounds[node, BOUNDS] > xmax
                    or bounds[node, BOUNDS + 1] > ymax
                    or bounds[node, BOUNDS + 2] < xmin
                    or bounds[node, BOUNDS + 3] < ymin
                ):
                    continue
                if last + size > out.size:
                    return p, filled
                begin = nodes[node, START]
                for at in range(begin, begin + size):
                    out[last] = postings[at, ROW]
                    last += (
                        (boxes[at, 0] <= xmax)
                        & (boxes[at, 2] >= xmin)
                        & (boxes[at, 1] <= ymax)
                        & (boxes[at, 3] >= ymin)
                        & (boxes[at, 0] >= left)
                        & (boxes[at, 1] >= below)
                        & (postings[at, SIGNATURE] & missing == 0)
                    )
            elif kind == K_NODE:
                slot = first - 1
                for i in range(eta, total):
                    word = words[i]
                    cut = cut_of(lows, max(slot, first), first + size, word)
                    if cut > slot and cut >= first and word <= highs[cut]:
                        slot = cut
                        if children[cut] >= 0:
                            waiting[top, 0], waiting[top, 1] = children[cut], i + 1
                            least[top, 0], least[top, 1] = left, below
                            top += 1
                if children[first + size] >= 0:
                    waiting[top, 0], waiting[top, 1] = children[first + size], eta
                    least[top, 0], least[top, 1] = left, below
                    top += 1
            else:
                rows, edge = nodes[node, ROOM], nodes[node, START]
                x0, x1 = strip_of(edges, edge, size, xmin), strip_of(edges, edge, size, xmax)
                y0 = strip_of(edges, edge + size - 1, rows, ymin)
                y1 = strip_of(edges, edge + size - 1, rows, ymax)
                for y in range(y0, y1 + 1):
                    for x in range(x0, x1 + 1):
                        child = children[first + y * size + x]
                        if child >= 0:
                            waiting[top, 0], waiting[top, 1] = child, eta
                            least[top, 0] = left if x == x0 else max(left, edges[edge + x - 1])
                            least[top, 1] = below if y == y0 else max(below, edges[edge + size + y - 2])
                            top += 1
                child = children[first + size * rows]
                if child >= 0:
                    waiting[top, 0], waiting[top, 1] = child, eta
                    least[top, 0], least[top, 1] = left, below
                    top += 1
        last = keep_satisfied(clauses, probes, p, out, filled, last)
        counts[p - start] = last - filled
        filled = last
    return stop, filled
