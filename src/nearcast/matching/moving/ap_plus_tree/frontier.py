"""How far a message goes down the tree when the copies of it are limited (section 4.2.4).

The section is that of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe"
(2015).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.verify import Probes
from nearcast.matching.structures.ap_tree.layout import (
    K_NODE,
    KIND,
    LEAF,
    ROOM,
    ROOT,
    SIZE,
    SLOTS,
    START,
    Tree,
    cut_of,
    rank_words,
    strip_of,
)

__all__ = ["frontier", "push_children"]


@kernel
def frontier(
    tree: Tree,
    ranks: NDArray[np.int32],
    probes: Probes,
    p: int,
    limit: int,
    out: NDArray[np.int32],
) -> Any:
    """Write the nodes that a message reaches, level by level, while they are at most *limit*; return how many."""
    nodes, offsets = tree.nodes, probes.keyword_offsets
    total = offsets[p + 1] - offsets[p]
    words = np.empty(total, np.int32)
    rank_words(ranks, probes.keywords, offsets[p], offsets[p + 1], words, 0)
    level, below = np.empty((limit + 1, 2), np.int32), np.empty((limit + 1, 2), np.int32)
    level[0, 0], level[0, 1] = ROOT, 0
    count = 1
    while True:
        lower, inner = 0, 0
        for i in range(count):
            if lower > limit:
                break
            if nodes[level[i, 0], KIND] == LEAF:
                below[lower, 0], below[lower, 1] = level[i, 0], level[i, 1]
                lower += 1
            else:
                inner += 1
                lower = push_children(tree, words, probes.boxes, p, level[i, 0], level[i, 1], below, lower)
        if inner == 0 or lower > limit:
            break
        level, below, count = below, level, lower
    for i in range(count):
        out[i] = level[i, 0]
    return count


@kernel
def push_children(
    tree: Tree,
    words: NDArray[np.int32],
    boxes: NDArray[np.float64],
    p: int,
    node: int,
    eta: int,
    out: NDArray[np.int32],
    count: int,
) -> Any:
    """Add the children of a node that a message visits (Algorithm 1, lines 4 to 15), each with the position η.

    Returns how many entries *out* has then, which is its length at the most: the others do not fit.
    """
    nodes, lows, highs, children, edges = tree.nodes, tree.lows, tree.highs, tree.children, tree.edges
    first, size = nodes[node, SLOTS], nodes[node, SIZE]
    if nodes[node, KIND] == K_NODE:
        slot = first - 1
        for i in range(eta, words.size):
            cut = cut_of(lows, max(slot, first), first + size, words[i])
            if cut > slot and cut >= first and words[i] <= highs[cut]:
                slot = cut
                count = _push(children[cut], i + (cut < first + size - 1), out, count)
        return _push(children[first + size], eta, out, count)
    rows, edge = nodes[node, ROOM], nodes[node, START]
    x0 = strip_of(edges, edge, size, np.float32(boxes[p, 0]))
    x1 = strip_of(edges, edge, size, np.float32(boxes[p, 2]))
    y0 = strip_of(edges, edge + size - 1, rows, np.float32(boxes[p, 1]))
    y1 = strip_of(edges, edge + size - 1, rows, np.float32(boxes[p, 3]))
    for y in range(y0, y1 + 1):
        for x in range(x0, x1 + 1):
            count = _push(children[first + y * size + x], eta, out, count)
    return _push(children[first + size * rows], eta, out, count)


@kernel
def _push(node: int, eta: int, out: NDArray[np.int32], count: int) -> Any:
    if node < 0 or count == len(out):
        return count
    out[count, 0], out[count, 1] = node, eta
    return count + 1
