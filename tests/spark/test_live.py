"""Subscriptions that change while messages flow: each micro-batch delivers what an observer in one process would."""

import shutil
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast import MessageBatch, SubscriptionTable, build_index
from nearcast.errors import ColumnError, InputError
from nearcast.spark.live import Live
from spark.worlds import WORDS, message_table, subscription_table

pytestmark = pytest.mark.spark

MINUTE = 60_000_000
COLUMNS = ["expression", "geometry", "lon", "lat", "radius_m", "xmin", "ymin", "xmax", "ymax"]


class Observer:
    """What should be delivered: a dict of subscriptions, a list of messages, and the scan."""

    def __init__(self, subscriptions):
        self.subscriptions = {row["id"]: row for row in subscriptions.to_pylist()}
        self.schema = subscriptions.schema
        self.messages = []  # earlier batches, as tables

    def matched(self, messages, subscriptions):
        if not subscriptions or not len(messages):
            return set()
        table = SubscriptionTable.from_arrow(pa.Table.from_pylist(subscriptions, self.schema))
        batch = MessageBatch.from_arrow(messages.drop(["expires_at", "unasked"]), like=table)
        found = build_index("scan", table).match(batch).to_arrow(batch.ids, table.ids)
        return set(zip(found["message_id"].to_pylist(), found["subscription_id"].to_pylist()))

    def step(self, records, messages, now):
        before = dict(self.subscriptions)
        for record in sorted(records, key=lambda record: record["changed_at"]):
            key, change = record["id"], record["change"]
            if change == "unsubscribe":
                self.subscriptions.pop(key, None)
            elif change == "move":
                if key in self.subscriptions:
                    there = self.subscriptions[key]
                    self.subscriptions[key] = {"id": key, **{name: record.get(name) for name in COLUMNS}}
                    self.subscriptions[key]["expression"] = there["expression"]
            else:
                self.subscriptions[key] = {"id": key, **{name: record.get(name) for name in COLUMNS}}
        changed = [key for key in {record["id"] for record in records} if key in self.subscriptions]
        expected = Counter(
            (*pair, "publish") for pair in self.matched(messages, list(self.subscriptions.values()))
        )
        for earlier in self.messages:
            valid = earlier.filter(pa.compute.greater(earlier["expires_at"].cast(pa.int64()), now))
            late = self.matched(valid, [self.subscriptions[key] for key in changed])
            late -= self.matched(valid, [before[key] for key in changed if key in before])
            expected.update((*pair, "subscribe") for pair in late)
        self.messages.append(messages)
        return expected


