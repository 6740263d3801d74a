"""The results of all subscriptions: their buffers, who holds which message, and what a call has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns.parts import nested, part_of
from nearcast.kernels.threads import side_by_side
from nearcast.ranking.buffers import SHIFT, Buffers
from nearcast.ranking.holders import Holders
from nearcast.ranking.updates import Changes, Log
from nearcast.ranking.upkeep import Pairs, Share, arrive, expire, gain, refill, withdraw

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.ranking.finder import Found
    from nearcast.ranking.policies import Policy
    from nearcast.ranking.recall import Best
    from nearcast.ranking.subscribers import Asked

__all__ = ["Results"]

_LAST_CALL = 2**31 - 1
_NONE = np.empty(0, np.int32)


class Results:
    """What subscriptions have; changed by one call at a time, which begins with :meth:`begin`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.buffers = Buffers()
        self.holders = Holders()
        self._call = 0
        self._logs: list[Log] = []  # of each thread: what the call has changed

    def open(self, rows: NDArray[np.int32], sizes: NDArray[np.int32]) -> None:
        """Give new rows empty buffers for so many results."""
        self.buffers.open(rows, sizes, self.policy)

    def of(self, row: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the messages of a row, best first, and their scores."""
        held = self.buffers.held
        start = held.starts[row]
        stop = start + min(held.counts[row], k)
        return held.keys[start:stop] >> SHIFT, held.scores[start:stop].copy()

    def all_of(
        self, rows: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int32]]:
        """Return all results of rows: the position of the row, the message, its score and its rank from 1."""
        held = self.buffers.held
        counts = np.minimum(held.counts[rows], held.sizes[rows]).astype(np.int64)
        ranks = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        picks = np.repeat(held.starts[rows], counts) + ranks
        positions = np.repeat(np.arange(len(rows)), counts)
        return positions, held.keys[picks] >> SHIFT, held.scores[picks], (ranks + 1).astype(np.int32)

    def begin(self, threads: int) -> None:
        """Begin a call that changes results, by so many threads."""
        if self._call == _LAST_CALL:
            self.buffers.held.seen[:] = self._call = 0
        self._call += 1
        threads = max(1, threads)
        self._logs = self._logs[:threads] + [Log() for _ in range(threads - len(self._logs))]
        for log in self._logs:
            log.clear()

    def take(self, asked: Asked, found: Found, first: int) -> tuple[int, NDArray[np.int32]]:
        """Put messages, of which *first* is the oldest, into buffers.

        Return how many entries there are more, and the rows that have a new threshold.
        """
        numbers = first + np.repeat(np.arange(len(found.offsets) - 1), np.diff(found.offsets))
        pairs = Pairs(numbers, found.rows, found.scores)
        entered = np.zeros(len(found.rows), np.bool_)

        def work(share: Share, begin: int) -> tuple[int, NDArray[np.int32]]:
            raised = np.empty(len(pairs.rows) - begin, np.int32)
            events = self._logs[share.part].events
            stop, count = arrive(self.buffers.held, asked, pairs, share, events, begin, entered, raised)
            return stop, raised[:count]

        raised = self._shared(pairs.rows, work)
        so_far = np.concatenate([[0], np.cumsum(entered)])
        self.holders.arrive(so_far[found.offsets], found.rows[entered])
        return int(so_far[-1]), np.unique(raised)

    def drop(self, begin: int, end: int) -> NDArray[np.int32]:
        """Take the messages *begin* to *end* out of buffers; return the rows that need others (Algorithm 2)."""
        messages, rows = self.holders.taken(begin, end)
        pairs = Pairs(messages, rows, np.empty(0))

        def work(share: Share, begin: int) -> tuple[int, NDArray[np.int32]]:
            short = np.empty(len(rows) - begin, np.int32)
            stop, count = expire(self.buffers.held, pairs, share, self._logs[share.part].events, begin, short)
            return stop, short[:count]

        return self._shared(rows, work)

    def withdraw(
        self, asked: Asked, messages: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Take messages out of buffers before their turn; return the rows that need others, and those with a new θ."""
        numbers, rows = self.holders.withdrawn(messages)
        pairs = Pairs(numbers, rows, np.empty(0))
        raised: list[NDArray[np.int32]] = []

        def work(share: Share, begin: int) -> tuple[int, NDArray[np.int32]]:
            short, higher = (np.empty(len(rows) - begin, np.int32) for _ in range(2))
            events = self._logs[share.part].events
            stop, needy, count = withdraw(
                self.buffers.held, asked, pairs, share, events, begin, short, higher
            )
            raised.append(higher[:count])
            return stop, short[:needy]

        short = np.unique(self._shared(rows, work))
        return short, np.setdiff1d(np.concatenate(raised), short)

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        parts = nested(buffers=self.buffers.at_rest(), holders=self.holders.at_rest())
        return {"call": np.array([self._call]), **parts}

    def restore(self, arrays: Arrays) -> None:
        """Take the results that these arrays came from."""
        self._call = int(arrays["call"][0])
        self.buffers.restore(part_of(arrays, "buffers"))
        self.holders.restore(part_of(arrays, "holders"))

    def renumber(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Learn the new *numbers* of messages by the old ones, counted from *first*."""
        self.buffers.renumber(first, numbers)
        self.holders.renumber(first, numbers)

    def fill(
        self, asked: Asked, rows: NDArray[np.int32], wanted: NDArray[np.int32], best: Best, *, told: bool
    ) -> None:
        """Fill the buffers of rows with the best messages of the window, of which so many were wanted.

        *told*: what they have now and did not have before is a change.
        """
        while len(narrow := np.flatnonzero(self.buffers.held.rooms[rows] < best.counts)):
            self.buffers.widen(rows[narrow])
        held = self.buffers.held
        before = held.counts[rows]
        refill(held, asked, rows, wanted, self.policy.ratio(), best)
        counts = held.counts[rows].astype(np.int64)
        picks = np.repeat(held.starts[rows] - (np.cumsum(counts) - counts), counts)
        picks += np.arange(len(picks))
        self.holders.find(held.keys[picks] >> SHIFT, np.repeat(rows, counts))

        def work(share: Share, begin: int) -> tuple[int, NDArray[np.int32]]:
            events = self._logs[share.part].events
            return gain(self.buffers.held, rows, before, share, events, begin), _NONE

        if told:
            self._shared(rows, work)

    def changes(self) -> Changes:
        """Return what the call has changed."""
        held = self.buffers.held
        return Changes.joined(side_by_side(lambda log: log.changes(held), self._logs, len(self._logs)))

    def _shared(
        self, rows: NDArray[np.int32], work: Callable[[Share, int], tuple[int, NDArray[np.int32]]]
    ) -> NDArray[np.int32]:
        """Let each thread work through rows; return those that they name.

        A thread stops where there is no room; then it gets some, and goes on.
        """
        parts = len(self._logs)
        named: list[Any] = []
        todo = [(Share(part, parts, self._call), 0) for part in range(parts)]
        while todo:
            done = side_by_side(lambda one: work(*one), todo, parts)
            named += [some for _, some in done]
            todo = [(share, stop) for (share, _), (stop, _) in zip(todo, done) if stop < len(rows)]
            held = self.buffers.held
            for share, stop in todo:
                row = rows[stop]
                if held.counts[row] == held.rooms[row]:
                    self.buffers.widen(np.array([row]))
                self._logs[share.part].make_room(int(held.sizes[row]), held)
        return np.concatenate(named)
