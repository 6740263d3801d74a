"""The AP-Tree in memory: flat arrays of nodes, slots and postings.

The nodes are those of section 3.2.2 of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware
Publish/Subscribe" (2015).

A *node* is a row of 32-bit fields. Every k-node and s-node owns a run of *slots*: one for each cut or cell, and a last
one for the dummy cut or dummy cell. A slot refers to a child, and counts the clauses below it: those when the node was
built, and those now.

The cuts of a k-node are intervals of word ranks, in order. Its last cut is *open*: it begins after all words that the
node was built with, is empty at first, and takes the words that come later. The clauses in it can still be divided by
that word, once they are many.

An s-node keeps its *edges* where a k-node keeps the least ranks of its cuts: the inner borders of its columns, then
those of its rows. A cell includes its low borders, and the outermost cells extend without end.

A leaf owns a run of *postings*, by ascending row: box, clause row, signature and the two rarest words.

What a node gives back is used again: nodes are chained through ``START``, and runs of slots and of postings have an
allocator each (:mod:`~nearcast.kernels.slabs`).

Boxes, borders and places are float32. Rounding keeps their order, so boxes that touch still touch after rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.slabs import END, allot, release, size_class

__all__ = [
    "BOUNDS", "BUDGET", "BUILT", "CHANGES", "CHECKED", "DEAD", "DEEPEST", "DEPTH", "FLAGS", "FREE", "FREE_NODE",
    "KIND", "K_NODE", "LEAF", "LIST", "MARKS", "NO_WORD", "OFFSET", "POSTING", "RAREST", "REGION", "ROOM", "ROOT",
    "ROW", "SECOND", "SIGNATURE", "SIZE", "SLOTS", "SPACE", "START", "S_NODE", "USED_NODES", "WEIGHT", "WIDTH", "WORDS",
    "Motion", "Population", "Tree", "allot_leaf", "allot_node", "allot_slots", "bit_of", "cut_of", "free_leaf",
    "free_node", "free_slots", "open_child", "parts_of", "rank_words", "ranked", "room_for", "strip_of",
]  # fmt: skip

# Fields of a node. Some of them are read as float32.
KIND = 0
START = 1  # leaf: first posting; s-node: first edge; free node: the next free one
SIZE = 2  # leaf: postings, dead ones included; k-node: cuts, the open one included; s-node: columns
ROOM = 3  # leaf: the most postings that fit; s-node: rows
SLOTS = 4  # k-node and s-node: first slot
DEAD = 4  # leaf: tombstones, postings that were removed but still take room
BOUNDS = 5  # leaf: a box (float32) around the boxes of its postings
OFFSET = 9  # how many keywords of a clause the k-nodes above have looked at (N_l - 1 in the paper)
FLAGS = 10  # whether its clauses can still be partitioned by WORDS (the paper's kP) and by SPACE (sP)
DEPTH = 11
WEIGHT = 12  # living clauses
BUILT = 13  # clauses when the node was built
CHANGES = 14  # insertions and removals since the node was built
CHECKED = 15  # the changes when its divergence was last computed
BUDGET = 16  # postings that a clause may have below, on average (float32)
LIST = 17  # where messages are kept, the list of those that visited the node; 0 for none
REGION = 18  # the box (float32) that the node's grid divides (N_r in the paper)
WIDTH = 22

LEAF, K_NODE, S_NODE, FREE = 0, 1, 2, 3  # kinds
WORDS, SPACE = 1, 2  # flags

# Fields of a posting: its box first.
ROW, SIGNATURE, RAREST, SECOND, POSTING = 4, 5, 6, 7, 8
MARKS = 3  # signature, rarest and second-rarest word
NO_WORD = 2**31 - 1  # in place of a word that a clause does not have

ROOT = 0  # the number of the root

# Counters of a tree.
USED_NODES = 0  # nodes that are in use or free
FREE_NODE = 1  # the first free node, or 0
DEEPEST = 2  # the greatest depth that any node has had

_AHEAD = config.AP_TREE_AHEAD
_START = config.POSTING_START


class Tree(NamedTuple):
    """The arrays, each with room to grow. Arrays that hold both int32 and float32 have a view for each."""

    nodes: NDArray[np.int32]  # [n, WIDTH]
    node_floats: NDArray[np.float32]
    lows: NDArray[np.int32]  # of slots: the least rank of a cut
    highs: NDArray[np.int32]  # of slots: the greatest rank that a clause in the cut has
    # Of slots: the node, or -1 where there is none; in a free run, the link to the next.
    children: NDArray[np.int32]
    built: NDArray[np.int32]  # of slots: clauses when the node was built
    weights: NDArray[np.int32]  # of slots: clauses now
    edges: NDArray[np.float32]  # a view of lows
    postings: NDArray[np.int32]  # [n, POSTING]; in a free run, ROW is the link to the next one
    posting_boxes: NDArray[np.float32]
    used: NDArray[np.int64]  # the counters
    slot_slabs: NDArray[np.int64]  # the allocators
    posting_slabs: NDArray[np.int64]


class Motion(NamedTuple):
    """How clauses move."""

    velocities: NDArray[np.float32]  # [n, 2], by clause of a population: how far it goes with a move
    moves: float  # of a clause, for each message; 0 where nothing moves
    divergence: float  # θ_KL


class Population(NamedTuple):
    """The clauses that are to be inserted, removed or looked up."""

    rows: NDArray[np.int32]  # ascending
    boxes: NDArray[np.float32]
    offsets: NDArray[np.int64]
    words: NDArray[np.int32]  # ranks, ascending in a clause
    marks: NDArray[np.int32]  # [n, MARKS]
    motion: Motion


@kernel
def rank_words(
    ranks: NDArray[np.int32],
    codes: NDArray[np.int32],
    first: int,
    last: int,
    out: NDArray[np.int32],
    at: int,
) -> Any:
    """Write the ranks of the words codes[first:last] to *out* from *at* on, ascending; return their signature.

    Words are ranked by decreasing frequency when the tree is built; a word that comes later ranks after all of them,
    by its code. A signature is the union of the words' bits; there are 32 bits, and words share them.
    """
    signature = 0
    for k in range(last - first):
        code = codes[first + k]
        rank = ranks[code] if code < ranks.size else code
        out[at + k] = rank
        signature |= bit_of(rank)
    if last - first > 32:
        out[at : at + last - first].sort()
    else:
        for k in range(at + 1, at + last - first):
            rank = out[k]
            j = k
            while j > at and out[j - 1] > rank:
                out[j] = out[j - 1]
                j -= 1
            out[j] = rank
    return signature


@kernel
def bit_of(rank: int) -> Any:
    """Return the bit of a word in signatures."""
    return 1 << ((np.int64(rank) * 0x9E3779B1 >> 16) & 31)


@kernel
def ranked(
    ranks: NDArray[np.int32],
    offsets: NDArray[np.int64],
    codes: NDArray[np.int32],
    bare: NDArray[np.bool_],
    words: NDArray[np.int32],
    marks: NDArray[np.int32],
) -> None:
    """Write the words of each clause as ascending ranks, and its marks.

    If a clause is *bare* (it has no forbidden words and no tests) and has at most two words, its marks are all there is
    to check besides its box. For any other clause the rarest word is written as its complement, which is negative.
    """
    for i in range(offsets.size - 1):
        first, last = offsets[i], offsets[i + 1]
        ahead = min(i + _AHEAD, offsets.size - 2)
        for k in range(offsets[ahead], offsets[ahead + 1]):
            prefetch(ranks, codes[k])
        marks[i, 0] = np.int32(rank_words(ranks, codes, first, last, words, first))
        rarest = words[last - 1] if last > first else NO_WORD
        marks[i, 1] = rarest if bare[i] and last - first <= 2 else ~rarest
        marks[i, 2] = words[last - 2] if last > first + 1 else NO_WORD


@kernel
def cut_of(lows: NDArray[np.int32], first: int, last: int, word: int) -> Any:
    """Return the slot of a word's cut: the last cut that begins at the word or before; first - 1 if there is none."""
    # The search has no branches on the values that it compares, because they could not be predicted.
    left = last - first
    while left > 1:
        half = left >> 1
        first += half * (lows[first + half - 1] <= word)
        left -= half
    if left == 1:
        first += lows[first] <= word
    return first - 1


