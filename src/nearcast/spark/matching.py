"""Messages and subscriptions in, deliveries out: one stateless stage of a Spark query."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType

from nearcast import config
from nearcast.errors import InputError, shown
from nearcast.sharding.version import ShardedVersion
from nearcast.spark import worker
from nearcast.spark.columns import map_in_arrow, message_columns
from nearcast.spark.deliveries import as_deliveries
from nearcast.spark.session import quietly
from nearcast.spark.versions import build_version, sample_of
from nearcast.storage.current import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

__all__ = ["match", "sent_schema"]


def match(
    messages: DataFrame,
    subscriptions: DataFrame | str | os.PathLike[str],
    *,
    index: str = config.DEFAULT_INDEX,
    distribution: str = "auto",
    shards: int | None = None,
    index_dir: str | os.PathLike[str] | None = None,
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
        A batch DataFrame, from which an index is built now; or the directory that :func:`build` returned; or the one
        that it built in, whose latest version is then taken, once, now. Columns:
        ``id``; ``expression`` (such as ``coffee AND price < 4``) or ``keywords`` (all of them); the region as
        ``geometry`` (WKB), as ``lon``, ``lat``, ``radius_m``, or as ``xmin``, ``ymin``, ``xmax``, ``ymax``; all null
        means everywhere.
    index
        The name of the index to build from a DataFrame.
    distribution, shards
        How to divide a DataFrame of subscriptions, as :func:`build` takes them; one index for all by default.
    index_dir
        Where :func:`build` keeps the index of a DataFrame. The default works on a single machine; a cluster needs
        storage that the driver and every worker see under the same path.

    Raises ColumnError before any job starts if a column is missing or has a wrong type. A message with a meaningless
    value (a latitude of 91) fails its task, and so the query, with an error that names the message.
    """
    for name, frame in (("messages", messages), ("subscriptions", subscriptions)):
        if not isinstance(frame, DataFrame) and (
            name == "messages" or not isinstance(frame, str | os.PathLike)
        ):
            path = "" if name == "messages" else " or the directory of an index"
            raise InputError(f"{name} must be a Spark DataFrame{path}, not {shown(frame)}")
    if isinstance(subscriptions, DataFrame):
        sample = sample_of(messages) if shards is not None and not messages.isStreaming else None
        version = build_version(
            subscriptions,
            None if index_dir is None else Path(index_dir),
            index=index,
            distribution=distribution,
            shards=shards,
            sample=sample,
        )
    else:
        found = current(subscriptions).local
        assert found is not None
        version = found
    # A directory that is missing or damaged is reported here, not by a task.
    opened, ids = worker.open_version(str(version))
    needed = message_columns(messages, opened.coding)
    schema = StructType(
        [
            StructField("subscription_id", from_arrow_type(ids.type), nullable=False),
            StructField("message_id", needed.schema["id"].dataType, nullable=False),
        ]
    )
    with quietly():
        if isinstance(opened, ShardedVersion):
            return as_deliveries(_match_through_shards(needed, str(version), opened, schema))
        return as_deliveries(map_in_arrow(needed, _at_version(worker.match_messages, str(version)), schema))


def sent_schema(messages: StructType, *, list_shards: bool) -> StructType:
    """Return the columns of messages on their way to shards, as :func:`nearcast.spark.worker.send` makes them."""
    schema = StructType([*messages.fields, StructField(worker.SHARD, IntegerType(), nullable=False)])
    if list_shards:
        schema = schema.add(worker.SENT, ArrayType(IntegerType(), containsNull=False), nullable=False)
    return schema


def _match_through_shards(
    messages: DataFrame, version: str, opened: ShardedVersion, schema: StructType
) -> DataFrame:
    """Send each message to its shards, and match it there."""
    columns = sent_schema(messages.schema, list_shards=opened.has_copies)
    sent = map_in_arrow(messages, _at_version(worker.send_messages, version), columns)
    divided = sent.repartitionById(opened.distribution.shards, worker.SHARD)
    return map_in_arrow(divided, _at_version(worker.match_sent, version), schema)


def _at_version(
    stage: Callable[..., Iterator[pa.RecordBatch]], version: str
) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return the stage with its version filled in."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(batches, version)

    return run
