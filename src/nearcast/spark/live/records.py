"""Reading records of change: their columns, typed, and the records that cannot be read, with the reason.

A record has ``change``, ``id``, ``changed_at`` (a time or a number, which orders the records) and, unless it
unsubscribes, columns of a subscription:

===============  ====================================================================================================
``subscribe``    the whole subscription; it replaces one with the same id
``update``       the same
``move``         the region only; everything else stays
``unsubscribe``  nothing more
===============  ====================================================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.from_arrow.names import SUBSCRIPTION_COLUMNS, read_columns, require, words_meant
from nearcast.columns.from_arrow.source import is_list, is_text
from nearcast.errors import ColumnError, shown
from nearcast.preparation import Preparation

__all__ = [
    "KINDS",
    "OTHER_FIELDS",
    "RECORD_COLUMNS",
    "REFUSED",
    "Records",
    "check_columns",
    "digest_of",
    "read_records",
    "refusals",
]

KINDS = ("move", "subscribe", "unsubscribe", "update")  # records of one instant are applied in this order
MOVE, SUBSCRIBE, UNSUBSCRIBE, UPDATE = range(len(KINDS))
OTHER_FIELDS = "_other_fields"  # an optional column: the names of fields of a record that are not read
_OWN = ("change", "changed_at")
RECORD_COLUMNS = (*_OWN, OTHER_FIELDS, *SUBSCRIPTION_COLUMNS)
WORDS = ("expression", "keywords")
REFUSED = pa.schema([(name, pa.string()) for name in ("id", "change", "reason", "detail")])


class Records(NamedTuple):
    """Records that can be read, in the order in which they came."""

    rows: pa.Table  # the columns of a subscription; null where the record does not say
    kinds: NDArray[np.int8]  # by KINDS
    times: NDArray[np.int64]  # by which they are ordered


def check_columns(records: pa.Schema, subscriptions: pa.Schema) -> None:
    """Raise if records of change lack a column that they need, or have one that the subscriptions lack.

    Words may be missing, but not be under another name: records that only move or unsubscribe have none.
    """
    names = records.names
    require([*_OWN, "id"], names, "changes")
    own = [name for name in names if name not in (*_OWN, OTHER_FIELDS)]
    words = [name for name in WORDS if name in subscriptions.names and name not in names]
    read_columns(own if words_meant(own) else [*own, *words], "changes: ")
    stray = [
        name for name in names if name in SUBSCRIPTION_COLUMNS and name not in (*subscriptions.names, "bbox")
    ]
    if stray:
        raise ColumnError(
            f"changes have a column {stray[0]}, which the subscriptions do not have, so its values would be lost; "
            f"the subscriptions have {', '.join(subscriptions.names)}"
        )
    _order(pa.array([], records.field("changed_at").type))
    _check_ids(records.field("id").type, subscriptions.field("id").type)


def _check_ids(given: pa.DataType, known: pa.DataType) -> None:
    if not pa.types.is_null(given) and is_text(given) != is_text(known):
        raise ColumnError(
            f"the ids of changes are {given}, and those of subscriptions are {known}; cast them to the same type"
        )


def refusals(rows: Sequence[tuple[str, str, str, str]]) -> pa.Table:
    """Return refused records as a table: id, change, reason, detail."""
    return pa.table([pa.array(column, pa.string()) for column in zip(*rows)] or [[]] * 4, REFUSED)


def read_records(records: pa.Table, schema: pa.Schema) -> tuple[Records, pa.Table]:
    """Return the records that can be read, and the last of those that cannot.

    *schema* has the columns of the stored subscriptions; the records that are returned have the same.
    """
    records = records.combine_chunks()
    words = next(name for name in WORDS if name in schema.names)
    if words not in records.column_names:
        records = records.append_column(words, pa.nulls(len(records), schema.field(words).type))
    kinds = _kinds(records["change"])
    times, timed = _order(_plain(records, "changed_at"))
    given = _completed(records, kinds, words)
    typed = _preparation(given.schema).apply(given)
    _check_ids(typed.schema.field("id").type, schema.field("id").type)
    ids, fitting = _fitted(_plain(typed, "id"), schema.field("id").type)
    wrong = _other_fields(records, words)
    unread = _plain(typed, "reason").is_valid().to_numpy(zero_copy_only=False)
    named = np.ones(len(records), bool)
    named[list(wrong)] = False
    good = (kinds >= 0) & timed & named & ~unread & fitting
    bad = []
    for row in np.flatnonzero(~good)[-config.LIVE_REFUSED :].tolist():
        change, key = records["change"][row].as_py(), records["id"][row].as_py()
        if kinds[row] < 0:
            why = ("change", f"the change is {shown(change)}; it must be one of {', '.join(sorted(KINDS))}")
        elif not timed[row]:
            why = ("no-time", "changed_at is null, so the order of the record is not known")
        elif row in wrong:
            why = ("column", wrong[row])
        elif unread[row]:
            why = (typed["reason"][row].as_py(), typed["detail"][row].as_py())
        else:
            why = ("no-id", f"{shown(key)} cannot be the id of a subscription here")
        bad.append((str(key), str(change), *why))
    columns = [
        ids if field.name == "id" else _column(typed, field).cast(field.type, safe=False) for field in schema
    ]
    rows = pa.Table.from_arrays(columns, schema=schema.remove_metadata())
    if not good.all():
        rows = rows.filter(pa.array(good))
    return Records(rows, kinds[good], times[good]), refusals(bad)


def digest_of(records: pa.Table) -> str:
    """Return a digest of the values of records, in whatever order they come.

    Spark promises no order: a repeat on another number of cores may cut files elsewhere.
    """
    names = [name for name in RECORD_COLUMNS if name in records.column_names]
    plain = records.select(sorted(names)).combine_chunks().flatten()
    for number, field in enumerate(plain.schema):
        if is_list(field.type):
            joined = pc.binary_join(_plain(plain, field.name).cast(pa.list_(pa.string())), "\0")
            plain = plain.set_column(number, field.name, joined)
    if len(plain):
        # Numbers are compared quickly, so they come first.
        order = sorted(plain.column_names, key=lambda name: name != "changed_at")
        plain = plain.take(pc.sort_indices(plain, sort_keys=[(name, "ascending") for name in order]))
    # Parquet holds nothing but the values: Arrow's buffers also have arbitrary bytes under nulls.
    content = pa.BufferOutputStream()
    pq.write_table(
        plain, content, compression="none", use_dictionary=False, write_statistics=False, store_schema=False
    )
    return hashlib.blake2b(content.getvalue(), digest_size=16).hexdigest()


@lru_cache(maxsize=4)
def _preparation(schema: pa.Schema) -> Preparation:
    return Preparation(schema, "subscriptions")


# --- Columns ---------------------------------------------------------------------------------------------------------


def _plain(table: pa.Table, name: str) -> pa.Array:
    array = table[name]
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _column(table: pa.Table, field: pa.Field) -> pa.Array:
    return _plain(table, field.name) if field.name in table.column_names else pa.nulls(len(table), field.type)


def _kinds(column: pa.ChunkedArray) -> NDArray[np.int8]:
    """Return the number of each change in KINDS, or -1."""
    if not is_text(column.type):
        return np.full(len(column), -1, np.int8)
    codes = pc.index_in(column.combine_chunks().cast(pa.string()), pa.array(KINDS))
    found: NDArray[np.int8] = pc.fill_null(codes, -1).to_numpy(zero_copy_only=False).astype(np.int8)
    return found


def _order(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a number for each time that orders them, and which of them are known.

    Times become microseconds; of floats, the bits are read as an integer, which has the same order.
    """
    types, kind = pa.types, column.type
    if types.is_timestamp(kind) or types.is_date(kind):
        column = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
    elif types.is_integer(kind) or types.is_null(kind):
        column = column.cast(pa.int64())
    elif types.is_floating(kind) or types.is_decimal(kind):
        floats = column.cast(pa.float64(), safe=False)
        values = pc.fill_null(floats, np.nan).to_numpy(zero_copy_only=False)
        bits = (values + 0.0).view(np.int64)  # -0 is 0
        return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits), ~np.isnan(values)
    else:
        raise ColumnError(f"changed_at must be a time or a number, not {kind}; cast it")
    return (
        pc.fill_null(column, 0).to_numpy(zero_copy_only=False),
        column.is_valid().to_numpy(zero_copy_only=False),
    )


