"""Search a PT-Quadtree: PT-QUADTREE-FILTER and PT-QUADTREE-VERIFY.

This is Algorithm 2 of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015). A
stack takes the place of the recursion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL
from nearcast.matching.structures.mbr_trie.search import has_bit
from nearcast.matching.structures.pt_quadtree.quadtree import Entries, Frame, Quadtree, cell
from nearcast.matching.structures.token_order import LAST

__all__ = [
    "corner_of",
    "filter_nodes",
    "least_from",
    "mark_ranks",
    "query_cells",
    "unmark_ranks",
    "verify_list",
]

_FINEST = config.QUADTREE_LEVELS
_CARD = config.QUADTREE_CARD
_ONE = np.uint64(1)


@kernel
def query_cells(frame: Frame, query: NDArray[np.float32], out: NDArray[np.int64]) -> None:
    """Write the first and last column and row of a message on the finest level."""
    out[0] = cell(np.float64(query[0]), frame.x, frame.width)
    out[1] = cell(np.float64(query[1]), frame.y, frame.height)
    out[2] = cell(np.float64(query[2]), frame.x, frame.width)
    out[3] = cell(np.float64(query[3]), frame.y, frame.height)


@kernel
def _meets(
    have: NDArray[np.int32],
    first: int,
    last: int,
    tokens: NDArray[np.int32],
    count: int,
    bits: NDArray[np.uint64],
) -> bool:
    """Tell whether the set have[first:last] may share a token with the message; frequent tokens are tried first.

    Either each token of the node is looked up in the message's bitmap, or each token of the message is looked up among
    those of the node by binary search, whichever takes fewer steps.
    """
    size = last - first
    if size <= count * np.log2(size + 1.0):
        met = False
        for i in range(last - 1, first - 1, -1):
            met = has_bit(bits, have[i]) != 0
            if met:
                break
        return met
    for i in range(count - 1, -1, -1):
        token = tokens[i]
        low, high = first, last
        while low < high:
            middle = (low + high) >> 1
            if have[middle] < token:
                low = middle + 1
            else:
                high = middle
        if low < last and have[low] == token:
            return True
    return False


@kernel
def filter_nodes(
    tree: Quadtree,
    query: NDArray[np.float32],
    cells: NDArray[np.int64],
    tokens: NDArray[np.int32],
    count: int,
    bits: NDArray[np.uint64],
    out: NDArray[np.int32],
) -> Any:
    """Write the candidate nodes, whose lists may hold answers, and return how many there are (PT-QUADTREE-FILTER)."""
    first, columns, rows, boxes, starts, _, _, cover_offsets, cover, rest_offsets, rest, always, _, _ = tree
    xmin, ymin, xmax, ymax = query[0], query[1], query[2], query[3]
    # Node, level, and whether the cover set of an ancestor shares a token with the message.
    stack = np.empty((3 * _FINEST + 4, 3), np.int64)
    stack[0] = 0
    top, found = 1, 0
    while top > 0:
        top -= 1
        node, level, covered = stack[top, 0], stack[top, 1], stack[top, 2]
        if not (
            (boxes[node, 0] <= xmax)
            & (boxes[node, 2] >= xmin)
            & (boxes[node, 1] <= ymax)
            & (boxes[node, 3] >= ymin)
        ):
            continue  # line 2
        # Lines 3 to 5: below a cover set that shares a token, only the place matters. Line 6: the other set.
        if covered == 0:
            if _meets(cover, cover_offsets[node], cover_offsets[node + 1], tokens, count, bits):
                covered = 1
            elif not always[node] and not _meets(
                rest, rest_offsets[node], rest_offsets[node + 1], tokens, count, bits
            ):
                continue
        if starts[node + 1] > starts[node]:
            out[found] = node
            found += 1
        if first[node] > 0:  # lines 7 and 8
            shift = _FINEST - (level + 1)
            left, low, right, high = (
                cells[0] >> shift,
                cells[1] >> shift,
                cells[2] >> shift,
                cells[3] >> shift,
            )
            for child in range(first[node], first[node] + 4):
                if left <= columns[child] <= right and low <= rows[child] <= high:
                    stack[top, 0] = child
                    stack[top, 1] = level + 1
                    stack[top, 2] = covered
                    top += 1
    return found


@kernel
def least_from(target: int, low: float, extent: float) -> Any:
    """Return the least coordinate whose cell on the finest level is *target* or a later one; *target* is at least 1.

    A formula gives it, but for rounding. Near zero, the rounding error spans many numbers, so the exact one is found by
    binary search around the formula's.
    """
    guess, around = low + extent * target / (1 << _FINEST), 0.0
    before, value = np.float32(guess), np.float32(guess)
    while cell(np.float64(before), low, extent) >= target:
        before = np.nextafter(np.float32(guess - around), np.float32(-np.inf))
        around = 2.0 * around + extent / (1 << _FINEST)
    while cell(np.float64(value), low, extent) < target:
        value = np.nextafter(np.float32(guess + around), np.float32(np.inf))
        around = 2.0 * around + extent / (1 << _FINEST)
    middle = np.float32((np.float64(before) + np.float64(value)) / 2)
    while before < middle < value:
        if cell(np.float64(middle), low, extent) >= target:
            value = middle
        else:
            before = middle
        middle = np.float32((np.float64(before) + np.float64(value)) / 2)
    return value


@kernel
def corner_of(
    frame: Frame, tree: Quadtree, node: int, cells: NDArray[np.int64], out: NDArray[np.float32]
) -> None:
    """Write the least x and y that a box must have for this node to report it to a message.

    A message and a box may share several nodes. Only the one with the lower left corner of their overlap reports the
    box: in the message's first column that is any box in the node, in a later column only a box that begins there.
    The same holds for rows.
    """
    shift = int(_FINEST - (np.searchsorted(tree.levels, node, side="right") - 1))
    column, row = int(tree.columns[node]), int(tree.rows[node])
    out[0], out[1] = -np.inf, -np.inf
    if cells[0] >> shift < column:
        out[0] = least_from(column << shift, frame.x, frame.width)
    if cells[1] >> shift < row:
        out[1] = least_from(row << shift, frame.y, frame.height)


@kernel
def mark_ranks(present: NDArray[np.uint64], tokens: NDArray[np.int32], count: int) -> None:
    """Mark the tokens of a message, numbered as on cards, in a bitmap with a bit for each; 0 is always marked."""
    present[0] |= _ONE
    for i in range(count):
        number = np.int64(LAST) + 1 - tokens[i]
        present[number >> 6] |= _ONE << np.uint64(number & 63)


@kernel
def unmark_ranks(present: NDArray[np.uint64], tokens: NDArray[np.int32], count: int) -> None:
    """Undo :func:`mark_ranks`, except for 0."""
    for i in range(count):
        present[(np.int64(LAST) + 1 - tokens[i]) >> 6] = np.uint64(0)


@kernel
def _marked(present: NDArray[np.uint64], number: int) -> Any:
    """Return 1 if a token on a card is marked, and 0 if not."""
    return (present[np.int64(number) >> 6] >> np.uint64(number & 63)) & _ONE


@kernel
def verify_list(
    entries: Entries,
    alive: NDArray[np.bool_],
    corner: NDArray[np.float32],
    begin: int,
    end: int,
    bits: NDArray[np.uint64],
    present: NDArray[np.uint64],
    query: NDArray[np.float32],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Write the answers among the entries begin:end of a node's list; return the new end, or FULL (PT-QUADTREE-VERIFY).

    *corner* comes from :func:`corner_of`, and *present* from :func:`mark_ranks`. A clause row is written as its
    complement if the clause must still be checked. Each question has a short pass of its own, without branches, over
    the entries that the pass before has kept, so that the memory accesses of many entries overlap.
    """
    boxes, items, heads, cards = entries
    if filled + end - begin > out.size:
        return FULL
    last = filled
    for i in range(begin, end):  # the rarest token
        out[last] = i
        last += has_bit(bits, heads[i]) != 0
    xmin, ymin, xmax, ymax = query[0], query[1], query[2], query[3]
    x, y = corner[0], corner[1]
    kept = filled
    # The place; from here on *out* holds items, as complements where edges may only touch.
    for j in range(filled, last):
        i = out[j]
        left, low, right, high = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
        sure = (left < xmax) & (right > xmin) & (low < ymax) & (high > ymin)
        out[kept] = items[i] if sure else ~items[i]
        kept += (left <= xmax) & (right >= xmin) & (low <= ymax) & (high >= ymin) & (left >= x) & (low >= y)
    last, kept = kept, filled
    for j in range(filled, last):  # the second token, which also loads the card
        item = out[j]
        out[kept] = item
        kept += _marked(present, cards[max(item, ~item), 2]) != 0
    last, kept = kept, filled
    for j in range(filled, last):  # all tokens; from here on *out* holds rows
        sign = out[j]
        item = max(sign, ~sign)
        row = cards[item, 0]
        out[kept] = row if sign >= 0 else min(row, ~row)
        marks = _ONE
        for k in range(1, _CARD):
            marks &= _marked(present, cards[item, k])
        kept += marks != 0
    last, kept = kept, filled
    for j in range(filled, last):
        row = out[j]
        out[kept] = row
        kept += alive[max(row, ~row)]
    return kept
