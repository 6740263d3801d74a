"""An engine beside a model of it in plain Python: every verb is done to both, and everyone is told what they should be.

``naive.wants`` decides who wants what; the model adds time, ids and what was told before.
"""

import tempfile
from pathlib import Path

import pytest

import naive
from nearcast import Engine, ManualClock, Message, MessageBatch, Point, Subscription
from nearcast.errors import ColumnError
from nearcast.geometry import WGS84

START = 1_000_000
SECOND = 1_000_000


def content(message):
    """Return what makes a message under an id another one."""
    place = message.place
    return message.keywords, place.boxes(), place.exact or place, dict(message.attributes), message.expires_at


class EngineLife:
    """The model: subscriptions by id, kept messages by id in the order of publication, those to come by id."""

    index, store, space, withdrawals = "scan", "scan", WGS84, True

    def __init__(self):
        super().__init__()
        self.clock = ManualClock(START)
        self.engine = Engine(
            self.index,
            store=self.store,
            space=self.space,
            clock=self.clock,
            withdrawals=self.withdrawals,
        )
        self.subscribed, self.kept, self.coming, self.held = {}, {}, {}, 0
        self.fresh, self.renewals, self.prepared = 2, 0, None

    def wants(self, subscription, message):
        return naive.wants(subscription, message)

    def wanting(self, message):
        return {key for key, sub in self.subscribed.items() if self.wants(sub, message)}

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
        return told + self.withdrawn(before - wanting, message, "replace")

    def withdrawn(self, keys, message, reason):
        return [(key, message.id, "-", reason) for key in keys if self.withdrawals]

    def due(self):
        """Let time pass: tell what has expired, and publish what has come due; return what is told."""
        now, told = self.clock.now(), []
        for key, message in list(self.kept.items()):
            if message.expires_at <= now:
                del self.kept[key]
                told += self.withdrawn(self.wanting(message), message, "expire")
        for key, (time, _, message) in sorted(self.coming.items(), key=lambda pair: pair[1][:2]):
            if time <= now:
                del self.coming[key]
                told += self.published(message, now)
        return told

    def settled(self, due, own, keys):
        """Return what has come due, and what a call told the subscriptions with *keys*, without what cancels out."""
        before = {t[:2]: t for t in due if t[0] in keys and t[3] != "expire"}
        pairs = {t[:2] for t in own if t[:2] in before and before[t[:2]][2] != t[2]}
        gone = {before[pair] for pair in pairs}
        return [t for t in due if t not in gone], [t for t in own if t[:2] not in pairs]

    def check(self, told, expected):
        """Compare; the order of subscriptions within a message is not promised."""
        assert sorted((d.subscription_id, d.message_id, d.change, d.reason) for d in told) == sorted(expected)

    # --- Verbs -----------------------------------------------------------------------------------------------------

    def subscribe_all(self, new):
        coding = self.engine.coding
        told = self.engine.subscribe(new)
        self.renewals += not self.engine.coding.fits(coding)
        due = self.due()
        now = self.clock.now()
        late = [
            (sub.id, message.id, "+", "subscribe")
            for sub in new
            for message in self.kept.values()
            if message.expires_at > now and self.wants(sub, message)
        ]
        found = [(d.subscription_id, d.message_id, d.change, d.reason) for d in told]
        assert found[len(due) :] == late
        assert sorted(found[: len(due)]) == sorted(due)
        self.subscribed |= {sub.id: sub for sub in new}

    def unsubscribe_all(self, keys):
        told = self.engine.unsubscribe(keys)
        due = self.due()
        left = [
            told
            for key in keys
            for m in self.reached(key)
            for told in self.withdrawn([key], m, "unsubscribe")
        ]
        due, left = self.settled(due, left, keys)
        self.check(told, due + left)
        for key in keys:
            del self.subscribed[key]

    def reached(self, key):
        """Return the kept messages that a subscription reaches, in the order of publication."""
        now = self.clock.now()
        valid = [message for message in self.kept.values() if message.expires_at > now]
        return [message for message in valid if self.wants(self.subscribed[key], message)]

    def replace_all(self, new, reason, do):
        """Replace subscriptions, of which the last with an id counts, by calling *do*; check what everyone is told."""
        coding = self.engine.coding
        told = [(d.subscription_id, d.message_id, d.change, d.reason) for d in do()]
        self.renewals += not self.engine.coding.fits(coding)
        due, changed = self.due(), []
        last = {sub.id: at for at, sub in enumerate(new)}
        for key in sorted(last, key=last.get):
            before = {message.id for message in self.reached(key)}
            self.subscribed[key] = new[last[key]]
            after = {message.id for message in self.reached(key)}
            changes = [(m.id, "+" if m.id in after else "-") for m in self.kept.values()]
            changed += [(key, m, change, reason) for m, change in changes if (m in before) != (m in after)]
        due, changed = self.settled(due, changed, last)
        assert sorted(told[: len(due)]) == sorted(due)
        assert told[len(due) :] == changed

    def move_all(self, moves):
        """Move subscriptions: pairs of an id and a region, in one call."""
        new = [
            type(sub)(key, sub.expression, region) for key, region in moves for sub in [self.subscribed[key]]
        ]
        ids, regions = [key for key, _ in moves], [region for _, region in moves]
        self.replace_all(new, "move", lambda: self.engine.move(ids, regions))

    def update_all(self, new):
        self.replace_all(new, "update", lambda: self.engine.update(new))

    def publish_all(self, new, batch=None):
        """Publish messages, or a batch of them that was made before."""
        now, coding = self.clock.now(), self.engine.coding
        told = self.engine.publish(new if batch is None else batch)
        self.renewals += not self.engine.coding.fits(coding)
        expected = self.due()
        for message in new:
            self.coming.pop(message.id, None)
            if message.published_at is not None and message.published_at > now:
                self.held += 1
                self.coming[message.id] = (message.published_at, self.held, message)
            else:
                expected += self.published(message, now)
        self.check(told, expected)

    def publish_fresh(self, keys, seconds):
        """Publish messages with words, strings and attributes that nobody has used; some of them are kept."""
        now, new = self.clock.now(), []
        middle = Point(x=0, y=0, space=self.space)
        for key in keys:
            self.fresh += 1
            words, values = [f"fresh{self.fresh}", f"fresh{self.fresh - 1}"], {f"fresh{self.fresh}": "new"}
            values |= {"brand": f"brand{self.fresh}"}
            new.append(Message(key, words, middle, values, expires_at=now + seconds * SECOND))
        self.publish_all(new)

    def subscribe_to_fresh(self, keys):
        """Ask for words, strings and attributes that came last, or that are still to come."""
        asked = [
            f'fresh{self.fresh - 2} OR fresh{self.fresh} OR brand = "brand{self.fresh}"',
            f'fresh{self.fresh + 1} OR fresh{self.fresh} = "new"',
        ]
        self.subscribe_all([Subscription(key, text) for key, text in zip(keys, asked)])

    def prepare_batch(self, new):
        """Make a batch, to be published later."""
        self.prepared = new, MessageBatch.from_messages(new, like=self.engine, learn=True)

    def publish_prepared(self):
        """Publish the batch; it is refused if codes may have got another meaning since it was made."""
        if self.prepared is not None:
            (new, batch), self.prepared = self.prepared, None
            if batch.coding.fits(self.engine.coding):
                self.publish_all(new, batch)
            else:
                with pytest.raises(ColumnError, match="like=engine"):
                    self.engine.publish(batch)

    def expire_all(self):
        told = self.engine.expire()
        self.check(told, self.due())
        now = self.clock.now()
        self.kept = {key: message for key, message in self.kept.items() if message.expires_at > now}
        assert self.engine.stats()["kept"] == len(self.kept)

    def save_and_open(self):
        """Save the engine, and go on with what is opened."""
        with tempfile.TemporaryDirectory() as folder:
            self.engine.save(Path(folder) / "engine")
            opened = Engine.open(Path(folder) / "engine", clock=self.clock, verify=True)
        assert list(opened) == list(self.engine)
        assert opened.stats()["coming"] == self.engine.stats()["coming"]
        self.engine = opened

    def check_soundness(self):
        now = self.clock.now()
        assert set(self.engine) == set(self.subscribed)
        assert self.engine.stats()["kept"] >= sum(m.expires_at > now for m in self.kept.values())
        assert self.engine.stats()["coming"] == len(self.coming)
        assert self.engine._valid.store.check() == []
        assert self.engine._index.check() == []


def hurry(monkeypatch):
    """Let all that happens now and then happen often."""
    from nearcast import config

    monkeypatch.setattr("os.fsync", lambda file: None)  # many saves, none of which has to survive
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 3)
    monkeypatch.setattr(config, "ID_MIN_DEAD", 3)
    monkeypatch.setattr(config, "ID_MOVES_A_CALL", 1)
    monkeypatch.setattr(config, "ID_MOVES", 1)
    monkeypatch.setattr(config, "ENGINE_COMPACT_WORDS", 4)
    monkeypatch.setattr(config, "ENGINE_CENSUS_ROWS", 4)
    monkeypatch.setattr(config, "ENGINE_CENSUS_SHARE", 1)
    monkeypatch.setattr(config, "ENGINE_CENSUS_SLOTS", 16)
    monkeypatch.setattr(config, "CODES_SEARCHED", 2)
