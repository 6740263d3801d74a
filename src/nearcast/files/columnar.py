"""Files that hold tables: Parquet, GeoParquet, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.clock import microseconds
from nearcast.columns.from_arrow.declared import with_geometry
from nearcast.columns.from_arrow.names import BOX, TIMES
from nearcast.columns.from_arrow.renaming import with_names
from nearcast.errors import ColumnError, InputError, shown
from nearcast.geometry.crs import require_wgs84

__all__ = ["Rename", "from_csv", "from_parquet", "number_in", "time_in"]

#: Turns the names of the columns of a file into ours.
Rename = Callable[[Sequence[str]], list[str]]

_NUMBERS = ("lon", "lat", "radius_m", *BOX)
_TEXTS = ("text", "expression", "geometry")
_INTEGERS = "^(0|-?[1-9][0-9]{0,17})$"  # as Python would write them: 007 is a string


def from_parquet(path: Path, rename: Rename) -> pa.Table:
    """Return the table of a Parquet file, or of a directory of them, with the names that *rename* gives."""
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us")
        names = rename(table.column_names)
        table = _with_zones(with_names(table, names), path, dict(zip(names, table.column_names)))
    except (pa.ArrowException, OSError) as error:
        raise ColumnError(f"this cannot be read as Parquet: {_first_line(error)}") from None
    table, crs = with_geometry(table)
    require_wgs84(crs)
    return table


def _with_zones(table: pa.Table, path: Path, stored: Mapping[str, str]) -> pa.Table:
    """Return the table with times in UTC where they are stored as INT96, which Spark writes and which has no zone.

    *stored* has the names of the columns in the files.
    """
    import pyarrow.parquet as pq
    from pyarrow import dataset

    zoneless = [
        name
        for name in TIMES
        if name in table.column_names and table.schema.field(name).type == pa.timestamp("us")
    ]
    if not zoneless:
        return table
    kinds = [_physical_types(pq.read_metadata(file)) for file in dataset.dataset(path).files]
    for name in zoneless:
        if all(file.get(stored[name], "INT96") == "INT96" for file in kinds):
            column = pc.assume_timezone(table[name], "UTC")
            table = table.set_column(table.column_names.index(name), name, column)
    return table


def _physical_types(metadata: Any) -> dict[str, str]:
    columns = map(metadata.schema.column, range(len(metadata.schema)))
    return {column.path: column.physical_type for column in columns}


def from_csv(opened: Callable[[], BinaryIO], rename: Rename) -> pa.Table:
    """Return the table of a CSV file in UTF-8, with the names that *rename* gives; each call of *opened* opens it anew.

    CSV has no types, so columns get them by name: ids are integers if all of them are written as integers; coordinates
    are numbers; words and geometry are text; times are ISO 8601 or microseconds. Any other column holds numbers if all
    of its cells are numbers, else text.
    """
    from pyarrow import csv as arrow_csv

    try:
        with opened() as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise ColumnError(f"this cannot be read as CSV in UTF-8: {error}") from None
    names = [name.strip() for name in header]
    if not names:
        raise ColumnError("the file is empty; a CSV file begins with a line of column names")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ColumnError(f"two columns have the name {shown(repeated[0])}; rename one of them")
    try:
        with opened() as raw:
            table = arrow_csv.read_csv(
                raw,
                parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(header, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
    except pa.ArrowInvalid as error:
        raise ColumnError(f"this cannot be read as CSV: {_first_line(error)}") from None
    columns = [column.combine_chunks() for column in table.columns]
    return pa.table({name: _typed(name, column) for name, column in zip(rename(names), columns)})


def _typed(name: str, column: pa.Array) -> pa.Array:
    """Return a column of strings converted to the type that its name or its values call for."""
    if name == "id":
        whole = pc.all(pc.match_substring_regex(column, _INTEGERS)).as_py()
        return column.cast(pa.int64()) if whole and len(column) else column
    if name in _TEXTS:
        return column
    trimmed = pc.utf8_trim_whitespace(column)
    trimmed = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
    if name == "keywords":
        return pc.utf8_split_whitespace(trimmed)
    if name in TIMES:
        return pa.array(
            [_at(row, time_in, name, cell) for row, cell in enumerate(trimmed.to_pylist())], pa.int64()
        )
    try:
        return trimmed.cast(pa.float64())
    except pa.ArrowInvalid:
        if name not in _NUMBERS:
            return column
        return pa.array(
            [_at(row, number_in, name, cell) for row, cell in enumerate(trimmed.to_pylist())], pa.float64()
        )


def time_in(name: str, cell: str) -> int:
    """Return the time in a cell as microseconds: ISO 8601 with an offset, or the integer itself."""
    return int(cell) if cell.removeprefix("-").isdecimal() else microseconds(cell, name)


def number_in(name: str, cell: str) -> float:
    """Return the number in a cell."""
    try:
        return float(cell)
    except ValueError:
        raise ColumnError(f"{name} is {shown(cell)}, which is not a number") from None


def _at(row: int, read: Any, name: str, cell: str | None) -> Any:
    """Return the value of a cell, None for an empty one; an error names its row."""
    try:
        return None if cell is None else read(name, cell)
    except InputError as error:
        raise type(error)(f"row {row}: {error}") from None


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