@kernel
def strip_of(edges: NDArray[np.float32], first: int, strips: int, value: Any) -> Any:
    """Return the column (or row) of a coordinate, among *strips* of them whose inner borders begin at edge *first*."""
    low, high = 0, strips - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if edges[first + middle - 1] <= value:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def room_for(size: int) -> Any:
    """Return the room of a new leaf: an eighth more than it needs, so that it need not move for the next clauses."""
    return size + (size >> 3) + 1


@kernel
def allot_node(tree: Tree) -> Any:
    """Return a node for the caller to set: a free one, or the next; there must be room for it."""
    node = tree.used[FREE_NODE]
    if node > 0:
        tree.used[FREE_NODE] = tree.nodes[node, START]
    else:
        node = tree.used[USED_NODES]
        tree.used[USED_NODES] = node + 1
    return node


@kernel
def free_node(tree: Tree, node: int) -> None:
    """Give a node back."""
    tree.nodes[node, KIND] = FREE
    tree.nodes[node, START] = tree.used[FREE_NODE]
    tree.used[FREE_NODE] = node


@kernel
def parts_of(nodes: NDArray[np.int32], node: int) -> Any:
    """Return how many cuts or cells a k-node or an s-node has, without the dummy."""
    return nodes[node, SIZE] if nodes[node, KIND] == K_NODE else nodes[node, SIZE] * nodes[node, ROOM]


