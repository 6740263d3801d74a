"""Subscriptions that change while messages flow: each micro-batch delivers what an observer in one process would."""

import os
import shutil
from collections import Counter
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast import Deliveries, MessageBatch, SubscriptionTable, build_index
from nearcast.errors import ColumnError, InputError
from nearcast.sharding.distribution import DISTRIBUTIONS
from nearcast.spark.live.live import Live
from nearcast.spark.live.states import Run, States
from nearcast.storage.places import place_at
from profiles import shortened
from spark.worlds import WORDS, message_table, subscription_table

pytestmark = pytest.mark.spark

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
        self.delivered, self.live = {}, None
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
        subscriptions = self.spark.read.parquet(str(self.home / "subscriptions.parquet"))
        self.live = Live(self.home / "live", subscriptions, clock=lambda: self.now, **self.how)
        return self.live

    def go(self):
        spark, home, live = self.spark, self.home, self.open()
        schemas = [from_arrow_schema(message_schema()), from_arrow_schema(self.schema)]
        streams = [
            spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(home / name))
            for name, schema in zip(("messages", "changes"), schemas)
        ]
        query = live.start(*streams, self.write, checkpoint=home / "checkpoint", availableNow=True)
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
        (self.home / "checkpoint" / "commits" / f"{step}").unlink()
        (self.home / "checkpoint" / "commits" / f".{step}.crc").unlink(missing_ok=True)

    def version(self, step):
        return self.state(step).version

    def state(self, step):
        return States(place_at(self.home / "live")).read(step)


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


ALL = [("auto", 1), *product([*DISTRIBUTIONS, "auto"], [4, 16])]  # one shard is the same for all
SHORT = [("auto", 1), ("hash", 4), ("location-keyword", 4)]


@pytest.mark.parametrize("how", shortened(ALL, SHORT.__contains__), ids=lambda how: "{}-{}".format(*how))
def test_changes_and_messages_interleaved(spark, tmp_path, how, compacting):
    distribution, shards = how
    run = Query(spark, tmp_path, distribution=distribution, shards=shards)
    expected = steps_of(run, 3)
    run.go()
    for step, deliveries in enumerate(expected):
        assert run.delivered[step] == deliveries, step
    assert late(expected[2]).total() > 10
    assert set(late(sum(expected, Counter()))) == {"subscribe", "update", "move"}
    # A version was made in the background, and more changes had come when it was ready.
    last = run.state(2)
    assert (last.upto, [(delta.first, delta.last) for delta in last.deltas]) == (0, [(1, 1), (2, 2)])


@pytest.fixture
def compacting(monkeypatch):
    """Make a version as soon as a subscription has changed, once."""
    monkeypatch.setattr("nearcast.config.LIVE_DELTA_ROWS", 1)
    monkeypatch.setattr("nearcast.config.LIVE_DELTA_SHARE", 0.0)
    compact = Live._compact

    def once(live, spark, state):
        compact(live, spark, state)
        monkeypatch.setattr("nearcast.config.LIVE_DELTA_ROWS", 1_000)

    monkeypatch.setattr(Live, "_compact", once)


def test_a_repeated_micro_batch_delivers_the_same(spark, tmp_path):
    run = Query(spark, tmp_path, shards=2, distribution="hash")
    steps_of(run, 2)
    run.go()
    first = dict(run.delivered)
    run.uncommit(1)
    run.now += 60 * MINUTE
    run.go()
    assert run.delivered == first
    assert late(first[1]).total() > 10


def test_another_number_of_shards_keeps_all_answers(spark, tmp_path):
    run = Query(spark, tmp_path, shards=4, distribution="location")
    expected = steps_of(run, 4)
    later = [run.take_back(step) for step in (2, 3)]
    run.go()
    first = dict(run.delivered)
    run.uncommit(1)
    run.how = {"shards": 8, "distribution": "location"}
    run.now = run.started + 60 * MINUTE
    run.go()  # micro-batch 1 is repeated
    assert run.delivered == first == {0: expected[0], 1: expected[1]}
    assert "location-4" in run.version(1)
    run.now = run.started + 4 * MINUTE
    later[0]()
    run.go()
    assert "location-8" in run.version(2)
    assert run.state(2).upto == 1
    run.how = {"shards": 2, "distribution": "keyword"}
    later[1]()
    run.go()
    assert "keyword-2" in run.version(3)
    assert [run.delivered[step] for step in (2, 3)] == expected[2:]
    # Files that no micro-batch needs again are gone.
    assert {path.name for path in (tmp_path / "live" / "versions").iterdir()} == {
        run.version(2),
        run.version(3),
    }
    assert late(expected[2]).total() > 10


