"""Many random operations in bulk on every index, every store, every moving index, and the engine with each of them.

``NEARCAST_OPERATIONS=1000000 pytest --long -n 2 -s tests/stateful/test_long_run.py`` is the long form: so many
operations for each. It prints how far each one is, and what was done. ``NEARCAST_SEED`` chooses other lives.

An index and a store are compared with the scan, which the contract suite compares with the naive matcher; an engine is
compared with a model in plain Python (``engine_life.py``), and so is a moving index. Both live on the globe, the poles
and the antimeridian included, and on a plane. So do walkers with safe regions (``promises_life.py``).
"""

import os
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from answers import answers
from nearcast import (
    Message,
    MessageBatch,
    MovingIndex,
    Subscription,
    SubscriptionTable,
    build_index,
    build_store,
    config,
)
from nearcast.matching import INDEXES, MOVING, STORES
from profiles import is_rival, shortened
from stateful.contents import CONTENTS, SEED, SPACES, contents
from stateful.crowd import Crowd
from stateful.engine_life import hurry
from stateful.promises_life import WORLDS
from stateful.walks import Walks

OPERATIONS = int(os.environ.get("NEARCAST_OPERATIONS", "2500"))
WORDS, ATTRIBUTES = 40, 3
BULK = 20 if OPERATIONS < 100_000 else 60  # the most of one call: short lives need calls of every kind, too
MOST = 100  # subscriptions of an engine or a moving index, or a few more: the model looks at each of them

pytestmark = pytest.mark.timeout(4 * 3600)


class Life:
    """Counts operations by verb, and says on stderr how far they are, ten times."""

    def __init__(self, name):
        self.name, self.verbs, self.started = name, Counter(), time.monotonic()

    @property
    def done(self):
        return self.verbs.total()

    def count(self, verb, size):
        before = 10 * self.done // OPERATIONS
        self.verbs[verb] += size
        if 10 * self.done // OPERATIONS > before:
            verbs = ", ".join(f"{verb} {count:,}" for verb, count in sorted(self.verbs.items()))
            seconds = time.monotonic() - self.started
            # Not sys.stderr, which pytest-xdist takes from its workers.
            print(f"{self.name}: {self.done:,} operations, {seconds:.0f} s: {verbs}", file=sys.__stderr__)

    def __str__(self):
        return f"{self.name} after {self.done} operations, seed {SEED}"


def csr(rng, rows, most, kind=np.int32):
    counts = rng.integers(0, most + 1, rows)
    return np.append(0, np.cumsum(counts)), (rng.zipf(1.5, counts.sum()) % WORDS).astype(kind)


def boxes(rng, rows):
    low = rng.random((rows, 2)).round(2)  # two decimals: edges meet
    return np.hstack([low, low + rng.choice([0, 0.01, 0.1, 0.5, 3.0], (rows, 2))])


def subscriptions(rng, rows):
    offsets, attributes = csr(rng, rows, 1)
    low = rng.integers(0, 5, len(attributes)).astype(float)
    intervals = (
        offsets,
        attributes % ATTRIBUTES,
        low,
        low + rng.integers(0, 3, len(low)),
        rng.integers(0, 8, len(low)),
    )
    owners = np.append(0, np.cumsum(rng.random(rows - 1) < 0.8)).astype(np.int32)
    return SubscriptionTable.from_arrays(
        boxes(rng, rows), *csr(rng, rows, 4), intervals, forbidden=csr(rng, rows, 1), owners=owners
    )


def messages(rng, rows):
    values = rng.integers(0, 6, (rows, ATTRIBUTES)).astype(float)
    values[rng.random(values.shape) < 0.3] = np.nan
    if rng.random() < 0.5:
        return MessageBatch.from_arrays(rng.random((rows, 2)).round(2), *csr(rng, rows, 12), values)
    return MessageBatch.from_arrays(None, *csr(rng, rows, 12), values, boxes=boxes(rng, rows))


