"""Which buffers hold a message: those to look at when it leaves the window (Algorithm 2, line 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import offsets_of
from nearcast.columns.sliding import SlidingArray
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.ranking.buffers import position_of, prefetch_entries

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.ranking.buffers import BufferTable

__all__ = ["Holders"]


class _Lists(NamedTuple):
    """Linked lists of rows: each message points to the last node of its list, each node to the one before it."""

    heads: NDArray[np.int32]
    counts: NDArray[np.int32]  # nodes in the list of each message
    rows: NDArray[np.int32]
    links: NDArray[np.int32]
    free: NDArray[np.int64]  # the first free node or -1, and the number of nodes ever used


class Holders:
    """For each message of the window, the rows whose buffers it entered. Some may have dropped it since.

    The rows of the buffers that it entered on arrival lie side by side, message by message. The rows that found it
    later, in an evaluation, are in a linked list. :meth:`sweep` removes nodes of these lists that are of no use.
    """

    def __init__(self) -> None:
        self._base = self._first = 0  # the first message in memory, and the first that was not popped
        self._ends = SlidingArray(np.empty(0, np.int64))  # where the entries of each message end
        self._entered = SlidingArray(np.empty(0, np.int32))  # rows, message after message
        self._before = 0  # how many rows came before those in memory
        self._taken = 0  # how many rows were popped
        self._heads = SlidingArray(np.empty(0, np.int32))
        self._counts = SlidingArray(np.empty(0, np.int32))
        self._rows = GrowableArray(np.empty(0, np.int32), borrowed=False)
        self._links = GrowableArray(np.empty(0, np.int32), borrowed=False)
        self._free = np.array([-1, 0])
        self._live = 0  # nodes in lists
        self._marks = np.empty(0, np.int64)  # by row: the last list that a sweep found it in
        self._sweep = np.zeros(2, np.int64)  # the next message to sweep, and how many lists were swept

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(
            part.nbytes
            for part in (
                self._ends,
                self._entered,
                self._heads,
                self._counts,
                self._rows,
                self._links,
                self._marks,
            )
        )

    def _lists(self) -> _Lists:
        return _Lists(
            self._heads.values, self._counts.values, self._rows.values, self._links.values, self._free
        )

    def note_arrivals(self, offsets: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Note new messages: the i-th entered the buffers of ``rows[offsets[i]:offsets[i + 1]]``."""
        self._ends.extend(self._before + len(self._entered.values) + offsets[1:])
        self._entered.extend(rows)
        self._heads.fill(len(offsets) - 1, -1)
        self._counts.fill(len(offsets) - 1, 0)

    def note_evaluations(self, messages: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Note that evaluations put ``messages[i]`` into the buffer of ``rows[i]``."""
        if len(rows) >= config.RANKING_BULK:  # so that the nodes of a list are side by side
            order = np.argsort(messages, kind="stable")
            messages, rows = messages[order], rows[order]
        needed = self._live = self._live + len(rows)  # free nodes are used first
        for part in (self._rows, self._links):
            part.fill(max(0, needed - len(part.values)), 0)
        _note(self._lists(), messages, rows, self._base)

    def pop(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the holders of the messages *begin* to *end*, the oldest of the window, and forget them."""
        numbers = np.arange(begin, end)
        ends = np.append(self._taken, self._ends.values[begin - self._base : end - self._base])
        entered = self._entered.values[ends[0] - self._before : ends[-1] - self._before]
        messages, rows = self._with_lists(numbers, np.repeat(numbers, np.diff(ends)), entered)
        self._taken, self._first = int(ends[-1]), end
        self._tidy()
        return messages, rows

    def holders_of(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the holders of any messages. Rows from their arrival will be returned once more by :meth:`pop`."""
        places = numbers - self._base
        stops = self._ends.values[places]
        starts = np.where(places > 0, self._ends.values[places - 1], self._before)
        counts = stops - starts
        offsets = offsets_of(counts)
        picks = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1] - self._before, counts)
        return self._with_lists(numbers, np.repeat(numbers, counts), self._entered.values[picks])

    def sweep(self, buffers: BufferTable, nodes: int) -> None:
        """Look at about this many *nodes*, list by list in turn, and free those whose buffers do not hold the message.

        So twice the number of nodes that may have become useless is enough to keep the useless ones fewer than the
        others.
        """
        nodes = min(nodes, self._live + self._base + len(self._heads.values) - self._first)
        if len(self._marks) < len(buffers.counts):
            self._marks = np.zeros(len(buffers.counts), np.int64)  # no list has the number 0
        self._live -= _sweep(self._lists(), buffers, self._base, self._first, nodes, self._marks, self._sweep)

    def renumber(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Renumber messages: old number *first* + i becomes ``numbers[i]``, or is forgotten if that is -1.

        The new numbers have no gaps.
        """
        there, gone = numbers >= 0, first - self._base
        counts = np.diff(self._ends.values[gone:], prepend=self._taken)
        entered = self._entered.values[self._taken - self._before :][np.repeat(there, counts)]
        self._entered, self._ends = SlidingArray(entered), SlidingArray(np.cumsum(counts[there]))
        self._heads = SlidingArray(self._heads.values[gone:][there])
        self._counts = SlidingArray(self._counts.values[gone:][there])
        self._base = self._first = first + len(numbers) - len(self._ends.values)
        self._before = self._taken = 0

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        self._pack()
        used = int(self._free[1])
        return {
            "ends": self._ends.values,
            "entered": self._entered.values,
            "heads": self._heads.values,
            "counts": self._counts.values,
            "rows": self._rows.values[:used],
            "links": self._links.values[:used],
            "free": self._free,
            "span": np.array([self._base, self._before, self._taken]),
        }

    def restore(self, arrays: Arrays) -> None:
        """Restore the holders from these arrays."""
        self._ends, self._entered = SlidingArray(arrays["ends"]), SlidingArray(arrays["entered"])
        self._heads, self._counts = SlidingArray(arrays["heads"]), SlidingArray(arrays["counts"])
        self._rows = GrowableArray(arrays["rows"], borrowed=False)
        self._links = GrowableArray(arrays["links"], borrowed=False)
        self._free = arrays["free"]
        self._base, self._before, self._taken = arrays["span"].tolist()
        self._first = self._base
        self._live = int(arrays["counts"].sum())

    def _with_lists(
        self, numbers: NDArray[np.int64], messages: NDArray[np.int64], rows: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return pairs of *messages* and *rows*, then those in the lists of *numbers*, which are emptied."""
        lists = self._lists()
        known, found = len(rows), int(lists.counts[numbers - self._base].sum())
        all_messages, all_rows = np.empty(known + found, np.int64), np.empty(known + found, np.int32)
        all_messages[:known], all_rows[:known] = messages, rows
        _take(lists, numbers, self._base, all_messages[known:], all_rows[known:])
        self._live -= found
        return all_messages, all_rows

    def _tidy(self) -> None:
        """Free the memory of messages that were popped; copy the others only if these are fewer."""
        gone, taken = self._first - self._base, self._taken - self._before
        # The entries of the first message begin where those before it end.
        parts = (self._ends, gone - 1), (self._heads, gone), (self._counts, gone), (self._entered, taken)
        freed = [part.forget(count) for part, count in parts]
        if not all(freed) and gone > len(self._ends.values) // 2 + 1024:
            self._pack()

    def _pack(self) -> None:
        """Copy what there is about messages that were not popped, and leave the rest behind."""
        gone, taken = self._first - self._base, self._taken - self._before
        self._ends, self._heads, self._counts = (
            SlidingArray(part.values[gone:].copy()) for part in (self._ends, self._heads, self._counts)
        )
        self._entered = SlidingArray(self._entered.values[taken:].copy())
        self._base, self._before = self._first, self._taken


@kernel
def _note(lists: _Lists, messages: NDArray[np.int64], rows: NDArray[np.int32], base: int) -> None:
    """Add each row to the list of its message."""
    heads, counts, nodes, links, free = lists
    for i in range(len(rows)):
        node = free[0]
        if node >= 0:
            free[0] = links[node]
        else:
            node = free[1]
            free[1] += 1
        nodes[node] = rows[i]
        links[node] = heads[messages[i] - base]
        heads[messages[i] - base] = node
        counts[messages[i] - base] += np.int32(1)


@kernel
def _take(
    lists: _Lists,
    numbers: NDArray[np.int64],
    base: int,
    messages: NDArray[np.int64],
    rows: NDArray[np.int32],
) -> None:
    """Write the lists of messages to *messages* and *rows*, and free their nodes."""
    heads, counts, nodes, links, free = lists
    count = 0
    for message in numbers:
        node = heads[message - base]
        heads[message - base], counts[message - base] = -1, 0
        while node >= 0:
            messages[count], rows[count] = message, nodes[node]
            count += 1
            following = links[node]
            links[node] = free[0]
            free[0] = node
            node = following


@kernel
def _sweep(
    lists: _Lists,
    buffers: BufferTable,
    base: int,
    first: int,
    nodes: int,
    marks: NDArray[np.int64],
    state: NDArray[np.int64],
) -> Any:
    """Free nodes of rows whose buffers do not hold the message, or that are in the list already; return how many."""
    heads, counts, rows, links, free = lists
    starts, held, scores, keys = buffers.starts, buffers.counts, buffers.scores, buffers.keys
    freed = 0
    while nodes > 0:
        message = max(state[0], first)
        if message >= base + len(heads):
            message = first
        state[0], state[1] = message + 1, state[1] + 1
        nodes -= 1
        # Three rounds, so that cache misses overlap.
        node = heads[message - base]
        while node >= 0:
            prefetch(starts, rows[node])
            node = links[node]
        node = heads[message - base]
        while node >= 0:
            prefetch_entries(scores, starts[rows[node]], held[rows[node]])
            node = links[node]
        before, node = np.int64(-1), heads[message - base]
        while node >= 0:
            row, following = rows[node], links[node]
            nodes -= 1
            if marks[row] != state[1] and position_of(keys, starts[row], held[row], message) >= 0:
                marks[row] = state[1]
                before = node
            else:
                if before < 0:
                    heads[message - base] = following
                else:
                    links[before] = following
                links[node] = free[0]
                free[0] = node
                counts[message - base] -= np.int32(1)
                freed += 1
            node = following
    return freed
