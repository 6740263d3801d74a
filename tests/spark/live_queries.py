"""A live query over two directories, and what an observer in one process expects of it."""

import os
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast import Deliveries, MessageBatch, SubscriptionTable, build_index
from nearcast.spark.live.live import Live
from nearcast.spark.live.states import States
from nearcast.spark.paths import spark_path
from nearcast.storage.places import place_at
from spark.worlds import WORDS, message_table, subscription_table

MINUTE = 60_000_000
COLUMNS = ["expression", "geometry", "lon", "lat", "radius_m", "xmin", "ymin", "xmax", "ymax"]


class Observer:
    """The expected deliveries, from a dict of subscriptions, a dict of messages, and the scan."""

    def __init__(self, subscriptions):
        self.subscriptions = {row["id"]: row for row in subscriptions.to_pylist()}
        self.schema = subscriptions.schema
        self.messages = {}  # by id, the latest

    def matched(self, messages, subscriptions):
        if not subscriptions or not len(messages):
            return set()
        table = SubscriptionTable.from_arrow(pa.Table.from_pylist(subscriptions, self.schema))
        batch = MessageBatch.from_arrow(messages.drop(["published_at", "expires_at", "unasked"]), like=table)
        found = Deliveries.of(build_index("scan", table).match(batch), batch.ids, table.ids).to_arrow()
        return set(zip(found["message_id"].to_pylist(), found["subscription_id"].to_pylist()))

    def step(self, records, messages, now):
        before, reasons = dict(self.subscriptions), {}
        for record in sorted(records, key=lambda record: record["changed_at"]):
            key, change = record["id"], record["change"]
            if change == "unsubscribe":
                self.subscriptions.pop(key, None)
            elif change == "move":
                if key not in self.subscriptions:
                    continue
                there = self.subscriptions[key]
                self.subscriptions[key] = {"id": key, **{name: record.get(name) for name in COLUMNS}}
                self.subscriptions[key]["expression"] = there["expression"]
            else:
                self.subscriptions[key] = {"id": key, **{name: record.get(name) for name in COLUMNS}}
            reasons[key] = change
        changed = [key for key in reasons if key in self.subscriptions]
        rows = messages.to_pylist()
        fresh = [row for row in rows if row["expires_at"] is None or micros(row) > now]
        there = list(self.subscriptions.values())
        expected = Counter(
            (*pair, "publish") for pair in self.matched(pa.Table.from_pylist(fresh, messages.schema), there)
        )
        valid = [row for row in self.messages.values() if row["expires_at"] is not None and micros(row) > now]
        valid = pa.Table.from_pylist(valid, messages.schema)
        late = self.matched(valid, [self.subscriptions[key] for key in changed])
        late -= self.matched(valid, [before[key] for key in changed if key in before])
        expected.update((message, key, reasons[key]) for message, key in late)
        self.messages.update({row["id"]: row for row in rows})
        return expected


def micros(row):
    return round(row["expires_at"].timestamp() * 1e6)


def records_of(rng, step, known):
    """Return records of every kind: newcomers, updates, moves, departures, several of one subscription."""
    box = dict(zip(("xmin", "ymin", "xmax", "ymax"), [-5.0 + step, -5.0, 4.0, 5.0]))
    circle = {"lon": 1.0 * step, "lat": 0.0, "radius_m": 900_000.0}
    somewhere = {} if step == 1 else circle
    picks = rng.choice(known, 12, replace=False).tolist()
    made = [
        {
            "change": "subscribe",
            "id": f"new{step}-{i}",
            "expression": f"{WORDS[i % 8]} OR {WORDS[i % 8 - 3]}",
            **somewhere,
        }
        for i in range(6)
    ]
    made += [
        {"change": "update", "id": key, "expression": f"{WORDS[step]} OR price < 20", **box}
        for key in picks[:4]
    ]
    made += [{"change": "move", "id": key, **circle} for key in picks[4:8]]
    made += [{"change": "unsubscribe", "id": key} for key in picks[8:]]
    made += [{"change": "move", "id": picks[0], **box}, {"change": "unsubscribe", "id": f"new{step}-0"}]
    return [{**record, "changed_at": 100 * step + at} for at, record in enumerate(made)]


