"""Which columns of a DataFrame matching reads, checked before any job starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, NumericType, StringType

from nearcast import MessageBatch
from nearcast.columns.coding import Coding
from nearcast.columns.from_arrow import MESSAGE_COLUMNS
from nearcast.errors import ColumnError

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame

__all__ = ["message_columns", "require_id", "without_rows"]

_PLACES = (("geometry",), ("lon", "lat"), ("xmin", "ymin", "xmax", "ymax"), ("bbox",))
_TIMES = ("published_at", "expires_at")  # matching does not ask for them


def require_id(columns: Collection[str], what: str) -> None:
    """Raise unless there is a column of ids: in a distributed table a row has no number that could stand in for one."""
    if "id" not in columns:
        raise ColumnError(f"{what} need a column id; the columns are {', '.join(columns)}")


def without_rows(frame: DataFrame) -> pa.Table:
    """Return the columns of *frame* without a row, as workers see them: what cannot be read is known before a job."""
    return to_arrow_schema(frame.schema, timezone="UTC").empty_table()


def message_columns(messages: DataFrame, coding: Coding | None = None) -> DataFrame:
    """Return the columns of *messages* that matching asks for; raise if they do not make messages.

    Of the attributes, those that subscriptions coded by this ask for; all of them where that is not known.
    """
    columns = messages.columns
    require_id(columns, "messages")
    if not any(set(place) & set(columns) for place in _PLACES):
        raise ColumnError(
            f"messages have no place: there is neither lon and lat, nor geometry, nor xmin, ymin, xmax, ymax, nor bbox "
            f"among the columns {', '.join(columns)}"
        )
    unread = {*_TIMES, "text"} if "keywords" in columns else {*_TIMES}
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
    needed = messages.select(*(f"`{name.replace('`', '``')}`" for name in names))
    # checks the columns as the workers will
    MessageBatch.from_arrow(without_rows(needed), like=coding or Coding.new())
    return needed
