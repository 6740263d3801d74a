"""Converts Arrow, pandas, GeoPandas and Polars tables to columns and back.

It reads anything that speaks the Arrow C stream protocol, and mappings of columns. The columns by name:

=====================================  ==========================================================================
``id``                                 string or integer; without such a column, the row number is the id
*a region or a place*
``geometry``                           WKB (also GeoArrow's and GeoParquet's) or WKT; null: see the next columns
``lon``, ``lat``, ``radius_m``         a circle
``lon``, ``lat``                       a point of a message
``xmin``, ``ymin``, ``xmax``, ``ymax`` a box, ``xmin > xmax`` across the antimeridian (or one struct ``bbox``)
nothing, or nulls                      everywhere, for a subscription; an error for a message
*words*
``expression``                         of a subscription, in the written language
``keywords``                           list of strings: those needed (subscription), those it has (message)
``text``                               of a message: its words are the keywords
*the rest of a message*
``published_at``, ``expires_at``       timestamps, or integers of microseconds since 1970 UTC
any other number or string             an attribute; null where absent
=====================================  ==========================================================================

Each subscription must say what it asks for: by an ``expression`` or by ``keywords``, in either column ``*`` for every
message. Other columns of subscriptions are left out, with a warning. :mod:`~nearcast.columns.from_arrow.names` decides
which names must be a mistake, and :mod:`~nearcast.columns.from_arrow.renaming` reads tables whose columns have other
names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config, language
from nearcast.clock import iso
from nearcast.columns.clause_rows import ClauseLists, cross, probe_rows
from nearcast.columns.clauses import clauses_from_csr
from nearcast.columns.coding import coding_of, coding_or_new
from nearcast.columns.from_arrow.expressions import expression_clauses
from nearcast.columns.from_arrow.names import (
    BOX,
    MESSAGE_COLUMNS,
    SUBSCRIPTION_COLUMNS,
    check_messages,
    read_columns,
    tell_other_case,
)
from nearcast.columns.from_arrow.places import places, regions
from nearcast.columns.from_arrow.renaming import Columns, Renaming, rename_table
from nearcast.columns.from_arrow.source import Refusals, Source, arrow_table, is_number, is_text
from nearcast.columns.from_arrow.words import message_words, subscription_words, text_codes
from nearcast.columns.from_objects import expression_of, region_of, rows_by_owner
from nearcast.columns.messages import NEVER, NOT_GIVEN, MessageBatch
from nearcast.columns.ragged import code_sets, interval_rows
from nearcast.columns.subscriptions import SubscriptionTable
from nearcast.columns.values import Values
from nearcast.columns.vocabulary import Vocabulary
from nearcast.errors import ColumnError, ExpressionError, shown
from nearcast.geometry import WGS84, Box, Circle, Polygon, Space

__all__ = [
    "MESSAGE_COLUMNS",
    "SUBSCRIPTION_COLUMNS",
    "Refusals",
    "arrow_table",
    "messages_from_arrow",
    "subscriptions_from_arrow",
    "subscriptions_to_arrow",
]


def subscriptions_from_arrow(
    table: Any,
    *,
    like: Any = None,
    space: Space = WGS84,
    columns: Columns | Renaming | None = None,
    refusals: Refusals | None = None,
) -> SubscriptionTable:
    """Read subscriptions; see the module's list of columns, which may have other names by *columns*.

    A row that cannot be used is an error. With *refusals* it is noted there instead, and has no meaning in the result.

    >>> subscriptions_from_arrow({"id": ["a", "b"], "expression": ["tea", "tea OR milk"], "lon": [0, 1],
    ...     "lat": [0, 1], "radius_m": [500, 800]})
    <SubscriptionTable of 2 subscriptions in 3 clause rows>
    """
    table = rename_table(arrow_table(table), columns, "subscriptions")
    source = Source(table, "subscription", refusals)
    read_columns(source.names)
    coding = coding_or_new(like, space)
    if not source.names:  # an empty file
        return SubscriptionTable.empty(coding)
    if "expression" in source and "keywords" in source:
        raise ColumnError("a table of subscriptions has either expressions or keywords, not both")
    vocabulary, attributes = coding.words()
    placed = regions(source, coding.space)
    if "expression" in source:
        lists, expression_of_row = expression_clauses(source, vocabulary, attributes)
    else:
        lists, expression_of_row = _keyword_clauses(source, vocabulary), np.arange(source.size)
    clauses, owners, shapes = cross(lists, expression_of_row, placed)
    return SubscriptionTable(clauses, owners, source.size, shapes, source.ids, coding)


def messages_from_arrow(
    table: Any,
    *,
    like: Any,
    learn: bool = False,
    columns: Columns | Renaming | None = None,
    refusals: Refusals | None = None,
) -> MessageBatch:
    """Read messages in the coding of *like*; see the module's list of columns, which may have other names by *columns*.

    Words and attributes that no subscription asks for are left out, or, with *learn*, get codes. Columns of other types
    are left out. A row that cannot be used is an error. With *refusals* it is noted there instead, and has no meaning
    in the result.
    """
    source = Source(rename_table(arrow_table(table), columns, "messages"), "message", refusals)
    check_messages(tuple(source.names))
    coding = coding_of(like)
    vocabulary, attributes = coding.words()
    tell_other_case(source.names, attributes)
    placed = places(source, coding.space)
    published_at, expires_at = _lifetimes(source)
    numbers = {
        name: _numbers(source, name)
        for name in _attribute_columns(source)
        if _is_value(source[name].type) and (learn or attributes.find(name, text=False) is not None)
    }
    # From here on nothing is refused: only messages that are read give codes to words.
    m = source.size
    code = vocabulary.add if learn else vocabulary.encode
    if "keywords" in source:
        offsets, words = message_words(source)
        codes = code(words)
    elif "text" in source:
        offsets, codes = text_codes(source["text"], code)
    else:
        offsets, codes = np.zeros(m + 1, np.int64), np.empty(0, np.int32)
    offsets, codes = code_sets(offsets, codes, m, "keyword", drop_negative=True)
    code_string = attributes.strings.add if learn else attributes.strings.encode
    found: dict[int, NDArray[np.float64]] = {}
    for name in _attribute_columns(source):
        text = is_text(source[name].type)
        if not text and name not in numbers:
            continue
        number = attributes.add(name, text=text) if learn else attributes.find(name, text=text)
        if number is not None:
            found[number] = _coded(source[name], code_string) if text else numbers[name]
    probes, owners = probe_rows(placed, offsets, codes, _values(m, found))
    return MessageBatch(
        probes,
        owners,
        m,
        placed.shapes,
        source.ids,
        published_at,
        expires_at,
        coding,
    )


def subscriptions_to_arrow(table: SubscriptionTable) -> pa.Table:
    """Return the columns that :func:`subscriptions_from_arrow` reads; subscriptions without clauses are left out.

    Expressions are written in normal form, which can be much longer than the original; one that would be too long to
    read back is an error here.
    """
    rows = [(row, owned) for row, owned in enumerate(rows_by_owner(table)) if len(owned)]
    kept = pa.array([row for row, _ in rows], pa.int64())
    found = [region_of(table, owned) for _, owned in rows]
    ids = kept if table.ids is None else table.ids.take(kept)
    written = [language.format_expression(expression_of(table, owned)) for _, owned in rows]
    for at, expression in enumerate(written):
        if len(expression) > config.MAX_EXPRESSION_CHARS:
            raise ExpressionError(
                f"subscription {shown(ids[at].as_py())} takes {len(expression)} characters with its clauses written "
                f"in full; more than {config.MAX_EXPRESSION_CHARS} (config.MAX_EXPRESSION_CHARS) cannot be read "
                "back, so split it into several subscriptions"
            )
    columns = {
        "id": ids,
        "expression": pa.array(written, pa.string()),
        "geometry": pa.array([r.wkb if isinstance(r, Polygon) else None for r in found], pa.binary()),
    }
    for name, field in (("lon", "x"), ("lat", "y"), ("radius_m", "radius")):
        numbers = [getattr(r, field) if isinstance(r, Circle) else None for r in found]
        columns[name] = pa.array(numbers, pa.float64())
    for name in BOX:
        numbers = [getattr(r, name) if isinstance(r, Box) else None for r in found]
        columns[name] = pa.array(numbers, pa.float64())
    return pa.table(columns)


def _keyword_clauses(source: Source, vocabulary: Vocabulary) -> ClauseLists:
    """Return one clause for each row, which needs all of its keywords."""
    n = source.size
    offsets, words = subscription_words(source)
    codes = vocabulary.add(words)
    keywords = code_sets(offsets, codes, n, "keyword")
    forbidden = code_sets(None, None, n, "forbidden")
    clauses = clauses_from_csr(np.empty((0, 4)), *keywords, *forbidden, *interval_rows(None, n))
    return ClauseLists(np.arange(n + 1), clauses)


def _is_value(kind: pa.DataType) -> bool:
    return is_number(kind) or bool(pa.types.is_boolean(kind))


def _values(m: int, columns: dict[int, NDArray[np.float64]]) -> Values:
    """Return the values of *m* messages from those of each attribute."""
    if not columns:
        return Values.none(m)
    numbers = sorted(columns)
    found = Values.from_matrix(np.column_stack([columns[number] for number in numbers]))
    return found._replace(attributes=np.array(numbers, np.int32)[found.attributes])


def _attribute_columns(source: Source) -> list[str]:
    return [name for name in source.names if name not in MESSAGE_COLUMNS]


def _coded(column: pa.Array, code: Callable[[pa.Array], NDArray[np.int32]]) -> NDArray[np.float64]:
    """Return the codes of a string attribute of all messages, NaN where a message lacks it."""
    values = code(column).astype(np.float64)
    values[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return values


def _numbers(source: Source, name: str) -> NDArray[np.float64]:
    """Return a numeric attribute of all messages, NaN where a message lacks it."""
    values: NDArray[np.float64] = source[name].cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    infinite = np.isinf(values)
    for row in np.flatnonzero(infinite) if infinite.any() else ():
        source.at("attribute", row, _refuse_infinite, name, float(values[row]))
    return values


def _refuse_infinite(name: str, value: float) -> None:
    raise ColumnError(f"attribute {shown(name)} is {value!r}; give a finite number, or null")


def _lifetimes(source: Source) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Return from when and until when each message may be delivered, in microseconds; None for a missing column."""
    starts = _times(source, "published_at", NOT_GIVEN)
    ends = _times(source, "expires_at", NEVER)
    if starts is None or ends is None:
        return starts, ends
    wrong = (ends <= starts) & (starts != NOT_GIVEN)
    for row in np.flatnonzero(wrong) if wrong.any() else ():
        problem = f"expires at {iso(int(ends[row]))}, not after its publication at {iso(int(starts[row]))}"
        error = ColumnError(f"{source.name_of(row)} {problem}; give a later expires_at, or null")
        source.refuse("expiry", row, error)
    return starts, ends


def _times(source: Source, name: str, absent: int) -> NDArray[np.int64] | None:
    """Return a column of times in microseconds, *absent* for null; None if there is no such column."""
    if name not in source:
        return None
    column = source[name]
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is None:
        raise ColumnError(f"{name} has no time zone; make it a timestamp with one, UTC for instance")
    if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise ColumnError(f"{name} must be timestamps with a zone or integers of microseconds, not {kind}")
    try:
        if pa.types.is_timestamp(kind):  # nanoseconds are truncated
            column = column.cast(pa.timestamp("us", "UTC"), safe=kind.unit != "ns")
        times: NDArray[np.int64] = column.cast(pa.int64()).fill_null(absent).to_numpy(zero_copy_only=False)
        return times.copy()
    except pa.ArrowInvalid:
        raise ColumnError(
            f"{name} has times outside of 64 bits of microseconds since 1970 UTC; check their unit"
        ) from None
