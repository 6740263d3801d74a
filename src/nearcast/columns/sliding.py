"""Arrays that grow at their end and are forgotten from their beginning; nothing in them is ever moved."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray

__all__ = ["SlidingArray"]

_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux, which Python names only from 3.13 on


class SlidingArray(GrowableArray):
    """An array of what comes and goes in one order, such as the messages of a window.

    A long one has so many addresses that it may go on for years. The memory at its beginning is given back to the
    system by :meth:`forget`, so that no call has to copy the rest.

    >>> column = SlidingArray(np.arange(3))
    >>> column.extend([3]); column.forget(2), column.values[2:]
    (False, array([2, 3]))
    """

    __slots__ = ("_forgotten", "_memory")

    def __init__(self, values: NDArray[Any]) -> None:
        super().__init__(values, borrowed=False)
        self._memory: mmap.mmap | None = None  # where the room is, if it is long
        self._forgotten = 0  # bytes at the beginning that were given back

    def __deepcopy__(self, memo: dict[int, Any]) -> SlidingArray:
        """Return a copy with room of its own."""
        return SlidingArray(self.values.copy())

    @property
    def nbytes(self) -> int:
        """Memory of the values that were not forgotten."""
        return self.values.nbytes - self._forgotten

    def reserve(self, rows: int) -> SlidingArray:
        """Make room for *rows* rows in all, and for very many more if they are long; return the array itself."""
        used, kind = len(self.values), self.values.dtype
        self._memory = _addresses(rows * kind.itemsize)
        self._forgotten = 0
        if self._memory is None:
            super().reserve(rows)
            return self
        room: NDArray[Any] = np.frombuffer(self._memory, kind, config.SLIDING_BYTES // kind.itemsize)
        room[:used] = self.values
        self._room, self.values = room, room[:used]
        return self

    def forget(self, count: int) -> bool:
        """Give back the memory of the first *count* values, which nobody reads any more, some of it with each call.

        Return False if that is impossible, or if the addresses will soon be used up. Then the others must be copied.
        """
        if self._memory is None or 2 * len(self.values) > len(self._room):
            return False
        step = config.SLIDING_STEP
        steps = min(count * self.values.itemsize - self._forgotten, config.SLIDING_MOST) // step
        if steps > 0:
            self._memory.madvise(mmap.MADV_DONTNEED, self._forgotten, steps * step)
            self._forgotten += steps * step
        return True


def _addresses(size: int) -> mmap.mmap | None:
    """Return a long range of addresses for an array of *size* bytes; None if it is short or they are limited here."""
    if not config.PAGES_CAN_GO or not config.SLIDING_FROM_BYTES <= size <= config.SLIDING_BYTES // 4:
        return None
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        return mmap.mmap(-1, config.SLIDING_BYTES, flags=flags)
    except OSError:
        return None