@kernel
def allot_slots(tree: Tree, count: int) -> Any:
    """Return the first of *count* slots without children; there must be room for twice as many at the end."""
    first = allot(tree.slot_slabs, tree.children, size_class(count), 0)
    for slot in range(first, first + count):
        tree.children[slot] = -1
        tree.built[slot] = tree.weights[slot] = 0
    return first


@kernel
def free_slots(tree: Tree, first: int, count: int) -> None:
    """Give back what :func:`allot_slots` returned."""
    release(tree.slot_slabs, tree.children, first, 1 << size_class(count), 0)


@kernel
def allot_leaf(tree: Tree, node: int, size: int, snug: bool) -> None:
    """Give a leaf a run of at least *size* postings; there must be room for twice as many at the end.

    A *snug* one has just that length. It is for a tree that is built as a whole: only runs whose lengths are powers of
    two serve others well when they are given back.
    """
    slabs = tree.posting_slabs
    if snug:
        tree.nodes[node, START] = slabs[END]
        slabs[END] += size
    else:
        k = size_class(max(size, _START))
        tree.nodes[node, START] = allot(slabs, tree.postings[:, ROW], k, 0)
        size = 1 << k
    tree.nodes[node, ROOM] = size


@kernel
def free_leaf(tree: Tree, start: int, room: int) -> None:
    """Give back a run of postings."""
    release(tree.posting_slabs, tree.postings[:, ROW], start, room, 0)


@kernel
def open_child(tree: Tree, parent: int, slot: int, child: int) -> None:
    """Make *child* an empty leaf in a slot of *parent*, with its offset, flags, region and budget.

    The offset and the flags are the arguments l, kP and sP of the recursive calls of Algorithm 4 (lines 13, 16, 21
    and 24).
    """
    nodes, floats, edges = tree.nodes, tree.node_floats, tree.edges
    columns, rows = nodes[parent, SIZE], nodes[parent, ROOM]
    number = slot - nodes[parent, SLOTS]
    nodes[child, :] = 0
    nodes[child, OFFSET] = nodes[parent, OFFSET]
    nodes[child, DEPTH] = nodes[parent, DEPTH] + 1
    tree.used[DEEPEST] = max(tree.used[DEEPEST], nodes[child, DEPTH])
    flags = nodes[parent, FLAGS]
    for k in range(4):
        floats[child, REGION + k] = floats[parent, REGION + k]
        floats[child, BOUNDS + k] = np.inf if k < 2 else -np.inf
    floats[child, BUDGET] = floats[parent, BUDGET]
    if nodes[parent, KIND] == K_NODE:
        if number == columns:  # the dummy cut
            flags &= ~WORDS
        elif number < columns - 1:
            nodes[child, OFFSET] += 1
    elif number == columns * rows:  # the dummy cell
        flags &= ~SPACE
    else:
        column, row = number % columns, number // columns
        first = nodes[parent, START]
        if column > 0:
            floats[child, REGION] = edges[first + column - 1]
        if column < columns - 1:
            floats[child, REGION + 2] = edges[first + column]
        first += columns - 1
        if row > 0:
            floats[child, REGION + 1] = edges[first + row - 1]
        if row < rows - 1:
            floats[child, REGION + 3] = edges[first + row]
    nodes[child, FLAGS] = flags
    tree.children[slot] = child
