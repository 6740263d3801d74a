"""Messages in the IQ+-Tree and the RQ+-Tree: each in all the cells that it passes on its way down a quadtree.

Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015), section 5.2.1.
In each cell a message is in the lists of all its keywords, so that a subscription finds it wherever it looks. In the
IQ+-Tree space comes first: there is one quadtree, and a cell with many messages is divided. In the RQ+-Tree words come
first: each word has a quadtree, and a cell with many messages of that word is divided. A subscription goes down the
cells that it touches. It reads a cell if its list is short, if the cell is not divided, or if it wants all of it. In
the IQ+-Tree it takes the shortest list of its words in each cell; in the RQ+-Tree, the quadtree of its rarest word.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.parts import nested, part_of
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL, Pool
from nearcast.kernels.verify import Clauses, StoredProbes
from nearcast.matching.rivals.by_word import WordLists
from nearcast.matching.rivals.cover import ROOT, Span, first_met, place_of, span_of
from nearcast.matching.rivals.directory import NO_LIST, Directory, cell_in, find, key_of, word_in
from nearcast.matching.rivals.message_lists import (
    MessageLists,
    keep_wanted,
    nowhere,
    read_moved,
    rounded,
    shortest,
)
from nearcast.matching.rivals.ranking import NO_WORD
from nearcast.matching.structure import Answers, Moment, Moves, Progress, View, silent
from nearcast.matching.structures.grid import Grid, grid_over, level_start

__all__ = ["IQMessages", "RQMessages"]

_READ = config.QUADTREE_MESSAGES_READ
_FINEST = config.GRID_LEVELS - 1
_STACK = 3 * config.GRID_LEVELS + 4  # cells that wait while a search goes down


class _QuadtreeMessages(MessageLists):
    """Lists by quadtree cell and word, on all levels."""

    words_first: ClassVar[bool]
    full: ClassVar[int]  # messages of a list that decides whether its cell is divided: more do

    def build(self, sample: Clauses | None = None, tell: Progress = silent) -> None:
        """Lay the root over all messages, and list them."""
        rows = self.members()
        self._lay_out(rows, len(rows))
        self.add(rows)

    def _lay_out(self, rows: NDArray[np.int64], count: int) -> None:
        bounds = grid_over(self.store.stored.boxes[rows])
        self._grid, self._laid_for = bounds._replace(levels=config.GRID_LEVELS), count
        self._lists = WordLists(1)
        self._divided = GrowableArray(np.empty(0, np.bool_), borrowed=False)  # which lists are, by number
        self._spread = 0  # messages that are in several cells of a level

    def successor(self) -> _QuadtreeMessages:
        """Return an empty structure whose root is laid over a sample of the messages here."""
        fresh = type(self)(self.store)
        fresh._lay_out(self._sample(), self.store.living)
        return fresh

    def add(self, rows: NDArray[np.int64]) -> None:
        """Post messages, level by level; cells that become full on the way are divided."""
        boxes = self.store.stored.boxes
        self._spread += _spread_out(self._grid, boxes, rows)
        posted, keys = self._at_root(rows)
        for level in range(config.GRID_LEVELS):
            if not len(keys):
                return
            self._lists.post(boxes, posted, keys, np.zeros(len(keys), np.int64))
            self._divided.fill(self._lists.directory.used - len(self._divided.values), False)
            if level == _FINEST:
                return
            deciding = self._deciding(keys)
            known = self._divided.values[deciding]
            more, more_keys = self._divide(deciding[~known])
            posted = np.concatenate([posted[known], more])
            keys = np.concatenate([keys[known], more_keys])
            posted, keys = _children(self._grid, boxes, posted, keys)

    def _at_root(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the postings of messages at the root, as messages and keys."""
        return self._keys(rows, np.arange(len(rows) + 1), np.full(len(rows), ROOT, np.int32))

    def _deciding(self, keys: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the list that decides whether what has a key goes further down: its own, or that of the cell."""
        deciding = keys if self.words_first else keys & ~_WORD
        return self._lists.directory.lists_of(deciding, np.zeros(len(keys), np.int64))

    def _divide(self, lists: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Divide those of the given lists that are full; return the postings that go down, as messages and keys."""
        full = np.unique(lists[self._lists.lists.pool.sizes[lists] > self.full])
        self._divided.values[full] = True
        rows, counts = self._lists.lists.members(full)
        keys = np.repeat(self._lists.directory.keys[full], counts)
        if self.words_first:
            return rows, keys
        return self._keys(rows, np.arange(len(rows) + 1), ((keys >> 32) - 1).astype(np.int32))

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Take messages out of all their lists."""
        super().drop(rows)
        self._spread -= _spread_out(self._grid, self.store.stored.boxes, rows)

    # --- Figures, files, damage ------------------------------------------------------------------------------------

    def view(self) -> View:
        """Return the lists, and the directory of cells and words."""
        arrays = SearchArrays(
            self.store.stored,
            self._lists.lists.pool,
            self._lists.directory.arrays,
            self._divided.values,
            self._grid,
            self._spread > 0,
            self.words_first,
        )
        return View(_search, arrays, _search_moves)

    def stats(self) -> dict[str, Any]:
        """Return the lengths of lists, and how many are divided."""
        return super().stats() | {"divided": int(self._divided.values.sum())}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        return {
            "grid": np.array([*self._grid, self._laid_for, self._spread], np.float64),
            "divided": self._divided.values,
            **nested(lists=self._lists.arrays()),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        x, y, width, height, levels, laid_for, spread = arrays["grid"].tolist()
        self._grid = Grid(x, y, width, height, int(levels))
        self._laid_for, self._spread = int(laid_for), int(spread)
        self._divided = GrowableArray(arrays["divided"], borrowed=False)
        self._lists = WordLists.restored(part_of(arrays, "lists"))

    def check(self) -> list[str]:
        """Compare the lists with the messages; return what is wrong."""
        boxes, alive = self.store.stored.boxes, self.members()
        found = self._lists.directory.check()
        if found:
            return found
        levels = [self._at_root(alive)]
        while len(levels[-1][1]) and len(levels) < config.GRID_LEVELS:
            posted, keys = levels[-1]
            if not np.isin(keys, self._lists.directory.keys).all():
                return ["a message is missing in a list"]
            down = self._divided.values[self._deciding(keys)]
            levels.append(_children(self._grid, boxes, posted[down], keys[down]))
        found = self._lists.check(*(np.concatenate(column) for column in zip(*levels)))
        if self._spread != _spread_out(self._grid, boxes, alive):
            found.append("another number of messages is in several cells than is counted")
        return found


class IQMessages(_QuadtreeMessages):
    """Space first: one quadtree."""

    name: ClassVar[str] = "iq-tree"
    words_first: ClassVar[bool] = False
    full: ClassVar[int] = config.IQ_MESSAGES_CELL


class RQMessages(_QuadtreeMessages):
    """Words first: a quadtree for each word."""

    name: ClassVar[str] = "rq-tree"
    words_first: ClassVar[bool] = True
    full: ClassVar[int] = config.RQ_MESSAGES_CELL


_WORD = 0xFFFFFFFF  # the part of a key that is the word; without it, a key is that of NO_WORD


class SearchArrays(NamedTuple):
    """The arrays that a search reads."""

    stored: StoredProbes
    lists: Pool
    directory: Directory
    divided: NDArray[np.bool_]
    grid: Grid
    spread: bool  # whether a message is in several cells of a level
    words_first: bool


@kernel
def _spread_out(grid: Grid, boxes: NDArray[np.float64], rows: NDArray[np.int64]) -> int:
    """Return how many of the given rows touch several of the finest cells."""
    several = 0
    for row in rows:
        span = span_of(grid, boxes, row)
        several += span.left < span.right or span.low < span.high
    return several


@kernel
def _children(
    grid: Grid, boxes: NDArray[np.float64], rows: NDArray[np.int64], keys: NDArray[np.int64]
) -> Any:
    """Return the postings of rows in the cells below those that they have keys of, as rows and keys."""
    out_rows, out_keys = np.empty(4 * rows.size, np.int64), np.empty(4 * rows.size, np.int64)
    filled = 0
    for i in range(rows.size):
        level, row, column = place_of(cell_in(keys[i]))
        span = span_of(grid, boxes, rows[i])
        shift = _FINEST - level - 1
        for y in range(max(row << 1, span.low >> shift), min(row << 1 | 1, span.high >> shift) + 1):
            for x in range(
                max(column << 1, span.left >> shift), min(column << 1 | 1, span.right >> shift) + 1
            ):
                cell = level_start(level + 1) + (y << (level + 1) | x)
                out_rows[filled] = rows[i]
                out_keys[filled] = key_of(cell, word_in(keys[i]))
                filled += 1
    return out_rows[:filled].copy(), out_keys[:filled].copy()


@kernel
def _meets(span: Span, left: int, low: int, right: int, high: int) -> Any:
    """Tell whether a span of finest cells has one in common with another."""
    return (span.left <= right) & (left <= span.right) & (span.low <= high) & (low <= span.high)


@kernel
def _surrounds(span: Span, left: int, low: int, right: int, high: int) -> Any:
    """Tell whether a box with this span contains all of some cells: they are between its outermost ones."""
    return (span.left < left) & (right < span.right) & (span.low < low) & (high < span.high)


@kernel
def _search_moves(
    arrays: SearchArrays,
    moves: Moves,
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    """Find the valid messages that have what the clauses from *start* to *stop* ask for, and may change sides."""
    stored, lists, directory, divided, grid, spread, words_first = arrays
    clauses, befores, afters, kepts = moves
    ends, out = answers
    starts, sizes, _, boxes, rows = lists
    slots, slot_lists = directory.slots, directory.slot_lists
    stored_boxes, need_runs, needed = stored.boxes, clauses.keyword_runs, clauses.keywords
    arounds = clauses.boxes
    stack = np.empty(_STACK, np.int64)
    for c in range(start, stop):
        before, after, kept = rounded(befores, c), rounded(afters, c), rounded(kepts, c)
        span = span_of(grid, arounds, c)
        span_before, span_after = span_of(grid, befores, c), span_of(grid, afters, c)
        span_kept = span_of(grid, kepts, c)
        # A message in several cells counts in one of them, so all have to be looked at.
        several = spread and (span.left < span.right or span.low < span.high)
        first, end = need_runs[c, 0], need_runs[c, 1]
        last, waiting = filled, 1
        stack[0] = ROOT
        while waiting > 0:
            waiting -= 1
            cell = stack[waiting]
            found, k = shortest(slots, slot_lists, sizes, cell, needed, first, end)
            if found == NO_LIST:
                continue
            if words_first and end - first > 1:
                first, end = k, k + 1
            level, row, column = place_of(cell)
            if sizes[found] > _READ and level < _FINEST:
                shift = _FINEST - level
                left, right = column << shift, (column + 1 << shift) - 1
                low, high = row << shift, (row + 1 << shift) - 1
                wanted = (
                    _surrounds(span_before, left, low, right, high)
                    or _surrounds(span_after, left, low, right, high)
                ) and not _meets(span_kept, left, low, right, high)
                deciding = found
                if not words_first and end > first:
                    deciding = find(slots, slot_lists, key_of(cell, NO_WORD))
                if divided[deciding] and not wanted:
                    shift -= 1
                    for y in range(
                        max(row << 1, span.low >> shift), min(row << 1 | 1, span.high >> shift) + 1
                    ):
                        for x in range(
                            max(column << 1, span.left >> shift),
                            min(column << 1 | 1, span.right >> shift) + 1,
                        ):
                            left, right = x << shift, (x + 1 << shift) - 1
                            low, high = y << shift, (y + 1 << shift) - 1
                            if not several and (
                                _surrounds(span_kept, left, low, right, high)
                                or not (
                                    _meets(span_before, left, low, right, high)
                                    or _meets(span_after, left, low, right, high)
                                )
                            ):
                                continue
                            stack[waiting] = level_start(level + 1) + (y << (level + 1) | x)
                            waiting += 1
                    continue
            met = last
            last = read_moved(starts, sizes, boxes, rows, found, before, after, kept, out, last)
            if last == FULL:
                return c
            if several:
                last = first_met(grid, stored_boxes, span, level, row, column, out, met, last)
        filled = keep_wanted(stored, clauses, c, moment, out, filled, last)
        ends[c] = filled
    return stop


@kernel
def _search(
    arrays: SearchArrays,
    clauses: Clauses,
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    """Match the clauses from *start* to *stop*; see :class:`~nearcast.matching.structure.View`."""
    moves = Moves(clauses, clauses.boxes, clauses.boxes, nowhere(stop))
    return _search_moves(arrays, moves, moment, start, stop, answers, filled)
