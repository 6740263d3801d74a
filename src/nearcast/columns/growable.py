"""An array that grows at its end, in amortised constant time."""

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

    It starts on an array without copying it, and copies a *borrowed* one before the first change. With a *spare* share
    it has room left after many values at once; memory that nothing was written to costs nothing.

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
        """Return a copy whose values are in its own room."""
        return GrowableArray(self.values, spare=self._spare).reserve(len(self._room))

    @property
    def nbytes(self) -> int:
        """Memory of what is in use; room that nothing was written to takes none."""
        return self.values.nbytes

    def extend(self, more: Any) -> None:
        """Append; the room grows by half when it is full."""
        self._grown(len(more))[:] = more

    def reserve(self, rows: int) -> GrowableArray:
        """Make room for *rows* rows in all, so that growing to them copies nothing; return the array."""
        used = len(self.values)
        room = roomy(self.values, max(rows, used))
        room[:used] = self.values
        self._room, self._borrowed = room, False
        self.values = room[:used]
        return self

    def fill(self, count: int, value: Any) -> None:
        """Append *count* times the same value."""
        self._grown(count)[:] = value

    def _grown(self, count: int) -> NDArray[Any]:
        """Append *count* values that are to be set; return them."""
        used = len(self.values)
        self.reach(used + count)
        return self.values[used:]

    def reach(self, size: int) -> NDArray[Any]:
        """Grow to *size* values, if there are fewer; the new ones are to be set. Return all."""
        used = len(self.values)
        if size > len(self._room) or self._borrowed:
            self.reserve(max(int(size * (1.0 + self._spare)), used + used // 2))
        if size > used:
            self.values = self._room[:size]
        return self.values

    def columns(self) -> list[NDArray[Any]]:
        """Return the fields of records, for kernels: with the room behind those in use, two records at least.

        A column of one is contiguous, which is another type to Numba: everything would be compiled a second time.
        """
        if len(self._room) < 2:
            self.reserve(2)
        return [self._room[name] for name in self._room.dtype.names or ()]

    def shorten(self, count: int) -> NDArray[Any]:
        """Take the last *count* values off the end; return them, until the array grows again."""
        used = len(self.values) - count
        taken = self.values[used:]
        self.values = self.values[:used]
        return taken

    def own(self) -> NDArray[Any]:
        """Return the values for changing in place; a borrowed array is copied first."""
        if self._borrowed:
            self._room = self.values = self.values.copy()
            self._borrowed = False
        return self.values


def roomy(like: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return an array of the type of *like*, with room for *rows* rows or more, which are to be set.

    A long array gets far more room than it asked for: addresses cost nothing until something is written to them, and
    growing into them copies nothing, so no call waits for the copy of millions of rows.
    """
    row = math.prod(like.shape[1:]) * like.dtype.itemsize
    if config.ADDRESSES_ARE_FREE and rows * row >= config.RESERVE_FROM_BYTES and not like.dtype.hasobject:
        reserved = max(2 * rows, config.RESERVED_BYTES // row)
        with contextlib.suppress(MemoryError):  # where addresses are limited after all
            return _aligned((reserved, *like.shape[1:]), like.dtype)
    return _aligned((rows, *like.shape[1:]), like.dtype)


def _aligned(shape: tuple[int, ...], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return an array that begins where a cache line does: rows of 64 bytes then cost one miss, not two."""
    if kind.hasobject:
        return np.empty(shape, kind)
    size = math.prod(shape) * kind.itemsize
    raw = np.empty(size + config.CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % config.CACHE_LINE
    return raw[start : start + size].view(kind).reshape(shape)
