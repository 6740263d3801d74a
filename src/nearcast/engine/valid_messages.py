"""The messages that an engine keeps: those that are valid, and those that are held back until later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import NEVER, Matches, MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ids import Ids
from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.columns.rows.messages import MessageRows
from nearcast.columns.rows.recode import recoded_messages
from nearcast.engine.changes import CAME, Changes
from nearcast.engine.expiries import Expiries
from nearcast.engine.queue import Queue
from nearcast.matching import STORES, MessageStore, build_store

__all__ = ["ComingMessages", "ValidMessages"]


class ValidMessages:
    """A message store with ids and the order of publication; it has one message for each id.

    The store removes expired messages by itself. The id and the number of a row are replaced here when the store gives
    the row to another message, so they never outgrow the store.
    """

    def __init__(self, store: MessageStore, ids: Ids, *, expiries: bool = False) -> None:
        """Begin with a store; with *expiries*, :meth:`expired` tells what has expired."""
        self.store = store
        self.ids = ids
        self._expiries = Expiries() if expiries else None
        # By row: the number of the message in the order of publication.
        self._numbers = GrowableArray(np.empty(0, np.int64), borrowed=False, spare=1.0)

    def rows(self, ids: pa.Array, now: int) -> NDArray[np.int32]:
        """Return the row of the valid message with each id; -1 if there is none."""
        rows = self.ids.find(ids)
        stored = self.store.rows
        known = np.flatnonzero(rows >= 0)
        here = rows[known]
        rows[known[~stored.present[here] | (stored.expires_at[here] <= now)]] = -1
        return rows

    def publish(self, batch: MessageBatch, ids: pa.Array, numbers: NDArray[np.int64], now: int) -> None:
        """Forget what was kept with the given ids, which are distinct; keep the messages that expire after *now*.

        *numbers* are those of the messages in the order of publication. Then sweep a part of the store, in proportion
        to the number of messages.
        """
        self._forget(ids)
        if batch.expires_at is not None:
            kept = np.flatnonzero((batch.expires_at > now) & (batch.expires_at < NEVER))
            if len(kept):
                whole = len(kept) == batch.size
                rows = self.store.insert(batch if whole else batch.take(kept))
                self._note(rows, ids if whole else ids.take(pa.array(kept)), numbers[kept])
        self.sweep(now, batch.size)

    def sweep(self, now: int, count: int) -> None:
        """Look for expired messages, in proportion to the number of messages published."""
        if len(self.store):
            self.store.sweep(now, config.SWEEP_ROWS * count)

    def wanted_by(self, table: SubscriptionTable, now: int) -> Changes:
        """Return what subscriptions match at *now*, subscription by subscription and in the order of publication."""
        return Changes.in_order([self.changes(self.store.match(table, now), CAME)])

    def changes(self, found: Matches, change: np.int8) -> Changes:
        """Return what came to the subscriptions of a call, or went, in any order."""
        subscriptions, rows = found.messages, found.rows
        changes = np.full(len(rows), change)
        return Changes(subscriptions, self.ids.column(rows), self._numbers.values[rows], changes)

    def expired(self, now: int) -> NDArray[np.int64]:
        """Return the rows of the messages that have expired by *now*, in the order of publication; none is removed.

        Each is returned once, and must be removed by the caller.
        """
        if self._expiries is None:
            return np.empty(0, np.int64)
        rows = self._expiries.due(now)
        ends = self.store.rows.expires_at[rows]
        later = ends > now
        if later.any():
            self._expiries.note(rows[later], ends[later])
        ended: NDArray[np.int64] = rows[~later]
        return ended[np.argsort(self._numbers.values[ended])]

    def recoded(self, coding: Coding) -> ValidMessages:
        """Return the same messages in another coding, in the order of publication."""
        rows = self.ids.present()
        rows = rows[self.store.rows.present[rows]]
        rows = rows[np.argsort(self._numbers.values[rows])]
        store = build_store(self.store.name, MessageBatch.empty(coding))
        valid = ValidMessages(store, Ids("message", self.ids.kind), expiries=self._expiries is not None)
        if len(rows):
            own = store.insert(recoded_messages(self.store.rows.batch(rows), coding))
            valid._note(own, self.ids.column(rows).plain(), self._numbers.values[rows])
        return valid

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        own = {"numbers": self._numbers.values}
        return own | nested(store=self.store.arrays(), ids=self.ids.arrays())

    @classmethod
    def restored(
        cls, structure: str, coding: Coding, kind: str | None, arrays: Arrays, *, expiries: bool
    ) -> ValidMessages:
        """Return the messages that the arrays came from, on the same arrays."""
        store = MessageStore.restored(STORES[structure], coding, part_of(arrays, "store"))
        valid = cls(store, Ids.restored("message", kind, part_of(arrays, "ids")), expiries=expiries)
        valid._numbers = GrowableArray(arrays["numbers"], borrowed=False, spare=1.0)
        valid._expect(np.flatnonzero(store.rows.present))
        return valid

    def _forget(self, ids: pa.Array) -> None:
        """Forget the messages that are kept with the given ids, valid or not."""
        if not len(self.ids):
            return
        rows = self.ids.find(ids)
        rows = rows[rows >= 0]
        if len(rows):
            present = rows[self.store.rows.present[rows]]
            if len(present):
                if self._expiries is not None:
                    self._expiries.forget(present, self.store.rows.expires_at[present])
                self.store.remove(present)
            self.ids.drop(rows)

    def _note(self, rows: NDArray[Any], ids: pa.Array, numbers: NDArray[np.int64]) -> None:
        """Note the ids and the numbers of new messages in the given rows."""
        self._numbers.fill(max(self.store.rows.size - len(self._numbers.values), 0), 0)
        self.ids.drop(self.ids.named(rows))  # those of messages that the store removed by itself
        self.ids.put(ids, rows)
        self._numbers.values[rows] = numbers
        self._expect(rows)

    def _expect(self, rows: NDArray[Any]) -> None:
        """Note when the messages in the given rows expire."""
        if self._expiries is not None and len(rows):
            self._expiries.note(rows, self.store.rows.expires_at[rows])


class _ComingMessage(NamedTuple):
    """A message that is to be delivered later."""

    published_at: int
    number: int  # in the order of publication, which decides between two for the same instant
    id: Any
    row: int


class ComingMessages:
    """Messages whose ``published_at`` lies ahead, one for each id."""

    def __init__(self, coding: Coding) -> None:
        self.rows = MessageRows(MessageBatch.empty(coding))
        self._counting: dict[Any, _ComingMessage] = {}  # by id: the message that counts
        self._queue = Queue[_ComingMessage](lambda coming: self._counting.get(coming.id) is coming)
        self._published = 0

    def __len__(self) -> int:
        return len(self._counting)

    def put(self, batch: MessageBatch, ids: list[Any]) -> None:
        """Hold messages back; no message here has one of the ids."""
        assert batch.published_at is not None
        rows = self.rows.insert(batch)[0]
        for time, key, row in zip(batch.published_at.tolist(), ids, rows.tolist(), strict=True):
            self._published += 1
            self._counting[key] = coming = _ComingMessage(time, self._published, key, row)
            self._queue.push(coming, len(self._counting))

    def listed(self) -> list[_ComingMessage]:
        """Return the messages in the order in which they are due."""
        return sorted(self._counting.values(), key=lambda coming: coming[:2])

    def recoded(self, coding: Coding) -> ComingMessages:
        """Return the same messages in another coding."""
        listed, messages = self.listed(), ComingMessages(coding)
        if listed:
            batch = recoded_messages(self._batch(listed), coding)
            times = np.array([coming.published_at for coming in listed])
            messages.put(replace(batch, published_at=times), [coming.id for coming in listed])
        return messages

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes besides the ids."""
        listed = self.listed()
        times = np.array([coming.published_at for coming in listed], np.int64)
        return {"published_at": times} | nested(rows=MessageRows(self._batch(listed)).arrays())

    @classmethod
    def restored(cls, coding: Coding, ids: list[Any], arrays: Arrays) -> ComingMessages:
        """Return the messages that the arrays came from, with the given ids."""
        messages, times = cls(coding), arrays["published_at"]
        if ids:
            batch = MessageRows.restored(coding, part_of(arrays, "rows")).batch(np.arange(len(ids)))
            messages.put(replace(batch, published_at=times), ids)
        return messages

    def forget(self, ids: list[Any]) -> None:
        """Forget the messages held back with the given ids, because others were published with these ids."""
        self._remove([self._counting[key] for key in ids if key in self._counting])

    def due(self, now: int) -> list[tuple[MessageBatch, Any]]:
        """Remove and return the messages whose time has come, in the order of their times."""
        found = []
        for coming in self._queue.pop_before((now + 1,)):
            found.append((self._batch([coming]), coming.id))
            self._remove([coming])
        return found

    def _batch(self, messages: list[_ComingMessage]) -> MessageBatch:
        return self.rows.batch(np.array([coming.row for coming in messages], np.int64))

    def _remove(self, messages: list[_ComingMessage]) -> None:
        if messages:
            rows = np.array([coming.row for coming in messages])
            self.rows.release(self.rows.retire(rows))
            self.rows.forget(rows)
            for coming in messages:
                del self._counting[coming.id]
