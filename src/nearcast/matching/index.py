"""The index of subscriptions: rows, threads, shapes and directories around one structure."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.clause_rows import Placement, place
from nearcast.columns.ragged import box_rows
from nearcast.columns.regions import relocated
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.columns.shapes import NO_SHAPES
from nearcast.errors import ColumnError, counted, shown
from nearcast.geometry import Everywhere, Planar, Region, as_region
from nearcast.geometry.crs import require_wgs84
from nearcast.matching.holder import Holder
from nearcast.matching.refine import resolve
from nearcast.matching.searching import Step

__all__ = ["Index"]


class Index(Holder[ClauseStore]):
    """An exact index over subscriptions that can be changed; :func:`~nearcast.build_index` makes one.

    It gives the same answers as a scan on any input. The first subscription rows are those of the table that the index
    was built from. :meth:`insert` returns new rows, :meth:`remove` frees rows for later inserts, and :meth:`move` and
    :meth:`update` keep them; no row is ever renumbered. A call takes effect as a whole, or raises and changes nothing.
    Matching does not change the index, so threads may match at the same time; while it changes, nothing else may use
    it.
    """

    kind: ClassVar[str] = "index"
    _what: ClassVar[str] = "subscription"
    _rows_class: ClassVar[type[ClauseStore]] = ClauseStore

    @property
    def store(self) -> ClauseStore:
        """The clause rows, and the subscription rows that they belong to."""
        return self._rows

    @property
    def table(self) -> SubscriptionTable:
        """The contents of the index, as a table of all subscription rows; removed ones have no clauses."""
        return self._rows.table

    # --- Questions -------------------------------------------------------------------------------------------------

    def match(self, batch: MessageBatch, threads: int = 1) -> Matches:
        """Return the subscription rows that each message of *batch* matches, without duplicates, in any order.

        With ``threads`` > 1 the batch is cut into chunks that threads match in parallel (kernels hold no GIL).
        """
        self.check_question(batch)
        search, arrays, _ = self._view
        return self.match_by(partial(search, arrays, batch.probes), batch, threads)

    def match_by(self, step: Step, batch: MessageBatch, threads: int = 1) -> Matches:
        """Return what :meth:`match` does; the clause rows that probes match are found by *step*."""
        return resolve(self._rows, batch, self._searches.run(step, len(batch.owners), threads))

    def check_question(self, batch: MessageBatch) -> None:
        """Raise if *batch* cannot be matched here."""
        if not isinstance(batch, MessageBatch):
            raise ColumnError(
                f"match takes a MessageBatch, not {shown(batch)}; "
                "make one with MessageBatch.from_messages, from_arrow or from_arrays"
            )
        store = self._rows
        if batch.coding is not store.coding and not batch.coding.fits(store.coding):
            raise ColumnError(
                "the messages are coded by another vocabulary than this index; "
                "make the batch with like=index, or, for bare codes, both sides from arrays"
            )
        if (batch.shapes or store.shapes) and isinstance(batch.space, Planar) != isinstance(
            store.space, Planar
        ):
            raise ColumnError(
                f"the messages live in {batch.space!r}, the subscriptions in {store.space!r}; "
                "build both for the same space"
            )

    def stats(self) -> dict[str, Any]:
        """Return figures: how much is stored, how, and in how many bytes."""
        store = self._rows
        return {
            "index": self.name,
            "subscriptions": len(store),
            "clauses": store.living,
            "free_clauses": store.rows - store.living,
        } | self._figures()

    def check(self) -> list[str]:
        """Look for damage in the index; return descriptions of it, an empty list if there is none."""
        return self._rows.check() + self.structure.check()

    # --- Changes ---------------------------------------------------------------------------------------------------

    def insert(self, table: SubscriptionTable) -> NDArray[np.int32]:
        """Add the subscriptions of *table*; return their rows.

        A table with words of its own is translated to this index's vocabulary, which grows.
        """
        return self.insert_coded(self._rows.check_insert(table))

    def insert_coded(self, table: SubscriptionTable) -> NDArray[np.int32]:
        """Add subscriptions that ``store.check_insert`` has returned; return their rows."""
        rows, clause_rows = self._rows.insert(table)
        self._add(clause_rows)
        self._settle(len(clause_rows))
        return rows

    def expect(self, words: int) -> None:
        """Make room for words whose codes are below *words*, before anybody asks for them."""
        self.structure.expect(words)
        if self._succession is not None:
            self._succession.structure.expect(words)

    def remove(self, rows: Any) -> None:
        """Remove subscriptions by row; a row that is absent, or given twice, is an error."""
        picks = self.picks(rows)
        clause_rows = self._rows.retire(picks)
        self._drop(clause_rows)
        self._settle(len(clause_rows))
        self._release(clause_rows)
        self._rows.forget(picks)

    def move(self, rows: Any, regions: Any) -> None:
        """Give subscriptions other regions: one row and its region, or several rows and as many regions.

        A region is anything that ``as_region`` reads, such as the four numbers of a box.
        """
        one = isinstance(rows, int | np.integer)
        picks = self.picks([rows] if one else rows)
        placed = self.placement([regions] if one else regions, len(picks))
        self.replace(picks, relocated(self.subscriptions(picks), placed))

    def placement(self, regions: Any, count: int) -> Placement:
        """Return *count* regions as columns: anything that ``as_region`` reads, or an array of boxes."""
        if isinstance(regions, Placement):
            placed = regions
        # Where the caller uses bare codes, four numbers are taken as they are, as in from_arrays.
        elif self._rows.vocabulary is None and (
            (isinstance(regions, np.ndarray) and regions.ndim == 2)
            or all(isinstance(region, np.ndarray | list | tuple) for region in regions)
        ):
            boxes = box_rows(regions, "region")
            placed = Placement(np.arange(len(boxes) + 1), boxes, NO_SHAPES)
        else:
            if not isinstance(self._rows.space, Planar):
                require_wgs84(getattr(regions, "crs", None))  # of a GeoSeries
            given = (region.tolist() if isinstance(region, np.ndarray) else region for region in regions)
            placed = place([self._region(region) for region in given])
        if len(placed.offsets) - 1 != count:
            regions = counted(len(placed.offsets) - 1, "region")
            raise ColumnError(f"{regions} for {counted(count, 'subscription')}; give one for each")
        return placed

    def _region(self, given: Any) -> Region:
        """Return one region in the space of the subscriptions."""
        space = self._rows.space
        region = as_region(given, space)
        if not isinstance(region, Everywhere) and region.space != space:
            raise ColumnError(
                f"the subscriptions live in {space!r}, this region in {region.space!r}; give all in one space"
            )
        return region

    def subscriptions(self, rows: NDArray[Any]) -> SubscriptionTable:
        """Return the table of the given subscription rows, without their ids."""
        return self._rows.subscriptions(rows)

    def update(self, rows: Any, table: SubscriptionTable) -> None:
        """Replace the subscriptions in *rows* by those of *table*, in the same order; they keep their rows and ids.

        The ids of the table are ignored. If only numbers change (another region, other ends of intervals), a structure
        may change them in place, which costs less than removing and inserting.
        """
        picks = self.picks(rows)
        if not isinstance(table, SubscriptionTable) or len(table) != len(picks):
            raise ColumnError(
                f"update takes a SubscriptionTable with one subscription for each of the {len(picks)} rows, "
                f"not {shown(table)}"
            )
        self.replace(picks, self._rows.coded(table))

    def replace(self, picks: NDArray[np.int64], table: SubscriptionTable) -> None:
        """Replace the clauses of subscription rows by those of *table*: in place if each has as many as before.

        The rows are known to be present, and the table is in the coding of this index.
        """
        store = self._rows
        clause_rows = store.parts(picks)
        in_place = np.array_equal(store.owners[clause_rows], picks[table.owners])
        if self.structure.lingers or not in_place:
            self.reinsert(picks, table)
        else:
            self._overwrite(clause_rows, table)
            self._settle(len(clause_rows))

    def reinsert(self, picks: NDArray[np.int64], table: SubscriptionTable) -> None:
        """Replace subscriptions as :meth:`replace` does, but take their clauses out and put new ones in."""
        store = self._rows
        clause_rows = store.retire(picks)
        self._drop(clause_rows)
        self._release(clause_rows)
        self._add(store.append(table, picks))
        self._settle(len(clause_rows))

    def _overwrite(self, rows: NDArray[np.int64], table: SubscriptionTable) -> None:
        """Overwrite each clause row with one clause of *table*."""
        store, structure = self._rows, self.structure
        columns = table.clauses._asdict()
        changed = store.changed(rows, columns)
        anew = rows  # the rows that leave the structure and come back
        if structure.rewrites or structure.shifts:
            anew = rows[changed & (not structure.rewrites)]
        store.alive[anew] = False
        structure.drop(anew)
        if self._succession is not None:
            self._succession.drop(rows)
        store.overwrite(rows, columns, table.shapes, changed)
        store.alive[anew] = True
        if self._succession is not None:
            self._succession.add(rows)
        if len(anew):
            structure.add(anew)
        if structure.rewrites:
            structure.rewrite(rows, changed)
        elif structure.shifts:
            structure.shift(rows[~changed])

    def picks(self, rows: Any) -> NDArray[np.int64]:
        """Return subscription rows as an array; one that is absent, or given twice, is an error."""
        return self._picks(rows, "was removed from this index")
