"""Algorithm 2 of the LFILTER paper: PT-QUADTREE-FILTER and PT-QUADTREE-VERIFY."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.matching.mbr_trie.search import FULL, has_bit
from nearcast.matching.pt_quadtree.quadtree import Entries, Frame, Quadtree, cell

__all__ = ["filter_nodes", "here", "query_cells", "region_of", "verify_list"]

_FINEST = config.QUADTREE_LEVELS


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
    """Tell whether the set have[first:last] may share a token with the message, frequent tokens first.

    What is smaller looks into what is larger: each token of the node at the message's bitmap, or each token of
    the message among those of the node, by halving.
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
    """PT-QUADTREE-FILTER: write the candidate nodes, those with a list that may hold an answer; return how many."""
    first, columns, rows, boxes, starts, _, _, cover_offsets, cover, rest_offsets, rest, always, _ = tree
    xmin, ymin, xmax, ymax = query[0], query[1], query[2], query[3]
    stack = np.empty((3 * _FINEST + 4, 3), np.int64)  # node, level, whether an ancestor's cover set was met
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
            continue
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
        if first[node] > 0:
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
def region_of(
    frame: Frame, tree: Quadtree, node: int, cells: NDArray[np.int64], out: NDArray[np.float64]
) -> None:
    """Write what :func:`here` needs of a node: the frame, the cell and the size of cells; it reads no tuple."""
    out[0], out[1], out[2], out[3] = frame.x, frame.y, frame.width, frame.height
    out[4], out[5] = tree.columns[node], tree.rows[node]
    out[6] = _FINEST - (np.searchsorted(tree.levels, node, side="right") - 1)
    out[7] = cells[0] != cells[2] or cells[1] != cells[3]


@kernel
def here(region: NDArray[np.float64], cells: NDArray[np.int64], xmin: float, ymin: float) -> Any:
    """Tell whether it is this node that reports a clause whose box has the given lower left corner.

    Where a message and a box share several nodes, it is the one with the lower left corner of what they share.
    """
    if region[7] == 0.0:
        return True
    shift = int(region[6])
    x = max(cells[0], cell(np.float64(xmin), region[0], region[2])) >> shift
    y = max(cells[1], cell(np.float64(ymin), region[1], region[3])) >> shift
    return x == region[4] and y == region[5]


@kernel
def verify_list(
    entries: Entries,
    laid: NDArray[np.int32],
    alive: NDArray[np.bool_],
    region: NDArray[np.float64],
    begin: int,
    end: int,
    bits: NDArray[np.uint64],
    query: NDArray[np.float32],
    cells: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """PT-QUADTREE-VERIFY of the entries begin:end of a node's list; return the new end, or FULL without room.

    *region* is that of the node. Writes clause rows that the message seems to satisfy: what is left to do is the
    decision. Tokens are asked first, the rarest of all.
    """
    boxes, items, heads, tails = entries
    if filled + end - begin > out.size:
        return FULL
    last = filled
    for i in range(begin, end):
        out[last] = i
        last += has_bit(bits, heads[i]) != 0
    xmin, ymin, xmax, ymax = query[0], query[1], query[2], query[3]
    kept = filled
    for j in range(filled, last):
        i = out[j]
        if (
            (boxes[i, 0] <= xmax) & (boxes[i, 2] >= xmin) & (boxes[i, 1] <= ymax) & (boxes[i, 3] >= ymin)
            and has_bit(bits, tails[i, 0])
            and has_bit(bits, tails[i, 1])
            and has_bit(bits, tails[i, 2])
            and here(region, cells, boxes[i, 0], boxes[i, 1])
        ):
            clause = laid[items[i]]
            clause = max(clause, ~clause)
            out[kept] = clause
            kept += alive[clause]
    return kept
