"""Posting lists in which a row may have many postings, in different lists, each removed in constant time.

Each posting has a *ticket*, which says in which list it is, and where there; the tickets of a row are chained. So a row
is taken out of all its lists without reading them: the last posting of each takes the free place. Free tickets are
chained, too, and given out again. The lists themselves are those of ``kernels/postings``, but most are short here, so
they begin with room for one posting.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.postings import Pool, is_short
from nearcast.kernels.slabs import END, allot, release, size_class
from nearcast.matching.structures.postings import PostingLists, longer

__all__ = ["TicketedLists"]

_NONE = -1
_LIST, _POSITION, _NEXT = 0, 1, 2  # columns of the tickets
_FREE, _USED, _FILLED = 0, 1, 2  # entries of the state
_AHEAD = config.UPDATE_AHEAD
_ROW = 64  # tickets of a row that are prefetched at a time


class Tickets(NamedTuple):
    """Where the postings of each row are."""

    firsts: NDArray[np.int32]  # the first ticket of each row, or -1
    # [tickets, 3]: the list, the position there, and the next ticket of the row (or the next free one).
    tickets: NDArray[np.int32]
    of_postings: NDArray[np.int32]  # the ticket of each posting
    # The first free ticket, or -1; how many tickets there are; how many lists have postings.
    state: NDArray[np.int64]


class TicketedLists(PostingLists):
    """Numbered lists of rows; a row is posted to any number of lists, and taken out of all at once."""

    def __init__(self, lists: int = 0) -> None:
        self._firsts = GrowableArray(np.empty(0, np.int32), borrowed=False)
        self._tickets = GrowableArray(np.empty((0, 3), np.int32), borrowed=False)
        self._of_postings = np.empty(0, np.int32)
        self._state = np.array([_NONE, 0, 0])
        super().__init__(lists)

    def lay(self, boxes: NDArray[np.float64], rows: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        """Post rows to lists that are all empty; long ones get some room to spare."""
        sizes = np.bincount(targets)
        self._lay_out(sizes + sizes // config.LISTS_SPARE)
        self.post(boxes, rows, targets)

    def post(self, boxes: NDArray[np.float64], rows: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        """Post more rows, ``rows[i]`` in the list ``targets[i]``; *boxes* are those of all rows."""
        self._more_lists(targets)
        if len(boxes) > len(self._firsts.values):
            self._firsts.fill(len(boxes) - len(self._firsts.values), _NONE)
        self._tickets.reach(int(self._state[_USED]) + len(rows))
        self.postings += len(rows)
        done = 0
        while True:
            done = _post(self.pool, self._slabs, self._room, self._where, boxes, rows, targets, done)
            if done == len(rows):
                return
            self._make_room(int(targets[done]))

    def remove_all(self, rows: NDArray[np.int64]) -> None:
        """Take rows out of all their lists."""
        self.postings -= _remove(self.pool, self._slabs, self._room, self._where, rows)

    def rewrite(self, boxes: NDArray[np.float64], rows: NDArray[np.int64]) -> None:
        """Write the boxes of rows over those of their postings."""
        _rewrite(self.pool, self._where, boxes, rows)

    def members(self, lists: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of some lists, and how many each has."""
        sizes = self.pool.sizes[lists].astype(np.int64)
        rows = np.empty(int(sizes.sum()), np.int64)
        _copy(self.pool, lists, rows)
        return rows, sizes

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        own = {
            "firsts": self._firsts.values,
            "tickets": self._tickets.values[: self._state[_USED]],
            "of_postings": self._of_postings[: self._slabs[END]],
            "state": self._state,
        }
        return super().arrays(prefix) | {prefix + name: array for name, array in own.items()}

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]], prefix: str) -> TicketedLists:
        """Restore on mapped arrays."""
        lists = super().restored(arrays, prefix)
        lists._firsts = GrowableArray(arrays[prefix + "firsts"], borrowed=False)
        lists._tickets = GrowableArray(arrays[prefix + "tickets"], borrowed=False)
        lists._of_postings, lists._state = arrays[prefix + "of_postings"], arrays[prefix + "state"]
        return lists

    def outlived(self, lists: int) -> bool:
        """Tell whether so many of the *lists* are empty that it is time to lay all out anew."""
        return lists > config.LISTS_WASTE * int(self._state[_FILLED]) + config.LISTS_FEW

    def check(self) -> list[str]:
        """Return what is wrong with rooms and tickets."""
        found = super().check()
        if np.count_nonzero(self.pool.sizes) != self._state[_FILLED]:
            found.append("another number of lists has postings than is counted")
        if not found and _sound(self.pool, self._where) != self.postings:
            found.append("a posting is not where its ticket says")
        return found

    def pairs(self) -> NDArray[np.int64]:
        """Return the list and the row of every posting, as two rows of an array, in this order."""
        used = np.flatnonzero(self.pool.sizes)
        rows, sizes = self.members(used)
        found = np.stack([np.repeat(used, sizes), rows])
        return found[:, np.lexsort(found[::-1])]

    @property
    def _where(self) -> Tickets:
        return Tickets(self._firsts.values, self._tickets.values, self._of_postings, self._state)

    def _reach(self, room: int) -> None:
        super()._reach(room)
        self._of_postings = longer(self._of_postings, self._room)


