"""Rows in Parquet files of a place, written and read by tasks."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast.spark.parts import _write_part, read_parts, write_parts
from nearcast.storage.places import place_at

pytestmark = pytest.mark.spark


@pytest.fixture(params=["disk", "s3"])
def place(request, tmp_path):
    return place_at(
        tmp_path / "parts" if request.param == "disk" else f"{request.getfixturevalue('s3')}/parts"
    )


def files_of(place, written):
    return {
        f"{place}/{name}": rows for name, rows in zip(*(written[c].to_pylist() for c in ("name", "rows")))
    }


def test_rows_come_back(spark, place):
    frame = spark.range(0, 1000, 1, 3).selectExpr(
        "id",
        "array(concat('w', id), 'tea') AS keywords",
        "id / 7 AS `half.price`",
        "timestamp_micros(id) AS at",
    )
    written = write_parts(frame, place)
    assert sum(written["rows"].to_pylist()) == 1000
    assert sorted(written["name"].to_pylist()) == [entry.name for entry in place.entries()]
    back = read_parts(spark, files_of(place, written), frame.schema)
    assert back.schema == frame.schema
    assert back.exceptAll(frame).count() == frame.exceptAll(back).count() == 0


def test_partitions_without_rows_have_no_file_and_missing_columns_are_null(spark, place):
    written = write_parts(spark.range(0, 2, 1, 8), place)
    assert sum(written["rows"].to_pylist()) == 2
    assert written.num_rows <= 2
    wider = spark.createDataFrame([], "id long, name string").schema
    rows = read_parts(spark, files_of(place, written), wider).collect()
    assert sorted((row["id"], row["name"]) for row in rows) == [(0, None), (1, None)]
    assert read_parts(spark, {}, wider).count() == 0


def test_a_file_that_lost_rows_is_an_error(spark, place, tmp_path):
    written = write_parts(spark.range(10).coalesce(1), place)
    (name,) = written["name"].to_pylist()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "short")
    place.write(name, tmp_path / "short")
    with pytest.raises(Exception, match="has 2 rows, but 10 were written"):
        read_parts(spark, files_of(place, written), spark.range(1).schema).count()


def test_two_attempts_of_a_task_write_two_files(tmp_path):
    attempts = [
        list(_write_part([pa.record_batch({"id": [1, 2]})], f"file://{tmp_path}", "part")) for _ in range(2)
    ]
    names = [batch["name"][0].as_py() for (batch,) in attempts]
    assert len(set(names)) == 2
    assert [entry.name for entry in place_at(tmp_path).entries()] == sorted(names)