@pytest.mark.parametrize("name", sorted(set(INDEXES) - {"scan"}))
def test_a_long_life(name, monkeypatch):
    """Inserts, removals, moves and matches in random bulk; no mismatch, no damage."""
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 100)
    monkeypatch.setattr(config, "AUTO_VALUES_NS", 0)
    monkeypatch.setattr(config, "AUTO_SCAN", 64)
    rng = np.random.default_rng(SEED)
    empty = SubscriptionTable.from_arrays(np.empty((0, 4)), [0], [])
    pair = build_index(name, empty), build_index("scan", empty)
    alive, life = np.empty(0, np.int64), Life(f"index {name}")
    while life.done < OPERATIONS:
        size = int(rng.integers(1, 60))
        verb = rng.choice(["insert", "remove", "move", "match"], p=[0.3, 0.28, 0.12, 0.3])
        if verb == "insert":
            table = subscriptions(rng, size)
            rows = [index.insert(table) for index in pair]
            np.testing.assert_array_equal(*rows)
            alive = np.append(alive, rows[0])
        elif verb == "remove":
            gone = rng.choice(alive, min(size, len(alive)), replace=False)
            alive = np.setdiff1d(alive, gone, assume_unique=True)
            for index in pair:
                index.remove(gone)
        elif verb == "move":
            size = min(size, len(alive), 5)
            for row, box in zip(rng.choice(alive, size, replace=False), boxes(rng, size)):
                for index in pair:
                    index.move(int(row), box)
        else:
            batch = messages(rng, size)
            ours, theirs = (answers(index, batch) for index in pair)
            assert ours == theirs, str(life)
        life.count(verb, size)
        if rng.random() < 0.05:
            assert pair[0].check() == [], str(life)
    assert pair[0].store.size < life.verbs["insert"]  # rows were given out again


@pytest.mark.parametrize("name", sorted(STORES))
def test_a_long_life_of_messages(name, monkeypatch):
    """Inserts, removals, expiry, sweeps and questions in random bulk; what is there is what a scan of it finds."""
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 100)
    monkeypatch.setattr(config, "AUTO_VALUES_NS", 0)
    monkeypatch.setattr(config, "STORE_SCAN", 64)
    rng = np.random.default_rng(SEED)
    store = build_store(name, MessageBatch.from_arrays(np.empty((0, 2)), [0], []))
    there, life, now = {}, Life(f"store {name}"), 0  # by row: a batch and the row in it

    def forget(rows):
        for row in rows.tolist():
            batch, i = there.pop(row)
            assert batch.expires_at[i] <= now

    while life.done < OPERATIONS:
        size = int(rng.integers(1, 60))
        verb = rng.choice(["insert", "remove", "expire", "sweep", "match"], p=[0.4, 0.15, 0.05, 0.1, 0.3])
        if verb == "insert":
            batch = replace(messages(rng, size), expires_at=now + rng.integers(0, 300, size))
            there |= {row: (batch, i) for i, row in enumerate(store.insert(batch).tolist())}
        elif verb == "remove":
            gone = rng.choice(sorted(there), min(size, len(there)), replace=False) if there else []
            store.remove(gone)
            for row in gone:
                del there[int(row)]
        elif verb == "expire":
            forget(store.expire(now))
        elif verb == "sweep":
            forget(store.sweep(now, 2 * size))
        else:
            table = subscriptions(rng, size)
            index = build_index("scan", table)
            expected = [set() for _ in range(table.size)]
            wanted = {}  # by batch
            for row, (batch, i) in there.items():
                if batch.expires_at[i] > now:
                    found = wanted.get(id(batch)) or wanted.setdefault(id(batch), answers(index, batch))
                    for sub in found[i]:
                        expected[sub].add(row)
            assert answers(store, table, now=now) == expected, str(life)
            forget(np.setdiff1d(sorted(there), np.flatnonzero(store.rows.present)))
        assert len(store) == len(there)
        life.count(verb, size)
        now += size
        if rng.random() < 0.05:
            assert store.check() == [], str(life)
    assert store.rows.size < life.verbs["insert"]  # rows were given out again


PLANE, TOLD, SILENT = {"world": "plane"}, {"withdrawals": True}, {"withdrawals": False}


def in_words(pieces):
    return " ".join({True: "told", False: "silent"}.get(value, value) for value in pieces.values())


