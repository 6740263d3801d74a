"""Clauses that came after an index was laid out: a packed list beside it, until they are folded in.

A structure that lies in memory in one order takes in new clauses by writing all of it anew. So new clauses wait here
until they are a fixed share of all clauses, which costs an insert a constant time on the average.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.structures.packed_list import PackedList
from nearcast.matching.structures.packed_list.layout import LISTS, Lists
from nearcast.matching.structures.packed_list.search import Scratch, search_with

__all__ = ["NewcomerLists", "Newcomers", "match_newcomers"]

_PREFIX = "new_"

# What :func:`match_newcomers` takes.
NewcomerLists = tuple[int, Lists, NDArray[np.int32]]


class Newcomers(PackedList):
    """The clause rows of a store that came since it had *first* of them."""

    first = 0

    @classmethod
    def awaited(cls, store: ClauseStore) -> Newcomers:
        """Return the newcomers of the future: none yet."""
        newcomers = cls.over(store)
        newcomers.first = store.rows
        newcomers._homes = GrowableArray(np.empty((0, 2), np.int32))
        newcomers._build()
        return newcomers

    def _members(self) -> NDArray[np.int64]:
        return self.first + np.flatnonzero(self._homes.values[self.first :, 0] >= 0)

    @property
    def waiting(self) -> int:
        """How many there are."""
        return int(self._lists.heads[: int(self._lists.state[LISTS]), 1].sum())

    @property
    def lists(self) -> NewcomerLists:
        """What :func:`match_newcomers` takes."""
        return self.waiting, self._lists, self._word_lists.values

    def too_many(self, more: int) -> bool:
        """Tell whether with *more* of them it is time to fold them in."""
        living = self.store.rows - self.store.dead
        return self.waiting + more > max(config.FOLD_MIN, config.FOLD_SHARE * living)

    def add(self, rows: NDArray[np.int64]) -> None:
        """Take in new clause rows."""
        self._add(rows)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Take clause rows out."""
        self._drop(rows)

    def rows(self) -> NDArray[np.int64]:
        """Return the clause rows that are here, ascending."""
        return self._members()

    def damage(self) -> list[str]:
        """Return the damage found."""
        return self._check()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`taken` takes."""
        own = {"first": np.array([self.first]), **self._arrays()}
        return {_PREFIX + name: array for name, array in own.items()}

    @classmethod
    def taken(cls, store: ClauseStore, arrays: dict[str, NDArray[Any]]) -> Newcomers:
        """Restore on mapped arrays."""
        own = {
            name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)
        }
        newcomers = cls.over(store)
        newcomers.first = int(own["first"][0])
        newcomers._restore(own)
        return newcomers


@kernel
def match_newcomers(
    clauses: Clauses,
    newcomers: NewcomerLists,
    scratch: Scratch,
    probes: Probes,
    p: int,
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Write the newcomers that probe *p* satisfies; return the new end, or FULL without room."""
    waiting, lists, word_lists = newcomers
    if waiting == 0:
        return filled
    counts = np.empty(1, np.int64)
    done, last = search_with(clauses, lists, word_lists, scratch, probes, p, p + 1, counts, out, filled)
    return last if done > p else FULL
