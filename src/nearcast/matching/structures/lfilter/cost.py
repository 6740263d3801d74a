"""The cost of each filter for a message, in nanoseconds.

This is section 5.3 of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015). Its
equations count steps; here each kind of step has a measured price, in ``config``. Two terms are more precise than in
the paper. Equation 1 takes N/D for the chance that a token of a clause is in the message; but tokens are not equally
frequent, so here it is the share of the message's tokens among the tokens of all clauses. And the cost of a filter
includes its verification step, not only its filter step, because the message waits for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.verify import Probes
from nearcast.matching.structures.mbr_trie import MBRTrie
from nearcast.matching.structures.mbr_trie.trie import Trie
from nearcast.matching.structures.pt_quadtree.quadtree import Frame, Quadtree
from nearcast.matching.structures.token_order import LAST, message_tokens

__all__ = ["SHARE", "costs", "expected_trie_cost", "token_figures", "tops_in"]

SHARE, TOP = 6, 7  # the columns of the share and of the child of the root among the figures of a token
_FINEST = config.QUADTREE_LEVELS
_LEVEL = config.LFILTER_LEVEL
_TOP_NS, _NODE_NS, _POSTING_NS = config.LFILTER_TOP_NS, config.LFILTER_NODE_NS, config.LFILTER_POSTING_NS
_CHEAP_NS = config.LFILTER_CHEAP_NS
_TOKEN_NS, _REGION_NS = config.LFILTER_TOKEN_NS, config.LFILTER_REGION_NS
_ENTRY_NS, _SEEN_NS = config.LFILTER_ENTRY_NS, config.LFILTER_SEEN_NS


def token_figures(trie: Trie, shares: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the figures of each token that Cost_T needs: float32[ranks, 8], half a cache line for each token.

    The first figures are those of the root's child with the token: its MBR (NaN if there is no such child), the
    postings of its own list, and those below it. Then come the token's share among the tokens of all clauses, and the
    child itself (an integer: see :func:`tops_in`).
    """
    figures = np.empty((max(2, len(trie.tops)), 8), np.float32)
    figures[len(trie.tops) :] = 0  # at least two rows: a column of one row has another type for Numba
    _write_figures(trie, shares, figures)
    tops_in(figures)[: len(trie.tops)] = trie.tops
    return figures


