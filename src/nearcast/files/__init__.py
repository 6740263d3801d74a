"""Messages and subscriptions from files, deliveries to files.

The ending of the name determines the format:

=========================  =================================================================================
``.parquet``, a directory  Parquet; with GeoParquet metadata, its primary column is the geometry
``.csv``                   a line of column names, then the rows; an empty cell is a missing value
``.jsonl``, ``.ndjson``    one object per line: the JSON form of a message or subscription, a GeoJSON Feature, or
                           flat columns
``.geojson``, ``.json``    a FeatureCollection, or an array of such objects
``.csv.gz``, …             any of these except Parquet, compressed with gzip or, as ``.zst``, with Zstandard
``-``                      JSON lines from standard input, or to standard output
=========================  =================================================================================

Reading any of these formats gives the columns of :mod:`nearcast.columns.from_arrow`. A file may have more columns than
Nearcast needs: other columns of messages are attributes; other columns of subscriptions are left out, with a warning.
Places are in WGS84; a file that declares another coordinate system is refused. An error names the file, and the row
(counted from 0), the line (from 1) or the feature (from 0).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.from_arrow import Refusals, messages_from_arrow, subscriptions_from_arrow
from nearcast.columns.from_arrow.names import MESSAGE_COLUMNS, check_messages, read_columns
from nearcast.columns.from_arrow.renaming import Columns, Renaming, renaming_of
from nearcast.errors import ColumnError, DuplicateError, InputError, UnknownError, shown
from nearcast.files import columnar, compression, documents
from nearcast.files.columnar import Rename
from nearcast.files.documents import Kind
from nearcast.files.writing import write_table, writing
from nearcast.geometry import Box, Circle, Point, as_place
from nearcast.storage.paths import local_path

if TYPE_CHECKING:
    from nearcast.model import Message, Subscription

__all__ = [
    "find_message",
    "find_subscription",
    "read_messages",
    "read_subscriptions",
    "read_table",
    "write_table",
    "writing",
]

Source = str | os.PathLike[str]


def read_table(path: Source, kind: Kind, *, columns: Columns | Renaming | None = None) -> pa.Table:
    """Return the rows of a file of messages (*kind* ``"message"``) or subscriptions (``"subscription"``).

    If the file has other names for the columns, *columns* maps ours to theirs: ``{"lat": "latitude"}``. A table of
    subscriptions has only the columns that Nearcast reads.
    """
    with _about(path):
        table = _read(path, kind, _renamer(columns, kind))
        if kind == "subscription":
            return table.select(read_columns(table.column_names, f"{_name(path)}: "))
        check_messages(tuple(table.column_names))
        return table


def _renamer(columns: Columns | Renaming | None, kind: Kind) -> Rename:
    """Return the function that turns the names of a file into ours."""
    kinds: Final = "messages" if kind == "message" else "subscriptions"
    renaming = renaming_of(columns, kinds)
    return lambda names: renaming.apply(kinds, names)


def _read(path: Source, kind: Kind, rename: Rename) -> pa.Table:
    if os.fspath(path) == "-":
        return documents.from_lines(sys.stdin.buffer, kind, rename)
    where = local_path(path)
    if where is None:
        raise InputError("it is not a file of this machine; copy it here, or read it with Spark (--master)")
    path = where
    if not path.exists():
        raise FileNotFoundError
    ending, packing = (".parquet", None) if path.is_dir() else compression.endings(path.name)
    if ending == ".parquet" and packing is None:
        return columnar.from_parquet(path, rename)
    if ending == ".csv":
        return columnar.from_csv(lambda: compression.open_reader(path, packing), rename)
    if ending in (".jsonl", ".ndjson"):
        with compression.open_reader(path, packing) as lines:
            return documents.from_lines(lines, kind, rename)
    if ending in (".geojson", ".json"):
        with compression.open_reader(path, packing) as file:
            return documents.from_document(file.read(), kind, rename)
    raise InputError(
        f"the ending {shown(''.join(path.suffixes[-2:]))} is not that of a known format; use .parquet, .csv, .jsonl, "
        ".ndjson, .geojson or .json, each but .parquet optionally followed by .gz or .zst"
    )


def read_subscriptions(
    path: Source, *, like: Any = None, columns: Columns | Renaming | None = None
) -> SubscriptionTable:
    """Return the subscriptions of a file.

    Two subscriptions with the same id are an error: a delivery could not say which of them it is for.
    """
    table = read_table(path, "subscription", columns=columns)
    with _about(path):
        subscriptions = SubscriptionTable.from_arrow(table, like=like)
        if subscriptions.ids is not None:
            _refuse_duplicates(subscriptions.ids)
        return subscriptions


def read_messages(path: Source, *, like: Any, columns: Columns | Renaming | None = None) -> MessageBatch:
    """Return the messages of a file, coded like the subscriptions that they will be matched with."""
    table = read_table(path, "message", columns=columns)
    with _about(path):
        return MessageBatch.from_arrow(table, like=like)


def find_subscription(path: Source, id: str, *, columns: Columns | Renaming | None = None) -> Subscription:
    """Return one subscription of a file, with its expression as written there."""
    from nearcast.model import Subscription

    table = read_table(path, "subscription", columns=columns)
    with _about(path):
        found = _row_of(table, id)
        refusals: Refusals = {}
        read = subscriptions_from_arrow(found, refusals=refusals)
        _refuse(refusals, "subscription", id)
        row = _values_in(found)
        expression = row.get("expression") or read.to_subscriptions()[0].expression
        return Subscription(row["id"], expression, _place_of(row))


def find_message(path: Source, id: str, *, columns: Columns | Renaming | None = None) -> Message:
    """Return one message of a file."""
    from nearcast.model import Message

    table = read_table(path, "message", columns=columns)
    with _about(path):
        found = _row_of(table, id)
        refusals: Refusals = {}
        messages_from_arrow(found, like=Coding.new(), refusals=refusals)
        _refuse(refusals, "message", id)
        row = _values_in(found)
        attributes = {
            name: value if isinstance(value, str) else float(value)
            for name, value in row.items()
            if name not in MESSAGE_COLUMNS and isinstance(value, str | Real | Decimal)
        }
        words = row.get("text", "")
        if "keywords" in found.column_names:
            words = [word for word in row.get("keywords", ()) if word is not None]
        times = {name: row.get(name) for name in ("published_at", "expires_at")}
        return Message(row["id"], words, as_place(_place_of(row)), attributes, **times)


def _row_of(table: pa.Table, id: str) -> pa.Table:
    """Return the row with the given id; without a column of ids, the row number is the id."""
    if "id" not in table.column_names:
        table = table.append_column("id", pa.array(range(len(table)), pa.int64()))
    row = pc.index(table["id"].cast(pa.string()), id).as_py()
    if row < 0:
        raise UnknownError(f"none of the {len(table):,} rows has the id {shown(id)}; check the spelling")
    return table.slice(row, 1)


def _values_in(row: pa.Table) -> dict[str, Any]:
    """Return the values of a row that are there."""
    (values,) = row.to_pylist()
    # NaN, which does not equal itself, counts as missing.
    return {name: value for name, value in values.items() if value is not None and value == value}


def _refuse(refusals: Refusals, what: str, id: str) -> None:
    """Raise if a row cannot be used, as it is when the whole file is read."""
    for _, sentence in refusals.values():
        raise ColumnError(f"{what} {shown(id)}: {sentence}")


def _place_of(row: dict[str, Any]) -> Any:
    """Return the place of a row, from the first columns that give one in the order of nearcast.columns.from_arrow."""
    if "geometry" in row:
        return row["geometry"]
    if "radius_m" in row:
        return Circle(x=row.get("lon"), y=row.get("lat"), radius=row["radius_m"])
    if "lon" in row or "lat" in row:
        return Point(x=row.get("lon"), y=row.get("lat"))
    box = row.get("bbox", row)
    return Box(box["xmin"], box["ymin"], box["xmax"], box["ymax"]) if "xmin" in box else None


def _refuse_duplicates(ids: pa.Array) -> None:
    counts = ids.value_counts()
    twice = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(twice):
        raise DuplicateError(
            f"{twice[0]['counts']} subscriptions have the id {shown(twice[0]['values'].as_py())}; give each its own"
        )


@contextmanager
def _about(path: Source) -> Iterator[None]:
    """Name the file in errors about its content; a file that cannot be read is an input error."""
    name = _name(path)
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"there is no file or directory {name}") from None
    except UnknownError as error:
        raise UnknownError(f"{name}: {error}") from None
    except InputError as error:
        raise type(error)(f"{name}: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}") from None


def _name(path: Source) -> str:
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)