def records_of(rng, step, known):
    """Records of every kind: newcomers, updates, moves, farewells, several of one subscription."""
    box = dict(zip(("xmin", "ymin", "xmax", "ymax"), [-5.0 + step, -5.0, 4.0, 5.0]))
    circle = {"lon": 1.0 * step, "lat": 0.0, "radius_m": 400_000.0}
    picks = rng.choice(known, 12, replace=False).tolist()
    made = [
        {"change": "subscribe", "id": f"new{step}-{i}", "expression": WORDS[i % 8], **circle}
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


class Run:
    """A live query over two directories, run until nothing is left."""

    def __init__(self, spark, home, clock, **how):
        self.spark, self.home, self.clock, self.how = spark, home, clock, how
        self.subscriptions = subscription_table()
        pq.write_table(self.subscriptions, home / "subscriptions.parquet")
        self.delivered = {}
        fields = [pa.field("change", pa.string()), pa.field("changed_at", pa.int64())]
        self.schema = pa.schema([*self.subscriptions.schema, *fields])
        for name in ("messages", "changes"):
            (home / name).mkdir()

    def arrive(self, step, records, messages):
        pq.write_table(pa.Table.from_pylist(records, self.schema), self.home / "changes" / f"{step}.parquet")
        pq.write_table(messages, self.home / "messages" / f"{step}.parquet")

    def go(self):
        spark, home = self.spark, self.home
        live = Live(
            home / "live",
            spark.read.parquet(str(home / "subscriptions.parquet")),
            clock=lambda: self.clock[0],
            **self.how,
        )
        streams = [
            spark.readStream.schema(spark.read.parquet(str(home / name)).schema).parquet(str(home / name))
            for name in ("messages", "changes")
        ]
        query = live.start(*streams, self.write, checkpoint=home / "checkpoint", availableNow=True)
        query.awaitTermination()
        if live._compacting:
            live._compacting.join()
        return live

    def write(self, frame, number):
        table = frame.toArrow()
        names = ("message_id", "subscription_id", "reason")
        self.delivered[number] = Counter(zip(*(table[name].to_pylist() for name in names)))


def messages_of(step, clock):
    table = message_table(150, seed=50 + step)
    ends = [None if i % 3 == 0 else clock[0] + (1 + i % 5) * MINUTE for i in range(150)]
    ids = pa.array(np.arange(150) + 1000 * step)
    return table.set_column(0, "id", ids).append_column(
        "expires_at", pa.array(ends, pa.timestamp("us", "UTC"))
    )


@pytest.mark.parametrize(
    "how", [{}, {"shards": 4, "distribution": "location"}, {"shards": 3, "distribution": "keyword"}]
)
def test_changes_and_messages_interleaved(spark, tmp_path, how, monkeypatch):
    monkeypatch.setattr("nearcast.config.LIVE_DELTA_ROWS", 40)
    monkeypatch.setattr("nearcast.config.LIVE_DELTA_SHARE", 0.0)
    clock = [1_700_000_000_000_000]
    run = Run(spark, tmp_path, clock, **how)
    observer, rng = Observer(run.subscriptions), np.random.default_rng(0)
    for step in range(5):
        records, messages = records_of(rng, step, sorted(observer.subscriptions)), messages_of(step, clock)
        run.arrive(step, records, messages)
        live = run.go()
        expected = observer.step(records, messages, clock[0])
        assert run.delivered[step] == expected
        clock[0] += 2 * MINUTE
    assert sum(count for *_, reason in expected for count in [reason == "subscribe"]) > 0
    assert len(list((tmp_path / "live" / "versions").glob("auto-*"))) > 1  # deltas were made into versions
    assert live._read(4).upto > -1


def test_a_repeated_micro_batch_delivers_the_same(spark, tmp_path):
    clock = [1_700_000_000_000_000]
    run = Run(spark, tmp_path, clock, shards=2, distribution="hash")
    rng = np.random.default_rng(1)
    for step in range(2):
        run.arrive(step, records_of(rng, step, run.subscriptions["id"].to_pylist()), messages_of(step, clock))
        run.go()
    first = dict(run.delivered)
    (tmp_path / "checkpoint" / "commits" / "1").unlink()  # as if the driver had died before the commit
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    clock[0] += 60 * MINUTE
    run.go()
    assert run.delivered == first
    assert sum(first[1].values()) > 100


def test_records_that_cannot_be_applied_are_kept_with_the_reason(spark, tmp_path):
    clock = [1_700_000_000_000_000]
    run = Run(spark, tmp_path, clock)
    bad = [
        {"change": "subscribe", "id": "a", "expression": "tea AND (", "changed_at": 1},
        {"change": "move", "id": "nobody", "lon": 0.0, "lat": 0.0, "radius_m": 5.0, "changed_at": 2},
        {"change": "resubscribe", "id": "b", "expression": "tea", "changed_at": 3},
        {
            "change": "subscribe",
            "id": "c",
            "expression": "tea",
            "lon": 0.0,
            "lat": 95.0,
            "radius_m": 5.0,
            "changed_at": 4,
        },
        {"change": "subscribe", "id": "d", "expression": "tea", "changed_at": None},
        {"change": "unsubscribe", "id": "nobody", "changed_at": 5},
    ]
    run.arrive(0, bad, messages_of(0, clock))
    run.go()
    refused = pq.read_table(tmp_path / "live" / "refused").to_pylist()
    assert {row["id"]: row["reason"] for row in refused} == {
        "a": "expression",
        "nobody": "unknown",
        "b": "change",
        "c": "place",
        "d": "no-time",
    }


def test_what_cannot_be_is_said(spark, world, tmp_path):
    live = Live(tmp_path, world.subscriptions)
    with pytest.raises(InputError, match="streaming"):
        live.start(world.messages, world.messages, print, checkpoint=tmp_path / "c")
    stream = spark.readStream.schema(world.messages.schema).parquet(str(world.home / "messages"))
    with pytest.raises(ColumnError, match="changes need a column change"):
        live.start(stream, stream, print, checkpoint=tmp_path / "c")
    shutil.rmtree(tmp_path)
