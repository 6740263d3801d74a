"""Casting raw columns to typed ones; a value that does not fit is reported, never silently null.

CSV has only strings, and JSON read by Spark has strings wherever a column mixes types. So every cast also reads
strings, by the rules of :mod:`nearcast.files`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.columns.from_arrow.declared import foreign_crs, is_spark_geometry, spark_crs
from nearcast.columns.from_arrow.source import is_list, is_number, is_text
from nearcast.errors import ColumnError, InputError, shown
from nearcast.files.columnar import number_in, time_in
from nearcast.files.documents import place_columns
from nearcast.geometry import as_place, as_region
from nearcast.geometry.crs import require_wgs84

__all__ = [
    "TIME",
    "WORDS",
    "Cells",
    "flags",
    "geometries",
    "ids",
    "numbers",
    "texts",
    "times",
    "wkb",
    "words",
]

TIME = pa.timestamp("us", "UTC")
WORDS = pa.list_(pa.string())
_PLAIN_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"  # read alike by Arrow and Python
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999, in microseconds


class Cells(NamedTuple):
    """A typed column, null where a value could not be read, and the mistakes by row."""

    values: pa.Array
    wrong: dict[int, str]


def texts(column: pa.Array, name: str) -> Cells:
    """Return a column of strings. Those of Spark may hold any bytes; bytes that are not UTF-8 are a mistake."""
    if pa.types.is_null(column.type):
        return Cells(column.cast(pa.string()), {})
    if not is_text(column.type):
        raise ColumnError(f"{name} must be a column of strings, not of {column.type}")
    strings = column.cast(pa.string())
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        return _each(strings.cast(pa.binary()), name, _decoded, pa.string())
    return Cells(strings, {})


def ids(column: pa.Array, name: str) -> Cells:
    """Return a column of ids: strings, or integers of 64 bits."""
    if not pa.types.is_integer(column.type):
        return texts(column, name)
    return Cells(column.cast(pa.int64()), {})


def flags(column: pa.Array, name: str) -> Cells:
    """Return a column of Booleans unchanged."""
    return Cells(column, {})


def numbers(column: pa.Array, name: str) -> Cells:
    """Return a column of numbers; NaN and an empty string become null."""
    if is_text(column.type):
        strings, wrong = texts(column, name)
        strings = pc.utf8_trim_whitespace(strings)
        plain = pc.fill_null(pc.match_substring_regex(strings, _PLAIN_NUMBER), True)
        if pc.all(plain).as_py():
            values = strings.cast(pa.float64())
        else:
            others, more = _each(pc.if_else(plain, None, strings), name, _number, pa.float64())
            values = pc.coalesce(pc.if_else(plain, strings, None).cast(pa.float64()), others)
            wrong |= more
    elif is_number(column.type) or pa.types.is_null(column.type):
        values, wrong = column.cast(pa.float64(), safe=False), {}
    else:
        raise ColumnError(f"{name} must be a column of numbers, not of {column.type}")
    return Cells(pc.if_else(pc.is_nan(values), None, values), wrong)


def times(column: pa.Array, name: str, timezone: str | None = None) -> Cells:
    """Return a column of times: timestamps with a zone, microseconds since 1970, or either as a string.

    Timestamps without a zone are read in *timezone*; without it they are an error. Of an hour that comes twice when
    clocks are set back, the first is meant; a time that clocks skip is the end of what they skip.
    """
    kind = column.type
    if timezone is not None and pa.types.is_timestamp(kind) and kind.tz is None:
        column = pc.assume_timezone(column, timezone, ambiguous="earliest", nonexistent="latest")
        kind = column.type
    if is_text(kind):
        strings, wrong = texts(column, name)
        values, more = _each(strings, name, _time, pa.int64())
        return Cells(values.cast(TIME), wrong | more)
    if pa.types.is_timestamp(kind) and kind.tz is None:
        raise ColumnError(
            f"{name} has no time zone; name the one that is meant (timezone='UTC', --timezone UTC), "
            "or cast it to a timestamp with one"
        )
    if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise ColumnError(
            f"{name} must be timestamps with a zone, integers of microseconds or ISO 8601 strings, not {kind}"
        )
    values = column.cast(TIME, safe=False) if pa.types.is_timestamp(kind) else column
    values = values.cast(pa.int64())
    outside = pc.fill_null(pc.or_(pc.less(values, _FIRST), pc.greater(values, _LAST)), False)
    wrong = {}
    if pc.any(outside).as_py():
        rows = np.flatnonzero(outside)
        wrong = dict(zip(rows.tolist(), (_outside(name, value.as_py()) for value in values.take(rows))))
        values = pc.if_else(outside, None, values)
    return Cells(values.cast(TIME), wrong)


def words(column: pa.Array, name: str) -> Cells:
    """Return a column of lists of strings; a string is a JSON list, or words separated by white space."""
    kind = column.type
    if is_text(kind):
        strings, wrong = texts(column, name)
        listed = pc.fill_null(pc.match_substring_regex(strings, r"^\s*\["), False)
        values = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(strings))
        values = pc.if_else(pc.equal(pc.utf8_trim_whitespace(strings), ""), pa.scalar([], WORDS), values)
        if pc.any(listed).as_py():
            lists, more = _each(pc.if_else(listed, strings, None), name, _list, WORDS)
            values, wrong = pc.if_else(listed, lists, values), wrong | more
        return Cells(values, wrong)
    if pa.types.is_null(kind):
        return Cells(column.cast(WORDS), {})
    if not is_list(kind) or not (is_text(kind.value_type) or pa.types.is_null(kind.value_type)):
        raise ColumnError(f"{name} must be a column of lists of strings, or of strings, not of {kind}")
    values = column.cast(WORDS)
    try:
        values.flatten().validate(full=True)
    except pa.ArrowInvalid:
        return _each(values.cast(pa.list_(pa.binary())), name, _decoded_list, WORDS)
    return Cells(values, {})


def wkb(column: pa.Array, name: str) -> Cells:
    """Return a column of WKB unchanged, and Spark's geometries as WKB."""
    types = pa.types
    kind = column.type
    if is_spark_geometry(kind):
        require_wgs84(spark_crs(kind))
        wrong = {row: _foreign(crs) for row, crs in foreign_crs(column).items()}
        return Cells(pc.struct_field(column, "wkb"), wrong)
    if not (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_null(kind)
    ):
        raise ColumnError(f"{name} must be a column of WKB or WKT, not of {kind}")
    return Cells(column.cast(pa.binary()), {})


