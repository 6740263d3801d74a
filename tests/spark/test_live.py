"""Subscriptions that change while messages flow: each micro-batch delivers what an observer in one process would."""

import shutil
from collections import Counter
from itertools import product

import pyarrow as pa
import pytest

from nearcast.errors import ColumnError, InputError
from nearcast.sharding.distribution import DISTRIBUTIONS
from nearcast.spark.live.live import Live
from nearcast.spark.live.states import Run
from profiles import shortened
from spark.live_queries import MINUTE, Query, late, messages_of, micros, steps_of

pytestmark = pytest.mark.spark

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
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = jobs()
    stats = live.stats()
    assert jobs() == before
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
    assert stats["valid_messages"] > 0
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
