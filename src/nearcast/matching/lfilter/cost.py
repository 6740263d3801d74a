"""What each filter would cost a message, in nanoseconds (section 5.3 of the LFILTER paper).

The equations count steps; here each kind of step has its measured price, in ``config``. Two terms are sharper than
in the paper. Tokens are not equally frequent, so where Equation 1 has N/D, the chance that a token of a clause is
in the message, this is the share of all clauses' tokens that the message's tokens make up. And for each filter the
cost of verification is in the sum, not only that of the filter step: that is what the message waits for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.verify import Probes
from nearcast.matching.mbr_trie import MBRTrie
from nearcast.matching.mbr_trie.trie import Trie
from nearcast.matching.pt_quadtree.quadtree import Frame, Quadtree
from nearcast.matching.token_order import LAST, message_tokens

__all__ = ["costs", "expected_trie_cost"]

_FINEST = config.QUADTREE_LEVELS
_LEVEL = config.LFILTER_LEVEL
_TOP_NS, _NODE_NS, _POSTING_NS = config.LFILTER_TOP_NS, config.LFILTER_NODE_NS, config.LFILTER_POSTING_NS
_CHEAP_NS = config.LFILTER_CHEAP_NS
_TOKEN_NS, _REGION_NS, _PAIR_NS = config.LFILTER_TOKEN_NS, config.LFILTER_REGION_NS, config.LFILTER_PAIR_NS
_ENTRY_NS, _SEEN_NS = config.LFILTER_ENTRY_NS, config.LFILTER_SEEN_NS


@kernel
def _token_share(tokens: NDArray[np.int32], count: int, shares: NDArray[np.float32]) -> float:
    """Return the chance that a token of a clause is in the message; *shares* is that of each rank."""
    total = 0.0
    for i in range(count):
        rank = LAST - int(tokens[i])
        if rank < shares.size:
            total += shares[rank]
    return total


@kernel
def _trie_cost(
    trie: Trie,
    tokens: NDArray[np.int32],
    count: int,
    query: NDArray[np.float32],
    shares: NDArray[np.float32],
    share: float,
) -> Any:
    """Cost_T, Equations 1 and 2: the first level as it is, what is below it by expectation.

    Below a child of the root each clause counts with the chance that its next token is in the message.
    """
    _, _, lows, ends, highs, boxes, tops, _ = trie
    xmin, ymin, xmax, ymax = query[0], query[1], query[2], query[3]
    cost = _POSTING_NS * ends[0]
    for i in range(count):
        rank = LAST - int(tokens[i])
        if rank >= tops.size:
            continue
        share -= shares[rank]  # of the tokens that can follow
        node = tops[rank]
        if node > 0 and (boxes[node, 0] <= xmax) & (boxes[node, 2] >= xmin) & (boxes[node, 1] <= ymax) & (
            boxes[node, 3] >= ymin
        ):
            cost += _TOP_NS + _POSTING_NS * (ends[node] - lows[node])
            cost += _NODE_NS * (highs[node] - ends[node]) * share
    return cost


@kernel
def _quadtree_cost(
    frame: Frame,
    tree: Quadtree,
    cells: NDArray[np.int64],
    count: int,
    query: NDArray[np.float32],
    share: float,
) -> float:
    """Cost_Q, Equations 3 and 4: regions to visit and entries to look at.

    A point reads the lists on one path, whose lengths are known. For an area, cand_Q is estimated on level k as in
    the paper, from the part of each region that the message covers, with a margin of one leaf: a leaf that is
    touched is read whole.
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
    filtering = _TOKEN_NS * count + regions * (_REGION_NS + _PAIR_NS * count)
    return filtering + entries * (_ENTRY_NS + _SEEN_NS * share * share)


@kernel
def costs(
    trie: Trie,
    frame: Frame,
    tree: Quadtree,
    tokens: NDArray[np.int32],
    count: int,
    query: NDArray[np.float32],
    cells: NDArray[np.int64],
    shares: NDArray[np.float32],
) -> Any:
    """Return (Cost_T, Cost_Q, the chance that a token of a clause is in the message).

    Where the trie is cheap, Cost_Q is not worth finding out, and infinite: the way down the quadtree alone, which
    its estimate takes too, costs as much.
    """
    share = _token_share(tokens, count, shares)
    by_trie = _trie_cost(trie, tokens, count, query, shares, share)
    if by_trie < _CHEAP_NS:
        return by_trie, np.inf, share
    return by_trie, _quadtree_cost(frame, tree, cells, count, query, share), share


def expected_trie_cost(index: MBRTrie, probes: Probes) -> float:
    """Return the mean of Cost_T over *probes* for an index that is a trie, in nanoseconds."""
    return float(_mean_trie_cost(index.trie, index.token_shares(), index.ranks, probes))


@kernel
def _mean_trie_cost(trie: Trie, shares: NDArray[np.float32], ranks: NDArray[np.int32], probes: Probes) -> Any:
    offsets, keywords, probe_boxes = probes.keyword_offsets, probes.keywords, probes.boxes
    query = np.empty(4, np.float32)
    total = 0.0
    for p in range(probe_boxes.shape[0]):
        tokens = np.empty(offsets[p + 1] - offsets[p], np.int32)
        count = message_tokens(keywords, offsets[p], offsets[p + 1], ranks, tokens)
        for side in range(4):
            query[side] = probe_boxes[p, side]
        total += _trie_cost(trie, tokens, count, query, shares, _token_share(tokens, count, shares))
    return total / max(probe_boxes.shape[0], 1)
