"""Subscriptions in a grid file with ranked-key lists: those of the SS-Index and of the KK-Index.

Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015), section 5.2.1.
The SS-Index puts space first: a grid file, and in each cell a ranked-key inverted list of the subscriptions that
overlap it. The KK-Index puts words first: a ranked-key inverted list, and a grid file inside each posting list. Either
way a clause is in the lists of its least frequent keyword and of the cells that it overlaps; what differs is how a
message gets to them. In the SS-Index it looks up its words in each of its cells, or goes through the lists of a cell
that has fewer. In the KK-Index it looks up its cells under each of its words, or goes through the cells of a word that
has fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.parts import nested, part_of
from nearcast.columns.ragged import runs_take
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.postings import FULL, Pool, candidates
from nearcast.kernels.sets import has
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.rivals.by_word import WordLists
from nearcast.matching.rivals.cover import Span
from nearcast.matching.rivals.directory import (
    COUNT,
    HEAD,
    NO_LIST,
    Directory,
    cell_in,
    expect,
    find,
    key_of,
    word_in,
)
from nearcast.matching.rivals.grid_file import (
    GridFile,
    checked_side,
    file_span,
    grid_file_over,
    keep_first_met,
    touched_cells,
)
from nearcast.matching.rivals.ranking import NO_WORD, Frequencies
from nearcast.matching.structure import Answers, ClauseStructure, Progress, View, silent

__all__ = ["KKLists", "SSLists"]

_BLOCK = config.LOOKED_UP


class _GridLists(ClauseStructure):
    """Lists by cell and rarest keyword; *side* is the number of columns and rows of the grid.

    Postings come and go in place, so nobody may read while the lists change.
    """

    parameters: ClassVar[tuple[str, ...]] = ("side",)
    shifts = True

    def __init__(self, store: ClauseStore, side: int = config.GRID_FILE_SIDE) -> None:
        super().__init__(store)
        self.side = checked_side(side)

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Lay the grid over all clauses, and list them."""
        rows = self.members()
        self._lay_out(rows, len(rows))
        self.add(rows)

    def _lay_out(self, rows: NDArray[np.int64], count: int) -> None:
        """Lay an empty grid over the given clauses, a sample of *count* to come."""
        self._grid, self._laid_for = grid_file_over(self.store.clauses.boxes[rows], self.side), count
        self._frequencies = Frequencies(np.zeros(0, np.int64))
        self._lists = WordLists(self._grid.wide + 1)
        self._words = GrowableArray(np.empty(0, np.int32), borrowed=False)
        self._spans = GrowableArray(np.empty((0, 4), np.int16), borrowed=False)

    def add(self, rows: NDArray[np.int64]) -> None:
        """Post clauses."""
        self._frequencies.add(self.store.clauses, rows)
        self._post(rows)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove the postings of clauses."""
        self._frequencies.drop(self.store.clauses, rows)
        self._lists.lists.remove_all(rows)

    def shift(self, rows: NDArray[np.int64]) -> None:
        """Overwrite the boxes of postings; clauses in other cells than before are posted anew."""
        boxes = self.store.clauses.boxes
        stay = (self._spans_of(rows) == self._spans.values[rows]).all(axis=1)
        self._lists.lists.rewrite(boxes, rows[stay])
        self._lists.lists.remove_all(rows[~stay])
        self._post(rows[~stay])

    def _post(self, rows: NDArray[np.int64]) -> None:
        clauses, more = self.store.clauses, self.store.rows - len(self._words.values)
        if more > 0:
            self._words.fill(more, NO_WORD)
            self._spans.fill(more, 0)
        self._words.values[rows] = self._frequencies.rarest(clauses, rows)
        self._spans.values[rows] = self._spans_of(rows)
        posted, keys = self._postings(rows)
        self._lists.post(clauses.boxes, posted, keys, self._groups(keys))

    def _postings(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the clause and the key of every posting of the given clauses."""
        offsets = np.empty(len(rows) + 1, np.int64)
        cells = touched_cells(self._grid, self.store.clauses.boxes, rows, offsets)
        posted = np.repeat(rows, np.diff(offsets))
        keys = np.empty(len(cells), np.int64)
        _write_keys(cells, self._words.values, posted, keys)
        return posted, keys

    def _spans_of(self, rows: NDArray[np.int64]) -> NDArray[np.int16]:
        spans = np.empty((len(rows), 4), np.int16)
        _write_spans(self._grid, self.store.clauses.boxes, rows, spans)
        return spans

    def _groups(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the group of each key."""
        raise NotImplementedError

    def outgrown(self, more: int) -> bool:
        """Tell whether there are many times the clauses that the grid was laid out for, or many lists are empty."""
        return self.store.living > config.GRID_GROWTH * max(self._laid_for, 1) or self._lists.wasteful

    def successor(self) -> _GridLists:
        """Return an empty structure with a grid over a sample of the clauses here."""
        fresh = type(self)(self.store, self.side)
        fresh.part = self.part
        rows = self.members()
        fresh._lay_out(rows[:: max(len(rows) // config.GRID_SAMPLE, 1)], len(rows))
        return fresh

    # --- Figures, files, damage ------------------------------------------------------------------------------------

    def view(self) -> View:
        """Return the lists, and the directory of cells and words."""
        lists = self._lists
        return View(
            self._kernel(),
            SearchArrays(self.store.clauses, lists.lists.pool, lists.directory.arrays, self._grid),
        )

    def _kernel(self) -> Callable[..., int]:
        """Return the compiled search."""
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        """Return the lengths of lists."""
        found = self._lists.stats()
        replication = round(found.pop("postings") / max(self.store.living, 1), 3)
        return {"side": self.side} | found | {"replication": replication}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        return {
            "grid": np.array([*self._grid, self._laid_for], np.float64),
            "frequency": self._frequencies.values,
            "words": self._words.values,
            "spans": self._spans.values,
            **nested(lists=self._lists.arrays()),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        x, y, width, height, side, laid_for = arrays["grid"].tolist()
        self.side, self._laid_for = int(side), int(laid_for)
        self._grid = GridFile(x, y, width, height, self.side)
        self._frequencies = Frequencies(arrays["frequency"])
        self._words = GrowableArray(arrays["words"], borrowed=False)
        self._spans = GrowableArray(arrays["spans"], borrowed=False)
        self._lists = WordLists.restored(part_of(arrays, "lists"))

    def check(self) -> list[str]:
        """Compare the lists with the clauses; return what is wrong."""
        clauses, alive = self.store.clauses, self.members()
        found = self._lists.check(*self._postings(alive))
        if not np.array_equal(self._spans.values[alive], self._spans_of(alive)):
            found.append("a clause is in other cells than its box says")
        offsets, words = runs_take(clauses.keyword_runs, clauses.keywords, alive)
        own = np.repeat(self._words.values[alive], np.diff(offsets)) == words
        named = np.add.reduceat(np.append(own, False), offsets[:-1]) if len(alive) else np.empty(0, int)
        bare = np.diff(offsets) == 0
        if not np.array_equal(np.where(bare, self._words.values[alive] == NO_WORD, named == 1), bare | True):
            found.append("a clause stands under a word that it does not have")
        return found


class SSLists(_GridLists):
    """Space first: lists grouped by cell."""

    name: ClassVar[str] = "ss-lists"

    def _groups(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        return (keys >> 32) - 1

    def _kernel(self) -> Callable[..., int]:
        return _search_cells


class KKLists(_GridLists):
    """Words first: lists grouped by word; the word of clauses without keywords is group 0."""

    name: ClassVar[str] = "kk-lists"

    def _groups(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        return keys & 0xFFFFFFFF

    def _kernel(self) -> Callable[..., int]:
        return _search_words


class SearchArrays(NamedTuple):
    """The arrays that a search reads."""

    clauses: Clauses
    lists: Pool
    directory: Directory
    grid: GridFile


@kernel
def _write_keys(
    cells: NDArray[np.int32], words: NDArray[np.int32], rows: NDArray[np.int64], out: NDArray[np.int64]
) -> None:
    for i in range(cells.size):
        out[i] = key_of(cells[i], words[rows[i]])


@kernel
def _write_spans(
    grid: GridFile, boxes: NDArray[np.float64], rows: NDArray[np.int64], out: NDArray[np.int16]
) -> None:
    for i in range(rows.size):
        span = file_span(grid, boxes, rows[i])
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = span.left, span.low, span.right, span.high


@kernel
def _cell_at(grid: GridFile, span: Span, number: int) -> Any:
    """Return a touched cell by its number, from 0 on; the one behind the last is the wide cell."""
    width = span.right - span.left + 1
    row = span.low + number // width
    return row * grid.side + span.left + number % width if row <= span.high else grid.side * grid.side


@kernel
def _search_cells(
    arrays: SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    """Match messages: for each cell, the words."""
    clauses, lists, directory, grid = arrays
    ends, out = answers
    starts, sizes, _, boxes, rows = lists
    slots, slot_lists, keys, after, groups = directory
    probe_boxes, keyword_offsets, keywords = probes.boxes, probes.keyword_offsets, probes.keywords
    clause_boxes = clauses.boxes
    query = np.empty(4, np.float32)
    block = np.empty(_BLOCK, np.int32)
    for p in range(start, stop):
        last = filled
        for k in range(4):
            query[k] = probe_boxes[p, k]
        first_word, end_word = keyword_offsets[p], keyword_offsets[p + 1]
        span = file_span(grid, probe_boxes, p)
        touched = (span.right - span.left + 1) * (span.high - span.low + 1)
        for number in range(touched + 1):
            cell = _cell_at(grid, span, number)
            if groups[cell, COUNT] == 0:
                continue
            met = last
            walk = groups[cell, COUNT] <= end_word - first_word
            at = groups[cell, HEAD]
            # Before the message's own words comes NO_WORD, for clauses without keywords.
            k = first_word - 1
            while at != NO_LIST if walk else k < end_word:
                count = 0
                if walk:
                    while at != NO_LIST and count < _BLOCK:
                        own = word_in(keys[at])
                        if own == NO_WORD or has(keywords, first_word, end_word, own):
                            block[count] = at
                            count += 1
                        at = after[at]
                else:
                    end = min(k + _BLOCK, end_word)
                    for i in range(k, end):
                        word = keywords[i] if i >= first_word else NO_WORD
                        expect(slots, slot_lists, key_of(cell, word))
                    for i in range(k, end):
                        word = keywords[i] if i >= first_word else NO_WORD
                        found = find(slots, slot_lists, key_of(cell, word))
                        if found != NO_LIST:
                            block[count] = found
                            count += 1
                    k = end
                for i in range(count):
                    prefetch(starts, block[i])
                    prefetch(sizes, block[i])
                for i in range(count):
                    prefetch(boxes, starts[block[i]])
                    prefetch(rows, starts[block[i]])
                for i in range(count):
                    last = candidates(starts, sizes, boxes, rows, block[i], query, out, last)
                    if last == FULL:
                        return p
            if touched > 1 and number < touched:
                last = keep_first_met(grid, clause_boxes, span, cell, out, met, last)
        filled = keep_satisfied(clauses, probes, p, out, filled, last)
        ends[p] = filled
    return stop


@kernel
def _search_words(
    arrays: SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    """Match messages: for each word, the cells."""
    clauses, lists, directory, grid = arrays
    ends, out = answers
    starts, sizes, _, boxes, rows = lists
    slots, slot_lists, keys, after, groups = directory
    probe_boxes, keyword_offsets, keywords = probes.boxes, probes.keyword_offsets, probes.keywords
    clause_boxes = clauses.boxes
    wide = grid.side * grid.side
    query = np.empty(4, np.float32)
    for p in range(start, stop):
        last = filled
        for k in range(4):
            query[k] = probe_boxes[p, k]
        first_word, end_word = keyword_offsets[p], keyword_offsets[p + 1]
        span = file_span(grid, probe_boxes, p)
        touched = (span.right - span.left + 1) * (span.high - span.low + 1)
        nearest = _cell_at(grid, span, 0)
        for k in range(first_word, min(end_word, first_word + _BLOCK)):
            if keywords[k] + 1 < groups.shape[0]:
                prefetch(groups, keywords[k] + 1)
                expect(slots, slot_lists, key_of(nearest, keywords[k]))
        for k in range(first_word - 1, end_word):
            # Before the message's own words comes NO_WORD, for clauses without keywords.
            word = keywords[k] if k >= first_word else NO_WORD
            if word + 1 >= groups.shape[0] or groups[word + 1, COUNT] == 0:
                continue
            walk = groups[word + 1, COUNT] <= touched
            at, number = groups[word + 1, HEAD], 0
            while at != NO_LIST if walk else number <= touched:
                if walk:
                    found, cell = at, cell_in(keys[at])
                    at = after[at]
                    row, column = cell // grid.side, cell % grid.side
                    if cell != wide and not (
                        span.left <= column <= span.right and span.low <= row <= span.high
                    ):
                        continue
                else:
                    cell = _cell_at(grid, span, number)
                    found = find(slots, slot_lists, key_of(cell, word))
                    number += 1
                    if found == NO_LIST:
                        continue
                met = last
                last = candidates(starts, sizes, boxes, rows, found, query, out, last)
                if last == FULL:
                    return p
                if touched > 1 and cell != wide:
                    last = keep_first_met(grid, clause_boxes, span, cell, out, met, last)
        filled = keep_satisfied(clauses, probes, p, out, filled, last)
        ends[p] = filled
    return stop