def test_stats_tell_what_is_kept_dropped_and_refused(spark, tmp_path):
    run = Query(spark, tmp_path, valid_messages=20)
    messages = [messages_of(step, run.now + 2 * MINUTE * step) for step in range(3)]
    nobody = [{"change": "move", "id": "nobody", "lon": 0.0, "lat": 0.0, "radius_m": 5.0, "changed_at": 1}]
    one = [{"change": "subscribe", "id": "one", "expression": "tea", "changed_at": 1}]
    everybody = [{"change": "subscribe", "id": "all", "expression": "*", "changed_at": 1}]
    for step, records in enumerate([nobody, one, everybody]):
        run.arrive(step, records, messages[step])
    live = run.go()
    stats = live.stats()
    kept = {}  # what a micro-batch sees: of the valid messages, the twenty that expire last
    for table, now in zip(messages[:2], (2, 4)):
        kept.update({row["id"]: row for row in table.to_pylist()})
        now = run.started + now * MINUTE
        kept = {key: row for key, row in kept.items() if row["expires_at"] and micros(row) > now}
        dropped = sorted(kept, key=lambda key: (micros(kept[key]), key))[:-20]
        for key in dropped:
            del kept[key]
    late = Counter(key for key, _, reason in run.delivered[2].elements() if reason == "subscribe")
    assert late == Counter(dict.fromkeys(kept, 1))
    assert stats["dropped"] > 0
    assert (stats["batch"], stats["deltas"], stats["delta_rows"], stats["refused"]) == (2, 2, 2, 1)
    assert stats["version"] in {path.name for path in (tmp_path / "live" / "versions").iterdir()}
    assert stats["valid_segments"] == 2
    assert (stats["compaction_failures"], stats["compaction_error"]) == (0, None)


def test_records_that_cannot_be_applied_are_kept_with_the_reason(spark, tmp_path):
    run = Query(spark, tmp_path)
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
    run.arrive(0, bad, messages_of(0, run.now))
    live = run.go()
    refused = live.refused().to_pylist()
    assert {row["id"]: row["reason"] for row in refused} == {
        "a": "expression",
        "nobody": "unknown",
        "b": "change",
        "c": "place",
        "d": "no-time",
    }


@pytest.mark.versions
def test_a_change_may_have_a_region_of_another_form_than_all_before(spark, tmp_path):
    """Without its columns the region would mean everywhere."""
    rows = pa.table({"id": ["a"], "expression": ["tea"], "lon": [0.0], "lat": [0.0], "radius_m": [9.0]})
    live = Live(tmp_path / "live", spark.createDataFrame(rows))
    box = {"xmin": 1.0, "ymin": 1.0, "xmax": 2.0, "ymax": 2.0}
    record = {"change": "subscribe", "id": "b", "expression": "tea", "changed_at": 1, **box}
    run = Run("query", "checkpoint", "run")
    records = pa.Table.from_pylist([record])
    state = live._journal.begin(0, records, run, lambda: 0, lambda last, now: last.valid)
    (there,) = live._journal.deltas.subscribed(state.deltas[-1]).to_pylist()
    assert {name: there[name] for name in box} == box


def test_what_cannot_be_is_said(spark, world, tmp_path):
    live = Live(tmp_path, world.subscriptions)
    with pytest.raises(InputError, match="streaming"):
        live.start(world.messages, world.messages, print, checkpoint=tmp_path / "c")
    stream = spark.readStream.schema(world.messages.schema).parquet(str(world.home / "messages"))
    with pytest.raises(ColumnError, match="changes need a column change"):
        live.start(stream, stream, print, checkpoint=tmp_path / "c")
    changes = stream.selectExpr("'subscribe' AS change", "1 AS changed_at", "string(id) AS id")
    with pytest.raises(ColumnError, match="changes have a column keywords, which the subscriptions do not"):
        live.start(
            stream, changes.selectExpr("*", "array('tea') AS keywords"), print, checkpoint=tmp_path / "c"
        )
    with pytest.raises(ColumnError, match="expires_at must be a timestamp, or an integer"):
        live.start(
            stream.withColumn("expires_at", stream["brand"]), changes, print, checkpoint=tmp_path / "c"
        )
    with pytest.raises(InputError, match="valid_messages must be a whole number"):
        Live(tmp_path, world.subscriptions, valid_messages=-1)
    shutil.rmtree(tmp_path)
