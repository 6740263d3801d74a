"""The buckets of an MO-Tree in memory: lists for the cells of the directory, and codes for the cells of further layers.

The paper (Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for Spatiotemporal-aware
Pub/Sub Systems", 2021) stacks H layers, and has a bucket for each combination of cells; most of them are empty. Here
there is a *list* for each combination of cells of the two layers in the directory. Each clause, or each stored message,
is in one list, as an *entry*: a 64-bit *code* with the cells of its further layers, its box and the first words of its
sketch in half a cache line, the other words, and its row.

A further layer has equal cells. A message lies in one of them, and a clause in the smallest run of them that contains
its interval: this is the paper's partition with the least widths of Lemma 3, w_i = t_i = i / L and c_i = L - i + 1. One
subtraction tells for eight layers whether the run contains the message's cell (``sketch``). So one comparison takes the
place of a walk down all layers, an empty bucket costs nothing, and memory is read in order.

Lists have room to grow. A full list moves to a room of the next power of two, a list that has become short moves to a
smaller one, and an empty list has no room. Rooms that become free are given to other lists (``kernels/slabs``).
``homes`` tells where each row is, so an entry is removed (the last one takes its place) or rewritten in constant time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.slabs import END, allot, empty_slabs, release, size_class
from nearcast.matching.structures.postings import check_rooms, longer

__all__ = ["Buckets", "Entries", "Pool", "homes_for"]

_SPARE = config.MO_TREE_SPARE
_START = config.POSTING_START
_SHORT = config.POSTING_SHORT
_LARGEST = 30  # a room has at most 2^30 entries


class Pool(NamedTuple):
    """Lists of entries; the arrays of entries have room to grow."""

    heads: NDArray[np.int32]  # [list, 3]: first entry, entries, room
    codes: NDArray[np.uint64]
    details: NDArray[np.uint64]  # [entry, 2 + words]: the box, and the first words of the sketch
    boxes: NDArray[np.float32]  # the same memory as float32: a row begins with the four sides of the box
    more: NDArray[np.uint64]  # [entry, words]: the other words of the sketch
    rows: NDArray[np.int32]  # in a free room, the link to the next free room


class Entries(NamedTuple):
    """New entries, one for each of some rows; their boxes come from elsewhere."""

    targets: NDArray[np.int32]  # the lists that they go to
    codes: NDArray[np.uint64]
    sketches: NDArray[np.uint64]  # [row, words]

    @classmethod
    def room(cls, rows: int, words: int) -> Entries:
        """Return uninitialised entries for this many rows, with this many *words* of sketch."""
        return cls(np.empty(rows, np.int32), np.empty(rows, np.uint64), np.empty((rows, words), np.uint64))


def homes_for(rows: int) -> GrowableArray:
    """Return the homes of this many rows that are in no list yet: int32[row, 2], the list and the place in it."""
    homes = GrowableArray(np.empty((0, 2), np.int32)).reserve(rows)
    homes.fill(rows, -1)
    return homes


class Buckets:
    """A pool that grows; *words* are the numbers of sketch words in ``details`` and in ``more``."""

    def __init__(self, lists: int, words: tuple[int, int]) -> None:
        details = np.empty((0, 2 + words[0]), np.uint64)
        self.pool = Pool(
            np.zeros((lists, 3), np.int32),
            np.empty(0, np.uint64),
            details,
            details.view(np.float32),
            np.empty((0, words[1]), np.uint64),
            np.empty(0, np.int32),
        )
        self._slabs = empty_slabs(_LARGEST)
        self.entries = 0  # in all lists

    def build(
        self, homes: NDArray[np.int32], boxes: NDArray[np.float64], rows: NDArray[np.int64], entries: Entries
    ) -> None:
        """Fill empty lists, each with as much room as it needs."""
        heads = self.pool.heads
        sizes = np.bincount(entries.targets, minlength=len(heads))
        rooms = np.where(sizes > 0, sizes + sizes // _SPARE + 1, 0)
        heads[:, 0], heads[:, 2] = offsets_of(rooms)[:-1], rooms
        self._slabs[END] = rooms.sum()
        self._reach(int(self._slabs[END]))
        self.add(homes, boxes, rows, entries)

    def add(
        self, homes: NDArray[np.int32], boxes: NDArray[np.float64], rows: NDArray[np.int64], entries: Entries
    ) -> None:
        """Append entries for rows; lists and pool grow as needed."""
        self.entries += len(rows)
        done = 0
        while done < len(rows):
            done = _add(self.pool, self._slabs, self._room, homes, boxes, rows, entries, done)
            if done < len(rows):
                size = int(self.pool.heads[entries.targets[done], 1])
                self._reach(int(self._slabs[END]) + 2 * max(size, _START))

    def remove(self, homes: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Remove the entries of rows."""
        _remove(self.pool, self._slabs, self._room, homes, rows)
        self.entries -= len(rows)

    def rewrite(
        self, homes: NDArray[np.int32], boxes: NDArray[np.float64], rows: NDArray[np.int64], entries: Entries
    ) -> None:
        """Rewrite the entries of rows, in place if their list stays the same."""
        movers = _rewrite(self.pool, homes, boxes, rows, entries)
        if len(movers):
            self.remove(homes, rows[movers])
            self.add(homes, boxes, rows[movers], Entries(*(column[movers] for column in entries)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        pool, used = self.pool, self._slabs[END]
        return {
            "heads": pool.heads,
            "slabs": self._slabs,
            "codes": pool.codes[:used],
            "details": pool.details[:used],
            "more": pool.more[:used],
            "rows": pool.rows[:used],
        }

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]]) -> Buckets:
        """Restore on mapped arrays."""
        heads, slabs, codes, details, more, rows = (
            arrays[name] for name in ("heads", "slabs", "codes", "details", "more", "rows")
        )
        buckets = cls(0, (details.shape[1] - 2, more.shape[1]))
        buckets.pool = Pool(heads, codes, details, details.view(np.float32), more, rows)
        buckets._slabs, buckets.entries = slabs, int(heads[:, 1].sum())
        return buckets

    def check(self) -> list[str]:
        """Return what is wrong with the rooms of the lists."""
        starts, sizes, rooms = self.pool.heads.T
        return check_rooms(starts, sizes, rooms, int(self._slabs[END]))

    @property
    def _room(self) -> int:
        """The number of entries that all arrays have room for; long arrays get more than was asked for."""
        _, codes, details, _, more, rows = self.pool
        return min(len(codes), len(details), len(more), len(rows))

    def _reach(self, entries: int) -> None:
        """Make sure that the pool has room for this many entries in all."""
        heads, codes, details, _, more, rows = self.pool
        codes, details, more, rows = (longer(column, entries) for column in (codes, details, more, rows))
        self.pool = Pool(heads, codes, details, details.view(np.float32), more, rows)


