"""Rows that are given out and given back: what the clauses of an index and the probes of a message store share.

A *part* is one box with ragged columns beside it: a clause of a subscription, or a probe of a message. Its *owner* is
the subscription or the message. Rows of both kinds are numbered from 0. A row that is given back is given out again, so
memory is bounded by the largest number of rows in use at one time, and nothing is ever renumbered.

Columns without content take no memory: the runs of a ragged column while no part has a value in it, and the chains from
owners to parts while each owner has one part, with the same number.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.coding import CodedColumns
from nearcast.columns.growable import GrowableArray
from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.columns.ragged import check_positions, runs_take
from nearcast.columns.shapes import NO_SHAPES, Shapes, arrays_of_polygons, polygons_from_arrays
from nearcast.errors import ColumnError
from nearcast.kernels.runs import (
    END,
    FREE,
    GIVEN,
    allot_runs,
    compare_runs,
    copy_runs,
    empty_room,
    release_runs,
)

__all__ = ["MAX_ROWS", "Rows"]

MAX_ROWS = 2**31 - 1  # rows, and positions of values, are int32
_NONE = -1
_NO_ROWS = np.empty(0, np.int32)


class Rows(CodedColumns):
    """A growing set of parts with their owners.

    A subclass names its ragged columns: the runs of each, and the columns of values that they refer to. The first of
    these holds 32-bit integers, and free runs are chained through it.
    """

    ragged: ClassVar[dict[str, tuple[str, ...]]]
    sparse: ClassVar[tuple[str, ...]] = ()  # runs that stay empty while no part has a value
    part_columns: ClassVar[tuple[str, ...]] = ("boxes",)  # one entry for each part, beside the runs
    owner_columns: ClassVar[tuple[str, ...]] = ()  # one entry for each owner
    nouns: ClassVar[tuple[str, str]]  # the plural nouns for parts and owners, in messages

    _columns: dict[str, GrowableArray]
    _living: int
    _same: bool  # each owner has one part, with the same number
    _single: bool  # no owner has a second part
    shapes: Shapes

    # --- Contents --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return how many owners are present."""
        return self.size - len(self._columns["free"].values)

    @property
    def rows(self) -> int:
        """The number of part rows, free ones included."""
        return len(self.owners)

    @property
    def size(self) -> int:
        """The number of owner rows, free ones included: the most owners that were ever present at one time."""
        return len(self.present)

    @property
    def living(self) -> int:
        """The number of living parts."""
        return self._living

    @property
    def owners(self) -> NDArray[np.int32]:
        """The owner row of each part row."""
        return self._columns["owners"].values

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which part rows are alive."""
        return self._columns["alive"].values

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which owner rows are present."""
        return self._columns["present"].values

    @property
    def one_part_each(self) -> bool:
        """Whether no owner has a second part, so that matches need no deduplication."""
        return self._single

    @property
    def parts_are_owners(self) -> bool:
        """Whether each part row has the number of its owner row, so that matches need no translation."""
        return self._same

    @property
    def chains(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The first part row of each owner row, and the next part row after each part row; -1 for none.

        Both are empty while :attr:`parts_are_owners`.
        """
        return self._columns["first"].values, self._columns["next"].values

    @property
    def nbytes(self) -> int:
        """Memory of the rows, without ids and words."""
        return sum(column.nbytes for column in self._columns.values()) + self.shapes.nbytes

    def parts(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return the living part rows of the given owner rows, owner by owner."""
        return self._parts_of(rows)[0]

    def _parts_of(self, rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the living part rows of owner rows, owner by owner, and where the owner of each stands in *rows*."""
        if self._same:
            living = self.alive[rows]
            return rows[living].astype(np.int64), np.flatnonzero(living)
        first, after = self.chains
        at = first[rows]
        levels, positions = [at[at != _NONE]], [np.flatnonzero(at != _NONE)]
        while not self._single and len(levels[-1]):
            at = after[levels[-1]]
            positions.append(positions[-1][at != _NONE])
            levels.append(at[at != _NONE])
        parts, whose = np.concatenate(levels).astype(np.int64), np.concatenate(positions)
        if len(levels) > 1:
            order = np.argsort(whose, kind="stable")
            parts, whose = parts[order], whose[order]
        return parts, whose

    # --- Changes ---------------------------------------------------------------------------------------------------

    def own(self) -> None:
        """Copy borrowed arrays and make room to grow now, so that no later change has to."""
        for column in self._columns.values():
            column.reach(len(column.values))
        self._view()

    def unlink(self) -> None:
        """Give part rows numbers of their own from now on."""
        if self._same:
            living = np.flatnonzero(self.alive)
            self._same = False
            self._set("free_parts", np.flatnonzero(~self.alive).astype(np.int32))
            self._set("first", np.full(self.size, _NONE, np.int32))
            self._set("next", np.full(self.rows, _NONE, np.int32))
            self._columns["first"].values[living] = living

    def add_owners(self, count: int) -> NDArray[np.int32]:
        """Give out owner rows, free ones first; they have no parts yet."""
        columns, size = self._columns, self.size
        free = columns["free"]
        again = min(count, len(free.values))
        rows = np.empty(count, np.int32)
        if again:
            rows[:again] = free.shorten(again)[::-1]
        if again < count:
            rows[again:] = np.arange(size, size + count - again)
            for name in ("present", *self.owner_columns):
                columns[name].reach(size + count - again)
            if not self._same:
                columns["first"].fill(count - again, _NONE)
        columns["present"].values[_as_index(rows) if count else rows] = True
        return rows

    def _add_parts(
        self, columns: dict[str, NDArray[Any]], shapes: Shapes, owners: NDArray[np.int32], *, one_each: bool
    ) -> NDArray[np.int64]:
        """Add parts for owners that have none, the parts of an owner next to each other; return their rows.

        *one_each* says that each owner gets exactly one part.
        """
        own = self._columns
        if not one_each:
            self.unlink()
        rows = owners.astype(np.int64) if self._same else self._take_parts(len(owners))
        if not len(rows):
            return rows
        at = _as_index(rows)
        size = max(self.rows, int(rows[0]) + 1 if len(rows) == 1 else int(rows.max()) + 1)
        own["owners"].reach(size)[at] = owners
        own["alive"].reach(size)[at] = True
        for name in self.part_columns:
            own[name].reach(size)[at] = columns[name]
        self._put_runs(columns, rows, size)
        self._put_shapes(shapes, rows, size)
        self._living += len(rows)
        if not self._same:
            self._link(rows, owners, size)
        self._view()
        return rows

    def retire(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Mark all parts of the given owner rows as dead and return them, for :meth:`release` to give back later."""
        parts = self.parts(rows)
        self.alive[parts] = False
        if not self._same:
            self._columns["first"].values[rows] = _NONE
        self._living -= len(parts)
        return parts

    def release(self, parts: NDArray[np.int64]) -> None:
        """Give back the rows and the values of dead parts that nothing refers to any more."""
        self._release_values(parts)
        if not self._same:
            self._columns["free_parts"].extend(parts)

    def unreleased(self) -> NDArray[np.int64]:
        """Return the dead part rows that were not given back; they must be numbered independently of owner rows."""
        dead = ~self.alive
        dead[self._columns["free_parts"].values] = False
        return np.flatnonzero(dead)

    def forget(self, rows: NDArray[Any]) -> None:
        """Give back owner rows whose parts are retired."""
        self.present[rows] = False
        self._columns["free"].extend(rows)

    def changed(self, parts: NDArray[np.int64], columns: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Tell which parts differ in their ragged columns from the rows of *columns* that are to replace them."""
        changed = np.zeros(len(parts), np.bool_)
        for name, values in self.ragged.items():
            runs = self._columns[name].values
            if len(runs):
                for value in values:
                    compare_runs(
                        columns[name], columns[value], runs, self._columns[value].values, parts, changed
                    )
            elif len(columns[values[0]]):
                changed |= columns[name][:, 0] != columns[name][:, 1]
        return changed

    def overwrite(
        self,
        parts: NDArray[np.int64],
        columns: dict[str, NDArray[Any]],
        shapes: Shapes,
        changed: NDArray[np.bool_],
    ) -> None:
        """Overwrite each part with a row of *columns*; its ragged columns only if they have *changed*."""
        own = self._columns
        for name in self.part_columns:
            own[name].own()[parts] = columns[name]
        self._release_shapes(parts)
        if changed.any():
            picks = np.flatnonzero(changed)
            given = columns | {name: columns[name][picks] for name in self.ragged}
            self._release_runs(parts[picks])
            self._put_runs(given, parts[picks], self.rows)
        self._put_shapes(shapes, parts, self.rows)
        self._view()

    # --- Saving and restoring --------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays from which the rows can be restored."""
        columns = {name: column.values for name, column in self._columns.items()}
        polygons = columns.pop("polygons")
        return columns | nested(polygons=arrays_of_polygons(polygons))

    def _restore(self, arrays: Arrays) -> None:
        """Take the rows from their arrays, without copying them; raise if the arrays do not fit together."""
        self._check_arrays(arrays)
        for name in self._columns.keys() - {"polygons"}:
            self._set(name, arrays[name])
        self._set("polygons", polygons_from_arrays(part_of(arrays, "polygons"), len(arrays["circles"])))
        self._living = int(np.count_nonzero(self.alive))
        self._same = len(arrays["first"]) < self.size or not self.size
        self._single = bool((arrays["next"] == _NONE).all())
        self._view()

    def _check_arrays(self, arrays: Arrays) -> None:
        """Raise unless the arrays fit together: runs lie within their values, and all rows and codes exist."""
        rows, size, shapes = len(arrays["owners"]), len(arrays["present"]), len(arrays["circles"])
        lengths = {name: {rows} for name in (*self.part_columns, "alive")}
        lengths |= {name: {size} for name in self.owner_columns}
        lengths |= {"next": {0, rows}, "first": {0, size}, "shape": {0, rows}}
        parts, owners = self.nouns
        for name, allowed in lengths.items():
            if len(arrays[name]) not in allowed:
                raise ColumnError(f"{len(arrays[name]):,} {name} for {rows:,} {parts} of {size:,} {owners}")
        living = np.flatnonzero(arrays["alive"])
        words, attributes = self.coding.sizes
        for name, values in self.ragged.items():
            runs, room = arrays[name], arrays[_room_name(name)]
            if len(runs) != rows and (len(runs) or name not in self.sparse):
                raise ColumnError(f"{len(runs):,} {name} for {rows:,} {parts}")
            for value in values:
                if len(arrays[value]) != room[END]:
                    raise ColumnError(f"{len(arrays[value]):,} {value}, but {room[END]:,} are given out")
            if len(runs):
                check_positions(runs.ravel(), int(room[END]) + 1, name)
                if (runs[:, 0] > runs[:, 1]).any():
                    raise ColumnError(f"{name} end before they begin")
            check_positions(room[END + 1 : GIVEN], int(room[END]), f"free {name}", none=True)
            codes = arrays[values[0]]
            if room[FREE]:  # free values are links
                codes = runs_take(runs, codes, living)[1]
            check_positions(codes, attributes if "attributes" in values[0] else words, values[0])
        check_positions(arrays["owners"], size, owners)
        check_positions(arrays["first"], rows, f"first {parts}", none=True)
        check_positions(arrays["next"], rows, f"next {parts}", none=True)
        check_positions(arrays["shape"], shapes, "shapes", none=True)
        check_positions(arrays["free"], size, f"free {owners}")
        check_positions(arrays["free_parts"], rows, f"free {parts}")
        check_positions(arrays["free_shapes"], shapes, "free shapes")

    def check(self) -> list[str]:
        """Return descriptions of the damage found."""
        parts, owners = self.nouns
        alive, present = np.flatnonzero(self.alive), np.flatnonzero(self.present)
        reached, whose = self._parts_of(present)
        found = []
        if not np.array_equal(np.sort(reached), alive) or len(alive) != self._living:
            found.append(f"{len(alive)} {parts} are alive, but {owners} reach {len(reached)}")
        elif not np.array_equal(self.owners[reached], present[whose]):
            found.append(f"one of the {parts} has another owner than the one that reaches it")
        if not np.array_equal(np.sort(self._columns["free"].values), np.flatnonzero(~self.present)):
            found.append(f"the free {owners} are not those that are absent")
        free = self._columns["free_parts"].values
        if self.alive[free].any() or len(np.unique(free)) < len(free):
            found.append(f"one of the {parts} is free although it is alive, or free twice")
        for name in self.ragged:
            runs = self._columns[name].values[alive] if len(self._columns[name].values) else np.empty((0, 2))
            runs = runs[runs[:, 0] < runs[:, 1]]
            runs = runs[np.argsort(runs[:, 0])]
            if (runs[1:, 0] < runs[:-1, 1]).any():
                found.append(f"{name} overlap")
        return found

    # --- Internals -------------------------------------------------------------------------------------------------

    @abstractmethod
    def _view(self) -> None:
        """Show kernels the columns as they are now, and set :attr:`shapes`."""

    def _begin(
        self, columns: dict[str, NDArray[Any]], owners: NDArray[np.int32], size: int, shapes: Shapes
    ) -> None:
        """Begin on the given columns of parts, without copying them, for *size* owners."""
        n = len(owners)
        self._columns = {name: GrowableArray(columns[name]) for name in self.part_columns}
        for name, values in self.ragged.items():
            end = len(columns[values[0]])
            unused = name in self.sparse and not end
            self._columns[name] = GrowableArray(columns[name][:0] if unused else columns[name])
            self._set(_room_name(name), empty_room(end))
            for value in values:
                self._columns[value] = GrowableArray(columns[value])
        self._columns["owners"] = GrowableArray(owners)
        self._set("alive", np.ones(n, np.bool_))
        self._set("present", np.ones(size, np.bool_))
        for name in ("first", "next", "free", "free_parts", "free_shapes"):
            self._set(name, _NO_ROWS)
        self._columns["shape"] = GrowableArray(shapes.index)
        self._columns["circles"] = GrowableArray(shapes.circles)
        self._columns["polygons"] = GrowableArray(shapes.polygons)
        self._living = n
        self._single = True
        self._same = n == size and bool(np.array_equal(owners, np.arange(n)))
        if not self._same:
            self._set("first", np.full(size, _NONE, np.int32))
            self._link(np.arange(n), owners, n)
        self._view()

    def _set(self, name: str, values: NDArray[Any]) -> None:
        self._columns[name] = GrowableArray(values, borrowed=False)

    def _take_parts(self, count: int) -> NDArray[np.int64]:
        """Give out part rows, free ones first."""
        free, rows = self._columns["free_parts"], np.empty(count, np.int64)
        again = min(count, len(free.values))
        rows[:again] = free.shorten(again)[::-1]
        rows[again:] = np.arange(self.rows, self.rows + count - again)
        return rows

    def _link(self, rows: NDArray[np.int64], owners: NDArray[np.int32], size: int) -> None:
        """Chain new part rows, first[owner] → next[part] → … → none; there are *size* part rows in all."""
        first, after = self._columns["first"].values, self._columns["next"]
        after.fill(size - len(after.values), _NONE)
        after.values[rows] = _NONE
        again = owners[1:] == owners[:-1]
        if again.any():
            self._single = False
            after.values[rows[:-1][again]] = rows[1:][again]
            begins = np.append(True, ~again)
            first[owners[begins]] = rows[begins]
        else:
            first[owners] = rows

    def _put_runs(self, columns: dict[str, NDArray[Any]], rows: NDArray[np.int64], size: int) -> None:
        """Write the ragged columns of part rows that have no runs; there are *size* part rows in all."""
        own = self._columns
        for name, values in self.ragged.items():
            runs = own[name]
            if name in self.sparse and not len(columns[values[0]]) and not len(runs.values):
                continue
            if len(runs.values) < size:
                runs.fill(size - len(runs.values), 0)
            room = own[_room_name(name)].values
            allot_runs(room, own[values[0]].values, runs.own(), rows, columns[name])
            for value in values:
                copy_runs(columns[name], columns[value], runs.values, rows, own[value].reach(int(room[END])))

    def _put_shapes(self, shapes: Shapes, rows: NDArray[np.int64], size: int) -> None:
        """Write the shapes of part rows that have none; there are *size* part rows in all."""
        own = self._columns
        shape = own["shape"]
        if not shapes:
            if len(shape.values):
                shape.reach(size)[rows] = _NONE
            return
        if len(shape.values) < size:
            shape.fill(size - len(shape.values), _NONE)
        free = own["free_shapes"]
        again = min(len(shapes), len(free.values))
        end = len(own["circles"].values)
        numbers = np.empty(len(shapes), np.int32)
        numbers[:again] = free.shorten(again)
        numbers[again:] = np.arange(end, end + len(shapes) - again)
        for name, given in (("circles", shapes.circles), ("polygons", shapes.polygons)):
            own[name].reach(end + len(shapes) - again)[numbers] = given
        shape.own()[rows] = np.where(shapes.index < 0, np.int32(_NONE), numbers[shapes.index])

    def _release_values(self, parts: NDArray[np.int64]) -> None:
        self._release_runs(parts)
        self._release_shapes(parts)

    def _release_runs(self, parts: NDArray[np.int64]) -> None:
        own = self._columns
        for name, values in self.ragged.items():
            if len(own[name].values):
                release_runs(own[_room_name(name)].values, own[values[0]].own(), own[name].own(), parts)

    def _release_shapes(self, parts: NDArray[np.int64]) -> None:
        """Give back the shapes of parts; the parts of an owner may share a shape, so all of them must be given."""
        shape = self._columns["shape"]
        if not len(shape.values):
            return
        numbers = shape.values[parts]
        numbers = np.unique(numbers[numbers != _NONE])
        if len(numbers):
            self._columns["polygons"].own()[numbers] = None
            self._columns["free_shapes"].extend(numbers)
            shape.own()[parts] = _NONE

    def _shapes(self) -> Shapes:
        """Return the current column of shapes."""
        columns = self._columns
        if not len(columns["shape"].values):
            return NO_SHAPES
        return Shapes(columns["shape"].values, columns["circles"].values, columns["polygons"].values)


def _as_index(rows: NDArray[Any]) -> Any:
    """Return rows as an index into columns: for consecutive rows a slice, which is many times as fast."""
    count = len(rows)
    first = int(rows[0])
    if count == 1 or (int(rows[-1]) - first == count - 1 and (rows[1:] > rows[:-1]).all()):
        return slice(first, first + count)
    return rows


@cache
def _room_name(name: str) -> str:
    """Return the name of the allocator of a ragged column, given the name of its runs."""
    return name.replace("_runs", "_room")
