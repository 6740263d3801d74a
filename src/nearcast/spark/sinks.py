"""Sinks for the deliveries of a stream, one micro-batch at a time: functions for ``foreachBatch``.

Spark repeats a micro-batch that was interrupted before it was committed, with the same messages and the same number. A
sink is exact if a repeat replaces the first attempt (:func:`parquet_sink`), or if readers can recognise the repeat
(:func:`kafka_sink`).
"""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812  its usual name

from nearcast.errors import NearcastError
from nearcast.spark.kafka import deliveries_to_kafka
from nearcast.spark.parquet import write_parquet
from nearcast.spark.parts import write_file
from nearcast.storage.atomic import rename_durably, sync_tree
from nearcast.storage.places import place_at

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame

    from nearcast.storage.places import Place

__all__ = ["kafka_sink", "parquet_sink"]

_FILE = "deliveries.parquet"  # the file of a batch at a URI


def parquet_sink(path: str | os.PathLike[str]) -> Callable[[DataFrame, int], int]:
    """Return a function that writes each micro-batch to a directory of its own, ``path/batch=7``, and counts its rows.

    The guarantee: every program that reads Parquet finds each delivery exactly once, whatever was interrupted and
    repeated, and never sees part of a batch. When a batch is repeated, the second attempt replaces the first.

    *path* is a URI (``s3:``, ``gs:``, ``abfss:``, ``hdfs:``), or a directory that the driver and every worker see under
    the same name: on one machine any directory, on a cluster one of a shared file system.

    - In a directory, tasks write a batch under a name that begins with a dot, which readers ignore, and it gets its own
      name in one step when it is complete; between the two renames of a repetition, a reader may see neither attempt.
      No batch is committed that lacks rows: those that the tasks wrote are counted, and as many must be in the files
      that this process sees. So executors that write to disks of their own are an error, not a loss.
    - At a URI, a batch is one file, which one task writes: it appears, and is replaced, in one step.

    The numbers are those of the query's checkpoint. A new checkpoint counts from 0 again and needs another *path*, or
    its batches overwrite those of the old one. What interrupted attempts of any batch left is removed before the first
    batch that is written, so *path* is for one query at a time.
    """
    place = place_at(path)
    return _file_sink(place) if place.local is None else _directory_sink(place.local)


def _file_sink(home: Place) -> Callable[[DataFrame, int], int]:
    """Return a sink for a place where no directory can be renamed, but a file appears whole: a file for each batch."""

    def write(frame: DataFrame, batch: int) -> int:
        target = home / f"batch={batch}"
        rows = write_file(frame, target, _FILE)
        if not rows:
            target.remove([_FILE])  # of an earlier attempt
        return rows

    return write


def _directory_sink(home: Path) -> Callable[[DataFrame, int], int]:
    """Return a sink for a directory on a disk that every process sees: a directory for each batch."""
    fresh = True

    def write(frame: DataFrame, batch: int) -> int:
        nonlocal fresh
        home.mkdir(parents=True, exist_ok=True)
        for abandoned in home.glob(".batch=*.*") if fresh else ():  # by attempts that were killed
            shutil.rmtree(abandoned)
        fresh = False
        target = home / f"batch={batch}"
        draft, earlier = (home / f".{target.name}.{uuid.uuid4().hex}" for _ in range(2))
        try:
            rows = _write_whole(frame, draft)
            if target.exists():
                target.rename(earlier)  # a directory cannot be replaced in one step
            rename_durably(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(earlier, ignore_errors=True)
        return rows

    return write


def _write_whole(frame: DataFrame, draft: Path) -> int:
    """Write rows to a directory, and return how many; raise unless all of them are there."""
    counted = Observation()
    observed = frame.observe(counted, F.count(F.lit(1)).alias("rows"))
    write_parquet(observed, f"file://{draft}")  # not as_uri(): Spark would take its %-codes literally
    rows = int(counted.get["rows"])
    there = sum(pq.read_metadata(file).num_rows for file in draft.glob("*.parquet"))
    if there != rows:
        raise NearcastError(
            f"{rows:,} rows were written to {draft.parent}, and {there:,} of them are there: do executors have disks "
            "of their own? Give a directory that this process and every executor see, or use Spark's own sink"
        )
    sync_tree(draft)
    return rows


def kafka_sink(
    servers: str, topic: str, *, options: Mapping[str, str] | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function that writes each micro-batch of deliveries to a topic.

    The guarantee: each delivery is written at least once. Spark's Kafka sink has no transactions: when a batch is
    interrupted and repeated, the records of the first attempt stay in the topic, and the second attempt sends them
    again. When the batch is committed, Kafka has acknowledged all of it.

    Two headers let a consumer drop the repeats (:func:`nearcast.spark.kafka.deliveries_to_kafka` writes them):
    ``nearcast-batch``, the number of the micro-batch, and ``nearcast-delivery``, which is the same for the same
    delivery. Repeats have the same key, so they go to the same partition, and a batch starts only when the one before
    it was sent completely. So a consumer remembers, for each partition, the number and the deliveries of one batch:

    - a lower number is a repeat: skip the record;
    - the same number: skip the record if its delivery was seen;
    - a higher number: forget the deliveries of the old batch, and continue with this one.

    The numbers are those of the query's checkpoint. A new checkpoint counts from 0 again and needs another topic, or
    consumers that start afresh too.

    *options* are more options of Spark's Kafka sink; options of Kafka itself begin with ``kafka.``, such as
    ``kafka.security.protocol``.
    """
    settings = {"kafka.bootstrap.servers": servers, "topic": topic, **(options or {})}

    def write(frame: DataFrame, batch: int) -> None:
        deliveries_to_kafka(frame, batch).write.format("kafka").options(**settings).save()

    return write
