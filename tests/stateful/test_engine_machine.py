"""A random life of an engine under a clock that moves when told: everyone is told exactly what they should be."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from nearcast import EVERYWHERE, Message, Subscription
from nearcast.geometry import WGS84
from nearcast.matching import INDEXES, STORES
from profiles import without_rivals
from stateful.engine_life import SECOND, EngineLife, hurry
from strategies import PLANE, areas, messages, subscriptions

IDS = st.integers(1, 5)
TIMES = st.sampled_from([None, 0, 1, 2, 9]), st.sampled_from([None, None, 1, 2])  # how long, and from when


class Drawn:
    """What the machine draws in a space."""

    def __init__(self, space):
        self.regions = st.lists(st.one_of(areas(space), st.just(EVERYWHERE)), max_size=4)
        self.subscriptions = st.lists(subscriptions(space=space), max_size=3)
        self.messages = st.lists(st.tuples(IDS, messages(space=space), *TIMES), max_size=4)


DRAWN = {space: Drawn(space) for space in (WGS84, PLANE)}


class EngineMachine(EngineLife, RuleBasedStateMachine):
    """What hypothesis draws, done to an engine and its model."""

    strings = False

    def key(self, number):
        return f"id {number}" if self.strings else number

    def draw(self, data, what):
        return data.draw(getattr(DRAWN[self.space], what))

    @rule(data=st.data(), ids=st.permutations(range(1, 6)))
    def subscribe(self, data, ids):
        subs = self.draw(data, "subscriptions")
        new = [Subscription(self.key(key), sub.expression, sub.region) for key, sub in zip(ids, subs)]
        self.subscribe_all([sub for sub in new if sub.id not in self.subscribed])

    @rule(data=st.data())
    def unsubscribe(self, data):
        if self.subscribed:
            self.unsubscribe_all([data.draw(st.sampled_from(list(self.subscribed)))])

    @rule(data=st.data())
    def move(self, data):
        if self.subscribed:
            regions = self.draw(data, "regions")
            keys = [data.draw(st.sampled_from(list(self.subscribed))) for _ in regions]
            self.move_all(list(zip(keys, regions)))

    @rule(data=st.data())
    def update(self, data):
        if self.subscribed:
            subs = self.draw(data, "subscriptions")
            keys = [data.draw(st.sampled_from(list(self.subscribed))) for _ in subs]
            self.update_all([Subscription(key, sub.expression, sub.region) for key, sub in zip(keys, subs)])

    def messages(self, data):
        now = self.clock.now()
        new = []
        for key, msg, lasts, starts in self.draw(data, "messages"):
            start = None if starts is None else now + starts * SECOND
            end = None if lasts is None else (start or now) + lasts * SECOND
            if start is not None and end is not None and end <= start:
                end = start + SECOND
            times = {"published_at": start, "expires_at": end}
            new.append(Message(self.key(key), msg.keywords, msg.place, msg.attributes, **times))
        return new

    @rule(data=st.data())
    def publish(self, data):
        self.publish_all(self.messages(data))

    @rule(data=st.data())
    def prepare(self, data):
        self.prepare_batch(self.messages(data))

    @rule()
    def publish_what_was_prepared(self):
        self.publish_prepared()

    @rule(ids=st.lists(IDS, min_size=3, max_size=5, unique=True), seconds=st.integers(1, 3))
    def chatter(self, ids, seconds):
        self.publish_fresh([self.key(key) for key in ids], seconds)

    @rule(ids=st.lists(IDS, max_size=2, unique=True))
    def subscribe_to_chatter(self, ids):
        self.subscribe_to_fresh([key for key in map(self.key, ids) if key not in self.subscribed])

    @rule(data=st.data())
    def publish_again(self, data):
        if self.kept:
            self.publish_all([data.draw(st.sampled_from(list(self.kept.values())))])

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds):
        self.clock.advance(seconds=seconds)

    @rule()
    def expire(self):
        self.expire_all()

    @rule()
    def rest(self):
        self.save_and_open()

    @rule()
    def compact(self):
        self.engine.compact()

    @invariant()
    def sound(self):
        self.check_soundness()


def run(monkeypatch, examples, **pieces):
    hurry(monkeypatch)
    machine = type("Machine", (EngineMachine,), pieces)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=max(settings().max_examples // examples, 2))
    )


@pytest.mark.parametrize("withdrawals", [True, False])
@pytest.mark.parametrize("space", DRAWN, ids=["globe", "plane"])
def test_machine(monkeypatch, space, withdrawals):
    strings = withdrawals == (space == PLANE)
    run(monkeypatch, 3, space=space, withdrawals=withdrawals, strings=strings)


@pytest.mark.parametrize("index", without_rivals(INDEXES))
def test_every_index(monkeypatch, index):
    run(monkeypatch, 12, index=index)


@pytest.mark.parametrize("store", without_rivals(STORES))
def test_every_store(monkeypatch, store):
    run(monkeypatch, 12, index="auto", store=store)
