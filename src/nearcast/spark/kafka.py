"""Kafka topics in and out, through Spark's own connector.

The connector is not part of PySpark: it is a Maven artifact, which Spark fetches when a session starts with
``session(packages=kafka.packages())``. It must have exactly the version of PySpark: connectors of other versions call
internals of Spark that have moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import functions as F  # noqa: N812  its usual name
from pyspark.sql.types import StructType

from nearcast import config
from nearcast.errors import ColumnError, shown
from nearcast.preparation import MALFORMED
from nearcast.spark.reading import other_fields, parse_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "BATCH_HEADER",
    "DELIVERY_HEADER",
    "POSITION",
    "deliveries_to_kafka",
    "packages",
    "read_messages",
]

POSITION = "kafka"  #: the struct of a record's key, topic, partition, offset and timestamp
BATCH_HEADER = "nearcast-batch"
DELIVERY_HEADER = "nearcast-delivery"


def packages() -> list[str]:
    """Return the Maven coordinates of the connector for the installed PySpark.

    >>> packages()  # doctest: +ELLIPSIS
    ['org.apache.spark:spark-sql-kafka-0-10_2.13:4...']
    """
    return [f"org.apache.spark:spark-sql-kafka-0-10_{config.SPARK_SCALA}:{pyspark.__version__}"]


def read_messages(
    spark: SparkSession,
    servers: str,
    topic: str,
    schema: StructType | str,
    *,
    stream: bool = True,
    starting: str = "earliest",
    options: Mapping[str, str] | None = None,
    others: str | None = None,
) -> DataFrame:
    """Return the records of a topic, each a JSON object, as rows: a stream, or with ``stream=False`` a batch.

    The columns are those of *schema*, then ``_corrupt_record`` and ``kafka``.

    No record is lost. If the value is not one JSON object, or does not fit the schema, or is not UTF-8, the columns of
    the schema are null and ``_corrupt_record`` holds the value as text (invalid UTF-8 is replaced; a record without a
    value gives the empty string). In all other rows ``_corrupt_record`` is null. :func:`nearcast.spark.prepare`
    quarantines malformed rows; before :func:`nearcast.spark.match`, keep only ``where("_corrupt_record IS NULL")``.

    ``kafka`` is a struct of ``key`` (binary), ``topic``, ``partition``, ``offset`` and ``timestamp``: it says where the
    record can be read again.

    The guarantee: a streaming query reads every record of the topic from *starting* on. Its checkpoint notes the
    offsets of each micro-batch before it runs, so that a repeat of the batch reads the same records. A query fails,
    rather than leave a gap, if Kafka has deleted records that it has not read yet (``failOnDataLoss``).

    Parameters
    ----------
    spark
        A session that has the connector: ``session(packages=kafka.packages())``.
    servers
        ``host:port`` of the first brokers to contact, separated by commas.
    topic
        The name of the topic, or several names separated by commas.
    schema
        The schema of the JSON objects: a ``StructType``, or text such as
        ``"id long, lon double, lat double, text string"``. Other fields of the objects are left out.
    stream
        Whether to continue reading as records arrive. A batch ends with the records that exist now.
    starting
        ``"earliest"``, ``"latest"`` (streams only), or offsets by partition, in Spark's notation:
        ``'{"topic": {"0": 23}}'``. A query that has a checkpoint continues from there instead.
    options
        More options of Spark's Kafka source, such as ``maxOffsetsPerTrigger``; options of Kafka itself begin with
        ``kafka.``, such as ``kafka.security.protocol``.
    others
        If given, the name of an additional column, which lists the names of the fields that were left out.
    """
    fields = _fields(schema)
    more = [] if others is None else [other_fields(fields).alias(others)]
    position = F.struct("key", "topic", "partition", "offset", "timestamp").alias(POSITION)
    reader = spark.readStream if stream else spark.read
    source = reader.format("kafka").options(
        **{
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": starting,
            **(options or {}),
        }
    )
    return parse_records(source.load(), fields, *more, position)


def deliveries_to_kafka(deliveries: DataFrame, batch: int | None = None) -> DataFrame:
    """Return deliveries in the form of Spark's Kafka sink: ``key`` and ``value``, and with *batch* also ``headers``.

    The key is the subscription's id as text, so that the deliveries of a subscription are in one partition. The value
    is a JSON object of all columns, in order: ``{"subscription_id":"anna","message_id":1,"change":"+",…}``. The headers
    are ``nearcast-batch``, the number of the micro-batch, and ``nearcast-delivery``, the two ids and the change as a
    JSON list of strings. The latter is the same for the same delivery, so that a consumer can drop repeats (see
    :func:`nearcast.spark.sinks.kafka_sink`).
    """
    columns = [
        F.col("subscription_id").cast("string").alias("key"),
        F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value"),
    ]
    if batch is not None:
        identity = F.array(
            *(F.col(name).cast("string") for name in ("subscription_id", "message_id", "change"))
        )
        headers = {BATCH_HEADER: F.lit(str(batch)), DELIVERY_HEADER: F.to_json(identity)}
        columns.append(
            F.array(
                *(
                    F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
                    for name, value in headers.items()
                )
            ).alias("headers")
        )
    return deliveries.select(*columns)


def _fields(schema: StructType | str) -> StructType:
    """Return the schema of a message; raise if it has no columns, or uses a name that is reserved."""
    fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(fields, StructType) or not fields.names:
        raise ColumnError(f"the schema of messages must list at least one column; {shown(schema)} has none")
    for reserved in (MALFORMED, POSITION):
        if reserved in fields.names:
            raise ColumnError(
                f"no column of messages can be called {reserved}: read_messages adds one; rename it"
            )
    return fields
