"""The sources and sinks of a stream, as given on the command line: files or Kafka topics.

A topic is ``kafka://host:9092,other:9092/topic``; options of Spark's Kafka source or sink may follow, as in
``kafka://host:9092/topic?maxOffsetsPerTrigger=10000&kafka.security.protocol=SSL``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

from nearcast.cli import spark_session
from nearcast.errors import InputError, shown
from nearcast.storage.paths import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Sink", "Topic", "arriving_changes", "arriving_messages", "quarantine", "sink", "topic_of"]

# A function that writes a micro-batch under its number, and returns its number of rows.
Sink = Callable[["DataFrame", int], int]
_TOPIC = re.compile(r"kafka://([^,/?\s]+:\d+(?:,[^,/?\s]+:\d+)*)/([\w.,-]+)(?:\?(.*))?", re.ASCII)


class Topic(NamedTuple):
    """A Kafka topic, and how to reach it."""

    servers: str
    name: str
    options: dict[str, str]


def topic_of(address: str) -> Topic | None:
    """Return the topic of an address, or None if it is not a Kafka address.

    >>> topic_of("kafka://a:9092,b:9092/messages?startingOffsets=latest")
    Topic(servers='a:9092,b:9092', name='messages', options={'startingOffsets': 'latest'})
    """
    if not address.startswith("kafka:"):
        return None
    found = _TOPIC.fullmatch(address)
    try:
        options = dict(parse_qsl((found and found[3]) or "", strict_parsing=bool(found and found[3])))
    except ValueError:
        found = None
    if found is None:
        raise InputError(
            f"{shown(address)} is not the address of a topic; write kafka://host:9092/topic, "
            "optionally followed by ?option=value&option=value"
        )
    return Topic(found[1], found[2], options)


def arriving_messages(
    spark: SparkSession, address: str, schema: StructType | None, options: Mapping[str, str]
) -> tuple[DataFrame, bool]:
    """Return messages as they arrive, and whether they are raw: records and lines that may not be messages.

    *schema* is needed for a topic; for files it is inferred from those that exist. *options* are those of Spark's
    source; for a topic, they are added to those of its address.
    """
    from nearcast.spark import kafka
    from nearcast.spark.reading import format_of, stream_raw

    topic = topic_of(address)
    if topic is not None:
        assert schema is not None
        options = {**topic.options, **options}
        return kafka.read_messages(spark, topic.servers, topic.name, schema, options=options), True
    where = _directory(address)
    told = format_of(where)
    return stream_raw(spark, where, told, schema, options=options), told in ("json", "csv")


def arriving_changes(
    spark: SparkSession, address: str, subscriptions: DataFrame, theirs: Mapping[str, str]
) -> DataFrame:
    """Return change records as they arrive: the columns of the subscriptions, ``change`` and ``changed_at``.

    The records have the names that the rows of subscriptions have: *theirs*, for those of ours that are others there.

    Parquet files have their own types; if there are none yet, ``changed_at`` is a timestamp. In JSON and CSV it is ISO
    8601 with an offset, or microseconds, and a geometry is WKT. A record or line that cannot be read gets its own text
    as its change. No such change exists, so it is refused and kept like any other refused record. The same happens to a
    JSON record with a field whose name must be a mistake.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

    from nearcast.preparation import MALFORMED
    from nearcast.spark import kafka
    from nearcast.spark.columns import quoted
    from nearcast.spark.live.records import OTHER_FIELDS
    from nearcast.spark.reading import format_of, stream_objects, stream_raw

    change, at = StructField("change", StringType()), StructField("changed_at", TimestampType())
    columns = [
        StructField(
            theirs.get(field.name, field.name),
            StringType() if isinstance(field.dataType, BinaryType) else field.dataType,
        )
        for field in subscriptions.schema
    ]
    ours = {name: own for own, name in theirs.items()}
    written = StructType([change, StructField("changed_at", StringType()), *columns])
    topic = topic_of(address)
    if topic is not None:
        raw = kafka.read_messages(
            spark, topic.servers, topic.name, written, options=topic.options, others=OTHER_FIELDS
        )
    else:
        where = _directory(address)
        told = format_of(where)
        if told not in ("json", "csv"):
            found = stream_raw(spark, where, told, empty=StructType([change, at, *subscriptions.schema]))
            return found.toDF(*(ours.get(name, name) for name in found.columns))
        if told == "csv":  # every file must have these names, or reading fails
            raw = stream_raw(spark, where, told, written)
        else:
            raw = stream_objects(spark, where, written, OTHER_FIELDS)
    read = {
        "change": functions.coalesce(functions.col(MALFORMED), functions.col("change")),
        "changed_at": functions.coalesce(
            functions.try_to_timestamp("changed_at"),
            functions.expr("timestamp_micros(try_cast(changed_at AS BIGINT))"),
        ),
    }
    others = [name for name in raw.columns if name == OTHER_FIELDS]
    named = (functions.col(quoted(name)).alias(ours.get(name, name)) for name in written.names)
    return raw.withColumns(read).select(*named, *others)


def sink(address: str, most: int | None) -> Sink:
    """Return the function that writes the deliveries of a micro-batch to a topic, a directory or an object store.

    In the last two, at most so many micro-batches stay.
    """
    from nearcast.spark.sinks import kafka_sink, parquet_sink

    topic = topic_of(address)
    if topic is not None:
        return _counting(kafka_sink(topic.servers, topic.name, options=topic.options))
    return parquet_sink(address, most=most)


def quarantine(directory: str) -> Sink:
    """Return the function that writes rows that cannot be used; a micro-batch without any leaves no directory."""
    from nearcast.spark.sinks import parquet_sink

    return _counting(parquet_sink(directory))


def _counting(write: Callable[[DataFrame, int], object]) -> Sink:
    """Return a sink that computes the rows once, counts them, and writes them if there are any."""

    def run(frame: DataFrame, number: int) -> int:
        frame = frame.persist()
        try:
            rows = frame.count()
            if rows:
                write(frame, number)
            return rows
        finally:
            frame.unpersist()

    return run


def _directory(path: str) -> str:
    """Return the directory of arriving files for Spark: *path*, or its good rows if ``nearcast prepare`` wrote it."""
    where = local_path(path)
    if where is not None and "*" not in path and not where.is_dir():
        raise InputError(f"there is no directory {path} for files to arrive in; create it")
    return spark_session.rows_of(path)
