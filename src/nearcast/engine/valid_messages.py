"""The messages that an engine keeps while they are valid: a store of them, under their ids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import NEVER, MessageBatch, SubscriptionTable
from nearcast.columns.growable import GrowableArray
from nearcast.matching import MessageStore
from nearcast.model import Id

__all__ = ["KeptMessages"]


class KeptMessages:
    """A message store with ids and the order of publication; one message for each id.

    The store removes what has expired by itself. What is known about a row of it here is put right when the row is
    given to another message, so it never outgrows the store.
    """

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self._rows: dict[Id, int] = {}  # where each id stands, or stood, if that row is not present any more
        self._ids = GrowableArray(np.empty(0, object), borrowed=False)  # by row
        self._numbers = GrowableArray(np.empty(0, np.int64), borrowed=False)  # by row: the how manieth it was
        self._published = 0

    def publish(self, batch: MessageBatch, ids: list[Id], now: int) -> None:
        """Keep the messages that expire, and later than *now*; forget what was kept under any of the ids.

        Then sweep a part of the store, in proportion to what is published.
        """
        present = self.store.rows.present
        again = self._rows.keys() & ids if self._rows else ()
        gone = [row for key in again if present[row := self._rows[key]]]
        kept = self._to_keep(batch, ids, now)
        rows = None
        if len(kept):
            rows = self.store.insert(batch if len(kept) == batch.size else batch.take(kept))
        if gone:
            self.store.remove(gone)
        for key in again:
            del self._rows[key]
        if rows is not None:
            self._name(rows, [ids[row] for row in kept.tolist()])
        self.store.sweep(now, config.SWEEP_ROWS * batch.size)

    def wanted_by(self, table: SubscriptionTable, now: int) -> tuple[list[int], list[Id]]:
        """Return the pairs of a subscription row and a message id that match now, in the order of publication."""
        if not len(self.store):
            return [], []
        found = self.store.match(table, now)
        order = np.lexsort((self._numbers.values[found.rows], found.messages))
        ids: list[Id] = self._ids.values[found.rows[order]].tolist()
        return found.messages[order].tolist(), ids

    def _to_keep(self, batch: MessageBatch, ids: list[Id], now: int) -> NDArray[np.int64]:
        """Return the rows of *batch* to keep: of several with one id the last, if that one expires."""
        if batch.expires_at is None:
            return np.empty(0, np.int64)
        kept = np.flatnonzero((batch.expires_at > now) & (batch.expires_at < NEVER))
        if not len(kept):
            return kept
        last = dict(zip(ids, range(len(ids))))
        if len(last) < len(ids):
            kept = np.array([row for row in kept.tolist() if last[ids[row]] == row], np.int64)
        return kept

    def _name(self, rows: NDArray[Any], ids: list[Id]) -> None:
        """Write down the ids of the given rows, which begin a new life."""
        new = self.store.rows.size - len(self._ids.values)
        self._ids.fill(new, None)
        self._numbers.fill(new, 0)
        numbers = rows.tolist()
        for before, row in zip(self._ids.values[rows].tolist(), numbers):
            if self._rows.get(before) == row:
                del self._rows[before]
        self._rows.update(zip(ids, numbers))
        self._ids.values[rows] = np.array(ids, object)
        self._numbers.values[rows] = self._published + np.arange(len(rows))
        self._published += len(rows)
