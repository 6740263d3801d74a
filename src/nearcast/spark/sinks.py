"""Sinks for the deliveries of a stream, one micro-batch at a time: functions for ``foreachBatch``.

Spark repeats a micro-batch that was interrupted before it was committed, with the same messages and the same number. A
sink is exact if a repeat replaces the first attempt (:func:`parquet_sink`), or if readers can recognise the repeat
(:func:`kafka_sink`).
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import uuid
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812  its usual name

from nearcast import config
from nearcast.errors import NearcastError, whole_number
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


def parquet_sink(path: str | os.PathLike[str], *, most: int | None = None) -> Callable[[DataFrame, int], int]:
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

    *most* is the number of batches that stay: when one more is written, the oldest goes, so readers have to take what
    they need in time. Without it all stay, and the log says when they are so many that listing them takes long. A batch
    without rows leaves nothing, except the first one in a directory, so that a reader finds the columns.

    The numbers are those of the query's checkpoint. A new checkpoint counts from 0 again and needs another *path*, or
    its batches overwrite those of the old one. What interrupted attempts of any batch left is removed before the first
    batch that is written, so *path* is for one query at a time.
    """
    if most is not None:
        most = whole_number("most", most, 1)
    place = place_at(path)
    kept = _Batches(place, most)
    return _file_sink(place, kept) if place.local is None else _directory_sink(place.local, kept)


class _Batches:
    """The numbers of the batches that are there; they are listed once."""

    def __init__(self, home: Place, most: int | None) -> None:
        self._home, self._most = home, most
        self._told = config.SINK_BATCHES  # when they are more, the log says so

    @cached_property
    def numbers(self) -> set[int]:
        """All numbers."""
        found = (name.removeprefix("batch=") for name in self._home.children() if name.startswith("batch="))
        return {int(number) for number in found if number.isdecimal()}

    def add(self, batch: int) -> list[int]:
        """Note a batch that was written; return those that have to go."""
        self.numbers.add(batch)
        if self._most is not None:
            over = max(len(self.numbers) - self._most, 0)
            return sorted(self.numbers - {batch})[:over]
        if len(self.numbers) > self._told:
            self._told = 2 * len(self.numbers)
            logging.getLogger(__name__).warning(
                "%s has %d batches, each with a directory that every reader lists: merge or move all but the last, "
                "bound them by parquet_sink(..., most=...), or let a trigger make fewer",
                self._home,
                len(self.numbers),
            )
        return []


def _file_sink(home: Place, kept: _Batches) -> Callable[[DataFrame, int], int]:
    """Return a sink for a place where no directory can be renamed, but a file appears whole: a file for each batch."""

    def write(frame: DataFrame, batch: int) -> int:
        rows = write_file(frame, home / f"batch={batch}", _FILE)
        gone = kept.add(batch) if rows else [batch]  # of an earlier attempt
        for number in gone:
            (home / f"batch={number}").remove([_FILE])
            kept.numbers.discard(number)
        return rows

    return write


def _directory_sink(home: Path, kept: _Batches) -> Callable[[DataFrame, int], int]:
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
            if rows or not kept.numbers - {batch}:
                rename_durably(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(earlier, ignore_errors=True)
        for number in kept.add(batch) if target.exists() else [batch]:
            _remove(home / f"batch={number}")
            kept.numbers.discard(number)
        return rows

    return write


def _remove(batch: Path) -> None:
    """Remove a batch; readers do not see it while its files go."""
    aside = batch.with_name(f".{batch.name}.{uuid.uuid4().hex}")
    with contextlib.suppress(FileNotFoundError):  # somebody else moved it
        batch.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


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
