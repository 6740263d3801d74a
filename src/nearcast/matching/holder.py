"""What an index of subscriptions and a store of messages share: a structure over rows, with searches and figures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.coding import Coding
from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.columns.ragged import row_numbers
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.columns.rows.messages import MessageRows
from nearcast.errors import ColumnError, UnknownError, shown
from nearcast.matching.searching import Searches
from nearcast.matching.structure import Progress, Structure, View, silent
from nearcast.matching.succession import Succession
from nearcast.registry import Registry
from nearcast.storage.directory import read, restoring, write
from nearcast.storage.places import Place

__all__ = ["Holder"]

_Rows = TypeVar("_Rows", ClauseStore, MessageRows)
_Self = TypeVar("_Self", bound="Holder[Any]")


class Holder(Generic[_Rows]):
    """Rows of subscriptions or messages, and a structure that finds them.

    It takes care of what a structure knows nothing about: which rows are present, threads, shapes, directories.
    Searches read the latest *view*, which is published by one assignment at the end of each change.
    """

    kind: ClassVar[str]  # the kind of its directories
    _what: ClassVar[str]  # the noun for one item: subscription or message
    _rows_class: ClassVar[type[Any]]
    _view: View

    def __init__(self, structure: Structure[_Rows, Any]) -> None:
        """Hold a structure that has been neither built nor restored yet."""
        self.structure: Structure[_Rows, Any] = structure
        self._rows: _Rows = structure.store
        self._searches = Searches(structure.room)
        self._build_seconds, self._compactions = 0.0, 0
        self._succession: Succession[_Rows] | None = None  # while another structure is being filled
        self._lingering: list[NDArray[np.int64]] = []  # rows that were dropped but may not be given out yet
        if structure.lingers:
            self._rows.unlink()

    @classmethod
    def built(
        cls: type[_Self],
        structure: Structure[_Rows, Any],
        sample: Any = None,
        progress: Progress | None = None,
    ) -> _Self:
        """Return a holder of *structure*, built over all rows; cost models learn from a *sample* of questions."""
        started = time.perf_counter()
        holder = cls(structure)
        structure.build(sample, progress or silent)
        holder._publish()
        holder._build_seconds = time.perf_counter() - started
        return holder

    @classmethod
    def restored(
        cls: type[_Self], structure: type[Structure[_Rows, Any]], coding: Coding, arrays: Arrays
    ) -> _Self:
        """Return the holder that the :meth:`arrays` came from, on the same arrays; its structure is a *structure*.

        *coding* says what the codes in the arrays mean.
        """
        started = time.perf_counter()
        holder = cls(structure(cls._rows_class.restored(coding, part_of(arrays, "rows"))))
        holder.structure.restore(part_of(arrays, "structure"))
        if structure.lingers:
            holder._lingering.append(holder._rows.unreleased())
        holder._publish()
        holder._build_seconds = time.perf_counter() - started
        return holder

    @classmethod
    def opened(
        cls: type[_Self], directory: str | Path | Place, structures: Registry[Any], *, verify: bool
    ) -> _Self:
        """Open a directory that :meth:`save` wrote; the structure in it is one of *structures*."""
        document, arrays = read(directory, cls.kind, verify=verify)
        with restoring(directory):
            name = document["structure"]
            if name not in structures:
                raise UnknownError(f"there is no structure {shown(name)}; there are {', '.join(structures)}")
            coding = Coding.restored(document["coding"], part_of(arrays, "coding"))
            return cls.restored(structures[name], coding, arrays)

    def save(self, directory: str | Path) -> Path | str:
        """Write everything to a new directory that any number of processes can map; return its path or URI.

        The directory appears whole or not at all. An existing one is never overwritten.
        """
        document = {"structure": self.name, "coding": self.coding.document()}
        return write(directory, self.kind, self.arrays() | nested(coding=self.coding.arrays()), document)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        return nested(rows=self._rows.arrays(), structure=self.structure.arrays())

    def __len__(self) -> int:
        """Return how many subscriptions or messages there are."""
        return len(self._rows)

    def __repr__(self) -> str:
        plural = "s" * (len(self) != 1)
        return f"<{type(self).__name__} {self.name} of {len(self):,} {self._what}{plural}>"

    @property
    def name(self) -> str:
        """The name of the structure."""
        return self.structure.name

    @property
    def coding(self) -> Coding:
        """The coding of words and attributes here; ``like=`` takes it, or this object, to build what fits it."""
        return self._rows.coding

    def _figures(self) -> dict[str, Any]:
        """Return the figures that an index and a store have in common, and those of the structure."""
        rows, own = self._rows, self.structure.nbytes
        total = rows.nbytes + own
        return {
            "shapes": len(rows.shapes),
            "bytes": total,
            "bytes_of_structure": own,
            f"bytes_per_{self._what}": round(total / max(len(rows), 1), 1),
            "build_seconds": round(self._build_seconds, 3),
            "compactions": self._compactions,
        } | self.structure.stats()

    def _picks(self, rows: Any, gone: str) -> NDArray[np.int64]:
        """Check rows given by a caller: each must be present, and given once; *gone* says why one may be absent."""
        picks = row_numbers(rows, self._rows.size, self._what)
        absent = picks[~self._rows.present[picks]]
        if len(absent):
            raise UnknownError(f"{self._what} row {absent[0]} {gone}")
        ordered = np.sort(picks)  # takes a tenth of the time of np.unique
        if (ordered[1:] == ordered[:-1]).any():
            twice = ordered[1:][ordered[1:] == ordered[:-1]][0]
            raise ColumnError(f"{self._what} row {twice} is named twice in one call; name it once")
        return picks

    def compact(self) -> None:
        """Lay everything out anew, which takes as long as building did.

        Changes of a few rows never wait for that: a structure that has been outgrown is replaced by another one step by
        step, or stays as it is until many rows come at once.
        """
        self._succession = None
        self.structure.build()
        self._compactions += 1
        self._publish()

    def _add(self, parts: NDArray[np.int64]) -> None:
        """Add parts to the structure, and see that it is laid out anew if it has been outgrown."""
        structure, living = self.structure, self._rows.living
        if self._succession is None and structure.outgrown(len(parts)):
            if config.BULK_SHARE * len(parts) >= living or living <= config.RENEWED_AT_ONCE:
                structure.renew(parts)
                return
            successor = structure.successor()
            if successor is not None:
                self._succession = Succession(successor)
        structure.add(parts)
        if self._succession is not None:
            self._succession.add(parts)

    def _drop(self, parts: NDArray[np.int64]) -> None:
        """Take parts out of the structure."""
        self.structure.drop(parts)
        if self._succession is not None:
            self._succession.drop(parts)

    def _settle(self, count: int) -> None:
        """End a change of *count* parts: continue a succession, if there is one, and publish."""
        if self._succession is not None and self._succession.step(
            config.SUCCESSION_ROWS + config.SUCCESSION_SHARE * count
        ):
            self.structure, self._succession = self._succession.structure, None
        self._publish()

    def _publish(self) -> None:
        """Make the changes visible to searches."""
        self._view = self.structure.view()

    def _release(self, parts: NDArray[np.int64]) -> None:
        """Give dropped rows back: at once, or, if they linger, when there are enough of them to build anew."""
        if not self.structure.lingers:
            self._rows.release(parts)
            return
        self._lingering.append(parts)
        if sum(map(len, self._lingering)) > max(config.COMPACT_MIN_DEAD, self._rows.living):
            self._rows.release(np.concatenate(self._lingering))
            self._lingering.clear()
            self.structure.build()
            self._compactions += 1
