"""Raw tables to typed ones, and what is wrong with the rows that cannot be used.

:class:`Preparation` knows, from the columns of a raw table, the columns that become of them. It takes the table batch
by batch. A good row gets its typed values; a bad one gets a ``reason``, a ``detail`` and its ``original``. As many rows
come out as went in, in the same order.

================  ====================================================================================
``malformed``     the line is no row at all: broken JSON, or a CSV row with too many or too few fields
``type``          a value cannot be read as what its column says: ``lon`` is ``'north'``
``no-id``         there is no id
``place``         the place of a message is missing or cannot be, or a subscription's region cannot be
``expiry``        a message expires before it is published
``attribute``     a number is infinite
``expression``    a subscription's expression is missing or cannot be read
``keywords``      a subscription asks for a keyword that cannot be one
``duplicate-id``  another good row has this id, and comes first
================  ====================================================================================

A row with several mistakes has the first of them in this order. Whether a row is good, the in-process reader decides:
the good rows of a batch have been read by it. No Spark here: :mod:`nearcast.spark.preparing` brings it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.errors import ColumnError, InputError, shown
from nearcast.preparation import casting, judging
from nearcast.ragged import code_sets, ragged_take
from nearcast.tables import MESSAGE_COLUMNS, SUBSCRIPTION_COLUMNS
from nearcast.tables.places import BOX
from nearcast.tables.source import is_number, is_text

__all__ = ["DUPLICATE", "MALFORMED", "REASONS", "VERDICT", "Kind", "Preparation", "originals"]

Kind = Literal["messages", "subscriptions"]

REASONS = (
    "malformed",
    "type",
    "no-id",
    "place",
    "expiry",
    "attribute",
    "expression",
    "keywords",
    "duplicate-id",
)
DUPLICATE = "duplicate-id"
VERDICT = ("reason", "detail", "original")  # the columns beside the typed ones
MALFORMED = "_corrupt_record"  # where Spark's readers put a line that is no row

_COLUMNS = {"messages": MESSAGE_COLUMNS, "subscriptions": SUBSCRIPTION_COLUMNS}
_NUMBERS = ("lon", "lat", "radius_m", *BOX)
_PLACE = ("geometry", *_NUMBERS)
_CASTS = {
    "id": casting.ids,
    "text": casting.texts,
    "expression": casting.texts,
    "keywords": casting.words,
    "published_at": casting.times,
    "expires_at": casting.times,
    "geometry": casting.wkb,
    **dict.fromkeys(_NUMBERS, casting.numbers),
}


class Preparation:
    """How the rows of one raw table are prepared. It can be pickled.

    Parameters
    ----------
    schema
        Of the raw table. The columns have the names of :mod:`nearcast.tables`; strings will do for any of them.
    kind
        ``"messages"`` or ``"subscriptions"``.
    numbers
        Attributes that are numbers, though the raw table has them as strings.
    keep_text
        Whether messages keep their ``text`` beside the keywords.

    Raises ColumnError if these columns cannot make messages or subscriptions, whatever is in their rows.

    >>> raw = pa.table({"id": ["a", "b"], "text": ["Hot tea!", "Tea"], "lon": ["1", "x"], "lat": ["2", "3"]})
    >>> done = Preparation(raw.schema, "messages").apply(raw)
    >>> done["keywords"].to_pylist(), done["reason"].to_pylist(), done["detail"].to_pylist()
    ([['hot', 'tea'], None], [None, 'type'], [None, "lon is 'x', which is not a number"])
    """

    def __init__(
        self, schema: pa.Schema, kind: Kind, *, numbers: Collection[str] = (), keep_text: bool = False
    ) -> None:
        if kind not in _COLUMNS:
            raise InputError(f"kind must be 'messages' or 'subscriptions', not {shown(kind)}")
        self.kind = kind
        self.left_out: dict[str, str] = {}  # columns that nothing becomes of, each with the reason
        self._keep_text = keep_text
        self._numbers = tuple(numbers)
        self._attributes: dict[str, bool] = {}  # name: whether it is a column of strings
        self._check_names(schema)
        for field in schema:
            if field.name not in (*_COLUMNS[kind], MALFORMED):
                self._take_attribute(field)
        if missing := [name for name in numbers if name not in self._attributes]:
            raise ColumnError(
                f"there is no attribute {shown(missing[0])} that could be a number; there are "
                f"{', '.join(self._attributes) or 'no attributes'}"
            )
        typed, _, _ = self._cast(schema.empty_table())
        read = self._read(typed)  # whatever is wrong with a whole column is known now
        good = self._result(typed, read)
        self.schema = pa.schema([*good.schema, *((name, pa.string()) for name in VERDICT)])

    def _check_names(self, schema: pa.Schema) -> None:
        names = schema.names
        if twice := [name for name in names if names.count(name) > 1]:
            raise ColumnError(f"the {self.kind} have two columns {shown(twice[0])}; leave one out")
        if "id" not in names:
            raise ColumnError(f"{self.kind} need a column id; the columns are {', '.join(names)}")
        if taken := [name for name in VERDICT if name in names]:
            raise ColumnError(f"a column {shown(taken[0])} comes out of this; rename the one that goes in")
        if self.kind == "messages" and not {*_PLACE, "bbox"} & set(names):
            raise ColumnError(
                "messages have no place: there is neither lon and lat, nor geometry, nor xmin, ymin, xmax, ymax, "
                f"nor bbox among the columns {', '.join(names)}"
            )

    def _take_attribute(self, field: pa.Field) -> None:
        """Note an attribute, or why a column is left out."""
        if self.kind == "subscriptions":
            self.left_out[field.name] = "a subscription has no such column"
        elif is_text(field.type):
            self._attributes[field.name] = field.name not in self._numbers
        elif is_number(field.type) or pa.types.is_boolean(field.type):
            self._attributes[field.name] = False
        else:
            self.left_out[field.name] = f"an attribute is a number, a string or a boolean, not {field.type}"

    # --- A batch ---------------------------------------------------------------------------------------------------
    def apply(self, batch: pa.RecordBatch | pa.Table) -> pa.Table:
        """Return the rows of *batch*, typed, each with its verdict."""
        raw = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch.combine_chunks()
        typed, wrong_values, wrong_places = self._cast(raw)
        verdicts = _Verdicts(len(raw))
        if MALFORMED in raw.column_names:
            lines = np.flatnonzero(raw[MALFORMED].is_valid()).tolist()
            verdicts.put("malformed", dict.fromkeys(lines, "the line cannot be read as a row"))
        verdicts.put("type", wrong_values)
        nameless = np.flatnonzero(typed["id"].is_null()).tolist()
        verdicts.put("no-id", dict.fromkeys(nameless, f"the {self.kind[:-1]} has no id"))
        verdicts.put("place", wrong_places)
        if self.kind == "messages":
            verdicts.put("place", judging.misplaced(typed))
            verdicts.put("expiry", judging.expired(typed))
        good = self._result(*self._good(typed, verdicts))
        if len(good) < len(raw):
            good = good.take(verdicts.places())  # null where a row is bad
            good = good.set_column(0, "id", typed["id"])
        for name, column in zip(VERDICT, verdicts.columns(raw)):
            good = good.append_column(name, column)
        return good

    def _good(
        self, typed: pa.Table, verdicts: _Verdicts
    ) -> tuple[pa.Table, MessageBatch | SubscriptionTable]:
        """Return the rows that the reader takes, and what it read; the others get their verdicts."""
        for reason, judge in self._groups(typed.column_names):
            rows = verdicts.good()
            good = typed if len(rows) == len(typed) else typed.take(rows)
            try:
                return good, self._read(good)
            except MemoryError:
                raise
            except Exception:  # which rows, and why, the group may tell
                found = judge(good)
                verdicts.put(reason, {int(rows[row]): sentence for row, sentence in found.items()})
        good = typed.take(verdicts.good())
        return good, self._read(good)

    def _groups(self, names: list[str]) -> Iterator[tuple[str, Callable[[pa.Table], dict[int, str]]]]:
        """Yield the groups of columns in which mistakes are looked for, each with the reason that it gives."""
        yield "place", partial(self._refused, [name for name in _PLACE if name in names])
        if self.kind == "messages":
            yield "attribute", partial(self._refused, self._values())
        if "expression" in names:
            yield "expression", lambda table: judging.unreadable_expressions(table["expression"])
        else:
            yield "keywords", partial(self._refused, [name for name in ("keywords", "text") if name in names])
        yield "type", partial(self._refused, names)  # whatever the others did not tell

    def _refused(self, names: list[str], table: pa.Table) -> dict[int, str]:
        return judging.refused(table.select(names), self._read)

    def _read(self, table: pa.Table) -> MessageBatch | SubscriptionTable:
        """Read columns as the package does in process."""
        names = table.column_names
        if self.kind == "subscriptions":
            return judging.read_subscriptions(table.select([name for name in names if name != "id"]))
        asked = [name for name in MESSAGE_COLUMNS if name in names and name != "id"]
        read = table.select([*asked, *(name for name in self._values() if name in names)])
        if not set(_PLACE) & set(names):
            zeros = pa.array(np.zeros(len(table)))
            read = read.append_column("lon", zeros).append_column("lat", zeros)
        return judging.read_messages(read)

    def _values(self) -> list[str]:
        """Return the attributes that are numbers: of strings none is refused."""
        return [name for name, textual in self._attributes.items() if not textual]

    def _result(self, typed: pa.Table, read: MessageBatch | SubscriptionTable) -> pa.Table:
        """Return the typed columns in their order, with the keywords that were read."""
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

    def _cast(self, raw: pa.Table) -> tuple[pa.Table, dict[int, str], dict[int, str]]:
        """Return the columns in their types, and by row the values and the places that cannot be read."""
        columns: dict[str, pa.Array] = {}
        wrong: dict[int, str] = {}

        def cast(name: str, column: pa.Array, read: Callable[[pa.Array, str], casting.Cells]) -> None:
            columns[name], errors = read(column, name)
            for row, sentence in errors.items():
                wrong.setdefault(row, sentence)

        for name in _COLUMNS[self.kind]:
            if name in raw.column_names and name not in ("bbox", "geometry"):
                cast(name, _array(raw, name), _CASTS[name])
        if "bbox" in raw.column_names:
            box = _array(raw, "bbox")
            if not pa.types.is_struct(box.type) or not {field.name for field in box.type} >= set(BOX):
                raise ColumnError(f"bbox must be a column of structs of {', '.join(BOX)}, not of {box.type}")
            for name in BOX:
                cast(name, pc.struct_field(box, name), casting.numbers)
        misplaced: dict[int, str] = {}
        if "geometry" in raw.column_names:
            geometry = _array(raw, "geometry")
            if is_text(geometry.type):
                given, places, misplaced = casting.geometries(geometry, self.kind)
                for name, column in places.items():
                    columns[name] = pc.if_else(
                        given, column, columns.get(name, pa.nulls(len(raw), column.type))
                    )
            else:
                cast("geometry", geometry, casting.wkb)
        for name, textual in self._attributes.items():
            column = _array(raw, name)
            if textual:
                cast(name, column, casting.texts)
            else:
                cast(name, column, casting.flags if pa.types.is_boolean(column.type) else casting.numbers)
        return pa.table(columns), wrong, misplaced


class _Verdicts:
    """What is wrong with each row; the first that is said stands."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._said: dict[int, tuple[str, str]] = {}

    def put(self, reason: str, found: dict[int, str]) -> None:
        """Say what is wrong with some rows."""
        for row, sentence in found.items():
            self._said.setdefault(row, (reason, sentence))

    def good(self) -> NDArray[np.int64]:
        """Return the rows with which nothing is wrong."""
        good = np.ones(self._size, bool)
        good[list(self._said)] = False
        return np.flatnonzero(good)

    def places(self) -> pa.Array:
        """Return where each row is among the good ones, null for a bad one."""
        bad = np.zeros(self._size, bool)
        bad[list(self._said)] = True
        return pa.array(np.cumsum(~bad) - 1, mask=bad)

    def columns(self, raw: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return reasons, details and originals, null where a row is good."""
        if not self._said:
            nothing = pa.nulls(self._size, pa.string())
            return nothing, nothing, nothing
        rows = sorted(self._said)
        at = np.full(self._size, -1)
        at[rows] = np.arange(len(rows))
        spread = pa.array(at, mask=at < 0)
        said = [self._said[row] for row in rows]
        columns = [reason for reason, _ in said], [detail for _, detail in said], originals(raw, rows)
        reasons, details, written = (pa.array(column, pa.string()).take(spread) for column in columns)
        return reasons, details, written


def _keywords(read: MessageBatch | SubscriptionTable) -> pa.Array:
    """Return the keywords of each row as they were read: each once, in the order of their characters."""
    rows = read.probes if isinstance(read, MessageBatch) else read.clauses
    offsets, codes = rows.keyword_offsets, rows.keywords
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


def originals(raw: pa.Table, rows: list[int]) -> list[str]:
    """Return raw rows as JSON, without their nulls; a line that could not be read is itself.

    Binary values are written in base 64, times in ISO 8601, and what JSON has no form for as a string.
    """
    picked = raw.take(pa.array(rows, pa.int64()))
    columns = {name: _values(picked[name]) for name in picked.column_names if name != MALFORMED}
    lines = picked[MALFORMED].to_pylist() if MALFORMED in picked.column_names else [None] * len(rows)
    written = []
    for number, line in enumerate(lines):
        row = {name: values[number] for name, values in columns.items() if values[number] is not None}
        written.append(json.dumps(_plain(row), ensure_ascii=False) if line is None else line)
    return written


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return Python values; where a column has some that Python does not, all as strings or bytes."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError, pa.ArrowException):
        pass
    if is_text(column.type):
        return [_shown_bytes(value) for value in column.cast(pa.binary()).to_pylist()]
    return [value if value is None else str(value) for value in map(_repr, column)]


def _shown_bytes(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _repr(value: pa.Scalar) -> str | None:
    return str(value) if value.is_valid else None


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
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
