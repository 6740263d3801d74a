"""Use every door of the package once, in small and in large: what `tools/build_wheel.py` compiles kernels for.

python tools/exercise.py [DOOR …]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from nearcast import (
    Box,
    Circle,
    CountWindow,
    Engine,
    ManualClock,
    Message,
    MessageBatch,
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
)

HERE = Point(lon=-73.99, lat=40.73)
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
        engine = Engine(clock=ManualClock(0))
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
        engine.unsubscribe([f"s{i}" for i in range(0, count, 3)])
        engine.unsubscribe("r0")
        engine.expire()
        keywords = pa.table({"id": ["k1", "k2"], "keywords": [["tea"], ["tea", "milk"]]})
        engine.subscribe(keywords)


def indexes() -> None:
    """Build, change, save and open every index and store that a user may name."""
    for count in (50, LARGE):
        subscriptions, messages = tables(count)
        table = SubscriptionTable.from_arrow(subscriptions)
        batch = MessageBatch.from_arrow(messages, like=table)
        for name in (
            "auto",
            "scan",
            "packed-list",
            "ap-tree",
            "mo-tree",
            "mbr-trie",
            "pt-quadtree",
            "lfilter",
        ):
            index = build_index(name, table)
            index.match(batch.take(np.arange(50)))
            with tempfile.TemporaryDirectory() as place:
                opened = open_index(index.save(Path(place) / "index"))
                opened.match(MessageBatch.from_arrow(messages.slice(0, 50), like=opened))
                opened.insert(table.take(np.arange(20)))
                opened.remove([0, 1, 2])
        for name in ("mo-tree", "scan"):
            store = build_store(name, MessageBatch.from_arrow(messages, like=table, learn=True))
            store.match(table.take(np.arange(50)), now=0)


def ranking() -> None:
    """Rank messages in both kinds of windows."""
    for window in (CountWindow(500), TimeWindow(3600)):
        top = TopK(window, clock=ManualClock(0))
        rng = np.random.default_rng(0)
        points = rng.uniform((-74, 40), (-73, 41), (2000, 2))
        top.subscribe(points, words=[[f"word{i % 300}", "tea"] for i in range(2000)], alpha=0.5, k=5)
        _, messages = tables(2000)
        messages = messages.select(["id", "text", "lon", "lat"])
        for threads in (1, 2):
            top.publish(
                MessageBatch.from_arrow(messages.slice(1000 * threads - 1000, 1000), like=top, learn=True)
            )
        top.results(0)
        top.expire()
        top.unsubscribe([0, 1])


def covering() -> None:
    """Query which subscriptions cover which."""
    subscriptions, _ = tables(3000)
    table = SubscriptionTable.from_arrow(subscriptions)
    graph = RelationGraph()
    graph.subscribe(table)
    graph.unsubscribe([0, 1, 2])


if __name__ == "__main__":
    doors = {door.__name__: door for door in (readme, engines, indexes, ranking, covering)}
    for name in sys.argv[1:] or doors:
        doors[name]()
