"""A random life of an engine under a clock that moves when told: everyone is told exactly what they should be."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import naive
from nearcast import Engine, ManualClock, Message, Subscription, config
from nearcast.matching import INDEXES, STORES
from strategies import messages, subscriptions

IDS = st.integers(1, 5)
START = 1_000_000
SECOND = 1_000_000


def content(message):
    place = message.place
    return message.keywords, place.boxes(), place.exact or place, dict(message.attributes), message.expires_at


class EngineMachine(RuleBasedStateMachine):
    """The model: subscriptions by id, kept messages by id in the order of publication, those to come by id."""

    index, store, strings = "scan", "scan", False

    def __init__(self):
        super().__init__()
        self.clock = ManualClock(START)
        self.engine = Engine(self.index, store=self.store, clock=self.clock, withdrawals=True)
        self.subscribed, self.kept, self.coming, self.held = {}, {}, {}, 0

    def key(self, number):
        return f"id {number}" if self.strings else number

    def wanting(self, message):
        return {key for key, sub in self.subscribed.items() if naive.wants(sub, message)}

    def published(self, message, now):
        """Publish one message whose time has come; return what is told."""
        old = self.kept.get(message.id)
        valid = old is not None and old.expires_at > now
        if valid and content(old) == content(message):
            return []
        self.kept.pop(message.id, None)
        before = self.wanting(old) if valid else set()
        wanting = set()
        if message.expires_at is None or message.expires_at > now:
            wanting = self.wanting(message)
            if message.expires_at is not None:
                self.kept[message.id] = message
        told = [(key, message.id, "+", "publish") for key in wanting - before]
        return told + [(key, message.id, "-", "replace") for key in before - wanting]

    def due(self):
        """Publish what has come due; return what is told."""
        now, told = self.clock.now(), []
        for key, (time, _, message) in sorted(self.coming.items(), key=lambda pair: pair[1][:2]):
            if time <= now:
                del self.coming[key]
                told += self.published(message, now)
        return told

    def check(self, told, expected):
        """Compare; the order of subscriptions within a message is not promised."""
        assert sorted((d.subscription_id, d.message_id, d.change, d.reason) for d in told) == sorted(expected)

    @rule(subs=st.lists(st.tuples(IDS, subscriptions()), max_size=3, unique_by=lambda pair: pair[0]))
    def subscribe(self, subs):
        new = [Subscription(self.key(key), sub.expression, sub.region) for key, sub in subs]
        new = [sub for sub in new if sub.id not in self.subscribed]
        told = self.engine.subscribe(new)
        due = self.due()
        now = self.clock.now()
        late = [
            (sub.id, message.id, "+", "subscribe")
            for sub in new
            for message in self.kept.values()
            if message.expires_at > now and naive.wants(sub, message)
        ]
        found = [(d.subscription_id, d.message_id, d.change, d.reason) for d in told]
        assert found[len(due) :] == late
        assert sorted(found[: len(due)]) == sorted(due)
        self.subscribed |= {sub.id: sub for sub in new}

    @rule(data=st.data())
    def unsubscribe(self, data):
        if self.subscribed:
            key = data.draw(st.sampled_from(list(self.subscribed)))
            told = self.engine.unsubscribe(key)
            self.check(told, self.due())
            del self.subscribed[key]

    @rule(
        msgs=st.lists(
            st.tuples(
                IDS, messages(), st.sampled_from([None, 0, 1, 2, 9]), st.sampled_from([None, None, 1, 2])
            ),
            max_size=4,
        )
    )
    def publish(self, msgs):
        now = self.clock.now()
        new = []
        for key, msg, lasts, starts in msgs:
            start = None if starts is None else now + starts * SECOND
            end = None if lasts is None else (start or now) + lasts * SECOND
            if start is not None and end is not None and end <= start:
                end = start + SECOND
            times = {"published_at": start, "expires_at": end}
            new.append(Message(self.key(key), msg.keywords, msg.place, msg.attributes, **times))
        self.publish_all(new)

    @rule(data=st.data())
    def publish_again(self, data):
        if self.kept:
            self.publish_all([data.draw(st.sampled_from(list(self.kept.values())))])

    def publish_all(self, new):
        now = self.clock.now()
        told = self.engine.publish(new)
        expected = self.due()
        for message in new:
            self.coming.pop(message.id, None)
            if message.published_at is not None and message.published_at > now:
                self.held += 1
                self.coming[message.id] = (message.published_at, self.held, message)
            else:
                expected += self.published(message, now)
        self.check(told, expected)

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds):
        self.clock.advance(seconds=seconds)

    @rule()
    def expire(self):
        told = self.engine.expire()
        self.check(told, self.due())
        now = self.clock.now()
        self.kept = {key: message for key, message in self.kept.items() if message.expires_at > now}
        assert self.engine.stats()["kept"] == len(self.kept)

    @rule()
    def rest(self):
        """Save the engine, and go on with what is opened."""
        with tempfile.TemporaryDirectory() as folder:
            self.engine.save(Path(folder) / "engine")
            opened = Engine.open(Path(folder) / "engine", clock=self.clock, verify=True)
        assert list(opened) == list(self.engine)
        assert opened.stats()["coming"] == self.engine.stats()["coming"]
        self.engine = opened

    @rule()
    def compact(self):
        self.engine.compact()

    @invariant()
    def sound(self):
        now = self.clock.now()
        assert set(self.engine) == set(self.subscribed)
        assert self.engine.stats()["kept"] >= sum(m.expires_at > now for m in self.kept.values())
        assert self.engine.stats()["coming"] == len(self.coming)
        assert self.engine._valid.store.check() == []
        assert self.engine._index.check() == []


def run(monkeypatch, examples, **pieces):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # many saves, none of which has to survive
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 3)
    monkeypatch.setattr(config, "ID_MIN_DEAD", 3)
    monkeypatch.setattr(config, "ID_MOVES_A_CALL", 1)
    monkeypatch.setattr(config, "ID_MOVES", 1)
    machine = type("Machine", (EngineMachine,), pieces)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=max(settings().max_examples // examples, 2))
    )


@pytest.mark.parametrize("strings", [False, True])
def test_machine(monkeypatch, strings):
    run(monkeypatch, 2, strings=strings)


@pytest.mark.parametrize("index", sorted(INDEXES))
def test_every_index(monkeypatch, index):
    run(monkeypatch, 10, index=index)


@pytest.mark.parametrize("store", sorted(STORES))
def test_every_store(monkeypatch, store):
    run(monkeypatch, 6, index="auto", store=store)
