"""The IQ-Tree: space first. A quadtree whose cells hold ranked-key inverted lists.

It is built as Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015),
describe it in sections 3.1 and 5.1.1, after Chen, Cong and Cao. A cost model, which balances the costs of matching and
of updates, attaches each subscription to one or several cells; in each it is in the posting list of its least frequent
keyword. A message goes down the cells that it falls into. In each cell it reads the lists of its words; if the cell has
fewer lists than the message has words, it goes through the lists of the cell instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL, candidates
from nearcast.kernels.sets import has
from nearcast.kernels.verify import Probes, keep_satisfied
from nearcast.matching.rivals.cover import ROOT, first_met, place_of, span_of
from nearcast.matching.rivals.directory import (
    COUNT,
    EXTRA,
    HEAD,
    NO_LIST,
    cell_in,
    find,
    key_of,
    word_in,
)
from nearcast.matching.rivals.quadtree import QuadtreeLists, SearchArrays
from nearcast.matching.rivals.ranking import NO_WORD
from nearcast.matching.structure import Answers
from nearcast.matching.structures.grid import level_start

__all__ = ["IQTree"]

# Cells on the stack while the search goes down: three on each level, and the next one.
_STACK = 3 * config.GRID_LEVELS + 1
_LISTS_BELOW = EXTRA  # the number of lists in a cell and in the cells that it contains


class IQTree(QuadtreeLists):
    """Lists grouped by cell."""

    name: ClassVar[str] = "iq-tree"

    def _groups_at_first(self) -> int:
        return self._space.grid.cells

    def _group(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        return (keys >> 32) - 1

    def _made(self, first: int) -> None:
        _count_up(self._directory.keys[first:], self._directory.arrays.groups)

    def _kernel(self) -> Callable[..., int]:
        return _search

    def check(self) -> list[str]:
        """Compare the lists with the clauses; return what is wrong."""
        found = super().check()
        groups = self._directory.arrays.groups
        below = np.zeros_like(groups)
        _count_up(self._directory.keys, below)
        if not np.array_equal(below[:, _LISTS_BELOW], groups[:, _LISTS_BELOW]):
            found.append("a cell has another number of lists below it than it says")
        return found


@kernel
def _count_up(keys: NDArray[np.int64], groups: NDArray[np.int32]) -> None:
    """Count new lists in their cells and in all cells that contain these."""
    for i in range(keys.size):
        level, row, column = place_of(cell_in(keys[i]))
        while level >= 0:
            groups[level_start(level) + (row << level | column), _LISTS_BELOW] += 1
            level, row, column = level - 1, row >> 1, column >> 1


@kernel
def _search(
    arrays: SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    clauses, lists, directory, grid = arrays
    ends, out = answers
    starts, sizes, _, boxes, rows = lists
    slots, slot_lists, keys, after, groups = directory
    probe_boxes, keyword_offsets, keywords = probes.boxes, probes.keyword_offsets, probes.keywords
    clause_boxes = clauses.boxes
    finest = grid.levels - 1
    query = np.empty(4, np.float32)
    stack = np.empty(_STACK, np.int64)
    for p in range(start, stop):
        last = filled
        for k in range(4):
            query[k] = probe_boxes[p, k]
        first_word, end_word = keyword_offsets[p], keyword_offsets[p + 1]
        span = span_of(grid, probe_boxes, p)
        once = span.left == span.right and span.low == span.high
        stack[0] = ROOT
        waiting = 1
        while waiting > 0:
            waiting -= 1
            cell = stack[waiting]
            if groups[cell, _LISTS_BELOW] == 0:
                continue
            level, row, column = place_of(cell)
            walk = groups[cell, COUNT] <= end_word - first_word
            at = groups[cell, HEAD]
            # Before the message's own words comes NO_WORD, for clauses without keywords.
            k = first_word - 1
            while at != NO_LIST if walk else k < end_word:
                if walk:
                    found, at = at, after[at]
                    own = word_in(keys[found])
                    if own != NO_WORD and not has(keywords, first_word, end_word, own):
                        continue
                else:
                    word = keywords[k] if k >= first_word else NO_WORD
                    found = find(slots, slot_lists, key_of(cell, word))
                    k += 1
                    if found == NO_LIST:
                        continue
                met = last
                last = candidates(starts, sizes, boxes, rows, found, query, out, last)
                if last == FULL:
                    return p
                if not once:
                    last = first_met(grid, clause_boxes, span, level, row, column, out, met, last)
            if level < finest:
                shift = finest - level - 1
                for y in range(max(row << 1, span.low >> shift), min(row << 1 | 1, span.high >> shift) + 1):
                    for x in range(
                        max(column << 1, span.left >> shift), min(column << 1 | 1, span.right >> shift) + 1
                    ):
                        stack[waiting] = level_start(level + 1) + (y << (level + 1) | x)
                        waiting += 1
        filled = keep_satisfied(clauses, probes, p, out, filled, last)
        ends[p] = filled
    return stop
