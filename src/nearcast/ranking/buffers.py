"""The result buffer of each subscription: a partial k-skyband of the window (section 6).

A buffer holds, best first, the messages of the window that rank at or above the subscription's threshold and are
dominated by fewer than k others (Definitions 10 and 11: a message dominates those that rank behind it and leave the
window before it). Its first k entries are the results (Theorem 5) while it has k, or while the threshold is 0 and
nothing was left out.

Messages arrive newest last, and the oldest leaves first. So an arrival dominates all that rank behind it, and a message
that leaves dominates nobody: one counter for each entry is all that is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.growable import GrowableArray
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Buffers", "Held", "enter", "fill", "leave"]


class Held(NamedTuple):
    """All buffers, as kernels see them: row s begins at starts[s], has rooms[s] places and counts[s] entries."""

    starts: NDArray[np.int64]
    rooms: NDArray[np.int32]
    counts: NDArray[np.int32]
    scores: NDArray[np.float64]
    messages: NDArray[np.int64]
    dominated: NDArray[np.int32]  # by how many


class Buffers:
    """The buffers of all subscriptions, side by side in one pool."""

    def __init__(self) -> None:
        self._rows = {
            "starts": GrowableArray(np.empty(0, np.int64), borrowed=False),
            "rooms": GrowableArray(np.empty(0, np.int32), borrowed=False),
            "counts": GrowableArray(np.empty(0, np.int32), borrowed=False),
        }
        self._pool = {
            "scores": GrowableArray(np.empty(0), borrowed=False),
            "messages": GrowableArray(np.empty(0, np.int64), borrowed=False),
            "dominated": GrowableArray(np.empty(0, np.int32), borrowed=False),
        }
        self._free: dict[int, list[int]] = {}  # places in the pool by their room

    @property
    def held(self) -> Held:
        """The arrays, for kernels."""
        return Held(
            *(column.values for column in self._rows.values()),
            *(column.values for column in self._pool.values()),
        )

    @property
    def nbytes(self) -> int:
        """Memory."""
        return sum(column.nbytes for column in (*self._rows.values(), *self._pool.values()))

    def open(self, rows: NDArray[np.int32], rooms: NDArray[np.int32]) -> None:
        """Give each row an empty buffer with so much room."""
        known = len(self._rows["starts"].values)
        new = max(0, int(rows.max(initial=-1)) + 1 - known)
        for column in self._rows.values():
            column.fill(new, 0)
        self._rows["starts"].values[rows] = self._places(rooms)
        self._rows["rooms"].values[rows] = rooms
        self._rows["counts"].values[rows] = 0

    def close(self, rows: NDArray[Any]) -> None:
        """Take the buffers of rows away."""
        starts, rooms = self._rows["starts"].values, self._rows["rooms"].values
        for row in rows.tolist():
            self._free.setdefault(int(rooms[row]), []).append(int(starts[row]))
        rooms[rows] = 0
        self._rows["counts"].values[rows] = 0

    def widen(self, rows: NDArray[Any]) -> None:
        """Give full buffers twice the room."""
        held = self.held
        old = held.starts[rows].copy(), held.rooms[rows].copy()
        rooms = 2 * old[1]
        starts = self._places(rooms)
        held = self.held
        for _row, start, before, room in zip(
            rows.tolist(), starts.tolist(), old[0].tolist(), old[1].tolist()
        ):
            for column in (held.scores, held.messages, held.dominated):
                column[start : start + room] = column[before : before + room]
            self._free.setdefault(room, []).append(before)
        held.starts[rows] = starts
        held.rooms[rows] = rooms

    def _places(self, rooms: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return places in the pool with so much room each; those that are free first."""
        starts = np.full(len(rooms), -1, np.int64)
        for room in np.unique(rooms).tolist():
            free = self._free.get(room, [])
            if free:
                takers = np.flatnonzero(rooms == room)[: len(free)]
                starts[takers] = [free.pop() for _ in takers]
        fresh = starts < 0
        used = len(self._pool["scores"].values)
        needed = rooms[fresh].astype(np.int64)
        starts[fresh] = used + np.cumsum(needed) - needed
        for column in self._pool.values():
            column.fill(int(needed.sum()), 0)
        return starts


@kernel
def enter(held: Held, row: int, message: int, score: float, most: int) -> Any:
    """Put the newest message into a buffer; return its position. There must be room for one more.

    Entries behind it are dominated once more, and go when they are dominated by *most* others.
    """
    scores, messages, dominated = held.scores, held.messages, held.dominated
    start = held.starts[row]
    stop = start + held.counts[row]
    at = start
    while at < stop and scores[at] > score:
        at += 1
    position = at - start
    out = at
    s, m, d = score, np.int64(message), np.int32(0)
    for i in range(at, stop):
        s1, m1, d1 = scores[i], messages[i], np.int32(dominated[i] + 1)
        if d1 < most:
            scores[out], messages[out], dominated[out] = s, m, d
            out += 1
            s, m, d = s1, m1, d1
    scores[out], messages[out], dominated[out] = s, m, d
    held.counts[row] = np.int32(out + 1 - start)
    return position


@kernel
def leave(held: Held, row: int, message: int) -> Any:
    """Take the oldest message of the window out of a buffer; return its position, or -1 where it is not there."""
    messages = held.messages
    start = held.starts[row]
    stop = start + held.counts[row]
    at = start
    while at < stop and messages[at] != message:
        at += 1
    if at == stop:
        return np.int64(-1)
    scores, dominated = held.scores, held.dominated
    for i in range(at, stop - 1):
        scores[i], messages[i], dominated[i] = scores[i + 1], messages[i + 1], dominated[i + 1]
    held.counts[row] -= np.int32(1)
    return at - start


@kernel
def fill(
    held: Held, row: int, scores: NDArray[np.float64], messages: NDArray[np.int64], count: int, most: int
) -> Any:
    """Fill an empty buffer with *count* messages, best first, without those dominated by *most*; return how many."""
    start = held.starts[row]
    out = 0
    for i in range(count):
        over = 0
        for j in range(i):
            over += messages[j] > messages[i]
        if over < most:
            held.scores[start + out] = scores[i]
            held.messages[start + out] = messages[i]
            held.dominated[start + out] = over
            out += 1
    held.counts[row] = np.int32(out)
    return out
