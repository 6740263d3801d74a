"""The interface of every index, and what they share: rows, threads, changes, directories."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.clause_rows import ClauseLists, Placed, cross, place
from nearcast.columns.clauses import distinct_conjunctions, take_clauses
from nearcast.columns.coding import Coding
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import box_rows, row_numbers
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.columns.shapes import NO_SHAPES
from nearcast.errors import ColumnError, IndexFileError, UnknownError, shown
from nearcast.geometry import Planar, as_region
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.refine import resolve
from nearcast.matching.searching import Searches
from nearcast.storage.directory import Arrays, restored_store, write

__all__ = ["Matcher", "Progress"]

_Self = TypeVar("_Self", bound="Matcher")
Progress = Callable[[str, float], None]  # called with what is being done, and the share done, from 0 to 1


class Matcher(ABC):
    """An exact, changeable index over subscriptions.

    The answer equals the scan's on any input. Subscription rows are positions in the table that the index was
    built from; :meth:`insert` gives new ones, :meth:`remove` never renumbers, :meth:`move` keeps the row. A call
    applies whole, or raises and changes nothing. Matching does not change the index, so threads may match at the
    same time; a change needs the index alone.

    A subclass supplies :meth:`_build`, :meth:`_add`, :meth:`_drop`, :meth:`_search`, :meth:`_arrays` and
    :meth:`_restore`, all in terms of clause rows of :attr:`store`.
    """

    name: ClassVar[str]
    parameters: ClassVar[
        tuple[str, ...]
    ] = ()  # keyword arguments that the index takes beside messages and progress
    _rewrites = False  # whether there is a _rewrite
    _room: ClassVar[int] = 4 * config.MATCH_ROOM  # answers that a search starts with room for
    part: tuple[GrowableArray, bool] | None = None  # holds only the clause rows that are marked so; None: all
    _build_seconds = 0.0
    _compactions = 0
    _sample: MessageBatch | None = None  # messages to learn from, while the index is first built
    _progress: Progress | None = None

    def __init__(
        self,
        table: SubscriptionTable,
        *,
        messages: MessageBatch | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Build over *table*; *messages* is a sample that cost models may learn from, *progress* is told the steps."""
        started = time.perf_counter()
        self.store, self._searches = ClauseStore(table), Searches(self._room)
        self._sample, self._progress = messages, progress
        self._build()
        self._sample, self._progress = None, None
        self._build_seconds = time.perf_counter() - started

    @classmethod
    def over(cls: type[_Self], store: ClauseStore) -> _Self:
        """Return an index with default parameters over the clause rows of another one, not yet built or restored."""
        index = cls.__new__(cls)
        index.store, index._searches = store, Searches(cls._room)
        return index

    def __len__(self) -> int:
        """How many subscriptions are present."""
        return len(self.store)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self):,} subscription{'s' * (len(self) != 1)}>"

    @property
    def table(self) -> SubscriptionTable:
        """What the index holds, as a table of all subscription rows; removed ones are without clauses."""
        return self.store.table

    @property
    def coding(self) -> Coding:
        """What the words and attributes here are coded by: ``like=index`` makes messages for it."""
        return self.store.coding

    # --- Questions -------------------------------------------------------------------------------------------------

    def match(self, batch: MessageBatch, threads: int = 1) -> Matches:
        """Return the subscription rows that each message of *batch* matches, without duplicates, in no promised order.

        With ``threads`` > 1 the batch is cut into chunks that threads match side by side (kernels hold no GIL).
        """
        if not isinstance(batch, MessageBatch):
            raise ColumnError(
                f"match takes a MessageBatch, not {shown(batch)}; "
                "make one with MessageBatch.from_messages, from_arrow or from_arrays"
            )
        if not batch.coding.fits(self.store.coding):
            raise ColumnError(
                "the messages are coded by another vocabulary than this index; "
                "make the batch with like=index, or, for bare codes, both sides from arrays"
            )
        if isinstance(batch.space, Planar) != isinstance(self.store.space, Planar) and (
            batch.shapes or self.store.shapes
        ):
            raise ColumnError(
                f"the messages live in {batch.space!r}, the subscriptions in {self.store.space!r}"
            )
        probes = batch.probes

        def step(
            start: int, stop: int, counts: NDArray[np.int64], out: NDArray[np.int32], filled: int
        ) -> tuple[int, int]:
            return self._search(probes, start, stop, counts, out, filled)

        return resolve(self.store, batch, self._searches.run(step, len(batch.owners), threads))

    def stats(self) -> dict[str, Any]:
        """Return plain figures: what is stored, how, and in how many bytes."""
        store = self.store
        own = sum(array.nbytes for array in self._arrays().values())
        total = store.nbytes + own
        return {
            "index": self.name,
            "subscriptions": len(store),
            "clauses": store.rows - store.dead,
            "dead_clauses": store.dead,
            "shapes": len(store.shapes),
            "bytes": total,
            "bytes_of_structure": own,
            "bytes_per_subscription": round(total / max(len(store), 1), 1),
            "build_seconds": round(self._build_seconds, 3),
            "compactions": self._compactions,
        }

    def check(self) -> list[str]:
        """Look for damage in the structure; return what was found, in words (nothing: an empty list)."""
        store = self.store
        found = []
        alive = np.flatnonzero(store.alive)
        reached = np.sort(store.clause_rows(np.flatnonzero(store.present)))
        if not np.array_equal(reached, alive):
            found.append(f"{len(alive)} clause rows are alive, but subscriptions reach {len(reached)}")
        if len(alive) and not store.present[store.owners[alive]].all():
            found.append("a clause row is alive although its subscription is gone")
        return found + self._check()

    # --- Changes ---------------------------------------------------------------------------------------------------

    def insert(self, table: SubscriptionTable) -> NDArray[np.int32]:
        """Add the subscriptions of *table*; return their rows.

        A table with words of its own is translated to this index's vocabulary, which grows.
        """
        table = self.store.check_insert(table)
        rows = self.store.add_subscriptions(table)
        self._add(self.store.append(table, rows[table.owners]))
        return rows

    def remove(self, rows: Any) -> None:
        """Remove subscriptions by row; a row that is not there, or twice in the call, is an error."""
        picks = self._rows(rows)
        clause_rows = self.store.retire(picks)
        self.store.forget(picks)
        self._drop(clause_rows)
        self._compact_if_wasteful()

    def move(self, row: int, region: Any) -> None:
        """Give a subscription another region: anything that ``as_region`` reads, four numbers of a box among it."""
        pick = self._rows([row])
        old = self.store.clause_rows(pick)
        if not len(old):
            raise UnknownError(f"subscription row {row} has no clauses, so there is nothing to move")
        moved = self._moved(old, region)
        self._drop(self.store.retire(pick))
        self._add(self.store.append(moved, np.full(len(moved.owners), row, np.int32)))
        self._compact_if_wasteful()

    def update(self, rows: Any, table: SubscriptionTable) -> None:
        """Replace subscriptions by those of *table*, the first of *rows* by its first and so on; the rows stay.

        The ids of the table do not count. Where only numbers change (another region, other ends of intervals), an
        index may change them in place, which costs less than removing and inserting.
        """
        picks = self._rows(rows)
        if not isinstance(table, SubscriptionTable) or len(table) != len(picks):
            raise ColumnError(
                f"update takes a SubscriptionTable with one subscription for each of the {len(picks)} rows, "
                f"not {shown(table)}"
            )
        table = self.store.coded(table)
        if self._rewrites and (overwritten := self.store.overwrite(picks, table)) is not None:
            self._rewrite(*overwritten, table.clauses)
            return
        self._drop(self.store.retire(picks))
        self._add(self.store.append(table, picks[table.owners].astype(np.int32)))
        self._compact_if_wasteful()

    def _moved(self, old: NDArray[np.int64], region: Any) -> SubscriptionTable:
        """Return the clause rows that replace *old*: each different conjunction with each box of the new region."""
        store = self.store
        conjunctions = distinct_conjunctions(store.clauses, old)
        if store.vocabulary is None and isinstance(
            region, np.ndarray | list | tuple
        ):  # raw, as in from_arrays
            placed = Placed(np.array([0, 1]), box_rows([region], "region"), NO_SHAPES)
        else:
            if isinstance(region, np.ndarray):
                region = region.tolist()
            placed = place([as_region(region, store.space)])
        bare = take_clauses(store.clauses, conjunctions)._replace(boxes=np.empty((0, 4)))
        lists = ClauseLists(np.array([0, len(conjunctions)]), bare)
        clauses, owners, shapes = cross(lists, np.zeros(1, np.int64), placed)
        return SubscriptionTable(clauses, owners, 1, shapes, None, store.coding)

    def _rows(self, rows: Any) -> NDArray[np.int64]:
        """Check subscription rows."""
        picks = row_numbers(rows, self.store.size, "subscription")
        gone = picks[~self.store.present[picks]]
        if len(gone):
            raise UnknownError(f"subscription row {gone[0]} was removed from this index")
        ordered = np.sort(picks)  # takes a tenth of the time of np.unique
        if (ordered[1:] == ordered[:-1]).any():
            raise ColumnError("a subscription row is named twice in one call")
        return picks

    def _compact_if_wasteful(self) -> None:
        if self.store.wasteful():
            self.store.compact()
            self._build()
            self._compactions += 1

    # --- At rest ---------------------------------------------------------------------------------------------------

    def save(self, directory: str | Path, progress: Callable[[str], None] | None = None) -> Path:
        """Write the index to a new directory of flat arrays that any number of processes can map; return its path.

        The directory appears whole or not at all. An existing one is never overwritten.
        """
        return write(Path(directory), self.name, self.store, self._arrays(), progress)

    @classmethod
    def restored(cls: type[_Self], manifest: dict[str, Any], arrays: Arrays) -> _Self:
        """Restore an index on the arrays of its directory, without copying them."""
        started = time.perf_counter()
        index = cls.over(restored_store(manifest, arrays))
        try:
            index._restore(arrays.structure)
        except KeyError as error:
            raise IndexFileError(
                f"{arrays.directory} lacks the array {error}; save the index again"
            ) from None
        index._build_seconds = time.perf_counter() - started
        return index

    # --- What a subclass supplies ----------------------------------------------------------------------------------

    @abstractmethod
    def _build(self) -> None:
        """Build the structure over all clause rows of the store (all are alive)."""

    @abstractmethod
    def _add(self, clause_rows: NDArray[np.int64]) -> None:
        """Take new clause rows into the structure."""

    @abstractmethod
    def _drop(self, clause_rows: NDArray[np.int64]) -> None:
        """Take clause rows out of the structure; the store still holds their columns."""

    def _rewrite(self, clause_rows: NDArray[np.int64], changed: NDArray[np.bool_], clauses: Clauses) -> None:
        """Bring the structure up to date after clause rows were overwritten by *clauses*.

        Those that have not *changed* have another box at most.
        """
        raise NotImplementedError

    @abstractmethod
    def _search(
        self,
        probes: Probes,
        start: int,
        stop: int,
        counts: NDArray[np.int64],
        out: NDArray[np.int32],
        filled: int,
    ) -> tuple[int, int]:
        """Match the probes *start* to *stop*: write clause rows to *out* from *filled* on, and how many to *counts*.

        Returns (next probe, filled). When *out* is full, the search ends before the probe that did not fit.
        """

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays of the structure."""

    @abstractmethod
    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the structure from its arrays."""

    def _check(self) -> list[str]:
        """Return the damage found in the structure."""
        return []

    def _members(self) -> NDArray[np.int64]:
        """Return the living clause rows that this structure holds."""
        alive = self.store.alive
        return np.flatnonzero(alive if self.part is None else alive & (self.part[0].values == self.part[1]))

    def _tell(self, step: str, share: float) -> None:
        """Tell who builds the index what is being done, and the share of it that is over (0 to 1)."""
        if self._progress is not None:
            self._progress(step, share)
