"""When kept messages expire, in the order of time: for an engine that tells subscribers what has expired."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from nearcast import config

__all__ = ["Expiries"]


class Expiries:
    """Message rows by the time at which they expire, in buckets of a second.

    A row may be given to another message before its time has come, so each is noted with the number of its message.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = {}
        self._order: list[int] = []  # a heap of the buckets

    def note(self, rows: NDArray[np.int64], numbers: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Note messages: their rows and numbers, and when they expire."""
        keys = ends // config.EXPIRY_BUCKET_US
        for key in np.unique(keys).tolist():
            own = keys == key
            if key not in self._buckets:
                self._buckets[key] = []
                heapq.heappush(self._order, key)
            self._buckets[key].append((rows[own], numbers[own]))

    def due(self, now: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Remove and return the rows and numbers of messages that may have expired by *now*.

        The last bucket may have some that have not: the caller notes them again.
        """
        found: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        while self._order and self._order[0] <= now // config.EXPIRY_BUCKET_US:
            found += self._buckets.pop(heapq.heappop(self._order))
        if not found:
            return _NOTHING, _NOTHING
        return np.concatenate([rows for rows, _ in found]), np.concatenate([numbers for _, numbers in found])


_NOTHING = np.empty(0, np.int64)
