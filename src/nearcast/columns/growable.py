"""An array that grows at its end, in amortised constant time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config

__all__ = ["GrowableArray"]


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
        """Memory, room included."""
        return self._room.nbytes

    def extend(self, more: Any) -> None:
        """Append; the room grows by half when it is full."""
        self._grown(len(more))[:] = more

    def reserve(self, rows: int) -> GrowableArray:
        """Make room for *rows* rows in all, so that growing to them copies nothing; return the array."""
        used = len(self.values)
        room = _aligned((max(rows, used), *self.values.shape[1:]), self.values.dtype)
        room[:used] = self.values
        self._room, self._borrowed = room, False
        self.values = room[:used]
        return self

    def fill(self, count: int, value: Any) -> None:
        """Append *count* times the same value."""
        self._grown(count)[:] = value

    def _grown(self, count: int) -> NDArray[Any]:
        """Append *count* values that are to be set; return them."""
        used, need = len(self.values), len(self.values) + count
        if need > len(self._room) or self._borrowed:
            self.reserve(max(int(need * (1.0 + self._spare)), used + used // 2))
        self.values = self._room[:need]
        return self.values[used:]

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


def _aligned(shape: tuple[int, ...], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return an array that begins where a cache line does: rows of 64 bytes then cost one miss, not two."""
    if kind.hasobject:
        return np.empty(shape, kind)
    size = math.prod(shape) * kind.itemsize
    raw = np.empty(size + config.CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % config.CACHE_LINE
    return raw[start : start + size].view(kind).reshape(shape)
