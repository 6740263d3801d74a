"""The MBRTrie as flat arrays, and its construction.

This is section 3.1 of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015).
Nodes are numbered level by level, so the children of a node lie side by side, sorted by token, and those of the next
node follow. A clause is listed at the node of its last token. The paper adds an empty leaf there; here the list is the
front of the node's id range. Ids are positions in one array of postings, in the order of the token sets: a subtrie is
a range of ids, and a list is read from front to back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.clauses import words_alone
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses
from nearcast.matching.structures.token_order import LAST

__all__ = [
    "NOWHERE",
    "Postings",
    "Trie",
    "bound",
    "bound_blocks",
    "build_trie",
    "check_trie",
    "clause_rows_of",
    "curve_over",
    "curve_place",
    "lift_boxes",
    "places_of",
    "tops_of",
    "trie_stats",
]

NOWHERE = np.nan  # the box of a posting that was removed: it touches nothing
_BLOCK = config.TRIE_BLOCK


class Postings(NamedTuple):
    """The clauses in the order of their ids."""

    boxes: NDArray[np.float32]  # [n, 4]
    # The clause row, or its complement if the clause has forbidden words or tests, which must still be checked.
    rows: NDArray[np.int32]
    blocks: NDArray[np.float32]  # [n / TRIE_BLOCK, 4]: the MBR of each run of TRIE_BLOCK postings
    curve: NDArray[np.float64]  # [4]: least x and y, width and height of the region of the Z-order curve


class Trie(NamedTuple):
    """The nodes; node 0 is the root."""

    tokens: NDArray[np.int32]
    first: NDArray[np.int32]  # first child of each node, and the end
    lows: NDArray[np.int32]  # n_l, the first id under the node; its own list begins here
    ends: NDArray[np.int32]  # the end of its own list
    highs: NDArray[np.int32]  # n_u + 1, the end of the ids under the node
    boxes: NDArray[np.float32]  # [nodes, 4], n_mbr
    tops: NDArray[np.int32]  # by rank: the child of the root with that token, or 0
    levels: NDArray[np.int64]  # the first node of each level, and the end


def build_trie(
    clauses: Clauses,
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    tokens: NDArray[np.int32],
    ranks: int,
    curve: NDArray[np.float64] | None = None,
) -> tuple[Trie, Postings]:
    """Build a trie over clause rows, whose tokens are (offsets, tokens); there are *ranks* different tokens.

    The lists are sorted along *curve*, or by default along a curve over all boxes.
    """
    starts, lengths = offsets[:-1], np.diff(offsets)
    node = np.zeros(len(rows), np.int64)
    level_tokens, level_parents, levels = [np.full(1, -1)], [np.zeros(0, np.int64)], [0, 1]
    left = np.arange(len(rows))  # the clauses that have a token on this level, in the order of their nodes
    depth = 0
    while (left := left[lengths[left] > depth]).size:
        keys = node[left] << 32 | tokens[starts[left] + depth]
        order = np.argsort(keys, kind="stable")
        keys, left = keys[order], left[order]
        fresh = np.append(True, keys[1:] != keys[:-1])
        node[left] = np.cumsum(fresh) + (levels[-1] - 1)
        keys = keys[fresh]
        level_tokens.append(keys & 0xFFFFFFFF)
        level_parents.append(keys >> 32)
        levels.append(levels[-1] + len(keys))
        depth += 1
    count = levels[-1]
    parents = np.concatenate(level_parents)
    first = (offsets_of(np.bincount(parents, minlength=count)) + 1).astype(np.int32)
    own = np.bincount(node, minlength=count)
    lows, highs = np.empty(count, np.int64), np.empty(count, np.int64)
    _number(parents, own, lows, highs)

    with np.errstate(over="ignore"):
        boxes = clauses.boxes[rows].astype(np.float32)
    # The order within a list is free. Along a curve through space, a run of postings has a small MBR.
    curve = curve_over(boxes) if curve is None else curve
    order = np.argsort(lows[node] << 32 | _curve_places(boxes, curve), kind="stable")
    taken, boxes = rows[order], boxes[order]
    mbrs = bound(boxes, lows, lows + own)
    lift_boxes(first, mbrs)
    all_tokens = np.concatenate(level_tokens).astype(np.int32)
    trie = Trie(
        all_tokens,
        first,
        lows.astype(np.int32),
        (lows + own).astype(np.int32),
        highs.astype(np.int32),
        mbrs,
        tops_of(all_tokens, np.array(levels), ranks),
        np.array(levels),
    )
    signed = np.where(words_alone(clauses, taken), taken, ~taken).astype(np.int32)
    return trie, Postings(boxes, signed, bound_blocks(boxes), curve)


def tops_of(tokens: NDArray[np.int32], levels: NDArray[np.int64], ranks: int) -> NDArray[np.int32]:
    """Return, by rank, the child of the root with that token, or 0."""
    tops = np.zeros(ranks, np.int32)
    if len(levels) > 2:
        tops[LAST - tokens[1 : levels[2]]] = np.arange(1, levels[2])
    return tops


def bound_blocks(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the MBR of each run of TRIE_BLOCK boxes."""
    begins = np.arange(0, len(boxes), _BLOCK)
    blocks: NDArray[np.float32] = bound(boxes, begins, np.minimum(begins + _BLOCK, len(boxes)))
    return blocks


