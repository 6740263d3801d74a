"""Searches in chunks and threads, with room for answers that grows: what both directions of matching share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches
from nearcast.columns.ragged import offsets_of
from nearcast.errors import ColumnError, shown
from nearcast.kernels.threads import side_by_side

__all__ = ["Searches", "Step"]

# (start, stop, counts, out, filled) → (next, filled): answer the questions from start to stop, writing the answers to
# out from filled on, and how many to counts; end before a question whose answers find no room.
Step: TypeAlias = Callable[[int, int, NDArray[np.int64], NDArray[np.int32], int], tuple[int, int]]


class Searches:
    """Runs searches; it remembers how much room single questions took."""

    def __init__(self, room: int = 4 * config.MATCH_ROOM) -> None:
        self._room = room  # answers that a search starts with room for, at least

    def run(self, step: Step, n: int, threads: Any) -> Matches:
        """Return the answers to *n* questions, which threads may work on side by side."""
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ColumnError(f"threads must be a whole number from 1, not {shown(threads)}")
        chunk = (
            config.MATCH_CHUNK
            if threads == 1
            else min(config.MATCH_CHUNK, -(-n // (config.MATCH_CHUNKS_A_THREAD * threads)))
        )
        if n <= chunk:
            counts, rows = self._chunk(step, 0, n, _Buffer())
            return Matches(offsets_of(counts), rows.copy())  # what is kept of the buffer is its part in use
        idle: list[_Buffer] = []  # a thread takes one and gives it back: fresh memory costs more than a match

        def work(start: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
            buffer = idle.pop() if idle else _Buffer()
            part = self._chunk(step, start, min(start + chunk, n), buffer)
            idle.append(buffer)
            return part

        parts = side_by_side(work, range(0, n, chunk), threads)
        counts = np.concatenate([part[0] for part in parts])
        ends = np.cumsum([len(part[1]) for part in parts])
        rows = np.empty(ends[-1], np.int32)

        def copy(i: int) -> None:
            rows[ends[i] - len(parts[i][1]) : ends[i]] = parts[i][1]

        side_by_side(copy, range(len(parts)), threads)
        return Matches(offsets_of(counts), rows)

    def _chunk(
        self, step: Step, start: int, stop: int, buffer: _Buffer
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Answer a range of questions; the answers are a part of the buffer, which grows as needed."""
        n = stop - start
        counts = np.zeros(n, np.int64)
        if len(buffer.out) - buffer.filled < max(self._room, config.MATCH_ROOM * n // 4):
            buffer.replace(max(self._room, config.MATCH_ROOM * n), 0)
        first = buffer.filled
        at, filled = step(start, stop, counts, buffer.out, first)
        while at < stop:
            buffer.filled = filled
            buffer.replace(2 * len(buffer.out), filled - first)
            first, filled = 0, buffer.filled
            at, filled = step(at, stop, counts[at - start :], buffer.out, filled)
            if n == 1:
                self._room = len(
                    buffer.out
                )  # single questions come again: the next one starts with this room
        buffer.filled = filled
        return counts, buffer.out[first:filled]


class _Buffer:
    """Room for answers, filled from the front; what was answered from it stays as it is."""

    def __init__(self) -> None:
        self.out = np.empty(0, np.int32)
        self.filled = 0

    def replace(self, room: int, kept: int) -> None:
        """Go on in new memory, with the last *kept* answers at its front."""
        out = np.empty(room, np.int32)
        out[:kept] = self.out[self.filled - kept : self.filled]
        self.out, self.filled = out, kept
