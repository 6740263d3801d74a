"""Newcomers: clauses that came after a structure was laid out. They wait in a packed list until they are folded in.

Folding clauses into such a structure rewrites all of it. So new clauses wait until they are a fixed share of all
clauses, and an insert takes constant time on average.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.structure import Answers
from nearcast.matching.structures.packed_list import PackedList
from nearcast.matching.structures.packed_list.layout import POSTINGS, Lists
from nearcast.matching.structures.packed_list.search import Scratch, SearchArrays, search_with

__all__ = ["NewcomerLists", "Newcomers", "end_search"]


class NewcomerLists(NamedTuple):
    """The arrays that :func:`end_search` reads."""

    waiting: int
    lists: Lists
    word_lists: NDArray[np.int32]


class Newcomers(PackedList):
    """A packed list of the clause rows that were added to it, and of no others."""

    def __init__(self, store: ClauseStore) -> None:
        super().__init__(store)
        self._homes = GrowableArray(np.empty((0, 2), np.int32))

    def members(self) -> NDArray[np.int64]:
        """Return the clause rows that wait here, ascending."""
        return np.flatnonzero(self._homes.values[:, 0] >= 0)

    def among(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which clause rows wait here."""
        here = rows < len(self._homes.values)
        here[here] = self._homes.values[rows[here], 0] >= 0
        return here

    @property
    def waiting(self) -> int:
        """The number of clauses that wait here."""
        return int(self._lists.state[POSTINGS])

    @property
    def lists(self) -> NewcomerLists:
        """The arrays that :func:`end_search` reads."""
        return NewcomerLists(self.waiting, self._lists, self._word_lists.values)

    def too_many(self, more: int) -> bool:
        """Tell whether it is time to fold the newcomers in, with *more* of them."""
        living = self.store.living
        return self.waiting + more > max(config.FOLD_MIN, config.FOLD_SHARE * living)


@kernel
def end_search(
    clauses: Clauses,
    newcomers: NewcomerLists,
    scratch: Scratch,
    probes: Probes,
    p: int,
    answers: Answers,
    filled: int,
    last: int,
) -> Any:
    """End the search of probe *p*, which wrote candidates to ``answers.rows[filled:last]``, or found no room (FULL).

    Settle these, add the newcomers that the probe satisfies, and write down where its answers end. Return that, or FULL
    if there is no room.
    """
    if last == FULL:
        return FULL
    end = _settle(clauses, probes, p, answers.rows, filled, last)
    waiting, lists, word_lists = newcomers
    if waiting > 0:
        arrays = SearchArrays(clauses, lists, word_lists)
        return answers.ends[p] if search_with(arrays, scratch, probes, p, p + 1, answers, end) > p else FULL
    answers.ends[p] = end
    return end


@kernel
def _settle(clauses: Clauses, probes: Probes, p: int, out: NDArray[np.int32], first: int, last: int) -> Any:
    """Check the clauses among out[first:last] that were written as complements, in place; return the new end."""
    sure, doubtful = first, last  # the sure answers go to the front, the doubtful ones to the back
    while sure < doubtful:
        row = out[sure]
        if row >= 0:
            sure += 1
        else:
            doubtful -= 1
            out[sure] = out[doubtful]
            out[doubtful] = ~row
    return keep_satisfied(clauses, probes, p, out, sure, last) if sure < last else last
