"""Which buffers to look at when a message leaves the window (Algorithm 2, line 1).

Only messages at the beginning of the window leave it. So a row need not be listed under all messages of its buffer: it
*watches* the oldest one. When that message leaves, the row is returned, and it watches the next one. Messages that were
dropped from a buffer in the meantime cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.sliding import SlidingArray
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays

__all__ = ["NOTHING", "Watches"]

NOTHING = -1  # no message, or no row
_AHEAD = 16  # how many rows ahead memory is prefetched
#: The rows that watch the same message are linked in both directions. One record for each row.
_ROW = np.dtype([("messages", np.int64), ("following", np.int32), ("previous", np.int32)])


class _Lists(NamedTuple):
    """The lists, as kernels see them."""

    heads: NDArray[np.int32]  # by message: the first row of its list
    messages: NDArray[np.int64]  # by row: what it watches
    following: NDArray[np.int32]
    previous: NDArray[np.int32]
    base: int  # the message of the first head


class Watches:
    """For each row, a message that is not newer than any in its buffer; rows with an empty buffer may have none."""

    def __init__(self) -> None:
        self._base = self._first = 0  # the first message in memory, and the first that was not popped
        self._heads = SlidingArray(np.empty(0, np.int32))
        self._rows = _growable(np.empty(0, _ROW))

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._heads.nbytes + self._rows.nbytes

    def watch(self, rows: NDArray[np.int32], messages: NDArray[np.int64]) -> None:
        """Let each row watch a message, and no other one any more; a row with :data:`NOTHING` stays as it is."""
        self._reach(int(rows.max(initial=-1)) + 1, int(messages.max(initial=NOTHING)) + 1)
        _watch(self._lists(), rows, messages)

    def forget(self, rows: NDArray[np.int32]) -> None:
        """Let rows watch nothing."""
        self._reach(int(rows.max(initial=-1)) + 1, 0)
        _forget(self._lists(), rows)

    def pop(self, end: int) -> NDArray[np.int32]:
        """Return the rows that watch a message before *end*; now they watch nothing."""
        self._reach(0, end)
        out = np.empty(1024, np.int32)
        while (count := _collect(self._lists(), self._first, end, out)) > len(out):
            out = np.empty(count, np.int32)
        rows = out[:count]
        _clear(self._lists(), rows)
        self._first = end
        gone = end - self._base
        if not self._heads.forget(gone) and gone > len(self._heads.values) // 2 + 1024:
            self._pack()
        return rows

    def renumber(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Renumber messages: old number *first* + i becomes ``numbers[i]``, or is forgotten if that is -1.

        The new numbers have no gaps. Who watches a message that is forgotten watches the next one.
        """
        there = numbers >= 0
        before: NDArray[np.int64] = np.cumsum(there) - there
        end = first + len(numbers)
        following = np.where(before < before[-1:] + there[-1:], end - there.sum() + before, NOTHING)
        rows = np.flatnonzero(self._rows.values["messages"] >= first).astype(np.int32)
        watched = following[self._rows.values["messages"][rows] - first]
        self._rows.values["messages"] = NOTHING
        self._base = self._first = end - int(there.sum())
        self._heads = SlidingArray(np.empty(0, np.int32))
        self.watch(rows, watched)

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        self._pack()
        return {"heads": self._heads.values, "rows": self._rows.values, "first": np.array([self._first])}

    def restore(self, arrays: Arrays) -> None:
        """Restore the watches from these arrays."""
        self._heads = SlidingArray(arrays["heads"])
        self._rows = _growable(arrays["rows"].view(_ROW))
        self._base = self._first = int(arrays["first"][0])

    def _lists(self) -> _Lists:
        messages, following, previous = self._rows.columns()
        return _Lists(self._heads.values, messages, following, previous, self._base)

    def _reach(self, rows: int, end: int) -> None:
        """Make sure that there are as many rows, and messages up to *end*."""
        self._rows.fill(max(0, rows - len(self._rows.values)), np.array((NOTHING, NOTHING, NOTHING), _ROW))
        self._heads.fill(max(0, end - self._base - len(self._heads.values)), NOTHING)

    def _pack(self) -> None:
        """Copy the lists of messages that were not popped, and leave the rest behind."""
        self._heads = SlidingArray(self._heads.values[self._first - self._base :].copy())
        self._base = self._first


def _growable(values: NDArray[Any]) -> GrowableArray:
    return GrowableArray(values, borrowed=False, spare=config.RANKING_SPARE_ROOM)


@kernel
def _unlink(lists: _Lists, row: int) -> None:
    heads, messages, following, previous, base = lists
    before, after = previous[row], following[row]
    if before >= 0:
        following[before] = after
    else:
        heads[messages[row] - base] = after
    if after >= 0:
        previous[after] = before


@kernel
def _watch(lists: _Lists, rows: NDArray[np.int32], numbers: NDArray[np.int64]) -> None:
    heads, messages, following, previous, base = lists
    for i in range(len(rows)):
        if i + 2 * _AHEAD < len(rows):
            prefetch(messages, rows[i + 2 * _AHEAD])
            prefetch(heads, numbers[i + 2 * _AHEAD] - base)
        if i + _AHEAD < len(rows) and numbers[i + _AHEAD] >= 0:
            prefetch(messages, heads[numbers[i + _AHEAD] - base])
        row, number = rows[i], numbers[i]
        if number < 0:
            continue
        if messages[row] >= 0:
            _unlink(lists, row)
        after = heads[number - base]
        messages[row], following[row], previous[row] = number, after, NOTHING
        heads[number - base] = row
        if after >= 0:
            previous[after] = row


@kernel
def _forget(lists: _Lists, rows: NDArray[np.int32]) -> None:
    for row in rows:
        if lists.messages[row] >= 0:
            _unlink(lists, row)
            lists.messages[row] = NOTHING


@kernel
def _collect(lists: _Lists, begin: int, end: int, out: NDArray[np.int32]) -> Any:
    """Write the rows that watch the messages *begin* to *end*; return how many there are, or more if they do not fit.

    The rows that were written are a queue: each is followed by the next one of its list, so that waits for many lists
    overlap.
    """
    heads, messages, following, base = lists.heads, lists.messages, lists.following, lists.base
    count = 0
    for message in range(begin, end):
        if heads[message - base] >= 0:
            if count == len(out):
                return 2 * len(out) + end - begin
            out[count] = heads[message - base]
            count += 1
    i = 0
    while i < count:
        if i + _AHEAD < count:
            prefetch(messages, out[i + _AHEAD])
        row = following[out[i]]
        if row >= 0:
            if count == len(out):
                return 2 * len(out)
            out[count] = row
            count += 1
        i += 1
    return count


@kernel
def _clear(lists: _Lists, rows: NDArray[np.int32]) -> None:
    """Let rows watch nothing, all of the lists that they are in."""
    for i in range(len(rows)):
        if i + _AHEAD < len(rows):
            prefetch(lists.messages, rows[i + _AHEAD])
        lists.messages[rows[i]] = NOTHING
