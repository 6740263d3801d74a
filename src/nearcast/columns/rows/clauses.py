"""The clause rows of an index: append, retire, compact.

Every index keeps its clauses here and adds only its own structure. Subscription rows are stable; clause rows are
private to the index and are renumbered when half of them are dead.

Columns that would say nothing take no memory: the offsets of forbidden keywords or tests while no clause has any, and
the chains from subscriptions to clause rows while both have the same numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.clauses import take_clauses, with_offsets
from nearcast.columns.coding import Coded, Coding
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ids import arrays_of_ids, ids_from_arrays
from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.columns.ragged import check_positions, checked_offsets
from nearcast.columns.rows.recode import recoded
from nearcast.columns.shapes import NO_SHAPES, Shapes, arrays_of_polygons, polygons_from_arrays
from nearcast.columns.subscriptions import SubscriptionTable
from nearcast.errors import ColumnError
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.verify import Clauses

__all__ = ["ClauseStore"]

_NONE = -1
_MOST_ROWS = 2**31 - 1  # rows are int32
_AHEAD = config.UPDATE_AHEAD
# The ragged columns of Clauses: offsets, and the values that they cut into rows.
_RAGGED = {
    "keyword_offsets": ("keywords",),
    "forbidden_offsets": ("forbidden",),
    "test_offsets": ("test_attributes", "test_lows", "test_highs", "test_flags"),
}
_OFTEN_EMPTY = ("forbidden_offsets", "test_offsets")
_CLAUSE_COLUMNS = ("owners", "alive", "next")  # one entry a clause row, beside those of Clauses
_SUBSCRIPTION_COLUMNS = ("present", "first")  # one entry a subscription row


class ClauseStore(Coded):
    """Growable clause rows with their owners; it starts on the arrays of a table without copying them."""

    _same: bool  # clause rows and subscription rows have the same numbers

    def __init__(self, table: SubscriptionTable) -> None:
        self.coding = table.coding
        self._ids = [] if table.ids is None else [table.ids]
        self._load(table.clauses, table.owners, table.shapes)
        self._columns["present"] = GrowableArray(np.ones(table.size, np.bool_), borrowed=False)
        if not self._same:
            self._chain()

    def __len__(self) -> int:
        """How many subscriptions are present."""
        return int(np.count_nonzero(self.present))

    @property
    def rows(self) -> int:
        """Clause rows, dead ones included."""
        return len(self.owners)

    @property
    def size(self) -> int:
        """Subscription rows ever given out."""
        return len(self.present)

    @property
    def dead(self) -> int:
        """Clause rows that were removed or moved away, and not yet compacted."""
        return self.rows - self._living

    @property
    def owners(self) -> NDArray[np.int32]:
        """The subscription row of each clause row."""
        return self._columns["owners"].values

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which clause rows count."""
        return self._columns["alive"].values

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which subscription rows are subscribed now."""
        return self._columns["present"].values

    @property
    def ids(self) -> pa.Array | None:
        """The id of each subscription row ever given out, or None where rows are ids."""
        if len(self._ids) > 1:
            self._ids = [pa.concat_arrays(self._ids)]
        return self._ids[0] if self._ids else None

    @property
    def one_clause_each(self) -> bool:
        """Tell whether no subscription has a second clause row, so that matches need no deduplication."""
        return self._single

    @property
    def rows_are_subscriptions(self) -> bool:
        """Tell whether each clause row has the number of its subscription row, so that matches need no translation."""
        return self._same

    @property
    def table(self) -> SubscriptionTable:
        """What is stored, as a table of all subscription rows; removed ones are without clauses."""
        rows = np.flatnonzero(self.alive)
        rows = rows[np.argsort(self.owners[rows], kind="stable")]
        return self._table(rows, self.owners[rows], self.size, self.ids)

    def subscription(self, row: int) -> SubscriptionTable:
        """Return the table of one subscription row, without its id."""
        rows = np.sort(self.clause_rows(np.array([row])))
        return self._table(rows, np.zeros(len(rows), np.int32), 1, None)

    def _table(
        self, rows: NDArray[np.int64], owners: NDArray[np.int32], size: int, ids: pa.Array | None
    ) -> SubscriptionTable:
        """Return the table of the given clause rows, which *owners* own."""
        whole = np.array_equal(rows, np.arange(self.rows))
        clauses = with_offsets(self.clauses) if whole else take_clauses(self.clauses, rows)
        shapes = self.shapes.take(rows)
        return SubscriptionTable(clauses, owners, size, shapes, ids, self.coding)

    @property
    def nbytes(self) -> int:
        """Memory of the clause rows and of what maps them to subscriptions; neither ids nor words."""
        return sum(column.nbytes for column in self._columns.values()) + self.shapes.nbytes

    def clause_rows(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return the living clause rows of the given subscription rows."""
        if self._same:
            rows = rows[rows < self.rows]
            living: NDArray[np.int64] = rows[self.alive[rows]].astype(np.int64)
            return living
        first, after = self._columns["first"].values, self._columns["next"].values
        chains = [np.empty(0, np.int64)]
        at = first[rows]
        while (at := at[at != _NONE]).size:
            chains.append(at.astype(np.int64))
            at = after[at]
        return np.concatenate(chains)

    @property
    def chains(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The first clause row of each subscription row, and the next one of each clause row; -1 for none.

        Both are empty while :attr:`rows_are_subscriptions`.
        """
        return self._columns["first"].values, self._columns["next"].values

    def check_insert(self, table: SubscriptionTable) -> SubscriptionTable:
        """Return *table* in this store's codes, or raise before anything has changed."""
        if max(self.size + table.size, self.rows + len(table.owners)) > _MOST_ROWS:
            raise ColumnError(f"an index holds at most {_MOST_ROWS:,} rows; build another one")
        new = table.ids
        if self.size and table.size:
            if bool(self._ids) != (new is not None):
                raise ColumnError(
                    "either all subscriptions of an index have ids or none has; this insert differs"
                )
            if new is not None and new.type != self._ids[0].type:
                raise ColumnError(f"the ids here are {self._ids[0].type}, those of the insert {new.type}")
        return self.coded(table)

    def coded(self, table: SubscriptionTable) -> SubscriptionTable:
        """Return *table* in this store's codes."""
        if table.size and table.space != self.space:
            raise ColumnError(
                f"the subscriptions here live in {self.space!r}, the new ones in {table.space!r}"
            )
        if self.size == 0 and self.vocabulary is None and self.attributes is None:
            self.coding = replace(table.coding, space=self.space)
        return recoded(table, self.coding)

    def add_subscriptions(self, table: SubscriptionTable) -> NDArray[np.int32]:
        """Give new subscription rows to the subscriptions of *table*, without clauses yet."""
        if table.size:
            before = self._ids if self.size else []
            self._ids = before if table.ids is None else [*before, table.ids]
        rows = np.arange(self.size, self.size + table.size, dtype=np.int32)
        self._columns["present"].fill(table.size, True)
        if not self._same:
            self._columns["first"].fill(table.size, _NONE)
        return rows

    def append(self, table: SubscriptionTable, owners: NDArray[np.int32]) -> NDArray[np.int64]:
        """Add the clause rows of *table* for the given subscription rows; return the new clause rows."""
        old, more = self.rows, len(owners)
        columns = self._columns
        if table.shapes:
            if not self.shapes:
                columns["shape"].fill(old, -1)
            columns["shape"].extend(
                np.where(table.shapes.index < 0, -1, table.shapes.index + len(self.shapes))
            )
            columns["circles"].extend(table.shapes.circles)
            columns["polygons"].extend(table.shapes.polygons)
        elif self.shapes:
            columns["shape"].fill(more, -1)
        for name, values in _RAGGED.items():
            if name in _OFTEN_EMPTY and not len(columns[values[0]].values) + len(
                getattr(table.clauses, values[0])
            ):
                continue
            columns[name].fill(old + 1 - len(columns[name].values), 0)
            columns[name].extend(getattr(table.clauses, name)[1:] + columns[name].values[-1])
            for value in values:
                columns[value].extend(getattr(table.clauses, value))
        columns["boxes"].extend(table.clauses.boxes)
        columns["owners"].extend(owners)
        columns["alive"].fill(more, True)
        self._living += more
        self._view()
        rows = np.arange(old, old + more)
        if self._same and np.array_equal(rows, owners):
            return rows
        if self._same:
            self._same = False
            self._chain()
        else:
            columns["next"].fill(more, _NONE)
            self._link(rows)
        return rows

    def overwrite(
        self, rows: NDArray[Any], table: SubscriptionTable
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
        """Write the clauses of *table* over those of subscription rows, one each.

        Returns the clause rows, and which of them have *changed*: the others have another box at most, and nothing but
        that is written. Returns None, and changes nothing, where that is not possible: a subscription of several
        clauses, a shape, or another number of keywords or tests than there was.
        """
        if not self._single or self.shapes or table.shapes:
            return None
        clause_rows = self.clause_rows(rows)
        if len(clause_rows) != len(rows) or not np.array_equal(table.owners, np.arange(len(rows))):
            return None
        columns, clauses = self._columns, table.clauses
        ragged = []
        for name, values in _RAGGED.items():
            old, new = columns[name].values, getattr(clauses, name)
            if not len(columns[values[0]].values):
                if len(getattr(clauses, values[0])):
                    return None
            elif _as_long(old, clause_rows, new):
                ragged += [
                    (old, new, getattr(clauses, value), columns[value])
                    for value in values
                    if len(getattr(clauses, value))
                ]
            else:
                return None
        changed = np.zeros(len(rows), np.bool_)
        for old, new, given, column in ragged:
            _compare(old, clause_rows, new, given, column.values, changed)
        _scatter_boxes(clause_rows, clauses.boxes, columns["boxes"].own())
        if changed.any():
            for old, new, given, column in ragged:
                _scatter(old, clause_rows, new, given, column.own(), changed)
        self._view()
        return clause_rows, changed

    def retire(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Mark all clause rows of the given subscription rows as dead; return them."""
        clause_rows = self.clause_rows(rows)
        self.alive[clause_rows] = False
        if not self._same:
            self._columns["first"].values[rows] = _NONE
        self._living -= len(clause_rows)
        return clause_rows

    def forget(self, rows: NDArray[Any]) -> None:
        """Mark subscription rows as gone."""
        self.present[rows] = False

    def wasteful(self) -> bool:
        """Tell whether so many clause rows are dead that compaction pays."""
        return self.dead > max(config.COMPACT_MIN_DEAD, self.rows // 2)

    def compact(self) -> None:
        """Drop dead clause rows; clause rows are renumbered, subscription rows are not."""
        rows = np.flatnonzero(self.alive)
        present = self._columns["present"]
        self._load(take_clauses(self.clauses, rows), self.owners[rows], self.shapes.take(rows))
        self._columns["present"] = present
        if not self._same:
            self._chain()

    def check(self) -> list[str]:
        """Return the damage found, in words."""
        found = []
        alive = np.flatnonzero(self.alive)
        reached = np.sort(self.clause_rows(np.flatnonzero(self.present)))
        if not np.array_equal(reached, alive):
            found.append(f"{len(alive)} clause rows are alive, but subscriptions reach {len(reached)}")
        if len(alive) and not self.present[self.owners[alive]].all():
            found.append("a clause row is alive although its subscription is gone")
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        columns = {name: column.values for name, column in self._columns.items()}
        polygons = columns.pop("polygons")
        return columns | nested(polygons=arrays_of_polygons(polygons), ids=arrays_of_ids(self.ids))

    @classmethod
    def restored(cls, coding: Coding, arrays: Arrays) -> ClauseStore:
        """Restore a store on mapped arrays; *coding* says what their codes mean."""
        _check(coding, arrays)
        store = cls(SubscriptionTable.empty(coding))
        ids = ids_from_arrays(part_of(arrays, "ids"))
        if ids is not None and len(ids) != len(arrays["present"]):
            raise ColumnError(f"{len(ids):,} ids for {len(arrays['present']):,} subscriptions")
        store._ids = [] if ids is None else [ids]
        clauses = Clauses(**{name: arrays[name] for name in Clauses._fields})
        polygons = polygons_from_arrays(part_of(arrays, "polygons"), len(arrays["circles"]))
        store._load(clauses, arrays["owners"], Shapes(arrays["shape"], arrays["circles"], polygons))
        for name in (*_CLAUSE_COLUMNS, *_SUBSCRIPTION_COLUMNS):
            store._columns[name] = GrowableArray(arrays[name], borrowed=False)
        store._living = int(np.count_nonzero(store.alive))
        store._same = len(arrays["first"]) < len(arrays["present"]) or not len(arrays["present"])
        store._single = bool((arrays["next"] == _NONE).all())
        return store

    def _load(self, clauses: Clauses, owners: NDArray[np.int32], shapes: Shapes) -> None:
        """Take over clause rows, all alive and not yet linked."""
        n = len(owners)
        self._columns = {name: GrowableArray(array) for name, array in clauses._asdict().items()}
        for name, values in _RAGGED.items():
            if name in _OFTEN_EMPTY and not len(getattr(clauses, values[0])):
                self._columns[name] = GrowableArray(np.zeros(1, np.int64), borrowed=False)
        self._columns["owners"] = GrowableArray(owners)
        self._columns["alive"] = GrowableArray(np.ones(n, np.bool_), borrowed=False)
        for name in ("first", "next"):
            self._columns[name] = GrowableArray(np.empty(0, np.int32), borrowed=False)
        self._columns["shape"] = GrowableArray(shapes.index)
        self._columns["circles"] = GrowableArray(shapes.circles)
        self._columns["polygons"] = GrowableArray(shapes.polygons)
        self._living = n
        self._single = True
        self._same = bool(np.array_equal(owners, np.arange(n)))
        self._view()

    def _view(self) -> None:
        """Refresh what kernels see after a column grew."""
        columns = self._columns
        self.clauses = Clauses(**{name: columns[name].values for name in Clauses._fields})
        shaped = len(columns["shape"].values) > 0
        self.shapes = (
            Shapes(columns["shape"].values, columns["circles"].values, columns["polygons"].values)
            if shaped
            else NO_SHAPES
        )

    def _chain(self) -> None:
        """Write down which clause rows belong to which subscription row."""
        self._columns["first"] = GrowableArray(np.full(self.size, _NONE, np.int32), borrowed=False)
        self._columns["next"] = GrowableArray(np.full(self.rows, _NONE, np.int32), borrowed=False)
        self._link(np.flatnonzero(self.alive))

    def _link(self, clause_rows: NDArray[np.int64]) -> None:
        """Chain the clause rows of owners that had none: first[subscription] → next[clause] → … → none."""
        first, after = self._columns["first"].values, self._columns["next"].values
        owners = self.owners[clause_rows]
        order = np.argsort(owners, kind="stable")
        owners, clause_rows = owners[order], clause_rows[order]
        same = owners[1:] == owners[:-1]
        self._single = self._single and not same.any()
        after[clause_rows[:-1][same]] = clause_rows[1:][same]
        begins = np.append(True, ~same)[: len(owners)]
        first[owners[begins]] = clause_rows[begins]


def _check(coding: Coding, arrays: Arrays) -> None:
    """Raise unless arrays fit together: offsets cut what they should, and rows and codes are there."""
    rows, size, shapes = len(arrays["owners"]), len(arrays["present"]), len(arrays["circles"])
    for name, values in _RAGGED.items():
        for value in values:
            unused = name in _OFTEN_EMPTY and not len(arrays[value])
            checked_offsets(arrays[name], 0 if unused else rows, len(arrays[value]), name)
    for name, lengths in (
        ("boxes", {rows}),
        ("alive", {rows}),
        ("next", {0, rows}),
        ("first", {0, size}),
        ("shape", {0, rows}),
    ):
        if len(arrays[name]) not in lengths:
            raise ColumnError(f"{len(arrays[name]):,} {name} for {rows:,} clauses of {size:,} subscriptions")
    words, attributes = coding.sizes
    check_positions(arrays["owners"], size, "owners")
    check_positions(arrays["keywords"], words, "keywords")
    check_positions(arrays["forbidden"], words, "forbidden keywords")
    check_positions(arrays["test_attributes"], attributes, "attributes")
    check_positions(arrays["first"], rows, "first clauses", none=True)
    check_positions(arrays["next"], rows, "next clauses", none=True)
    check_positions(arrays["shape"], shapes, "shapes", none=True)


@kernel
def _as_long(old: NDArray[np.int64], rows: NDArray[np.int64], new: NDArray[np.int64]) -> bool:
    """Tell whether each of the given ragged *rows* has as many values as the new row in its place."""
    same = True
    for i in range(rows.size):
        prefetch(old, rows[i])
    for i in range(rows.size):
        same &= old[rows[i] + 1] - old[rows[i]] == new[i + 1] - new[i]
    return same


@kernel
def _compare(
    old: NDArray[np.int64],
    rows: NDArray[np.int64],
    new: NDArray[np.int64],
    values: NDArray[Any],
    stored: NDArray[Any],
    changed: NDArray[np.bool_],
) -> None:
    """Mark the new rows whose values are not those of the ragged row that they replace, which has as many."""
    for i in range(rows.size):
        ahead = rows[min(i + _AHEAD, rows.size - 1)]
        prefetch(stored, old[ahead])
        prefetch(stored, old[ahead + 1] - 1)
        start = old[rows[i]] - new[i]
        for k in range(new[i], new[i + 1]):
            if stored[start + k] != values[k]:
                changed[i] = True
                break


@kernel
def _scatter(
    old: NDArray[np.int64],
    rows: NDArray[np.int64],
    new: NDArray[np.int64],
    values: NDArray[Any],
    out: NDArray[Any],
    changed: NDArray[np.bool_],
) -> None:
    """Write the values of each changed row over those of the ragged row that it replaces; they were just compared."""
    for i in range(rows.size):
        if changed[i]:
            start = old[rows[i]] - new[i]
            for k in range(new[i], new[i + 1]):
                out[start + k] = values[k]


@kernel
def _scatter_boxes(rows: NDArray[np.int64], boxes: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write boxes over those of the rows that they replace."""
    for i in range(rows.size):
        prefetch(out, rows[i])
    for i in range(rows.size):
        for side in range(4):
            out[rows[i], side] = boxes[i, side]
