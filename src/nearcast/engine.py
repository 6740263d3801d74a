"""The engine: one process that subscribers and publishers talk to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config
from nearcast.clock import Clock, SystemClock
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.errors import DuplicateError, UnknownError, shown
from nearcast.explain import Explanation, explain
from nearcast.geometry import WGS84, Space
from nearcast.matching import build_index
from nearcast.model import Delivery, Id, Message, Subscription

__all__ = ["Deliveries", "Engine", "Explanation"]


class Deliveries:
    """What subscribers must be told: a sequence of :class:`Delivery`, held as columns.

    >>> nothing = Deliveries()
    >>> len(nothing), nothing.to_arrow().column_names
    (0, ['subscription_id', 'message_id', 'change', 'reason', 'score', 'rank'])
    """

    def __init__(self, subscriptions: list[Id] | None = None, messages: list[Id] | None = None) -> None:
        self._subscriptions = subscriptions or []
        self._messages = messages or []

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __iter__(self) -> Iterator[Delivery]:
        return map(Delivery, self._subscriptions, self._messages)

    @overload
    def __getitem__(self, key: int) -> Delivery: ...
    @overload
    def __getitem__(self, key: slice) -> Deliveries: ...
    def __getitem__(self, key: int | slice) -> Delivery | Deliveries:
        if isinstance(key, slice):
            return Deliveries(self._subscriptions[key], self._messages[key])
        return Delivery(self._subscriptions[key], self._messages[key])

    def __repr__(self) -> str:
        return f"<Deliveries: {len(self):,}>"

    def to_arrow(self) -> pa.Table:
        """Return the columns of :class:`Delivery`; ids are strings unless all are integers."""
        count = len(self)
        return pa.table(
            {
                "subscription_id": _id_column(self._subscriptions),
                "message_id": _id_column(self._messages),
                "change": pa.repeat(pa.scalar("+"), count),
                "reason": pa.repeat(pa.scalar("match"), count),
                "score": pa.nulls(count, pa.float64()),
                "rank": pa.nulls(count, pa.int32()),
            }
        )


class Engine:
    """Subscriptions in memory, matched by an index; each verb returns the deliveries that it causes.

    Every verb takes one object, several, or a table (Arrow, pandas, GeoPandas, Polars; columns as in
    :mod:`nearcast.tables`). A call applies whole, or raises and changes nothing. Not safe for changes from several
    threads at once.

    >>> from nearcast import Box, Message, Point, Subscription
    >>> engine = Engine()
    >>> engine.subscribe(Subscription("ben", "storm OR flood", Box(-75, 40, -73, 42)))
    <Deliveries: 0>
    >>> [delivery.subscription for delivery in engine.publish(Message(1, "Flood warning", Point(lon=-74, lat=41)))]
    ['ben']
    """

    def __init__(
        self, index: str = config.DEFAULT_INDEX, *, space: Space = WGS84, clock: Clock | None = None
    ) -> None:
        self._clock = SystemClock() if clock is None else clock
        empty = replace(SubscriptionTable.from_subscriptions([]), space=space, ids=None)
        self._index = build_index(index, empty)
        self._rows: dict[Id, int] = {}
        self._ids: list[Id] = []  # by row
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
        only = self._index.store.take(np.array([self._row(id)]))
        return _with_id(only.to_subscriptions()[0], id)

    def __repr__(self) -> str:
        return f"<Engine: {len(self):,} subscription{'s' * (len(self) != 1)}, index {self._index.name!r}>"

    def subscribe(
        self, subscriptions: Subscription | Iterable[Subscription] | SubscriptionTable | Any
    ) -> Deliveries:
        """Register subscriptions; an id that is in use, or twice in the call, is an error.

        Returns what the newcomers are told at once.
        """
        table = self._subscription_table(subscriptions)
        ids: list[Id] = list(range(table.size)) if table.ids is None else table.ids.to_pylist()
        seen: set[Id] = set()
        for key in ids:
            if key in self._rows or key in seen:
                raise DuplicateError(
                    f"subscription {shown(key)} exists already; unsubscribe it first, or choose another id"
                )
            seen.add(key)
        rows = self._index.insert(replace(table, ids=None))
        self._ids.extend(ids)
        self._rows.update(zip(ids, rows.tolist()))
        return Deliveries()

    def unsubscribe(self, ids: Id | Iterable[Id]) -> Deliveries:
        """Remove subscriptions by id; an unknown id is an error."""
        keys = [ids] if isinstance(ids, int | str) else list(ids)
        self._index.remove(np.array([self._row(key) for key in keys], np.int64))
        for key in keys:
            del self._rows[key]
        return Deliveries()

    def publish(self, messages: Message | Iterable[Message] | MessageBatch | Any) -> Deliveries:
        """Deliver messages to the subscriptions that match; one that has expired by now reaches nobody."""
        batch = self._message_batch(messages)
        self._published += batch.size
        if batch.expires_at is not None:
            valid = np.flatnonzero(batch.expires_at > self._clock.now())
            if len(valid) < batch.size:
                self._expired += batch.size - len(valid)
                batch = batch.take(valid)
        found = self._index.match(batch).sorted()
        self._delivered += len(found.rows)
        return Deliveries(self._subscription_ids(found.rows), _message_ids(batch, found))

    def match(self, messages: Message | Iterable[Message] | MessageBatch | Any, threads: int = 1) -> Any:
        """Tell who would receive messages, without publishing them.

        One message gives the list of subscription ids; several give an Arrow table with ``message_id`` and
        ``subscription_id``.
        """
        batch = self._message_batch(messages)
        found = self._index.match(batch, threads).sorted()
        ids = self._subscription_ids(found.rows)
        if isinstance(messages, Message):
            return ids
        return pa.table(
            {"message_id": _id_column(_message_ids(batch, found)), "subscription_id": _id_column(ids)}
        )

    def explain(self, message: Message, id: Id) -> Explanation:
        """Tell why a message matches a subscription, or why not."""
        return explain(self[id], message)

    def stats(self) -> dict[str, Any]:
        """Return plain figures: what was published and delivered, and those of the index."""
        return {
            "subscriptions": len(self),
            "published": self._published,
            "expired_before_publication": self._expired,
            "delivered": self._delivered,
            "index": self._index.stats(),
        }

    def _row(self, id: Id) -> int:
        try:
            return self._rows[id]
        except (KeyError, TypeError):
            raise UnknownError(f"there is no subscription {shown(id)}") from None

    def _subscription_ids(self, rows: NDArray[np.int32]) -> list[Id]:
        ids = self._ids
        return [ids[row] for row in rows.tolist()]

    def _subscription_table(self, given: Any) -> SubscriptionTable:
        like = self._like()
        if isinstance(given, SubscriptionTable):
            return given
        if isinstance(given, Subscription):
            return SubscriptionTable.from_subscriptions([given], like=like)
        if _is_objects(given):
            return SubscriptionTable.from_subscriptions(given, like=like)
        return SubscriptionTable.from_arrow(given, like=like)

    def _message_batch(self, given: Any) -> MessageBatch:
        like = self._like()
        if isinstance(given, MessageBatch):
            return given
        if isinstance(given, Message):
            return MessageBatch.from_messages([given], like=like)
        if _is_objects(given):
            return MessageBatch.from_messages(given, like=like)
        return MessageBatch.from_arrow(given, like=like)

    def _like(self) -> SubscriptionTable:
        """Return a table that has the engine's vocabulary, attributes and space, and no rows."""
        store = self._index.store
        empty = SubscriptionTable.from_arrays(np.empty((0, 4)), [0], [])
        return replace(empty, vocabulary=store.vocabulary, attributes=store.attributes, space=store.space)


def _is_objects(given: Any) -> bool:
    """Tell whether *given* is an iterable of objects rather than a table."""
    return isinstance(given, Iterable) and not (
        hasattr(given, "__arrow_c_stream__") or hasattr(given, "keys") or isinstance(given, pa.RecordBatch)
    )


def _message_ids(batch: MessageBatch, found: Matches) -> list[Id]:
    ids: list[Id] = (
        found.messages if batch.ids is None else batch.ids.take(pa.array(found.messages))
    ).tolist()
    return ids


def _id_column(ids: list[Id]) -> pa.Array:
    if ids and all(isinstance(key, int) for key in ids):
        return pa.array(ids, pa.int64())
    return pa.array([str(key) for key in ids], pa.string())


def _with_id(subscription: Subscription, id: Id) -> Subscription:
    """Return the same subscription under another id."""
    return Subscription(id, subscription.expression, subscription.region)
