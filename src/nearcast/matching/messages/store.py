"""The interface of every store of valid messages: the mirror image of ``Matcher``.

Messages are kept while they are valid; who subscribes later is matched against them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import NEVER, Matches, MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.ragged import row_numbers
from nearcast.columns.rows.messages import MessageRows
from nearcast.errors import ColumnError, UnknownError, shown
from nearcast.geometry import Planar
from nearcast.kernels.verify import Clauses
from nearcast.matching.index import Progress
from nearcast.matching.refine import resolve_stored
from nearcast.matching.searching import Searches

__all__ = ["MessageStore"]

_ALWAYS = -NEVER - 1  # before this time nothing expires


class MessageStore(ABC):
    """An exact, changeable store of messages, asked by subscriptions.

    The answer equals the scan's on any input. :meth:`insert` gives message rows, which stay with their messages and are
    given to others after :meth:`remove`, :meth:`expire` or :meth:`sweep`. A message is valid before the instant
    ``expires_at``. A call applies whole, or raises and changes nothing. Matching without a time changes nothing, so
    threads may do it at the same time; everything else needs the store alone, also matching at a time: it removes the
    expired messages that it meets (MO-Tree paper, Algorithm 1, lines 13 and 14).

    A subclass supplies :meth:`_build`, :meth:`_add`, :meth:`_drop` and :meth:`_search`, all in terms of probe rows of
    :attr:`rows`.
    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]] = ()  # keyword arguments beside subscriptions and progress
    _sample: SubscriptionTable | None = None  # subscriptions to learn from, while the store is first built
    _progress: Progress | None = None

    def __init__(
        self,
        batch: MessageBatch,
        *,
        subscriptions: SubscriptionTable | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Build over *batch*; *subscriptions* is a sample of what will ask, *progress* is told the steps."""
        started = time.perf_counter()
        self.rows, self._searches = MessageRows(batch), Searches()
        self._expired = self._compactions = self._swept = 0  # _swept: where the next sweep begins
        self._sample, self._progress = subscriptions, progress
        self._build()
        self._sample, self._progress = None, None
        self._build_seconds = time.perf_counter() - started

    def __len__(self) -> int:
        """How many messages are present, expired ones that nobody has met yet among them."""
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self):,} message{'s' * (len(self) != 1)}>"

    @property
    def coding(self) -> Coding:
        """What the words and attributes here are coded by: ``like=store`` makes subscriptions and messages for it."""
        rows = self.rows
        return rows.coding

    # --- Questions -------------------------------------------------------------------------------------------------

    def match(self, table: SubscriptionTable, now: int | None = None, threads: int = 1) -> Matches:
        """Return the message rows that each subscription of *table* matches, without duplicates, in no promised order.

        With *now* (microseconds since 1970 UTC) only those that are valid then; expired ones that the search meets are
        removed. ``threads`` as in :meth:`Matcher.match`.
        """
        if not isinstance(table, SubscriptionTable):
            raise ColumnError(
                f"match takes a SubscriptionTable, not {shown(table)}; "
                "make one with SubscriptionTable.from_subscriptions, from_arrow or from_arrays"
            )
        if not table.coding.fits(self.rows.coding):
            raise ColumnError(
                "the subscriptions are coded by another vocabulary than this store; "
                "make the table with like=store, or, for bare codes, both sides from arrays"
            )
        if isinstance(table.space, Planar) != isinstance(self.rows.space, Planar) and (
            table.shapes or self.rows.shapes
        ):
            raise ColumnError(
                f"the subscriptions live in {table.space!r}, the messages in {self.rows.space!r}"
            )
        instant = _ALWAYS if now is None else _checked_time(now)
        met: list[NDArray[np.int32]] = []  # expired probe rows, as far as they were noted

        def step(
            start: int, stop: int, counts: NDArray[np.int64], out: NDArray[np.int32], filled: int
        ) -> tuple[int, int]:
            expired = np.empty(config.STORE_EXPIRED_NOTED + 1, np.int32)
            expired[0] = 0
            done = self._search(table.clauses, start, stop, instant, counts, out, filled, expired)
            if expired[0]:
                met.append(expired[1 : expired[0] + 1])
            return done

        found = self._searches.run(step, len(table.owners), threads)
        answer = resolve_stored(self.rows, table, found)
        if met:
            self._remove_expired(np.unique(self.rows.owners[np.concatenate(met)]))
        return answer

    def stats(self) -> dict[str, Any]:
        """Return plain figures: what is stored, how, and in how many bytes."""
        rows, own = self.rows, self._bytes()
        total = rows.nbytes + own
        return {
            "store": self.name,
            "messages": len(rows),
            "probes": rows.rows - rows.dead,
            "dead_probes": rows.dead,
            "shapes": len(rows.shapes),
            "expired": self._expired,
            "bytes": total,
            "bytes_of_structure": own,
            "bytes_per_message": round(total / max(len(rows), 1), 1),
            "build_seconds": round(self._build_seconds, 3),
            "compactions": self._compactions,
        }

    def check(self) -> list[str]:
        """Look for damage in the structure; return what was found, in words (nothing: an empty list)."""
        return self.rows.check() + self._check()

    # --- Changes ---------------------------------------------------------------------------------------------------

    def insert(self, batch: MessageBatch) -> NDArray[np.int32]:
        """Add the messages of *batch*; return their rows. One without ``expires_at`` stays until it is removed."""
        if not isinstance(batch, MessageBatch):
            raise ColumnError(
                f"insert takes a MessageBatch, not {shown(batch)}; "
                "make one with MessageBatch.from_messages, from_arrow or from_arrays"
            )
        self.rows.check_insert(batch)
        rows, probe_rows = self.rows.append(batch)
        self._add(probe_rows)
        return rows

    def remove(self, rows: Any) -> None:
        """Remove messages by row; a row that holds none, or twice in the call, is an error."""
        picks = row_numbers(rows, self.rows.size, "message")
        gone = picks[~self.rows.present[picks]]
        if len(gone):
            raise UnknownError(f"message row {gone[0]} holds no message in this store")
        if len(np.unique(picks)) != len(picks):
            raise ColumnError("a message row is named twice in one call")
        self._remove(picks)

    def expire(self, now: int) -> NDArray[np.int32]:
        """Remove every message that has expired by *now*; return their rows, ascending."""
        expired = self.rows.present & (self.rows.expires_at <= _checked_time(now))
        return self._remove_expired(np.flatnonzero(expired))

    def sweep(self, now: int, limit: int) -> NDArray[np.int32]:
        """Look at the next *limit* message rows and remove those expired by *now*; return these rows, ascending.

        Each sweep goes on where the last one stopped, round and round: memory then does not depend on somebody
        subscribing, nor the time of a call on how much is stored.
        """
        instant = _checked_time(now)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise ColumnError(f"limit must be a whole number from 0, not {shown(limit)}")
        size = self.rows.size
        looked = min(int(limit), size)
        if not looked:
            return np.empty(0, np.int32)
        seen = (self._swept + np.arange(looked)) % size
        self._swept = (self._swept + looked) % size
        expired = self.rows.present[seen] & (self.rows.expires_at[seen] <= instant)
        return self._remove_expired(np.sort(seen[expired]))

    def _remove_expired(self, rows: NDArray[Any]) -> NDArray[np.int32]:
        self._expired += len(rows)
        self._remove(rows)
        return rows.astype(np.int32)

    def _remove(self, rows: NDArray[Any]) -> None:
        """Remove present messages."""
        if not len(rows):
            return
        self._drop(self.rows.retire(rows))
        if self.rows.wasteful():
            self._rebuild()

    def _rebuild(self) -> None:
        """Compact the rows and build anew; a subclass may end an :meth:`_add` with it when it has outgrown its plan."""
        self.rows.compact()
        self._build()
        self._compactions += 1

    # --- What a subclass supplies ----------------------------------------------------------------------------------

    @abstractmethod
    def _build(self) -> None:
        """Build the structure over all probe rows (all are alive)."""

    @abstractmethod
    def _add(self, probe_rows: NDArray[np.int64]) -> None:
        """Take new probe rows into the structure."""

    @abstractmethod
    def _drop(self, probe_rows: NDArray[np.int64]) -> None:
        """Take probe rows out of the structure; their columns are still there."""

    @abstractmethod
    def _search(
        self,
        clauses: Clauses,
        start: int,
        stop: int,
        now: int,
        counts: NDArray[np.int64],
        out: NDArray[np.int32],
        filled: int,
        expired: NDArray[np.int32],
    ) -> tuple[int, int]:
        """Match the clauses *start* to *stop*: write probe rows to *out* from *filled* on, and how many to *counts*.

        Only probe rows that expire after *now* count. Expired ones that are met may be noted in *expired*, which begins
        with the number of its entries, as far as there is room; the search itself changes nothing. Returns (next
        clause, filled). When *out* is full, the search ends before the clause that did not fit.
        """

    def _bytes(self) -> int:
        """Return the memory of the structure."""
        return 0

    def _check(self) -> list[str]:
        """Return the damage found in the structure."""
        return []

    def _tell(self, step: str, share: float) -> None:
        """Tell who builds the store what is being done, and the share of it that is over (0 to 1)."""
        if self._progress is not None:
            self._progress(step, share)


def _checked_time(now: Any) -> int:
    if isinstance(now, bool) or not isinstance(now, int | np.integer) or not -NEVER <= now < NEVER:
        raise ColumnError(
            f"now must be a time in microseconds since 1970 UTC, as an integer, not {shown(now)}"
        )
    return int(now)
