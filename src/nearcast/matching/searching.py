"""Runs searches in chunks and threads, with growing room for answers: what both directions of matching share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches
from nearcast.errors import ColumnError, shown
from nearcast.kernels.threads import side_by_side
from nearcast.matching.structure import Answers

__all__ = ["Searches", "Step"]

# The search of a View, whose arrays and questions are already given. (start, stop, answers, filled) → next: answer the
# questions from start to stop, writing from filled on; stop before a question whose answers have no room.
Step: TypeAlias = Callable[[int, int, Answers, int], int]


class Searches:
    """Runs searches, and remembers how much room single questions needed."""

    def __init__(self, room: int) -> None:
        self._room = room  # how many answers a search has room for at first, at least

    def run(self, step: Step, n: int, threads: Any) -> Matches:
        """Return the answers to *n* questions, computed by the given number of threads."""
        if threads.__class__ is not int or threads < 1:
            raise ColumnError(f"threads must be a whole number from 1, not {shown(threads)}")
        chunk = config.MATCH_CHUNK
        if threads > 1:
            chunk = min(chunk, -(-n // (config.MATCH_CHUNKS_A_THREAD * threads)))
        offsets = np.zeros(n + 1, np.int64)
        ends = offsets[1:]
        if n <= chunk:
            return Matches(offsets, self._chunk(step, 0, n, ends, _Buffer()).copy())
        # A thread takes an idle buffer and gives it back: new memory costs more than a match.
        idle: list[_Buffer] = []

        def work(start: int) -> NDArray[np.int32]:
            buffer = idle.pop() if idle else _Buffer()
            part = self._chunk(step, start, min(start + chunk, n), ends, buffer)
            idle.append(buffer)
            return part

        parts = side_by_side(work, range(0, n, chunk), threads)
        begins = np.cumsum([0, *map(len, parts)])
        rows = np.empty(begins[-1], np.int32)

        def copy(i: int) -> None:
            rows[begins[i] : begins[i + 1]] = parts[i]
            ends[i * chunk : (i + 1) * chunk] += begins[i]

        side_by_side(copy, range(len(parts)), threads)
        return Matches(offsets, rows)

    def _chunk(
        self, step: Step, start: int, stop: int, ends: NDArray[np.int64], buffer: _Buffer
    ) -> NDArray[np.int32]:
        """Answer a range of questions; return the answers, a part of the buffer, from whose start *ends* counts."""
        n = stop - start
        if len(buffer.out) - buffer.filled < max(self._room, config.MATCH_ROOM * n // 4):
            buffer.replace(max(self._room, config.MATCH_ROOM * n), 0)
        first = filled = buffer.filled
        at = step(start, stop, Answers(ends, buffer.out), first)
        while at < stop:
            filled = int(ends[at - 1]) if at > start else first
            buffer.filled = filled
            buffer.replace(2 * len(buffer.out), filled - first)
            if first:
                ends[start:at] -= first
                first, filled = 0, buffer.filled
            at = step(at, stop, Answers(ends, buffer.out), filled)
            if n == 1:  # single questions keep coming, so the next one starts with this much room
                self._room = len(buffer.out)
        if n:
            buffer.filled = filled = int(ends[stop - 1])
        if first:
            ends[start:stop] -= first
        return buffer.out[first:filled]


class _Buffer:
    """Room for answers, filled from the front; answers that were returned from it stay as they are."""

    __slots__ = ("filled", "out")

    def __init__(self) -> None:
        self.out = _NO_ROOM
        self.filled = 0

    def replace(self, room: int, kept: int) -> None:
        """Continue in new memory, which begins with the last *kept* answers."""
        out = np.empty(room, np.int32)
        out[:kept] = self.out[self.filled - kept : self.filled]
        self.out, self.filled = out, kept


_NO_ROOM = np.empty(0, np.int32)
