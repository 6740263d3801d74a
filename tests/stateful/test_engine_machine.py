"""A random life of an engine under a clock that moves when told: everyone is told exactly what they should be."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import naive
from nearcast import Engine, ManualClock, Message, Subscription, config
from strategies import messages, subscriptions

IDS = st.sampled_from([1, 2, 3, 4, "1", "m", "n"])
START = 1_000_000


class EngineMachine(RuleBasedStateMachine):
    """The model: subscriptions by id, kept messages by id in the order of publication."""

    def __init__(self):
        super().__init__()
        self.clock = ManualClock(START)
        self.engine = Engine("scan", clock=self.clock)
        self.subscribed, self.kept = {}, {}

    @rule(subs=st.lists(st.tuples(IDS, subscriptions()), max_size=3, unique_by=lambda pair: pair[0]))
    def subscribe(self, subs):
        new = [
            Subscription(key, sub.expression, sub.region) for key, sub in subs if key not in self.subscribed
        ]
        told = self.engine.subscribe(new)
        now = self.clock.now()
        assert [(d.subscription, d.message, d.change, d.reason) for d in told] == [
            (sub.id, message.id, "+", "subscribe")
            for sub in new
            for message in self.kept.values()
            if message.expires_at > now and naive.wants(sub, message)
        ]
        self.subscribed |= {sub.id: sub for sub in new}

    @rule(data=st.data())
    def unsubscribe(self, data):
        if self.subscribed:
            key = data.draw(st.sampled_from(list(self.subscribed)))
            assert len(self.engine.unsubscribe(key)) == 0
            del self.subscribed[key]

    @rule(msgs=st.lists(st.tuples(IDS, messages(), st.sampled_from([None, 0, 1, 2, 9])), max_size=4))
    def publish(self, msgs):
        now = self.clock.now()
        new = [
            Message(
                key,
                msg.keywords,
                msg.place,
                msg.attributes,
                expires_at=None if seconds is None else now + seconds * 1_000_000,
            )
            for key, msg, seconds in msgs
        ]
        told = self.engine.publish(new)
        valid = [message for message in new if message.expires_at is None or message.expires_at > now]
        assert [(d.message, d.reason) for d in told] == [
            (message.id, "match")
            for message in valid
            for sub in self.subscribed.values()
            if naive.wants(sub, message)
        ]
        assert {(d.subscription, d.message) for d in told} == {
            (key, message.id)
            for message in valid
            for key, sub in self.subscribed.items()
            if naive.wants(sub, message)
        }
        for message in new:
            self.kept.pop(message.id, None)
            if message.expires_at is not None:
                self.kept[message.id] = message

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds):
        self.clock.advance(seconds=seconds)

    @rule()
    def expire(self):
        assert len(self.engine.expire()) == 0
        now = self.clock.now()
        self.kept = {key: message for key, message in self.kept.items() if message.expires_at > now}
        assert self.engine.stats()["kept"] == len(self.kept)

    @invariant()
    def sound(self):
        now = self.clock.now()
        assert set(self.engine) == set(self.subscribed)
        assert self.engine.stats()["kept"] >= sum(m.expires_at > now for m in self.kept.values())
        assert self.engine._kept.store.check() == []


def test_machine(monkeypatch):
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 3)
    run_state_machine_as_test(EngineMachine, settings=settings(max_examples=settings().max_examples // 2))