def _completed(records: pa.Table, kinds: NDArray[np.int8], words: str) -> pa.Table:
    """Return the columns of subscriptions such that each row can be read as one.

    A record that moves or unsubscribes asks for everything here; the subscription keeps its own words. Of one that
    unsubscribes, only the id is read.
    """
    gone = pa.array(kinds == UNSUBSCRIBE)
    wordless = pa.array((kinds == UNSUBSCRIBE) | (kinds == MOVE))
    columns = {}
    for name in [name for name in records.column_names if name in SUBSCRIPTION_COLUMNS]:
        column = _plain(records, name)
        if name == words:
            if pa.types.is_null(column.type):
                column = column.cast(pa.string() if name == "expression" else pa.list_(pa.string()))
            every: Any = "*" if is_text(column.type) else ["*"]
            column = pc.if_else(wordless, pa.scalar(every, column.type), column)
        elif name != "id":
            column = pc.if_else(gone, pa.scalar(None, column.type), column)
        columns[name] = column
    return pa.table(columns)


def _fitted(ids: pa.Array, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return ids in the type of the stored ones, and which of them fit."""
    if not pa.types.is_integer(kind):
        ids = ids.cast(pa.string())
        full = pc.greater(pc.binary_length(ids), 0)
        return ids.cast(kind), pc.fill_null(full, True).to_numpy(zero_copy_only=False)
    narrow = ids.cast(kind, safe=False)
    same = pc.fill_null(pc.equal(narrow.cast(pa.int64(), safe=False), ids), True)
    return narrow, same.to_numpy(zero_copy_only=False)


def _other_fields(records: pa.Table, words: str) -> dict[int, str]:
    """Return the rows with a field that must be a mistake, each with the reason."""
    if OTHER_FIELDS not in records.column_names:
        return {}
    lists = _plain(records, OTHER_FIELDS)
    some = np.flatnonzero(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False))
    found = ((row, _wrong_name((*lists[row].as_py(), words))) for row in some.tolist())
    return {row: wrong for row, wrong in found if wrong}


@lru_cache
def _wrong_name(names: tuple[str, ...]) -> str:
    """Return what is wrong with the names of fields if one must be a mistake; a warning names other unknown ones."""
    try:
        read_columns(names, "changes: ")
    except ColumnError as error:
        return str(error)
    return ""
