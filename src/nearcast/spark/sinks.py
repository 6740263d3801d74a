"""Where the deliveries of a stream go, one micro-batch at a time: functions for ``foreachBatch``.

Spark repeats a micro-batch that was broken off before it was committed: the same messages, under the same number. A
sink is exact if a repeat takes the place of the first attempt (:func:`parquet_sink`), or if whoever reads can tell the
two apart (:func:`kafka_sink`).
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.errors import InputError
from nearcast.spark.kafka import deliveries_to_kafka
from nearcast.spark.parquet import write_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

__all__ = ["kafka_sink", "parquet_sink"]


def parquet_sink(path: str | os.PathLike[str]) -> Callable[[DataFrame, int], None]:
    """Return a function that writes each micro-batch to a directory of its own, ``path/batch=7``.

    What is guaranteed: each delivery is there exactly once, whatever was broken off and repeated, for every program
    that reads Parquet. A batch is written aside, under a name with a dot before it, which readers pass over, and gets
    its own name in one step when it is complete: no reader sees a part of one. When a batch is repeated, the first
    attempt makes way for the second; between the two renames, a reader may see neither.

    The numbers are those of the query's checkpoint. A new checkpoint counts from 0 again and needs another *path*, or
    its batches overwrite those of the old one.

    *path* is a directory that the driver and every worker see under the same name: on one machine any, on a cluster a
    shared file system. Object stores cannot rename; there, use Spark's own sink (``format("parquet")``).
    """
    if "://" in os.fspath(path):
        raise InputError(
            f"{os.fspath(path)} is no path of a file system, and batches are renamed there; "
            'for an object store use Spark\'s own sink, writeStream.format("parquet")'
        )
    home = Path(path).absolute()

    def write(frame: DataFrame, batch: int) -> None:
        home.mkdir(parents=True, exist_ok=True)
        for remains in home.glob(f".batch={batch}.*"):  # of attempts that were broken off
            shutil.rmtree(remains)
        target = home / f"batch={batch}"
        draft, earlier = (home / f".{target.name}.{uuid.uuid4().hex}" for _ in range(2))
        write_parquet(frame, f"file://{draft}")  # Spark takes a name as it is, and as_uri() encodes it
        if target.exists():
            target.rename(earlier)  # a directory cannot be replaced in one step
        draft.rename(target)
        shutil.rmtree(earlier, ignore_errors=True)

    return write


def kafka_sink(
    servers: str, topic: str, *, options: Mapping[str, str] | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function that writes each micro-batch of deliveries to a topic.

    What is guaranteed: each delivery at least once. Spark's Kafka sink has no transactions: when a batch is broken off
    and repeated, what the first attempt had sent stays in the topic, and the second sends it again. When the batch is
    committed, Kafka has acknowledged all of it.

    Two headers let a consumer drop the repeats (:func:`nearcast.spark.kafka.deliveries_to_kafka` writes them):
    ``nearcast-batch``, the number of the micro-batch, and ``nearcast-delivery``, which is the same for the same
    delivery. Repeats have the same key, so they come to the same partition, and a batch begins only when the one before
    it was sent whole. A consumer therefore remembers, for each partition, the number and the deliveries of one batch:

    - a lower number is a repeat: skip;
    - the same number: skip the deliveries that it has seen;
    - a higher number: forget those, and go on with this one.

    The numbers are those of the query's checkpoint. A new checkpoint counts from 0 again and needs another topic, or
    consumers that forget as well.

    *options* are more options of Spark's Kafka sink; those of Kafka itself begin with ``kafka.``, such as
    ``kafka.security.protocol``.
    """
    settings = {"kafka.bootstrap.servers": servers, "topic": topic, **(options or {})}

    def write(frame: DataFrame, batch: int) -> None:
        deliveries_to_kafka(frame, batch).write.format("kafka").options(**settings).save()

    return write
