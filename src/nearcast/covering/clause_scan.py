"""The naive index of full subscriptions: each of them is asked. The reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.covering.index import CoveringIndex
from nearcast.covering.operations import Operations, Rows, Scratch, register
from nearcast.covering.regions import regions_of
from nearcast.covering.relation import UNDECIDED, YES, Regions, judge, relation
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.columns.rows.clauses import ClauseStore

__all__ = ["ClauseScan"]


class _Listed(NamedTuple):
    clauses: Clauses
    regions: Regions
    present: NDArray[np.bool_]  # by subscription row


class ClauseScan(CoveringIndex):
    """Every subscription that is there, one after the other."""

    name = "clause-scan"

    def load(self, store: ClauseStore) -> None:
        """Begin anew."""
        self._arrays = _Listed(store.clauses, regions_of(store), np.zeros(store.size, np.bool_))

    def follow(self, store: ClauseStore, begin: int) -> bool:
        """See new rows."""
        if self._arrays is None:
            return False
        present = np.zeros(store.size, np.bool_)
        present[: len(self._arrays.present)] = self._arrays.present
        self._arrays = _Listed(store.clauses, regions_of(store), present)
        return True

    def grow(self, points: int) -> None:
        """There is always room."""

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return who is there."""
        return {"present": self._arrays.present}

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take who is there."""
        super().restore(store, arrays)
        self._arrays = self._arrays._replace(present=arrays["present"])

    @property
    def nbytes(self) -> int:
        """Memory."""
        return 0 if self._arrays is None else int(self._arrays.present.nbytes)


@kernel
def _find(
    index: _Listed,
    rows: Rows,
    subject: int,
    k: int,
    out: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: Scratch,
    counters: NDArray[np.int64],
) -> Any:
    clauses, regions, present = index
    found, pending[0] = 0, 0
    for other in range(present.size):
        if not present[other] or other == subject:
            continue
        counters[1] += 1
        answer = judge(clauses, regions, rows, other, subject)
        if answer == UNDECIDED:
            pending[0] += 1
            pending[pending[0]] = other
        elif answer == YES:
            out[found] = other
            found += 1
            if found == k:
                return found
    return found


@kernel
def _add(index: _Listed, rows: Rows, subject: int, scratch: Scratch) -> None:
    index.present[subject] = True


@kernel
def _take(index: _Listed, rows: Rows, subject: int, scratch: Scratch) -> None:
    index.present[subject] = False


@kernel
def _room(index: _Listed, count: int) -> Any:
    return True


@kernel
def _covers(index: _Listed, rows: Rows, a: int, b: int) -> Any:
    return relation(index.clauses, index.regions, rows, a, b)


register(_Listed, Operations(_find, _add, _take, _room, _covers))
