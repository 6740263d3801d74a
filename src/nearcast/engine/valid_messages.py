"""The messages that an engine keeps while they are valid: a store of them, under their ids; those to come, too."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import NEVER, MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ids import IdColumn, Ids
from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.columns.rows.messages import MessageRows
from nearcast.columns.rows.recode import recoded_messages
from nearcast.matching import STORES, MessageStore, build_store

__all__ = ["ComingMessages", "ValidMessages"]


class ValidMessages:
    """A message store with ids and the order of publication; one message for each id.

    The store removes what has expired by itself. What is known about a row of it here is put right when the row is
    given to another message, so it never outgrows the store.
    """

    def __init__(self, store: MessageStore, ids: Ids) -> None:
        self.store = store
        self.ids = ids
        self._numbers = GrowableArray(np.empty(0, np.int64), borrowed=False, spare=1.0)  # by row: the order
        self._published = 0

    def rows(self, ids: pa.Array, now: int) -> NDArray[np.int32]:
        """Return the row of the valid message under each id, -1 where there is none."""
        rows = self.ids.find(ids)
        stored = self.store.rows
        known = np.flatnonzero(rows >= 0)
        here = rows[known]
        rows[known[~stored.present[here] | (stored.expires_at[here] <= now)]] = -1
        return rows

    def publish(self, batch: MessageBatch, ids: pa.Array, now: int) -> None:
        """Keep the messages that expire, and later than *now*; forget what was kept under any of the ids, all distinct.

        Then sweep a part of the store, in proportion to what is published.
        """
        self._forget(ids)
        if batch.expires_at is not None:
            kept = np.flatnonzero((batch.expires_at > now) & (batch.expires_at < NEVER))
            if len(kept):
                whole = len(kept) == batch.size
                rows = self.store.insert(batch if whole else batch.take(kept))
                self._name(rows, ids if whole else ids.take(pa.array(kept)))
        self.sweep(now, batch.size)

    def sweep(self, now: int, count: int) -> None:
        """Look for expired messages, as is due when so many were published."""
        if len(self.store):
            self.store.sweep(now, config.SWEEP_ROWS * count)

    def wanted_by(self, table: SubscriptionTable, now: int) -> tuple[NDArray[np.int64], IdColumn]:
        """Return the pairs of a subscription row and a message that match now, in the order of publication."""
        found = self.store.match(table, now)
        order = np.lexsort((self._numbers.values[found.rows], found.messages))
        return found.messages[order], self.ids.column(found.rows[order])

    def recoded(self, coding: Coding) -> ValidMessages:
        """Return the same messages in another coding, in the order of their publication."""
        rows = self.ids.present()
        rows = rows[self.store.rows.present[rows]]
        rows = rows[np.argsort(self._numbers.values[rows])]
        store = build_store(self.store.name, MessageBatch.empty(coding))
        valid = ValidMessages(store, Ids("message", self.ids.kind))
        if len(rows):
            own = store.insert(recoded_messages(self.store.rows.batch(rows), coding))
            valid._name(own, self.ids.column(rows).plain())
        return valid

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        own = {"numbers": self._numbers.values, "published": np.array([self._published])}
        return own | nested(store=self.store.arrays(), ids=self.ids.arrays())

    @classmethod
    def restored(cls, structure: str, coding: Coding, kind: str | None, arrays: Arrays) -> ValidMessages:
        """Return the messages that the arrays came from, on the same arrays."""
        store = MessageStore.restored(STORES[structure], coding, part_of(arrays, "store"))
        valid = cls(store, Ids.restored("message", kind, part_of(arrays, "ids")))
        valid._numbers = GrowableArray(arrays["numbers"], borrowed=False, spare=1.0)
        valid._published = int(arrays["published"][0])
        return valid

    def _forget(self, ids: pa.Array) -> None:
        """Forget what is kept under ids, valid or not."""
        if not len(self.ids):
            return
        rows = self.ids.find(ids)
        rows = rows[rows >= 0]
        if len(rows):
            present = rows[self.store.rows.present[rows]]
            if len(present):
                self.store.remove(present)
            self.ids.drop(rows)

    def _name(self, rows: NDArray[Any], ids: pa.Array) -> None:
        """Write down the ids of the given rows, which begin a new life."""
        self._numbers.fill(max(self.store.rows.size - len(self._numbers.values), 0), 0)
        self.ids.drop(self.ids.named(rows))  # of messages that the store removed by itself
        self.ids.put(ids, rows)
        self._numbers.values[rows] = self._published + np.arange(len(rows))
        self._published += len(rows)


class _Coming(NamedTuple):
    """A message that is to be delivered later."""

    published_at: int
    number: int  # of two for the same instant, the one that was published first comes first
    id: Any
    batch: MessageBatch


class ComingMessages:
    """Messages whose ``published_at`` lies ahead, one for each id."""

    def __init__(self) -> None:
        self._heap: list[_Coming] = []
        self._numbers: dict[Any, int] = {}  # of the one that counts under an id
        self._published = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def put(self, batch: MessageBatch, ids: list[Any]) -> None:
        """Hold messages back; one that is held back under the same id is forgotten."""
        assert batch.published_at is not None
        for row, key in enumerate(ids):
            self._published += 1
            self._numbers[key] = self._published
            coming = _Coming(int(batch.published_at[row]), self._published, key, batch.take([row]))
            heapq.heappush(self._heap, coming)

    def listed(self) -> list[_Coming]:
        """Return the messages in the order in which they are due."""
        counting = [coming for coming in self._heap if self._numbers.get(coming.id) == coming.number]
        return sorted(counting, key=lambda coming: coming[:2])

    def recode(self, coding: Coding) -> None:
        """Bring the messages to another coding."""
        self._heap = [
            coming._replace(batch=recoded_messages(coming.batch, coding)) for coming in self.listed()
        ]

    def arrays(self, coding: Coding) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes, beside the ids."""
        listed = self.listed()
        rows = MessageRows(MessageBatch.empty(coding))
        for coming in listed:
            rows.insert(coming.batch)
        times = np.array([coming.published_at for coming in listed], np.int64)
        return {"published_at": times} | nested(rows=rows.arrays())

    @classmethod
    def restored(cls, coding: Coding, ids: list[Any], arrays: Arrays) -> ComingMessages:
        """Return the messages that the arrays came from, under the same ids."""
        messages, times = cls(), arrays["published_at"]
        if ids:
            batch = MessageRows.restored(coding, part_of(arrays, "rows")).batch(np.arange(len(ids)))
            messages.put(replace(batch, published_at=times), ids)
        return messages

    def forget(self, ids: list[Any]) -> None:
        """Forget what is held back under ids: something else was published under them."""
        for key in ids:
            self._numbers.pop(key, None)

    def due(self, now: int) -> list[tuple[MessageBatch, Any]]:
        """Take out the messages whose time has come, in the order of their times."""
        found = []
        while self._heap and self._heap[0].published_at <= now:
            coming = heapq.heappop(self._heap)
            if self._numbers.get(coming.id) == coming.number:
                del self._numbers[coming.id]
                found.append((coming.batch, coming.id))
        return found
