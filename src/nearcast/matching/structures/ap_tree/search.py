"""Matching (Algorithm 1, section 3.2.3), for points and areas.

The paper is Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015).
The comments in :func:`match_probes` name the lines of Algorithm 1 where they happen. The loop differs from the paper
in four ways:

- *A stack takes the place of the recursion.* An entry holds the arguments of a call: the node N and the position η
  of the first message word that still counts. A node is prefetched when it is put on the stack.
- *Leaves are scanned several at a time.* Nodes and postings lie far apart in memory, and each read would wait for the
  one before. So line 2 does not run when a leaf is found: its postings are prefetched while the search goes on, and
  once ``config.AP_TREE_LEAVES`` leaves are found, or the stack is empty, all of them are scanned.
- *Line 2 verifies in two steps.* The scan compares boxes and signatures, and keeps candidates. They are decided on
  when the whole tree has been searched, with all their clauses prefetched. Most candidates need no clause: a posting
  holds the two rarest words of its clause, which may be all it has; and a message that overlaps the box as float32,
  by more than a border, also overlaps the exact box.
- *A message may be an area.* A point is in one cell of an s-node (line 12), an area goes into every cell that it
  touches, and may meet a clause in several of them. It takes the clause only in the cell that contains the lower
  left corner of what the two share. So in every column but the area's first it skips the clauses that begin left of
  the column, and in every row but its first those that begin below the row. An entry of the stack holds this as
  the least xmin and the least ymin that a clause may have.
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

__all__ = ["SearchArrays", "Visits", "match_and_visit", "match_probes"]

_LEAVES = config.AP_TREE_LEAVES
_LINE = 16  # 32-bit numbers in a cache line


class SearchArrays(NamedTuple):
    """The arrays that a search reads."""

    clauses: Clauses
    tree: Tree
    ranks: NDArray[np.int32]  # by word
    room: int  # the most nodes that can be on the stack


class Visits(NamedTuple):
    """Arrays for the leaves that probes visit, for those who want to know them."""

    ends: NDArray[np.int64]  # by probe
    nodes: NDArray[np.int32]
    limit: int  # of each probe, one leaf more than this is noted; -1 for none at all


@kernel
def match_probes(
    arrays: SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    """Match the probes from *start* to *stop* (Algorithm 1); see :class:`~nearcast.matching.structure.View`."""
    visits = Visits(np.empty(0, np.int64), np.empty(0, np.int32), -1)
    return match_and_visit(arrays, probes, start, stop, answers, filled, visits)


@kernel
def match_and_visit(
    arrays: SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int, visits: Visits
) -> int:
    """Match probes, as :func:`match_probes` does, and note the leaves that they visit."""
    clauses, tree, ranks, room = arrays
    ends, out = answers
    visit_ends, visited, limit = visits
    nodes, bounds, lows, highs, children = tree[:5]
    edges, postings, boxes = tree.edges, tree.postings, tree.posting_boxes
    probe_boxes, keyword_offsets, keywords = probes.boxes, probes.keyword_offsets, probes.keywords
    most = 0
    for p in range(start, stop):
        most = max(most, keyword_offsets[p + 1] - keyword_offsets[p])
    words = np.empty(most, np.int32)
    waiting = np.empty((room, 2), np.int32)  # the stack: a node N, and the first word that counts (η)
    least = np.empty((room, 2), np.float32)  # the least xmin and ymin that a clause may have
    leaves = np.empty((_LEAVES, 2), np.int32)  # found and not yet scanned: start, size
    leaves_least = np.empty((_LEAVES, 2), np.float32)
    noted = 0
    for p in range(start, stop):
        last = filled
        most = noted + limit + 1
        total = keyword_offsets[p + 1] - keyword_offsets[p]
        signature = rank_words(ranks, keywords, keyword_offsets[p], keyword_offsets[p + 1], words, 0)
        missing = np.int32(~signature)
        xmin, ymin = np.float32(probe_boxes[p, 0]), np.float32(probe_boxes[p, 1])
        xmax, ymax = np.float32(probe_boxes[p, 2]), np.float32(probe_boxes[p, 3])
        # The first call of Algorithm 1: N is the root, and every word counts.
        waiting[0, 0], waiting[0, 1] = 0, 0
        least[0, 0], least[0, 1] = -np.inf, -np.inf
        top, found = 1, 0
        while top > 0 or found > 0:
            if top == 0 or found == _LEAVES:
                # Line 2, first step: scan the leaves found so far, and keep the candidates.
                for k in range(found):
                    begin, size = leaves[k, 0], leaves[k, 1]
                    left, below = leaves_least[k, 0], leaves_least[k, 1]
                    # There must be room for all candidates, and once more for those whose clauses must be read.
                    if 2 * (last + size) - filled > out.size:
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
                # Lines 1 to 3: the leaf is put aside for the scan, unless no box in it can overlap the message.
                if noted < most:
                    visited[noted] = node
                    noted += 1
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
                # Lines 4 to 8: words and cuts are both in order, so a cut is new (line 7) if it is after the last one.
                slot = first - 1
                for i in range(eta, total):
                    word = words[i]
                    cut = cut_of(lows, max(slot, first), first + size, word)  # line 6
                    if cut > slot and cut >= first and word <= highs[cut]:
                        slot = cut
                        # Line 8: η is i + 1. Below the open cut it is i, for that cut does not use up the word.
                        beyond = i + (cut < first + size - 1)
                        top = _push(nodes, children[cut], beyond, left, below, waiting, least, top)
                # Lines 9 and 10: the dummy cut.
                top = _push(nodes, children[first + size], eta, left, below, waiting, least, top)
            else:
                # Lines 11 to 13: the cell of a point, or all cells that an area touches.
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
                # Lines 14 and 15: the dummy cell.
                top = _push(nodes, children[first + size * rows], eta, left, below, waiting, least, top)
        # Line 2, second step: decide on the candidates by their postings alone where that is enough.
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
        # For the others, the clauses decide.
        _prefetch_clauses(clauses, out, last, doubtful)
        doubtful = keep_satisfied(clauses, probes, p, out, last, doubtful)
        for i in range(last, doubtful):
            out[kept] = out[i]
            kept += 1
        filled = kept
        ends[p] = filled
        if limit >= 0:
            visit_ends[p] = noted
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
    """Put a call for a node, if there is one, on the stack; return the new height of the stack."""
    if node < 0:
        return top
    prefetch(nodes, node)
    waiting[top, 0], waiting[top, 1] = node, eta
    least[top, 0], least[top, 1] = left, below
    return top + 1


@kernel
def _has(words: NDArray[np.int32], total: int, word: int) -> Any:
    """Tell whether a word is among the message's words[:total], or is ``NO_WORD``."""
    return word == NO_WORD or has(words, 0, total, word)


@kernel
def _prefetch_clauses(clauses: Clauses, rows: NDArray[np.int32], first: int, last: int) -> None:
    """Begin to load the boxes and keywords of the candidates rows[first:last]."""
    boxes, keyword_runs, keywords = clauses.boxes, clauses.keyword_runs, clauses.keywords
    for i in range(first, last):
        prefetch(keyword_runs, rows[i])
        prefetch(boxes, rows[i])
    for i in range(first, last):
        prefetch(keywords, keyword_runs[rows[i], 0])
