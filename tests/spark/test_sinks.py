"""Sinks of a stream: the repeat of a batch replaces the first attempt, as a whole or not at all."""

import threading
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from nearcast.errors import InputError, NearcastError
from nearcast.spark import sinks
from nearcast.spark.deliveries import as_deliveries
from nearcast.spark.kafka import deliveries_to_kafka
from nearcast.spark.parquet import write_parquet
from nearcast.spark.sinks import parquet_sink
from nearcast.storage.places import place_at

pytestmark = pytest.mark.spark


def frame(spark, *messages):
    ids = spark.createDataFrame([(m, "anna") for m in messages], "message_id long, subscription_id string")
    return as_deliveries(ids)


def rows(home):
    table = ds.dataset(home, format="parquet", partitioning="hive").to_table()
    return sorted(zip(table["batch"].to_pylist(), table["message_id"].to_pylist()))


def test_each_batch_has_a_directory(spark, tmp_path):
    home = tmp_path / "not there yet" / "é=%20"
    write = parquet_sink(home)
    write(frame(spark, 1, 2), 0)
    write(frame(spark, 3), 1)
    assert rows(home) == [(0, 1), (0, 2), (1, 3)]
    assert spark.read.parquet(f"file://{home}").count() == 3
    assert sorted(each.name for each in home.iterdir()) == ["batch=0", "batch=1"]


def test_a_repeat_takes_the_place_of_the_first_attempt(spark, tmp_path):
    write = parquet_sink(tmp_path)
    write(frame(spark, 1, 2), 0)
    write(frame(spark, 1, 2), 0)
    write(frame(spark, 7), 0)
    assert rows(tmp_path) == [(0, 7)]
    assert [each.name for each in tmp_path.iterdir()] == ["batch=0"]


def test_an_empty_batch(spark, tmp_path):
    write = parquet_sink(tmp_path)
    write(frame(spark, 1), 10)
    assert write(frame(spark, 1).limit(0), 11) == 0
    assert rows(tmp_path) == [(10, 1)]


def test_batches_without_rows_leave_nothing_but_columns(spark, tmp_path):
    write, none = parquet_sink(tmp_path), frame(spark, 1).limit(0)
    for batch in range(3):
        assert write(none, batch) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["batch=0"]
    assert spark.read.parquet(f"file://{tmp_path}").drop("batch").columns == none.columns
    write(frame(spark, 1), 3)
    write(none, 3)  # not what a repeat should be
    assert [each.name for each in tmp_path.iterdir()] == ["batch=0"]
    assert parquet_sink(tmp_path)(none, 4) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["batch=0"]


@pytest.mark.parametrize("where", ["a directory", "an object store"])
def test_so_many_batches_stay(spark, tmp_path, request, where):
    """The last ones, also after a restart; a repeat of the last one is one of them."""
    home = request.getfixturevalue("s3") if where == "an object store" else str(tmp_path)
    numbers = lambda: sorted(int(name.removeprefix("batch=")) for name in place_at(home).children())  # noqa: E731
    for start in (0, 3):
        write = parquet_sink(home, most=2)
        for batch in range(start, start + 4):
            write(frame(spark, batch), batch)
            assert numbers() == [max(batch - 1, 0), batch][-(batch + 1) :]
    write(frame(spark, 7), 6)
    assert numbers() == [5, 6]
    assert parquet_sink(home, most=1)(frame(spark, 8), 7) == 1
    assert numbers() == [7]
    parquet_sink(home)(frame(spark, 9), 8)
    assert numbers() == [7, 8]
    with pytest.raises(InputError, match="most must be a whole number"):
        parquet_sink(home, most=0)


