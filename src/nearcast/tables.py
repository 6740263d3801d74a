"""Arrow, pandas, GeoPandas and Polars tables to columns and back.

Anything that speaks the Arrow C stream protocol is read, and so is a mapping of columns. The columns by name:

=====================================  ===================================================================================
``id``                                 string or integer; the row number where there is no such column
*a region or a place*
``geometry``                           WKB (also GeoArrow's and GeoParquet's) or WKT; a null falls through to the next line
``lon``, ``lat``, ``radius_m``         a circle of a subscription or a message
``lon``, ``lat``                       a point of a message
``xmin``, ``ymin``, ``xmax``, ``ymax`` a box, ``xmin > xmax`` across the antimeridian (or one struct column ``bbox``)
nothing, or nulls                      everywhere, for a subscription; an error for a message
*words*
``expression``                         of a subscription, in the written language
``keywords``                           list of strings: all are needed (subscription), all are there (message)
``text``                               of a message: its words are the keywords
*the rest of a message*
``published_at``, ``expires_at``       timestamps, or integers of microseconds since 1970 UTC
any other number or string             an attribute; null where absent
=====================================  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast import config, language, text
from nearcast.assembly import ClauseLists, Placed, code_clauses, cross, place
from nearcast.columns import MessageBatch, SubscriptionTable, id_array
from nearcast.errors import ColumnError, InputError, shown
from nearcast.geometry import (
    EVERYWHERE,
    WGS84,
    Box,
    Circle,
    Everywhere,
    Geographic,
    Place,
    Point,
    Region,
    Space,
    as_place,
    as_region,
)
from nearcast.kernels.tokens import split_ascii
from nearcast.kernels.verify import Clauses, Probes
from nearcast.objects import NEVER, codes_like, expression_of, needed_codes, region_of, rows_by_owner
from nearcast.ragged import code_sets, interval_rows, offsets_of, ragged_take
from nearcast.vocabulary import Vocabulary, _buffers

__all__ = [
    "MESSAGE_COLUMNS",
    "SUBSCRIPTION_COLUMNS",
    "arrow_table",
    "messages_from_arrow",
    "subscriptions_from_arrow",
]

_BOX = ("xmin", "ymin", "xmax", "ymax")
_REGION = ("geometry", "lon", "lat", "radius_m", *_BOX, "bbox")
SUBSCRIPTION_COLUMNS = ("id", "expression", "keywords", *_REGION)
MESSAGE_COLUMNS = ("id", "text", "keywords", *_REGION, "published_at", "expires_at")

_T = TypeVar("_T")


def arrow_table(table: Any) -> pa.Table:
    """Return *table* as an Arrow table; no copy where it is one already."""
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    try:
        if isinstance(table, Mapping):
            return pa.table(dict(table))
        if hasattr(table, "to_arrow") and hasattr(table, "geometry"):  # GeoPandas: its own export writes WKB
            return pa.table(table.to_arrow(index=False))
        if hasattr(table, "__arrow_c_stream__"):
            return pa.table(table)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise ColumnError(f"this {type(table).__name__} cannot be read as a table: {error}") from None
    raise ColumnError(
        f"{shown(table)} is not a table; give an Arrow, pandas, GeoPandas or Polars table, or a dict of columns"
    )


def subscriptions_from_arrow(
    table: Any, *, like: SubscriptionTable | None = None, space: Space = WGS84
) -> SubscriptionTable:
    """Read subscriptions; see the module's table of columns. A column that means nothing here is an error.

    >>> subscriptions_from_arrow({"id": ["a", "b"], "expression": ["tea", "tea OR milk"], "lon": [0, 1], "lat": [0, 1],
    ...     "radius_m": [500, 800]})
    <SubscriptionTable of 2 subscriptions in 3 clause rows>
    """
    source = arrow_table(table)
    _refuse_unknown(source, SUBSCRIPTION_COLUMNS, "subscription")
    if "expression" in source.column_names and "keywords" in source.column_names:
        raise ColumnError("a table of subscriptions has either expressions or keywords, not both")
    space = space if like is None else like.space
    vocabulary, attributes = codes_like(like)
    ids = _ids(source)
    placed = _regions(source, space, ids)
    n = len(source)
    if "keywords" in source.column_names:
        lists = _keyword_clauses(source["keywords"], vocabulary, n)
        expression_of_row = np.arange(n)
    elif "expression" in source.column_names:
        distinct = _one_chunk(source["expression"]).dictionary_encode()
        written = distinct.dictionary.to_pylist()
        numbers = distinct.indices.to_numpy(zero_copy_only=False)
        if distinct.null_count:
            row = int(distinct.is_null().to_numpy(zero_copy_only=False).argmax())
            raise ColumnError(f"{_named(ids, row)} has no expression; write * for every message")
        rows = np.zeros(len(written), np.int64)
        rows[numbers[::-1].astype(np.int64)] = np.arange(n)[::-1]  # the first row of each
        clauses = [_at(rows[i], ids, lambda w=w: language.parse(w).clauses()) for i, w in enumerate(written)]
        lists = code_clauses(clauses, vocabulary, attributes)
        expression_of_row = numbers.astype(np.int64)
    else:
        lists = _keyword_clauses(pa.nulls(n, pa.list_(pa.string())), vocabulary, n)
        expression_of_row = np.arange(n)
    clauses_, owners, shapes = cross(lists, expression_of_row, placed)
    return SubscriptionTable(clauses_, owners, n, shapes, ids, vocabulary, attributes, space)


def subscriptions_to_arrow(table: SubscriptionTable) -> pa.Table:
    """Return the columns id, expression and geometry or circle or box; subscriptions without clauses are left out."""
    rows = [(key, owned) for key, owned in enumerate(rows_by_owner(table)) if len(owned)]
    kept = [key for key, _ in rows]
    regions = [region_of(table, owned) for _, owned in rows]
    columns: dict[str, Any] = {
        "id": pa.array(kept) if table.ids is None else table.ids.take(pa.array(kept, pa.int64())),
        "expression": [language.format_expression(expression_of(table, owned)) for _, owned in rows],
    }

    def column(name: str, pick: Callable[[Region], Any], kind: pa.DataType) -> None:
        columns[name] = pa.array([pick(region) for region in regions], kind)

    column("geometry", lambda r: None if isinstance(r, Box | Circle | Everywhere) else r.wkb, pa.binary())
    for name, field in (("lon", "x"), ("lat", "y"), ("radius_m", "radius")):
        column(
            name, lambda r, field=field: getattr(r, field) if isinstance(r, Circle) else None, pa.float64()
        )  # type: ignore[misc]
    for name in _BOX:
        column(name, lambda r, name=name: getattr(r, name) if isinstance(r, Box) else None, pa.float64())  # type: ignore[misc]
    return pa.table(
        {
            key: value if isinstance(value, pa.Array) else pa.array(value, pa.string())
            for key, value in columns.items()
        }
    )


def messages_from_arrow(table: Any, *, like: SubscriptionTable) -> MessageBatch:
    """Read messages in the codes of *like*; see the module's table of columns.

    Words and attributes that no subscription asks for are left out, and so are columns of other types.
    """
    source = arrow_table(table)
    vocabulary, attributes = needed_codes(like)
    ids = _ids(source)
    placed = _places(source, like.space, ids)
    m = len(source)
    offsets, codes = _message_words(source, vocabulary, m)
    values = np.full((m, len(attributes)), np.nan)
    for number, (name, textual) in enumerate(attributes):
        if name in source.column_names and name not in MESSAGE_COLUMNS:
            _attribute_column(source[name], textual, attributes.strings, values[:, number])
    owners = np.repeat(np.arange(m, dtype=np.int32), np.diff(placed.offsets))
    if len(owners) != m:
        offsets, codes = ragged_take(offsets, codes, owners.astype(np.int64))
        values = values[owners]
    boxes = placed.boxes
    return MessageBatch(
        Probes(boxes, offsets, codes, values),
        owners,
        m,
        placed.shapes,
        bool((boxes[:, :2] == boxes[:, 2:]).all()) and not placed.shapes,
        ids,
        _times(source, "published_at", 0),
        _times(source, "expires_at", NEVER),
        like.space,
    )


# --- Words -------------------------------------------------------------------------------------------------------------


def _keyword_clauses(column: Any, vocabulary: Vocabulary, n: int) -> ClauseLists:
    """Return a clause for each row: all of its keywords."""
    offsets, words = _word_lists(column, n)
    codes = vocabulary.add(words)
    empty = code_sets(None, None, n, "forbidden")
    clauses = Clauses(
        np.empty((0, 4)), *code_sets(offsets, codes, n, "keyword"), *empty, *interval_rows(None, n)
    )
    return ClauseLists(np.arange(n + 1), clauses)


def _message_words(
    source: pa.Table, vocabulary: Vocabulary, m: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the keyword codes of each message, from ``keywords`` or ``text``."""
    if "keywords" in source.column_names:
        offsets, words = _word_lists(source["keywords"], m)
        codes = vocabulary.encode(words)
    elif "text" in source.column_names:
        offsets, codes = _text_codes(source["text"], vocabulary)
    else:
        offsets, codes = np.zeros(m + 1, np.int64), np.empty(0, np.int32)
    return code_sets(offsets, codes, m, "keyword", drop_negative=True)


