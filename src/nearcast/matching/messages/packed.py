"""Messages packed by place: the packed list, turned round.

The plane is cut into cells with about as many messages each, and a cell is a list: short, or packed by place (see
:mod:`~nearcast.matching.structures.packed_list.layout`). Where a clause has its next two keywords, a message has a
*signature*: 64 bits, of which each of its words sets two. A subscription reads the lists, super-blocks, blocks and
messages that it touches, each a run of memory, and a message whose signature lacks a bit of its words is refused
without a further look. One that moves passes over what lies inside its region before and after the move: there,
nothing changes.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.rows.messages import MessageRows
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses
from nearcast.matching.messages.cells import Cells, choose_cells, describe, widen
from nearcast.matching.messages.packed_search import PackedMessages, search, search_moves
from nearcast.matching.structure import MessageStructure, Progress, View, silent
from nearcast.matching.structures.packed_list import change
from nearcast.matching.structures.packed_list.build import filled, pack_all
from nearcast.matching.structures.packed_list.layout import (
    BLOCK_BITS,
    PATIENCE,
    POSTINGS,
    Lists,
    grown,
    used,
)
from nearcast.matching.structures.packed_list.pack import clear, enlarge

__all__ = ["MessagePacked"]


class MessagePacked(MessageStructure):
    """Messages in lists by cell, long ones packed by place, with signatures of their words.

    Postings come and go in place, as in the packed list: a reader of an older view may miss a posting or read one
    twice, so that a change needs the structure alone.
    """

    name: ClassVar[str] = "packed"

    def __init__(self, store: MessageRows) -> None:
        super().__init__(store)
        self._lay_out(np.empty(0, np.int64), 0)

    def build(self, sample: Clauses | None = None, tell: Progress = silent) -> None:
        """Choose the cells, and pack the messages of each."""
        rows = self.members()
        tell("choosing cells", 0.0)
        self._lay_out(rows, config.PACKED_MESSAGES_SAMPLE)
        tell("filling lists", 0.2)
        targets, signatures = self._described(rows)
        boxes, homes, count = self.store.stored.boxes, self._homes.values, len(self._list_boxes)
        self._lists = filled(boxes, rows, targets, signatures, homes, count)
        self._lists.state[PATIENCE] = config.PACKED_MESSAGES_PATIENCE
        tell("packing lists", 0.5)
        pack_all(self._lists, homes)
        _enclose(self._lists, np.arange(count), self._list_boxes, self._column_boxes)

    def _lay_out(self, rows: NDArray[np.int64], most: int) -> None:
        """Choose cells for the messages in *rows*, by a sample of at most *most*; no message is in them yet."""
        boxes, step = self.store.stored.boxes, max(len(rows) // max(most, 1), 1)
        cells = int(np.sqrt(len(rows) / config.PACKED_MESSAGES_CELL))
        cells = min(max(cells, 1), config.PACKED_MESSAGES_CELLS)
        self._cells = choose_cells(boxes[rows[::step]], cells)
        self._laid_for = len(rows)
        self._list_boxes = np.empty((cells * cells, 4), np.float32)
        self._column_boxes = np.empty((cells, 4), np.float32)
        self._homes = GrowableArray(np.full((self.store.rows, 2), -1, np.int32)).reserve(self.store.rows)
        none = np.empty(0, np.int64), np.empty(0, np.int32), np.empty((0, 2), np.int32)
        self._lists = filled(boxes, *none, self._homes.values, cells * cells)
        self._lists.state[PATIENCE] = config.PACKED_MESSAGES_PATIENCE
        _enclose(self._lists, np.arange(cells * cells), self._list_boxes, self._column_boxes)

    def _described(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the list and the signature of each message."""
        targets, signatures = np.empty(len(rows), np.int32), np.zeros((len(rows), 2), np.int32)
        describe(self.store.stored, self._cells, rows, targets, signatures)
        return targets, signatures

    def add(self, rows: NDArray[np.int64]) -> None:
        """Post messages to the lists of their cells."""
        more = self.store.rows - len(self._homes.values)
        if more > 0:
            self._homes.fill(more, -1)
        boxes, homes, done = self.store.stored.boxes, self._homes.values, 0
        targets, signatures = self._described(rows)
        while True:
            done = change.post(self._lists, homes, boxes, rows, targets, signatures, done)
            if done == len(rows):
                break
            slots, supers = change.needs(self._lists, int(targets[done]))
            self._lists = grown(self._lists, slots=slots, supers=supers)
        widen(self._list_boxes, self._column_boxes, boxes, rows, targets)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Take messages out of their lists."""
        numbers = self._homes.values[rows, 0].astype(np.int64)
        change.unpost(self._lists, self._homes.values, rows)
        _enclose(self._lists, numbers, self._list_boxes, self._column_boxes)

    def outgrown(self, more: int) -> bool:
        """Tell whether there are so many messages that it is time to choose the cells again."""
        enough = max(config.PACKED_MESSAGES_GROWTH * self._laid_for, config.PACKED_MESSAGES_FIRST)
        return int(self._lists.state[POSTINGS]) + more > enough and self._may_divide()

    def _may_divide(self) -> bool:
        return len(self._column_boxes) < config.PACKED_MESSAGES_CELLS

    def successor(self) -> MessagePacked:
        """Return an empty structure with cells chosen by a small sample of the messages here."""
        fresh = MessagePacked(self.store)
        fresh._lay_out(np.flatnonzero(self._homes.values[:, 0] >= 0), config.PACKED_MESSAGES_QUICK_SAMPLE)
        return fresh

    def view(self) -> View:
        """Return the lists."""
        arrays = PackedMessages(self.store.stored, self._lists, self._list_boxes, self._column_boxes)
        return View(search, arrays, search_moves)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the cells and the lists."""
        return {
            "homes": self._homes.values,
            **self._cells._asdict(),
            "laid_for": np.array([self._laid_for]),
            "list_boxes": self._list_boxes,
            "column_boxes": self._column_boxes,
            **used(self._lists)._asdict(),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the cells and the lists."""
        self._homes = GrowableArray(arrays["homes"], borrowed=False)
        self._cells = Cells(arrays["x_knots"], arrays["y_knots"])
        self._laid_for = int(arrays["laid_for"][0])
        self._list_boxes, self._column_boxes = arrays["list_boxes"], arrays["column_boxes"]
        self._lists = Lists(**{name: arrays[name] for name in Lists._fields})

    def stats(self) -> dict[str, Any]:
        """Return how the lists are laid out."""
        sizes = self._lists.heads[: len(self._list_boxes), 1]
        return {"lists": len(sizes), "longest_list": int(sizes.max(initial=0)), "laid_for": self._laid_for}

    def check(self) -> list[str]:
        """Compare postings with their messages, and boxes with what is in them."""
        lists, homes, alive = used(self._lists), self._homes.values, self.members()
        sizes, found = lists.heads[:, 1], []
        if not sizes.sum() == lists.state[POSTINGS] == len(alive):
            found.append(f"{int(sizes.sum())} postings for {len(alive)} messages")
        numbers, slots = homes[alive].T
        rows = lists.rows[slots]
        if (numbers < 0).any() or not np.array_equal(np.where(rows < 0, ~rows, rows), alive):
            return [*found, "a posting is not where its message says"]
        boxes = lists.boxes[slots]
        if not np.array_equal(boxes, self.store.stored.boxes[alive].astype(np.float32)):
            found.append("a posting has another box than its message")
        targets, signatures = self._described(alive)
        if not np.array_equal(targets, numbers) or not np.array_equal(lists.extras[slots], signatures):
            found.append("a posting is in another list, or has another signature, than its message says")
        packed = lists.heads[numbers, 2] < 0
        block = lists.chunk_blocks[slots[packed] >> BLOCK_BITS]
        for what, around, inner in (
            ("column", self._column_boxes[numbers // len(self._column_boxes)], boxes),
            ("list", self._list_boxes[numbers], boxes),
            ("block", lists.block_boxes[block], boxes[packed]),
            ("super-block", lists.super_boxes[block >> BLOCK_BITS], boxes[packed]),
        ):
            if (around[:, :2] > inner[:, :2]).any() or (around[:, 2:] < inner[:, 2:]).any():
                found.append(f"a message lies outside its {what}")
        return found


@kernel
def _enclose(
    lists: Lists,
    numbers: NDArray[np.int64],
    list_boxes: NDArray[np.float32],
    column_boxes: NDArray[np.float32],
) -> None:
    """Make the boxes of lists the least ones around what they hold, and those of their columns around the lists."""
    heads, cells = lists.heads, column_boxes.shape[0]
    stale = np.zeros(cells, np.bool_)
    for number in numbers:
        stale[number // cells] = True
        clear(list_boxes, number)
        first, size, room = heads[number, 0], heads[number, 1], heads[number, 2]
        if room < 0:
            for s in range(first, first + heads[number, 3]):
                enlarge(list_boxes, number, lists.super_boxes, s)
        else:
            for slot in range(first, first + size):
                enlarge(list_boxes, number, lists.boxes, slot)
    for column in range(cells):
        if stale[column]:
            clear(column_boxes, column)
            for number in range(column * cells, (column + 1) * cells):
                enlarge(column_boxes, column, list_boxes, number)
