"""A live query over months: who owns its home, what fails in the background, what is kept, and where."""

import os
import shutil
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from nearcast.config import LIVE_ORPHAN_SECONDS
from nearcast.spark.live import live as live_module
from nearcast.spark.live.live import Live
from nearcast.storage.atomic import draft_name
from spark.live_queries import MINUTE, Query, late, messages_of, steps_of

pytestmark = pytest.mark.spark

HERE = {"lon": 0.0, "lat": 0.0, "radius_m": 900_000.0}


def compact_always(monkeypatch):
    monkeypatch.setattr("nearcast.config.LIVE_DELTA_ROWS", 0)
    monkeypatch.setattr("nearcast.config.LIVE_DELTA_SHARE", 0.0)


def test_another_checkpoint_is_refused_by_name(spark, tmp_path):
    run = Query(spark, tmp_path)
    expected = steps_of(run, 2)
    later = run.take_back(1)
    run.go()
    owner = run.state(0).owner
    assert owner.checkpoint == f"file://{run.checkpoint}"
    delivered = dict(run.delivered)
    run.checkpoint = tmp_path / "other"
    with pytest.raises(Exception, match=f"belongs to the query {owner.query} with the checkpoint") as raised:
        run.go()
    assert "give this query a home of its own" in str(raised.value)
    # A checkpoint that was deleted and begun again has the same name, and is another one.
    run.checkpoint = tmp_path / "checkpoint"
    run.checkpoint.rename(tmp_path / "aside")
    with pytest.raises(Exception, match=f"belongs to the query {owner.query}"):
        run.go()
    assert run.delivered == delivered
    # Nothing was changed meanwhile: with its own checkpoint it continues.
    shutil.rmtree(run.checkpoint)
    (tmp_path / "aside").rename(run.checkpoint)
    later()
    run.now = run.started + 2 * MINUTE
    run.go()
    assert run.delivered == dict(enumerate(expected))


def test_an_older_record_is_late_although_a_version_was_made_meanwhile(spark, tmp_path, monkeypatch):
    compact_always(monkeypatch)
    run = Query(spark, tmp_path, shards=2, distribution="hash")
    gone, moved = run.subscriptions["id"][:2].to_pylist()
    steps = [
        [
            {"change": "unsubscribe", "id": gone, "changed_at": 100},
            {"change": "update", "id": moved, "expression": "tea", **HERE, "changed_at": 90},
            {
                "change": "move",
                "id": moved,
                "xmin": 3.0,
                "ymin": 3.0,
                "xmax": 4.0,
                "ymax": 4.0,
                "changed_at": 100,
            },
        ],
        [],
        [
            {"change": "subscribe", "id": gone, "expression": "*", "changed_at": 99},
            {"change": "move", "id": moved, **HERE, "changed_at": 99},
            {"change": "update", "id": moved, "expression": "*", **HERE, "changed_at": 95},
        ],
    ]
    for step, records in enumerate(steps):
        run.arrive(step, records, messages_of(step, run.now))
    live = run.go()
    last = run.state(2)
    assert last.upto == 0  # the first changes are in the version, and nowhere else
    assert [(row["id"], row["reason"], row["batch"]) for row in live.refused().to_pylist()] == [
        (gone, "late", 2),
        (moved, "late", 2),
    ]
    assert not any(key == gone for _, key, _ in run.delivered[2].elements())
    (row,) = live._journal.deltas.subscribed(last.deltas[-1]).to_pylist()
    # Its words were older than the move, and newer than the words before.
    assert (row["id"], row["expression"], row["xmin"], row["lon"]) == (moved, "*", 3.0, None)
    assert row["_changed_at"] == {"whole": 95, "region": 100, "ended": None}


