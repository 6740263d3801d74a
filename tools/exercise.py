"""Use every door of the package once, in small and in large: what `tools/build_wheel.py` compiles kernels for.

python tools/exercise.py [DOOR …]
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nearcast import (
    Box,
    Circle,
    CountWindow,
    DocumentFrequencies,
    Engine,
    ManualClock,
    Message,
    MessageBatch,
    MovingIndex,
    Point,
    Polygon,
    RelationGraph,
    Subscription,
    SubscriptionTable,
    TimeWindow,
    TopK,
    build_index,
    build_store,
    open_index,
    open_store,
)
from nearcast.matching import INDEXES, STORES
from nearcast.registry import Registry
from nearcast.sharding.distribution import DISTRIBUTIONS, delivering_shards, distribute
from nearcast.sharding.distribution.files import open_distribution, save_distribution

HERE = Point(lon=-73.99, lat=40.73)
AROUND = Circle(lon=-73.99, lat=40.73, radius=900)
LARGE = 30_000  # too many subscriptions for a scan


def readme() -> None:
    """Run the README's ten lines."""
    engine = Engine()
    nearby = Circle(lon=-73.99, lat=40.73, radius=800)
    engine.subscribe(Subscription("anna", 'coffee AND (discount OR "happy hour") NOT decaf', nearby))
    list(engine.publish(Message("m1", "Coffee discount until noon", Point(lon=-73.991, lat=40.731))))


def tables(count: int) -> tuple[pa.Table, pa.Table]:
    """Return subscriptions with expressions, and messages, both with words, values and places."""
    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in rng.zipf(1.3, 3 * count) % 5000]
    expressions = [
        f"{words[3 * i]} AND {words[3 * i + 1]}"
        + (f" AND price < {i % 90}" if i % 2 else f" NOT never{i % 9}")
        for i in range(count)
    ]
    place = {"lon": rng.uniform(-74, -73, count), "lat": rng.uniform(40, 41, count)}
    subscriptions = pa.table(
        {
            "id": [f"s{i}" for i in range(count)],
            "expression": expressions,
            **place,
            "radius_m": np.full(count, 900.0),
        }
    )
    messages = pa.table(
        {
            "id": [f"m{i}" for i in range(count)],
            "text": [" ".join(words[3 * i : 3 * i + 9]) for i in range(count)],
            "price": rng.uniform(0, 100, count),
            "kind": [f"kind{i % 7}" for i in range(count)],
            **place,
            "expires_at": np.full(count, 2**52),
        }
    )
    return subscriptions, messages


def engines() -> None:
    """Subscribe, publish, match and unsubscribe, with objects and with tables, few and many."""
    triangle = Polygon("POLYGON ((-75 40, -73 40, -73 42, -75 40))")
    regions = [Box(-75, 40, -73, 42), Circle(lon=-73.99, lat=40.73, radius=900), triangle]
    for count in (50, LARGE):
        subscriptions, messages = tables(count)
        clock = ManualClock(0)
        engine = Engine(clock=clock, withdrawals=True)
        engine.publish(messages.slice(0, 40))
        engine.subscribe(subscriptions)
        engine.subscribe(
            [Subscription(f"r{i}", "storm AND price < 3", region) for i, region in enumerate(regions)]
        )
        engine.publish(messages).to_arrow()
        engine.publish(messages.drop_columns(["expires_at"]))
        engine.publish(messages.slice(0, 1))
        engine.publish(Message("one", "storm word1", HERE, {"price": 1, "kind": "kind1"}, expires_at=2**52))
        engine.publish(Message("one", "storm word1", Box(-74, 40, -73, 41), {"price": 1}, expires_at=2**52))
        engine.match(messages, threads=2)
        engine.safe_region(["r1"]).to_arrow()
        engine.publish(Message("two", "storm", Point(lon=-73.98, lat=40.73), {"price": 1}))
        engine.move("r1", HERE)
        engine.safe_region([f"s{i}" for i in range(20)])
        moves = pa.table(
            {"id": [f"s{i}" for i in range(20)], "lon": np.full(20, -73.5), "lat": np.linspace(40, 41, 20)}
        )
        engine.move(moves)
        engine.move(["r0", "r1", "r2"], [regions[1], regions[2], regions[0]])
        engine.update(Subscription("r0", "storm OR word1", triangle))
        engine.update(subscriptions.slice(5, 20))
        engine.explain(Message("one", "storm", HERE), "r0")
        with tempfile.TemporaryDirectory() as place:
            engine = Engine.open(engine.save(Path(place) / "engine"), clock=clock, verify=True)
        engine.publish(messages.slice(0, 20))
        engine.compact()
        engine.unsubscribe([f"s{i}" for i in range(0, count, 3)])
        engine.unsubscribe("r0")
        clock.advance(seconds=2**33)
        engine.expire()
        keywords = pa.table({"id": ["k1", "k2"], "keywords": [["tea"], ["tea", "milk"]]})
        engine.subscribe(keywords)
        engine.stats()


def products(registry: Registry[Any]) -> list[str]:
    """Return the names of what is not only there for comparison."""
    return [name for name in registry if ".rivals." not in registry[name].__module__]


