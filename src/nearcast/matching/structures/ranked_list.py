"""The ranked-key inverted list: clauses are listed by their rarest keyword, and clauses without keywords in a grid.

Many structures for publish/subscribe build on it: Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support
Location-Aware Publish/Subscribe" (2015), section 5.1.1, describe it as the first level of the RQ-Tree. A message that
satisfies a clause has all its keywords, so it is enough to read the lists of the message's keywords; and a clause that
is listed under its least frequent keyword is read least often. The expected cost of a message is the length of its
lists, and three cache misses for each posting whose box it touches.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import runs_take
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL, Pool, candidates
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.structure import Answers, ClauseStructure, Progress, View, silent
from nearcast.matching.structures.grid import Grid, cell_of, cells_of, grid_over, level_start
from nearcast.matching.structures.postings import ClauseHomes, PostingLists

__all__ = ["RankedList"]


class RankedList(ClauseStructure):
    """Posting lists by rarest keyword, and by grid cell for clauses without keywords.

    Postings are inserted and removed in place, and the room of a list that moves is given to others at once. A reader
    of an older view might miss a posting or read one twice, so nobody may read while the lists change.
    """

    name: ClassVar[str] = "ranked-list"
    shifts = True

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Post each clause under its rarest keyword, or in the cell of a grid if it has no keywords."""
        clauses, rows = self.store.clauses, self.members()
        frequency = np.bincount(self.store.keywords_of(rows))
        with_words = clauses.keyword_runs[rows, 1] > clauses.keyword_runs[rows, 0]
        worded, bare = rows[with_words], rows[~with_words]
        self._lay_out(frequency, grid_over(clauses.boxes[bare]), len(bare))
        homes = self._homes.arrays
        self._by_word.build(homes, clauses.boxes, worded, _rarest(clauses, frequency, worded))
        self._by_cell.build(homes, clauses.boxes, bare, self._cells(bare))

    def _lay_out(self, frequency: NDArray[np.int64], grid: Grid, bare: int) -> None:
        """Make empty lists, given the frequencies of words and a grid for *bare* clauses without words."""
        self._frequency = GrowableArray(frequency, borrowed=False)
        self._homes = ClauseHomes.none(self.store.rows)
        self._by_word = PostingLists(len(frequency))
        self._grid, self._laid_for = grid, bare
        self._by_cell = PostingLists(grid.cells)

    def add(self, rows: NDArray[np.int64]) -> None:
        """Post clauses."""
        clauses = self.store.clauses
        offsets, words = runs_take(clauses.keyword_runs, clauses.keywords, rows)
        unseen = int(words.max(initial=-1)) + 1 - len(self._frequency.values)
        if unseen > 0:
            self._frequency.fill(unseen, 0)
        np.add.at(self._frequency.values, words, 1)
        homes = self._homes.reach(self.store.rows)
        with_words = np.diff(offsets) > 0
        worded, bare = rows[with_words], rows[~with_words]
        self._by_word.add(homes, clauses.boxes, worded, _rarest(clauses, self._frequency.values, worded))
        self._by_cell.add(homes, clauses.boxes, bare, self._cells(bare))

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove the postings of clauses."""
        clauses = self.store.clauses
        offsets, words = runs_take(clauses.keyword_runs, clauses.keywords, rows)
        np.subtract.at(self._frequency.values, words, 1)
        with_words = np.diff(offsets) > 0
        self._by_word.remove(self._homes.arrays, rows[with_words])
        self._by_cell.remove(self._homes.arrays, rows[~with_words])

    def shift(self, rows: NDArray[np.int64]) -> None:
        """Overwrite the boxes of the postings; a posting in the grid moves if its cell has changed."""
        clauses, homes = self.store.clauses, self._homes.arrays
        with_words = clauses.keyword_runs[rows, 1] > clauses.keyword_runs[rows, 0]
        worded, bare = rows[with_words], rows[~with_words]
        self._by_word.shift(homes, clauses.boxes, worded, homes.lists[worded])
        self._by_cell.shift(homes, clauses.boxes, bare, self._cells(bare))

    def outgrown(self, more: int) -> bool:
        """Tell whether the grid holds many times the clauses that it was laid out for.

        The share of clauses without words among *more* clauses is expected to be that among the clauses here.
        """
        bare, worded = self._by_cell.postings, self._by_word.postings
        expected = bare + more * (bare + 1) / (bare + worded + 1)
        return expected > config.GRID_GROWTH * max(self._laid_for, 1)

    def successor(self) -> RankedList:
        """Return an empty structure with a grid laid out for a sample of the clauses in the grid here.

        It begins with the frequencies of words known here, so that the first clauses find their rarest word. The words
        are counted again as their clauses come, but only the order of the counts matters.
        """
        fresh = RankedList(self.store)
        fresh.part = self.part
        bare, some = self._by_cell.postings, self._by_cell.some(config.GRID_SAMPLE)
        grid = grid_over(self.store.clauses.boxes[some], bare)
        fresh._lay_out(self._frequency.values.copy(), grid, bare)
        return fresh

    def _cells(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        cells = np.empty(len(rows), np.int64)
        cells_of(self._grid, self.store.clauses.boxes, rows, cells)
        return cells

    def view(self) -> View:
        """Return the lists by word and by cell, and the grid."""
        return View(
            _search, _SearchArrays(self.store.clauses, self._by_word.pool, self._by_cell.pool, self._grid)
        )

    def stats(self) -> dict[str, Any]:
        """Return the lengths of the lists."""
        sizes = self._by_word.pool.sizes
        used = sizes[sizes > 0]
        return {
            "word_lists": len(used),
            "longest_word_list": int(used.max(initial=0)),
            "mean_word_list": round(float(used.mean()), 1) if len(used) else 0.0,
            "grid_levels": self._grid.levels,
            "grid_postings": self._by_cell.postings,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        lists, positions = self._homes.arrays
        return {
            "frequency": self._frequency.values,
            "home_lists": lists,
            "home_positions": positions,
            "grid": np.array([*self._grid, self._laid_for], np.float64),
            **self._by_word.arrays("word_"),
            **self._by_cell.arrays("cell_"),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        self._frequency = GrowableArray(arrays["frequency"], borrowed=False)
        self._homes = ClauseHomes(arrays["home_lists"], arrays["home_positions"])
        x, y, width, height, levels, laid_for = arrays["grid"].tolist()
        self._grid, self._laid_for = Grid(x, y, width, height, int(levels)), int(laid_for)
        self._by_word = PostingLists.restored(arrays, "word_")
        self._by_cell = PostingLists.restored(arrays, "cell_")

    def check(self) -> list[str]:
        """Compare the lists with the clauses; return what is wrong."""
        found = self._by_word.check() + self._by_cell.check()
        homes = self._homes.arrays
        alive = self.members()
        with_words = np.diff(self.store.clauses.keyword_runs[alive])[:, 0] > 0
        for name, lists, rows in (
            ("word", self._by_word, alive[with_words]),
            ("cell", self._by_cell, alive[~with_words]),
        ):
            pool = lists.pool
            if lists.postings != len(rows):
                found.append(f"{lists.postings} postings in {name} lists for {len(rows)} clauses")
            elif not np.array_equal(pool.rows[pool.starts[homes.lists[rows]] + homes.positions[rows]], rows):
                found.append(f"a posting in a {name} list is not where its clause says")
            elif not np.array_equal(
                pool.boxes[pool.starts[homes.lists[rows]] + homes.positions[rows]],
                self.store.clauses.boxes[rows].astype(np.float32),
            ):
                found.append(f"a posting in a {name} list has another box than its clause")
        bare = alive[~with_words]
        if not np.array_equal(homes.lists[bare], self._cells(bare)):
            found.append("a clause is in another cell than its box says")
        return found


@kernel
def _pick_rarest(
    clauses: Clauses, frequency: NDArray[np.int64], rows: NDArray[np.int64], out: NDArray[np.int64]
) -> None:
    for i in range(rows.size):
        c = rows[i]
        best = clauses.keywords[clauses.keyword_runs[c, 0]]
        for k in range(clauses.keyword_runs[c, 0] + 1, clauses.keyword_runs[c, 1]):
            word = clauses.keywords[k]
            if frequency[word] < frequency[best]:
                best = word
        out[i] = best


def _rarest(clauses: Clauses, frequency: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the least frequent keyword of each clause row; among equals, the one with the smallest code."""
    out = np.empty(len(rows), np.int64)
    _pick_rarest(clauses, frequency, rows, out)
    return out