@pytest.mark.parametrize(
    "pieces",
    shortened(
        [{"index": name} for name in sorted(INDEXES)]
        + [{"index": "auto", "store": name} for name in sorted(STORES)]
        + [{"index": "auto", "store": "auto", **more} for more in (PLANE, SILENT, PLANE | SILENT)],
        lambda pieces: (
            not is_rival(INDEXES, pieces["index"])
            and not is_rival(STORES, pieces.get("store", "scan"))
            and ("world" in pieces) == ("withdrawals" in pieces)
        ),
    ),
    ids=in_words,
)
def test_a_long_life_of_an_engine(pieces, monkeypatch):
    """Every verb in random bulk, also save, open and compact; everyone is told exactly what they should be."""
    hurry(monkeypatch)
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 100)
    monkeypatch.setattr(config, "AUTO_SCAN", 64)
    monkeypatch.setattr(config, "STORE_SCAN", 32)
    rng = np.random.default_rng(SEED)
    crowd = type("Crowd", (Crowd,), pieces)(rng)
    life = Life(f"engine with {in_words(pieces)}")
    verbs = {
        "subscribe": 0.13,
        "unsubscribe": 0.12,
        "move": 0.15,
        "update": 0.08,
        "publish": 0.2,
        "prepare": 0.05,
        "chatter": 0.1,
        "again": 0.05,
        "expire": 0.02,
        "wait": 0.1,
    }
    while life.done < OPERATIONS:
        verb, size = rng.choice(list(verbs), p=list(verbs.values())), int(rng.integers(1, BULK))
        if verb == "subscribe" and len(crowd.subscribed) > MOST:
            verb = "unsubscribe"
        if verb in ("subscribe", "unsubscribe", "move", "update"):
            size = getattr(crowd, verb)(size)
        elif verb == "publish":
            crowd.publish_all(crowd.messages(size))
        elif verb == "prepare":
            crowd.publish_prepared()
            crowd.prepare_batch(crowd.messages(size))
        elif verb == "chatter":
            crowd.chatter(size)
        elif verb == "again" and crowd.kept:
            again = crowd.several(crowd.kept.values(), size)
            crowd.publish_all(again)
            size = len(again)
        elif verb == "expire":
            crowd.expire_all()
            size = 1
        else:
            crowd.clock.advance(seconds=1)
            verb, size = "wait", 1
        life.count(verb, size)
        if rng.random() < 0.05:
            crowd.check_soundness()
            rng.choice([crowd.save_and_open, crowd.engine.compact])()
    assert crowd.renewals > 0


@pytest.mark.parametrize(
    "pieces",
    shortened(
        [{"world": world, **more} for world in WORLDS for more in (TOLD, SILENT)],
        lambda pieces: pieces == PLANE | TOLD,
    ),
    ids=in_words,
)
def test_a_long_life_with_safe_regions(pieces, monkeypatch):
    """Walkers report only when they must; nobody misses a message, and all come in the order that is promised."""
    hurry(monkeypatch)
    rng = np.random.default_rng(SEED)
    walks = type("Walks", (Walks,), pieces)(rng)
    life = Life(f"safe regions, {in_words(pieces)}")
    while life.done < OPERATIONS:
        life.count(*walks.step())
        if rng.random() < 0.05:
            walks.check()
            rng.choice([walks.save_and_open, walks.engine.compact])()
    assert walks.asked > OPERATIONS / 50  # nobody is asked if there is nothing to promise


