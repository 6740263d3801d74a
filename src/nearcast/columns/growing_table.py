"""A table of subscriptions that grows table by table.

Each table is copied into columns that have room to grow, so that it can be freed at once, with everything that it
refers to: its ids often belong to a whole batch of rows. Joining all tables at the end would take twice the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from nearcast.columns.growable import GrowableArray
from nearcast.columns.ids import arrays_of_ids, ids_from_arrays
from nearcast.columns.shapes import NO_SHAPES, Shapes
from nearcast.columns.subscriptions import SubscriptionTable
from nearcast.errors import ColumnError
from nearcast.kernels.verify import Clauses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearcast.columns.coding import Coding

__all__ = ["GrowingTable"]

_MOST = 2**31 - 1  # positions are int32
# Runs, and a column that they refer to. Those of the latter two stay empty while no clause has a value.
_RUNS: Final = {"keyword_runs": "keywords", "forbidden_runs": "forbidden", "test_runs": "test_attributes"}
_SPARSE = ("forbidden_runs", "test_runs")


class GrowingTable:
    """Subscriptions of several tables with one coding, one after the other."""

    def __init__(self, coding: Coding) -> None:
        self._coding, self._size = coding, 0
        empty = SubscriptionTable.empty(coding)
        columns = empty.clauses._asdict() | {"owners": empty.owners}
        shapes = {"shape": NO_SHAPES.index, "circles": NO_SHAPES.circles, "polygons": NO_SHAPES.polygons}
        self._columns = {name: GrowableArray(array) for name, array in (columns | shapes).items()}
        self._ids: dict[str, GrowableArray] | None = None  # None before the first table

    @classmethod
    def joined(cls, tables: Sequence[SubscriptionTable]) -> SubscriptionTable:
        """Return the subscriptions of several tables, one after the other; there is at least one."""
        growing = cls(tables[0].coding)
        for table in tables:
            growing.extend(table)
        return growing.table()

    def __len__(self) -> int:
        return self._size

    def extend(self, table: SubscriptionTable) -> None:
        """Add the subscriptions of a table, which may be freed then."""
        if not table.coding.fits(self._coding):
            raise ColumnError("tables with different vocabularies cannot be one table; make them with like=")
        self._extend_ids(table)
        own, rows = self._columns, len(self._columns["owners"].values)
        given = table.clauses._asdict()
        for runs, values in _RUNS.items():
            begin = _end_of(own[values], len(given[values]))
            if begin or len(given[values]) or runs not in _SPARSE:
                own[runs].fill(rows - len(own[runs].values), 0)
                own[runs].extend(given[runs] + begin)
        for name in given.keys() - _RUNS.keys():
            own[name].extend(given[name])
        self._extend_shapes(table.shapes, rows, len(table.owners))
        own["owners"].extend(table.owners + np.int32(self._size))
        self._size += table.size

    def _extend_shapes(self, shapes: Shapes, rows: int, more: int) -> None:
        """Add the shapes of *more* rows, which follow the first *rows*."""
        index, circles = self._columns["shape"], self._columns["circles"]
        if not shapes and not len(index.values):
            return
        index.fill(rows - len(index.values), -1)
        if shapes:
            index.extend(np.where(shapes.index < 0, -1, shapes.index + len(circles.values)))
            circles.extend(shapes.circles)
            self._columns["polygons"].extend(shapes.polygons)
        else:
            index.fill(more, -1)

    def _extend_ids(self, table: SubscriptionTable) -> None:
        """Add the ids of a table; all tables have ids of one type, or none has."""
        given = arrays_of_ids(table.ids)
        if self._ids is None:
            self._ids = {name: GrowableArray(array.copy(), borrowed=False) for name, array in given.items()}
            return
        if given.keys() != self._ids.keys():
            raise ColumnError("either all tables have ids of the same type or none has")
        if "offsets" in given:
            begin = _end_of(self._ids["bytes"], len(given["bytes"]))
            given["offsets"] = given["offsets"][1:] + begin
        for name, array in given.items():
            self._ids[name].extend(array)

    def table(self) -> SubscriptionTable:
        """Return the subscriptions, on the same arrays; no more tables may follow."""
        own = {name: column.values for name, column in self._columns.items()}
        rows = len(own["owners"])
        for name in _SPARSE:
            if len(own[name]) < rows:
                own[name] = np.zeros((rows, 2), np.int32)  # takes no memory unless it is read
        return SubscriptionTable(
            Clauses(*(own[name] for name in Clauses._fields)),
            own["owners"],
            self._size,
            Shapes(own["shape"], own["circles"], own["polygons"]) if len(own["shape"]) else NO_SHAPES,
            ids_from_arrays({name: column.values for name, column in (self._ids or {}).items()}),
            self._coding,
        )


def _end_of(column: GrowableArray, more: int) -> np.int32:
    """Return how many values a column has; raise if positions cannot tell that many and *more* apart."""
    used = len(column.values)
    if used + more > _MOST:
        raise ColumnError(
            f"{used + more:,} values in one column; a table holds at most {_MOST:,}, so split it"
        )
    return np.int32(used)
