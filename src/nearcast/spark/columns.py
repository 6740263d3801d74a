"""The columns of a DataFrame that matching reads, checked before any job starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import BooleanType, NumericType, StringType, UserDefinedType

from nearcast import MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.deliveries import deliveries_schema
from nearcast.columns.from_arrow.names import (
    MESSAGE_COLUMNS,
    PLACES,
    TIMES,
    check_messages,
    read_columns,
    require,
    tell_other_case,
)
from nearcast.columns.from_arrow.renaming import Columns, Kind, Renaming
from nearcast.errors import ColumnError, InputError, shown
from nearcast.spark.compat import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = [
    "check_kept",
    "map_in_arrow",
    "message_columns",
    "quoted",
    "refuse_unreadable",
    "rename_columns",
    "subscription_columns",
    "without_rows",
]


def quoted(name: str) -> str:
    """Return the name of a column in Spark's notation, whatever characters it has.

    >>> quoted("half.price")
    '`half.price`'
    """
    return f"`{name.replace('`', '``')}`"


def map_in_arrow(
    frame: DataFrame,
    stage: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Do what ``frame.mapInArrow`` does, but allow dots and backticks in names, which Spark would take for syntax.

    Columns have plain names on their way to the stage, and their own names inside it.
    """
    names = frame.columns
    if not any(set(".`") & set(name) for name in names):
        return frame.mapInArrow(stage, schema)

    def renamed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(renamed, schema)


def rename_columns(
    columns: Columns | None, *, messages: DataFrame | None = None, subscriptions: DataFrame | None = None
) -> tuple[Any, Any]:
    """Return the DataFrames of one call with our names of columns, by the mapping that the call was given."""
    frames: dict[Kind, DataFrame | None] = {"messages": messages, "subscriptions": subscriptions}
    given = {kind: frame for kind, frame in frames.items() if frame is not None}
    renaming = Renaming(columns, *given)
    for kind, frame in given.items() if renaming else ():
        frames[kind] = frame.toDF(*renaming.apply(kind, frame.columns))
    return frames["messages"], frames["subscriptions"]


def refuse_unreadable(frame: DataFrame, geometry: str) -> None:
    """Raise if the column of geometries has a user-defined type, such as Sedona's: its bytes are not WKB."""
    found = next((field.dataType for field in frame.schema if field.name == geometry), None)
    if isinstance(found, UserDefinedType):
        raise ColumnError(
            f"{geometry} is a column of {type(found).__name__}, whose bytes only its own library can read; give its "
            f"WKB, which Sedona writes by ST_AsBinary({geometry})"
        )


def check_kept(argument: str, names: Sequence[str], columns: Sequence[str]) -> None:
    """Raise unless all *names* are among the columns of a DataFrame, and deliveries can have them, too."""
    if isinstance(names, str):
        raise InputError(f"{argument} is a list of columns, not {shown(names)}; write [{names!r}]")
    own = deliveries_schema(pa.string(), pa.string()).names
    for number, name in enumerate(names):
        require([name], columns, f"{argument}: the rows")
        if name in own or name in names[:number]:
            whose = "deliveries have a column of this name already" if name in own else "it is named twice"
            raise ColumnError(f"{argument} has {shown(name)}, but {whose}; give it another name first")


def without_rows(frame: DataFrame) -> pa.Table:
    """Return the columns of *frame*, without any row, as workers will see them: they can be checked before a job."""
    refuse_unreadable(frame, "geometry")
    return arrow_schema(frame.schema).empty_table()


def subscription_columns(subscriptions: DataFrame) -> DataFrame:
    """Return the columns of *subscriptions* that are read; raise if they are not those of subscriptions."""
    # Rows of a DataFrame have no numbers that could serve as ids.
    require(["id"], subscriptions.columns, "subscriptions")
    needed = subscriptions.select(*map(quoted, read_columns(subscriptions.columns)))
    # This checks the columns as workers will.
    SubscriptionTable.from_arrow(without_rows(needed))
    return needed


def message_columns(messages: DataFrame, coding: Coding | None = None) -> DataFrame:
    """Return the columns of *messages* that matching reads; raise if they are not those of messages.

    With *coding*, only the attributes in it are read: those that subscriptions ask for. Without it, all are.
    """
    columns = messages.columns
    require(["id"], columns, "messages")
    check_messages(tuple(columns))
    if not any(set(place) & set(columns) for place in PLACES):
        raise ColumnError(
            f"messages have no place: there is neither lon and lat, nor geometry, nor xmin, ymin, xmax, ymax, nor bbox "
            f"among the columns {', '.join(columns)}"
        )
    if coding is not None and coding.attributes is not None:
        tell_other_case(columns, coding.attributes)
    unread = {*TIMES, "text"} if "keywords" in columns else {*TIMES}  # matching does not read times
    asked = None if coding is None else {name for name, _ in coding.attributes or ()}
    names = [
        field.name
        for field in messages.schema
        if (field.name in MESSAGE_COLUMNS and field.name not in unread)
        or (
            (asked is None or field.name in asked)
            and field.name not in MESSAGE_COLUMNS
            and isinstance(field.dataType, NumericType | StringType | BooleanType)
        )
    ]
    needed = messages.select(*map(quoted, names))
    # This checks the columns as workers will.
    MessageBatch.from_arrow(without_rows(needed), like=coding or Coding.new())
    return needed
