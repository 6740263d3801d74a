"""BEQ-Tree: a quadtree over the places of messages, with sorted lists of their values in its cells.

After Guo, Zhang, Li, Tan and Bao, "Location-aware pub/sub system: when continuous moving queries meet dynamic event
streams" (SIGMOD 2015). A leaf that holds more than E_max messages is split. In a cell, the values of each attribute
form a sorted list: two binary searches turn a test into a range of the list, and the messages that are in the ranges of
all tests are found by counting. A message that is an area is in the smallest cell that contains it, so inner cells have
lists too.

Counting goes from the shortest range to the longest, and counts only messages that were in all shorter ranges. If the
region does not contain the cell, places are compared first, as if they were one more test. Counting ends when it is
cheaper to verify the remaining messages than to read the next range, or when a range is empty. Negated tests are left
to the verification.

The lists of a cell are one sorted array of *keys*: the attribute in the upper half, and the value, rounded to float32,
in the lower half. Rounding keeps order, so a range may have too many messages, but never too few.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.parts import nested, part_of
from nearcast.columns.ragged import runs_take
from nearcast.columns.rows.messages import MessageRows
from nearcast.kernels import kernel
from nearcast.kernels.verify import NEGATED, Clauses, StoredProbes, keep_satisfying, keep_valid
from nearcast.matching.rivals.blocks import Blocks
from nearcast.matching.structure import Answers, MessageStructure, Moment, Progress, View, silent

__all__ = ["BEQTree"]

_DEPTH = config.BEQ_DEPTH
_COUNTED = config.BEQ_COUNTED
_SEARCH, _VERIFY = config.BEQ_SEARCH_COST, config.BEQ_VERIFY_COST


class Cells(NamedTuple):
    """The quadtree; a message goes right, or up, from the middle of a cell on."""

    children: NDArray[np.int32]  # the first of four adjacent cells; -1 in a leaf
    boxes: NDArray[np.float64]  # [cell, 4]; the outermost cells take in what lies beyond


class Lists(NamedTuple):
    """What stands in each cell."""

    entry_heads: NDArray[np.int64]  # [cell, 3]: start, size, room
    rows: NDArray[np.int32]  # of each entry; its number in the cell is its slot
    boxes: NDArray[np.float32]  # [entry, 4]
    posting_heads: NDArray[np.int64]
    slots: NDArray[np.int32]  # of each posting
    keys: NDArray[np.uint64]  # ascending in a cell


class BEQTree(MessageStructure):
    """A quadtree with sorted lists of values in its cells, and counting.

    Lists are merged and cleaned in place, and cells are split in place. A reader of an older view might miss an entry
    or read one twice, so nobody may read while the tree changes.
    """

    name: ClassVar[str] = "beq-tree"
    lingers: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("leaf",)

    def __init__(self, store: MessageRows, *, leaf: int = config.BEQ_LEAF) -> None:
        """Begin empty; *leaf* is E_max, the most messages that a leaf holds before it is split."""
        super().__init__(store)
        self.leaf = leaf

    def build(self, sample: Clauses | None = None, tell: Progress = silent) -> None:
        """Lay out the cells, and fill their lists."""
        rows = self.members()
        boxes = self.store.stored.boxes[rows]
        frame = [*boxes[:, :2].min(axis=0), *boxes[:, 2:].max(axis=0)] if len(boxes) else [0.0, 0.0, 1.0, 1.0]
        self._children = GrowableArray(np.full(1, -1, np.int32), borrowed=False)
        self._boxes = GrowableArray(np.array([frame]), borrowed=False)
        self._levels = GrowableArray(np.zeros(1, np.int32), borrowed=False)
        self._entries = Blocks(np.empty(0, np.int32), np.empty((0, 4), np.float32))
        self._postings = Blocks(np.empty(0, np.int32), np.empty(0, np.uint64))
        self._homes = GrowableArray(np.full(self.store.rows, -1, np.int32), borrowed=False)
        self._laid_for = len(rows)
        self._longest = 0  # the most entries of a cell, or more
        self._open_cells()
        self._put(rows, tell)

    @property
    def _cells(self) -> Cells:
        return Cells(self._children.values, self._boxes.values)

    @property
    def _lists(self) -> Lists:
        entries, postings = self._entries, self._postings
        return Lists(
            entries.heads, entries.first, entries.second, postings.heads, postings.first, postings.second
        )

    # --- Changes ---------------------------------------------------------------------------------------------------

    def add(self, rows: NDArray[np.int64]) -> None:
        """Put messages into their cells, or rebuild the cells if there are many more messages than before."""
        if self.store.living > max(config.BEQ_GROWTH * self._laid_for, config.BEQ_FIRST):
            self.build()
            return
        self._homes.fill(self.store.rows - len(self._homes.values), -1)
        self._put(rows)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove messages from their cells."""
        homes = self._homes.values
        cells = np.unique(homes[rows])
        homes[rows] = -1
        _purge(self._lists, cells, self.store.alive, np.empty(self._longest, np.int32))

    def _put(self, rows: NDArray[np.int64], tell: Progress = silent) -> None:
        """Insert rows, after splitting the leaves that they would overfill."""
        boxes = self.store.stored.boxes
        tell("cells", 0.0)
        while True:
            homes = _locate(self._cells, boxes, rows)
            sizes = self._entries.heads[:, 1] + np.bincount(homes, minlength=len(self._levels.values))
            splits = (self._children.values < 0) & (self._levels.values < _DEPTH)
            over = np.flatnonzero(splits & (sizes > self.leaf))
            if not len(over):
                break
            rows = np.concatenate([rows, *[self._split(leaf) for leaf in over.tolist()]])
        tell("lists", 0.3)
        order = np.argsort(homes, kind="stable")
        rows, homes = rows[order], homes[order]
        self._homes.values[rows] = homes
        self._longest = max(self._longest, int(sizes.max(initial=0)))
        begins = np.flatnonzero(np.diff(homes, prepend=-1))
        cells, groups = homes[begins].astype(np.int64), np.append(begins, len(homes))
        offsets, keys = self._keys(rows)
        self._entries.reserve(cells, np.diff(groups))
        self._postings.reserve(cells, np.diff(offsets[groups]))
        _merge(self._lists, boxes, cells, groups, rows, offsets, keys)

    def _keys(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the keys of the values of rows, as (offsets, keys)."""
        stored = self.store.stored
        offsets, values = runs_take(stored.value_runs, stored.values, rows)
        _, attributes = runs_take(stored.value_runs, stored.value_attributes, rows)
        return offsets, keys_of(attributes, values)

    def _split(self, leaf: int) -> NDArray[np.int64]:
        """Give a leaf four children; return the rows that were in it, which are in no cell now."""
        start, size, _ = self._entries.heads[leaf].tolist()
        rows = self._entries.first[start : start + size].astype(np.int64)
        self._entries.clear(leaf)
        self._postings.clear(leaf)
        left, low, right, high = self._boxes.values[leaf].tolist()
        x, y = _middle(left, right), _middle(low, high)
        self._children.values[leaf] = len(self._levels.values)
        self._children.fill(4, -1)
        self._boxes.extend([[left, low, x, y], [x, low, right, y], [left, y, x, high], [x, y, right, high]])
        self._levels.fill(4, self._levels.values[leaf] + 1)
        self._open_cells()
        return rows

    def _open_cells(self) -> None:
        self._entries.open(len(self._levels.values))
        self._postings.open(len(self._levels.values))

    # --- Questions -------------------------------------------------------------------------------------------------

    def view(self) -> View:
        """Return the cells and their lists."""
        return View(_search_with_keys, _Searched(self.store.stored, self._cells, self._lists, self._longest))

    def stats(self) -> dict[str, Any]:
        """Return the figures of cells and lists."""
        entries = self._entries.heads[:, 1]
        leaves = self._children.values < 0
        return {
            "cells": len(leaves),
            "leaves": int(leaves.sum()),
            "levels": int(self._levels.values.max()) + 1,
            "longest_list": int(entries.max(initial=0)),
            "in_inner_cells": int(entries[~leaves].sum()),
            "postings": int(self._postings.heads[:, 1].sum()),
        }

    @property
    def nbytes(self) -> int:
        """Memory of the cells and lists, room included."""
        return (
            self._entries.nbytes
            + self._postings.nbytes
            + sum(column.nbytes for column in (self._children, self._boxes, self._levels, self._homes))
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the cells and their lists."""
        return {
            "children": self._children.values,
            "boxes": self._boxes.values,
            "levels": self._levels.values,
            "homes": self._homes.values,
            "parameters": np.array([self.leaf, self._laid_for, self._longest]),
            **nested(entries=self._entries.arrays(), postings=self._postings.arrays()),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the cells and their lists."""
        self._children, self._boxes, self._levels, self._homes = (
            GrowableArray(arrays[name], borrowed=False) for name in ("children", "boxes", "levels", "homes")
        )
        self.leaf, self._laid_for, self._longest = arrays["parameters"].tolist()
        self._entries = Blocks.restored(part_of(arrays, "entries"))
        self._postings = Blocks.restored(part_of(arrays, "postings"))

    def check(self) -> list[str]:
        """Compare cells and lists with the messages."""
        found = []
        stored, homes, lists = self.store.stored, self._homes.values, self._lists
        alive = self.members()
        if not np.array_equal(homes[alive], _locate(self._cells, stored.boxes, alive)):
            found.append("a probe row is in another cell than its place says")
        held = 0
        for cell, level in enumerate(self._levels.values):
            (at, size, _), (posting, postings, _) = lists.entry_heads[cell], lists.posting_heads[cell]
            rows = lists.rows[at : at + size].astype(np.int64)
            slots, keys = lists.slots[posting : posting + postings], lists.keys[posting : posting + postings]
            held += size
            if not (homes[rows] == cell).all() or len(np.unique(rows)) < size:
                found.append(f"cell {cell} does not hold the probe rows that say so")
            if not np.array_equal(lists.boxes[at : at + size], _rounded(stored.boxes[rows])):
                found.append(f"an entry of cell {cell} has another box than its probe row")
            if (keys[1:] < keys[:-1]).any():
                found.append(f"a list of cell {cell} is not sorted")
            offsets, expected = self._keys(rows)
            order = np.lexsort((keys, slots))
            owners = np.repeat(np.arange(size), np.diff(offsets))
            if not np.array_equal(slots[order], owners) or not np.array_equal(keys[order], expected):
                found.append(f"the lists of cell {cell} do not hold the values of its probe rows")
            if self._children.values[cell] < 0 and size > self.leaf and level < _DEPTH:
                found.append(f"leaf {cell} holds {size} probe rows")
        if held != len(alive):
            found.append(f"{held} entries for {len(alive)} probe rows")
        return found


def keys_of(attributes: NDArray[np.int32], values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return the keys of values: in the order of attributes, then of values rounded to float32."""
    rounded = _rounded(values) + np.float32(0)  # -0 becomes 0, which it equals
    bits = rounded.view(np.uint32)
    bits = np.where(rounded < 0, ~bits, bits | np.uint32(1 << 31))
    return attributes.astype(np.uint64) << np.uint64(32) | bits


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which keeps the order
        return values.astype(np.float32)


def _middle(low: float, high: float) -> float:
    return min(max(low / 2 + high / 2, low), high)  # halves, because the sum may overflow


@kernel
def _locate(cells: Cells, boxes: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the smallest cell that contains the box of each row."""
    children, cell_boxes = cells
    homes = np.empty(rows.size, np.int32)
    for i in range(rows.size):
        left, low, right, high = boxes[rows[i], 0], boxes[rows[i], 1], boxes[rows[i], 2], boxes[rows[i], 3]
        cell = 0
        while children[cell] >= 0:
            x, y = cell_boxes[children[cell], 2], cell_boxes[children[cell], 3]  # the middle
            if (left >= x) != (right >= x) or (low >= y) != (high >= y):
                break
            cell = children[cell] + (left >= x) + 2 * (low >= y)
        homes[i] = cell
    return homes


@kernel
def _merge(
    lists: Lists,
    boxes: NDArray[np.float64],
    cells: NDArray[np.int64],
    groups: NDArray[np.int64],
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    keys: NDArray[np.uint64],
) -> None:
    """Merge groups of rows, one for each of the given cells, into the lists there; there is room.

    The keys of a row are ascending. Lists are merged from their ends, so that what is there moves once.
    """
    entry_heads, entry_rows, entry_boxes, posting_heads, slots, list_keys = lists
    for g in range(cells.size):
        cell = cells[g]
        at, size = entry_heads[cell, 0], entry_heads[cell, 1]
        first, last = offsets[groups[g]], offsets[groups[g + 1]]
        new_slots = np.empty(last - first, np.int32)
        for i in range(groups[g], groups[g + 1]):
            entry_rows[at + size] = rows[i]
            for side in range(4):
                entry_boxes[at + size, side] = np.float32(boxes[rows[i], side])
            new_slots[offsets[i] - first : offsets[i + 1] - first] = size
            size += 1
        entry_heads[cell, 1] = size
        new_keys = keys[first:last]
        if groups[g + 1] - groups[g] > 1:
            order = np.argsort(new_keys)
            new_keys, new_slots = new_keys[order], new_slots[order]
        begin, old = posting_heads[cell, 0], posting_heads[cell, 1] - 1
        posting_heads[cell, 1] += last - first
        for new in range(last - first - 1, -1, -1):
            key = new_keys[new]
            while old >= 0 and list_keys[begin + old] > key:
                list_keys[begin + old + new + 1] = list_keys[begin + old]
                slots[begin + old + new + 1] = slots[begin + old]
                old -= 1
            list_keys[begin + old + new + 1] = key
            slots[begin + old + new + 1] = new_slots[new]


@kernel
def _purge(
    lists: Lists, cells: NDArray[np.int32], alive: NDArray[np.bool_], numbers: NDArray[np.int32]
) -> None:
    """Remove dead rows from the lists of some cells; *numbers* is scratch for the new slots of a cell's entries."""
    entry_heads, rows, boxes, posting_heads, slots, keys = lists
    for cell in cells:
        at, size = entry_heads[cell, 0], entry_heads[cell, 1]
        kept = 0
        for slot in range(size):
            row = rows[at + slot]
            numbers[slot] = kept if alive[row] else -1
            rows[at + kept] = row
            for side in range(4):
                boxes[at + kept, side] = boxes[at + slot, side]
            kept += alive[row]
        entry_heads[cell, 1] = kept
        begin, size = posting_heads[cell, 0], posting_heads[cell, 1]
        kept = begin
        for posting in range(begin, begin + size):
            slot = numbers[slots[posting]]
            slots[kept], keys[kept] = slot, keys[posting]
            kept += slot >= 0
        posting_heads[cell, 1] = kept - begin


@kernel
def _bounds(
    keys: NDArray[np.uint64],
    begin: int,
    size: int,
    wanted: NDArray[np.uint64],
    number: int,
    places: NDArray[np.int64],
) -> None:
    """Write for each of some wanted keys the first place of a sorted row whose key is not less.

    The binary searches go in step, without branches, so that their waits for memory overlap.
    """
    places[:number] = begin
    while size > 0:
        half = (size + 1) >> 1
        for k in range(number):
            places[k] += half * (keys[places[k] + half - 1] < wanted[k])
        size -= half


class _Searched(NamedTuple):
    stored: StoredProbes
    cells: Cells
    lists: Lists
    longest: int  # the most entries of a cell, or more


def _search_with_keys(
    searched: _Searched,
    clauses: Clauses,
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    first = last = 0
    if len(clauses.test_attributes):
        first, last = int(clauses.test_runs[start, 0]), int(clauses.test_runs[stop - 1, 1])
    attributes = clauses.test_attributes[first:last]
    low_keys = keys_of(attributes, clauses.test_lows[first:last])
    high_keys = keys_of(attributes, clauses.test_highs[first:last])
    return _search(searched, clauses, low_keys, high_keys, moment, start, stop, answers, filled)


@kernel
def _search(
    searched: _Searched,
    clauses: Clauses,
    low_keys: NDArray[np.uint64],
    high_keys: NDArray[np.uint64],
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    """Match the clauses from *start* to *stop*; see :class:`~nearcast.matching.structure.View`.

    The keys of tests begin with those of clause *start*.
    """
    stored, cells, lists, longest = searched
    ends, out = answers
    children, cell_boxes = cells
    entry_heads = lists.entry_heads
    clause_boxes, test_runs, flags = clauses.boxes, clauses.test_runs, clauses.test_flags
    any_tests = low_keys.size > 0
    expires = stored.expires
    stack = np.empty(3 * _DEPTH + 4, np.int32)
    marks = np.empty(longest, np.uint8)
    wanted = np.empty(2 * _COUNTED, np.uint64)
    places = np.empty(2 * _COUNTED, np.int64)
    region = np.empty(4, np.float64)
    rounded = np.empty(4, np.float32)
    for c in range(start, stop):
        tests = 0
        if any_tests:
            for t in range(test_runs[c, 0], test_runs[c, 1]):
                if flags[t] & NEGATED == 0 and tests < _COUNTED:
                    wanted[2 * tests] = low_keys[t - test_runs[start, 0]]
                    wanted[2 * tests + 1] = high_keys[t - test_runs[start, 0]] + np.uint64(1)
                    tests += 1
        for side in range(4):  # what lies beyond the cells is in the outermost ones
            low, high = cell_boxes[0, side & 1], cell_boxes[0, side & 1 | 2]
            region[side] = min(max(clause_boxes[c, side], low), high)
            rounded[side] = np.float32(clause_boxes[c, side])
        stack[0], depth, last = 0, 1, filled
        while depth > 0:
            depth -= 1
            cell = stack[depth]
            size = entry_heads[cell, 1]
            if last + size > out.size:
                return c
            if size > 0:
                inside = (
                    cell_boxes[cell, 0] >= region[0]
                    and cell_boxes[cell, 2] <= region[2]
                    and cell_boxes[cell, 1] >= region[1]
                    and cell_boxes[cell, 3] <= region[3]
                )
                last = _count(lists, cell, inside, rounded, tests, wanted, places, marks, out, last)
            if children[cell] >= 0:
                for child in range(children[cell], children[cell] + 4):
                    stack[depth] = child
                    depth += (
                        (cell_boxes[child, 0] <= region[2])
                        & (cell_boxes[child, 2] >= region[0])
                        & (cell_boxes[child, 1] <= region[3])
                        & (cell_boxes[child, 3] >= region[1])
                    )
        last = keep_valid(expires, moment.now, out, filled, last, moment.expired)
        filled = keep_satisfying(stored, clauses, c, out, filled, last)
        ends[c] = filled
    return stop


@kernel
def _count(
    lists: Lists,
    cell: int,
    inside: bool,
    region: NDArray[np.float32],
    tests: int,
    wanted: NDArray[np.uint64],
    places: NDArray[np.int64],
    marks: NDArray[np.uint8],
    out: NDArray[np.int32],
    last: int,
) -> int:
    """Write the rows of a cell that satisfy the tests, and perhaps some others; return the new end."""
    entry_heads, rows, boxes, posting_heads, slots, keys = lists
    at, size = entry_heads[cell, 0], entry_heads[cell, 1]
    left = size  # entries that have passed what has been looked at: their mark says how much that is
    if inside:
        marks[:size] = 0
    else:
        xmin, ymin, xmax, ymax = region[0], region[1], region[2], region[3]
        left = 0
        for slot in range(size):
            touches = (
                (boxes[at + slot, 0] <= xmax)
                & (boxes[at + slot, 2] >= xmin)
                & (boxes[at + slot, 1] <= ymax)
                & (boxes[at + slot, 3] >= ymin)
            )
            marks[slot] = 0 if touches else 255
            left += touches
    counted = 0
    if left * _VERIFY > tests * _SEARCH:
        _bounds(keys, posting_heads[cell, 0], posting_heads[cell, 1], wanted, 2 * tests, places)
        for t in range(tests):
            first, beyond = places[2 * t], places[2 * t + 1]
            if first >= beyond:
                return last
            rank = 2 * t  # in the order of lengths
            while rank > 0 and places[rank - 1] - places[rank - 2] > beyond - first:
                places[rank], places[rank + 1] = places[rank - 2], places[rank - 1]
                rank -= 2
            places[rank], places[rank + 1] = first, beyond
        while counted < tests:
            first, beyond = places[2 * counted], places[2 * counted + 1]
            if left * _VERIFY <= beyond - first:
                break
            left = 0
            for posting in range(first, beyond):
                slot = slots[posting]
                hit = marks[slot] == counted
                marks[slot] += hit
                left += hit
            counted += 1
    for slot in range(size):
        out[last] = rows[at + slot]
        last += marks[slot] == counted
    return last
