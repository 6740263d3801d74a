"""The naive index of full subscriptions: it compares each of them. The reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.covering.g_k import kernels_for
from nearcast.covering.growing import GrowingArrays
from nearcast.covering.index import CoveringIndex
from nearcast.covering.relation import UNDECIDED, YES, covers_by_age, full_covers
from nearcast.covering.subscriptions import Scratch, Subscriptions
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.columns.rows.clauses import ClauseStore

__all__ = ["ClauseScan"]


class _Presence(NamedTuple):
    """Which subscriptions are in the index, as kernels see it."""

    present: NDArray[np.bool_]  # by subscription row


@kernel
def _find(
    index: _Presence,
    held: Subscriptions,
    asked: Subscriptions,
    subject: int,
    k: int,
    out: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: Scratch,
    counters: NDArray[np.int64],
) -> Any:
    found, pending[0] = 0, 0
    for other in range(index.present.size):
        if not index.present[other]:
            continue
        counters[1] += 1
        answer = covers_by_age(held, other, asked, subject)
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
def _add(index: _Presence, held: Subscriptions, subject: int, scratch: Scratch) -> None:
    index.present[subject] = True


@kernel
def _take(index: _Presence, held: Subscriptions, subject: int, scratch: Scratch) -> None:
    index.present[subject] = False


@kernel
def _has_room(index: _Presence, count: int) -> Any:
    return True


class ClauseScan(CoveringIndex):
    """Every subscription, one after the other."""

    name = "clause-scan"
    kernels = kernels_for(_find, _add, _take, _has_room, full_covers)

    def load(self, store: ClauseStore) -> None:
        """Begin anew."""
        self._arrays = GrowingArrays(present=np.zeros(store.size, np.bool_))
        self.arrays = _Presence(self._arrays["present"])

    def follow(self, store: ClauseStore, clauses: NDArray[np.int64]) -> bool:
        """Make room for new subscription rows."""
        self.arrays = _Presence(self._arrays.reach("present", store.size, False))
        return True

    def grow(self, points: int) -> None:
        """Do nothing: there is always room."""

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return which subscriptions are there."""
        return {"present": self.arrays.present}

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take which subscriptions are there."""
        self._arrays = GrowingArrays(present=arrays["present"])
        self.arrays = _Presence(self._arrays["present"])
