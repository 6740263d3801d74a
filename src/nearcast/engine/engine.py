"""The engine: one process that subscribers and publishers talk to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.clock import Clock, SystemClock, checked_clock
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.deliveries import Deliveries
from nearcast.columns.from_arrow.renaming import Columns
from nearcast.columns.from_objects import messages_from_objects
from nearcast.columns.ids import IdColumn, Ids, id_kind
from nearcast.columns.regions import relocated
from nearcast.columns.rows.recode import recoded
from nearcast.engine.changes import CAME, WENT, Changes, settled
from nearcast.engine.explain import Explanation, explain
from nearcast.engine.moves import last_of_each, read_moves
from nearcast.engine.promises import Promises
from nearcast.engine.reading import (
    cut_at_repeats,
    read_messages,
    read_subscriptions,
    take_messages,
    to_arrow,
    to_list,
)
from nearcast.engine.renewal import Renewal, count_codes
from nearcast.engine.replacement import Replacement
from nearcast.engine.safe_regions import SafeRegions, read_circles
from nearcast.engine.snapshot import Snapshot
from nearcast.engine.valid_messages import ComingMessages, ValidMessages
from nearcast.errors import ColumnError, GeometryError, ModelError, UnknownError, shown
from nearcast.geometry import WGS84, Space
from nearcast.geometry.spaces import checked_space, number
from nearcast.matching import build_index, build_store
from nearcast.matching.messages.moves import apart
from nearcast.model import Id, Message, Subscription

__all__ = ["Engine"]


class Engine:
    """Subscriptions and valid messages in memory; each verb returns the deliveries that it causes.

    A message with an ``expires_at`` is kept until then, and whoever subscribes in the meantime receives it at once. A
    message without one is delivered to those who are subscribed now, and not kept. A message whose ``published_at``
    lies ahead is held back: the first call after that instant delivers it, before it does anything else.

    Every verb takes one object, several, or a table (Arrow, pandas, GeoPandas, Polars; columns as in
    :mod:`nearcast.columns.from_arrow`). If a table has other names for them, *columns* maps ours to theirs, as in
    ``columns={"lat": "latitude"}`` (:mod:`nearcast.columns.from_arrow.renaming`). A call takes effect as a whole, or
    raises and changes nothing. Threads must not change an engine at the same time.

    >>> from nearcast import Box, Message, Point, Subscription
    >>> engine = Engine()
    >>> engine.subscribe(Subscription("ben", "storm OR flood", Box(-75, 40, -73, 42)))
    <Deliveries: 0>
    >>> deliveries = engine.publish(Message(1, "Flood warning", Point(lon=-74, lat=41)))
    >>> [delivery.subscription_id for delivery in deliveries]
    ['ben']

    Parameters
    ----------
    index, store
        The structures for subscriptions and messages: names in :data:`nearcast.matching.INDEXES` and
        :data:`nearcast.matching.STORES`.
    space
        The space of all regions and places.
    clock
        Decides when messages are due and when they expire; the machine's clock by default.
    subscription_ids, message_ids
        ``str`` or ``int``; by default the first ids decide. Ids of the other type are refused from then on.
    withdrawals
        Whether subscribers are told (``-``) that a kept message which they received no longer counts: because it was
        replaced by one that does not match them (reason ``replace``), because it has expired (``expire``), or because
        they leave (``unsubscribe``). Those who move or are updated are always told what went out of their reach.
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
        self._clock = SystemClock() if clock is None else checked_clock(clock)
        self._withdrawals = withdrawals
        self._index = build_index(index, SubscriptionTable.empty(Coding.new(checked_space(space))))
        self._ids = Ids("subscription", id_kind(subscription_ids, "subscription_ids"))
        messages = Ids("message", id_kind(message_ids, "message_ids"))
        kept = build_store(store, messages_from_objects([], like=self))
        self._valid = ValidMessages(kept, messages, expiries=withdrawals)
        self._coming = ComingMessages(self.coding)
        self._promises = Promises(self.coding)
        self._published = self._expired = self._delivered = self._moved = 0
        self._renew_at = config.ENGINE_COMPACT_WORDS  # so many words, and unused ones are searched for
        self._renewal: Renewal | None = None  # under way

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self._ids)

    def __contains__(self, id: object) -> bool:
        return self._ids.row(id) >= 0

    def __iter__(self) -> Iterator[Id]:
        """Iterate over the ids of the subscriptions."""
        return iter(self._ids)

    def __getitem__(self, id: Id) -> Subscription:
        """Return a subscription; its expression is in normal form."""
        found = self._index.subscriptions(np.array([self._find_row(id)])).to_subscriptions()[0]
        return Subscription(id, found.expression, found.region)

    @property
    def coding(self) -> Coding:
        """The coding of words and attributes here: ``like=engine`` makes a :class:`MessageBatch` that fits it."""
        return self._index.coding

    def __repr__(self) -> str:
        return f"<Engine: {len(self):,} subscription{'s' * (len(self) != 1)}, index {self._index.name!r}>"

    # --- Changes ---------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        subscriptions: Subscription | Iterable[Subscription] | SubscriptionTable | Any,
        *,
        columns: Columns | None = None,
    ) -> Deliveries:
        """Register subscriptions; an id that is in use, or given twice, is an error.

        Returns the deliveries to the newcomers: each kept message that is valid now and matches, in the order of
        publication, with the reason ``"subscribe"``.
        """
        ids, build = read_subscriptions(subscriptions, self.coding, columns)
        self._ids.check_new(ids)
        table = self._index.store.check_insert(build())
        now = self._clock.now()
        due = self._pass_time(now)
        rows = self._index.insert_coded(table)
        self._ids.put(ids, rows)
        if len(self._valid.store):
            wanted = self._valid.wanted_by(table, now)
            newcomers = self._ids.column(rows[wanted.positions])
            deliveries = Deliveries(newcomers, wanted.messages, reasons="subscribe")
        else:
            deliveries = self._nothing()
        self._note_words(table)
        return self._join([*due, deliveries])

    def unsubscribe(self, ids: Id | Iterable[Id]) -> Deliveries:
        """Remove subscriptions by id; an id that is unknown, or given twice, is an error.

        Takes an id, several, a column of ids, or a table with a column ``id``; so does :meth:`safe_region`.
        An engine with *withdrawals* returns what they received and is still valid (``-``, reason ``"unsubscribe"``).
        """
        rows = self._ids.rows(ids)
        if len(set(rows.tolist())) < len(rows):
            ordered = np.sort(rows)
            twice = self._ids.column(ordered[1:][ordered[1:] == ordered[:-1]]).to_pylist()[0]
            raise ColumnError(f"subscription {shown(twice)} is named twice in one call; name it once")
        now = self._clock.now()
        due = self._pass_time(now)
        deliveries = self._nothing()
        if self._withdrawals and len(self._valid.store):
            held = self._valid.wanted_by(self._index.subscriptions(rows), now)
            deliveries = self._withdrawn(rows[held.positions], held.messages, "unsubscribe")
        deliveries = self._settle(due, deliveries, rows)
        if self._promises:
            self._promises.end(rows)
        self._index.remove(rows)
        self._ids.drop(rows)
        return deliveries

    def move(
        self, ids: Id | Iterable[Id] | Any, regions: Any = None, *, columns: Columns | None = None
    ) -> Deliveries:
        """Give subscriptions other regions; return what came into their reach (``+``), and what went out of it (``-``).

        Takes an id and its region, several ids and as many regions, or a table with a column ``id`` and the columns of
        a region, as in :meth:`subscribe`. A position alone (a ``Point``; ``lon`` and ``lat`` in a table) moves the
        centre of a circle, which keeps its radius. If an id comes several times, the last one counts.

        The changes are those of kept messages that are valid now, subscription by subscription and in the order of
        publication, with the reason ``"move"``. A message that was held back until now and is out of reach after the
        move is not told.

        >>> from nearcast import Circle, Engine, ManualClock, Message, Point, Subscription
        >>> engine = Engine(clock=ManualClock("2026-11-18T08:00:00Z"))
        >>> _ = engine.subscribe(Subscription("anna", "coffee", Circle(lon=0, lat=0, radius=800)))
        >>> _ = engine.publish(Message("m1", "coffee", Point(lon=0.01, lat=0), expires_at="2026-11-18T09:00:00Z"))
        >>> [(d.subscription_id, d.change, d.message_id) for d in engine.move("anna", Point(lon=0.009, lat=0))]
        [('anna', '+', 'm1')]
        """
        rows, placed = read_moves(ids, regions, self._ids, self._index, columns)
        now = self._clock.now()
        due = self._pass_time(now)
        before = self._index.subscriptions(rows)
        after = relocated(before, placed)
        changed = self._valid.store.changes(before, after, now) if len(self._valid.store) else None
        deliveries = self._tell(changed, rows, after, "move", now)
        self._index.replace(rows, after)
        self._moved += len(rows)
        return self._settle(due, deliveries, rows)

    def update(
        self,
        subscriptions: Subscription | Iterable[Subscription] | SubscriptionTable | Any,
        *,
        columns: Columns | None = None,
    ) -> Deliveries:
        """Replace subscriptions by others with the same ids: words, values and regions; an unknown id is an error.

        Returns the changes as :meth:`move` does, with the reason ``"update"``.
        """
        ids, build = read_subscriptions(subscriptions, self.coding, columns)
        rows = self._ids.rows(ids)
        table = self._index.store.coded(build())
        last = last_of_each(rows)
        if len(last) < len(rows):
            rows, table = rows[last], table.take(last)
        now = self._clock.now()
        due = self._pass_time(now)
        changed = None
        if len(self._valid.store):
            store, before = self._valid.store, self._index.subscriptions(rows)
            changed = apart(store.match(before, now), store.match(table, now))
        deliveries = self._tell(changed, rows, table, "update", now)
        self._index.replace(rows, table)
        self._note_words(table)
        return self._settle(due, deliveries, rows)

    def publish(
        self,
        messages: Message | Iterable[Message] | MessageBatch | Any,
        *,
        columns: Columns | None = None,
    ) -> Deliveries:
        """Deliver messages to the subscriptions that match, and keep those that have an ``expires_at``.

        A message replaces the valid message that has the same id. If the content is the same too, nobody receives it
        again; if it differs, only those receive it whom the earlier message did not reach. A message that has already
        expired reaches nobody. Each call also looks for kept messages that have expired, a few for each message that
        it publishes.
        """
        now = self._clock.now()
        ids, build = read_messages(messages, self.coding, now, columns)
        self._valid.ids.check(ids)
        batch = build()
        self._valid.ids.settle(ids)
        self._index.expect(self.coding.words()[0].span)
        due = self._pass_time(now)
        parts = cut_at_repeats(batch, ids) if self._needs_ids(batch) else [(batch, ids)]
        deliveries = [self._publish(part, own, now) for part, own in parts]
        self._forget_words(batch.size + len(batch.probes.keywords) + len(batch.probes.values))
        return self._join([*due, *deliveries])

    def expire(self) -> Deliveries:
        """Let time pass: deliver messages that were held back until now, and forget kept ones that have expired.

        Nothing else depends on this call: an expired message is never delivered, and every other verb delivers the
        messages that are due. An engine with *withdrawals* tells those who received a message that it has expired
        (``-``, reason ``"expire"``); so does every other verb.
        """
        now = self._clock.now()
        due = self._pass_time(now)
        self._valid.store.expire(now)
        return self._join([*due, self._nothing()])

    def safe_region(self, ids: Id | Iterable[Id], *, at_most: float | None = None) -> Any:
        """Promise subscribers circles inside which nothing changes for them, so that they need not report every step.

        Each of them has a circle around its position as its region. The safe region is another one with the same
        centre: wherever in it the subscriber goes, the same of the messages that are valid now are in its reach. One id
        gives a :class:`Circle`; several give :class:`SafeRegions`, pairs of an id and a circle that are columns, too.
        Radii are at most 7 times that of the subscription, and not more than *at_most*. A radius of 0 is no promise.

        The subscriber keeps its side by reporting its position (:meth:`move`) when it has left the circle. The engine
        keeps the other side when a new message may matter: if the message is in reach from everywhere in the circle, it
        is delivered; if that depends on where the subscriber is, the verb that publishes it names the subscriber in
        ``deliveries.to_report``, once, and the message waits. The next :meth:`move` (to the same place will do) or
        :meth:`update` of the subscriber ends the promise, and returns what waited and is in reach. If another message
        is published with the same id in the meantime, only the last one counts. Until the report, the engine knows no
        later position than the last: questions like :meth:`match` are answered by that, and who was asked to report
        gets the radius 0.

        Distances are those of :func:`nearcast.geometry.great_circle`, or Euclidean in a planar space.

        >>> from nearcast import Circle, Engine, ManualClock, Message, Point, Subscription
        >>> engine = Engine(clock=ManualClock("2026-11-18T08:00:00Z"))
        >>> _ = engine.subscribe(Subscription("anna", "coffee", Circle(lon=0, lat=0, radius=800)))
        >>> _ = engine.publish(Message("m1", "coffee", Point(lon=0.01, lat=0), expires_at="2026-11-18T09:00:00Z"))
        >>> round(engine.safe_region("anna").radius)
        312
        >>> deliveries = engine.publish(Message("m2", "coffee", Point(lon=0.005, lat=0)))
        >>> len(deliveries), deliveries.to_report
        (0, ['anna'])
        >>> [(d.subscription_id, d.change, d.message_id) for d in engine.move("anna", Point(lon=0.002, lat=0))]
        [('anna', '+', 'm2')]
        """
        if at_most is not None and not number(at_most, "at_most") >= 0:
            raise GeometryError(f"at_most is {at_most!r}; give a distance of 0 or more")
        rows = self._ids.rows(ids)
        own = read_circles(rows, self._ids, self._index)
        circles = self._promises.make(rows, *own, self._valid, self._clock.now(), at_most)
        regions = SafeRegions(self._ids.column(rows), circles, self.coding.space)
        return next(iter(regions))[1] if isinstance(ids, str | Integral) else regions

    def compact(self) -> None:
        """Forget words, strings and attributes that no subscription and no kept message uses any more.

        Everything is laid out anew, which takes as long as building does. The engine also forgets words by itself, a
        few with each call, when most of them are unused, which it checks each time that their number has doubled.
        Either way, codes get another meaning: a :class:`MessageBatch` that was made before is refused afterwards.
        """
        coding = Coding.new(self.coding.space)
        rows = self._ids.present()
        table = recoded(replace(self._index.table, ids=None).take(rows), coding)
        index = build_index(self._index.name, table)
        ids = Ids("subscription", self._ids.kind)
        ids.put(self._ids.column(rows).plain(), np.arange(len(rows)))
        valid = self._valid.recoded(coding)
        coming = self._coming.recoded(coding)
        self._promises = self._promises.recoded(rows, index)
        self._index, self._ids, self._valid, self._coming, self._renewal = index, ids, valid, coming, None
        self._renew_at = _next_renewal(coding)

    def _note_words(self, table: SubscriptionTable) -> None:
        """Note the words of new clauses, and continue to forget unused ones."""
        if self._renewal is None and count_codes(self.coding) < self._renew_at:
            return
        clauses = table.clauses
        if self._renewal is not None:
            self._renewal.note_clauses(clauses)
        words = len(clauses.keywords) + len(clauses.forbidden) + len(clauses.test_lows)
        self._forget_words(len(table.owners) + words)

    def _forget_words(self, given: int) -> None:
        """Continue to forget unused words; begin when there are twice as many words as the last time.

        *given* is the number of rows and words that the call brought. The work grows with it, so it comes to an end.
        """
        if self._renewal is None:
            if count_codes(self.coding) < self._renew_at:
                return
            self._renewal = Renewal(self._index.store, [self._valid.store.rows, self._coming.rows])
        if self._renewal.step(config.ENGINE_CENSUS_ROWS + config.ENGINE_CENSUS_SHARE * given):
            self._renewal, self._renew_at = None, _next_renewal(self.coding)
            self._promises.follow(self.coding)

    # --- Questions -------------------------------------------------------------------------------------------------

    def match(
        self,
        messages: Message | Iterable[Message] | MessageBatch | Any,
        threads: int = 1,
        *,
        columns: Columns | None = None,
    ) -> Any:
        """Tell whom messages match, without publishing them: words, values and places decide, times are not read.

        One message gives the list of subscription ids; several give an Arrow table with ``message_id`` and
        ``subscription_id``.
        """
        ids, build = read_messages(messages, self.coding, columns=columns)
        found = self._index.match(build(), threads).sorted()
        if isinstance(messages, Message):
            return self._ids.column(found.rows).to_pylist()
        return self._deliveries(found, ids).to_arrow().select(["message_id", "subscription_id"])

    def explain(self, message: Message, id: Id) -> Explanation:
        """Tell why a message matches a subscription, or why not."""
        if not isinstance(message, Message):
            raise ModelError(f"explain takes a Message and the id of a subscription, not {shown(message)}")
        return explain(self[id], message)

    def stats(self) -> dict[str, Any]:
        """Return figures: how much was published, delivered, kept and forgotten, and those of the index and store.

        ``moved`` counts subscriptions that moved; ``moved_by`` names the structures that found what that changed.
        """
        store = self._valid.store.stats()
        vocabulary, attributes = self.coding.words()
        return {
            "subscriptions": len(self),
            "published": self._published,
            "expired_before_publication": self._expired,
            "delivered": self._delivered,
            "kept": store["messages"],
            "coming": len(self._coming),
            "moved": self._moved,
            "moved_by": f"{self._index.name} and the difference in {store.get('structure', store['store'])}",
            "promises": len(self._promises),
            "waiting": len(self._promises.waiting),
            "words": len(vocabulary) + len(attributes.strings),
            "expired": store["expired"],
            "index": self._index.stats(),
            "store": store,
        }

    # --- Saving and restoring --------------------------------------------------------------------------------------

    def save(self, directory: str | Path) -> Path | str:
        """Write a snapshot of subscriptions, valid messages and coming ones to a new directory; return its path or URI.

        The directory appears whole or not at all, and is never overwritten. :meth:`open` continues from it.
        """
        counts = [self._published, self._expired, self._delivered, self._moved]
        parts = self._index, self._ids, self._valid, self._coming, self._promises
        return Snapshot(*parts, self._withdrawals, counts).save(directory)

    @classmethod
    def open(cls, directory: str | Path, *, clock: Clock | None = None, verify: bool = False) -> Engine:
        """Open a snapshot: its arrays are mapped copy-on-write, and later changes are in memory only.

        Damage is an :class:`~nearcast.errors.IndexFileError`. With *verify* every file is compared with its checksum;
        without it, every file except large ones of coordinates.
        """
        saved = Snapshot.open(directory, verify=verify)
        engine = cls(space=saved.index.coding.space, clock=clock, withdrawals=saved.withdrawals)
        engine._index, engine._ids = saved.index, saved.ids
        engine._valid, engine._coming, engine._promises = saved.valid, saved.coming, saved.promises
        engine._published, engine._expired, engine._delivered, engine._moved = saved.counts
        return engine

    # --- Internals -------------------------------------------------------------------------------------------------

    def _publish(self, batch: MessageBatch, ids: Any, now: int) -> Deliveries:
        """Publish messages of distinct ids; hold back those whose time has not come."""
        if self._renewal is not None and (batch.expires_at is not None or batch.published_at is not None):
            self._renewal.note_messages(batch)  # which may be kept
        if self._coming:
            self._coming.forget(to_list(ids))
        if batch.published_at is not None and batch.published_at.max(initial=now) > now:
            later = batch.published_at > now
            self._coming.put(*take_messages(batch, to_list(ids), np.flatnonzero(later)))
            batch, ids = take_messages(batch, ids, np.flatnonzero(~later))
        numbers = np.arange(self._published, self._published + batch.size)  # in the order of publication
        self._published += batch.size
        replaced = None
        if self._needs_ids(batch):
            names = to_arrow(ids)
            rows = self._valid.rows(names, now)
            if (rows >= 0).any():
                replaced = Replacement(self._index, self._valid.store.rows, batch, rows)
                batch, ids = take_messages(batch, ids, replaced.news)
                names, numbers = to_arrow(ids), numbers[replaced.news]
            self._valid.publish(batch, names, numbers, now)
        news = ids
        if self._promises.waiting:
            if replaced is not None:
                replaced.leave_out(self._promises.waiting.waits, news)
            self._promises.waiting.supersede(to_list(news))
        if batch.expires_at is not None:
            valid = np.flatnonzero(batch.expires_at > now)
            if len(valid) < batch.size:
                self._expired += batch.size - len(valid)
                if replaced is not None:
                    replaced.restrict(valid)
                batch, ids = take_messages(batch, ids, valid)
                numbers = numbers[valid]
        found = self._index.match(batch).sorted()
        asked: list[Deliveries] = []
        if self._promises:
            found, asked = self._ask_to_report(found, batch, ids, numbers, now)
        if replaced is None:
            return Deliveries.joined([self._deliveries(found, ids), *asked])
        gained, lost = replaced.compare(found)
        parts = [self._deliveries(gained, ids), *asked]
        if self._withdrawals:
            parts.append(self._deliveries(lost, news, "-", "replace"))
        return Deliveries.joined(parts)

    def _ask_to_report(
        self, found: Matches, batch: MessageBatch, ids: Any, numbers: NDArray[np.int64], now: int
    ) -> tuple[Matches, list[Deliveries]]:
        """Return the matches without those that depend on where subscribers are by now, and whom to ask about that."""
        sure, unsure = self._promises.sift(found, batch)
        if not len(unsure.rows):
            return sure, []
        rows = self._promises.ask(unsure, batch, to_list(ids), numbers, self._valid, now)
        if not len(rows):
            return sure, []
        nothing = self._ids.no_ids(), self._valid.ids.no_ids()
        return sure, [Deliveries(*nothing, to_report=self._ids.column(rows))]

    def _pass_time(self, now: int) -> list[Deliveries]:
        """Tell what has expired, if subscribers want to know, and publish messages that were held back until now."""
        if not self._withdrawals and not self._coming:
            return []
        return [*self._withdraw_expired(now), *self._publish_due(now)]

    def _withdraw_expired(self, now: int) -> list[Deliveries]:
        rows = self._valid.expired(now)
        if not len(rows):
            return []
        store = self._valid.store
        found = self._index.match(store.rows.batch(rows)).sorted()
        messages = self._valid.ids.column(rows[found.messages])
        store.remove_expired(rows)
        return [self._withdrawn(found.rows, messages, "expire")]

    def _publish_due(self, now: int) -> list[Deliveries]:
        """Publish the messages that were held back until now."""
        if not self._coming:
            return []
        return [self._publish(batch, [key], now) for batch, key in self._coming.due(now)]

    def _needs_ids(self, batch: MessageBatch) -> bool:
        """Tell whether the ids of a batch matter, because messages are kept or may be."""
        times = batch.expires_at is not None or batch.published_at is not None
        return times or len(self._valid.ids) > 0 or len(self._coming) > 0

    def _join(self, parts: list[Deliveries]) -> Deliveries:
        """Join and count the deliveries of a call."""
        deliveries = Deliveries.joined(parts) if len(parts) > 1 else parts[0]
        self._delivered += len(deliveries)
        return deliveries

    def _nothing(self) -> Deliveries:
        return Deliveries(self._ids.no_ids(), self._valid.ids.no_ids())

    def _deliveries(
        self, found: Matches, message_ids: Any, change: str = "+", reason: str = "publish"
    ) -> Deliveries:
        """Return matches as deliveries; *message_ids* are the ids of the messages, in order."""
        subscriptions = self._ids.column(found.rows)
        return Deliveries(subscriptions, IdColumn(found.messages, message_ids), change, reason)

    def _tell(
        self,
        changed: tuple[Matches, Matches] | None,
        rows: NDArray[np.int64],
        table: SubscriptionTable,
        reason: str,
        now: int,
    ) -> Deliveries:
        """Return what the subscriptions in *rows*, which are now those of *table*, are told; end their promises.

        *changed* are the kept messages that came into reach, and those that went. What waited for their reports is
        decided now.
        """
        changes = [] if changed is None else list(map(self._valid.changes, changed, (CAME, WENT)))
        waiting = self._promises.waiting
        if waiting:
            changes = [part.take(~waiting.waits(rows[part.positions], part.messages)) for part in changes]
            changes += self._promises.decided(rows, table, self._valid, now)
        if self._promises:
            self._promises.end(rows)
        if not changes:
            return self._nothing()
        told = Changes.in_order(changes)
        return Deliveries(self._ids.column(rows[told.positions]), told.messages, told.changes, reason)

    def _settle(self, due: list[Deliveries], own: Deliveries, rows: NDArray[np.int64]) -> Deliveries:
        """Join what has come due and what a call told the subscriptions in *rows*, without what cancels out."""
        if not due:
            return self._join([own])
        return self._join([settled(Deliveries.joined(due), own, self._ids.column(rows))])

    def _withdrawn(self, rows: NDArray[Any], messages: IdColumn, reason: str) -> Deliveries:
        """Return withdrawals of messages from subscriptions; what waits for a report was never told."""
        if self._promises.waiting:
            told = ~self._promises.waiting.waits(rows, messages)
            rows, messages = rows[told], IdColumn(messages.codes[told], messages.words)
        return Deliveries(self._ids.column(rows), messages, "-", reason)

    def _find_row(self, id: Id) -> int:
        row = self._ids.row(id)
        if row < 0:
            raise UnknownError(f"there is no subscription {shown(id)}")
        return row


def _next_renewal(coding: Coding) -> int:
    """Return how many words there must be before unused ones are searched for again."""
    return max(config.ENGINE_COMPACT_WORDS, 2 * count_codes(coding))
