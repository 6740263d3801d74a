"""The common part of the IQ-Tree and the RQ-Tree: clauses in the cells of a quadtree, under their rarest keyword.

The cost model (:mod:`.cover`) attaches a clause to one or several cells. For each it is in one posting list: that of
the cell and of the clause's least frequent keyword. The two trees differ in what a message looks up first, its cells or
its words, and therefore in how lists are grouped. Cells are numbered, so the quadtree needs no nodes: a cell exists if
it has a list.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import offsets_of, runs_take
from nearcast.kernels import kernel
from nearcast.kernels.postings import Pool
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.rivals.cover import Space, cover, place_of, space_over, span_of
from nearcast.matching.rivals.directory import Directories, Directory, cell_in, key_of
from nearcast.matching.rivals.ranking import NO_WORD, Frequencies
from nearcast.matching.rivals.ticketed import TicketedLists
from nearcast.matching.structure import ClauseStructure, Progress, View, silent
from nearcast.matching.structures.grid import Grid

__all__ = ["QuadtreeLists", "SearchArrays"]


class SearchArrays(NamedTuple):
    """The arrays that a search reads."""

    clauses: Clauses
    lists: Pool
    directory: Directory
    grid: Grid


class QuadtreeLists(ClauseStructure):
    """Posting lists by cell and word. Postings come and go in place, so nobody may read while the lists change."""

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Attach clauses to cells, and post them in the lists of these."""
        clauses, rows = self.store.clauses, self.members()
        if sample is not None or not hasattr(self, "_points"):
            self._learn(sample)
        self._frequencies = Frequencies(np.zeros(0, np.int64))
        self._frequencies.add(clauses, rows)
        tell("cells", 0.0)
        self._laid_for = len(rows)
        self._space = space_over(
            clauses.boxes[rows], self._points if len(self._points) else _centres(clauses.boxes[rows])
        )
        self._lists = TicketedLists()
        self._words = GrowableArray(np.empty(0, np.int32), borrowed=False)
        self._directory = Directories(self._groups_at_first())
        words = self._frequencies.rarest(clauses, rows)
        offsets, cells = self._cover(rows, words)
        tell("lists", 0.4)
        keys, posted = self._keys(offsets, cells, words), np.repeat(rows, np.diff(offsets))
        first = np.unique(keys)
        # In this order, the lists of a group lie side by side.
        self._register(first[np.argsort(self._group(first), kind="stable")])
        targets = self._register(keys)
        tell("postings", 0.7)
        self._lists.lay(clauses.boxes, posted, targets)

    def add(self, rows: NDArray[np.int64]) -> None:
        """Post clauses in the lists of their cells.

        The tree is built anew if there are many more clauses than before, or if many lists are empty.
        """
        clauses = self.store.clauses
        grown = self.store.living > config.GRID_GROWTH * max(self._laid_for, 1)
        if grown or self._lists.outlived(self._directory.used):
            self.build()
            return
        self._frequencies.add(clauses, rows)
        words = self._frequencies.rarest(clauses, rows)
        offsets, cells = self._cover(rows, words)
        targets = self._register(self._keys(offsets, cells, words))
        self._lists.post(clauses.boxes, np.repeat(rows, np.diff(offsets)), targets)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove clauses from their lists."""
        self._frequencies.drop(self.store.clauses, rows)
        self._lists.remove_all(rows)

    # --- What the two trees do in their own way --------------------------------------------------------------------

    @abstractmethod
    def _groups_at_first(self) -> int:
        """Return the least number of groups of lists."""

    @abstractmethod
    def _group(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the group of each key."""

    @abstractmethod
    def _made(self, first: int) -> None:
        """Note the new lists, which are numbered from *first* on."""

    def _weights(self, words: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the probability that a message has each of the given words.

        The estimate rests on a sample of messages, and on the subscriptions as if they were one message more.
        """
        own = words[words != NO_WORD]
        shares = self._frequencies.values[own] / max(self.store.living, 1)
        sampled = own < len(self._sampled_words)
        shares[sampled] += self._sampled_words[own[sampled]]
        weights = np.ones(len(words))
        weights[words != NO_WORD] = shares / (self._sampled + 1)
        return weights

    # --- Steps -----------------------------------------------------------------------------------------------------

    def _learn(self, sample: Probes | None) -> None:
        """Take from a sample of messages what the cost model needs: their places, and how many have each word."""
        self._points, self._sampled_words, self._sampled = np.empty((0, 2)), np.empty(0, np.int64), 0
        if sample is not None:
            self._sampled = len(sample.boxes)
            self._points = _centres(sample.boxes[: config.COVER_SAMPLE])
            most = int(self.store.keywords_of(np.flatnonzero(self.store.alive)).max(initial=-1)) + 1
            known = sample.keywords[(sample.keywords >= 0) & (sample.keywords < most)]
            self._sampled_words = np.bincount(known, minlength=most)

    def _cover(
        self, rows: NDArray[np.int64], words: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Note the words of clause rows, and return the cells of each, as (offsets, cells)."""
        unseen = self.store.rows - len(self._words.values)
        if unseen > 0:
            self._words.fill(unseen, NO_WORD)
        self._words.values[rows] = words
        offsets = np.empty(len(rows) + 1, np.int64)
        cells = cover(
            self._space, self.store.clauses.boxes, rows, self._weights(words), config.CELL_COST, offsets
        )
        return offsets, cells

    def _keys(
        self, offsets: NDArray[np.int64], cells: NDArray[np.int32], words: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        keys = np.empty(len(cells), np.int64)
        _write_keys(offsets, cells, words, keys)
        return keys

    def _register(self, keys: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the list of each key; missing lists are made."""
        first = self._directory.used
        lists = self._directory.lists_of(keys, self._group(keys))
        if self._directory.used > first:
            self._made(first)
        return lists

    # --- Figures, files, damage ------------------------------------------------------------------------------------

    def view(self) -> View:
        """Return the lists, and the directory of cells and words."""
        arrays = SearchArrays(self.store.clauses, self._lists.pool, self._directory.arrays, self._space.grid)
        return View(self._kernel(), arrays)

    @abstractmethod
    def _kernel(self) -> Callable[..., int]:
        """Return the compiled search, which goes through words and cells in the order of the index."""

    def stats(self) -> dict[str, Any]:
        """Return the figures of cells and lists."""
        sizes = self._lists.pool.sizes[: self._directory.used]
        used = sizes[sizes > 0]
        keys = self._directory.keys[sizes > 0]
        cells = np.unique(keys >> 32) - 1
        levels = [place_of(cell)[0] for cell in cells.tolist()]
        return {
            "cells": len(cells),
            "cells_by_level": np.bincount(levels, minlength=self._space.grid.levels).tolist()
            if levels
            else [0] * self._space.grid.levels,
            "lists": len(used),
            "longest_list": int(used.max(initial=0)),
            "mean_list": round(float(used.mean()), 1) if len(used) else 0.0,
            "replication": round(int(used.sum()) / max(self.store.living, 1), 3),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        return {
            "frequency": self._frequencies.values,
            "points": self._points,
            "sampled_words": self._sampled_words,
            "grid": np.array([*self._space.grid, self._laid_for, self._sampled], np.float64),
            "shares": self._space.shares,
            "words": self._words.values,
            **self._directory.flat(),
            **self._lists.arrays("list_"),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        self._frequencies = Frequencies(arrays["frequency"])
        self._points, self._sampled_words = arrays["points"], arrays["sampled_words"]
        x, y, width, height, levels, laid_for, sampled = arrays["grid"].tolist()
        self._laid_for, self._sampled = int(laid_for), int(sampled)
        self._space = Space(Grid(x, y, width, height, int(levels)), arrays["shares"])
        self._words = GrowableArray(arrays["words"], borrowed=False)
        self._directory = Directories.restored(arrays)
        self._lists = TicketedLists.restored(arrays, "list_")

    def check(self) -> list[str]:
        """Compare the lists with the clauses; return what is wrong."""
        found = self._directory.check() + self._lists.check()
        if found:
            return found
        clauses, alive = self.store.clauses, self.members()
        rows, keys = self.postings()
        offsets = offsets_of(np.bincount(rows, minlength=self.store.rows)[alive])
        if offsets[-1] != len(rows):
            found.append("a clause that is not there has postings")
        elif not _covers(self._space.grid, clauses.boxes, alive, offsets, keys):
            found.append("the cells of a clause overlap or leave out a part of its region")
        if not np.array_equal((keys & 0xFFFFFFFF) - 1, self._words.values[rows]):
            found.append("a clause is in the list of another word than it says")
        word_offsets, words = runs_take(clauses.keyword_runs, clauses.keywords, alive)
        for number, word in enumerate(self._words.values[alive].tolist()):
            own = words[word_offsets[number] : word_offsets[number + 1]]
            if word not in own and (len(own) or word != NO_WORD):
                found.append(f"clause row {alive[number]} stands under a word that it does not have")
        return found

    def postings(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the clause row and the key of every posting, in the order of rows."""
        lists, rows = self._lists.pairs()
        order = np.argsort(rows, kind="stable")
        return rows[order], self._directory.keys[lists[order]]


def _centres(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the centres of the boxes whose centre is finite."""
    centres: NDArray[np.float64] = boxes[np.isfinite(boxes).all(axis=1)].reshape(-1, 2, 2).mean(axis=1)
    return centres[np.isfinite(centres).all(axis=1)]


@kernel
def _write_keys(
    offsets: NDArray[np.int64], cells: NDArray[np.int32], words: NDArray[np.int32], out: NDArray[np.int64]
) -> None:
    for i in range(words.size):
        for k in range(offsets[i], offsets[i + 1]):
            out[k] = key_of(cells[k], words[i])


@kernel
def _covers(
    grid: Grid,
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    keys: NDArray[np.int64],
) -> bool:
    """Tell whether the cells of every clause row are disjoint and contain its region.

    That is so if no two cells overlap, and if together they share with the region as many finest cells as it has.
    """
    finest = grid.levels - 1
    for i in range(rows.size):
        left, low, right, high = span_of(grid, boxes, rows[i])
        missing = (right - left + 1) * (high - low + 1)
        for k in range(offsets[i], offsets[i + 1]):
            level, row, column = place_of(cell_in(keys[k]))
            shift = finest - level
            width = min(right, (column + 1 << shift) - 1) - max(left, column << shift) + 1
            height = min(high, (row + 1 << shift) - 1) - max(low, row << shift) + 1
            if width <= 0 or height <= 0:
                return False
            missing -= width * height
            for other in range(offsets[i], k):
                its, its_row, its_column = place_of(cell_in(keys[other]))
                coarse = max(level - its, 0)
                fine = max(its - level, 0)
                if row >> coarse == its_row >> fine and column >> coarse == its_column >> fine:
                    return False
        if missing != 0:
            return False
    return True
