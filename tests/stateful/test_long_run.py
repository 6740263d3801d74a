"""Many random operations in bulk, each index and store beside the scan: 10,000 a run, more with NEARCAST_OPERATIONS.

The scan itself is compared with the naive matcher in the contract suite; here it is the fast oracle.
"""

import os
from dataclasses import replace

import numpy as np
import pytest

from answers import answers
from nearcast import MessageBatch, SubscriptionTable, build_index, build_store, config
from nearcast.matching import INDEXES, STORES

OPERATIONS = int(os.environ.get("NEARCAST_OPERATIONS", "10000"))
SEED = int(os.environ.get("NEARCAST_SEED", "20261115"))
WORDS, ATTRIBUTES = 40, 3


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


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", sorted(set(INDEXES) - {"scan"}))
def test_a_long_life(name, monkeypatch):
    """Inserts, removals, moves and matches in random bulk; no mismatch, no damage."""
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 100)
    monkeypatch.setattr(config, "AUTO_VALUES_NS", 0)
    monkeypatch.setattr(config, "AUTO_SCAN", 64)
    rng = np.random.default_rng(SEED)
    empty = SubscriptionTable.from_arrays(np.empty((0, 4)), [0], [])
    pair = build_index(name, empty), build_index("scan", empty)
    alive, done = np.empty(0, np.int64), 0
    while done < OPERATIONS:
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
            assert ours == theirs, f"after {done} operations, seed {SEED}"
        done += size
        if rng.random() < 0.05:
            assert pair[0].check() == [], f"after {done} operations, seed {SEED}"
    assert pair[0].stats()["compactions"] > 0


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", sorted(STORES))
def test_a_long_life_of_messages(name, monkeypatch):
    """Inserts, removals, expiry, sweeps and questions in random bulk; what is there is what a scan of it finds."""
    monkeypatch.setattr(config, "COMPACT_MIN_DEAD", 100)
    monkeypatch.setattr(config, "AUTO_VALUES_NS", 0)
    monkeypatch.setattr(config, "STORE_SCAN", 64)
    rng = np.random.default_rng(SEED)
    store = build_store(name, MessageBatch.from_arrays(np.empty((0, 2)), [0], []))
    there, done, now = {}, 0, 0  # by row: a batch and the row in it

    def forget(rows):
        for row in rows.tolist():
            batch, i = there.pop(row)
            assert batch.expires_at[i] <= now

    while done < OPERATIONS:
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
            assert answers(store, table, now=now) == expected, f"after {done} operations, seed {SEED}"
            forget(np.setdiff1d(sorted(there), np.flatnonzero(store.rows.present)))
        assert len(store) == len(there)
        done += size
        now += size
        if rng.random() < 0.05:
            assert store.check() == [], f"after {done} operations, seed {SEED}"
    assert store.stats()["compactions"] > 0
