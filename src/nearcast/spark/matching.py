"""Messages and subscriptions in, deliveries out: one stateless stage of a Spark query."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from nearcast import config
from nearcast.columns.from_arrow.names import KEPT
from nearcast.columns.wire import NEW_SCHEMA, WIRE_SCHEMA
from nearcast.errors import ColumnError, InputError, shown
from nearcast.matching import Index
from nearcast.sharding.version import ShardedVersion
from nearcast.spark import worker
from nearcast.spark.columns import check_kept, map_in_arrow, message_columns, quoted, rename_columns
from nearcast.spark.compat import spark_type
from nearcast.spark.deliveries import as_deliveries
from nearcast.spark.session import quietly
from nearcast.spark.versions import build_version, kept_frame, sample_frame
from nearcast.storage.current import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nearcast.columns.from_arrow.renaming import Columns
    from nearcast.storage.places import Place

__all__ = ["OpenVersion", "match", "match_version", "open_for"]


def match(
    messages: DataFrame,
    subscriptions: DataFrame | str | os.PathLike[str],
    *,
    index: str = config.DEFAULT_INDEX,
    distribution: str = "auto",
    shards: int | None = None,
    index_dir: str | os.PathLike[str] | None = None,
    columns: Columns | None = None,
    keep: Sequence[str] = (),
    keep_subscription: Sequence[str] = (),
) -> DataFrame:
    """Return the deliveries of *messages*: a DataFrame with the columns that all deliveries have.

    ``message_id`` has the type of the messages' ids, ``subscription_id`` is a string or a bigint. ``change`` is ``+``
    and ``reason`` is ``publish`` in every row; ``score`` (double) and ``rank`` (int) are null.

    Each message row is delivered exactly once to every subscription that it matches, in no particular order. Words,
    values and places decide; ``published_at`` and ``expires_at`` are not read (:class:`Live` reads them). Batch
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
    keep, keep_subscription
        Columns of the messages, and of the subscriptions, that each delivery has too, after its own columns: the text
        of a notification, an address, a time for a watermark. Names are those after *columns*. Those of subscriptions
        are kept with the index, and as they were then; one that :func:`build` returned needs them in its ``keep``.

    Raises ColumnError before any job starts if a column is missing or has a wrong type. A message with a meaningless
    value (a latitude of 91) fails its task, and so the query, with an error that names the message.
    """
    opened, messages = open_for(
        messages,
        subscriptions,
        index=index,
        distribution=distribution,
        shards=shards,
        index_dir=index_dir,
        columns=columns,
        keep=keep,
        keep_subscription=keep_subscription,
    )
    return opened.match(messages, keep, keep_subscription)


def open_for(
    messages: DataFrame,
    subscriptions: DataFrame | str | os.PathLike[str],
    *,
    index: str = config.DEFAULT_INDEX,
    distribution: str = "auto",
    shards: int | None = None,
    index_dir: str | os.PathLike[str] | None = None,
    columns: Columns | None = None,
    keep: Sequence[str] = (),
    keep_subscription: Sequence[str] = (),
) -> tuple[OpenVersion, DataFrame]:
    """Return the version that :func:`match` uses, built if need be, and the messages with our names of columns."""
    for name, frame in (("messages", messages), ("subscriptions", subscriptions)):
        if not isinstance(frame, DataFrame) and (
            name == "messages" or not isinstance(frame, str | os.PathLike)
        ):
            path = "" if name == "messages" else " or the path or URI of an index"
            raise InputError(f"{name} must be a Spark DataFrame{path}, not {shown(frame)}")
    if isinstance(subscriptions, DataFrame):
        messages, rows = rename_columns(columns, messages=messages, subscriptions=subscriptions)
        check_kept("keep", keep, messages.columns)
        check_kept("keep_subscription", keep_subscription, rows.columns)
        version = build_version(
            rows,
            index_dir,
            index=index,
            distribution=distribution,
            shards=shards,
            hint=None if shards is None or messages.isStreaming else sample_frame(messages),
            keep=keep_subscription,
        )
    else:
        messages, _ = rename_columns(columns, messages=messages)
        version = current(subscriptions)
    return OpenVersion(version), messages


class OpenVersion:
    """A version that was opened once, for any number of DataFrames of messages."""

    def __init__(self, place: Place) -> None:
        # A version that is missing or damaged is reported here, not by a task.
        self._uri, self._version = place.uri, worker.open_version(place.uri)

    def match(
        self,
        messages: DataFrame,
        keep: Sequence[str] = (),
        keep_subscription: Sequence[str] = (),
        observe: Callable[[DataFrame], DataFrame] | None = None,
    ) -> DataFrame:
        """Return the deliveries of *messages*, as :func:`match` does; *observe* sees them with their candidates."""
        check_kept("keep", keep, messages.columns)
        check_kept("keep_subscription", keep_subscription, keep_subscription)
        for name in set(keep).intersection(keep_subscription):
            raise ColumnError(
                f"keep and keep_subscription both have {shown(name)}; give one another name first"
            )
        read = map(quoted, message_columns(messages, self._version.coding).columns)
        kept = (
            functions.col(quoted(name)).alias(f"{KEPT}{number}")  # which matching does not read
            for number, name in enumerate(keep)
        )
        found = match_version(
            messages.select(*read, *kept), self._uri, self._version, kept=keep, observe=observe
        )
        if not keep_subscription:
            return found
        # Spark joins a stream with rows that never change, without keeping any state.
        rows = kept_frame(messages.sparkSession, self._version, keep_subscription)
        return found.join(rows, "subscription_id").select(*map(quoted, [*found.columns, *keep_subscription]))


def match_version(
    messages: DataFrame,
    uri: str,
    version: Index | ShardedVersion,
    deltas: Sequence[str] = (),
    kept: Sequence[str] = (),
    observe: Callable[[DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """Return the deliveries of *messages* to the subscriptions of a version, and of *deltas* after it.

    The version is at *uri*, and opened here; the deltas are named by URI. *messages* has the columns that matching
    reads, then those that deliveries keep, which are called *kept* in them, and no others. *observe* is given the
    deliveries with a column of candidates, and with a row for each task that has no ids and the number of them.
    """
    counted = observe is not None
    carried = messages.schema.fields[len(messages.columns) - len(kept) :]
    schema = StructType(
        [
            StructField("subscription_id", spark_type(worker.id_type(version)), nullable=counted),
            StructField("message_id", messages.schema["id"].dataType, nullable=counted),
            *(StructField(field.name, field.dataType, field.nullable or counted) for field in carried),
            *([StructField(worker.CANDIDATES, LongType())] if counted else []),
        ]
    )
    names = ["subscription_id", "message_id", *kept, *([worker.CANDIDATES] if counted else [])]

    digest = version.digest if isinstance(version, ShardedVersion) else ""

    def stage(
        run: Callable[..., Iterator[pa.RecordBatch]], **how: bool
    ) -> Callable[..., Iterator[pa.RecordBatch]]:
        return lambda batches: run(batches, uri, digest, tuple(deltas), **how)

    def deliveries(found: DataFrame) -> DataFrame:
        rows = found.toDF(*names)
        if observe is not None:
            rows = observe(rows).where("message_id IS NOT NULL").drop(worker.CANDIDATES)
        return as_deliveries(rows, kept)

    with quietly():
        if isinstance(version, Index) or version.shards == 1:
            return deliveries(map_in_arrow(messages, stage(worker.match_messages, counted=counted), schema))
        columns = _sent_schema(messages, carried, version, learnt=bool(deltas))
        sent = map_in_arrow(messages, stage(worker.send_messages), columns)
        divided = sent.repartitionById(version.shards, worker.SHARD)
        return deliveries(map_in_arrow(divided, stage(worker.match_sent, counted=counted), schema))


def _sent_schema(
    messages: DataFrame, carried: Sequence[StructField], version: ShardedVersion, *, learnt: bool
) -> StructType:
    """Return the columns of messages on their way to shards, as :func:`nearcast.spark.worker.send_messages` does."""
    fields = [messages.schema["id"]]
    for columns in (WIRE_SCHEMA, NEW_SCHEMA) if learnt else (WIRE_SCHEMA,):
        fields += [StructField(column.name, spark_type(column.type)) for column in columns]
    fields += carried
    fields.append(StructField(worker.SHARD, IntegerType(), nullable=False))
    if version.has_copies or learnt:
        fields.append(StructField(worker.SENT, BinaryType(), nullable=False))
    return StructType(fields)
