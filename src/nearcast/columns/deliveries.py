"""Deliveries as columns: one form for the engine, top-k, Spark, the command line and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.columns.ids import IdColumn
from nearcast.columns.matches import Matches
from nearcast.model import Delivery, Id

__all__ = ["CHANGES", "REASONS", "Deliveries", "deliveries_schema"]

CHANGES = ("+", "-")
REASONS = ("publish", "subscribe", "update", "move", "replace", "unsubscribe", "expire")
_CODES = {name: np.int8(code) for names in (CHANGES, REASONS) for code, name in enumerate(names)}
_CHANGE, _REASON = pa.array(CHANGES, pa.string()), pa.array(REASONS, pa.string())
_NOTHING = np.empty(0, np.int32)


def deliveries_schema(subscriptions: pa.DataType, messages: pa.DataType) -> pa.Schema:
    """Return the schema of deliveries in plain types, as in files and Spark, with the given types of ids."""
    return pa.schema(
        {
            "subscription_id": subscriptions,
            "message_id": messages,
            "change": pa.string(),
            "reason": pa.string(),
            "score": pa.float64(),
            "rank": pa.int32(),
        }
    )


class Deliveries:
    """What subscribers are told: a sequence of :class:`Delivery`, held as columns.

    ``change`` is ``+`` (receive the message) or ``-`` (what was received no longer counts); ``reason`` names the cause.
    ``score`` and ``rank`` are set for subscriptions that rank, and null for the others. Objects are made only during
    iteration; :meth:`to_arrow` shares the ids with the engine that made the deliveries, and anything that reads the
    Arrow C stream (Polars, DuckDB, pandas) takes them as they are.

    >>> nothing = Deliveries.none()
    >>> len(nothing), nothing.to_arrow().column_names
    (0, ['subscription_id', 'message_id', 'change', 'reason', 'score', 'rank'])
    """

    __slots__ = ("_changes", "_messages", "_ranks", "_reasons", "_scores", "_subscriptions", "_to_report")

    def __init__(
        self,
        subscriptions: IdColumn,
        messages: IdColumn,
        changes: str | NDArray[np.int8] = "+",
        reasons: str | NDArray[np.int8] = "publish",
        scores: NDArray[np.float64] | None = None,
        ranks: NDArray[np.int32] | None = None,
        to_report: IdColumn | None = None,
    ) -> None:
        """Take columns of one length, and those who are asked to report.

        *changes* and *reasons* are one word for all deliveries, or positions in :data:`CHANGES` and :data:`REASONS`.
        """
        self._subscriptions, self._messages = subscriptions, messages
        self._changes, self._reasons = changes, reasons
        self._scores, self._ranks = scores, ranks
        self._to_report = to_report

    @classmethod
    def none(cls) -> Deliveries:
        """Return an empty sequence whose ids are strings."""
        return cls(IdColumn(_NOTHING, []), IdColumn(_NOTHING, []))

    @classmethod
    def of(cls, found: Matches, messages: Any = None, subscriptions: Any = None) -> Deliveries:
        """Return matches as deliveries with the reason ``publish``.

        *messages* and *subscriptions* are the ids by row: Arrow arrays, or NumPy arrays of integers. Without them the
        row number is the id.
        """
        return cls(_ids(found.rows, subscriptions), _ids(found.messages, messages))

    @classmethod
    def joined(cls, parts: Sequence[Deliveries]) -> Deliveries:
        """Return the deliveries of several calls, one after the other; a single one is returned as it is."""
        filled = [part for part in parts if len(part)] or list(parts[:1])
        asked = [part._to_report for part in parts if part._to_report is not None]
        if len(filled) == 1 and (not asked or (len(asked) == 1 and filled[0]._to_report is asked[0])):
            return filled[0]
        return cls(
            IdColumn.joined([part._subscriptions for part in filled]),
            IdColumn.joined([part._messages for part in filled]),
            np.concatenate([_encode(part._changes, len(part)) for part in filled]),
            np.concatenate([_encode(part._reasons, len(part)) for part in filled]),
            _concat_numbers([part._scores for part in filled], filled, np.nan),
            _concat_numbers([part._ranks for part in filled], filled, -1),
            IdColumn.joined(asked) if asked else None,
        )

    @property
    def to_report(self) -> list[Id]:
        """The subscriptions whose safe regions no longer hold: they should report where they are.

        What concerns them is decided by their reports. The list belongs to the call as a whole: it is not in the Arrow
        table, and not in a slice.
        """
        return [] if self._to_report is None else self._to_report.to_pylist()

    def __len__(self) -> int:
        return len(self._subscriptions.codes)

    def __iter__(self) -> Iterator[Delivery]:
        count = len(self)
        columns = (
            self._subscriptions.to_pylist(),
            self._messages.to_pylist(),
            _spell(self._changes, count, CHANGES),
            _spell(self._reasons, count, REASONS),
            [None] * count if self._scores is None else _with_nones(self._scores, np.isnan(self._scores)),
            [None] * count if self._ranks is None else _with_nones(self._ranks, self._ranks < 0),
        )
        return map(Delivery, *columns)

    @overload
    def __getitem__(self, key: int) -> Delivery: ...
    @overload
    def __getitem__(self, key: slice) -> Deliveries: ...
    def __getitem__(self, key: int | slice) -> Delivery | Deliveries:
        if not isinstance(key, slice):
            at = range(len(self))[key]
            return next(iter(self[at : at + 1]))

        return self.take(key)

    def take(self, entries: slice | NDArray[Any]) -> Deliveries:
        """Return some of the deliveries: a slice of them, or those at the given positions."""

        def part(column: Any) -> Any:
            return column if column is None or isinstance(column, str) else column[entries]

        return Deliveries(*(part(getattr(self, name)) for name in _ORDER))

    def __repr__(self) -> str:
        asked = "" if self._to_report is None else f", {len(self._to_report.codes):,} to report"
        return f"<Deliveries: {len(self):,}{asked}>"

    def to_arrow(self) -> pa.Table:
        """Return the columns of :class:`Delivery`.

        Ids are integers, or strings as dictionary arrays; so are ``change`` and ``reason``. The types do not depend on
        which deliveries there happen to be, or whether there are any.
        """
        count = len(self)
        changes, reasons = _encode(self._changes, count), _encode(self._reasons, count)
        scores, ranks = self._scores, self._ranks
        return pa.table(
            {
                "subscription_id": self._subscriptions.to_arrow(),
                "message_id": self._messages.to_arrow(),
                "change": pa.DictionaryArray.from_arrays(pa.array(changes), _CHANGE, safe=False),
                "reason": pa.DictionaryArray.from_arrays(pa.array(reasons), _REASON, safe=False),
                "score": pa.nulls(count, pa.float64())
                if scores is None
                else _with_nulls(scores, np.isnan(scores)),
                "rank": pa.nulls(count, pa.int32()) if ranks is None else _with_nulls(ranks, ranks < 0),
            }
        )

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the columns through the Arrow C stream interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """Return the columns as a pandas DataFrame."""
        return self.to_arrow().to_pandas()


def _ids(rows: NDArray[Any], ids: Any) -> IdColumn:
    return IdColumn(np.arange(len(rows)), rows.astype(np.int64)) if ids is None else IdColumn(rows, ids)


_ORDER = ("_subscriptions", "_messages", "_changes", "_reasons", "_scores", "_ranks")


def _encode(words: str | NDArray[np.int8], count: int) -> NDArray[np.int8]:
    return np.full(count, _CODES[words]) if isinstance(words, str) else words


def _spell(words: str | NDArray[np.int8], count: int, names: tuple[str, ...]) -> list[str]:
    return [words] * count if isinstance(words, str) else [names[code] for code in words.tolist()]


def _with_nones(values: NDArray[Any], absent: NDArray[np.bool_]) -> list[Any]:
    return [None if missing else value for value, missing in zip(values.tolist(), absent.tolist())]


def _with_nulls(values: NDArray[Any], absent: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=absent) if absent.any() else pa.array(values)


def _concat_numbers(columns: list[Any], parts: list[Deliveries], absent: float) -> NDArray[Any] | None:
    """Concatenate columns of numbers; a part without a column has *absent* in all of its entries."""
    given = [column for column in columns if column is not None]
    if not given:
        return None
    return np.concatenate(
        [
            np.full(len(part), absent, given[0].dtype) if column is None else column
            for column, part in zip(columns, parts)
        ]
    )