def indexes() -> None:
    """Build, change, save and open every index and store, except rivals."""
    for count in (50, LARGE):
        subscriptions, messages = tables(count)
        table = SubscriptionTable.from_arrow(subscriptions)
        batch = MessageBatch.from_arrow(messages, like=table)
        for name in products(INDEXES):
            index = build_index(name, table)
            index.match(batch.take(np.arange(50)))
            with tempfile.TemporaryDirectory() as place:
                opened = open_index(index.save(Path(place) / "index"))
                opened.match(MessageBatch.from_arrow(messages.slice(0, 50), like=opened))
                opened.insert(table.take(np.arange(20)))
                opened.remove([0, 1, 2])
                opened.move([3, 4], [AROUND, AROUND])
                opened.update([5, 6], table.take(np.arange(2)))
                opened.compact()
        kept = MessageBatch.from_arrow(messages, like=table, learn=True)
        for name in products(STORES):
            store = build_store(name, kept)
            with tempfile.TemporaryDirectory() as place:
                opened = open_store(store.save(Path(place) / "store"))
            opened.match(SubscriptionTable.from_arrow(subscriptions.slice(0, 50), like=opened), now=0)
            opened.insert(MessageBatch.from_arrow(messages.slice(0, 20), like=opened, learn=True))
            opened.remove([0, 1, 2])
            opened.expire(2**53)


def moving() -> None:
    """Let subscriptions move and messages come and expire, in both kinds of moving indexes."""
    for count in (50, LARGE):
        subscriptions, messages = tables(count)
        table = SubscriptionTable.from_arrow(subscriptions)
        batch = MessageBatch.from_arrow(messages, like=table, learn=True)
        some = np.arange(20)
        for name in ("auto", "ap-plus-tree"):
            live = MovingIndex(name, table, batch.take(some))
            live.publish(batch, 1)
            live.move(some, [AROUND] * 20, 2)
            live.update(some, table.take(some), 2)
            live.insert(table.take(some), 2)
            with tempfile.TemporaryDirectory() as place:
                live = MovingIndex.open(live.save(Path(place) / "live"))
            live.move(some, [sub.region for sub in table.take(some).to_subscriptions()], 2)
            live.forget([0, 1])
            live.remove([0, 1])
            live.expire(2**53)
            live.check()
            live.stats()


def ranking() -> None:
    """Rank messages in both kinds of windows."""
    for window in (CountWindow(500), TimeWindow(3600)):
        subscriptions, messages = tables(2000)
        messages = messages.select(["id", "text", "lon", "lat"])
        coded = SubscriptionTable.from_arrow(subscriptions)
        weights = DocumentFrequencies.of(MessageBatch.from_arrow(messages, like=coded, learn=True))
        top = TopK(window, clock=ManualClock(0), document_frequency=weights)
        rng = np.random.default_rng(0)
        points = rng.uniform((-74, 40), (-73, 41), (2000, 2))
        top.subscribe(points, words=[[f"word{i % 300}", "tea"] for i in range(2000)], alpha=0.5, k=5)
        for threads in (1, 2):
            top.publish(
                MessageBatch.from_arrow(messages.slice(1000 * threads - 1000, 1000), like=top, learn=True)
            )
        top.results(0)
        top.thresholds(0)
        with tempfile.TemporaryDirectory() as place:
            top = TopK.open(top.save(Path(place) / "top"), clock=ManualClock(0))
        top.publish(MessageBatch.from_arrow(messages.slice(0, 100), like=top, learn=True))
        top.expire()
        top.unsubscribe([0, 1])
        top.stats()


def covering() -> None:
    """Query which subscriptions cover which."""
    subscriptions, _ = tables(3000)
    table = SubscriptionTable.from_arrow(subscriptions)
    graph = RelationGraph()
    graph.subscribe(table)
    graph.unsubscribe([0, 1, 2])
    with tempfile.TemporaryDirectory() as place:
        graph = RelationGraph.open(graph.save(Path(place) / "graph"))
    graph.covering(table.take(np.arange(20)))
    graph.replay(table.take(np.arange(3)), [0, 1, 2, ~1])
    graph.covers_of(5)
    graph.check()
    graph.stats()


def sharding() -> None:
    """Divide subscriptions among shards in every way, and route messages to them."""
    subscriptions, messages = tables(3000)
    table = SubscriptionTable.from_arrow(subscriptions)
    batch = MessageBatch.from_arrow(messages, like=table)
    for name in (*DISTRIBUTIONS, "auto"):
        made = distribute(name, table, 4, messages=batch)
        with tempfile.TemporaryDirectory() as place:
            opened, _ = open_distribution(save_distribution(made, table.coding, Path(place) / "shards"))
        stored, sent = opened.route_subscriptions(table), opened.route_messages(batch)
        delivering_shards(stored, sent, stored.rows[:20], sent.rows[:20])


if __name__ == "__main__":
    doors = {door.__name__: door for door in (readme, engines, indexes, moving, ranking, covering, sharding)}
    for name in sys.argv[1:] or doors:
        doors[name]()
