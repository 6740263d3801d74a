"""Messages in one list for each cell: less to do for a message that comes or goes than where lists are packed.

The cells are those of packed messages, but smaller, and within a list nothing has a place. A subscription reads the
signatures of all messages in the cells that it touches, eight bytes each, and then the boxes of those that pass. So
inserting a message takes a fifth of what it takes in the packed store. Areas that are larger than their cells are in a
last list, which every subscription reads: where these are many, the packed store is faster. The AP+-Tree keeps its
messages here, since it asks few questions of them.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.rows.messages import MessageRows
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.verify import Clauses, StoredProbes, keep_satisfying, keep_valid
from nearcast.matching.messages.cells import (
    Cells,
    add_word,
    choose_cells,
    concerned,
    describe,
    inside,
    nowhere,
    rounded,
    touches,
    widen,
)
from nearcast.matching.structure import Answers, MessageStructure, Moment, Moves, Progress, View, silent
from nearcast.matching.structures.mo_tree.buckets import Buckets, Entries, homes_for
from nearcast.matching.structures.packed_list.layout import NO_PLACE

__all__ = ["MessageCellLists"]

_NO_SKETCH = (0, 0)  # an entry is a signature, a box and a row
_LOW_HALF = 2**32 - 1


class MessageCellLists(MessageStructure):
    """Messages in lists by cell, with signatures of their words.

    Entries are inserted and removed in place, and the room of a list that moves is given to others at once. A reader of
    an older view might miss an entry or read one twice, so nobody may read while the lists change.

    The boxes around lists grow with what comes, and are made anew when cells are chosen.
    """

    name: ClassVar[str] = "cell-lists"

    def __init__(self, store: MessageRows) -> None:
        super().__init__(store)
        self._lay_out(np.empty(0, np.int64), 1)

    def build(self, sample: Clauses | None = None, tell: Progress = silent) -> None:
        """Choose the cells, and fill their lists."""
        rows = self.members()
        tell("choosing cells", 0.0)
        self._lay_out(rows, config.PACKED_MESSAGES_SAMPLE)
        tell("filling lists", 0.2)
        self._put(self._buckets.build, rows)

    def _lay_out(self, rows: NDArray[np.int64], most: int) -> None:
        """Choose cells for the messages in *rows*, by a sample of at most *most*; no message is in them yet."""
        count = min(max(int(np.sqrt(len(rows) / config.CELL_LISTS_CELL)), 1), config.CELL_LISTS_CELLS)
        self._cells = choose_cells(self.store.stored.boxes[rows[:: max(len(rows) // most, 1)]], count)
        self._list_boxes = np.tile(np.array(NO_PLACE, np.float32), (count * count + 1, 1))
        self._column_boxes = np.tile(np.array(NO_PLACE, np.float32), (count, 1))
        self._homes = homes_for(self.store.rows)
        self._buckets = Buckets(count * count + 1, _NO_SKETCH)
        self._laid_for = len(rows)

    def _entries(self, rows: NDArray[np.int64]) -> Entries:
        entries = Entries.room(len(rows), sum(_NO_SKETCH))
        signatures = entries.codes.view(np.int32).reshape(-1, 2)
        describe(self.store.stored, self._cells, rows, entries.targets, signatures)
        _set_apart(self.store.stored.boxes, self._cells, rows, entries.targets)
        return entries

    def _put(self, put: Any, rows: NDArray[np.int64]) -> None:
        """Let *put*, which fills or adds to the buckets, take messages."""
        boxes, entries = self.store.stored.boxes, self._entries(rows)
        put(self._homes.values, boxes, rows, entries)
        widen(self._list_boxes, self._column_boxes, boxes, rows, entries.targets)

    def add(self, rows: NDArray[np.int64]) -> None:
        """Put messages into the lists of their cells."""
        more = self.store.rows - len(self._homes.values)
        if more > 0:
            self._homes.fill(more, -1)
        self._put(self._buckets.add, rows)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Take messages out of their lists."""
        self._buckets.remove(self._homes.values, rows)

    def outgrown(self, more: int) -> bool:
        """Tell whether there are so many messages that it is time to choose the cells again."""
        enough = max(config.PACKED_MESSAGES_GROWTH * self._laid_for, config.PACKED_MESSAGES_FIRST)
        return self._buckets.entries + more > enough and len(self._column_boxes) < config.CELL_LISTS_CELLS

    def successor(self) -> MessageCellLists:
        """Return an empty structure with cells chosen by a small sample of the messages here."""
        fresh = MessageCellLists(self.store)
        rows = np.flatnonzero(self._homes.values[:, 0] >= 0)
        fresh._lay_out(rows, config.PACKED_MESSAGES_QUICK_SAMPLE)
        return fresh

    def view(self) -> View:
        """Return the lists."""
        pool = self._buckets.pool
        boxes = self._list_boxes, self._column_boxes
        codes = pool.codes.view(np.int64)
        arrays = _SearchArrays(self.store.stored, pool.heads, codes, pool.boxes, pool.rows, *boxes)
        return View(_search, arrays, _search_moves)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the cells and the lists."""
        return {
            "homes": self._homes.values,
            "laid_for": np.array([self._laid_for]),
            **self._cells._asdict(),
            "list_boxes": self._list_boxes,
            "column_boxes": self._column_boxes,
            **self._buckets.arrays(),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the cells and the lists."""
        self._homes = GrowableArray(arrays["homes"], borrowed=False)
        self._laid_for = int(arrays["laid_for"][0])
        self._cells = Cells(arrays["x_knots"], arrays["y_knots"])
        self._list_boxes, self._column_boxes = arrays["list_boxes"], arrays["column_boxes"]
        self._buckets = Buckets.restored(arrays)

    def stats(self) -> dict[str, Any]:
        """Return how the lists are laid out."""
        sizes = self._buckets.pool.heads[:, 1]
        return {"lists": len(sizes), "longest_list": int(sizes.max(initial=0)), "laid_for": self._laid_for}

    def check(self) -> list[str]:
        """Compare the lists with the messages; return what is wrong."""
        found, alive = self._buckets.check(), self.members()
        pool, entries = self._buckets.pool, self._buckets.entries
        if not entries == int(pool.heads[:, 1].sum()) == len(alive):
            found.append(f"{entries} entries for {len(alive)} messages")
        numbers, places = self._homes.values[alive].T
        if (numbers < 0).any():
            return [*found, "a message is in no list"]
        at = pool.heads[numbers, 0] + places
        if (places >= pool.heads[numbers, 1]).any() or not np.array_equal(pool.rows[at], alive):
            return [*found, "an entry is not where its message says"]
        expected, boxes = self._entries(alive), pool.boxes[at, :4]
        if not np.array_equal(numbers, expected.targets) or not np.array_equal(
            pool.codes[at], expected.codes
        ):
            found.append("an entry is in another list, or has another signature, than its message says")
        if not np.array_equal(boxes, self.store.stored.boxes[alive].astype(np.float32)):
            found.append("an entry has another box than its message")
        inner = numbers < len(self._list_boxes) - 1
        columns = self._column_boxes[numbers[inner] // len(self._column_boxes)]
        for what, around, held in (
            ("column", columns, boxes[inner]),
            ("list", self._list_boxes[numbers], boxes),
        ):
            if (around[:, :2] > held[:, :2]).any() or (around[:, 2:] < held[:, 2:]).any():
                found.append(f"a message lies outside its {what}")
        return found


@kernel
def _set_apart(
    boxes: NDArray[np.float64], cells: Cells, rows: NDArray[np.int64], targets: NDArray[np.int32]
) -> None:
    """Send areas that are larger than their cells to the last list; a cell at the border has no end."""
    x_knots, y_knots = cells
    count = x_knots.size + 1
    for i in range(rows.size):
        # Knots are of sums of two sides, so they are twice as far from each other as the borders.
        width = 2 * (boxes[rows[i], 2] - boxes[rows[i], 0])
        height = 2 * (boxes[rows[i], 3] - boxes[rows[i], 1])
        if width > 0 or height > 0:
            x, y = targets[i] // count, targets[i] % count
            wide = 0 < x < count - 1 and width > x_knots[x] - x_knots[x - 1]
            if wide or (0 < y < count - 1 and height > y_knots[x, y] - y_knots[x, y - 1]):
                targets[i] = count * count


class _SearchArrays(NamedTuple):
    stored: StoredProbes
    heads: NDArray[np.int32]
    signatures: NDArray[np.int64]
    boxes: NDArray[np.float32]
    rows: NDArray[np.int32]
    list_boxes: NDArray[np.float32]  # around what each list holds, column by column, and then the large areas
    column_boxes: NDArray[np.float32]  # around the lists of each column of cells


@kernel
def _search_moves(
    arrays: _SearchArrays,
    moves: Moves,
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    """Find the valid messages that have what the clauses from *start* to *stop* ask for, and may change sides.

    That is, they may be within the region before or after the move, but not within both.
    """
    stored, heads, signatures, boxes, rows, list_boxes, column_boxes = arrays
    clauses, befores, afters, kepts = moves
    ends, out = answers
    stored_boxes, keyword_runs, keywords, expires = (
        stored.boxes,
        stored.keyword_runs,
        stored.keywords,
        stored.expires,
    )
    arounds, need_runs, needed = clauses.boxes, clauses.keyword_runs, clauses.keywords
    cells = len(column_boxes)
    touched = np.empty(len(list_boxes), np.int32)
    for c in range(start, stop):
        around, before = rounded(arounds, c), rounded(befores, c)
        after, kept = rounded(afters, c), rounded(kepts, c)
        low = high = 0
        for k in range(need_runs[c, 0], need_runs[c, 1]):
            low, high = add_word(needed[k], low, high)
        sign = np.int64(high) << 32 | np.int64(low) & _LOW_HALF
        count = 0
        for column in range(cells + 1):
            if column == cells or touches(column_boxes, column, around):
                for number in range(column * cells, min((column + 1) * cells, len(list_boxes))):
                    if concerned(list_boxes, number, around, before, after, kept):
                        touched[count] = number
                        count += 1
                        prefetch(signatures, heads[number, 0])
                        prefetch(signatures, heads[number, 0] + 8)
        last = filled
        for i in range(count):
            begin, size = heads[touched[i], 0], heads[touched[i], 1]
            if last + size > out.size:
                return c
            for at in range(begin, begin + size):
                out[last] = at
                last += signatures[at] & sign == sign
        for i in range(filled, last):
            prefetch(boxes, out[i])
            prefetch(rows, out[i])
        found, last = last, filled
        for i in range(filled, found):
            at = out[i]
            if (touches(boxes, at, before) or touches(boxes, at, after)) and not inside(boxes, at, kept):
                row = rows[at]
                out[last] = row
                prefetch(expires, row)
                prefetch(keyword_runs, row)
                prefetch(stored_boxes, row)
                last += 1
        for i in range(filled, last):
            prefetch(keywords, keyword_runs[out[i], 0])
        last = keep_valid(expires, moment.now, out, filled, last, moment.expired)
        filled = keep_satisfying(stored, clauses, c, out, filled, last)
        ends[c] = filled
    return stop


@kernel
def _search(
    arrays: _SearchArrays,
    clauses: Clauses,
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    """Match the clauses from *start* to *stop*; see :class:`~nearcast.matching.structure.View`.

    A subscription that comes is one that moves in from nowhere.
    """
    moves = Moves(clauses, clauses.boxes, clauses.boxes, nowhere(stop))
    return _search_moves(arrays, moves, moment, start, stop, answers, filled)
