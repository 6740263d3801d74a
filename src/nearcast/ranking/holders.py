"""Which buffers hold a message: what has to be looked at when it leaves the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays

__all__ = ["Holders"]


class _Lists(NamedTuple):
    """Lists of rows, linked: each message names the last node of its list, each node the one before it."""

    heads: NDArray[np.int32]
    counts: NDArray[np.int32]  # nodes of each message
    rows: NDArray[np.int32]
    links: NDArray[np.int32]
    free: NDArray[np.int64]  # the first free node, and how many nodes were ever used


class Holders:
    """For each message of the window the rows whose buffers it entered; some may have let it go since.

    Those that it entered when it arrived lie side by side, message after message. Those that found it later, in an
    evaluation, are in a linked list.
    """

    def __init__(self) -> None:
        self._base = 0  # the first message that is known
        self._ends = GrowableArray(np.empty(0, np.int64), borrowed=False)  # of what each message entered
        self._entered = GrowableArray(np.empty(0, np.int32), borrowed=False)  # rows, message after message
        self._before = 0  # how many came before these
        self._taken = 0  # how many were taken
        self._heads = GrowableArray(np.empty(0, np.int32), borrowed=False)
        self._counts = GrowableArray(np.empty(0, np.int32), borrowed=False)
        self._rows = np.empty(1024, np.int32)
        self._links = np.empty(1024, np.int32)
        self._free = np.array([-1, 0])
        self._live = 0  # nodes that are in lists

    @property
    def nbytes(self) -> int:
        """Memory."""
        return sum(
            part.nbytes
            for part in (self._ends, self._entered, self._heads, self._counts, self._rows, self._links)
        )

    def _lists(self) -> _Lists:
        return _Lists(self._heads.values, self._counts.values, self._rows, self._links, self._free)

    def arrive(self, offsets: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Note the next messages: number i entered the buffers of ``rows[offsets[i]:offsets[i + 1]]``."""
        self._ends.extend(self._before + len(self._entered.values) + offsets[1:])
        self._entered.extend(rows)
        self._heads.fill(len(offsets) - 1, -1)
        self._counts.fill(len(offsets) - 1, 0)

    def find(self, messages: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Note that an evaluation put *messages* into the buffers of *rows*, one each."""
        if len(rows) >= config.RANKING_BULK:  # the nodes of a list side by side
            order = np.argsort(messages, kind="stable")
            messages, rows = messages[order], rows[order]
        needed = self._live = self._live + len(rows)  # nodes that are free come first
        if needed > len(self._rows):
            more = needed + needed // 2
            self._rows, self._links = (
                np.concatenate([part, np.empty(more - len(part), np.int32)])
                for part in (self._rows, self._links)
            )
        _note(self._lists(), messages, rows, self._base)

    def taken(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the holders of the messages *begin* to *end*, the oldest there are, and forget them."""
        numbers = np.arange(begin, end)
        ends = np.append(self._taken, self._ends.values[begin - self._base : end - self._base])
        entered = self._entered.values[ends[0] - self._before : ends[-1] - self._before]
        messages, rows = self._found(numbers, np.repeat(numbers, np.diff(ends)), entered)
        self._taken = int(ends[-1])
        self._tidy(end)
        return messages, rows

    def withdrawn(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the holders of any messages; those that they entered at their arrival are returned once more."""
        places = numbers - self._base
        stops = self._ends.values[places]
        starts = np.where(places > 0, self._ends.values[places - 1], self._before)
        counts = stops - starts
        offsets = offsets_of(counts)
        picks = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1] - self._before, counts)
        return self._found(numbers, np.repeat(numbers, counts), self._entered.values[picks])

    def renumber(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Learn the new *numbers* of messages by the old ones, counted from *first*; what has none is forgotten.

        The new ones are without gaps.
        """
        there, gone = numbers >= 0, first - self._base
        counts = np.diff(self._ends.values[gone:], prepend=self._taken)
        entered = self._entered.values[self._taken - self._before :][np.repeat(there, counts)]
        self._entered = GrowableArray(entered, borrowed=False)
        self._ends = GrowableArray(np.cumsum(counts[there]), borrowed=False)
        self._heads = GrowableArray(self._heads.values[gone:][there], borrowed=False)
        self._counts = GrowableArray(self._counts.values[gone:][there], borrowed=False)
        self._base = first + len(numbers) - len(self._ends.values)
        self._before = self._taken = 0

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        used = int(self._free[1])
        return {
            "ends": self._ends.values,
            "entered": self._entered.values,
            "heads": self._heads.values,
            "counts": self._counts.values,
            "rows": self._rows[:used],
            "links": self._links[:used],
            "free": self._free,
            "span": np.array([self._base, self._before, self._taken]),
        }

    def restore(self, arrays: Arrays) -> None:
        """Take the holders that these arrays came from."""
        for name in ("ends", "entered", "heads", "counts"):
            setattr(self, f"_{name}", GrowableArray(arrays[name], borrowed=False))
        self._rows, self._links, self._free = arrays["rows"], arrays["links"], arrays["free"]
        self._base, self._before, self._taken = arrays["span"].tolist()
        self._live = int(arrays["counts"].sum())

    def _found(
        self, numbers: NDArray[np.int64], messages: NDArray[np.int64], rows: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return pairs of *messages* and *rows*, and behind them those that found one of *numbers*; forget these."""
        lists = self._lists()
        known, found = len(rows), int(lists.counts[numbers - self._base].sum())
        all_messages, all_rows = np.empty(known + found, np.int64), np.empty(known + found, np.int32)
        all_messages[:known], all_rows[:known] = messages, rows
        _take(lists, numbers, self._base, all_messages[known:], all_rows[known:])
        self._live -= found
        return all_messages, all_rows

    def _tidy(self, end: int) -> None:
        """Free the memory of messages before *end*, when they are more than the others."""
        gone = end - self._base
        if gone <= len(self._ends.values) // 2 + 1024:
            return
        for name in ("_ends", "_heads", "_counts"):
            setattr(self, name, GrowableArray(getattr(self, name).values[gone:].copy(), borrowed=False))
        entered = self._entered.values[self._taken - self._before :].copy()
        self._entered = GrowableArray(entered, borrowed=False)
        self._base, self._before = end, self._taken


@kernel
def _note(lists: _Lists, messages: NDArray[np.int64], rows: NDArray[np.int32], base: int) -> None:
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