def _word_lists(column: Any, n: int) -> tuple[NDArray[np.int64], pa.Array]:
    """Return (offsets, words) of a list column; a null is an empty list. Words are normalised where they are not yet."""
    lists = _one_chunk(column)
    if pa.types.is_null(lists.type):
        return np.zeros(n + 1, np.int64), pa.array([], pa.string())
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise ColumnError(
            f"keywords must be a column of lists of strings, not of {lists.type}; a text goes into 'text'"
        )
    words = lists.flatten()  # skips nulls
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = offsets_of(counts)
    if pa.types.is_null(words.type):
        words = words.cast(pa.string())
    if not all(pc.match_substring_regex(words.dictionary_encode().dictionary, "^[0-9a-z]+$").to_pylist()):
        distinct = words.dictionary_encode()
        normal = [[] if word is None else text.tokens(word) for word in distinct.dictionary.to_pylist()]
        listed = pa.array(normal, pa.list_(pa.string())).take(distinct.indices)
        sizes = pc.fill_null(pc.list_value_length(listed), 0).to_numpy(zero_copy_only=False)
        offsets = offsets_of(sizes)[offsets]
        words = listed.flatten()
    return offsets, words


def _text_codes(column: Any, vocabulary: Vocabulary) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the codes of the words of each text: ASCII texts by a kernel, the others one by one."""
    texts = _one_chunk(column)
    if pa.types.is_dictionary(texts.type) or pa.types.is_string_view(texts.type):
        texts = texts.cast(pa.large_string())
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise ColumnError(f"text must be a column of strings, not of {texts.type}")
    data, offsets, valid = _buffers(texts)
    m = len(texts)
    size = int(offsets[-1] - offsets[0])
    words, word_offsets = np.empty(size, np.uint8), np.empty(size // 2 + m + 2, np.int64)
    text_offsets, foreign = np.empty(m + 1, np.int64), np.zeros(m, np.bool_)
    count = split_ascii(data, offsets, config.MAX_KEYWORD_CHARS, words, word_offsets, text_offsets, foreign)
    array = pa.LargeStringArray.from_buffers(
        count, pa.py_buffer(word_offsets[: count + 1]), pa.py_buffer(words)
    )
    codes = vocabulary.encode(array)
    if valid is not None:
        foreign |= ~valid  # a null has no words, whatever its bytes
        counts = np.where(valid, np.diff(text_offsets), 0)
        offsets_, codes = ragged_take(text_offsets, codes, np.arange(m))
        keep = np.repeat(valid, np.diff(offsets_))
        text_offsets, codes = offsets_of(counts), codes[keep]
    rows = np.flatnonzero(foreign if valid is None else foreign & valid)
    if not len(rows):
        return text_offsets, codes
    found = [text.tokens(texts[int(row)].as_py()) for row in rows]
    more = vocabulary.encode([word for words in found for word in words])
    counts = np.diff(text_offsets)
    counts[rows] = [len(words) for words in found]
    merged = offsets_of(counts)
    out = np.empty(merged[-1], np.int32)
    theirs = np.repeat(np.isin(np.arange(m), rows), counts)
    out[theirs], out[~theirs] = more, codes
    return merged, out


# --- Places ------------------------------------------------------------------------------------------------------------


def _regions(source: pa.Table, space: Space, ids: pa.Array | None) -> Placed:
    """Return the region of each subscription."""
    n = len(source)
    boxes = _box_columns(source)
    if boxes is not None and not any(
        name in source.column_names for name in ("geometry", "lon", "lat", "radius_m")
    ):
        return _plain_boxes(boxes, space, ids)
    regions: list[Region | Place] = [EVERYWHERE] * n
    for row in _present(boxes):
        bounds = boxes[row].tolist()  # type: ignore[index]
        regions[row] = _at(row, ids, lambda b=bounds: Box(*b, space=space))
    circles = _circle_columns(source)
    for row in _present(circles):
        x, y, radius = circles[row].tolist()  # type: ignore[index]
        regions[row] = _at(row, ids, lambda x=x, y=y, r=radius: Circle(x=x, y=y, radius=r, space=space))
    for row, geometry in _geometries(source):
        regions[row] = _at(row, ids, lambda g=geometry: as_region(g, space))
    return place(regions)


def _places(source: pa.Table, space: Space, ids: pa.Array | None) -> Placed:
    """Return the place of each message; points in bulk."""
    n = len(source)
    geometries = dict(_geometries(source))
    boxes = _box_columns(source)
    points = _number_columns(source, ("lon", "lat"))
    radii = _number_columns(source, ("radius_m",)) if "radius_m" in source.column_names else None
    areas: dict[int, Place] = {}
    if radii is not None and points is not None:
        for row in np.flatnonzero(~np.isnan(radii[:, 0])):
            x, y, radius = float(points[row, 0]), float(points[row, 1]), float(radii[row, 0])
            areas[int(row)] = _at(
                row, ids, lambda x=x, y=y, r=radius: Circle(x=x, y=y, radius=r, space=space)
            )
    for row in _present(boxes):
        if points is None or np.isnan(points[row]).all():
            bounds = boxes[row].tolist()  # type: ignore[index]
            areas[int(row)] = _at(row, ids, lambda b=bounds: Box(*b, space=space))
    for row, geometry in geometries.items():
        areas[row] = _at(row, ids, lambda g=geometry: as_place(g, space))
    xy = np.full((n, 2), np.nan) if points is None else points
    rows = np.setdiff1d(np.arange(n), np.fromiter(areas, np.int64, len(areas)), assume_unique=True)
    _check_points(xy, rows, space, ids)
    if not areas:
        return place([])._replace(offsets=np.arange(n + 1), boxes=np.concatenate([xy, xy], axis=1))
    placed = place(
        [
            areas[row] if row in areas else Point(x=x, y=y, space=space)
            for row, (x, y) in enumerate(xy.tolist())
        ]
    )
    return placed


def _check_points(
    xy: NDArray[np.float64], rows: NDArray[np.int64], space: Space, ids: pa.Array | None
) -> None:
    """Raise for the first of the given rows whose point has no meaning."""
    x, y = xy[rows, 0], xy[rows, 1]
    if isinstance(space, Geographic):
        good = (np.abs(x) <= 180) & (np.abs(y) <= 90)
    else:
        good = (x >= space.xmin) & (x <= space.xmax) & (y >= space.ymin) & (y <= space.ymax)
    if not good.all():
        row = int(rows[~good][0])
        if np.isnan(xy[row]).all():
            raise ColumnError(
                f"{_named(ids, row)} has no place; give lon and lat, geometry, or xmin, ymin, xmax, ymax"
            )
        _at(row, ids, lambda: Point(x=float(xy[row, 0]), y=float(xy[row, 1]), space=space))


def _plain_boxes(boxes: NDArray[np.float64], space: Space, ids: pa.Array | None) -> Placed:
    """Return the regions of a table that has only boxes: in bulk where none meets the antimeridian."""
    given = ~np.isnan(boxes).all(axis=1)
    geographic = isinstance(space, Geographic)
    plain = (boxes[:, 0] <= boxes[:, 2]) & (boxes[:, 1] <= boxes[:, 3])
    if geographic:
        plain &= (np.abs(boxes[:, [0, 2]]) < 180).all(axis=1) & (np.abs(boxes[:, [1, 3]]) <= 90).all(axis=1)
    else:
        plain &= (boxes[:, 0] >= space.xmin) & (boxes[:, 2] <= space.xmax)
        plain &= (boxes[:, 1] >= space.ymin) & (boxes[:, 3] <= space.ymax)
    if plain.all():
        return place([])._replace(offsets=np.arange(len(boxes) + 1), boxes=boxes)
    regions = [
        _at(row, ids, lambda b=box: Box(*b, space=space)) if here else EVERYWHERE
        for row, (box, here) in enumerate(zip(boxes.tolist(), given))
    ]
    return place(regions)


def _box_columns(source: pa.Table) -> NDArray[np.float64] | None:
    if "bbox" in source.column_names and pa.types.is_struct(source.schema.field("bbox").type):
        column = source["bbox"].combine_chunks()
        names = [field.name for field in column.type]
        if all(name in names for name in _BOX):
            return _floats([pc.struct_field(column, name) for name in _BOX], "bbox")
    return _number_columns(source, _BOX)


def _circle_columns(source: pa.Table) -> NDArray[np.float64] | None:
    present = [name for name in ("lon", "lat", "radius_m") if name in source.column_names]
    if not present:
        return None
    if len(present) < 3:
        missing = sorted({"lon", "lat", "radius_m"} - set(present))
        raise ColumnError(
            f"a circle needs lon, lat and radius_m; there is no column {' and no '.join(missing)}"
        )
    return _number_columns(source, ("lon", "lat", "radius_m"))


def _number_columns(source: pa.Table, names: tuple[str, ...]) -> NDArray[np.float64] | None:
    """Return columns side by side as float64, NaN for null; None where all are missing."""
    missing = [name for name in names if name not in source.column_names]
    if len(missing) == len(names):
        return None
    if missing:
        raise ColumnError(
            f"the columns {', '.join(names)} belong together; there is no {' and no '.join(missing)}"
        )
    return _floats([_one_chunk(source[name]) for name in names], ", ".join(names))


def _floats(columns: list[pa.Array], name: str) -> NDArray[np.float64]:
    out = np.empty((len(columns[0]), len(columns)))
    for i, column in enumerate(columns):
        try:
            out[:, i] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise ColumnError(f"{name} must be columns of numbers, not of {column.type}") from None
    return out


def _present(columns: NDArray[np.float64] | None) -> NDArray[np.int64]:
    """Return the rows that have any of the numbers."""
    return np.empty(0, np.int64) if columns is None else np.flatnonzero(~np.isnan(columns).all(axis=1))


def _geometries(source: pa.Table) -> list[tuple[int, Any]]:
    """Return (row, WKB or WKT) where there is one."""
    if "geometry" not in source.column_names:
        return []
    column = _one_chunk(source["geometry"])
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.large_binary() if pa.types.is_binary_view(kind) else pa.large_string())
    elif not (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_null(kind)
    ):
        raise ColumnError(
            f"geometry must be a column of WKB or WKT, not of {kind}; GeoPandas writes WKB by to_wkb()"
        )
    return [(row, value) for row, value in enumerate(column.to_pylist()) if value is not None]


# --- Everything else ---------------------------------------------------------------------------------------------------


def _attribute_column(column: Any, textual: bool, strings: Vocabulary, out: NDArray[np.float64]) -> None:
    """Write one attribute of all messages to *out*; a column of the other type leaves NaN."""
    array = _one_chunk(column)
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if textual and is_text:
        out[:] = strings.encode(array)
        out[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
    elif not textual and (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    ):
        out[:] = array.cast(pa.float64()).to_numpy(zero_copy_only=False)


def _times(source: pa.Table, name: str, absent: int) -> NDArray[np.int64]:
    """Return a column of times as microseconds."""
    if name not in source.column_names:
        return np.full(len(source), absent, np.int64)
    column = _one_chunk(source[name])
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            raise ColumnError(f"{name} has no time zone; make it a timestamp with one, UTC for instance")
        column = column.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    elif not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise ColumnError(
            f"{name} must be timestamps with a zone or integers of microseconds, not {column.type}"
        )
    result: NDArray[np.int64] = (
        column.cast(pa.int64()).fill_null(absent).to_numpy(zero_copy_only=False).copy()
    )
    return result


def _ids(source: pa.Table) -> pa.Array | None:
    return id_array(source["id"], len(source), "id") if "id" in source.column_names else None


def _named(ids: pa.Array | None, row: int | np.int64) -> str:
    """Return how an error names a row."""
    return f"row {row}" if ids is None else f"row {row} (id {shown(ids[int(row)].as_py())})"


def _at(row: int | np.int64, ids: pa.Array | None, make: Callable[[], _T]) -> _T:
    """Call *make*; an error that it raises says which row it is about."""
    try:
        return make()
    except InputError as error:
        raise type(error)(f"{_named(ids, row)}: {error}") from None


def _one_chunk(column: Any) -> Any:
    """Return a column as one array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _refuse_unknown(source: pa.Table, known: tuple[str, ...], what: str) -> None:
    unknown = [name for name in source.column_names if name not in known]
    if unknown:
        raise ColumnError(
            f"a table of {what}s has no column {shown(unknown[0])}; the columns are {', '.join(known)}"
        )
