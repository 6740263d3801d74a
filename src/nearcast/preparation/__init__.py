"""Turning raw tables into typed ones, and saying what is wrong with the rows that cannot be used.

:class:`Preparation` derives the typed columns from the columns of a raw table, and converts the table batch by batch. A
good row gets its typed values; a bad one gets a ``reason``, a ``detail`` and its ``original``. The output has as many
rows as the input, in the same order.

================  ====================================================================================
``malformed``     the line is not a row: broken JSON, or a CSV row with too many or too few fields
``type``          a value does not have the type of its column: ``lon`` is ``'north'``
``no-id``         there is no id
``place``         the place of a message is missing or invalid, or the region of a subscription is invalid
``expiry``        a message expires before it is published
``expression``    a subscription's expression is missing or cannot be read
``keywords``      a subscription asks for something that cannot be a keyword
``attribute``     a number is infinite
``unexpected``    reading the row raised an unforeseen error, which is a bug in Nearcast
``duplicate-id``  an earlier good row has the same id
================  ====================================================================================

A row with several mistakes gets the first reason in this order. Except for the first three, the reasons are not decided
here: the in-process reader refuses such rows, in its own words. This module does not use Spark;
:mod:`nearcast.spark.preparing` does.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.clauses import keyword_offsets
from nearcast.columns.coding import Coding
from nearcast.columns.from_arrow import (
    MESSAGE_COLUMNS,
    SUBSCRIPTION_COLUMNS,
    Refusals,
    messages_from_arrow,
    subscriptions_from_arrow,
)
from nearcast.columns.from_arrow.names import BOX, TIMES, check_messages, read_columns, require
from nearcast.columns.from_arrow.renaming import Columns, Renaming
from nearcast.columns.from_arrow.source import is_number, is_text
from nearcast.columns.ragged import code_sets, ragged_take
from nearcast.errors import ColumnError, InputError, shown
from nearcast.preparation import casting

__all__ = ["MALFORMED", "REASONS", "VERDICT", "Kind", "Preparation"]

Kind = Literal["messages", "subscriptions"]

REASONS = (
    "malformed",
    "type",
    "no-id",
    "place",
    "expiry",
    "expression",
    "keywords",
    "attribute",
    "unexpected",
    "duplicate-id",
)
VERDICT = ("reason", "detail", "original")  # the columns beside the typed ones
MALFORMED = "_corrupt_record"  # the column in which Spark's readers put a line that is not a row

_COLUMNS = {"messages": MESSAGE_COLUMNS, "subscriptions": SUBSCRIPTION_COLUMNS}
_NUMBERS = ("lon", "lat", "radius_m", *BOX)
_PLACE = ("geometry", *_NUMBERS)
_CASTS = {
    "id": casting.ids,
    "text": casting.texts,
    "expression": casting.texts,
    "keywords": casting.words,
    "geometry": casting.wkb,
    **dict.fromkeys(_NUMBERS, casting.numbers),
}


class Preparation:
    """The preparation of the rows of one raw table; it can be pickled.

    Parameters
    ----------
    schema
        The schema of the raw table. The columns have the names of :mod:`nearcast.columns.from_arrow`; any of them may
        hold strings.
    kind
        ``"messages"`` or ``"subscriptions"``.
    numbers
        Attributes that are numbers, although the raw table has them as strings.
    keep_text
        Whether messages keep their ``text`` in addition to the keywords.
    timezone
        The time zone of timestamps without one, such as ``Europe/Lisbon``. Without it, such a column is an error.
    columns
        Our names of columns that have others in the raw table (:mod:`nearcast.columns.from_arrow.renaming`). Originals
        keep the names of the raw table.

    Raises ColumnError if no row with these columns can be a message or subscription.

    >>> raw = pa.table({"id": ["a", "b"], "text": ["Hot tea!", "Tea"], "lon": ["1", "x"], "lat": ["2", "3"]})
    >>> done = Preparation(raw.schema, "messages").apply(raw)
    >>> done["keywords"].to_pylist(), done["reason"].to_pylist(), done["detail"].to_pylist()
    ([['hot', 'tea'], None], [None, 'type'], [None, "lon is 'x', which is not a number"])
    """

    def __init__(
        self,
        schema: pa.Schema,
        kind: Kind,
        *,
        numbers: Collection[str] = (),
        keep_text: bool = False,
        timezone: str | None = None,
        columns: Columns | None = None,
    ) -> None:
        if kind not in _COLUMNS:
            raise InputError(f"kind must be 'messages' or 'subscriptions', not {shown(kind)}")
        self.kind = kind
        self.left_out: dict[str, str] = {}  # columns that are not used, each with the reason
        self._keep_text = keep_text
        self._timezone = None if timezone is None else _known_zone(timezone)
        self._numbers = tuple(numbers)
        self._attributes: dict[str, bool] = {}  # name: whether it is a column of strings
        self._names = Renaming(columns, kind).apply(kind, schema.names)
        #: The names in the raw table of the columns that have other names there.
        self.theirs = {ours: name for ours, name in zip(self._names, schema.names) if ours != name}
        self._check_names()
        for field in map(pa.Field.with_name, schema, self._names):
            if field.name not in (*_COLUMNS[kind], MALFORMED):
                self._take_attribute(field)
        if missing := [name for name in numbers if name not in self._attributes]:
            raise ColumnError(
                f"there is no attribute {shown(missing[0])} to read as numbers; there are "
                f"{', '.join(self._attributes) or 'no attributes'}"
            )
        nothing = self.apply(schema.empty_table())  # raises if a whole column is wrong
        self.schema = nothing.schema

    def _check_names(self) -> None:
        names = self._names
        if twice := [name for name in names if names.count(name) > 1]:
            raise ColumnError(f"the {self.kind} have two columns {shown(twice[0])}; leave one of them out")
        require(["id"], names, self.kind)
        if taken := [name for name in VERDICT if name in names]:
            raise ColumnError(f"the input has a column {shown(taken[0])}, as the output will; rename it")
        if self.kind == "subscriptions":
            read_columns([name for name in names if name != MALFORMED])
            return
        check_messages(tuple(names))
        if not {*_PLACE, "bbox"} & set(names):
            raise ColumnError(
                "messages have no place: there is neither lon and lat, nor geometry, nor xmin, ymin, xmax, ymax, "
                f"nor bbox among the columns {', '.join(names)}"
            )

    def _take_attribute(self, field: pa.Field) -> None:
        """Record an attribute, or why a column is left out."""
        if self.kind == "subscriptions":
            self.left_out[field.name] = f"a subscription has {', '.join(SUBSCRIPTION_COLUMNS)}"
        elif is_text(field.type):
            self._attributes[field.name] = field.name not in self._numbers
        elif is_number(field.type) or pa.types.is_boolean(field.type):
            self._attributes[field.name] = False
        else:
            self.left_out[field.name] = f"an attribute is a number, a string or a boolean, not {field.type}"

    # --- A batch ---------------------------------------------------------------------------------------------------
    def apply(self, batch: pa.RecordBatch | pa.Table) -> pa.Table:
        """Return the rows of *batch*, typed, each with its verdict; ids may repeat."""
        return self._apply(batch)

    def apply_by_id(self, batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.Table]:
        """Do the same for batches in which rows with the same id are adjacent: the first good one of them is kept."""
        latest = [None]  # the id of the latest good row
        for batch in batches:
            yield self._apply(batch, latest)

    def _apply(self, batch: pa.RecordBatch | pa.Table, latest: list[Any] | None = None) -> pa.Table:
        raw = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch.combine_chunks()
        original, raw = raw, raw.rename_columns(self._names)
        refusals: Refusals = {}  # a row keeps its first refusal
        if MALFORMED in raw.column_names:
            for row, line in enumerate(_values(_array(raw, MALFORMED))):
                if line is not None:
                    refusals[row] = ("malformed", f"the line {shown(line)} cannot be read as a row")
        typed = self._cast(raw, refusals)
        for row in np.flatnonzero(typed["id"].is_null()).tolist():
            refusals.setdefault(row, ("no-id", f"the {self.kind[:-1]} has no id"))
        done = self._result(typed, self._read_all(typed, refusals))
        if latest is not None:
            self._refuse_repeated(typed["id"], latest, refusals)
        if refusals:
            good = np.ones(len(raw), bool)
            good[list(refusals)] = False
            # A bad row is null except for its id.
            done = done.take(pa.array(np.arange(len(raw)), mask=~good))
            done = done.set_column(0, "id", typed["id"])
        for name, column in zip(VERDICT, _verdicts(original, refusals)):
            done = done.append_column(name, column)
        return done

    def _refuse_repeated(self, ids: pa.ChunkedArray, latest: list[Any], refusals: Refusals) -> None:
        """Refuse good rows with the id of the good row before them; *latest* holds the last good id so far."""
        rows = np.setdiff1d(np.arange(len(ids)), list(refusals), assume_unique=True)
        if not len(rows):
            return
        good = pa.concat_arrays([pa.array(latest, ids.type), *ids.take(rows).chunks])
        again = pc.fill_null(pc.equal(good[1:], good[:-1]), False)
        for row in rows[np.asarray(again)].tolist():
            sentence = f"an earlier {self.kind[:-1]} has the same id {shown(ids[row].as_py())}"
            refusals[row] = ("duplicate-id", sentence)
        latest[0] = good[-1].as_py()

    def _read_all(self, typed: pa.Table, refusals: Refusals) -> MessageBatch | SubscriptionTable:
        """Read the columns. An unforeseen error becomes a refusal of the rows that raise it, and stops nothing."""
        try:
            return self._read(typed, refusals)
        except MemoryError:
            raise
        except Exception:
            if not len(typed):  # there is no row to blame
                raise
            culprits = dict(self._culprits(typed, 0))
            for row, sentence in culprits.items():
                refusals.setdefault(row, ("unexpected", sentence))
            rows = np.arange(len(typed))
            return self._read(typed.take(pa.array(rows, mask=np.isin(rows, list(culprits)))), refusals)

    def _culprits(self, typed: pa.Table, start: int) -> Iterator[tuple[int, str]]:
        """Yield the rows that raise an error, each with its message; they are found by halving."""
        try:
            self._read(typed, {})
        except Exception as error:
            if len(typed) == 1:
                yield start, f"{type(error).__name__}: {error}"
                return
            half = len(typed) // 2
            yield from self._culprits(typed.slice(0, half), start)
            yield from self._culprits(typed.slice(half), start + half)

    def _read(self, typed: pa.Table, refusals: Refusals) -> MessageBatch | SubscriptionTable:
        """Read the columns with the in-process reader; refuse rows that cannot be used."""
        names = typed.column_names
        if self.kind == "subscriptions":
            read = typed.select([name for name in names if name != "id"])
            return subscriptions_from_arrow(read, refusals=refusals)
        # Attributes that are strings are left out, since any string is good.
        read = typed.select([name for name in names if name != "id" and not self._attributes.get(name)])
        return messages_from_arrow(read, like=Coding.new(), learn=True, refusals=refusals)

    def _result(self, typed: pa.Table, read: MessageBatch | SubscriptionTable) -> pa.Table:
        """Return the typed columns in order, with the keywords that were read."""
        names = typed.column_names
        if "expression" not in names:
            words = _keywords(read)
            typed = (typed.drop_columns("keywords") if "keywords" in names else typed).append_column(
                "keywords", words
            )
        known = ["id", *_PLACE, "expression", "keywords", "published_at", "expires_at"]
        text = ["text"] if self._keep_text else []
        order = (*known, *self._attributes, *text)
        return typed.select([name for name in order if name in typed.column_names])

    def _cast(self, raw: pa.Table, refusals: Refusals) -> pa.Table:
        """Return the typed columns; refuse rows with a value that cannot be read."""
        columns: dict[str, pa.Array] = {}

        def cast(name: str, column: pa.Array, read: Callable[[pa.Array, str], casting.Cells]) -> None:
            columns[name], wrong = read(column, name)
            for row, sentence in wrong.items():
                refusals.setdefault(row, ("type", sentence))

        for name in _COLUMNS[self.kind]:
            if name in raw.column_names and name not in ("bbox", "geometry"):
                in_zone = partial(casting.times, timezone=self._timezone)
                cast(name, _array(raw, name), in_zone if name in TIMES else _CASTS[name])
        if "bbox" in raw.column_names and not pa.types.is_null(raw.schema.field("bbox").type):
            box = _array(raw, "bbox")
            if not pa.types.is_struct(box.type) or not {field.name for field in box.type} >= set(BOX):
                raise ColumnError(f"bbox must be a column of structs of {', '.join(BOX)}, not of {box.type}")
            for name in BOX:
                cast(name, pc.struct_field(box, name), casting.numbers)
        for name, textual in self._attributes.items():
            column = _array(raw, name)
            boolean = pa.types.is_boolean(column.type)
            cast(name, column, casting.texts if textual else casting.flags if boolean else casting.numbers)
        if "geometry" in raw.column_names:
            geometry = _array(raw, "geometry")
            if not is_text(geometry.type):
                cast("geometry", geometry, casting.wkb)
                return pa.table(columns)
            given, places, wrong = casting.geometries(geometry, self.kind)
            for name, column in places.items():
                columns[name] = pc.if_else(given, column, columns.get(name, pa.nulls(len(raw), column.type)))
            for row, sentence in wrong.items():
                refusals.setdefault(row, ("place", sentence))
        return pa.table(columns)


def _known_zone(name: str) -> str:
    """Return the name of a time zone; raise if there is none."""
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), name)
    except pa.ArrowInvalid:
        raise InputError(
            f"there is no time zone {shown(name)}; give one such as UTC or Europe/Lisbon"
        ) from None
    return name


def _verdicts(raw: pa.Table, refusals: Refusals) -> tuple[pa.Array, ...]:
    """Return reasons, details and originals, which are null for good rows."""
    if not refusals:
        return (pa.nulls(len(raw), pa.string()),) * 3
    rows = sorted(refusals)
    at = np.full(len(raw), -1)
    at[rows] = np.arange(len(rows))
    spread = pa.array(at, mask=at < 0)
    columns = (*zip(*(refusals[row] for row in rows)), _originals(raw, rows))
    return tuple(pa.array(column, pa.string()).take(spread) for column in columns)


def _keywords(read: MessageBatch | SubscriptionTable) -> pa.Array:
    """Return the distinct keywords of each row as they were read, in alphabetical order.

    A subscription without words asks for every message, and says so by ``*``.
    """
    if isinstance(read, MessageBatch):
        return _listed(read, read.probes.keyword_offsets, read.probes.keywords)
    words = _listed(read, keyword_offsets(read.clauses), read.clauses.keywords)
    return pc.if_else(pc.equal(pc.list_value_length(words), 0), pa.scalar(["*"], words.type), words)


def _listed(
    read: MessageBatch | SubscriptionTable, offsets: NDArray[np.int64], codes: NDArray[np.int32]
) -> pa.Array:
    """Return the words of each row of clauses or probes as lists, one for each row of the table."""
    size = len(read)
    if len(read.owners) != size:  # a place of two boxes has two rows, with the same words
        offsets, codes = ragged_take(offsets, codes, np.searchsorted(read.owners, np.arange(size)))
    assert read.vocabulary is not None
    words = read.vocabulary.words
    order = pc.sort_indices(words).to_numpy()
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    offsets, codes = code_sets(offsets, ranks[codes], size, "keyword")
    flat = words.take(pa.array(order[codes])).cast(pa.string())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _array(table: pa.Table, name: str) -> pa.Array:
    array = table[name].combine_chunks()
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _originals(raw: pa.Table, rows: list[int]) -> list[str]:
    """Return raw rows as JSON, without their nulls; a line that could not be read is returned as it is.

    Binary values are written in Base64, times in ISO 8601, and values that JSON does not have as strings.
    """
    picked = raw.take(pa.array(rows, pa.int64()))
    names = [name for name in picked.column_names if name != MALFORMED]
    columns = []
    for name in names:
        array = _array(picked, name)
        values = _values(array)
        as_they_are = (
            is_text(array.type) or pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)
        )
        columns.append(values if as_they_are else [_plain(value) for value in values])
    lines = _values(_array(picked, MALFORMED)) if MALFORMED in picked.column_names else [None] * len(rows)
    encode = json.JSONEncoder(ensure_ascii=False).encode
    return [
        encode({name: value for name, value in zip(names, row) if value is not None})
        if line is None
        else line
        for line, row in zip(lines, zip(*columns))
    ]


def _values(array: pa.Array) -> list[Any]:
    """Return Python values; a value that Python cannot represent becomes something similar."""
    try:
        return list(array.to_pylist())
    except (ValueError, OverflowError, pa.ArrowException):  # bytes that are not UTF-8, a year of five digits
        pass
    kind = array.type
    if is_text(kind):
        found = array.cast(pa.binary()).to_pylist()
        return [value if value is None else value.decode(errors="backslashreplace") for value in found]
    if pa.types.is_timestamp(kind):
        return list(array.cast(pa.int64()).to_pylist())
    if pa.types.is_list(kind):
        flat = _values(array.flatten())
        ends = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).cumsum()
        return [flat[start:end] for start, end in zip([0, *ends], ends)]
    if pa.types.is_struct(kind):
        members = {field.name: _values(pc.struct_field(array, field.name)) for field in kind}
        return [dict(zip(members, row)) for row in zip(*members.values())]
    return [f"({kind})"] * len(array)


def _plain(value: Any) -> Any:
    """Return a value as JSON can write it."""
    if isinstance(value, dict):
        return {str(key): _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, str | int):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
