"""Clauses that came after an index was laid out: a small ranked-key list beside it, until they are folded in.

A structure that lies in memory in one order is laid out anew as a whole. So new clauses wait here, each in the
list of its rarest keyword, those without keywords in one list; when they are a fixed share of all clauses, the
owner lays everything out again. That costs an insert a constant time on the average.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.postings import FULL, Pool, candidates
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.postings import ClauseHomes, PostingLists
from nearcast.matching.token_order import LAST
from nearcast.ragged import ragged_take

__all__ = ["Newcomers", "match_newcomers"]


class Newcomers:
    """The clause rows from *first* on."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._lists = PostingLists(1)
        self._homes = ClauseHomes(np.empty(0, np.int32), np.empty(0, np.int32))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def pool(self) -> Pool:
        """What :func:`match_newcomers` takes: list 0 holds clauses without keywords, r + 1 those of rank r."""
        return self._lists.pool

    def too_many(self, more: int) -> bool:
        """Tell whether with *more* of them it is time to lay everything out again."""
        return len(self) + more > max(config.FOLD_MIN, config.FOLD_SHARE * self.first)

    def add(self, clauses: Clauses, ranks: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Take in new clause rows, whose words all have ranks."""
        offsets, words = ragged_take(clauses.keyword_offsets, clauses.keywords, rows)
        rarest = np.zeros(len(rows), np.int64)
        worded = np.diff(offsets) > 0
        if worded.any():
            rarest[worded] = np.maximum.reduceat(ranks[words], offsets[:-1][worded]) + 1
        homes = self._homes.reach(int(rows.max(initial=-1)) + 1 - self.first)
        self._lists.add(homes, clauses.boxes[self.first :], rows - self.first, rarest)
        self._count += len(rows)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Take clause rows out."""
        self._lists.remove(self._homes.arrays, rows - self.first)
        self._count -= len(rows)

    def rows(self) -> NDArray[np.int64]:
        """Return the clause rows that are here, ascending."""
        return self.first + np.flatnonzero(self._homes.arrays.lists >= 0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        lists, positions = self._homes.arrays
        return {
            "new_first": np.array([self.first]),
            "new_home_lists": lists,
            "new_home_positions": positions,
            **self._lists.arrays("new_"),
        }

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]]) -> Newcomers:
        """Restore on mapped arrays."""
        newcomers = cls(int(arrays["new_first"][0]))
        newcomers._lists = PostingLists.restored(arrays, "new_")
        newcomers._homes = ClauseHomes(arrays["new_home_lists"], arrays["new_home_positions"])
        newcomers._count = newcomers._lists.postings
        return newcomers


@kernel
def match_newcomers(
    clauses: Clauses,
    pool: Pool,
    first: int,
    probes: Probes,
    p: int,
    tokens: NDArray[np.int32],
    count: int,
    query: NDArray[np.float32],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Write the clause rows from *first* on that probe *p* satisfies; return the new end, or FULL without room."""
    starts, sizes, _, boxes, rows = pool
    last = candidates(starts, sizes, boxes, rows, 0, query, out, filled)
    for i in range(count):
        if last == FULL:
            return FULL
        target = np.int64(LAST) - tokens[i] + 1
        if target < sizes.size and sizes[target] > 0:
            last = candidates(starts, sizes, boxes, rows, target, query, out, last)
    if last == FULL:
        return FULL
    for i in range(filled, last):
        out[i] += first
    return keep_satisfied(clauses, probes, p, out, filled, last)