def test_too_many_batches_are_told(spark, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("nearcast.config.SINK_BATCHES", 2)
    write = parquet_sink(tmp_path)
    for batch in range(7):
        write(frame(spark, batch), batch)
    told = [record.getMessage() for record in caplog.records if "batches" in record.getMessage()]
    assert [line.partition(", each")[0] for line in told] == [
        f"file://{tmp_path} has {count} batches" for count in (3, 7)
    ]
    assert "bound them by parquet_sink(..., most=...)" in told[0]


def test_what_breaks_while_it_writes_is_never_seen(spark, tmp_path):
    def breaking(batches):
        for batch in batches:
            yield batch
            raise RuntimeError("the disk is full")

    write = parquet_sink(tmp_path)
    ten = frame(spark, *range(10))
    broken = ten.mapInArrow(breaking, ten.schema)
    with pytest.raises(Exception, match="disk is full"):
        write(broken, 1)
    assert not (tmp_path / "batch=1").exists()
    write(frame(spark, 5), 10)
    assert rows(tmp_path) == [(10, 5)]
    assert [each.name for each in tmp_path.iterdir()] == ["batch=10"]
    (tmp_path / ".batch=1.left").mkdir()  # left by a driver that was killed
    (tmp_path / ".batch=1.left" / "part.parquet").write_bytes(b"half")
    assert rows(tmp_path) == [(10, 5)]
    parquet_sink(tmp_path)(frame(spark, 4), 1)
    assert rows(tmp_path) == [(1, 4), (10, 5)]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["batch=1", "batch=10"]


@pytest.mark.parametrize("lost", ["some", "all"])
def test_a_batch_that_lacks_rows_is_not_committed(spark, tmp_path, monkeypatch, lost):
    """As if an executor had written its part to a disk of its own."""
    both = frame(spark, 1, 2).repartition(2, "message_id")

    def write_elsewhere(rows, path):
        write_parquet(rows, path)
        draft = Path(path.removeprefix("file://"))
        parts = sorted(file for file in draft.glob("*.parquet") if pq.read_metadata(file).num_rows)
        assert (draft / "_SUCCESS").exists()
        for part in parts if lost == "all" else parts[1:]:
            part.unlink()

    write = parquet_sink(tmp_path)
    assert write(both, 0) == 2
    monkeypatch.setattr(sinks, "write_parquet", write_elsewhere)
    for batch in (0, 1):
        with pytest.raises(NearcastError, match=r"2 rows were written to .* of them are there: do executors"):
            write(both, batch)
    assert rows(tmp_path) == [(0, 1), (0, 2)]
    assert [each.name for each in tmp_path.iterdir()] == ["batch=0"]


def test_what_was_left_of_any_batch_is_removed(spark, tmp_path):
    (tmp_path / ".batch=5.left").mkdir()
    (tmp_path / ".batch=5.left" / "part.parquet").write_bytes(b"half")
    write = parquet_sink(tmp_path)
    assert write(frame(spark, 1), 6) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["batch=6"]


def test_a_reader_sees_whole_batches_only(spark, tmp_path):
    """While one batch is written again and again, a reader finds all of its rows, or for an instant none."""
    write = parquet_sink(tmp_path)
    write(frame(spark, 1, 2, 3), 0)
    seen, stop = set(), threading.Event()

    def look():
        while not stop.is_set():
            try:
                seen.add(ds.dataset(tmp_path, format="parquet", partitioning="hive").count_rows())
            except FileNotFoundError:  # listed before it was replaced
                continue

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for _ in range(3):
            write(frame(spark, 1, 2, 3), 0)
    finally:
        stop.set()
        reader.join()
    assert 3 in seen
    assert seen <= {0, 3}


def stored(place):
    """The messages of each file."""
    return {
        entry.name: sorted(pq.read_table(place.open(entry.name))["message_id"].to_pylist())
        for entry in place.entries()
    }


def test_in_an_object_store_a_batch_is_a_file(spark, s3):
    """A repetition takes its place, also if rows come in other tasks; without rows there is none."""
    write, place = parquet_sink(s3.replace("s3:", "s3a:")), place_at(s3)
    both = frame(spark, 1, 2).repartition(2, "message_id")
    assert write(both, 0) == write(both.coalesce(1), 0) == 2
    assert write(frame(spark, 7), 1) == 1
    assert stored(place) == {"batch=0/deliveries.parquet": [1, 2], "batch=1/deliveries.parquet": [7]}
    assert write(frame(spark, 1).limit(0), 1) == 0
    assert stored(place) == {"batch=0/deliveries.parquet": [1, 2]}


def test_in_an_object_store_a_batch_that_breaks_changes_nothing(spark, s3):
    def breaking(batches):
        for batch in batches:
            if batch["message_id"][0].as_py() == 2:
                raise RuntimeError("the disk is full")
            yield batch

    write, place = parquet_sink(s3), place_at(s3)
    two = frame(spark, 1, 2).repartition(2, "message_id")
    write(two, 0)
    for batch in (0, 1):
        with pytest.raises(Exception, match="disk is full"):
            write(two.mapInArrow(breaking, two.schema), batch)
    assert stored(place) == {"batch=0/deliveries.parquet": [1, 2]}


def test_a_uri_is_no_path(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for uri in (f"file:{tmp_path}/one", f"file://{tmp_path}/two"):
        parquet_sink(uri)(frame(spark, 1), 0)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["one", "two"]
    with pytest.raises(InputError, match="'dbfs:/out' has the unknown scheme 'dbfs'; give a path, or one of"):
        parquet_sink("dbfs:/out")


def test_deliveries_as_records(spark):
    records = deliveries_to_kafka(frame(spark, 1))
    assert [tuple(row) for row in records.collect()] == [
        (
            "anna",
            '{"subscription_id":"anna","message_id":1,"change":"+","reason":"publish","score":null,"rank":null}',
        )
    ]
    (record,) = deliveries_to_kafka(frame(spark, 1), 7).collect()
    assert {header.key: bytes(header.value) for header in record.headers} == {
        "nearcast-batch": b"7",
        "nearcast-delivery": b'["anna","1","+"]',
    }
