"""The results of all subscriptions: their buffers, which messages these watch, and what a call changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nearcast.columns.parts import nested, part_of
from nearcast.kernels.threads import side_by_side
from nearcast.ranking.buffers import SHIFT, Buffers
from nearcast.ranking.updates import Changes, Log
from nearcast.ranking.upkeep import Found, Pairs, Share, arrive, expire, log_gains, refill, withdraw
from nearcast.ranking.watches import NOTHING, Watches

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.ranking.finder import Hits
    from nearcast.ranking.message_index import BestMessages
    from nearcast.ranking.policies import Policy
    from nearcast.ranking.subscribers import SubscriptionTable

__all__ = ["Results"]

_LAST_CALL = 2**31 - 1
_Answer = TypeVar("_Answer")


class Results:
    """The buffers of all subscriptions. One call at a time changes them; it starts with :meth:`begin`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.buffers = Buffers()
        self.watches = Watches()
        self._call = 0
        self._logs = [Log()]  # what the call changed, one for each thread

    def open(self, rows: NDArray[np.int32], sizes: NDArray[np.int32]) -> None:
        """Give new rows empty buffers, for k of *sizes*."""
        self.buffers.open(rows, sizes, self.policy)

    def close(self, rows: NDArray[Any]) -> None:
        """Free the buffers of rows."""
        self.buffers.close(rows)
        self.watches.forget(rows)

    def of(self, row: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the results of a row: messages, best first, and their scores."""
        table = self.buffers.table
        start = table.starts[row]
        stop = start + min(table.counts[row], k)
        return table.keys[start:stop] >> SHIFT, table.scores[start:stop].copy()

    def all_of(
        self, rows: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int32]]:
        """Return the results of many rows: positions in *rows*, messages, scores and ranks from 1."""
        table = self.buffers.table
        counts = np.minimum(table.counts[rows], table.sizes[rows]).astype(np.int64)
        ranks = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        picks = np.repeat(table.starts[rows], counts) + ranks
        positions = np.repeat(np.arange(len(rows)), counts)
        return positions, table.keys[picks] >> SHIFT, table.scores[picks], (ranks + 1).astype(np.int32)

    def begin(self, threads: int) -> None:
        """Begin a call that changes results, with this many threads."""
        if self._call == _LAST_CALL:
            self.buffers.table.last_call[:] = self._call = 0
        self._call += 1
        threads = max(1, threads)
        self._logs = self._logs[:threads] + [Log() for _ in range(threads - len(self._logs))]
        for log in self._logs:
            log.clear()

    def arrive(
        self, subscriptions: SubscriptionTable, found: Hits, first: int
    ) -> tuple[int, NDArray[np.int32]]:
        """Put messages into the buffers of the rows that they affect; *first* is the number of the oldest message.

        Return how many entries were made, and the rows with a new threshold.
        """
        numbers = first + np.repeat(np.arange(len(found.offsets) - 1), np.diff(found.offsets))
        pairs = Pairs(numbers, found.rows, found.scores)

        def work(share: Share, begin: int) -> tuple[int, tuple[int, NDArray[np.int32], NDArray[np.int64]]]:
            room = len(pairs.rows) - begin
            new = Found(np.empty(room, np.int32), np.empty(room, np.int64))
            events = self._logs[share.part].events
            stop, entered, raised, filled = arrive(
                self.buffers.table, subscriptions, pairs, share, events, begin, new
            )
            return stop, (entered, new.raised[:raised], new.filled[:filled])

        entered, raised, filled = zip(*self._shared(pairs.rows, work))
        only = np.concatenate(filled)
        self.watches.watch(pairs.rows[only], numbers[only])
        return sum(entered), np.unique(np.concatenate(raised))

    def expire(self, end: int) -> NDArray[np.int32]:
        """Remove the messages before *end* from buffers; return the rows to re-evaluate (Algorithm 2)."""
        rows = self.watches.pop(end)
        oldest = np.full(len(rows), NOTHING)

        def work(share: Share, begin: int) -> tuple[int, NDArray[np.int32]]:
            short = np.empty(len(rows) - begin, np.int32)
            events = self._logs[share.part].events
            stop, count = expire(self.buffers.table, rows, end, share, events, begin, short, oldest)
            return stop, short[:count]

        short = np.concatenate(self._shared(rows, work))
        self.watches.watch(rows, oldest)
        return short

    def withdraw(
        self, subscriptions: SubscriptionTable, found: Hits, messages: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Remove *messages* from buffers out of turn; *found* are the rows whose thresholds they reach.

        Return the rows to re-evaluate, and those with a new threshold.
        """
        pairs = Pairs(np.repeat(messages, np.diff(found.offsets)), found.rows, found.scores)

        def work(share: Share, begin: int) -> tuple[int, tuple[NDArray[np.int32], NDArray[np.int32]]]:
            short, higher = (np.empty(len(pairs.rows) - begin, np.int32) for _ in range(2))
            events = self._logs[share.part].events
            stop, needy, count = withdraw(
                self.buffers.table, subscriptions, pairs, share, events, begin, short, higher
            )
            return stop, (short[:needy], higher[:count])

        needy, raised = map(np.concatenate, zip(*self._shared(pairs.rows, work)))
        short = np.unique(needy)
        return short, np.setdiff1d(raised, short)

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        parts = nested(buffers=self.buffers.at_rest(), watches=self.watches.at_rest())
        return {"call": np.array([self._call]), **parts}

    def restore(self, arrays: Arrays) -> None:
        """Restore the results from these arrays."""
        self._call = int(arrays["call"][0])
        self.buffers.restore(part_of(arrays, "buffers"))
        self.watches.restore(part_of(arrays, "watches"))

    def renumber(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Renumber messages: old number *first* + i becomes ``numbers[i]``."""
        self.buffers.renumber(first, numbers)
        self.watches.renumber(first, numbers)

    def fill(
        self,
        subscriptions: SubscriptionTable,
        rows: NDArray[np.int32],
        wanted: NDArray[np.int32],
        best: BestMessages,
        *,
        logged: bool,
    ) -> None:
        """Fill the buffers of rows with the best messages of the window (Algorithm 2, lines 4 to 6).

        *wanted* is how many messages the search was asked for. With *logged*, new results are logged as changes.
        """
        while len(narrow := np.flatnonzero(self.buffers.table.rooms[rows] < best.counts)):
            self.buffers.widen(rows[narrow])
        before, ratio = self.buffers.table.counts[rows], self.policy.ratio()
        oldest = np.full(len(rows), NOTHING)

        def work(share: Share, begin: int) -> tuple[int, None]:
            if begin == 0:
                refill(self.buffers.table, subscriptions, rows, wanted, ratio, best, share, oldest)
            if not logged:
                return len(rows), None
            events = self._logs[share.part].events
            return log_gains(self.buffers.table, rows, before, share, events, begin), None

        self._shared(rows, work)
        self.watches.watch(rows, oldest)

    def changes(self) -> Changes:
        """Return what the call changed."""
        table = self.buffers.table
        return Changes.joined(side_by_side(lambda log: log.changes(table), self._logs, len(self._logs)))

    def _shared(
        self, rows: NDArray[np.int32], work: Callable[[Share, int], tuple[int, _Answer]]
    ) -> list[_Answer]:
        """Let each thread work on its share of rows; return what *work* returns besides the row where it stopped.

        *work* stops at a row that it has no room for. It continues there once there is room.
        """
        parts = len(self._logs)
        answers: list[_Answer] = []
        todo = [(Share(part, parts, self._call), 0) for part in range(parts)]
        while todo:
            done = side_by_side(lambda one: work(*one), todo, parts)
            answers += [answer for _, answer in done]
            todo = [(share, stop) for (share, _), (stop, _) in zip(todo, done) if stop < len(rows)]
            table = self.buffers.table
            for share, stop in todo:
                row = rows[stop]
                if table.counts[row] == table.rooms[row]:
                    self.buffers.widen(np.array([row]))
                self._logs[share.part].make_room(int(table.sizes[row]), table)
        return answers