def clause_rows_of(postings: Postings) -> NDArray[np.int64]:
    """Return the clause row of each posting."""
    return np.where(postings.rows < 0, ~postings.rows, postings.rows).astype(np.int64)


def places_of(laid: NDArray[np.int64], clauses: int) -> NDArray[np.int32]:
    """Return the id of each clause row, or -1 if it has none."""
    places = np.full(clauses, -1, np.int32)
    places[laid] = np.arange(len(laid))
    return places


@kernel
def _number(
    parents: NDArray[np.int64],
    own: NDArray[np.int64],
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
) -> None:
    """Write the id range [low, high) of each node: its own list, then the ranges of its children in order."""
    nodes = own.size
    highs[:] = own
    for child in range(nodes - 1, 0, -1):
        highs[parents[child - 1]] += highs[child]
    lows[0] = 0
    after = own.copy()  # where the next child of a node begins
    for child in range(1, nodes):
        parent = parents[child - 1]
        lows[child] = after[parent]
        after[parent] += highs[child]
        after[child] += lows[child]
        highs[child] += lows[child]


@kernel
def bound(boxes: NDArray[np.float32], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Any:
    """Return the MBR of each run of boxes; the MBR of an empty run touches nothing."""
    out = np.empty((starts.size, 4), np.float32)
    for i in range(starts.size):
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = np.inf, np.inf, -np.inf, -np.inf
        for at in range(starts[i], ends[i]):
            for k in range(2):
                out[i, k] = min(out[i, k], boxes[at, k])
                out[i, k + 2] = max(out[i, k + 2], boxes[at, k + 2])
    return out


@kernel
def lift_boxes(first: NDArray[np.int32], boxes: NDArray[np.float32]) -> None:
    """Widen the box of each node to include those of its children, which have larger numbers."""
    for node in range(boxes.shape[0] - 1, -1, -1):
        for child in range(first[node], first[node + 1]):
            for k in range(2):
                boxes[node, k] = min(boxes[node, k], boxes[child, k])
                boxes[node, k + 2] = max(boxes[node, k + 2], boxes[child, k + 2])


def curve_over(boxes: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the least x and y, the width and the height of the region of all finite centres of boxes."""
    with np.errstate(invalid="ignore"):
        centres = boxes[:, :2] / 2 + boxes[:, 2:] / 2
    centres = centres[np.isfinite(centres).all(axis=1)].astype(np.float64)
    if not len(centres):
        return np.array([0.0, 0.0, 1.0, 1.0])
    low = centres.min(axis=0)
    return np.concatenate([low, np.maximum(centres.max(axis=0) - low, 1e-300)])


@kernel
def curve_place(boxes: NDArray[np.float32], i: int, curve: NDArray[np.float64]) -> Any:
    """Return the place of a box's centre on the Z-order curve, in 32 bits; unbounded boxes come last."""
    place = 0
    for k in range(2):
        centre = np.float64(boxes[i, k] / np.float32(2) + boxes[i, k + 2] / np.float32(2))
        if not np.isfinite(centre):
            return 0xFFFFFFFF
        cell = int(min(max((centre - curve[k]) / curve[k + 2], 0.0), 1.0) * 0xFFFF)
        cell = (cell | cell << 8) & 0x00FF00FF
        cell = (cell | cell << 4) & 0x0F0F0F0F
        cell = (cell | cell << 2) & 0x33333333
        cell = (cell | cell << 1) & 0x55555555
        place |= cell << k
    return place


@kernel
def _curve_places(boxes: NDArray[np.float32], curve: NDArray[np.float64]) -> Any:
    places = np.empty(boxes.shape[0], np.int64)
    for i in range(boxes.shape[0]):
        places[i] = curve_place(boxes, i, curve)
    return places


def trie_stats(trie: Trie) -> dict[str, Any]:
    """Return the figures of a trie."""
    lists = (trie.ends - trie.lows)[trie.ends > trie.lows]
    return {
        "height": len(trie.levels) - 2,
        "nodes_per_level": np.diff(trie.levels).tolist(),
        "lists": len(lists),
        "longest_list": int(lists.max(initial=0)),
    }


def check_trie(trie: Trie, postings: Postings) -> list[str]:
    """Check the order of children and the nesting of ranges and boxes; return what is wrong."""
    found = []
    nodes = len(trie.tokens)
    parents = np.repeat(np.arange(nodes), np.diff(trie.first))
    children = np.arange(1, nodes)
    if trie.first[0] != 1 or trie.first[-1] != nodes or len(parents) != nodes - 1:
        return ["some nodes of the trie are not the child of exactly one node"]
    siblings = parents[1:] == parents[:-1]
    if (np.diff(trie.tokens[1:].astype(np.int64))[siblings] <= 0).any():
        found.append("the children of a trie node are not sorted by token")
    if not (trie.lows <= trie.ends).all() or not (trie.ends <= trie.highs).all():
        return [*found, "a list of the trie lies outside its node's id range"]
    ends = np.append(trie.highs[1:][:-1][~siblings], trie.highs[-1:]) if nodes > 1 else np.empty(0)
    begins = np.append(0, trie.highs[1:][:-1])[: nodes - 1]
    eldest = np.append(True, ~siblings)[: nodes - 1]
    begins = np.where(eldest, trie.ends[parents], begins)
    if not np.array_equal(trie.lows[children], begins) or not np.array_equal(
        ends, trie.highs[np.unique(parents)]
    ):
        found.append("the id ranges of the children do not fill that of their trie node")
    if trie.highs[0] != len(postings.rows) or trie.lows[0] != 0:
        found.append("the root of the trie does not have all ids")
    boxes = trie.boxes
    if (boxes[children, :2] < boxes[parents, :2]).any() or (boxes[children, 2:] > boxes[parents, 2:]).any():
        found.append("the box of a trie node does not contain those of its children")
    homes = np.repeat(np.arange(nodes), trie.ends - trie.lows)
    ids = np.arange(len(homes)) - np.repeat(
        offsets_of(trie.ends - trie.lows)[:-1] - trie.lows, trie.ends - trie.lows
    )
    blocks = postings.blocks[ids // _BLOCK]
    for outer, name in ((boxes[homes], "node"), (blocks, "block")):
        inner = postings.boxes[ids]
        if (inner[:, :2] < outer[:, :2]).any() or (inner[:, 2:] > outer[:, 2:]).any():
            found.append(f"a posting lies outside the box of its {name}")
    tops = np.flatnonzero(trie.tops)
    if not np.array_equal(trie.tokens[trie.tops[tops]], LAST - tops) or len(tops) != trie.first[1] - 1:
        found.append("the children of the root are not found by their ranks")
    return found
