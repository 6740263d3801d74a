"""From records of change to a delta: each subscription after one micro-batch.

A record has ``change``, ``id``, ``changed_at`` (a time or a number, which orders the records) and, unless it
unsubscribes, columns of a subscription:

===============  ====================================================================================================
``subscribe``    the whole subscription; it replaces one with the same id
``update``       the same
``move``         the region only; everything else stays
``unsubscribe``  nothing more
===============  ====================================================================================================

Records with the same ``changed_at`` are ordered by their content, so that a repeat has the same result. A record that
cannot be applied (an unknown change, an expression that cannot be read, a move of an unknown subscription) is refused
with the reason, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from nearcast.columns.from_arrow.names import SUBSCRIPTION_COLUMNS, read_columns, require
from nearcast.errors import ColumnError, shown
from nearcast.preparation import Preparation
from nearcast.sharding.replica import CHANGE

__all__ = ["KINDS", "OTHER_FIELDS", "Resolution", "check_columns", "resolve"]

KINDS = ("subscribe", "update", "move", "unsubscribe")
OTHER_FIELDS = "_other_fields"  # an optional column: the names of fields of a record that are not read
_OWN = ("change", "changed_at")
_EVERY = {"expression": "*", "keywords": []}  # values that ask for every message


class Resolution(NamedTuple):
    """The result of the records of one micro-batch."""

    # Each changed id once: the subscription as it is now, and its last change.
    delta: pa.Table
    # Subscriptions that existed before and were replaced, as they were before.
    before: pa.Table
    # Records that could not be applied: id, change, reason, detail.
    refused: pa.Table


def check_columns(names: Sequence[str], subscriptions: Sequence[str]) -> None:
    """Raise if records of change lack a column that they need, or have one that the subscriptions lack.

    Words may be missing: records that only move or unsubscribe have none.
    """
    require([*_OWN, "id"], names, "changes")
    words = [name for name in _EVERY if name in subscriptions and name not in names]
    read_columns([*(name for name in names if name not in (*_OWN, OTHER_FIELDS)), *words], "changes: ")
    stray = [name for name in names if name in SUBSCRIPTION_COLUMNS and name not in subscriptions]
    if stray:
        raise ColumnError(
            f"changes have a column {stray[0]}, which the subscriptions do not have, so its values would be lost; "
            f"the subscriptions have {', '.join(subscriptions)}"
        )


def resolve(
    records: pa.Table, schema: pa.Schema, current: Callable[[list[Any]], dict[Any, dict[str, Any]]]
) -> Resolution:
    """Apply records, in their order, to subscriptions.

    *schema* is that of the stored subscriptions. *current* returns the subscriptions that exist among the given ids, as
    rows by id.
    """
    refused: list[tuple[Any, str, str, str]] = []
    good = [
        (record["changed_at"], record["change"], json.dumps(record, default=str, sort_keys=True), record)
        for record in _read_records(records, schema, refused)
    ]
    good.sort(key=lambda entry: entry[:3])
    before = current([record["id"] for *_, record in good])
    now: dict[Any, dict[str, Any] | None] = dict(before)
    changed: dict[Any, str] = {}  # the last change of each id
    for _, change, _, record in good:
        key = record["id"]
        if change == "unsubscribe":
            if now.get(key) is None:
                continue
            now[key] = None
        elif change == "move":
            moved = now.get(key)
            if moved is None:
                refused.append((key, change, "unknown", f"there is no subscription {shown(key)} to move"))
                continue
            now[key] = {name: (moved if name in _EVERY else record)[name] for name in schema.names} | {
                "id": key
            }
        else:
            now[key] = {name: record[name] for name in schema.names}
        changed[key] = change
    ids = [key for key in changed if now[key] is not None or key in before]
    empty = dict.fromkeys(schema.names)
    rows = [now[key] or {**empty, "id": key} for key in ids]
    delta = pa.Table.from_pylist(rows, schema).append_column(
        CHANGE, pa.array([changed[key] for key in ids], pa.string())
    )
    replaced = [before[key] for key in ids if key in before and now[key] is not None]
    return Resolution(
        delta,
        pa.Table.from_pylist(replaced, schema),
        pa.Table.from_pylist(
            [dict(zip(_REFUSED.names, (str(entry[0]), *entry[1:]))) for entry in refused], _REFUSED
        ),
    )


_REFUSED = pa.schema([(name, pa.string()) for name in ("id", "change", "reason", "detail")])


def _read_records(
    records: pa.Table, schema: pa.Schema, refused: list[tuple[Any, str, str, str]]
) -> list[dict[str, Any]]:
    """Return the readable records, each with all columns of a subscription; append the others to *refused*."""
    words = next(name for name in _EVERY if name in schema.names)
    if words not in records.column_names:
        records = records.append_column(words, pa.nulls(len(records), schema.field(words).type))
    given = [name for name in records.column_names if name in SUBSCRIPTION_COLUMNS]
    rows = records.to_pylist()
    for row in rows:
        if row["change"] == "unsubscribe":
            row |= dict.fromkeys(given) | {"id": row["id"]}
        if row["change"] in ("move", "unsubscribe"):
            row[words] = _EVERY[words]  # so that the row can be read; the subscription keeps its own words
    full = pa.Table.from_pylist(rows, records.schema)
    prepared = Preparation(full.select(given).schema, "subscriptions").apply(full.select(given)).to_pylist()
    good = []
    for row, typed in zip(rows, prepared):
        change = row["change"]
        if change not in KINDS:
            detail = f"the change is {shown(change)}; it must be one of {', '.join(KINDS)}"
            refused.append((row["id"], str(change), "change", detail))
        elif row["changed_at"] is None:
            refused.append(
                (row["id"], change, "no-time", "changed_at is null, so the order of the record is not known")
            )
        elif wrong := _wrong_name([*(row.get(OTHER_FIELDS) or ()), words]):
            refused.append((row["id"], change, "column", wrong))
        elif typed["reason"] is not None:
            refused.append((row["id"], change, typed["reason"], typed["detail"]))
        elif row[words] is None:  # allowed in a table; in a record they may be under a wrong name
            detail = "the subscription has no keywords; give an empty list to ask for every message"
            refused.append((row["id"], change, words, detail))
        else:
            columns = {name: typed.get(name) for name in schema.names}
            good.append({**columns, "change": change, "changed_at": row["changed_at"]})
    return good


def _wrong_name(names: list[str]) -> str:
    """Return what is wrong with the names of fields if one must be a mistake; a warning names other unknown ones."""
    try:
        read_columns(names, "changes: ")
    except ColumnError as error:
        return str(error)
    return ""