@kernel
def _write(
    codes: NDArray[np.uint64],
    details: NDArray[np.uint64],
    sides: NDArray[np.float32],
    more: NDArray[np.uint64],
    entry_rows: NDArray[np.int32],
    at: int,
    boxes: NDArray[np.float64],
    row: int,
    new_codes: NDArray[np.uint64],
    new_sketches: NDArray[np.uint64],
    i: int,
) -> None:
    """Write new entry number *i*, which belongs to *row*, to place *at*."""
    codes[at] = new_codes[i]
    for side in range(4):
        sides[at, side] = np.float32(boxes[row, side])
    for word in range(details.shape[1] - 2):
        details[at, 2 + word] = new_sketches[i, word]
    for word in range(more.shape[1]):
        more[at, word] = new_sketches[i, details.shape[1] - 2 + word]
    entry_rows[at] = row


@kernel
def _resize(pool: Pool, slabs: NDArray[np.int64], end: int, target: int, need: int) -> bool:
    """Move a list to a room for at least *need* entries, or free its room if *need* is 0.

    Returns False if the pool, which has room until *end*, is full.
    """
    heads, codes, details, _, more, rows = pool
    first, size, room = heads[target, 0], heads[target, 1], heads[target, 2]
    at, wider = 0, 0
    if need > 0:
        k = size_class(max(need, _START))
        wider = 1 << k
        if slabs[END] + wider > end:
            return False
        at = allot(slabs, rows, k, 0)
        codes[at : at + size] = codes[first : first + size]
        details[at : at + size] = details[first : first + size]
        more[at : at + size] = more[first : first + size]
        rows[at : at + size] = rows[first : first + size]
    release(slabs, rows, first, room, 0)
    heads[target, 0], heads[target, 2] = at, wider
    return True


@kernel
def _add(
    pool: Pool,
    slabs: NDArray[np.int64],
    end: int,
    homes: NDArray[np.int32],
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    entries: Entries,
    begin: int,
) -> int:
    """Append entries from number *begin* on, until done or the pool is full; return the number of the next one."""
    heads, codes, details, sides, more, entry_rows = pool
    targets, new_codes, new_sketches = entries
    for i in range(begin, rows.size):
        target = targets[i]
        size = heads[target, 1]
        if size == heads[target, 2] and not _resize(pool, slabs, end, target, size + 1):
            return i
        at = heads[target, 0] + size
        _write(codes, details, sides, more, entry_rows, at, boxes, rows[i], new_codes, new_sketches, i)
        homes[rows[i], 0], homes[rows[i], 1] = target, size
        heads[target, 1] = size + 1
    return rows.size


@kernel
def _remove(
    pool: Pool, slabs: NDArray[np.int64], end: int, homes: NDArray[np.int32], rows: NDArray[np.int64]
) -> None:
    """Remove entries: the last one of the list takes the free place. A list that has become short moves."""
    heads, codes, details, _, more, entry_rows = pool
    for row in rows:
        target, position = homes[row, 0], homes[row, 1]
        first, last = heads[target, 0], heads[target, 1] - 1
        if position != last:
            to, source = first + position, first + last
            codes[to] = codes[source]
            details[to] = details[source]
            more[to] = more[source]
            entry_rows[to] = entry_rows[source]
            homes[entry_rows[to], 1] = position
        heads[target, 1] = last
        homes[row, 0] = -1
        if last == 0 or (_SHORT * last <= heads[target, 2] and heads[target, 2] > _START):
            _resize(pool, slabs, end, target, 2 * last)  # if the pool is full, it stays


@kernel
def _rewrite(
    pool: Pool,
    homes: NDArray[np.int32],
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    entries: Entries,
) -> NDArray[np.int64]:
    """Rewrite the entries whose list is still the same; return the numbers of the others.

    All memory is prefetched before any of it is written.
    """
    heads, codes, details, sides, more, entry_rows = pool
    targets, new_codes, new_sketches = entries
    movers, places = np.empty(rows.size, np.int64), np.empty(rows.size, np.int64)
    count = 0
    for i in range(rows.size):
        prefetch(homes, rows[i])
    for i in range(rows.size):
        target = homes[rows[i], 0]
        at = heads[target, 0] + homes[rows[i], 1]
        places[i] = at if target == targets[i] else -1
        prefetch(codes, at)
        prefetch(details, at)
        prefetch(more, at)
        prefetch(entry_rows, at)
    for i in range(rows.size):
        if places[i] >= 0:
            at = places[i]
            _write(codes, details, sides, more, entry_rows, at, boxes, rows[i], new_codes, new_sketches, i)
        else:
            movers[count] = i
            count += 1
    return movers[:count]
