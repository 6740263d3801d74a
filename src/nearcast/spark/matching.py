"""Messages × subscriptions → deliveries, as one stateless stage of a Spark query."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BooleanType, NumericType, StringType, StructField, StructType

from nearcast import MessageBatch, config
from nearcast.errors import ColumnError, InputError, shown
from nearcast.spark import worker
from nearcast.spark.session import quietly
from nearcast.spark.versions import build, require_id, without_rows
from nearcast.tables import MESSAGE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from nearcast import SubscriptionTable

__all__ = ["match"]

_PLACES = (("geometry",), ("lon", "lat"), ("xmin", "ymin", "xmax", "ymax"), ("bbox",))
_TIMES = ("published_at", "expires_at")  # matching does not ask for them


def match(
    messages: DataFrame,
    subscriptions: DataFrame | str | os.PathLike[str],
    *,
    index: str = config.DEFAULT_INDEX,
    index_dir: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Return the deliveries of *messages*: a DataFrame of ``message_id`` and ``subscription_id``.

    The first has the type of the messages' ids, the second is a string or a bigint.

    Every pair that matches is there exactly once for each message row, in no promised order. Batch or streaming
    messages give a batch or streaming DataFrame; the stage keeps no state and moves no message to another partition.
    The index is fixed when this function returns: what becomes of the subscriptions later does not touch the query.

    Parameters
    ----------
    messages
        ``id`` (string or integer); the place as ``lon`` and ``lat``, as ``xmin``, ``ymin``, ``xmax``, ``ymax``, or as
        ``geometry`` (WKB; where it is not null it wins); the words as ``keywords`` (array of strings) or ``text``.
        Every other column of numbers or strings is an attribute; null means that the message does not have it.
    subscriptions
        A batch DataFrame, which is built into an index now, or the directory that :func:`build` returned. Columns:
        ``id``; ``expression`` (such as ``coffee AND price < 4``) or ``keywords`` (all of them); the region as
        ``geometry`` (WKB), as ``lon``, ``lat``, ``radius_m``, or as ``xmin``, ``ymin``, ``xmax``, ``ymax``, all null
        for everywhere.
    index
        The name of the index to build from a DataFrame.
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
        version = str(build(subscriptions, index_dir, index=index))
    else:
        version = str(Path(subscriptions).absolute())
    _, table, ids = worker.opened(
        version
    )  # a directory that is missing or damaged is reported here, not by a task
    needed = _needed(messages, table)
    schema = StructType(
        [
            StructField("message_id", needed.schema["id"].dataType, nullable=False),
            StructField("subscription_id", from_arrow_type(ids.type), nullable=False),
        ]
    )

    def deliver(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return worker.deliveries(batches, version)

    with quietly():
        return needed.mapInArrow(deliver, schema)


def _needed(messages: DataFrame, table: SubscriptionTable) -> DataFrame:
    """Return the columns of *messages* that matching asks for; raise if they do not make messages."""
    columns = messages.columns
    require_id(columns, "messages")
    if not any(set(place) & set(columns) for place in _PLACES):
        raise ColumnError(
            f"messages have no place: there is neither lon and lat, nor geometry, nor xmin, ymin, xmax, ymax, nor bbox "
            f"among the columns {', '.join(columns)}"
        )
    unread = {*_TIMES, "text"} if "keywords" in columns else {*_TIMES}
    asked = {name for name, _ in table.attributes or ()}
    names = [
        field.name
        for field in messages.schema
        if (field.name in MESSAGE_COLUMNS and field.name not in unread)
        or (field.name in asked and isinstance(field.dataType, NumericType | StringType | BooleanType))
    ]
    needed = messages.select(*(f"`{name.replace('`', '``')}`" for name in names))
    MessageBatch.from_arrow(without_rows(needed), like=table)  # checks the columns as the workers will
    return needed
