"""The engine: one process that subscribers and publishers talk to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config
from nearcast.clock import Clock, SystemClock
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.deliveries import Deliveries
from nearcast.columns.from_arrow import arrow_table
from nearcast.columns.from_objects import ids_of, messages_from_objects, subscriptions_from_objects
from nearcast.columns.ids import IdColumn, Ids, id_array, id_kind
from nearcast.columns.parts import nested, part_of
from nearcast.columns.rows.recode import recoded
from nearcast.engine.census import WordCensus
from nearcast.engine.explain import Explanation, explain
from nearcast.engine.replacement import Replacement
from nearcast.engine.valid_messages import ComingMessages, ValidMessages
from nearcast.errors import ColumnError, ModelError, UnknownError, shown
from nearcast.geometry import WGS84, Space
from nearcast.matching import INDEXES, Index, build_index, build_store
from nearcast.model import Id, Message, Subscription
from nearcast.storage.directory import read, restoring, write

__all__ = ["Engine"]


class Engine:
    """Subscriptions and valid messages in memory; each verb returns the deliveries that it causes.

    A message with an ``expires_at`` is kept until then, and who subscribes meanwhile receives it at once. One without
    is for the moment: it is delivered to who is subscribed, and not kept. One whose ``published_at`` lies ahead is held
    back until then: the first call after that instant delivers it, before anything else that it does.

    Every verb takes one object, several, or a table (Arrow, pandas, GeoPandas, Polars; columns as in
    :mod:`nearcast.columns.from_arrow`). A call applies whole, or raises and changes nothing. Not safe for changes from
    several threads at once.

    >>> from nearcast import Box, Message, Point, Subscription
    >>> engine = Engine()
    >>> engine.subscribe(Subscription("ben", "storm OR flood", Box(-75, 40, -73, 42)))
    <Deliveries: 0>
    >>> [told.subscription_id for told in engine.publish(Message(1, "Flood warning", Point(lon=-74, lat=41)))]
    ['ben']

    Parameters
    ----------
    index, store
        What subscriptions and messages are kept in: names of :data:`nearcast.matching.INDEXES` and
        :data:`nearcast.matching.STORES`.
    space
        The space of all regions and places.
    clock
        Tells when messages begin and expire; the machine's by default.
    subscription_ids, message_ids
        ``str`` or ``int``; the first ids decide where nothing is given. Others are refused from then on.
    withdrawals
        Whether subscribers are told (``-``, reason ``replace``) that a valid message was replaced by one that they do
        not want.
    """

    def __init__(
        self,
        index: str = config.DEFAULT_INDEX,
        *,
        store: str = config.DEFAULT_STORE,
        space: Space = WGS84,
        clock: Clock | None = None,
        subscription_ids: type[str] | type[int] | None = None,
        message_ids: type[str] | type[int] | None = None,
        withdrawals: bool = False,
    ) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._withdrawals = withdrawals
        self._index = build_index(index, SubscriptionTable.empty(Coding.new(space)))
        self._ids = Ids("subscription", id_kind(subscription_ids, "subscription_ids"))
        messages = Ids("message", id_kind(message_ids, "message_ids"))
        self._valid = ValidMessages(build_store(store, messages_from_objects([], like=self)), messages)
        self._coming = ComingMessages()
        self._published = self._expired = self._delivered = 0
        self._compact_at = config.ENGINE_COMPACT_WORDS
        self._census: WordCensus | None = None  # under way

    def __len__(self) -> int:
        """How many subscriptions there are."""
        return len(self._ids)

    def __contains__(self, id: object) -> bool:
        return self._ids.row(id) >= 0

    def __iter__(self) -> Iterator[Id]:
        """Iterate over the ids of the subscriptions."""
        return iter(self._ids)

    def __getitem__(self, id: Id) -> Subscription:
        """Return a subscription; its expression is the normal form of what was subscribed."""
        found = self._index.store.subscription(self._row(id)).to_subscriptions()[0]
        return Subscription(id, found.expression, found.region)

    @property
    def coding(self) -> Coding:
        """What words and attributes are coded by here: ``like=engine`` makes a :class:`MessageBatch` for it."""
        return self._index.coding

    def __repr__(self) -> str:
        return f"<Engine: {len(self):,} subscription{'s' * (len(self) != 1)}, index {self._index.name!r}>"

    # --- Changes ---------------------------------------------------------------------------------------------------

    def subscribe(
        self, subscriptions: Subscription | Iterable[Subscription] | SubscriptionTable | Any
    ) -> Deliveries:
        """Register subscriptions; an id that is in use, or twice in the call, is an error.

        Returns what the newcomers are told at once: each kept message that is valid now and matches, in the order of
        publication, with the reason ``"subscribe"``.
        """
        ids, build = self._reader(subscriptions)
        self._ids.check_new(ids)
        table = self._index.store.check_insert(build())
        now = self._clock.now()
        due = self._due(now)
        rows = self._index.insert_coded(table)
        self._ids.put(ids, rows)
        if len(self._valid.store):
            newcomers, messages = self._valid.wanted_by(table, now)
            told = Deliveries(self._ids.column(rows[newcomers]), messages, reasons="subscribe")
        else:
            told = self._nothing()
        return self._told([*due, told])

    def unsubscribe(self, ids: Id | Iterable[Id]) -> Deliveries:
        """Remove subscriptions by id; an unknown id, or one twice in the call, is an error."""
        rows = self._ids.rows(ids)
        if len(set(rows.tolist())) < len(rows):
            raise ColumnError("a subscription is named twice in one call; name each once")
        due = self._due(self._clock.now())
        self._index.remove(rows)
        self._ids.drop(rows)
        return self._told([*due, self._nothing()])

    def publish(self, messages: Message | Iterable[Message] | MessageBatch | Any) -> Deliveries:
        """Deliver messages to the subscriptions that match, and keep those that have an ``expires_at``.

        A message takes the place of what is valid under its id: with the same content it is no news, with another one
        it is told to those whom the one before did not reach. One that has expired by now reaches nobody. Each call
        also looks for kept messages that have expired, a few for each message that it publishes.
        """
        now = self._clock.now()
        batch, ids = self._messages(messages, now)
        due = self._due(now)
        told = [self._publish(part, own, now) for part, own in _distinct(batch, ids, self._remembers(batch))]
        self._compact_if_wasteful()
        return self._told([*due, *told])

    def expire(self) -> Deliveries:
        """Let time pass: deliver what was held back until now, and forget every kept message that has expired.

        Nothing else depends on this call: an expired message is never delivered, and every other verb delivers what
        has come due.
        """
        now = self._clock.now()
        due = self._due(now)
        self._valid.store.expire(now)
        return self._told([*due, self._nothing()])

    def compact(self) -> None:
        """Let go of words, strings and attributes that no subscription and no kept message uses any more.

        Codes change: a :class:`MessageBatch` that was made before is refused afterwards. The engine does this by itself
        when most of its words are of no use, which it looks for when they have doubled.
        """
        coding = Coding.new(self.coding.space)
        rows = self._ids.present()
        table = recoded(replace(self._index.table, ids=None).take(rows), coding)
        index = build_index(self._index.name, table)
        ids = Ids("subscription", self._ids.kind)
        ids.put(self._ids.column(rows).plain(), np.arange(len(rows)))
        valid = self._valid.recoded(coding)
        self._coming.recode(coding)
        self._index, self._ids, self._valid, self._census = index, ids, valid, None
        self._compact_at = max(config.ENGINE_COMPACT_WORDS, 2 * self._words())

    def _words(self) -> int:
        """Return how many words and strings there are."""
        vocabulary, attributes = self.coding.words()
        return len(vocabulary) + len(attributes.strings)

    def _compact_if_wasteful(self) -> None:
        """Compact if most words are unused. A census finds out, whenever there are twice as many as the last time."""
        if self._words() < self._compact_at:
            return
        if self._census is None:
            vocabulary, _ = self.coding.words()
            self._census = WordCensus(self._index.store, self._valid.store.rows, len(vocabulary))
        if self._census.step():
            used, self._census = self._census.used, None
            self._compact_at = 2 * self._words()
            if used < self._words() // 2:
                self.compact()

    # --- Questions -------------------------------------------------------------------------------------------------

    def match(self, messages: Message | Iterable[Message] | MessageBatch | Any, threads: int = 1) -> Any:
        """Tell who would receive messages, without publishing them.

        One message gives the list of subscription ids; several give an Arrow table with ``message_id`` and
        ``subscription_id``.
        """
        batch, ids = self._messages(messages)
        found = self._index.match(batch, threads).sorted()
        if isinstance(messages, Message):
            return self._ids.column(found.rows).to_pylist()
        return self._deliveries(found, ids).to_arrow().select(["message_id", "subscription_id"])

    def explain(self, message: Message, id: Id) -> Explanation:
        """Tell why a message matches a subscription, or why not."""
        if not isinstance(message, Message):
            raise ModelError(f"explain takes a Message and the id of a subscription, not {shown(message)}")
        return explain(self[id], message)

    def stats(self) -> dict[str, Any]:
        """Return plain figures: what was published, delivered, kept and forgotten; those of the index and the store."""
        store = self._valid.store.stats()
        return {
            "subscriptions": len(self),
            "published": self._published,
            "expired_before_publication": self._expired,
            "delivered": self._delivered,
            "kept": store["messages"],
            "coming": len(self._coming),
            "words": self._words(),
            "expired": store["expired"],
            "index": self._index.stats(),
            "store": store,
        }

    # --- At rest ---------------------------------------------------------------------------------------------------

    def save(self, directory: str | Path) -> Path:
        """Write a snapshot to a new directory: subscriptions, valid messages, those to come; return its path.

        It appears whole or not at all, and is never overwritten. :meth:`open` goes on where it was.
        """
        coming = self._coming.listed()
        document = {
            "coding": self.coding.document(),
            "index": self._index.name,
            "store": self._valid.store.name,
            "withdrawals": self._withdrawals,
            "ids": [self._ids.kind_name, self._valid.ids.kind_name],
            "coming": [message.id for message in coming],
            "counts": [self._published, self._expired, self._delivered],
        }
        arrays = nested(
            coding=self.coding.arrays(),
            index=self._index.arrays(),
            ids=self._ids.arrays(),
            messages=self._valid.arrays(),
            coming=self._coming.arrays(self.coding),
        )
        return write(directory, _KIND, arrays, document)

    @classmethod
    def open(cls, directory: str | Path, *, clock: Clock | None = None, verify: bool = False) -> Engine:
        """Open a snapshot: its arrays are mapped copy-on-write, and what changes from now on is in memory only.

        Damage is an :class:`~nearcast.errors.IndexFileError`. With *verify* every file is compared with its checksum;
        without it all but large ones of coordinates.
        """
        document, arrays = read(directory, _KIND, verify=verify)
        with restoring(directory):
            coding = Coding.restored(document["coding"], part_of(arrays, "coding"))
            kinds = document["ids"]
            engine = cls(space=coding.space, clock=clock, withdrawals=document["withdrawals"])
            engine._index = Index.restored(INDEXES[document["index"]], coding, part_of(arrays, "index"))
            engine._ids = Ids.restored("subscription", kinds[0], part_of(arrays, "ids"))
            messages = part_of(arrays, "messages")
            engine._valid = ValidMessages.restored(document["store"], coding, kinds[1], messages)
            coming = part_of(arrays, "coming")
            engine._coming = ComingMessages.restored(coding, document["coming"], coming)
            engine._published, engine._expired, engine._delivered = document["counts"]
        return engine

    # --- How -------------------------------------------------------------------------------------------------------

    def _publish(self, batch: MessageBatch, ids: Any, now: int) -> Deliveries:
        """Publish messages of distinct ids; hold back those whose time has not come."""
        if self._coming:
            self._coming.forget(_listed(ids))
        if batch.published_at is not None and batch.published_at.max(initial=now) > now:
            later = batch.published_at > now
            self._coming.put(*_part(batch, _listed(ids), np.flatnonzero(later)))
            batch, ids = _part(batch, ids, np.flatnonzero(~later))
        self._published += batch.size
        replaced = None
        if self._remembers(batch):
            names = _arrow(ids)
            rows = self._valid.rows(names, now)
            if (rows >= 0).any():
                replaced = Replacement(self._index, self._valid.store.rows, batch, rows)
                batch, ids = _part(batch, ids, replaced.news)
                names = _arrow(ids)
            self._valid.publish(batch, names, now)
        news = ids
        if batch.expires_at is not None:
            valid = np.flatnonzero(batch.expires_at > now)
            if len(valid) < batch.size:
                self._expired += batch.size - len(valid)
                if replaced is not None:
                    replaced.only(valid)
                batch, ids = _part(batch, ids, valid)
        found = self._index.match(batch).sorted()
        if replaced is None:
            return self._deliveries(found, ids)
        told, withdrawn = replaced.compared(found)
        parts = [self._deliveries(told, ids)]
        if self._withdrawals:
            parts.append(self._deliveries(withdrawn, news, "-", "replace"))
        return Deliveries.joined(parts)

    def _due(self, now: int) -> list[Deliveries]:
        """Publish what was held back until now."""
        if not self._coming:
            return []
        return [self._publish(batch, [key], now) for batch, key in self._coming.due(now)]

    def _remembers(self, batch: MessageBatch) -> bool:
        """Tell whether the ids of a batch matter: something is kept, or is going to be."""
        times = batch.expires_at is not None or batch.published_at is not None
        return times or len(self._valid.ids) > 0 or len(self._coming) > 0

    def _told(self, parts: list[Deliveries]) -> Deliveries:
        told = Deliveries.joined(parts) if len(parts) > 1 else parts[0]
        self._delivered += len(told)
        return told

    def _nothing(self) -> Deliveries:
        return Deliveries(self._ids.no_ids(), self._valid.ids.no_ids())

    def _deliveries(
        self, found: Matches, message_ids: Any, change: str = "+", reason: str = "publish"
    ) -> Deliveries:
        """Return matches as deliveries; *message_ids* are those of the messages, in order."""
        subscriptions = self._ids.column(found.rows)
        return Deliveries(subscriptions, IdColumn(found.messages, message_ids), change, reason)

    def _row(self, id: Id) -> int:
        row = self._ids.row(id)
        if row < 0:
            raise UnknownError(f"there is no subscription {shown(id)}")
        return row

    def _reader(self, given: Any) -> tuple[Any, Callable[[], SubscriptionTable]]:
        """Return the ids of what is subscribed, and how to read the rest: nothing is coded before the ids are good."""
        if isinstance(given, SubscriptionTable):
            return _ids_of(given), lambda: replace(given, ids=None)
        if isinstance(given, Subscription) or _is_objects(given):
            subs = [given] if isinstance(given, Subscription) else list(given)
            wrong = [sub for sub in subs if not isinstance(sub, Subscription)]
            if wrong:
                raise ModelError(f"{shown(wrong[0])} is not a Subscription")
            return [sub.id for sub in subs], lambda: subscriptions_from_objects(
                subs, like=self, with_ids=False
            )
        table = arrow_table(given)
        ids = id_array(table["id"], len(table), "id") if "id" in table.column_names else None
        named = pa.array(np.arange(len(table))) if ids is None else ids
        return named, lambda: replace(SubscriptionTable.from_arrow(table, like=self), ids=None)

    def _messages(self, given: Any, now: int | None = None) -> tuple[MessageBatch, Any]:
        """Return messages as a batch in the engine's codes, and their ids: a list, or an Arrow array.

        With *now*, all words get codes where a message is going to be kept or comes later: somebody may ask for them
        by then.
        """
        if isinstance(given, MessageBatch):
            if not given.coding.fits(self.coding):
                raise ColumnError(
                    "the messages are coded by another vocabulary than this engine; make the batch with like=engine"
                )
            batch, ids = given, _ids_of(given)
        elif isinstance(given, Message) or _is_objects(given):
            messages = [given] if isinstance(given, Message) else list(given)
            learn = now is not None and any(_lasts(message, now) for message in messages)
            batch = messages_from_objects(messages, like=self, with_ids=False, learn=learn)
            ids = [message.id for message in messages]
        else:
            table = arrow_table(given)
            names = table.column_names
            learn = now is not None and ("expires_at" in names or "published_at" in names)
            batch = MessageBatch.from_arrow(table, like=self, learn=learn)
            ids = _ids_of(batch)
        if now is not None:
            self._valid.ids.settle(ids)
        return batch, ids


_KIND = "engine"  # of a directory


def _lasts(message: Any, now: int) -> bool:
    """Tell whether a message is kept, or comes later than now."""
    published = getattr(message, "published_at", None)
    return getattr(message, "expires_at", None) is not None or (published is not None and published > now)


def _ids_of(columns: SubscriptionTable | MessageBatch) -> pa.Array:
    return pa.array(np.arange(columns.size)) if columns.ids is None else columns.ids


def _arrow(ids: Any) -> pa.Array:
    return ids_of(ids) if isinstance(ids, list) else ids


def _listed(ids: Any) -> list[Any]:
    return ids if isinstance(ids, list) else list(ids.to_pylist())


def _part(batch: MessageBatch, ids: Any, rows: NDArray[np.int64]) -> tuple[MessageBatch, Any]:
    """Return some rows of a batch, and their ids."""
    if len(rows) == batch.size:
        return batch, ids
    own = [ids[row] for row in rows.tolist()] if isinstance(ids, list) else ids.take(pa.array(rows))
    return batch.take(rows), own


def _distinct(batch: MessageBatch, ids: Any, matters: bool) -> Iterator[tuple[MessageBatch, Any]]:
    """Cut a batch where an id comes a second time, if that matters: the later message replaces the earlier one."""
    if not matters or batch.size < 2 or len(_arrow(ids).unique()) == batch.size:
        yield batch, ids
        return
    first, seen = 0, set[Any]()
    for row, key in enumerate([*_listed(ids), None]):
        if key is None or key in seen:
            yield _part(batch, ids, np.arange(first, row))
            first, seen = row, set()
        seen.add(key)


def _is_objects(given: Any) -> bool:
    """Tell whether *given* is an iterable of objects rather than a table."""
    table = (
        hasattr(given, "__arrow_c_stream__") or hasattr(given, "keys") or isinstance(given, pa.RecordBatch)
    )
    return isinstance(given, Iterable) and not table
