"""Messages in a grid file with inverted lists: those of the SS-Index and of the KK-Index.

Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015), section 5.2.1.
A message is in the lists of all its keywords, and there in the cells that it touches. In the SS-Index a subscription
goes to its cells first, and reads the shortest list of its words in each. In the KK-Index it takes the rarest of its
words first, and reads the cells of that one; if these are more than the cells in use, it goes through the cells in use
instead.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.parts import nested, part_of
from nearcast.columns.rows.messages import MessageRows
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL, Pool
from nearcast.kernels.verify import Clauses, StoredProbes
from nearcast.matching.rivals.by_word import WordLists
from nearcast.matching.rivals.cover import Span
from nearcast.matching.rivals.directory import (
    COUNT,
    EXTRA,
    HEAD,
    NO_LIST,
    Directories,
    Directory,
    cell_in,
    find,
    key_of,
)
from nearcast.matching.rivals.grid_file import (
    GridFile,
    checked_side,
    file_span,
    grid_file_over,
    keep_first_met,
    touched_cells,
)
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

__all__ = ["KKMessages", "SSMessages"]


class _GridMessages(MessageLists):
    """Lists by cell and word; *side* is the number of columns and rows of the grid."""

    parameters: ClassVar[tuple[str, ...]] = ("side",)
    words_first: ClassVar[bool]

    def __init__(self, store: MessageRows, side: int = config.GRID_FILE_SIDE) -> None:
        super().__init__(store)
        self.side = checked_side(side)

    def build(self, sample: Clauses | None = None, tell: Progress = silent) -> None:
        """Lay the grid over all messages, and list them."""
        rows = self.members()
        self._lay_out(rows, len(rows))
        self.add(rows)

    def _lay_out(self, rows: NDArray[np.int64], count: int) -> None:
        self._grid, self._laid_for = grid_file_over(self.store.stored.boxes[rows], self.side), count
        self._numbers = Directories(1)
        self._lists = WordLists(0 if self.words_first else self._grid.wide + 1)
        self._spread = 0  # messages that are in several cells

    def successor(self) -> _GridMessages:
        """Return an empty structure with a grid over a sample of the messages here."""
        fresh = type(self)(self.store, self.side)
        fresh._lay_out(self._sample(), self.store.living)
        return fresh

    def add(self, rows: NDArray[np.int64]) -> None:
        """Post messages."""
        posted, keys = self._postings(rows)
        self._lists.post(self.store.stored.boxes, posted, keys, self._groups(keys))
        self._count(rows, 1)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Take messages out of all their lists."""
        super().drop(rows)
        self._count(rows, -1)

    def _postings(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the message and the key of every posting of the given messages."""
        offsets = np.empty(len(rows) + 1, np.int64)
        return self._keys(rows, offsets, touched_cells(self._grid, self.store.stored.boxes, rows, offsets))

    def _groups(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the group of each key: its cell, or the number of its word."""
        if not self.words_first:
            return (keys >> 32) - 1
        return self._numbered(keys & _WORD).astype(np.int64)

    def _numbered(self, words: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the numbers of words, which are given plus one, as in keys; words that were never there get one."""
        words = key_of_word(words - 1)
        return self._numbers.lists_of(words, np.zeros(len(words), np.int64))

    def _count(self, rows: NDArray[np.int64], sign: int) -> None:
        """Count messages that come (1) or go (-1): those in several cells, and those of each word."""
        self._spread += sign * _spread_out(self._grid, self.store.stored.boxes, rows)
        if self.words_first:
            _, words = self._words(rows)
            numbers = self._numbered(words.astype(np.int64) + 1)
            _count_words(self._lists.directory.arrays.groups, numbers, sign)

    # --- Figures, files, damage ------------------------------------------------------------------------------------

    def view(self) -> View:
        """Return the lists, and the directory of cells and words."""
        lists, numbers = self._lists, self._numbers.arrays
        arrays = SearchArrays(
            self.store.stored,
            lists.lists.pool,
            lists.directory.arrays,
            numbers.slots,
            numbers.slot_lists,
            self._grid,
            self._spread > 0,
            self.words_first,
        )
        return View(_search, arrays, _search_moves)

    def stats(self) -> dict[str, Any]:
        """Return the lengths of lists."""
        return {"side": self.side} | super().stats()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        return {
            "grid": np.array([*self._grid, self._laid_for, self._spread], np.float64),
            **nested(lists=self._lists.arrays(), numbers=self._numbers.flat()),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        x, y, width, height, side, laid_for, spread = arrays["grid"].tolist()
        self.side, self._laid_for, self._spread = int(side), int(laid_for), int(spread)
        self._grid = GridFile(x, y, width, height, self.side)
        self._lists = WordLists.restored(part_of(arrays, "lists"))
        self._numbers = Directories.restored(part_of(arrays, "numbers"))

    def check(self) -> list[str]:
        """Compare the lists with the messages; return what is wrong."""
        alive = self.members()
        found = self._lists.check(*self._postings(alive)) + self._numbers.check()
        if self._spread != _spread_out(self._grid, self.store.stored.boxes, alive):
            found.append("another number of messages is in several cells than is counted")
        if self.words_first and not found:
            counts = self._lists.directory.arrays.groups[:, EXTRA]
            _, words = self._words(alive)
            numbers = self._numbered(words.astype(np.int64) + 1)
            if not np.array_equal(np.bincount(numbers, minlength=len(counts)), counts):
                found.append("a word has another number of messages than is counted")
        return found


class SSMessages(_GridMessages):
    """Space first: lists grouped by cell."""

    name: ClassVar[str] = "ss-lists"
    words_first: ClassVar[bool] = False


class KKMessages(_GridMessages):
    """Words first: lists grouped by word."""

    name: ClassVar[str] = "kk-lists"
    words_first: ClassVar[bool] = True


_WORD = 0xFFFFFFFF  # the part of a key that is the word


class SearchArrays(NamedTuple):
    """The arrays that a search reads."""

    stored: StoredProbes
    lists: Pool
    directory: Directory
    number_slots: NDArray[np.int64]  # from words to the numbers of their groups, if words come first
    numbers: NDArray[np.int32]
    grid: GridFile
    spread: bool  # whether a message is in several cells
    words_first: bool


@kernel
def key_of_word(word: Any) -> Any:
    """Return the key of a word, NO_WORD among them."""
    return word + 2


@kernel
def _count_words(groups: NDArray[np.int32], numbers: NDArray[np.int32], sign: int) -> None:
    """Count messages of words that come or go; NumPy takes ten times as long to add to a column."""
    for number in numbers:
        groups[number, EXTRA] += sign


@kernel
def _spread_out(grid: GridFile, boxes: NDArray[np.float64], rows: NDArray[np.int64]) -> int:
    """Return how many of the given rows touch several cells."""
    several = 0
    for row in rows:
        span = file_span(grid, boxes, row)
        several += span.left < span.right or span.low < span.high
    return several


@kernel
def _in_span(span: Span, row: int, column: int) -> Any:
    return (span.left <= column) & (column <= span.right) & (span.low <= row) & (row <= span.high)


@kernel
def _in_middle(span: Span, row: int, column: int) -> Any:
    """Tell whether all of a cell lies inside a box with this span: it is between the outermost ones."""
    return (span.left < column) & (column < span.right) & (span.low < row) & (row < span.high)


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
    stored, lists, directory, number_slots, numbers, grid, spread, words_first = arrays
    clauses, befores, afters, kepts = moves
    ends, out = answers
    starts, sizes, _, boxes, rows = lists
    slots, slot_lists, keys, chained, groups = directory
    stored_boxes, need_runs, needed = stored.boxes, clauses.keyword_runs, clauses.keywords
    arounds, side = clauses.boxes, grid.side
    wide = side * side
    for c in range(start, stop):
        before, after, kept = rounded(befores, c), rounded(afters, c), rounded(kepts, c)
        span = file_span(grid, arounds, c)
        span_before, span_after = file_span(grid, befores, c), file_span(grid, afters, c)
        span_kept = file_span(grid, kepts, c)
        touched = (span.right - span.left + 1) * (span.high - span.low + 1)
        # A message in several cells counts in one of them, so all have to be looked at.
        several = spread and touched > 1
        first, end = need_runs[c, 0], need_runs[c, 1]
        word, walk, at = np.int32(NO_WORD), False, NO_LIST
        if words_first:
            group, word = _rarest(number_slots, numbers, groups, needed, first, end)
            if group == NO_LIST:
                ends[c] = filled
                continue
            walk, at = groups[group, COUNT] <= touched, groups[group, HEAD]
        last, row, column = filled, span.low, span.left
        # The wide cell comes after all others, as one row more.
        while at != NO_LIST if walk else row <= span.high + 1:
            if walk:
                found, cell = at, cell_in(keys[at])
                at = chained[at]
                row, column = cell // side, cell % side
                if cell != wide and not _in_span(span, row, column):
                    continue
            else:
                cell = wide if row > span.high else row * side + column
                y, x = row, column
                column += 1
                if column > span.right or cell == wide:
                    row, column = row + 1, span.left
                if cell != wide and not several:
                    if not (_in_span(span_before, y, x) or _in_span(span_after, y, x)):
                        continue
                    if _in_middle(span_kept, y, x):
                        continue
                if words_first:
                    found = find(slots, slot_lists, key_of(cell, word))
                elif groups[cell, COUNT] > 0:
                    found, _ = shortest(slots, slot_lists, sizes, cell, needed, first, end)
                else:
                    continue
                if found == NO_LIST:
                    continue
            met = last
            last = read_moved(starts, sizes, boxes, rows, found, before, after, kept, out, last)
            if last == FULL:
                return c
            if several and cell != wide:
                last = keep_first_met(grid, stored_boxes, span, cell, out, met, last)
        filled = keep_wanted(stored, clauses, c, moment, out, filled, last)
        ends[c] = filled
    return stop


@kernel
def _rarest(
    slots: NDArray[np.int64],
    numbers: NDArray[np.int32],
    groups: NDArray[np.int32],
    words: NDArray[np.int32],
    first: int,
    end: int,
) -> Any:
    """Return the group of the word of words[first:end] that fewest messages have, and the word; NO_LIST if none has."""
    if first == end:
        return find(slots, numbers, key_of_word(NO_WORD)), np.int32(NO_WORD)
    best, rarest = NO_LIST, np.int32(NO_WORD)
    for k in range(first, end):
        group = find(slots, numbers, key_of_word(words[k]))
        if group == NO_LIST or groups[group, EXTRA] == 0:
            return NO_LIST, np.int32(NO_WORD)
        if best == NO_LIST or groups[group, EXTRA] < groups[best, EXTRA]:
            best, rarest = group, words[k]
    return best, rarest


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