def tops_in(figures: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the children of the root, as a view of the figures of the tokens.

    Once the figures of a message's tokens have been read, these children are in the cache.
    """
    tops: NDArray[np.int32] = figures.view(np.int32)[:, TOP]
    return tops


@kernel
def _write_figures(trie: Trie, shares: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    _, _, lows, ends, highs, boxes, tops, _ = trie
    for rank in range(tops.size):
        top = tops[rank]
        for k in range(4):
            out[rank, k] = boxes[top, k] if top > 0 else np.nan
        out[rank, 4] = ends[top] - lows[top]
        out[rank, 5] = highs[top] - ends[top]
        out[rank, SHARE] = shares[rank]


@kernel
def _trie_cost(
    bare: int,
    figures: NDArray[np.float32],
    tokens: NDArray[np.int32],
    count: int,
    query: NDArray[np.float32],
) -> Any:
    """Return Cost_T (equations 1 and 2), and the chance that a token of a clause is in the message.

    On the first level of the trie the costs are known. Below it they are expected ones: each clause counts with the
    chance that its next token is in the message. *bare* is the number of clauses without tokens.
    """
    total = 0.0
    # A short loop, so that the memory accesses of many tokens overlap. The next loop finds them in the cache.
    for i in range(count):
        rank = LAST - int(tokens[i])
        if rank < figures.shape[0]:
            total += figures[rank, SHARE]
    xmin, ymin, xmax, ymax = query[0], query[1], query[2], query[3]
    cost, share = _POSTING_NS * bare, total
    for i in range(count):
        rank = LAST - int(tokens[i])
        if rank >= figures.shape[0]:
            continue
        share -= figures[rank, SHARE]  # of the tokens that can follow
        price = _TOP_NS + _POSTING_NS * figures[rank, 4] + _NODE_NS * figures[rank, 5] * share
        cost += price * (
            (figures[rank, 0] <= xmax)
            & (figures[rank, 2] >= xmin)
            & (figures[rank, 1] <= ymax)
            & (figures[rank, 3] >= ymin)
        )
    return cost, total


@kernel
def _quadtree_cost(
    frame: Frame,
    tree: Quadtree,
    cells: NDArray[np.int64],
    count: int,
    query: NDArray[np.float32],
    share: float,
) -> float:
    """Return Cost_Q (equations 3 and 4): the cost of the regions to visit and of the entries to read.

    A point reads the lists on one path, whose lengths are known. For an area, cand_Q is estimated on level k as in
    the paper, from the part of each region that the message covers. A margin of one leaf is added, because a leaf that
    is touched is read as a whole.
    """
    first, columns, rows, _, starts, under, leaves = tree[:7]
    single = cells[0] == cells[2] and cells[1] == cells[3]
    stack = np.empty((3 * _FINEST + 4, 2), np.int64)
    stack[0] = 0
    top = 1
    regions, entries = 0.0, 0.0
    while top > 0:
        top -= 1
        node, level = stack[top, 0], stack[top, 1]
        regions += 1.0
        if not single and level == _LEVEL and first[node] > 0:
            side_x, side_y = frame.width / (1 << level), frame.height / (1 << level)
            left, low = frame.x + columns[node] * side_x, frame.y + rows[node] * side_y
            margin = 1.0 / np.sqrt(np.float64(leaves[node]))
            wide = (min(query[2], left + side_x) - max(query[0], left)) / side_x
            high = (min(query[3], low + side_y) - max(query[1], low)) / side_y
            part = min(max(wide, 0.0) + margin, 1.0) * min(max(high, 0.0) + margin, 1.0)
            regions += leaves[node] * part  # cand_Q
            entries += under[node] * part
            continue
        entries += starts[node + 1] - starts[node]
        if first[node] > 0:
            shift = _FINEST - (level + 1)
            for child in range(first[node], first[node] + 4):
                if (cells[0] >> shift) <= columns[child] <= (cells[2] >> shift) and (
                    cells[1] >> shift
                ) <= rows[child] <= (cells[3] >> shift):
                    stack[top, 0] = child
                    stack[top, 1] = level + 1
                    top += 1
    return _TOKEN_NS * count + _REGION_NS * regions + entries * (_ENTRY_NS + _SEEN_NS * share)


@kernel
def costs(
    trie: Trie,
    figures: NDArray[np.float32],
    frame: Frame,
    tree: Quadtree,
    tokens: NDArray[np.int32],
    count: int,
    query: NDArray[np.float32],
    cells: NDArray[np.int64],
) -> Any:
    """Return (Cost_T, Cost_Q, the chance that a token of a clause is in the message).

    If the trie is cheap, Cost_Q is not computed and is returned as infinite: its estimate goes down the quadtree, and
    that alone would cost as much as the trie.
    """
    by_trie, share = _trie_cost(trie.ends[0], figures, tokens, count, query)
    if by_trie < _CHEAP_NS:
        return by_trie, np.inf, share
    return by_trie, _quadtree_cost(frame, tree, cells, count, query, share), share


def expected_trie_cost(index: MBRTrie, probes: Probes) -> float:
    """Return the mean Cost_T of *probes* in an MBRTrie, in nanoseconds."""
    figures = token_figures(index.trie, index.token_shares())
    return float(_mean_trie_cost(int(index.trie.ends[0]), figures, index.ranks, probes))


@kernel
def _mean_trie_cost(bare: int, figures: NDArray[np.float32], ranks: NDArray[np.int32], probes: Probes) -> Any:
    offsets, keywords, probe_boxes = probes.keyword_offsets, probes.keywords, probes.boxes
    query = np.empty(4, np.float32)
    total = 0.0
    for p in range(probe_boxes.shape[0]):
        tokens = np.empty(offsets[p + 1] - offsets[p], np.int32)
        count = message_tokens(keywords, offsets[p], offsets[p + 1], ranks, tokens)
        for side in range(4):
            query[side] = probe_boxes[p, side]
        total += _trie_cost(bare, figures, tokens, count, query)[0]
    return total / max(probe_boxes.shape[0], 1)
