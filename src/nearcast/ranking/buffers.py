"""The result buffer of each subscription: a partial k-skyband of the window.

Section 6.1 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding Window" (2017).
A message dominates another one if it scores at least as much and is newer (Definition 10). A buffer holds, best first,
the messages of the window that score at least the threshold θ of the subscription and are dominated by fewer than k
others (Definition 11). While it holds k messages, the first k are the results (Theorem 5). A θ of :data:`EVERYTHING`
means that no message was left out for its score: then fewer than k are the results too. A θ of 0 is not the same,
because messages of score 0 may have been left out.

The newest message comes last and the oldest leaves first. So an arrival dominates everything that ranks behind it, and
a message that leaves dominates nothing: each entry needs just one counter. The paper keeps a buffer as a linked list;
here it is an array.
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
    "BufferTable",
    "Buffers",
    "enter",
    "fill",
    "leave",
    "oldest_of",
    "place_of",
    "position_of",
    "prefetch_entries",
]


#: The header of a buffer, one for each row: a cache line.
_FIELDS = {
    "starts": np.int64,
    "thresholds": np.float64,
    "rooms": np.int32,
    "counts": np.int32,
    "sizes": np.int32,
    "limits": np.int32,
    "wanted": np.int32,
    "dominators": np.int32,
    "last_call": np.int32,
    "last_event": np.int32,
}
_ROW = np.dtype(
    {"names": list(_FIELDS), "formats": list(_FIELDS.values()), "itemsize": config.CACHE_LINE}, align=True
)
_ENTRY = np.dtype([("scores", np.float64), ("keys", np.int64)])
SHIFT = 16  # bits of a key below the message number
MASK = (1 << SHIFT) - 1
EVERYTHING = -1.0  # a threshold that every score reaches
AHEAD = 8  # how many rows ahead memory is prefetched
LINE = config.CACHE_LINE // _ENTRY.itemsize  # entries in a cache line


class BufferTable(NamedTuple):
    """All buffers, as kernels see them: that of row s begins at starts[s] and has counts[s] of rooms[s] entries.

    The key of an entry is its message number and, in the low bits, the number of messages that dominate it.
    """

    starts: NDArray[np.int64]
    thresholds: NDArray[np.float64]  # θ, the same as in the table of subscriptions
    rooms: NDArray[np.int32]
    counts: NDArray[np.int32]
    sizes: NDArray[np.int32]  # k, also the same
    limits: NDArray[np.int32]  # a buffer with more entries is cut
    wanted: NDArray[np.int32]  # down to this many of the best
    dominators: NDArray[np.int32]  # an entry that this many dominate is dropped
    last_call: NDArray[np.int32]  # the last call that changed the results
    last_event: NDArray[np.int32]  # the last event of that call
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
    def table(self) -> BufferTable:
        """The arrays, for kernels."""
        return BufferTable(*self._rows.columns(), *self._entries.columns())

    @property
    def entries(self) -> int:
        """The number of entries in all buffers."""
        return int(self._rows.values["counts"].sum())

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._rows.nbytes + self._entries.nbytes

    def open(self, rows: NDArray[np.int32], sizes: NDArray[np.int32], policy: Policy) -> None:
        """Give each row an empty buffer, with the room and the limits that a policy sets for its k."""
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
        """Free the buffers of rows."""
        table = self._rows.values
        for start, room in zip(table["starts"][rows].tolist(), table["rooms"][rows].tolist()):
            self._free.setdefault(room, []).append(start)
        table[rows] = np.zeros(1, _ROW)

    def widen(self, rows: NDArray[Any]) -> None:
        """Double the room of buffers."""
        table = self._rows.values
        old = table["starts"][rows].tolist(), table["rooms"][rows].tolist()
        starts = self._places(2 * table["rooms"][rows])
        pool = self._entries.values
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
            "pool": self._entries.values,
            "free": np.array(free, np.int64).reshape(-1, 2),
        }

    def restore(self, arrays: Arrays) -> None:
        """Restore the buffers from these arrays."""
        self._hold(arrays["rows"].view(_ROW), arrays["pool"].view(_ENTRY))
        self._free = {}
        for room, start in arrays["free"].tolist():
            self._free.setdefault(room, []).append(start)

    def _hold(self, rows: NDArray[Any], pool: NDArray[Any]) -> None:
        self._rows = GrowableArray(rows, borrowed=False, spare=config.RANKING_SPARE_ROOM)
        self._entries = GrowableArray(pool, borrowed=False, spare=config.RANKING_SPARE_ROOM)

    def renumber(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Renumber messages: old number *first* + i becomes ``numbers[i]``. The order stays the same."""
        buffers = self.table
        _renumber(buffers.keys, buffers.starts, buffers.counts, len(self._rows.values), first, numbers)

    def _places(self, rooms: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return where rooms of these sizes begin: free ones, then new ones at the end of the pool."""
        starts = np.full(len(rooms), -1, np.int64)
        for room in np.unique(rooms).tolist():
            free = self._free.get(room, [])
            if free:
                takers = np.flatnonzero(rooms == room)[: len(free)]
                starts[takers] = [free.pop() for _ in takers]
        fresh = starts < 0
        needed = rooms[fresh].astype(np.int64)
        starts[fresh] = len(self._entries.values) + np.cumsum(needed) - needed
        self._entries.fill(int(needed.sum()), 0)
        return starts


def _rounded(entries: int) -> int:
    """Return the size of a room for this many entries: whole cache lines, in eight sizes per power of two.

    With so few sizes, a free room serves other values of k too. Twice such a size is again one of them.
    """
    lines = -(-entries // LINE)
    step = 1 << max(0, lines.bit_length() - 4)
    return -(-lines // step) * step * LINE


# These take plain arrays instead of a BufferTable: unpacking it for each of many buffers would cost more than the work.


@kernel
def prefetch_entries(scores: NDArray[np.float64], start: int, count: int) -> None:
    """Prefetch the entries of a buffer."""
    for i in range(start, start + count, LINE):
        prefetch(scores, i)


@kernel
def place_of(scores: NDArray[np.float64], start: int, count: int, score: float) -> Any:
    """Return the position in a buffer of a new message with this score: before older ones of the same score."""
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
    """Insert the newest message at the position that :func:`place_of` gives; return the new number of entries.

    There must be room for one more. It dominates all entries behind it; those that *most* messages dominate now are
    dropped (section 6.2.1).
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
    """Return the position of a message in a buffer, or -1."""
    for at in range(count):
        if keys[start + at] >> SHIFT == message:
            return at
    return -1


@kernel
def oldest_of(keys: NDArray[np.int64], start: int, count: int) -> Any:
    """Return the oldest message in a buffer, or -1 if it is empty."""
    if count == 0:
        return np.int64(-1)
    least = keys[start]
    for i in range(start + 1, start + count):
        least = min(least, keys[i])
    return least >> SHIFT


@kernel
def leave(scores: NDArray[np.float64], keys: NDArray[np.int64], start: int, count: int, at: int) -> None:
    """Remove the entry of a message that is older than all that stay: it dominates none of them."""
    for i in range(start + at, start + count - 1):
        scores[i], keys[i] = scores[i + 1], keys[i + 1]


@kernel
def fill(
    buffers: BufferTable, row: int, scores: NDArray[np.float64], messages: NDArray[np.int64], count: int
) -> None:
    """Fill a buffer with the k-skyband of *count* messages, best first (Algorithm 2, line 6)."""
    start, most = buffers.starts[row], buffers.dominators[row]
    out = start
    for i in range(count):
        over = 0
        for j in range(i):
            over += messages[j] > messages[i]
        if over < most:
            buffers.scores[out], buffers.keys[out] = scores[i], (messages[i] << SHIFT) + over
            out += 1
    buffers.counts[row] = np.int32(out - start)


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