def _foreign(crs: str) -> str:
    try:
        require_wgs84(crs)
    except InputError as error:
        return str(error)
    raise AssertionError(f"{crs} is WGS84")


def geometries(column: pa.Array, kind: str) -> tuple[pa.Array, dict[str, pa.Array], dict[int, str]]:
    """Return the places that texts describe: the rows that have one, their columns, and the mistakes by row.

    A polygon becomes WKB; points, circles and boxes become columns of numbers.
    """
    strings, wrong = texts(column, "geometry")
    read = as_place if kind == "messages" else as_region
    found: list[dict[str, Any]] = [{} for _ in range(len(strings))]
    known: dict[str, dict[str, Any]] = {}
    for row in np.flatnonzero(strings.is_valid()).tolist():
        written = strings[row].as_py()
        try:
            if written not in known:
                known[written] = place_columns(read(written))
            found[row] = known[written]
        except (ValueError, OverflowError) as error:
            wrong[row] = _said(error, "geometry", written)
    columns = {
        name: pa.array([place.get(name) for place in found], type_)
        for name, type_ in (
            ("geometry", pa.binary()),
            *((name, pa.float64()) for name in ("lon", "lat", "radius_m", "xmin", "ymin", "xmax", "ymax")),
        )
    }
    return strings.is_valid(), columns, wrong


def _each(column: pa.Array, name: str, read: Callable[[str, Any], Any], type_: pa.DataType) -> Cells:
    """Read each distinct value once."""
    if isinstance(column, pa.ListArray):  # these have no dictionary
        distinct, indices = column, pa.array(range(len(column)))
    else:
        encoded = column.dictionary_encode()
        distinct, indices = encoded.dictionary, encoded.indices
    values: list[Any] = []
    errors: dict[int, str] = {}
    for number, value in enumerate(distinct.to_pylist()):
        try:
            values.append(None if value is None else read(name, value))
        except (ValueError, OverflowError) as error:  # such as an integer of thousands of digits
            values.append(None)
            errors[number] = _said(error, name, value)
    wrong: dict[int, str] = {}
    if errors:
        numbers_ = indices.to_pylist()
        wrong = {row: errors[number] for row, number in enumerate(numbers_) if number in errors}
    return Cells(pa.array(values, type_).take(indices), wrong)


def _said(error: Exception, name: str, value: object) -> str:
    return str(error) if isinstance(error, InputError) else f"{name} is {shown(value)}, which cannot be read"


def _decoded(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ColumnError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None


def _decoded_list(name: str, value: list[bytes | None]) -> list[str | None]:
    return [None if word is None else _decoded(name, word) for word in value]


def _number(name: str, cell: str) -> float | None:
    return number_in(name, cell) if cell else None


def _time(name: str, cell: str) -> int | None:
    if not cell.strip():
        return None
    value = time_in(name, cell.strip())
    if not _FIRST <= value <= _LAST:
        raise ColumnError(_outside(name, value))
    return value


def _outside(name: str, value: int) -> str:
    return f"{name} is {value}, outside the years 1 to 9999; give microseconds since 1970 UTC"


def _list(name: str, cell: str) -> list[str | None]:
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(word is None or isinstance(word, str) for word in found):
        raise ColumnError(f"{name} is {shown(cell)}, which is not a JSON list of strings")
    try:
        return [None if word is None else word.encode().decode() for word in found]
    except UnicodeEncodeError:
        raise ColumnError(f"{name} is {shown(cell)}, which has half of a surrogate pair") from None
