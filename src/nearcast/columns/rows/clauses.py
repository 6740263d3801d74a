"""The clause rows of an index, and the subscription rows that own them.

Every index keeps its clauses here and adds only its own structure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.clauses import take_clauses
from nearcast.columns.coding import Coding
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ids import arrays_of_ids, ids_from_arrays
from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.columns.ragged import runs_take
from nearcast.columns.rows.base import MAX_ROWS, Rows
from nearcast.columns.rows.recode import recoded
from nearcast.columns.subscriptions import SubscriptionTable
from nearcast.errors import ColumnError, shown
from nearcast.kernels.runs import FREE
from nearcast.kernels.verify import Clauses

__all__ = ["ClauseStore"]


class ClauseStore(Rows):
    """A growing set of clause rows; it starts on the arrays of a table without copying them."""

    ragged: ClassVar[dict[str, tuple[str, ...]]] = {
        "keyword_runs": ("keywords",),
        "forbidden_runs": ("forbidden",),
        "test_runs": ("test_attributes", "test_lows", "test_highs", "test_flags"),
    }
    sparse: ClassVar[tuple[str, ...]] = ("forbidden_runs", "test_runs")
    nouns: ClassVar[tuple[str, str]] = ("clauses", "subscriptions")

    clauses: Clauses  # what kernels see

    def __init__(self, table: SubscriptionTable) -> None:
        self.coding = table.coding
        self._ids = [] if table.ids is None else [table.ids]
        self._id_of: GrowableArray | None = None  # by row: the position of its id; None if it is the row
        self._begin(table.clauses._asdict(), table.owners, table.size, table.shapes)

    @property
    def ids(self) -> pa.Array | None:
        """The id of each subscription row, or None if the rows are the ids; a free row still has its last id."""
        if len(self._ids) > 1 or self._id_of is not None:
            every = pa.concat_arrays(self._ids)
            self._ids = [every if self._id_of is None else every.take(pa.array(self._id_of.values))]
            self._id_of = None
        return self._ids[0] if self._ids else None

    @property
    def table(self) -> SubscriptionTable:
        """A table of all subscription rows; free ones have no clauses."""
        rows = np.flatnonzero(self.alive)
        rows = rows[np.argsort(self.owners[rows], kind="stable")]
        return self._table(rows, self.owners[rows], self.size, self.ids)

    def subscriptions(self, rows: NDArray[Any]) -> SubscriptionTable:
        """Return the table of the given subscription rows, without their ids."""
        parts, whose = self._parts_of(rows)
        return self._table(parts, whose.astype(np.int32), len(rows), None)

    def _table(
        self, rows: NDArray[np.int64], owners: NDArray[np.int32], size: int, ids: pa.Array | None
    ) -> SubscriptionTable:
        """Return the table of the given clause rows, whose owners are *owners*."""
        return SubscriptionTable(
            take_clauses(self.clauses, rows), owners, size, self.shapes.take(rows), ids, self.coding
        )

    def keywords_of(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the keywords of the given clause rows, one after the other."""
        runs, keywords = self.clauses.keyword_runs, self.clauses.keywords
        every = len(rows) == self.rows and not self._columns["keyword_room"].values[FREE]
        return keywords if every else runs_take(runs, keywords, rows)[1]

    def check_insert(self, table: SubscriptionTable) -> SubscriptionTable:
        """Return *table* in this store's coding, or raise before anything has changed."""
        if not isinstance(table, SubscriptionTable):
            raise ColumnError(
                f"insert takes a SubscriptionTable, not {shown(table)}; "
                "make one with SubscriptionTable.from_subscriptions, from_arrow or from_arrays"
            )
        if max(self.size + table.size, self.rows + len(table.owners)) > MAX_ROWS:
            raise ColumnError(f"an index holds at most {MAX_ROWS:,} rows; build another one")
        new = table.ids
        if self.size and table.size:
            if bool(self._ids) != (new is not None):
                raise ColumnError(
                    "either all subscriptions of an index have ids or none has; "
                    f"insert these {'without' if new is not None else 'with'} ids"
                )
            if new is not None and new.type != self._ids[0].type:
                raise ColumnError(
                    f"the ids here are {self._ids[0].type}, and those to insert are {new.type}; "
                    "give all ids the same type"
                )
        return self.coded(table)

    def coded(self, table: SubscriptionTable) -> SubscriptionTable:
        """Return *table* in this store's coding."""
        if table.size and table.space != self.space:
            raise ColumnError(
                f"the subscriptions here live in {self.space!r}, the new ones in {table.space!r}; "
                "build them for the same space"
            )
        if self.size == 0 and self.vocabulary is None and self.attributes is None:
            self.coding = replace(table.coding, space=self.space)
        return recoded(table, self.coding)

    def insert(self, table: SubscriptionTable) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Add the subscriptions of *table*; return their rows and those of their clauses."""
        size = self.size
        rows = self.add_owners(table.size)
        if table.ids is not None and table.size:
            self._name(rows, table.ids, size)
        return rows, self.append(table, rows)

    def append(self, table: SubscriptionTable, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Add the clauses of *table* for the given subscription rows, which have none; return the clause rows."""
        one_each = len(table.owners) == table.size
        if one_each and table.size == 1:
            owners = rows.astype(np.int32, copy=False)
        else:
            one_each = one_each and not (table.owners[1:] == table.owners[:-1]).any()
            owners = rows[table.owners].astype(np.int32, copy=False)
        return self._add_parts(table.clauses._asdict(), table.shapes, owners, one_each=one_each)

    def _name(self, rows: NDArray[np.int32], ids: pa.Array, size: int) -> None:
        """Give ids to rows; *size* is how many rows there were before."""
        known = sum(map(len, self._ids)) if size else 0
        self._ids = [*(self._ids if size else []), ids]
        if self._id_of is None:
            if known == size and np.array_equal(rows, np.arange(size, size + len(rows))):
                return
            self._id_of = GrowableArray(np.arange(size, dtype=np.int32), borrowed=False)
        self._id_of.reach(self.size)[rows] = np.arange(known, known + len(rows))
        if known + len(rows) > 2 * self.size + config.ID_MIN_DEAD:
            _ = self.ids  # this drops the ids that no row has

    # --- Saving and restoring --------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        return super().arrays() | nested(ids=arrays_of_ids(self.ids))

    @classmethod
    def restored(cls, coding: Coding, arrays: Arrays) -> ClauseStore:
        """Restore a store on mapped arrays, whose codes are those of *coding*."""
        store = cls(SubscriptionTable.empty(coding))
        store._restore(arrays)
        ids = ids_from_arrays(part_of(arrays, "ids"))
        if ids is not None and len(ids) != store.size:
            raise ColumnError(f"{len(ids):,} ids for {store.size:,} subscriptions")
        store._ids = [] if ids is None else [ids]
        return store

    def _view(self) -> None:
        columns = self._columns
        self.clauses = Clauses(*[columns[name].values for name in Clauses._fields])
        self.shapes = self._shapes()