class _SearchArrays(NamedTuple):
    clauses: Clauses
    by_word: Pool
    by_cell: Pool
    grid: Grid


@kernel
def _search(
    arrays: _SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    clauses, by_word, by_cell, grid = arrays
    ends, out = answers
    starts, sizes, _, boxes, rows = by_word
    cell_starts, cell_sizes, _, cell_boxes, cell_rows = by_cell
    probe_boxes, keyword_offsets, keywords = probes.boxes, probes.keyword_offsets, probes.keywords
    query = np.empty(4, np.float32)
    for p in range(start, stop):
        last = filled
        for k in range(4):
            query[k] = probe_boxes[p, k]
        for k in range(keyword_offsets[p], keyword_offsets[p + 1]):
            word = keywords[k]
            if word < starts.size:
                last = candidates(starts, sizes, boxes, rows, word, query, out, last)
                if last == FULL:
                    return p
        if cell_rows.size > 0:
            for level in range(grid.levels):
                left = max(cell_of(probe_boxes[p, 0], grid.x, grid.width, level) - 1, 0)
                right = cell_of(probe_boxes[p, 2], grid.x, grid.width, level)
                low = max(cell_of(probe_boxes[p, 1], grid.y, grid.height, level) - 1, 0)
                high = cell_of(probe_boxes[p, 3], grid.y, grid.height, level)
                for row in range(low, high + 1):
                    for column in range(left, right + 1):
                        cell = level_start(level) + (row << level | column)
                        last = candidates(
                            cell_starts, cell_sizes, cell_boxes, cell_rows, cell, query, out, last
                        )
                        if last == FULL:
                            return p
        filled = keep_satisfied(clauses, probes, p, out, filled, last)
        ends[p] = filled
    return stop
