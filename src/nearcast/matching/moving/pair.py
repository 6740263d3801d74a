"""The pair: an index of the subscriptions and a store of the valid messages, side by side.

A message is matched by the index and kept by the store. When subscriptions move, the store is asked for what lies in
one of their regions, before or after, and not in the other; the index moves them to their new places. Any index and any
store make a pair.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import NEVER, Matches, MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.columns.regions import relocated
from nearcast.matching.index import Index
from nearcast.matching.messages.moves import apart
from nearcast.matching.messages.store import MessageStore

__all__ = ["Changes", "Pair"]


class Changes(NamedTuple):
    """What a change of subscriptions brings them: message rows for each of them, in the order in which they were given.

    In ``came`` and ``went``, group i belongs to the i-th subscription of the call.
    """

    came: Matches
    went: Matches


class Pair:
    """Subscriptions that may move, in an index, and valid messages, in a store."""

    def __init__(self, index: Index, store: MessageStore) -> None:
        self.index, self.store = index, store

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        return nested(index=self.index.arrays(), store=self.store.arrays())

    def restore(self, coding: Coding, arrays: Arrays) -> None:
        """Go on with what the arrays came from; a pair of the same kind wrote them."""
        self.index = Index.restored(type(self.index.structure), coding, part_of(arrays, "index"))
        self.store = MessageStore.restored(type(self.store.structure), coding, part_of(arrays, "store"))

    def publish(self, batch: MessageBatch, now: int | None) -> tuple[Matches, NDArray[np.int32]]:
        """Return the subscription rows that each message matches, and its row among the kept ones; -1 if it is not."""
        found = self.index.match(batch)
        rows = np.full(batch.size, -1, np.int32)
        kept = kept_of(batch, now)
        if len(kept):
            rows[kept] = self.store.insert(batch if len(kept) == batch.size else batch.take(kept))
        return found, rows

    def insert(self, table: SubscriptionTable, now: int | None) -> tuple[NDArray[np.int32], Matches]:
        """Add subscriptions; return their rows, and the message rows that each of them matches."""
        coded = self.index.store.check_insert(table)
        return self.index.insert_coded(coded), self.store.match(coded, now)

    def remove(self, picks: NDArray[np.int64]) -> None:
        """Remove the subscriptions in the given rows, which are present."""
        self.index.remove(picks)

    def move(self, picks: NDArray[np.int64], regions: Any, now: int | None) -> Changes:
        """Give the subscriptions in the given rows, which are present, other regions."""
        placed = self.index.placement(regions, len(picks))
        before = self.index.subscriptions(picks)
        after = relocated(before, placed)
        changes = Changes(*self.store.changes(before, after, now))
        self.index.replace(picks, after)
        return changes

    def update(self, picks: NDArray[np.int64], table: SubscriptionTable, now: int | None) -> Changes:
        """Replace the subscriptions in the given rows, which are present."""
        coded = self.index.store.coded(table)
        old = self.store.match(self.index.subscriptions(picks), now)
        changes = Changes(*apart(old, self.store.match(coded, now)))
        self.index.replace(picks, coded)
        return changes

    def forget(self, rows: NDArray[Any]) -> None:
        """Remove the messages in the given rows."""
        self.store.remove(rows)

    def expire(self, now: int) -> NDArray[np.int32]:
        """Remove the messages that have expired; return their rows."""
        return self.store.expire(now)

    def stats(self) -> dict[str, Any]:
        """Return figures of both."""
        return {"index": self.index.stats(), "store": self.store.stats()}

    def check(self) -> list[str]:
        """Look for damage in both."""
        return self.index.check() + self.store.check()


def kept_of(batch: MessageBatch, now: int | None) -> NDArray[np.int64]:
    """Return the messages of a batch that are kept: those that expire, but have not expired by *now*."""
    if batch.expires_at is None:
        return np.empty(0, np.int64)
    kept = batch.expires_at < NEVER
    return np.flatnonzero(kept if now is None else kept & (batch.expires_at > now))