@kernel
def _move(
    pool: Pool, slabs: NDArray[np.int64], end: int, of_postings: NDArray[np.int32], target: int, need: int
) -> bool:
    """Move a list to a room for *need* postings or more; tell whether the pool, which ends at *end*, had one."""
    starts, sizes, rooms, boxes, rows = pool
    k = size_class(need)
    if slabs[END] + (1 << k) > end:
        return False
    start, size, at = starts[target], sizes[target], allot(slabs, rows, k, 0)
    for i in range(size):
        for side in range(4):
            boxes[at + i, side] = boxes[start + i, side]
        rows[at + i] = rows[start + i]
        of_postings[at + i] = of_postings[start + i]
    release(slabs, rows, start, rooms[target], 0)
    starts[target] = at
    rooms[target] = 1 << k
    return True


@kernel
def _post(
    pool: Pool,
    slabs: NDArray[np.int64],
    end: int,
    where: Tickets,
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    targets: NDArray[np.int32],
    begin: int,
) -> int:
    """Append rows to lists from number *begin* on; return the first that found the pool full, or their number."""
    starts, sizes, rooms, posting_boxes, posting_rows = pool
    firsts, tickets, of_postings, state = where
    for i in range(begin, rows.size):
        ahead = targets[min(i + 2 * _AHEAD, rows.size - 1)]
        prefetch(starts, ahead)
        prefetch(sizes, ahead)
        prefetch(rooms, ahead)
        ahead = targets[min(i + _AHEAD, rows.size - 1)]
        prefetch(posting_boxes, starts[ahead] + sizes[ahead])
        prefetch(posting_rows, starts[ahead] + sizes[ahead])
        prefetch(of_postings, starts[ahead] + sizes[ahead])
        row, target = rows[i], targets[i]
        size = sizes[target]
        if size == rooms[target] and not _move(pool, slabs, end, of_postings, target, size + 1):
            return i
        ticket = state[_FREE]
        if ticket == _NONE:
            ticket = state[_USED]
            state[_USED] += 1
        else:
            state[_FREE] = tickets[ticket, _NEXT]
        at = starts[target] + size
        for side in range(4):
            posting_boxes[at, side] = np.float32(boxes[row, side])
        posting_rows[at] = row
        of_postings[at] = ticket
        tickets[ticket, _LIST] = target
        tickets[ticket, _POSITION] = size
        tickets[ticket, _NEXT] = firsts[row]
        firsts[row] = ticket
        sizes[target] = size + 1
        state[_FILLED] += size == 0
    return rows.size


@kernel
def _remove(pool: Pool, slabs: NDArray[np.int64], end: int, where: Tickets, rows: NDArray[np.int64]) -> int:
    """Take rows out of all their lists; return how many postings that were."""
    starts, sizes, rooms, boxes, posting_rows = pool
    firsts, tickets, of_postings, state = where
    own = np.empty(_ROW, np.int32)
    gone = 0
    for row in rows:
        ticket = firsts[row]
        firsts[row] = _NONE
        while ticket != _NONE:
            count = 0
            while ticket != _NONE and count < _ROW:
                own[count] = ticket
                target = tickets[ticket, _LIST]
                prefetch(starts, target)
                prefetch(sizes, target)
                prefetch(rooms, target)
                ticket = tickets[ticket, _NEXT]
                count += 1
            for i in range(count):
                target = tickets[own[i], _LIST]
                last = starts[target] + sizes[target] - 1
                prefetch(of_postings, last)
                prefetch(posting_rows, last)
                prefetch(boxes, last)
                prefetch(boxes, starts[target] + tickets[own[i], _POSITION])
            for i in range(count):
                target, position = tickets[own[i], _LIST], tickets[own[i], _POSITION]
                last = sizes[target] - 1
                if position != last:
                    at, end_of = starts[target] + position, starts[target] + last
                    for side in range(4):
                        boxes[at, side] = boxes[end_of, side]
                    posting_rows[at] = posting_rows[end_of]
                    of_postings[at] = of_postings[end_of]
                    tickets[of_postings[at], _POSITION] = position
                sizes[target] = last
                tickets[own[i], _NEXT] = state[_FREE]
                state[_FREE] = own[i]
                if last == 0:
                    state[_FILLED] -= 1
                    release(slabs, posting_rows, starts[target], rooms[target], 0)
                    rooms[target] = 0
                elif is_short(last, rooms[target]):
                    _move(pool, slabs, end, of_postings, target, 2 * last)
            gone += count
    return gone


@kernel
def _rewrite(pool: Pool, where: Tickets, boxes: NDArray[np.float64], rows: NDArray[np.int64]) -> None:
    starts, posting_boxes = pool.starts, pool.boxes
    firsts, tickets = where.firsts, where.tickets
    for row in rows:
        ticket = firsts[row]
        while ticket != _NONE:
            at = starts[tickets[ticket, _LIST]] + tickets[ticket, _POSITION]
            for side in range(4):
                posting_boxes[at, side] = np.float32(boxes[row, side])
            ticket = tickets[ticket, _NEXT]


@kernel
def _copy(pool: Pool, lists: NDArray[Any], out: NDArray[np.int64]) -> None:
    filled = 0
    for target in lists:
        for at in range(pool.starts[target], pool.starts[target] + pool.sizes[target]):
            out[filled] = pool.rows[at]
            filled += 1


@kernel
def _sound(pool: Pool, where: Tickets) -> int:
    """Return the number of postings that the tickets of rows lead to; -1 if one leads elsewhere."""
    firsts, tickets, of_postings, _ = where
    found = 0
    for row in range(firsts.size):
        ticket = firsts[row]
        while ticket != _NONE:
            target, position = tickets[ticket, _LIST], tickets[ticket, _POSITION]
            at = pool.starts[target] + position
            if position >= pool.sizes[target] or pool.rows[at] != row or of_postings[at] != ticket:
                return -1
            found += 1
            if found > tickets.shape[0]:  # a chain that has no end
                return -1
            ticket = tickets[ticket, _NEXT]
    return found