def test_a_compaction_that_fails_is_told_and_stops_nothing(spark, tmp_path, monkeypatch, caplog):
    compact_always(monkeypatch)

    def fail(*_, **__):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(live_module, "ensure_sharded_version", fail)
        run = Query(spark, tmp_path)
        with pytest.raises(OSError, match="the disk is full"):
            run.open()  # the first version
        patch.undo()
        compact_always(monkeypatch)
        run.open()
        expected = steps_of(run, 2)
        patch.setattr(live_module, "ensure_sharded_version", fail)
        live = run.go()
    assert run.delivered == dict(enumerate(expected))
    stats = live.stats()
    assert stats["compaction_failures"] == 1  # the second attempt has to wait
    assert stats["compaction_error"] == "OSError: the disk is full"
    assert "attempt 1 failed, the next one is in 10 s or later" in caplog.text
    assert not list((tmp_path / "live" / "compacting").glob("*/*"))
    live._compaction._not_before = 0.0
    assert live._compaction.start(partial(live._compact, spark, run.state(1)))
    live._compaction.join()
    assert live.stats()["compaction_failures"] == 0
    assert live._journal.states.next_version(run.state(1))[1] == 1


def test_the_query_has_a_name_and_options(spark, tmp_path):
    live = Live(tmp_path / "live", spark.createDataFrame(pa.table({"id": ["a"], "expression": ["tea"]})))
    rate = spark.readStream.format("rate").load()
    messages = rate.selectExpr("value AS id", "0D AS lon", "0D AS lat", "'tea' AS text")
    changes = rate.selectExpr("'x' AS change", "value AS changed_at", "'a' AS id")
    query = live.start(messages, changes, print, checkpoint=tmp_path / "c", query_name="notices")
    try:
        assert query.name == "notices"
    finally:
        query.stop()
    options = {"asyncProgressTrackingEnabled": "true"}  # which Spark refuses for foreachBatch
    with pytest.raises(Exception, match=r"[Aa]sync progress tracking"):
        live.start(messages, changes, print, checkpoint=tmp_path / "d", options=options)


def test_drafts_that_a_killed_driver_left_are_swept_when_they_are_old(spark, tmp_path):
    home = tmp_path / "live"
    live = Live(home, spark.createDataFrame(pa.table({"id": ["a"], "expression": ["tea"]})))
    there = sorted(home.rglob("*"))
    old, new = [], []
    for name in (
        "deltas/x.parquet",
        "states/1.json",
        "valid/x.json",
        "versions/v/shard",
        "compacting/c/rows.parquet",
    ):
        for drafts in (old, new):
            drafts.append((home / name).with_name(draft_name(Path(name).name)))
            drafts[-1].parent.mkdir(parents=True, exist_ok=True)
    for draft in (*old, *new):
        if "versions" in draft.parts:
            draft.mkdir()
            draft /= "array"
        draft.write_bytes(b"half")
    hour = time.time() - LIVE_ORPHAN_SECONDS - 60
    for draft in old:
        for path in (draft, *draft.glob("*")):
            os.utime(path, (hour, hour))
    live.sweep()
    assert not any(draft.exists() for draft in old)
    assert all(draft.exists() for draft in new)  # a compaction may be writing them
    for draft in new:
        for path in (draft, *draft.glob("*")):
            os.utime(path, (hour, hour))
    live.sweep()
    left = {
        path for path in home.rglob("*") if path.is_file() or path.parent.name in ("versions", "compacting")
    }
    assert left <= set(there)


def test_a_home_in_an_object_store(spark, tmp_path, s3, monkeypatch):
    compact_always(monkeypatch)
    run = Query(spark, tmp_path, shards=2, distribution="location")
    run.where = f"{s3}/live"
    expected = steps_of(run, 3)
    later = run.take_back(2)
    run.go()
    run.uncommit(1)
    run.now += 60 * MINUTE
    run.go()
    run.now = run.started + 4 * MINUTE
    later()
    run.go()
    assert run.delivered == dict(enumerate(expected))
    assert late(expected[2]).total() > 10
    assert not (tmp_path / "live").exists()
