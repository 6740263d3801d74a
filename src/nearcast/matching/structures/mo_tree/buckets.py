"""The buckets of an MO-Tree in memory: lists by the directory's cells, codes for the cells of all further layers.

The paper stacks H layers into as many buckets as there are combinations of cells, and most of them are empty. Here a
combination of cells of the two layers of the directory is a *list*. Each clause, or each stored message, stands in one
list, as an *entry*: the cells of its further layers in a 64-bit *code*, its details (box and sketch) in half a line of
memory, what does not fit there, its row. In such a layer a message lies in one of equal cells, and a clause in the
smallest run of them that contains its interval: the paper's partition with the least widths of Lemma 3, w_i = t_i =
i / L and c_i = L - i + 1. Whether the run of each layer contains the message's cell is one subtraction for eight layers
(``sketch``). So one comparison stands for a walk down all layers, an empty bucket costs nothing, and what is read lies
in a row.

Lists have room to grow; a full one moves to the end of the pool with more of it. ``homes`` knows where each row stands,
so that it is removed (the last entry takes its place) or rewritten in constant time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch

__all__ = ["Buckets", "Entries", "Pool"]

_SPARE = config.MO_TREE_SPARE


class Pool(NamedTuple):
    """Lists of entries; the arrays of entries are longer than what is used."""

    heads: NDArray[np.int32]  # [list, 3]: first entry, entries, room
    codes: NDArray[np.uint64]
    details: NDArray[np.uint64]  # [entry, 2 + words]: the box, and the first words of the sketch
    boxes: NDArray[np.float32]  # the same memory: a row begins with the four sides of the box
    more: NDArray[np.uint64]  # [entry, words]: the others
    rows: NDArray[np.int32]


class Entries(NamedTuple):
    """What is to stand in the lists, one each for some rows; boxes come from elsewhere."""

    targets: NDArray[np.int32]
    codes: NDArray[np.uint64]
    sketches: NDArray[np.uint64]  # [row, words]

    @classmethod
    def room(cls, rows: int, words: int) -> Entries:
        """Return room for so many rows, with so many *words* of sketch."""
        return cls(np.empty(rows, np.int32), np.empty(rows, np.uint64), np.empty((rows, words), np.uint64))


class Buckets:
    """The pool, and how it grows; *words* of the sketch are in the details, and how many are beside them."""

    def __init__(self, lists: int, words: tuple[int, int]) -> None:
        self._words = words
        self.pool = self._room(np.zeros((lists, 3), np.int32), 0)
        self._used = 0
        self.entries = 0  # how many there are

    def build(
        self, homes: NDArray[np.int32], boxes: NDArray[np.float64], rows: NDArray[np.int64], entries: Entries
    ) -> None:
        """Fill empty lists, each with as much room as it needs."""
        sizes = np.bincount(entries.targets, minlength=len(self.pool.heads))
        rooms = np.where(sizes > 0, sizes + sizes // _SPARE + 1, 0)
        heads = np.zeros((len(sizes), 3), np.int32)
        heads[:, 0], heads[:, 2] = offsets_of(rooms)[:-1], rooms
        self._used, self.entries = int(rooms.sum()), 0
        self.pool = self._room(heads, self._used * 3 // 2)
        self.add(homes, boxes, rows, entries)

    def add(
        self, homes: NDArray[np.int32], boxes: NDArray[np.float64], rows: NDArray[np.int64], entries: Entries
    ) -> None:
        """Append entries for rows; lists and pool grow as needed."""
        self.entries += len(rows)
        done = 0
        while done < len(rows):
            done, self._used = _add(
                self.pool, homes, boxes, rows, entries, done, self._used, config.POSTING_START
            )
            if done < len(rows):
                self._make_room(int(self.pool.heads[entries.targets[done], 1]))

    def remove(self, homes: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Take the entries of rows out."""
        _remove(self.pool, homes, rows)
        self.entries -= len(rows)

    def rewrite(
        self, homes: NDArray[np.int32], boxes: NDArray[np.float64], rows: NDArray[np.int64], entries: Entries
    ) -> None:
        """Change the entries of rows, in place where the list stays."""
        movers = _rewrite(self.pool, homes, boxes, rows, entries)
        if len(movers):
            self.remove(homes, rows[movers])
            self.add(homes, boxes, rows[movers], Entries(*(column[movers] for column in entries)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        pool, used = self.pool, self._used
        return {
            "heads": pool.heads,
            "codes": pool.codes[:used],
            "details": pool.details[:used],
            "more": pool.more[:used],
            "rows": pool.rows[:used],
        }

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]]) -> Buckets:
        """Restore on mapped arrays."""
        heads, codes, details, more, rows = (
            arrays[name] for name in ("heads", "codes", "details", "more", "rows")
        )
        buckets = cls(0, (details.shape[1] - 2, more.shape[1]))
        buckets.pool = Pool(heads, codes, details, details.view(np.float32), more, rows)
        buckets._used, buckets.entries = len(rows), int(heads[:, 1].sum())
        return buckets

    def _make_room(self, size: int) -> None:
        """Make room for a list of *size* entries to grow: compact when that frees enough, else grow by half."""
        room, heads = len(self.pool.rows), self.pool.heads
        sizes = heads[:, 1]
        packed = int((sizes + sizes // _SPARE + 1).sum())
        if room - packed < max(config.COMPACT_WASTE * room, config.POSTING_START + 2 * size):
            room = packed + max(packed // 2, config.POSTING_START + 2 * size)
        wider = self._room(heads, room)
        self._used = _compact(self.pool, wider)
        self.pool = wider

    def _room(self, heads: NDArray[np.int32], entries: int) -> Pool:
        details = np.empty((entries, 2 + self._words[0]), np.uint64)
        return Pool(
            heads,
            np.empty(entries, np.uint64),
            details,
            details.view(np.float32),
            np.empty((entries, self._words[1]), np.uint64),
            np.empty(entries, np.int32),
        )


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
    """Write entry number *i* of the new ones, for a row, to place *at*."""
    codes[at] = new_codes[i]
    for side in range(4):
        sides[at, side] = np.float32(boxes[row, side])
    for word in range(details.shape[1] - 2):
        details[at, 2 + word] = new_sketches[i, word]
    for word in range(more.shape[1]):
        more[at, word] = new_sketches[i, details.shape[1] - 2 + word]
    entry_rows[at] = row


@kernel
def _copy(pool: Pool, first: int, into: Pool, at: int, count: int) -> None:
    into.codes[at : at + count] = pool.codes[first : first + count]
    into.details[at : at + count] = pool.details[first : first + count]
    into.more[at : at + count] = pool.more[first : first + count]
    into.rows[at : at + count] = pool.rows[first : first + count]


@kernel
def _add(
    pool: Pool,
    homes: NDArray[np.int32],
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    entries: Entries,
    begin: int,
    used: int,
    start_room: int,
) -> Any:
    """Append entries from number *begin* on; return (next, used) when done or when the pool is full."""
    heads, codes, details, sides, more, entry_rows = pool
    targets, new_codes, new_sketches = entries
    room = entry_rows.size
    for i in range(begin, rows.size):
        target = targets[i]
        size = heads[target, 1]
        if size == heads[target, 2]:
            wider = size + max(start_room, size // 4)
            if used + wider > room:
                return i, used
            _copy(pool, heads[target, 0], pool, used, size)
            heads[target, 0], heads[target, 2] = used, wider
            used += wider
        at = heads[target, 0] + size
        _write(codes, details, sides, more, entry_rows, at, boxes, rows[i], new_codes, new_sketches, i)
        homes[rows[i], 0], homes[rows[i], 1] = target, size
        heads[target, 1] = size + 1
    return rows.size, used


@kernel
def _remove(pool: Pool, homes: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
    """Take entries out; the last one of the list takes the free place."""
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


@kernel
def _rewrite(
    pool: Pool,
    homes: NDArray[np.int32],
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    entries: Entries,
) -> NDArray[np.int64]:
    """Write entries anew where their list is still the same; return the numbers of the others.

    All memory is asked for before any of it is written.
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


@kernel
def _compact(pool: Pool, into: Pool) -> int:
    """Copy the lists one after the other, with a little spare room; return the end."""
    used = 0
    for target in range(pool.heads.shape[0]):
        first, size = pool.heads[target, 0], pool.heads[target, 1]
        room = 0
        if size > 0:
            _copy(pool, first, into, used, size)
            room = size + size // _SPARE + 1
        into.heads[target, 0], into.heads[target, 2] = used, room
        used += room
    return used
