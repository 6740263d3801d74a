"""Messages and subscriptions in, deliveries out: one stateless stage of a Spark query."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from nearcast import config
from nearcast.columns.wire import NEW_SCHEMA, WIRE_SCHEMA
from nearcast.errors import InputError, shown
from nearcast.matching import Index
from nearcast.sharding.version import ShardedVersion
from nearcast.spark import worker
from nearcast.spark.columns import map_in_arrow, message_columns, rename_columns
from nearcast.spark.compat import spark_type
from nearcast.spark.deliveries import as_deliveries
from nearcast.spark.session import quietly
from nearcast.spark.versions import build_version, sample_of
from nearcast.storage.current import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from nearcast.columns.from_arrow.renaming import Columns

__all__ = ["match", "match_version"]


def match(
    messages: DataFrame,
    subscriptions: DataFrame | str | os.PathLike[str],
    *,
    index: str = config.DEFAULT_INDEX,
    distribution: str = "auto",
    shards: int | None = None,
    index_dir: str | os.PathLike[str] | None = None,
    columns: Columns | None = None,
) -> DataFrame:
    """Return the deliveries of *messages*: a DataFrame with the columns that all deliveries have.

    ``message_id`` has the type of the messages' ids, ``subscription_id`` is a string or a bigint. ``change`` is ``+``
    and ``reason`` is ``publish`` in every row; ``score`` (double) and ``rank`` (int) are null.

    Each message row is delivered exactly once to every subscription that it matches, in no particular order. Batch
    messages give a batch DataFrame, streaming messages a streaming one, and no state is kept. The index is fixed when
    this function returns: later changes to the subscriptions do not affect the query. Without shards no message moves
    to another partition; with shards each message is sent only to those that can match it.

    Parameters
    ----------
    messages
        ``id`` (string or integer); the place as ``lon`` and ``lat``, as ``xmin``, ``ymin``, ``xmax``, ``ymax``, or as
        ``geometry`` (WKB; if it is not null, it takes precedence); the words as ``keywords`` (array of strings) or
        ``text``. Every other column of numbers or strings is an attribute; null means that a message does not have it.
    subscriptions
        A batch DataFrame, from which an index is built now; or the path or URI that :func:`build` returned; or that of
        the directory that it built in, whose latest version is then taken, once, now. Columns:
        ``id``; ``expression`` (such as ``coffee AND price < 4``) or ``keywords`` (all of them); the region as
        ``geometry`` (WKB), as ``lon``, ``lat``, ``radius_m``, or as ``xmin``, ``ymin``, ``xmax``, ``ymax``; all null
        means everywhere.
    index
        The name of the index to build from a DataFrame.
    distribution, shards
        How to divide a DataFrame of subscriptions, as :func:`build` takes them; one index for all by default.
    index_dir
        Where :func:`build` keeps the index of a DataFrame, as a path or a URI. The default works on a single machine; a
        cluster needs storage that the driver and every worker see.
    columns
        If the DataFrames have other names for their columns, a mapping from ours to theirs, such as
        ``{"lat": "latitude"}``. An entry holds for each DataFrame that has the column; ``{"messages": {"id": "nr"}}``
        is for the messages alone. More in :mod:`nearcast.columns.from_arrow.renaming`.

    Raises ColumnError before any job starts if a column is missing or has a wrong type. A message with a meaningless
    value (a latitude of 91) fails its task, and so the query, with an error that names the message.
    """
    for name, frame in (("messages", messages), ("subscriptions", subscriptions)):
        if not isinstance(frame, DataFrame) and (
            name == "messages" or not isinstance(frame, str | os.PathLike)
        ):
            path = "" if name == "messages" else " or the path or URI of an index"
            raise InputError(f"{name} must be a Spark DataFrame{path}, not {shown(frame)}")
    if isinstance(subscriptions, DataFrame):
        messages, rows = rename_columns(columns, messages=messages, subscriptions=subscriptions)
        sample = sample_of(messages) if shards is not None and not messages.isStreaming else None
        version = build_version(
            rows, index_dir, index=index, distribution=distribution, shards=shards, sample=sample
        )
    else:
        messages, _ = rename_columns(columns, messages=messages)
        version = current(subscriptions)
    # A version that is missing or damaged is reported here, not by a task.
    opened = worker.open_version(version.uri)
    return match_version(message_columns(messages, opened.coding), version.uri, opened)


def match_version(
    messages: DataFrame, uri: str, version: Index | ShardedVersion, deltas: Sequence[str] = ()
) -> DataFrame:
    """Return the deliveries of *messages* to the subscriptions of a version, and of *deltas* after it.

    The version is at *uri*, and opened here; the deltas are named by URI. *messages* has the columns that matching
    reads, and no others.
    """
    schema = StructType(
        [
            StructField("subscription_id", spark_type(worker.id_type(version)), nullable=False),
            StructField("message_id", messages.schema["id"].dataType, nullable=False),
        ]
    )

    digest = version.digest if isinstance(version, ShardedVersion) else ""

    def stage(run: Callable[..., Iterator[pa.RecordBatch]]) -> Callable[..., Iterator[pa.RecordBatch]]:
        return lambda batches: run(batches, uri, digest, tuple(deltas))

    with quietly():
        if isinstance(version, Index) or version.shards == 1:
            return as_deliveries(map_in_arrow(messages, stage(worker.match_messages), schema))
        columns = _sent_schema(messages, version, learnt=bool(deltas))
        sent = map_in_arrow(messages, stage(worker.send_messages), columns)
        divided = sent.repartitionById(version.shards, worker.SHARD)
        return as_deliveries(map_in_arrow(divided, stage(worker.match_sent), schema))


def _sent_schema(messages: DataFrame, version: ShardedVersion, *, learnt: bool) -> StructType:
    """Return the columns of messages on their way to shards, as :func:`nearcast.spark.worker.send_messages` does."""
    fields = [messages.schema["id"]]
    for columns in (WIRE_SCHEMA, NEW_SCHEMA) if learnt else (WIRE_SCHEMA,):
        fields += [StructField(column.name, spark_type(column.type)) for column in columns]
    fields.append(StructField(worker.SHARD, IntegerType(), nullable=False))
    if version.has_copies or learnt:
        fields.append(StructField(worker.SENT, BinaryType(), nullable=False))
    return StructType(fields)
