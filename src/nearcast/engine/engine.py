"""The engine: one process that subscribers and publishers talk to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import repeat
from numbers import Integral
from typing import Any, overload

import numpy as np
import pyarrow as pa

from nearcast import config
from nearcast.clock import Clock, SystemClock
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.from_arrow import arrow_table
from nearcast.columns.from_objects import messages_from_objects, subscriptions_from_objects
from nearcast.columns.ids import id_array
from nearcast.engine.explain import Explanation, explain
from nearcast.engine.valid_messages import KeptMessages
from nearcast.errors import DuplicateError, ModelError, UnknownError, shown
from nearcast.geometry import WGS84, Space
from nearcast.matching import build_index, build_store
from nearcast.model import Delivery, Id, Message, Subscription

__all__ = ["Deliveries", "Engine", "Explanation"]


class Deliveries:
    """What subscribers must be told: a sequence of :class:`Delivery`, held as columns.

    >>> nothing = Deliveries([], [])
    >>> len(nothing), nothing.to_arrow().column_names
    (0, ['subscription_id', 'message_id', 'change', 'reason', 'score', 'rank'])
    """

    def __init__(
        self,
        subscriptions: list[Id],
        messages: list[Id],
        types: tuple[pa.DataType, pa.DataType] | None = None,
        reasons: list[str] | None = None,
    ) -> None:
        self._subscriptions = subscriptions
        self._messages = messages
        self._reasons = ["match"] * len(subscriptions) if reasons is None else reasons
        self._types = types or (pa.string(), pa.string())

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __iter__(self) -> Iterator[Delivery]:
        return map(Delivery, self._subscriptions, self._messages, repeat("+"), self._reasons)

    @overload
    def __getitem__(self, key: int) -> Delivery: ...
    @overload
    def __getitem__(self, key: slice) -> Deliveries: ...
    def __getitem__(self, key: int | slice) -> Delivery | Deliveries:
        if isinstance(key, slice):
            return Deliveries(self._subscriptions[key], self._messages[key], self._types, self._reasons[key])
        return Delivery(self._subscriptions[key], self._messages[key], "+", self._reasons[key])

    def __repr__(self) -> str:
        return f"<Deliveries: {len(self):,}>"

    def to_arrow(self) -> pa.Table:
        """Return the columns of :class:`Delivery`.

        A column of ids is of integers where the engine has met nothing else, and of strings otherwise: it does not
        depend on which deliveries there happen to be, or whether there are any.
        """
        count = len(self)
        return pa.table(
            {
                "subscription_id": _id_column(self._subscriptions, self._types[0]),
                "message_id": _id_column(self._messages, self._types[1]),
                "change": pa.repeat(pa.scalar("+"), count),
                "reason": pa.array(self._reasons, pa.string()),
                "score": pa.nulls(count, pa.float64()),
                "rank": pa.nulls(count, pa.int32()),
            }
        )


class Engine:
    """Subscriptions and valid messages in memory; each verb returns the deliveries that it causes.

    A message with an ``expires_at`` is kept until then, and who subscribes meanwhile receives it at once. One without
    is for the moment: it is delivered to who is subscribed, and not kept.

    Every verb takes one object, several, or a table (Arrow, pandas, GeoPandas, Polars; columns as in
    :mod:`nearcast.columns.from_arrow`). A call applies whole, or raises and changes nothing. Not safe for changes
    from several threads at once.

    >>> from nearcast import Box, Message, Point, Subscription
    >>> engine = Engine()
    >>> engine.subscribe(Subscription("ben", "storm OR flood", Box(-75, 40, -73, 42)))
    <Deliveries: 0>
    >>> [delivery.subscription for delivery in engine.publish(Message(1, "Flood warning", Point(lon=-74, lat=41)))]
    ['ben']

    Parameters
    ----------
    index, store
        What subscriptions and messages are kept in: names of :data:`nearcast.matching.INDEXES` and
        :data:`nearcast.matching.STORES`.
    space
        The space of all regions and places.
    clock
        Tells when messages expire; the machine's by default.
    """

    def __init__(
        self,
        index: str = config.DEFAULT_INDEX,
        *,
        store: str = config.DEFAULT_STORE,
        space: Space = WGS84,
        clock: Clock | None = None,
    ) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._index = build_index(index, SubscriptionTable.empty(Coding.new(space)))
        self._kept = KeptMessages(build_store(store, messages_from_objects([], like=self)))
        self._rows: dict[Id, int] = {}
        self._ids: list[Id | None] = []  # by row; None where it was unsubscribed
        self._texts = [False, False]  # has a subscription, has a message come with an id that is a string?
        self._published = self._expired = self._delivered = 0

    def __len__(self) -> int:
        """How many subscriptions there are."""
        return len(self._rows)

    def __contains__(self, id: object) -> bool:
        return id in self._rows

    def __iter__(self) -> Iterator[Id]:
        """Iterate over the ids of the subscriptions."""
        return iter(self._rows)

    def __getitem__(self, id: Id) -> Subscription:
        """Return a subscription; its expression is the normal form of what was subscribed."""
        only = self._index.store.subscription(self._row(id))
        found = only.to_subscriptions()[0]
        return Subscription(id, found.expression, found.region)

    @property
    def coding(self) -> Coding:
        """What words and attributes are coded by here: ``like=engine`` makes a :class:`MessageBatch` for it."""
        return self._index.coding

    def __repr__(self) -> str:
        return f"<Engine: {len(self):,} subscription{'s' * (len(self) != 1)}, index {self._index.name!r}>"

    def subscribe(
        self, subscriptions: Subscription | Iterable[Subscription] | SubscriptionTable | Any
    ) -> Deliveries:
        """Register subscriptions; an id that is in use, or twice in the call, is an error.

        Returns what the newcomers are told at once: each kept message that is valid now and matches, in the order of
        publication, with the reason ``"subscribe"``.
        """
        ids, build = self._reader(subscriptions)
        seen: set[Id] = set()
        for key in ids:
            if key in self._rows or key in seen:
                raise DuplicateError(
                    f"subscription {shown(key)} exists already; unsubscribe it first, or choose another id"
                )
            seen.add(key)
        table = self._index.store.check_insert(build())
        newcomers, told = self._kept.wanted_by(table, self._clock.now())
        rows = self._index.insert(table)
        self._delivered += len(told)
        self._ids.extend(ids)
        self._rows.update(zip(ids, rows.tolist()))
        self._texts[0] |= any(isinstance(key, str) for key in ids)
        return self._deliveries([ids[row] for row in newcomers], told, "subscribe")

    def unsubscribe(self, ids: Id | Iterable[Id]) -> Deliveries:
        """Remove subscriptions by id; an unknown id is an error."""
        keys: list[Any] = [ids] if isinstance(ids, Integral | str) else list(ids)  # type: ignore[arg-type]
        rows = [self._row(key) for key in keys]
        self._index.remove(np.array(rows, np.int64))
        for key, row in zip(keys, rows):
            del self._rows[key]
            self._ids[row] = None
        return self._deliveries([], [])

    def publish(self, messages: Message | Iterable[Message] | MessageBatch | Any) -> Deliveries:
        """Deliver messages to the subscriptions that match, and keep those that have an ``expires_at``.

        A message takes the place of what is kept under its id. One that has expired by now reaches nobody. Each call
        also looks for kept messages that have expired, a few for each message that it publishes.
        """
        given, given_ids = batch, ids = self._messages(messages, learn=True)
        now = self._clock.now()
        if batch.expires_at is not None:
            valid = np.flatnonzero(batch.expires_at > now)
            if len(valid) < batch.size:
                batch, ids = batch.take(valid), [ids[row] for row in valid]
        found = self._index.match(batch).sorted()
        self._kept.publish(given, given_ids, now)
        self._published += given.size
        self._expired += given.size - batch.size
        self._delivered += len(found.rows)
        self._texts[1] |= any(isinstance(key, str) for key in given_ids)
        return self._deliveries(*self._pairs(found, ids))

    def expire(self) -> Deliveries:
        """Forget every kept message that has expired by now; nobody is told.

        Nothing depends on this call but memory: an expired message is never delivered.
        """
        self._kept.store.expire(self._clock.now())
        return self._deliveries([], [])

    def match(self, messages: Message | Iterable[Message] | MessageBatch | Any, threads: int = 1) -> Any:
        """Tell who would receive messages, without publishing them.

        One message gives the list of subscription ids; several give an Arrow table with ``message_id`` and
        ``subscription_id``.
        """
        batch, ids = self._messages(messages)
        found = self._index.match(batch, threads).sorted()
        subscriptions, told = self._pairs(found, ids)
        if isinstance(messages, Message):
            return subscriptions
        texts = self._texts[0], self._texts[1] or any(isinstance(key, str) for key in ids)
        return (
            Deliveries(subscriptions, told, _types(*texts))
            .to_arrow()
            .select(["message_id", "subscription_id"])
        )

    def explain(self, message: Message, id: Id) -> Explanation:
        """Tell why a message matches a subscription, or why not."""
        return explain(self[id], message)

    def stats(self) -> dict[str, Any]:
        """Return plain figures: what was published, delivered, kept and forgotten; those of the index and the store."""
        store = self._kept.store.stats()
        return {
            "subscriptions": len(self),
            "published": self._published,
            "expired_before_publication": self._expired,
            "delivered": self._delivered,
            "kept": store["messages"],
            "expired": store["expired"],
            "index": self._index.stats(),
            "store": store,
        }

    def _row(self, id: Id) -> int:
        try:
            return self._rows[id]
        except (KeyError, TypeError):
            raise UnknownError(f"there is no subscription {shown(id)}") from None

    def _deliveries(self, subscriptions: list[Id], messages: list[Id], reason: str = "match") -> Deliveries:
        return Deliveries(subscriptions, messages, _types(*self._texts), [reason] * len(messages))

    def _pairs(self, found: Matches, message_ids: list[Id]) -> tuple[list[Id], list[Id]]:
        """Return the ids of the subscription and the message of each match."""
        ids: list[Any] = self._ids
        subscriptions = [ids[row] for row in found.rows.tolist()]
        return subscriptions, [message_ids[row] for row in found.messages.tolist()]

    def _reader(self, given: Any) -> tuple[list[Id], Callable[[], SubscriptionTable]]:
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
        named = list(range(len(table))) if ids is None else ids.to_pylist()
        return named, lambda: replace(SubscriptionTable.from_arrow(table, like=self), ids=None)

    def _messages(self, given: Any, learn: bool = False) -> tuple[MessageBatch, list[Id]]:
        """Return messages as a batch in the engine's codes, and their ids.

        With *learn*, all words get codes where a message is going to be kept: somebody may ask for them later.
        """
        if isinstance(given, MessageBatch):
            return given, _ids_of(given)
        if isinstance(given, Message) or _is_objects(given):
            messages = [given] if isinstance(given, Message) else list(given)
            learn = learn and any(getattr(message, "expires_at", None) is not None for message in messages)
            batch = messages_from_objects(messages, like=self, with_ids=False, learn=learn)
            return batch, [message.id for message in messages]
        table = arrow_table(given)
        learn = learn and "expires_at" in table.column_names
        batch = MessageBatch.from_arrow(table, like=self, learn=learn)
        return batch, _ids_of(batch)


def _ids_of(columns: SubscriptionTable | MessageBatch) -> list[Id]:
    return list(range(columns.size)) if columns.ids is None else columns.ids.to_pylist()


def _is_objects(given: Any) -> bool:
    """Tell whether *given* is an iterable of objects rather than a table."""
    table = (
        hasattr(given, "__arrow_c_stream__") or hasattr(given, "keys") or isinstance(given, pa.RecordBatch)
    )
    return isinstance(given, Iterable) and not table


def _types(*texts: bool) -> tuple[pa.DataType, pa.DataType]:
    subscription, message = (pa.string() if text else pa.int64() for text in texts)
    return subscription, message


def _id_column(ids: list[Id], kind: pa.DataType) -> pa.Array:
    return pa.array(ids if pa.types.is_integer(kind) else map(str, ids), kind)
