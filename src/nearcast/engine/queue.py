"""A queue in ascending order, from which what no longer counts is let go, a few entries with each new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from nearcast import config

__all__ = ["Queue"]

_Entry = TypeVar("_Entry")


class Queue(Generic[_Entry]):
    """Entries that come out in ascending order, if they still count by then.

    An entry in the middle of a heap cannot be taken out. When most entries no longer count, the others move to another
    heap, and no call has to wait for that: entries leave the old heap at its end, which leaves a heap.

    >>> queue = Queue(lambda entry: entry != 3)
    >>> for entry in (5, 3, 1, 8):
    ...     queue.push(entry, 3)
    >>> list(queue.pop_before(8)), len(queue)
    ([1, 5], 1)
    """

    def __init__(self, counts: Callable[[_Entry], bool]) -> None:
        """Begin without entries; *counts* tells whether one still counts."""
        self._counts = counts
        self._heap: list[Any] = []
        self._next: list[Any] = []  # where the entries that count are moving, if they are

    def __len__(self) -> int:
        """Return the number of entries, with those that no longer count."""
        return len(self._heap) + len(self._next)

    def push(self, entry: _Entry, living: int) -> None:
        """Add an entry; *living* is the number of entries that count."""
        heappush(self._next or self._heap, entry)
        if not self._next and len(self._heap) <= 2 * living + config.QUEUE_MIN_DEAD:
            return
        for _ in range(min(config.QUEUE_MOVES, len(self._heap))):
            other = self._heap.pop()
            if self._counts(other):
                heappush(self._next, other)
        if not self._heap:
            self._heap, self._next = self._next, []

    def pop_before(self, limit: Any) -> Iterator[_Entry]:
        """Remove the entries that are less than *limit*, and yield those that count."""
        while heaps := [heap for heap in (self._heap, self._next) if heap and heap[0] < limit]:
            entry = heappop(min(heaps, key=lambda heap: heap[0]))
            if self._counts(entry):
                yield entry
