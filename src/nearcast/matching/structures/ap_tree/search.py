"""Matching (section 3.2.3, Algorithm 1), for points and for areas.

A point goes into one cell of an s-node, an area into all that it touches, where it may meet a clause more than
once. It takes it in one cell only: in that of the lower left corner of what the clause and the area share. So in each
column but the area's first it leaves out the clauses that began further left, and in each row but the first those that
began further below. All that it carries down is a least xmin and a least ymin.

What a message reads lies far apart, so it is asked for before it is needed: nodes when they are put on the stack,
leaves while others are being found, the clauses of candidates all at once. And most candidates need no clause: the
posting tells all its words if there are no more than two, and a message that meets the box as float32, not just on
its border, also meets the box.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.sets import has
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.structure import Answers
from nearcast.matching.structures.ap_tree.layout import (
    BOUNDS,
    K_NODE,
    KIND,
    LEAF,
    NO_WORD,
    POSTING,
    RAREST,
    ROOM,
    ROW,
    SECOND,
    SIGNATURE,
    SIZE,
    SLOTS,
    START,
    Tree,
    cut_of,
    rank_words,
    strip_of,
)

__all__ = ["Searched", "match_probes"]

_LEAVES = config.AP_TREE_LEAVES
_LINE = 16  # 32-bit numbers in a cache line


class Searched(NamedTuple):
    """What a search reads."""

    clauses: Clauses
    tree: Tree
    ranks: NDArray[np.int32]  # of each word
    room: int  # nodes that can wait to be visited at a time


@kernel
def match_probes(
    searched: Searched, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    """Match the probes from *start* to *stop*; see :class:`~nearcast.matching.structure.View`."""
    clauses, tree, ranks, room = searched
    ends, out = answers
    nodes, bounds, lows, highs, children = tree[:5]
    edges, postings, boxes = tree.edges, tree.postings, tree.posting_boxes
    probe_boxes, keyword_offsets, keywords = probes.boxes, probes.keyword_offsets, probes.keywords
    most = 0
    for p in range(start, stop):
        most = max(most, keyword_offsets[p + 1] - keyword_offsets[p])
    words = np.empty(most, np.int32)
    waiting = np.empty((room, 2), np.int32)  # node, and the first word that counts (η)
    least = np.empty((room, 2), np.float32)  # xmin and ymin from which clauses count
    leaves = np.empty((_LEAVES, 2), np.int32)  # start, size
    leaves_least = np.empty((_LEAVES, 2), np.float32)
    for p in range(start, stop):
        last = filled
        total = keyword_offsets[p + 1] - keyword_offsets[p]
        signature = rank_words(ranks, keywords, keyword_offsets[p], keyword_offsets[p + 1], words, 0)
        missing = np.int32(~signature)
        xmin, ymin = np.float32(probe_boxes[p, 0]), np.float32(probe_boxes[p, 1])
        xmax, ymax = np.float32(probe_boxes[p, 2]), np.float32(probe_boxes[p, 3])
        waiting[0, 0], waiting[0, 1] = 0, 0
        least[0, 0], least[0, 1] = -np.inf, -np.inf
        top, found = 1, 0
        while top > 0 or found > 0:
            if top == 0 or found == _LEAVES:
                for k in range(found):
                    begin, size = leaves[k, 0], leaves[k, 1]
                    left, below = leaves_least[k, 0], leaves_least[k, 1]
                    if 2 * (last + size) - filled > out.size:  # candidates, and those of them in doubt
                        return p
                    for at in range(begin, begin + size):
                        out[last] = at
                        last += (
                            (boxes[at, 0] <= xmax)
                            & (boxes[at, 2] >= xmin)
                            & (boxes[at, 1] <= ymax)
                            & (boxes[at, 3] >= ymin)
                            & (boxes[at, 0] >= left)
                            & (boxes[at, 1] >= below)
                            & (postings[at, SIGNATURE] & missing == 0)
                        )
                found = 0
                continue
            top -= 1
            node, eta = waiting[top, 0], waiting[top, 1]
            left, below = least[top, 0], least[top, 1]
            kind, size, first = nodes[node, KIND], nodes[node, SIZE], nodes[node, SLOTS]
            if kind == LEAF:
                if (
                    bounds[node, BOUNDS] <= xmax
                    and bounds[node, BOUNDS + 1] <= ymax
                    and bounds[node, BOUNDS + 2] >= xmin
                    and bounds[node, BOUNDS + 3] >= ymin
                ):
                    begin = nodes[node, START]
                    for ahead in range(0, min(size, _LINE) * POSTING, _LINE):
                        prefetch(postings, begin + ahead // POSTING)
                    leaves[found, 0], leaves[found, 1] = begin, size
                    leaves_least[found, 0], leaves_least[found, 1] = left, below
                    found += 1
            elif kind == K_NODE:
                slot = first - 1
                for i in range(eta, total):
                    word = words[i]
                    cut = cut_of(lows, max(slot, first), first + size, word)
                    if cut > slot and cut >= first and word <= highs[cut]:
                        slot = cut
                        beyond = i + (cut < first + size - 1)  # below the open cut, the word counts again
                        top = _push(nodes, children[cut], beyond, left, below, waiting, least, top)
                top = _push(nodes, children[first + size], eta, left, below, waiting, least, top)
            else:
                rows, edge = nodes[node, ROOM], nodes[node, START]
                x0, x1 = strip_of(edges, edge, size, xmin), strip_of(edges, edge, size, xmax)
                y0 = strip_of(edges, edge + size - 1, rows, ymin)
                y1 = strip_of(edges, edge + size - 1, rows, ymax)
                for y in range(y0, y1 + 1):
                    floor = below if y == y0 else max(below, edges[edge + size + y - 2])
                    for x in range(x0, x1 + 1):
                        side = left if x == x0 else max(left, edges[edge + x - 1])
                        child = children[first + y * size + x]
                        top = _push(nodes, child, eta, side, floor, waiting, least, top)
                top = _push(nodes, children[first + size * rows], eta, left, below, waiting, least, top)
        kept, doubtful = filled, last
        for i in range(filled, last):
            at = out[i]
            rarest, second = postings[at, RAREST], postings[at, SECOND]
            sure = rarest >= 0
            if not (_has(words, total, rarest if sure else ~rarest) and _has(words, total, second)):
                continue
            sure &= (
                (boxes[at, 0] < xmax) & (boxes[at, 2] > xmin) & (boxes[at, 1] < ymax) & (boxes[at, 3] > ymin)
            )
            if sure:
                out[kept] = postings[at, ROW]
                kept += 1
            else:
                out[doubtful] = postings[at, ROW]
                doubtful += 1
        _prefetch_clauses(clauses, out, last, doubtful)
        doubtful = keep_satisfied(clauses, probes, p, out, last, doubtful)
        for i in range(last, doubtful):
            out[kept] = out[i]
            kept += 1
        filled = kept
        ends[p] = filled
    return stop


@kernel
def _push(
    nodes: NDArray[np.int32],
    node: int,
    eta: int,
    left: float,
    below: float,
    waiting: NDArray[np.int32],
    least: NDArray[np.float32],
    top: int,
) -> Any:
    """Put a node, if there is one, on the stack; return the new height."""
    if node < 0:
        return top
    prefetch(nodes, node)
    waiting[top, 0], waiting[top, 1] = node, eta
    least[top, 0], least[top, 1] = left, below
    return top + 1


@kernel
def _has(words: NDArray[np.int32], total: int, word: int) -> Any:
    """Tell whether a word is among the message's words[:total], or none at all."""
    return word == NO_WORD or has(words, 0, total, word)


@kernel
def _prefetch_clauses(clauses: Clauses, rows: NDArray[np.int32], first: int, last: int) -> None:
    """Begin to load what decides on the candidates rows[first:last]."""
    boxes, keyword_runs, keywords = clauses.boxes, clauses.keyword_runs, clauses.keywords
    for i in range(first, last):
        prefetch(keyword_runs, rows[i])
        prefetch(boxes, rows[i])
    for i in range(first, last):
        prefetch(keywords, keyword_runs[rows[i], 0])