class Herd:
    """A moving index, and a model of it: what each subscription asks for, and what each message says, by number."""

    def __init__(self, name, world, rng):
        self.rng, self.contents, self.now = rng, contents(world), 0
        texts, regions = self.contents.expressions, self.contents.regions
        # One table and one batch of all contents, from which all that happens is taken: they share their codes.
        self.pairs = [
            divmod(pair, CONTENTS) for pair in rng.integers(CONTENTS**2, size=10 * CONTENTS).tolist()
        ]
        self.table = SubscriptionTable.from_subscriptions(
            [Subscription(i, texts[e], regions[r]) for i, (e, r) in enumerate(self.pairs)]
        )
        messages = [Message(i, *message) for i, message in enumerate(self.contents.messages)]
        self.batch = MessageBatch.from_messages(messages, like=self.table, learn=True)
        self.live = MovingIndex(name, self.table.take([]))
        self.asked, self.said = {}, {}  # by row: an expression and a region; a message and when it ends

    def some(self, size):
        rows = sorted(self.asked)
        return self.rng.choice(rows, min(size, len(rows)), replace=False).tolist() if rows else []

    def wants(self, row, said):
        return self.contents.wanted(*self.asked[row])[said]

    def reached(self, row):
        return {key for key, (said, end) in self.said.items() if end > self.now and self.wants(row, said)}

    def wishes(self, size):
        """Return numbers of subscriptions in the table."""
        return self.rng.integers(len(self.pairs), size=size).tolist()

    def insert(self, size):
        wishes = self.wishes(size)
        rows, found = self.live.insert(self.table.take(wishes), self.now)
        assert not set(rows.tolist()) & self.asked.keys()
        for number, (row, wish) in enumerate(zip(rows.tolist(), wishes)):
            self.asked[row] = self.pairs[wish]
            assert sorted(found[number].tolist()) == sorted(self.reached(row))
        return size

    def remove(self, size):
        rows = self.some(size)
        self.live.remove(rows)
        for row in rows:
            del self.asked[row]
        return len(rows)

    def change(self, rows, do, asked):
        """Do something to subscriptions, which then ask for something else; check what came and what went."""
        before = [self.reached(row) for row in rows]
        came, went = do()
        self.asked |= dict(zip(rows, asked))
        for number, row in enumerate(rows):
            after = self.reached(row)
            assert sorted(came[number].tolist()) == sorted(after - before[number])
            assert sorted(went[number].tolist()) == sorted(before[number] - after)
        return len(rows)

    def move(self, size):
        rows = self.some(size)
        numbers = self.rng.integers(CONTENTS, size=len(rows)).tolist()
        regions = [self.contents.regions[number] for number in numbers]
        asked = [(self.asked[row][0], number) for row, number in zip(rows, numbers)]
        return self.change(rows, lambda: self.live.move(rows, regions, self.now), asked)

    def update(self, size):
        rows = self.some(size)
        wishes = self.wishes(len(rows))
        new = self.table.take(wishes)
        return self.change(
            rows, lambda: self.live.update(rows, new, self.now), [self.pairs[w] for w in wishes]
        )

    def publish(self, size):
        said = self.rng.integers(CONTENTS, size=size)
        ends = self.now + self.rng.choice([0, 30, 100, 300], size)
        found = self.live.publish(replace(self.batch.take(said), expires_at=ends), self.now)
        self.said = {key: value for key, value in self.said.items() if value[1] > self.now}
        for number, row in enumerate(self.live.published.tolist()):
            wanted = [sub for sub in self.asked if self.wants(sub, said[number])]
            assert sorted(found[number].tolist()) == sorted(wanted)
            if row >= 0:
                assert row not in self.said
                self.said[row] = int(said[number]), int(ends[number])
        return size

    def expire(self, _):
        self.live.expire(self.now)
        return 1


@pytest.mark.parametrize("world", SPACES)
@pytest.mark.parametrize("name", shortened(sorted(MOVING), lambda name: not is_rival(MOVING, name)))
def test_a_long_life_of_those_who_move(name, world, monkeypatch):
    """Every verb in random bulk; what came into reach and what went out of it is told, and nothing else."""
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 100)
    monkeypatch.setattr(config, "AUTO_SCAN", 64)
    monkeypatch.setattr(config, "STORE_SCAN", 64)
    rng = np.random.default_rng(SEED)
    herd, life = Herd(name, world, rng), Life(f"moving {name}, {world}")
    verbs = {"insert": 0.15, "remove": 0.14, "move": 0.35, "update": 0.1, "publish": 0.23, "expire": 0.03}
    while life.done < OPERATIONS:
        verb, size = rng.choice(list(verbs), p=list(verbs.values())), int(rng.integers(1, BULK))
        if verb == "insert" and len(herd.asked) > MOST:
            verb = "remove"
        life.count(verb, getattr(herd, verb)(size))
        herd.now += 10
        if rng.random() < 0.05:
            assert herd.live.check() == [], str(life)
    assert max(herd.asked) < life.verbs["insert"]  # rows were given out again