class Query:
    """A live query over two directories that runs until all is read: one micro-batch for each step that has arrived."""

    def __init__(self, spark, home, **how):
        self.spark, self.home, self.how = spark, home, how
        self.now = self.started = 1_700_000_000_000_000
        self.subscriptions = subscription_table(120)
        pq.write_table(self.subscriptions, home / "subscriptions.parquet")
        self.delivered, self.live, self.checkpoint = {}, None, home / "checkpoint"
        self.where = home / "live"
        fields = [pa.field("change", pa.string()), pa.field("changed_at", pa.int64())]
        self.schema = pa.schema([*self.subscriptions.schema, *fields])
        for name in ("messages", "changes"):
            (home / name).mkdir()

    def arrive(self, step, records, messages):
        """Write the files of a step; Spark reads files in the order of their times."""
        tables = {"messages": messages, "changes": pa.Table.from_pylist(records, self.schema)}
        for name, table in tables.items():
            path = self.home / name / f"{step}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_000_000 + 60 * step,) * 2)

    def take_back(self, step):
        """Hide the files of a step; return a function that puts them back."""
        hidden = [
            (self.home / name / f"{step}.parquet", self.home / f"{step}.{name}")
            for name in ("messages", "changes")
        ]
        for path, aside in hidden:
            path.rename(aside)
        return lambda: [aside.rename(path) for path, aside in hidden]

    def open(self):
        subscriptions = self.spark.read.parquet(spark_path(self.home / "subscriptions.parquet"))
        self.live = Live(self.where, subscriptions, clock=lambda: self.now, **self.how)
        return self.live

    def go(self):
        spark, home, live = self.spark, self.home, self.open()
        schemas = [from_arrow_schema(message_schema()), from_arrow_schema(self.schema)]
        streams = [
            spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(spark_path(home / name))
            for name, schema in zip(("messages", "changes"), schemas)
        ]
        how = {"checkpoint": self.checkpoint, "availableNow": True}
        query = live.start(*streams, self.write, **how)
        query.awaitTermination()
        self.wait()
        return live

    def wait(self):
        self.live._compaction.join()

    def write(self, frame, number):
        table = frame.toArrow()
        names = ("message_id", "subscription_id", "reason")
        self.delivered[number] = Counter(zip(*(table[name].to_pylist() for name in names)))
        self.wait()
        self.now += 2 * MINUTE  # for the next one

    def uncommit(self, step):
        """Undo the commit of a micro-batch, as if the driver had died before it."""
        (self.checkpoint / "commits" / f"{step}").unlink()
        (self.checkpoint / "commits" / f".{step}.crc").unlink(missing_ok=True)

    def version(self, step):
        return self.state(step).version

    def state(self, step):
        return States(place_at(self.where)).read(step)


def messages_of(step, now, count=90):
    """Return messages: some are not kept, some expire sooner or later or have expired, some were published before."""
    table = message_table(count, seed=50 + step)
    ends = [None if i % 6 == 0 else now + (i % 6 - 1) * 2 * MINUTE for i in range(count)]
    ids = pa.array(np.arange(count) + 70 * step)
    times = {"published_at": [now] * count, "expires_at": ends}
    table = table.set_column(0, "id", ids)
    for name, values in times.items():
        table = table.append_column(name, pa.array(values, pa.timestamp("us", "UTC")))
    return table


def message_schema():
    return messages_of(0, 0, 6).schema


def steps_of(run, count):
    """Let *count* steps arrive; return the expected deliveries of each."""
    observer, rng, now, expected = Observer(run.subscriptions), np.random.default_rng(0), run.now, []
    for step in range(count):
        records, messages = records_of(rng, step, sorted(observer.subscriptions)), messages_of(step, now)
        run.arrive(step, records, messages)
        expected.append(observer.step(records, messages, now))
        now += 2 * MINUTE
    return expected


def late(deliveries):
    """Count, by reason, the deliveries of messages from before the subscription came or changed."""
    counts = Counter(reason for *_, reason in deliveries.elements())
    del counts["publish"]
    return counts
