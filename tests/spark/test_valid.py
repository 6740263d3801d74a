"""The store of valid messages gives what a dict would hold."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from memory_place import lose_answer
from nearcast.errors import StorageError
from nearcast.spark.live.boxes import bounding_boxes, touching
from nearcast.spark.live.message_store import ORDER, ValidMessageStore, _is_relevant, _with_ids
from nearcast.spark.live.states import Snapshot
from nearcast.storage.places import place_at

pytestmark = pytest.mark.spark

EVERYWHERE = np.array([[-np.inf, -np.inf, np.inf, np.inf]])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("lon", pa.float64()),
        ("lat", pa.float64()),
        ("keywords", pa.list_(pa.string())),
        ("price", pa.float64()),
        ("published_at", pa.int64()),
        ("expires_at", pa.int64()),
    ]
)


def snapshot(segments=(), dropped=0):
    return Snapshot(tuple(segments), dropped, adding=True)


class Store:
    """The store, used in one micro-batch after another, beside a dict."""

    def __init__(self, spark, home, limit=1_000):
        self.spark, self.valid, self.model = spark, ValidMessageStore(place_at(home), limit), {}
        self.seen, self.number, self.limit = snapshot(), 0, limit

    def publish(self, rows, now):
        """Publish (id, lon, lat, price, expires_at), in this order."""
        full = [
            dict(zip(SCHEMA.names, (key, lon, lat, ["x"], price, at, ends)))
            for at, (key, lon, lat, price, ends) in enumerate(rows)
        ]
        shuffled = np.random.default_rng(self.number).permutation(len(full))
        table = pa.Table.from_pylist([full[row] for row in shuffled], SCHEMA)
        frame = self.spark.createDataFrame(table, from_arrow_schema(SCHEMA))
        self.valid.add(frame, self.number, self.seen, now)
        for at, (key, *row) in enumerate(rows):
            self.model.pop(key, None)
            if row[-1] is not None and row[-1] > now:
                self.model[key] = (*row, self.number, at)

    def advance(self, now):
        """Start the next micro-batch."""
        self.seen = self.valid.after(self.spark, self.seen, self.number, now, adding=True)
        self.number += 1
        self.model = {key: row for key, row in self.model.items() if row[3] > now}

    def found(self, boxes, now):
        near = self.valid.near(self.spark, self.seen, boxes, now)
        if near is None:
            return Counter()
        rows = self.valid.latest(near, self.seen).select("id", "lon", "lat", "price").toArrow().to_pylist()
        return Counter(tuple(row.values()) for row in rows)

    def expected(self, box):
        return Counter(
            (key, *row[:3])
            for key, row in self.model.items()
            if touching(np.array([[row[0], row[1], row[0], row[1]]]), tuple(box))[0]
        )


def test_what_is_valid_near_is_found_whatever_was_merged(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("nearcast.config.LIVE_VALID_SEGMENTS", 3)
    monkeypatch.setattr("nearcast.config.LIVE_VALID_FILE_ROWS", 40)
    store, rng, sizes = Store(spark, tmp_path), np.random.default_rng(3), []
    for step in range(7):
        now = 100 * step
        rows = [
            (
                int(rng.integers(0, 150)),
                *rng.uniform(-80, 80, 2).round(3).tolist(),
                float(step),
                None if rng.random() < 0.2 else int(now + rng.integers(-50, 400 if step else 1_500)),
            )
            for _ in range([200, 50, 0, 50, 50, 50, 50][step])
        ]
        store.publish(rows, now)
        store.advance(now + 100)
        sizes.append(len(store.seen.segments))
        if step < 3:
            continue
        for box in (EVERYWHERE[0], [-30.0, -80.0, 10.0, 5.0]):
            assert store.found(np.array([box]), now + 100) == store.expected(box), step
            assert len(store.expected(box)) > 0
    assert store.found(EVERYWHERE, now + 100).total() == len(store.model)
    assert len(store.model) <= store.valid.kept(store.seen.segments, now + 100) < 450
    assert store.valid.kept(store.seen.segments, 10_000) == 0
    assert max(sizes) == 3
    assert min(sizes[3:]) < 3  # it was merged
    every = {path.stem for path in tmp_path.glob("*.json")}
    store.valid.remove(every - set(store.seen.segments))
    assert {path.stem for path in tmp_path.glob("*.json")} == set(store.seen.segments)
    assert {path.name.rpartition("-")[0] for path in tmp_path.glob("*.parquet")} == set(store.seen.segments)
    store.publish([], now + 100)
    store.advance(10_000)
    assert store.seen == snapshot()  # all have expired


def test_messages_are_kept_although_the_answer_was_lost(spark, tmp_path, monkeypatch):
    store = Store(spark, tmp_path)
    with monkeypatch.context() as patch:
        lose_answer(patch, "000000000000.json", False)
        store.publish([(1, 0, 0, 1.0, 900)], 0)
    store.advance(0)
    assert store.found(EVERYWHERE, 0) == Counter([(1, 0.0, 0.0, 1.0)])


def test_a_message_counts_as_it_was_published_last(spark, tmp_path):
    store = Store(spark, tmp_path)
    kept = [(key, 0, 0, 1.0, 900) for key in (1, 2, 6, 7)]
    store.publish([*kept, (1, 50, 50, 2.0, 900), (2, 0, 0, 1.0, None)], 0)
    store.advance(0)
    near_first = np.array([[-1.0, -1.0, 1.0, 1.0]])
    others = [(6, 0.0, 0.0, 1.0), (7, 0.0, 0.0, 1.0)]
    assert store.found(near_first, 0) == Counter(others)
    assert store.found(EVERYWHERE, 0) == Counter([(1, 50.0, 50.0, 2.0), *others])
    store.publish([(3, 0, 0, 1.0, 900), (4, 0, 0, 1.0, 900), (5, 0, 0, 1.0, 900)], 0)
    store.advance(0)
    gone = [(4, 0, 0, 1.0, None), (5, 0, 0, 1.0, 200), (6, 0, 0, 1.0, None), (7, 0, 0, 1.0, 200)]
    store.publish([(1, 0, 0, 3.0, 900), (3, 60, 60, 3.0, 900), *gone], 100)
    store.advance(100)
    soon = [(5, 0.0, 0.0, 1.0), (7, 0.0, 0.0, 1.0)]
    assert store.found(near_first, 100) == Counter([(1, 0.0, 0.0, 3.0), *soon])
    store.publish([], 100)
    store.advance(300)
    for whole in (False, True):  # the newest two of three, then all
        assert store.found(near_first, 300) == Counter([(1, 0.0, 0.0, 3.0)])
        merged, dropped = store.valid._merge(spark, store.seen.segments[-2:], 300, whole=whole)
        store.seen = snapshot((*store.seen.segments[:-2], *merged))
        assert dropped == 0
    assert store.found(EVERYWHERE, 300) == Counter([(1, 0.0, 0.0, 3.0), (3, 60.0, 60.0, 3.0)])


def test_those_that_expire_soonest_are_dropped_and_counted(spark, tmp_path, caplog):
    store = Store(spark, tmp_path, limit=40)
    store.publish([(key, 0, 0, 0.0, 1_000 + key // 10) for key in range(45)], 0)
    store.advance(0)
    assert store.seen.dropped == 0
    assert store.valid.kept(store.seen.segments, 0) == 45  # up to a quarter more is tolerated
    store.publish([(key, 0, 0, 1.0, 1_000 + key // 10) for key in range(30)], 0)  # the same again
    store.advance(0)
    assert (store.seen.dropped, len(store.seen.segments)) == (5, 1)
    # Of messages that expire at the same time, the earlier ones are dropped first.
    left = {*range(5, 45)}
    assert {key for key, *_ in store.found(EVERYWHERE, 0)} == left
    assert "5 valid messages were dropped" in caplog.text
    store.publish([(key, 0, 0, 2.0, 5_000) for key in range(100, 109)], 0)
    store.advance(0)
    assert store.seen.dropped == 5
    assert {key for key, *_ in store.found(EVERYWHERE, 0)} == left | {*range(100, 109)}
    store.publish([(key, 0, 0, 2.0, 5_000) for key in range(109, 111)], 0)
    store.advance(0)
    assert store.seen.dropped == 16
    assert store.valid.kept(store.seen.segments, 0) == 40
    assert {*range(100, 111)} < {key for key, *_ in store.found(EVERYWHERE, 0)}


def test_files_far_away_are_not_read(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("nearcast.config.LIVE_VALID_FILE_ROWS", 100)
    store, rng = Store(spark, tmp_path), np.random.default_rng(0)
    places = rng.uniform([-180, -90], [180, 90], (1_000, 2)).tolist()
    store.publish([(key, *place, 0.0, 900) for key, place in enumerate(places)], 0)
    store.advance(0)
    merged, _ = store.valid._merge(spark, store.seen.segments, 0, whole=True)
    store.seen = snapshot(merged)
    box = np.array([[20.0, 20.0, 40.0, 40.0]])
    files = [file for name in merged for file in store.valid._segment(name).files]
    read, there = (sum(_is_relevant(boxes, 0, file) for file in files) for boxes in (box, EVERYWHERE))
    assert read <= 3 < 9 <= there
    assert store.found(box, 0) == store.expected(box[0])
    assert store.valid.near(spark, store.seen, np.empty((0, 4)), 0) is None


def test_a_segment_is_written_once_and_synced(spark, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink()))
    store = Store(spark, tmp_path)
    store.publish([(1, 0, 0, 0.0, 900)], 0)
    before = sorted(tmp_path.rglob("*"))
    assert {path.suffix for path in before} == {".parquet", ".json"}
    assert any(path.suffix == ".json" or ".json." in path.name for path in synced)  # workers sync the others
    store.publish([(2, 0, 0, 0.0, 900)], 0)  # the micro-batch is repeated
    assert sorted(tmp_path.rglob("*")) == before
    assert set(ORDER) <= set(store.valid.near(spark, snapshot(["000000000000"]), EVERYWHERE, 0).columns)


def test_messages_that_are_lost_are_an_error(spark, tmp_path):
    """Where nothing is, there may have been messages."""
    store = Store(spark, tmp_path)
    store.publish([], 0)
    store.advance(0)
    assert store.seen == snapshot()
    with pytest.raises(StorageError, match=r"000000000001.json is missing, so the valid messages"):
        store.advance(0)
    store = Store(spark, tmp_path / "lost")
    store.publish([(1, 0, 0, 0.0, 900)], 0)
    store.advance(0)
    (file,) = (tmp_path / "lost").glob("*.parquet")
    whole = pq.read_table(file)
    pq.write_table(whole.slice(0, 0), file)
    with pytest.raises(Exception, match="has 0 rows, but 1 were written"):
        store.found(EVERYWHERE, 0)
    file.unlink()
    with pytest.raises(Exception, match="No such file"):
        store.found(EVERYWHERE, 0)


@pytest.mark.parametrize("most", [0, 10_000])
def test_what_was_published_again_is_found_with_few_ids_or_all(spark, tmp_path, monkeypatch, most):
    monkeypatch.setattr("nearcast.config.LIVE_VALID_FOUND", most)
    store = Store(spark, tmp_path)
    store.publish([(key, key, 0, 1.0, 900) for key in range(20)], 0)
    store.advance(0)
    store.publish([(key, 50 + key, 0, 2.0, 900) for key in range(0, 20, 2)], 0)
    store.advance(0)
    assert store.found(np.array([[4.0, -1.0, 9.0, 1.0]]), 0) == Counter(
        (key, key, 0, 1.0) for key in (5, 7, 9)
    )
    later = store.valid._read(spark, store.seen.segments)
    kept = [
        row["_id"]
        for row in later.selectExpr("id AS _id").mapInArrow(_with_ids(pa.array([2, 3])), "_id long").collect()
    ]
    assert sorted(kept) == [2, 2, 3]


def test_a_few_boxes_contain_many():
    rng = np.random.default_rng(1)
    low = rng.uniform(-90, 80, (500, 2))
    boxes = np.concatenate([low, low + rng.uniform(0, 3, (500, 2))], axis=1)
    few = bounding_boxes(boxes, 32)
    assert len(few) <= 32
    inside = (few[None, :, :2] <= boxes[:, None, :2]).all(2) & (few[None, :, 2:] >= boxes[:, None, 2:]).all(2)
    assert inside.any(axis=1).all()
    area = (few[:, 2] - few[:, 0]) * (few[:, 3] - few[:, 1])
    assert area.sum() < 1.6 * 173**2  # not everything at once
    boxes[3] = EVERYWHERE
    assert np.isinf(bounding_boxes(boxes, 32)).any()
