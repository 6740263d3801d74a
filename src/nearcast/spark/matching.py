"""Messages × subscriptions → deliveries, as one stateless stage of a Spark query."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType

from nearcast import config
from nearcast.errors import InputError, shown
from nearcast.sharding.version import Sharded
from nearcast.spark import worker
from nearcast.spark.columns import map_in_arrow, message_columns
from nearcast.spark.deliveries import as_deliveries
from nearcast.spark.session import quietly
from nearcast.spark.versions import sample_of, version_of
from nearcast.storage.current import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

__all__ = ["match"]


def match(
    messages: DataFrame,
    subscriptions: DataFrame | str | os.PathLike[str],
    *,
    index: str = config.DEFAULT_INDEX,
    distribution: str = "auto",
    shards: int | None = None,
    index_dir: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Return the deliveries of *messages*: a DataFrame of the columns that all deliveries have.

    ``message_id`` has the type of the messages' ids, ``subscription_id`` is a string or a bigint. ``change`` is ``+``
    and ``reason`` is ``publish`` in every row; ``score`` (double) and ``rank`` (int) are null.

    Every pair that matches is there exactly once for each message row, in no promised order. Batch or streaming
    messages give a batch or streaming DataFrame, and no state is kept. The index is fixed when this function returns:
    what becomes of the subscriptions later does not touch the query. Without shards no message is moved to another
    partition; with them, each is sent to those shards that can match it, and to no other.

    Parameters
    ----------
    messages
        ``id`` (string or integer); the place as ``lon`` and ``lat``, as ``xmin``, ``ymin``, ``xmax``, ``ymax``, or as
        ``geometry`` (WKB; where it is not null it wins); the words as ``keywords`` (array of strings) or ``text``.
        Every other column of numbers or strings is an attribute; null means that the message does not have it.
    subscriptions
        A batch DataFrame, which is built into an index now, or the directory that :func:`build` returned or built
        in (then its latest version is taken, once, now). Columns:
        ``id``; ``expression`` (such as ``coffee AND price < 4``) or ``keywords`` (all of them); the region as
        ``geometry`` (WKB), as ``lon``, ``lat``, ``radius_m``, or as ``xmin``, ``ymin``, ``xmax``, ``ymax``, all null
        for everywhere.
    index
        The name of the index to build from a DataFrame.
    distribution, shards
        How to divide a DataFrame of subscriptions, as :func:`build` takes them; one index for all by default.
    index_dir
        Where :func:`build` keeps the index of a DataFrame. The default serves a single machine; a cluster needs
        storage that the driver and every worker see under the same path.

    Raises ColumnError before any job starts if a column is missing or of a wrong type. A message with a value that
    has no meaning (a latitude of 91) fails its task, and with it the query, with an error that names the message.
    """
    for name, frame in (("messages", messages), ("subscriptions", subscriptions)):
        if not isinstance(frame, DataFrame) and (
            name == "messages" or not isinstance(frame, str | os.PathLike)
        ):
            path = "" if name == "messages" else ", nor the directory of an index"
            raise InputError(f"{name} must be a Spark DataFrame; {shown(frame)} is none{path}")
    if isinstance(subscriptions, DataFrame):
        sample = sample_of(messages) if shards is not None and not messages.isStreaming else None
        version = version_of(
            subscriptions,
            None if index_dir is None else Path(index_dir),
            index=index,
            distribution=distribution,
            shards=shards,
            sample=sample,
        )
    else:
        version = current(Path(subscriptions).absolute())
    # A directory that is missing or damaged is reported here, not by a task.
    opened, ids = worker.opened(str(version))
    needed = message_columns(messages, opened.coding)
    schema = StructType(
        [
            StructField("subscription_id", from_arrow_type(ids.type), nullable=False),
            StructField("message_id", needed.schema["id"].dataType, nullable=False),
        ]
    )
    with quietly():
        if isinstance(opened, Sharded):
            return as_deliveries(_through_shards(needed, str(version), opened, schema))
        return as_deliveries(map_in_arrow(needed, _bound(worker.deliveries, str(version)), schema))


def _through_shards(messages: DataFrame, version: str, opened: Sharded, schema: StructType) -> DataFrame:
    """Send each message to its shards, and let each shard match what comes to it."""
    way = StructType([*messages.schema.fields, StructField(worker.SHARD, IntegerType(), nullable=False)])
    if opened.copies:
        way = way.add(worker.SENT, ArrayType(IntegerType(), containsNull=False), nullable=False)
    sent = map_in_arrow(messages, _bound(worker.sent, version), way)
    divided = sent.repartitionById(opened.distribution.shards, worker.SHARD)
    return map_in_arrow(divided, _bound(worker.shard_deliveries, version), schema)


def _bound(
    stage: Callable[..., Iterator[pa.RecordBatch]], version: str
) -> Callable[..., Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(batches, version)

    return run
