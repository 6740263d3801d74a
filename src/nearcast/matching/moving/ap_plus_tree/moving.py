"""What comes into reach of clauses that move, and what goes out of it (Algorithms 6 and 7, section 4.2.5).

The algorithms are those of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware
Publish/Subscribe" (2015). A clause goes down the tree by both ways at once, that of its region before (r) and that of
its region after (r_n). So each node on the way belongs to one of them, or to both, and each leaf is one of four cases:

1. its region lies within both r and r_n: nothing changes, and its list is not read;
2. it is on the way of r alone: what r reached there goes out of reach;
3. it is on both ways: what is in one of r and r_n only changes sides;
4. it is on the way of r_n alone: what r_n reaches there comes into reach (Algorithm 7, for the new part of the region).

A clause that is new, or is looked up as a whole, has no way of r. The lists of the nodes above the leaves are read as
well, because of the limit on copies. The paper keeps for each subscription a list of its leaves; here the way down is
found again, which takes less time than keeping such lists up to date.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.verify import StoredProbes, keep_satisfying, keep_valid
from nearcast.matching.messages.cells import add_word, rounded
from nearcast.matching.moving.ap_plus_tree.messages import (
    BORN,
    NEXT,
    ROW,
    SIZE,
    START,
    Lists,
    X,
    Y,
    give_list,
)
from nearcast.matching.structure import Answers, Moment, Moves
from nearcast.matching.structures.ap_tree import layout
from nearcast.matching.structures.ap_tree.build import dummy
from nearcast.matching.structures.ap_tree.layout import (
    K_NODE,
    KIND,
    LEAF,
    LIST,
    OFFSET,
    REGION,
    ROOM,
    ROOT,
    SLOTS,
    Population,
    Tree,
    cut_of,
    strip_of,
)
from nearcast.matching.structures.ap_tree.maintain import CLAUSE, NODE, PARENT, SLOT

__all__ = [
    "AFTER", "BEFORE", "CASES", "SCANNED", "SIDES", "STEP", "UNSEEN", "MessageView", "Questions", "pick",
    "route", "search",
]  # fmt: skip

# One more column of a way: whether a step is on the way of the region before, of the one after, or of both.
SIDES, STEP = 4, 5
BEFORE, AFTER = 1, 2
UNSEEN = 4  # and whether messages with the word of the clause have not been sent this way
CASES, SCANNED = 0, 4  # figures: leaves by case, and entries of lists that were read
_ABREAST = 16  # clauses whose candidates are decided together
_LOW_HALF = 2**32 - 1
_AHEAD = 4  # lists between prefetching one and reading it
NOT_YET = 2**31 - 1  # in place of the birth of a list that is not there


class Questions(NamedTuple):
    """Clauses that ask for messages, and the lists where each of them finds some."""

    moves: Moves
    offsets: NDArray[np.int64]
    lists: NDArray[np.int32]


class MessageView(NamedTuple):
    """The messages in the tree, for searches."""

    stored: StoredProbes
    lists: Lists
    figures: NDArray[np.int64]


@kernel
def route(
    tree: Tree,
    population: Population,
    befores: NDArray[np.float32],
    afters: NDArray[np.float32],
    sides: int,
    first: int,
    last: int,
    way: NDArray[np.int32],
) -> Any:
    """Write the steps that the clauses from *first* to *last* take down the tree; return how many, -1 if too many.

    As in ``maintain.route``, the clauses go down side by side, and an empty slot has the node -1.
    """
    nodes, floats, children = tree.nodes, tree.node_floats, tree.children
    lows, highs, edges = tree.lows, tree.highs, tree.edges
    offsets, words = population.offsets, population.words
    for c in range(first, last):
        i = c - first
        way[i, CLAUSE], way[i, PARENT], way[i, SLOT], way[i, NODE], way[i, SIDES] = c, -1, -1, ROOT, sides
    steps, done = last - first, 0
    while done < steps:
        c, node, sides = way[done, CLAUSE], way[done, NODE], way[done, SIDES]
        done += 1
        if node < 0 or nodes[node, KIND] == LEAF:
            continue
        begin, size = nodes[node, SLOTS], nodes[node, layout.SIZE]
        if nodes[node, KIND] == K_NODE:
            if steps == len(way):
                return -1
            at = offsets[c] + nodes[node, OFFSET]
            slot = begin + size
            if at < offsets[c + 1]:
                slot = max(cut_of(lows, begin, begin + size, words[at]), begin)
                if not lows[slot] <= words[at] <= highs[slot]:
                    sides |= UNSEEN
            steps = _step(nodes, way, steps, c, node, slot, children[slot], sides)
            continue
        unseen = sides & UNSEEN
        left = low = other_left = other_low = 0
        right = high = other_right = other_high = -1
        if sides & BEFORE:
            left, right, low, high = _cells(edges, nodes, floats, node, befores, c)
        if sides & AFTER:
            other_left, other_right, other_low, other_high = _cells(edges, nodes, floats, node, afters, c)
        most = (right - left + 1) * (high - low + 1) + (other_right - other_left + 1) * (
            other_high - other_low + 1
        )
        if steps + most > len(way):
            return -1
        for y in range(low, high + 1):
            for x in range(left, right + 1):
                both = other_left <= x <= other_right and other_low <= y <= other_high
                slot = begin + y * size + x
                steps = _step(
                    nodes, way, steps, c, node, slot, children[slot], unseen | BEFORE | both * AFTER
                )
        for y in range(other_low, other_high + 1):
            for x in range(other_left, other_right + 1):
                if not (left <= x <= right and low <= y <= high):
                    slot = begin + y * size + x
                    steps = _step(nodes, way, steps, c, node, slot, children[slot], unseen | AFTER)
    return steps


@kernel
def _step(
    nodes: NDArray[np.int32],
    way: NDArray[np.int32],
    steps: int,
    c: int,
    parent: int,
    slot: int,
    node: int,
    sides: int,
) -> Any:
    prefetch(nodes, node)
    prefetch(nodes.reshape(-1), node * layout.WIDTH + 15)
    way[steps, CLAUSE], way[steps, PARENT], way[steps, SLOT] = c, parent, slot
    way[steps, NODE], way[steps, SIDES] = node, sides
    return steps + 1


@kernel
def _cells(
    edges: NDArray[np.float32],
    nodes: NDArray[np.int32],
    floats: NDArray[np.float32],
    node: int,
    boxes: NDArray[np.float32],
    c: int,
) -> Any:
    """Return the first and the last column, and row, of the cells that a box is in; the dummy cell is a column."""
    edge, size, rows = nodes[node, layout.START], nodes[node, layout.SIZE], nodes[node, ROOM]
    left, right = strip_of(edges, edge, size, boxes[c, 0]), strip_of(edges, edge, size, boxes[c, 2])
    edge += size - 1
    low, high = strip_of(edges, edge, rows, boxes[c, 1]), strip_of(edges, edge, rows, boxes[c, 3])
    if dummy(boxes, c, floats, node, (right - left + 1) * (high - low + 1)):
        return size * rows, size * rows, 0, 0
    return left, right, low, high


@kernel
def pick(
    tree: Tree,
    lists: Lists,
    way: NDArray[np.int32],
    first: int,
    last: int,
    kept: NDArray[np.float32],
    births: NDArray[np.int32],
    ends: NDArray[np.int64],
    picked: NDArray[np.int32],
    figures: NDArray[np.int64],
) -> Any:
    """Write the lists that the clauses from *first* to *last* read, clause by clause; return how many.

    *births* get the number of the first message since which all lists on the way are complete. A node that has no list
    gets one, for which there must be room.
    """
    nodes, heads = tree.nodes, lists.heads
    chosen = np.empty(len(way), np.int32)
    for c in range(first, last):
        births[c] = 0
        ends[c] = 0
    for i in range(len(way)):
        if way[i, NODE] >= 0:
            prefetch(heads, nodes[way[i, NODE], LIST])
    for i in range(len(way)):
        c, node = way[i, CLAUSE], way[i, NODE]
        chosen[i] = 0
        if node < 0:
            births[c] = NOT_YET
            continue
        number = nodes[node, LIST]
        if number == 0:
            number = give_list(nodes, lists, node, lists.state[NEXT])
        births[c] = NOT_YET if way[i, SIDES] & UNSEEN else max(births[c], heads[number, BORN])
        case = 2
        if not way[i, SIDES] & AFTER:
            case = 1
        elif not way[i, SIDES] & BEFORE:
            case = 3
        elif _within(tree.node_floats, node, kept, c):
            case = 0
        if nodes[node, KIND] == LEAF:
            figures[CASES + case] += 1
        if case > 0 and heads[number, SIZE] > 0:
            chosen[i] = number
            ends[c] += 1
    total = 0
    for c in range(first, last):
        total += ends[c]
        ends[c] = total - ends[c]
    for i in range(len(way)):
        if chosen[i] > 0:
            picked[ends[way[i, CLAUSE]]] = chosen[i]
            ends[way[i, CLAUSE]] += 1
    return total


@kernel
def _within(floats: NDArray[np.float32], node: int, boxes: NDArray[np.float32], c: int) -> Any:
    """Tell whether all that a node's cell can contain is within a box for sure.

    A cell at the border of the root's region extends without end.
    """
    for k in range(2):
        low, high = floats[node, REGION + k], floats[node, REGION + 2 + k]
        if low <= floats[ROOT, REGION + k]:
            low = -np.inf
        if high >= floats[ROOT, REGION + 2 + k]:
            high = np.inf
        if not (boxes[c, k] < low and high < boxes[c, 2 + k]):
            return False
    return True


@kernel
def search(
    view: MessageView,
    questions: Questions,
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    """Find the valid messages that have what the clauses from *start* to *stop* ask for, and may change sides.

    That is, they may be within the region before or after, but not within both; a clause without a region before finds
    what it reaches. See ``search_moves`` of :class:`~nearcast.matching.structure.View`.
    """
    stored, lists, figures = view
    moves, offsets, numbers = questions
    clauses, befores, afters, kepts = moves
    arounds, need_runs, needed = clauses.boxes, clauses.keyword_runs, clauses.keywords
    ends, out = answers
    heads, entries, places, signs, living = (
        lists.heads,
        lists.entries,
        lists.places,
        lists.signs,
        lists.living,
    )
    boxes, keyword_runs, keywords, expires = (
        stored.boxes,
        stored.keyword_runs,
        stored.keywords,
        stored.expires,
    )
    found = np.empty(_ABREAST, np.int64)  # where the candidates of each clause end
    done, scanned = start, 0
    while done < stop:
        last = filled
        # Candidates of some clauses are found, so that the waits for their messages overlap.
        block = 0
        while block < _ABREAST and done + block < stop:
            c = done + block
            low = high = 0
            for k in range(need_runs[c, 0], need_runs[c, 1]):
                low, high = add_word(needed[k], low, high)
            sign = np.int64(high) << 32 | np.int64(low) & _LOW_HALF
            size, end = _scan(
                heads, signs, places, numbers, offsets[c], offsets[c + 1], sign, arounds, c, out, last
            )
            if end < 0:
                break
            scanned += size
            before, after, kept = rounded(befores, c), rounded(afters, c), rounded(kepts, c)
            for i in range(last, end):
                x, y = places[out[i], X], places[out[i], Y]
                out[last] = out[i]
                last += (not _outside(x, y, before) or not _outside(x, y, after)) and not _inside(x, y, kept)
            found[block] = last
            block += 1
        if block == 0:
            break
        for i in range(filled, last):
            row = entries[out[i], ROW]
            prefetch(living, row)
            prefetch(expires, row)
            prefetch(keyword_runs, row)
            prefetch(boxes, row)
        begin, fresh = filled, filled
        for b in range(block):
            for i in range(begin, found[b]):
                row = entries[out[i], ROW]
                out[fresh] = row
                if living[row]:  # perhaps another message than the attached one; that is decided on, too
                    prefetch(keywords, keyword_runs[row, 0])
                    fresh += 1
            begin, found[b] = found[b], fresh
        begin = filled
        for b in range(block):
            for i in range(begin, found[b]):
                out[filled + i - begin] = out[i]
            last = filled + found[b] - begin
            begin = found[b]
            last = keep_valid(expires, moment.now, out, filled, last, moment.expired)
            filled = keep_satisfying(stored, clauses, done + b, out, filled, last)
            ends[done + b] = filled
        done += block
    figures[SCANNED] += scanned
    return done


@kernel
def _scan(
    heads: NDArray[np.int32],
    signs: NDArray[np.int64],
    places: NDArray[np.float32],
    numbers: NDArray[np.int32],
    first: int,
    stop: int,
    sign: Any,
    boxes: NDArray[np.float64],
    c: int,
    out: NDArray[np.int32],
    last: int,
) -> Any:
    """Write the entries of the lists numbers[first:stop] that have the bits of a signature and are in boxes[c].

    Returns how many entries were read, and where those that were written end; -1 if there is no room.
    """
    x0, y0, x1, y1 = rounded(boxes, c)
    scanned = 0
    for i in range(first, stop):
        begin, size = heads[numbers[i], START], heads[numbers[i], SIZE]
        ahead = heads[numbers[min(i + _AHEAD, numbers.size - 1)], START]
        for line in range(0, 12, 3):
            prefetch(signs, ahead + line)
        if last + size > out.size:
            return 0, -1
        scanned += size
        # Two loops, each without a branch; the first one leaves little to do for the second.
        matching = last
        for at in range(begin, begin + size):
            out[matching] = at
            matching += signs[at, 1] & sign == sign
        # An area has no numbers here (NaN): it is outside of nothing, and inside of nothing.
        for k in range(last, matching):
            x, y = places[out[k], X], places[out[k], Y]
            out[last] = out[k]
            last += not ((x < x0) | (x > x1) | (y < y0) | (y > y1))
    return scanned, last


@kernel
def _outside(x: Any, y: Any, box: Any) -> Any:
    return (x < box[0]) | (x > box[2]) | (y < box[1]) | (y > box[3])


@kernel
def _inside(x: Any, y: Any, box: Any) -> Any:
    return (x > box[0]) & (x < box[2]) & (y > box[1]) & (y < box[3])
