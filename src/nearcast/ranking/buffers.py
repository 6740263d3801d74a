"""The result buffer of each subscription: a partial k-skyband of the window (section 6).

A buffer holds, best first, the messages of the window that rank at or above the subscription's threshold and are
dominated by fewer than k others (Definitions 10 and 11: a message dominates those that rank behind it and leave the
window before it). Its first k entries are the results (Theorem 5) while it has k, or while the threshold is
:data:`EVERYTHING`, so that no message was left out for its score. A threshold of 0 is one like any other: there may be
messages of score 0 that were left out.

Messages arrive newest last, and the oldest leaves first. So an arrival dominates all that rank behind it, and a message
that leaves dominates nobody: one counter for each entry is all that is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.ranking.policies import Policy

__all__ = [
    "AHEAD",
    "EVERYTHING",
    "SHIFT",
    "Buffers",
    "Held",
    "enter",
    "fill",
    "leave",
    "place_of",
    "position_of",
    "prefetch_entries",
]


#: What is known of the buffer of a row: one cache line.
_FIELDS = {
    "starts": np.int64,
    "thresholds": np.float64,
    "rooms": np.int32,
    "counts": np.int32,
    "sizes": np.int32,
    "limits": np.int32,
    "wanted": np.int32,
    "dominators": np.int32,
    "seen": np.int32,
    "last": np.int32,
}
_ROW = np.dtype(
    {"names": list(_FIELDS), "formats": list(_FIELDS.values()), "itemsize": config.CACHE_LINE}, align=True
)
_ENTRY = np.dtype([("scores", np.float64), ("keys", np.int64)])
SHIFT = 16  # bits of a key below the number of the message
MASK = (1 << SHIFT) - 1
EVERYTHING = -1.0  # a threshold that every score reaches
AHEAD = 8  # rows that are asked for before they are needed
LINE = config.CACHE_LINE // _ENTRY.itemsize


class Held(NamedTuple):
    """All buffers, as kernels see them: row s begins at starts[s], has rooms[s] places and counts[s] entries.

    The key of an entry is the number of the message, and in the low bits how many others dominate it.
    """

    starts: NDArray[np.int64]
    thresholds: NDArray[np.float64]  # θ, as the subscription has it
    rooms: NDArray[np.int32]
    counts: NDArray[np.int32]
    sizes: NDArray[np.int32]  # k, likewise
    limits: NDArray[np.int32]  # with more entries,
    wanted: NDArray[np.int32]  # only so many of the best stay
    dominators: NDArray[np.int32]  # an entry that so many dominate goes
    seen: NDArray[np.int32]  # the last call that changed the results,
    last: NDArray[np.int32]  # and its last event
    scores: NDArray[np.float64]
    keys: NDArray[np.int64]


class Buffers:
    """The buffers of all subscriptions, side by side in one pool.

    Free rooms are kept by their size, which :func:`_rounded` chooses. Powers of two, as in
    :mod:`~nearcast.kernels.slabs`, would make the pool almost half as large again at k = 20.
    """

    def __init__(self) -> None:
        self._hold(np.empty(0, _ROW), np.empty(0, _ENTRY))
        self._free: dict[int, list[int]] = {}  # by size: where free rooms begin

    @property
    def held(self) -> Held:
        """The arrays, for kernels."""
        return Held(*self._rows.columns(), *self._pool.columns())

    @property
    def entries(self) -> int:
        """How many entries all buffers have."""
        return int(self._rows.values["counts"].sum())

    @property
    def nbytes(self) -> int:
        """Memory."""
        return self._rows.nbytes + self._pool.nbytes

    def open(self, rows: NDArray[np.int32], sizes: NDArray[np.int32], policy: Policy) -> None:
        """Give each row an empty buffer, with the room and the rules that a policy has for so many results."""
        self._rows.fill(max(0, int(rows.max(initial=-1)) + 1 - len(self._rows.values)), 0)
        kinds, which = np.unique(sizes, return_inverse=True)
        new = np.zeros(len(kinds), _ROW)
        for i, k in enumerate(kinds.tolist()):
            new["sizes"][i], new["dominators"][i] = k, policy.dominators(k)
            new["limits"][i], new["wanted"][i] = policy.limit(k), policy.wanted(k)
            new["rooms"][i] = _rounded(policy.room(k))
        new = new[which]
        new["starts"] = self._places(new["rooms"])
        self._rows.values[rows] = new

    def close(self, rows: NDArray[Any]) -> None:
        """Take the buffers of rows away."""
        table = self._rows.values
        for start, room in zip(table["starts"][rows].tolist(), table["rooms"][rows].tolist()):
            self._free.setdefault(room, []).append(start)
        table[rows] = np.zeros(1, _ROW)

    def widen(self, rows: NDArray[Any]) -> None:
        """Give full buffers twice the room."""
        table = self._rows.values
        old = table["starts"][rows].tolist(), table["rooms"][rows].tolist()
        starts = self._places(2 * table["rooms"][rows])
        pool = self._pool.values
        for start, before, room in zip(starts.tolist(), *old):
            pool[start : start + room] = pool[before : before + room]
            self._free.setdefault(room, []).append(before)
        table["starts"][rows] = starts
        table["rooms"][rows] *= 2

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        free = [(room, start) for room, starts in self._free.items() for start in starts]
        return {
            "rows": self._rows.values,
            "pool": self._pool.values,
            "free": np.array(free, np.int64).reshape(-1, 2),
        }

    def restore(self, arrays: Arrays) -> None:
        """Take the buffers that these arrays came from."""
        self._hold(arrays["rows"].view(_ROW), arrays["pool"].view(_ENTRY))
        self._free = {}
        for room, start in arrays["free"].tolist():
            self._free.setdefault(room, []).append(start)

    def _hold(self, rows: NDArray[Any], pool: NDArray[Any]) -> None:
        self._rows = GrowableArray(rows, borrowed=False, spare=config.RANKING_SPARE_ROOM)
        self._pool = GrowableArray(pool, borrowed=False, spare=config.RANKING_SPARE_ROOM)

    def renumber(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Learn the new *numbers* of messages by the old ones, counted from *first*; their order is the same."""
        held = self.held
        _renumber(held.keys, held.starts, held.counts, len(self._rows.values), first, numbers)

    def _places(self, rooms: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return places in the pool with so much room each; those that are free first."""
        starts = np.full(len(rooms), -1, np.int64)
        for room in np.unique(rooms).tolist():
            free = self._free.get(room, [])
            if free:
                takers = np.flatnonzero(rooms == room)[: len(free)]
                starts[takers] = [free.pop() for _ in takers]
        fresh = starts < 0
        needed = rooms[fresh].astype(np.int64)
        starts[fresh] = len(self._pool.values) + np.cumsum(needed) - needed
        self._pool.fill(int(needed.sum()), 0)
        return starts


def _rounded(entries: int) -> int:
    """Return the size of a room for so many entries: whole cache lines, of at most eight sizes per power of two.

    So few sizes let a room that is free serve another k. Twice such a size is one of them too.
    """
    lines = -(-entries // LINE)
    step = 1 << max(0, lines.bit_length() - 4)
    return -(-lines // step) * step * LINE


# These take plain arrays, not Held: to unpack it for each of many buffers would cost more than the work.


@kernel
def prefetch_entries(scores: NDArray[np.float64], start: int, count: int) -> None:
    """Ask for the entries of a buffer."""
    for i in range(start, start + count, LINE):
        prefetch(scores, i)


@kernel
def place_of(scores: NDArray[np.float64], start: int, count: int, score: float) -> Any:
    """Return where in a buffer a newcomer with this score belongs: before those of the same score."""
    at = 0
    while at < count and scores[start + at] > score:
        at += 1
    return at


@kernel
def enter(
    scores: NDArray[np.float64],
    keys: NDArray[np.int64],
    start: int,
    count: int,
    at: int,
    message: int,
    score: float,
    most: int,
) -> Any:
    """Put the newest message into a buffer, where :func:`place_of` says; return how many entries there are then.

    There must be room for one more. Entries behind it are dominated once more, and go when *most* dominate them.
    """
    out = start + at
    s, key = score, np.int64(message) << SHIFT
    for i in range(start + at, start + count):
        after, dominated = scores[i], keys[i] + 1
        if (dominated & MASK) < most:
            scores[out], keys[out] = s, key
            out += 1
            s, key = after, dominated
    scores[out], keys[out] = s, key
    return out + 1 - start


@kernel
def position_of(keys: NDArray[np.int64], start: int, count: int, message: int) -> Any:
    """Return where in a buffer a message is; -1 where it is not there."""
    for at in range(count):
        if keys[start + at] >> SHIFT == message:
            return at
    return -1


@kernel
def leave(scores: NDArray[np.float64], keys: NDArray[np.int64], start: int, count: int, at: int) -> None:
    """Take an entry out of a buffer: that of the oldest message of the window, which dominates nobody."""
    for i in range(start + at, start + count - 1):
        scores[i], keys[i] = scores[i + 1], keys[i + 1]


@kernel
def fill(held: Held, row: int, scores: NDArray[np.float64], messages: NDArray[np.int64], count: int) -> None:
    """Fill a buffer anew with *count* messages, best first, without those that too many dominate."""
    start, most = held.starts[row], held.dominators[row]
    out = start
    for i in range(count):
        over = 0
        for j in range(i):
            over += messages[j] > messages[i]
        if over < most:
            held.scores[out], held.keys[out] = scores[i], (messages[i] << SHIFT) + over
            out += 1
    held.counts[row] = np.int32(out - start)


@kernel
def _renumber(
    keys: NDArray[np.int64],
    starts: NDArray[np.int64],
    counts: NDArray[np.int32],
    rows: int,
    first: int,
    numbers: NDArray[np.int64],
) -> None:
    for row in range(rows):
        for i in range(starts[row], starts[row] + counts[row]):
            keys[i] = (numbers[(keys[i] >> SHIFT) - first] << SHIFT) + (keys[i] & MASK)
