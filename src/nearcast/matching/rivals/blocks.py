"""Blocks of two columns in one pool: each has room to grow in place, and moves to the end when it is full."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.parts import Arrays
from nearcast.kernels import kernel

__all__ = ["Blocks"]

_START, _SIZE, _ROOM = 0, 1, 2


class Blocks:
    """A pool of blocks; ``heads`` has the start, the size and the room of each."""

    def __init__(self, first: NDArray[Any], second: NDArray[Any]) -> None:
        """Begin without blocks, with columns like these two."""
        self.heads = np.zeros((0, 3), np.int64)
        self.first, self.second = first[:0], second[:0]
        self._used = 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        return {"heads": self.heads, "first": self.first[: self._used], "second": self.second[: self._used]}

    @classmethod
    def restored(cls, arrays: Arrays) -> Blocks:
        """Restore on mapped arrays."""
        blocks = cls(arrays["first"], arrays["second"])
        blocks.heads, blocks.first, blocks.second = arrays["heads"], arrays["first"], arrays["second"]
        blocks._used = len(blocks.first)
        return blocks

    @property
    def nbytes(self) -> int:
        """Memory, room included."""
        return self.heads.nbytes + self.first.nbytes + self.second.nbytes

    def open(self, count: int) -> None:
        """Add empty blocks until there are *count*."""
        more = np.zeros((count - len(self.heads), 3), np.int64)
        self.heads = np.concatenate([self.heads, more])

    def clear(self, block: int) -> None:
        """Empty a block and give its room up."""
        self.heads[block] = 0

    def reserve(self, blocks: NDArray[np.int64], more: NDArray[np.int64]) -> None:
        """Make room for this many further entries in each of some blocks; their sizes stay as they are."""
        needs = self.heads[blocks, _SIZE] + more
        full = needs > self.heads[blocks, _ROOM]
        if not full.any():
            return
        rooms = (needs[full] * config.BLOCK_ROOM).astype(np.int64)
        movers, target = blocks[full], (self.first, self.second)
        self.heads[movers, _ROOM] = rooms
        if self._used + int(rooms.sum()) > len(self.first):
            movers, self._used = np.flatnonzero(self.heads[:, _ROOM]), 0
            room = int(self.heads[:, _ROOM].sum() * config.BLOCK_ROOM)
            target = (
                np.empty((room, *self.first.shape[1:]), self.first.dtype),
                np.empty((room, *self.second.shape[1:]), self.second.dtype),
            )
        self._used = _move(self.heads, movers, self.first, self.second, *target, self._used)
        self.first, self.second = target


@kernel
def _move(
    heads: NDArray[np.int64],
    movers: NDArray[np.int64],
    first: NDArray[Any],
    second: NDArray[Any],
    into_first: NDArray[Any],
    into_second: NDArray[Any],
    used: int,
) -> int:
    """Copy blocks one after the other from place *used* on, each with its room; return the end."""
    for block in movers:
        start, size = heads[block, _START], heads[block, _SIZE]
        into_first[used : used + size] = first[start : start + size]
        into_second[used : used + size] = second[start : start + size]
        heads[block, _START] = used
        used += heads[block, _ROOM]
    return used
