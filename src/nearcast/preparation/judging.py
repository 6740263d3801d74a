"""Which rows the in-process reader refuses, and why, in its own words.

The rules are not written down a second time: the reader gets the rows, and where it refuses them they are halved until
the rows that it refuses are known. The columns are shown to it in groups, so that the group tells the kind of mistake.
The mistakes that come in numbers are looked for in bulk before that, to keep a bad day's table from being halved again
and again; these tests refuse nothing that the reader would take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import language
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.errors import InputError, NearcastError
from nearcast.geometry import WGS84, Point
from nearcast.tables import too_short_a_life
from nearcast.tables.places import BOX, NO_PLACE, good_points

__all__ = ["expired", "misplaced", "read_messages", "read_subscriptions", "refused", "unreadable_expressions"]

_NO_EXPRESSION = "the subscription has no expression; write * for every message"
_ROW = re.compile(r"^(message|subscription) row \d+(:?) ")


def read_messages(table: pa.Table) -> MessageBatch:
    """Read messages, all of their words and attributes."""
    nobody = SubscriptionTable.from_arrow({"id": pa.array([], pa.string())})
    return MessageBatch.from_arrow(table, like=nobody, learn=True)


def read_subscriptions(table: pa.Table) -> SubscriptionTable:
    """Read subscriptions."""
    return SubscriptionTable.from_arrow(table)


def refused(table: pa.Table, read: Callable[[pa.Table], object]) -> dict[int, str]:
    """Return the rows that *read* refuses, each with its sentence."""
    return dict(_halved(table, read, 0))


def _halved(table: pa.Table, read: Callable[[pa.Table], object], start: int) -> Iterator[tuple[int, str]]:
    try:
        read(table)
    except MemoryError:
        raise
    except Exception as error:  # an error that is not ours is a bug, and still no reason to stop a job
        if len(table) == 1:
            yield start, _sentence(error)
            return
        half = len(table) // 2
        yield from _halved(table.slice(0, half), read, start)
        yield from _halved(table.slice(half), read, start + half)


def _sentence(error: Exception) -> str:
    """Return what an error says, without the number of a row that only this process knows."""
    if not isinstance(error, NearcastError):
        return f"{type(error).__name__}: {error}"
    return _ROW.sub(lambda found: "" if found[2] else f"the {found[1]} ", str(error))


def misplaced(table: pa.Table) -> dict[int, str]:
    """Return the messages whose place is a point that cannot be, or that have none."""
    if not {"lon", "lat"} <= set(table.column_names):
        return {}
    rest = [name for name in ("geometry", "radius_m", *BOX) if name in table.column_names]
    pointed = np.ones(len(table), bool)
    for name in rest:
        pointed &= np.asarray(table[name].is_null())
    x, y = (table[name].to_numpy() for name in ("lon", "lat"))
    found = {}
    for row in np.flatnonzero(pointed & ~good_points(x, y, WGS84)).tolist():
        found[row] = f"the message {NO_PLACE}"
        if not (np.isnan(x[row]) and np.isnan(y[row])):
            try:
                Point(x=float(x[row]), y=float(y[row]))
            except InputError as error:
                found[row] = str(error)
    return found


def expired(table: pa.Table) -> dict[int, str]:
    """Return the messages that expire before they are published."""
    if not {"published_at", "expires_at"} <= set(table.column_names):
        return {}
    starts, ends = (_microseconds(table[name]) for name in ("published_at", "expires_at"))
    given = np.asarray(table["published_at"].is_valid()) & np.asarray(table["expires_at"].is_valid())
    rows = np.flatnonzero(given & (ends <= starts)).tolist()
    return {row: f"the message {too_short_a_life(int(starts[row]), int(ends[row]))}" for row in rows}


def _microseconds(times: pa.ChunkedArray) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = times.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers


def unreadable_expressions(column: pa.ChunkedArray) -> dict[int, str]:
    """Return the rows whose expression cannot be read. Each different expression is read once."""
    encoded = column.combine_chunks().dictionary_encode()
    errors: dict[int | None, str] = {}
    for number, expression in enumerate(encoded.dictionary.to_pylist()):
        try:
            language.parse(expression).clauses()
        except InputError as error:
            errors[number] = str(error)
    errors[None] = _NO_EXPRESSION
    return {row: errors[number] for row, number in enumerate(encoded.indices.to_pylist()) if number in errors}
