"""Run by ``test_damage``, in a process of its own: save something, flip bits in its files, open it and ask it.

Prints, by name, how often opening raised the named error, the answer was the same, and the answer was another. Anything
else, another exception or a crash, ends the process.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from nearcast import (
    CountWindow,
    Engine,
    IndexFileError,
    MessageBatch,
    MovingIndex,
    Planar,
    RelationGraph,
    SubscriptionTable,
    TopK,
    build_index,
    build_store,
    config,
    open_index,
    open_store,
)
from nearcast.sharding.building import build_sharded
from nearcast.sharding.distribution import distribute
from nearcast.sharding.distribution.files import open_distribution, save_distribution
from nearcast.storage.places import place_at

FEW = 16_384  # bytes of floats that are always read here, so that coordinates are not


def subscriptions(rng, n, words=True):
    low = rng.random((n, 2))
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 4, n) * words)])
    tests = np.concatenate([[0], np.cumsum(rng.random(n) < 0.4)])
    lows = rng.random(tests[-1])
    return SubscriptionTable.from_arrays(
        np.hstack([low, low + rng.choice([0.01, 0.3], (n, 2))]),
        offsets,
        rng.zipf(1.4, offsets[-1]) % 99,
        (tests, rng.integers(0, 3, tests[-1]), lows, lows + 0.3),
    )


def messages(rng, n):
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 9, n))])
    return MessageBatch.from_arrays(
        rng.random((n, 2)), offsets, rng.zipf(1.4, offsets[-1]) % 99, rng.random((n, 3))
    )


def pairs(found):
    return sorted(zip(*found.pairs().tolist()))


def index(name, rng):
    sample = messages(rng, 50)
    made = build_index(name, subscriptions(rng, 2_000), messages=sample)
    made.remove(range(0, 300, 7))
    made.insert(subscriptions(rng, 200))
    return made.save, open_index, lambda one: pairs(one.match(sample))


def store(name, rng):
    sample = subscriptions(rng, 50)
    made = build_store(name, messages(rng, 2_000), subscriptions=sample)
    made.remove(range(0, 300, 7))
    return made.save, open_store, lambda one: pairs(one.match(sample))


def moving(name, rng):
    made = MovingIndex(name, subscriptions(rng, 1_000))
    made.publish(replace(messages(rng, 1_000), expires_at=np.full(1_000, 9)), 1)
    made.remove(range(0, 300, 7))
    boxes = rng.random((50, 2)).repeat(2, 0).reshape(50, 4)
    return (
        made.save,
        MovingIndex.open,
        lambda one: [pairs(found) for found in one.move(range(1, 351, 7), boxes, 2)],
    )


def graph(name, rng):
    made = RelationGraph(name)
    words = name in ("forest", "clause-scan")
    made.unsubscribe(made.subscribe(subscriptions(rng, 1_000, words)).rows[::7])
    asked = subscriptions(rng, 50, words)
    return made.save, RelationGraph.open, lambda one: pairs(one.covering(asked))


def engine(name, rng):
    made = Engine(name)
    lon, lat = rng.random((2, 1_000))
    words = [[f"w{code}"] for code in (rng.zipf(1.4, 1_000) % 99).tolist()]
    ids = [f"s{row}" for row in range(1_000)]
    made.subscribe({"id": ids, "keywords": words, "lon": lon, "lat": lat, "radius_m": [30_000.0] * 1_000})
    sent = {"id": ids[:50], "keywords": words[:50], "lon": lat[:50], "lat": lon[:50]}
    made.publish(sent | {"expires_at": [2**60] * 50})
    return made.save, Engine.open, lambda one: one.match(sent).to_pylist()


def topk(name, rng):
    space = Planar(0, 0, 1, 1)

    def drawn(n):
        return rng.random((n, 2)), np.arange(n + 1), rng.zipf(1.4, n) % 99

    made = TopK(CountWindow(2_000), space=space, index=name)
    made.subscribe(*drawn(2_000), alpha=rng.random(2_000), k=5)
    made.publish(MessageBatch.from_arrays(*drawn(2_500), space=space))
    more = MessageBatch.from_arrays(*drawn(50), space=space)
    return made.save, TopK.open, lambda one: one.publish(more).to_arrow().to_pylist()


def distribution(name, rng):
    table, batch = subscriptions(rng, 1_000), messages(rng, 200)
    made = distribute(name, table, 6)

    def routes(one):
        routed = one.route_subscriptions(table), one.route_messages(batch)
        return [part.tolist() for route in routed for part in route]

    return (
        lambda home: save_distribution(made, table.coding, home),
        lambda home, **how: open_distribution(home, **how)[0],
        routes,
    )


def shards(name, rng):
    n = 500
    lon, lat = rng.random((2, n))
    words = [[f"w{code}"] for code in (rng.zipf(1.4, n) % 99).tolist()]
    ids = pa.array([f"s{row:03}" for row in range(n)])
    table = {"id": ids, "keywords": words, "lon": lon, "lat": lat, "radius_m": [30_000.0] * n}
    sent = {"keywords": words[:50], "lon": lat[:50], "lat": lon[:50]}

    def save(home):
        build_sharded(place_at(home), pa.table(table), index="auto", distribution=name, shards=3)
        return home

    def ask(one):
        one.check()
        rows = one.rows_with_ids(ids[::9]).to_pylist()
        return pairs(one.match(MessageBatch.from_arrow(sent, like=one))), rows, one.ids.to_pylist()

    return save, open_index, ask


def main(what, home, flips, *names):
    config.STORAGE_ALWAYS_READ = FEW
    sys.stdout.write(json.dumps({name: damage(what, name, Path(home) / name, int(flips)) for name in names}))


def damage(what, name, home, flips):
    """Flip at least as many bits, and one in each file; return what came of it."""
    rng = np.random.default_rng(0)
    save, opened, ask = globals()[what](name, rng)
    directory = save(home)
    expected = ask(opened(directory))
    told = {"named": 0, "same": 0, "other": 0}
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.stat().st_size)
    for path in files * -(-flips // len(files)):
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            told["same" if ask(opened(directory)) == expected else "other"] += 1
        except IndexFileError:
            told["named"] += 1
        try:
            opened(directory, verify=True)
        except IndexFileError:
            pass
        else:
            raise AssertionError(f"verify=True did not see the damage to {path}")
        path.write_bytes(content)
    return told


if __name__ == "__main__":
    main(*sys.argv[1:])
