"""Rows of DataFrames as Parquet files in a place, written and read by tasks.

Spark's own writers and readers see only the file systems that its Java side is set up for, and name them in their own
way. These go through :mod:`nearcast.storage.places`, as everything does that Nearcast keeps: any URI works, with or
without Hadoop's connectors, on Spark Connect too, and a path means the same whatever ``fs.defaultFS`` is.

A task writes files under names that nobody else uses, and its result says which. A task that is repeated, or runs twice
at once, leaves files that no result names: they do not count.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from nearcast import config
from nearcast.errors import StorageError
from nearcast.spark.columns import map_in_arrow
from nearcast.spark.compat import arrow_schema
from nearcast.storage.places import place_at, uri_of

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from nearcast.storage.places import Place

__all__ = ["read_parts", "write_file", "write_parts"]

_WRITTEN = pa.schema([("name", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())])


def write_parts(frame: DataFrame, place: str | os.PathLike[str] | Place, *, prefix: str = "part") -> pa.Table:
    """Write each partition of *frame* to a Parquet file; return the name, the rows and the bytes of each file.

    Partitions without rows have no file. The names are relative to *place* and begin with *prefix*. The files are
    durable when this returns.
    """
    uri = uri_of(place)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _write_part(batches, uri, prefix)

    written = map_in_arrow(frame, write, "name string, rows long, bytes long").toArrow()
    return written.cast(_WRITTEN).sort_by("name")


def write_file(frame: DataFrame, place: str | os.PathLike[str] | Place, name: str) -> int:
    """Write the rows of *frame* to one Parquet file, in one task; return how many. Without rows, nothing is written.

    The file appears, or replaces one of this name, in one step, and is durable when this returns.
    """
    uri = uri_of(place)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _write(batches, uri, name)

    # Rows are sent to the task, so that those before it that make them are as many as ever.
    written = map_in_arrow(frame.repartition(1), write, "name string, rows long, bytes long").toArrow()
    return sum(written["rows"].to_pylist())


def read_parts(spark: SparkSession, files: Mapping[str, int], schema: StructType) -> DataFrame:
    """Return the rows of Parquet files with the columns of *schema*; *files* has the number of rows of each, by URI.

    A column that a file lacks is null. A file that is missing, or has another number of rows, fails its task.
    """
    listed = list(files.items())
    tasks = max(1, min(len(listed), config.SPARK_READERS))
    columns = arrow_schema(schema)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                uri, rows = listed[number]
                yield from _read(uri, rows, columns)

    return spark.range(0, len(listed), 1, tasks).mapInArrow(read, schema)


def _write_part(batches: Iterable[pa.RecordBatch], uri: str, prefix: str) -> Iterator[pa.RecordBatch]:
    """Write a file under a name that no other attempt uses."""
    return _write(batches, uri, f"{prefix}-{uuid.uuid4().hex}.parquet")


def _write(batches: Iterable[pa.RecordBatch], uri: str, name: str) -> Iterator[pa.RecordBatch]:
    rows, writer = 0, None
    with tempfile.TemporaryDirectory(prefix="nearcast-") as directory:
        file = Path(directory, "rows")
        try:
            for batch in batches:
                if writer is None:
                    writer = pq.ParquetWriter(file, batch.schema, compression="zstd")
                if len(batch):
                    writer.write_batch(batch)
                    rows += len(batch)
        finally:
            if writer is not None:
                writer.close()
        if rows:
            place_at(uri).write(name, file)
            size = file.stat().st_size
            yield pa.RecordBatch.from_pylist([{"name": name, "rows": rows, "bytes": size}], _WRITTEN)


def _read(uri: str, rows: int, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    home, _, name = uri.rpartition("/")
    with place_at(home).open(name) as opened, pq.ParquetFile(opened) as file:
        if file.metadata.num_rows != rows:
            raise StorageError(f"{uri} has {file.metadata.num_rows:,} rows, but {rows:,} were written")
        there = [field.name for field in columns if field.name in file.schema_arrow.names]
        for batch in file.iter_batches(config.SPARK_READ_ROWS, columns=there):
            yield pa.RecordBatch.from_arrays(
                [
                    batch[field.name].cast(field.type)
                    if field.name in there
                    else pa.nulls(len(batch), field.type)
                    for field in columns
                ],
                schema=columns,
            )
