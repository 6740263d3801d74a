"""Many random operations in bulk on every index, every store, and the engine with each of them.

``NEARCAST_OPERATIONS=1000000 pytest --long -n 2 -s tests/stateful/test_long_run.py`` is the long form: so many
operations for each. It prints how far each one is, and what was done. ``NEARCAST_SEED`` chooses other lives.

An index and a store are compared with the scan, which the contract suite compares with the naive matcher; an engine is
compared with a model in plain Python (``engine_life.py``).
"""

import os
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from answers import answers
from nearcast import (
    EVERYWHERE,
    Box,
    Circle,
    Message,
    MessageBatch,
    Point,
    Polygon,
    Subscription,
    SubscriptionTable,
    build_index,
    build_store,
    config,
)
from nearcast.matching import INDEXES, STORES
from nearcast.predicates import ANYTHING, attribute, word
from profiles import is_rival, shortened
from stateful.engine_life import SECOND, EngineLife, hurry

OPERATIONS = int(os.environ.get("NEARCAST_OPERATIONS", "4000"))
SEED = int(os.environ.get("NEARCAST_SEED", "20261115"))
WORDS, ATTRIBUTES = 40, 3
CONTENTS, KNOWN = 100, {}  # of subscriptions and messages in engines; which want which

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


class Crowd(EngineLife):
    """An engine whose subscriptions and messages have few contents: the naive matcher compares each pair once."""

    def __init__(self, rng):
        super().__init__()
        self.rng, self.serial = rng, 0

    def pick(self, *values):
        return values[self.rng.integers(len(values))]

    def several(self, values, most):
        """Pick *most* of them, or as many as there are."""
        values = list(values)
        count = min(len(values), most)
        return [values[at] for at in self.rng.choice(len(values), count, replace=False)]

    def wants(self, subscription, message):
        if subscription.id < 0 or message.id < 0:  # with fresh words
            return super().wants(subscription, message)
        contents = id(subscription.expression), id(subscription.region), id(message.place)
        if contents not in KNOWN:
            KNOWN[contents] = super().wants(subscription, message)
        return KNOWN[contents]

    def subscribe(self, size):
        new = []
        for wish in self.rng.integers(CONTENTS, size=size).tolist():
            self.serial += 1
            new.append(Subscription(self.serial, *wishes()[wish]))
        self.subscribe_all(new)

    def wishes_for(self, size):
        """Return some subscribers, one of whom may come twice, and a wish for each."""
        keys = self.several([key for key in self.subscribed if key > 0], size)
        keys += keys[:1]
        return [(key, wishes()[wish]) for key, wish in zip(keys, self.rng.integers(CONTENTS, size=len(keys)))]

    def move(self, size):
        self.move_all([(key, region) for key, (_, region) in self.wishes_for(size)])

    def update(self, size):
        self.update_all([Subscription(key, *wish) for key, wish in self.wishes_for(size)])

    def messages(self, size):
        now, new = self.clock.now(), []
        for _ in range(size):
            start = self.pick(None, None, None, now + 2 * SECOND)
            end = self.pick(None, now + SECOND, now + 3 * SECOND, now + 9 * SECOND)
            if start and end and end < start:
                end = start + SECOND
            content, key = contents()[self.rng.integers(CONTENTS)], int(self.rng.integers(80))
            new.append(Message(key, *content, published_at=start, expires_at=end))
        return new

    def chatter(self, size):
        """Publish messages with fresh words, and replace two subscriptions to earlier ones."""
        self.publish_fresh([-key for key in range(1, size + 1)], 2)
        self.unsubscribe_all([key for key in self.subscribed if key < 0])
        self.subscribe_to_fresh([-1, -2])


@cache
def wishes():
    draw = random.Random(SEED)
    return [(expression(draw), region(draw)) for _ in range(CONTENTS)]


@cache
def contents():
    draw = random.Random(SEED + 1)
    return [(words(draw), place(draw), values(draw)) for _ in range(CONTENTS)]


def expression(draw):
    """Up to three words, prices and brands, joined in one way or another."""
    price, brand, flood = attribute("price"), attribute("brand"), word("flood")
    leaves = word("tea"), word("milk"), word("storm"), price < 1.5, price != 1, brand == "a", brand != "b"
    one, two, three = draw.choices(leaves, k=3)
    return draw.choice([ANYTHING, one, one & flood, one | two, flood & ~one, (one | two) & three | two])


def region(draw):
    x, y = draw.randint(-3, 2), draw.randint(-3, 2)
    return draw.choice(
        [
            EVERYWHERE,
            Box(x, y, x + 2, y + 1),
            Box(177 + x, y, x - 177, y + 2),  # across the antimeridian
            Circle(lon=x, lat=y, radius=150_000),
            Polygon(f"POLYGON (({x} {y}, {x + 2} {y}, {x} {y + 3}, {x} {y}))"),
        ]
    )


def words(draw):
    return [word for word in ("tea", "milk", "storm", "flood") if draw.random() < 0.5]


def place(draw):
    x, y = draw.randint(-6, 6) / 2, draw.randint(-6, 6) / 2
    return draw.choice([Point(lon=x, lat=y), Point(lon=180, lat=y), Box(x, y, x + 1, y + 1)])


def values(draw):
    known = {"price": draw.choice([0.0, 1.0, 2.5]), "brand": draw.choice("abc")}
    return {name: value for name, value in known.items() if draw.random() < 0.8}


@pytest.mark.parametrize(
    "pieces",
    shortened(
        [{"index": name} for name in sorted(INDEXES)]
        + [{"index": "auto", "store": name} for name in sorted(STORES)],
        lambda pieces: (
            not any(is_rival({"index": INDEXES, "store": STORES}[kind], pieces[kind]) for kind in pieces)
        ),
    ),
    ids=lambda pieces: " ".join(pieces.values()),
)
def test_a_long_life_of_an_engine(pieces, monkeypatch):
    """Every verb in random bulk, also save, open and compact; everyone is told exactly what they should be."""
    hurry(monkeypatch)
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 100)
    monkeypatch.setattr(config, "AUTO_SCAN", 64)
    monkeypatch.setattr(config, "STORE_SCAN", 32)
    rng = np.random.default_rng(SEED)
    crowd = type("Crowd", (Crowd,), pieces)(rng)
    life = Life(f"engine with {' and store '.join(pieces.values())}")
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
        verb, size = rng.choice(list(verbs), p=list(verbs.values())), int(rng.integers(1, 20))
        if verb == "subscribe":
            crowd.subscribe(size)
        elif verb == "unsubscribe" and crowd.subscribed:
            gone = crowd.several(crowd.subscribed, size)
            crowd.unsubscribe_all(gone)
            size = len(gone)
        elif verb in ("move", "update"):
            getattr(crowd, verb)(size)
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
        if rng.random() < 0.02:
            crowd.check_soundness()
            rng.choice([crowd.save_and_open, crowd.engine.compact])()
    assert crowd.renewals > 0
