"""Arrays that grow at their end, in amortised constant time."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config

__all__ = ["GrowableArray", "roomy"]


class GrowableArray:
    """An array with room to grow; ``values`` is the part in use.

    It starts on an array without copying it, and copies a *borrowed* one before the first change. *spare* is the share
    of extra room to make whenever it grows; memory that was never written to costs nothing.

    >>> column = GrowableArray(np.array([1, 2]))
    >>> column.extend([3]); column.values
    array([1, 2, 3])
    """

    __slots__ = ("_borrowed", "_room", "_spare", "values")

    def __init__(self, values: NDArray[Any], *, borrowed: bool = True, spare: float = 0.0) -> None:
        self.values = values
        self._room = values
        self._borrowed = borrowed
        self._spare = spare

    def __deepcopy__(self, memo: dict[int, Any]) -> GrowableArray:
        """Return a copy with room of its own."""
        return GrowableArray(self.values, spare=self._spare).reserve(len(self._room))

    @property
    def nbytes(self) -> int:
        """Memory of the values in use; room that was never written to takes none."""
        return self.values.nbytes

    def extend(self, more: Any) -> None:
        """Append values; the room grows by half when it is full."""
        self._append(len(more))[:] = more

    def reserve(self, rows: int) -> GrowableArray:
        """Make room for *rows* rows in all, so that growing to that size copies nothing; return the array itself."""
        used = len(self.values)
        room = roomy(self.values, max(rows, used))
        room[:used] = self.values
        self._room, self._borrowed = room, False
        self.values = room[:used]
        return self

    def fill(self, count: int, value: Any) -> None:
        """Append the same value *count* times."""
        self._append(count)[:] = value

    def _append(self, count: int) -> NDArray[Any]:
        """Append *count* values and return them, for the caller to set."""
        used = len(self.values)
        self.reach(used + count)
        return self.values[used:]

    def reach(self, size: int) -> NDArray[Any]:
        """Grow to *size* values if there are fewer; return all values, the new ones for the caller to set."""
        used = len(self.values)
        if size > len(self._room) or self._borrowed:
            self.reserve(max(int(size * (1.0 + self._spare)), used + used // 2))
        if size > used:
            self.values = self._room[:size]
        return self.values

    def columns(self) -> list[NDArray[Any]]:
        """Return each field of the records as an array for kernels, over all the room, at least two records long.

        A field of a single record is contiguous, which is another type to Numba: every kernel would be compiled twice.
        """
        if len(self._room) < 2:
            self.reserve(2)
        return [self._room[name] for name in self._room.dtype.names or ()]

    def shorten(self, count: int) -> NDArray[Any]:
        """Take the last *count* values off the end and return them; they are valid until the array grows again."""
        used = len(self.values) - count
        taken = self.values[used:]
        self.values = self.values[:used]
        return taken

    def own(self) -> NDArray[Any]:
        """Return the values, to be changed in place; a borrowed array is copied first."""
        if self._borrowed:
            self._room = self.values = self.values.copy()
            self._borrowed = False
        return self.values


def roomy(like: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return an array of the type of *like*, with room for at least *rows* rows, for the caller to set.

    A long array gets far more room than was asked for: addresses cost nothing until something is written to them, and
    growing into them copies nothing, so no call waits while millions of rows are copied.
    """
    row = math.prod(like.shape[1:]) * like.dtype.itemsize
    if config.ADDRESSES_ARE_FREE and rows * row >= config.RESERVE_FROM_BYTES and not like.dtype.hasobject:
        reserved = max(2 * rows, config.RESERVED_BYTES // row)
        with contextlib.suppress(MemoryError):  # addresses are limited here after all
            return _allocate((reserved, *like.shape[1:]), like.dtype)
    return _allocate((rows, *like.shape[1:]), like.dtype)


def _allocate(shape: tuple[int, ...], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return an array that begins at a cache line: a row of 64 bytes then costs one miss, not two."""
    if kind.hasobject:
        return np.empty(shape, kind)
    size = math.prod(shape) * kind.itemsize
    raw = np.empty(size + config.CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % config.CACHE_LINE
    return raw[start : start + size].view(kind).reshape(shape)
