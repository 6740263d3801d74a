"""Which buffers hold a message: what has to be looked at when it leaves the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast import config
from nearcast.growable import GrowableArray
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Holders"]


class _Lists(NamedTuple):
    """Lists of rows, linked: each message names the last node of its list, each node the one before it."""

    heads: NDArray[np.int32]
    counts: NDArray[np.int32]  # nodes of each message
    rows: NDArray[np.int32]
    links: NDArray[np.int32]
    free: NDArray[np.int64]  # the first free node, and how many nodes were ever used


class Holders:
    """For each message of the window the rows whose buffers it entered; some may have let it go since."""

    def __init__(self) -> None:
        self._base = 0
        self._heads = GrowableArray(np.empty(0, np.int32), borrowed=False)
        self._counts = GrowableArray(np.empty(0, np.int32), borrowed=False)
        self._rows = np.empty(1024, np.int32)
        self._links = np.empty(1024, np.int32)
        self._free = np.array([-1, 0])
        self._live = 0  # nodes that are in lists

    @property
    def nbytes(self) -> int:
        """Memory."""
        return self._heads.nbytes + self._counts.nbytes + self._rows.nbytes + self._links.nbytes

    def _lists(self) -> _Lists:
        return _Lists(self._heads.values, self._counts.values, self._rows, self._links, self._free)

    def note(self, messages: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Note that the buffers of *rows* hold *messages*, one each."""
        missing = int(messages.max(initial=-1)) + 1 - self._base - len(self._heads.values)
        self._heads.fill(max(0, missing), -1)
        self._counts.fill(max(0, missing), 0)
        if len(rows) >= config.RANKING_BULK:  # the nodes of a list side by side
            order = np.argsort(messages, kind="stable")
            messages, rows = messages[order], rows[order]
        needed = self._live = self._live + len(rows)  # nodes that are free come first
        if needed > len(self._rows):
            more = needed + needed // 2
            self._rows, self._links = (
                np.concatenate([part, np.empty(more - len(part), np.int32)])
                for part in (self._rows, self._links)
            )
        _note(self._lists(), messages, rows, self._base)

    def taken(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the holders of the messages *begin* to *end*, message by message, and forget them."""
        lists = self._lists()
        end = min(end, self._base + len(lists.heads))
        count = int(lists.counts[begin - self._base : max(begin, end) - self._base].sum())
        messages, rows = np.empty(count, np.int64), np.empty(count, np.int32)
        _take(lists, begin, end, self._base, messages, rows)
        self._live -= count
        if end - self._base > len(lists.heads) // 2 + 1024:
            self._heads = GrowableArray(lists.heads[end - self._base :].copy(), borrowed=False)
            self._counts = GrowableArray(lists.counts[end - self._base :].copy(), borrowed=False)
            self._base = end
        return messages, rows


@kernel
def _note(lists: _Lists, messages: NDArray[np.int64], rows: NDArray[np.int32], base: int) -> None:
    heads, counts, nodes, links, free = lists
    for i in range(len(rows)):
        node = free[0]
        if node >= 0:
            free[0] = links[node]
        else:
            node = free[1]
            free[1] += 1
        nodes[node] = rows[i]
        links[node] = heads[messages[i] - base]
        heads[messages[i] - base] = node
        counts[messages[i] - base] += np.int32(1)


@kernel
def _take(
    lists: _Lists, begin: int, end: int, base: int, messages: NDArray[np.int64], rows: NDArray[np.int32]
) -> None:
    heads, counts, nodes, links, free = lists
    count = 0
    for message in range(begin, end):
        node = heads[message - base]
        heads[message - base], counts[message - base] = -1, 0
        while node >= 0:
            messages[count], rows[count] = message, nodes[node]
            count += 1
            following = links[node]
            links[node] = free[0]
            free[0] = node
            node = following
