"""The RQ-Tree: words first. A ranked-key inverted list with a quadtree inside each long posting list.

It is built as Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015),
describe it in section 5.1.1. Subscriptions are divided by their least frequent keyword; inside a posting list, the cost
model of the IQ-Tree attaches them to quadtree cells. A short list is faster to read than to divide, so its clauses stay
at the root. A message looks up its words. In the quadtree of each word it reads the cells that it falls into; if these
are more than the cells in use, it goes through the cells in use instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL, candidates
from nearcast.kernels.verify import Probes, keep_satisfied
from nearcast.matching.rivals.cover import first_met, place_of, span_of
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
from nearcast.matching.structure import Answers, Progress, silent
from nearcast.matching.structures.grid import level_start

__all__ = ["RQTree"]

_LEVELS = EXTRA  # for a word: bit l is set if it has a cell on level l


class RQTree(QuadtreeLists):
    """Lists grouped by word; the word of clauses without keywords is group 0."""

    name: ClassVar[str] = "rq-tree"

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Count the clauses of each word, and build."""
        self._held = GrowableArray(np.zeros(0, np.int64), borrowed=False)
        super().build(sample, tell)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Reduce the counts of their words, and remove the clauses."""
        np.subtract.at(self._held.values, self._words.values[rows] + 1, 1)
        super().drop(rows)

    def _groups_at_first(self) -> int:
        return len(self._frequencies.values) + 1

    def _group(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        return keys & 0xFFFFFFFF

    def _made(self, first: int) -> None:
        _mark_levels(self._directory.keys[first:], self._directory.arrays.groups)

    def _cover(
        self, rows: NDArray[np.int64], words: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Count the clauses of each word on the way; the cells of a short list are the root alone."""
        unseen = len(self._frequencies.values) + 1 - len(self._held.values)
        if unseen > 0:
            self._held.fill(unseen, 0)
        np.add.at(self._held.values, words + 1, 1)
        return super()._cover(rows, words)

    def _weights(self, words: NDArray[np.int32]) -> NDArray[np.float64]:
        short = self._held.values[words + 1] < config.RQ_QUADTREE_FROM
        return np.where(short, -1.0, super()._weights(words))

    def _kernel(self) -> Callable[..., int]:
        return _search

    def stats(self) -> dict[str, Any]:
        """Return the figures of cells and lists, and how many words have a quadtree."""
        counts = self._directory.arrays.groups[:, COUNT]
        return super().stats() | {
            "words": int(np.count_nonzero(self._held.values)),
            "words_with_quadtree": int(np.count_nonzero(counts > 1)),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        return super().arrays() | {"held": self._held.values}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        super().restore(arrays)
        self._held = GrowableArray(arrays["held"], borrowed=False)

    def check(self) -> list[str]:
        """Compare the lists with the clauses; return what is wrong."""
        found = super().check()
        held = np.bincount(self._words.values[self.members()] + 1, minlength=len(self._held.values))
        if not np.array_equal(held, self._held.values):
            found.append("a word has another number of clauses than it says")
        groups = self._directory.arrays.groups
        marked = np.zeros_like(groups)
        _mark_levels(self._directory.keys, marked)
        if not np.array_equal(marked[:, _LEVELS], groups[:, _LEVELS]):
            found.append("a word has cells on other levels than it says")
        return found


@kernel
def _mark_levels(keys: NDArray[np.int64], groups: NDArray[np.int32]) -> None:
    for i in range(keys.size):
        groups[word_in(keys[i]) + 1, _LEVELS] |= 1 << place_of(cell_in(keys[i]))[0]


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
    for p in range(start, stop):
        last = filled
        for k in range(4):
            query[k] = probe_boxes[p, k]
        first_word, end_word = keyword_offsets[p], keyword_offsets[p + 1]
        span = span_of(grid, probe_boxes, p)
        once = span.left == span.right and span.low == span.high
        for k in range(first_word - 1, end_word):
            # Before the message's own words comes NO_WORD, for clauses without keywords.
            word = keywords[k] if k >= first_word else NO_WORD
            if word + 1 >= groups.shape[0] or groups[word + 1, COUNT] == 0:
                continue
            levels = groups[word + 1, _LEVELS]
            touched = 0
            for level in range(grid.levels):
                if levels >> level & 1:
                    shift = finest - level
                    touched += ((span.right >> shift) - (span.left >> shift) + 1) * (
                        (span.high >> shift) - (span.low >> shift) + 1
                    )
            if groups[word + 1, COUNT] <= touched:
                at = groups[word + 1, HEAD]
                while at != NO_LIST:
                    level, row, column = place_of(cell_in(keys[at]))
                    shift = finest - level
                    if (
                        span.left >> shift <= column <= span.right >> shift
                        and span.low >> shift <= row <= span.high >> shift
                    ):
                        met = last
                        last = candidates(starts, sizes, boxes, rows, at, query, out, last)
                        if last == FULL:
                            return p
                        if not once:
                            last = first_met(grid, clause_boxes, span, level, row, column, out, met, last)
                    at = after[at]
                continue
            for level in range(grid.levels):
                if not levels >> level & 1:
                    continue
                shift = finest - level
                for row in range(span.low >> shift, (span.high >> shift) + 1):
                    for column in range(span.left >> shift, (span.right >> shift) + 1):
                        cell = level_start(level) + (row << level | column)
                        found = find(slots, slot_lists, key_of(cell, word))
                        if found == NO_LIST:
                            continue
                        met = last
                        last = candidates(starts, sizes, boxes, rows, found, query, out, last)
                        if last == FULL:
                            return p
                        if not once:
                            last = first_met(grid, clause_boxes, span, level, row, column, out, met, last)
        filled = keep_satisfied(clauses, probes, p, out, filled, last)
        ends[p] = filled
    return stop
