"""Full subscriptions: place, words and tests in one index. The step that the paper leaves open.

A clause hangs on one of its words, the rarest when it came (or on none, if it has none): who covers a query has all of
its words among the query's, so a query asks the trees of its own words and the tree of those without words. Each tree
is a k-d tree in which containment is dominance (section IV.A): the four sides of the box, and pairs of dimensions for
the tests. There is a pair for each attribute, or, where these are many, attributes share one: a clause counts with the
widest of its tests that share a pair, a query with the narrowest. A bit for each word, forbidden word and attribute,
hashed, settles most of what is left; the rest is decided by :func:`~nearcast.covering.relation.clause_covers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.ragged import runs_take
from nearcast.covering.buckets import LARGEST
from nearcast.covering.forest import (
    DEEPEST,
    Forest,
    advance,
    empty_forest,
    forest_has_room,
    grown_forest,
    insert_point,
    remove_point,
)
from nearcast.covering.index import TreeIndex, array_bytes
from nearcast.covering.operations import (
    Operations,
    Rows,
    Scratch,
    enough_scratch,
    first_clause,
    next_clause,
    register,
)
from nearcast.covering.rectangles import attributes_of
from nearcast.covering.regions import regions_of
from nearcast.covering.relation import NO, UNDECIDED, YES, Regions, clause_covers, judge, relation
from nearcast.kernels import kernel
from nearcast.kernels.verify import NEGATED, Clauses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.columns.rows.clauses import ClauseStore

__all__ = ["ClauseForest"]

# Bits of a sign: words, forbidden words, attributes.
_WORD_BITS, _FORBIDDEN_BITS, _ATTRIBUTE_BITS = 48, 8, 8


class _Hung(NamedTuple):
    """The trees, and the clauses that decide, as kernels see them."""

    clauses: Clauses
    regions: Regions
    forest: Forest  # tree 0 for clauses without words, tree w + 1 for word w
    frequencies: NDArray[np.int32]  # of each word: the clauses that have it


class ClauseForest(TreeIndex):
    """A k-d tree for each word."""

    name = "forest"

    def load(self, store: ClauseStore) -> None:
        """Begin anew, with as many dimensions as the attributes need."""
        forest = empty_forest(4 + 2 * _slots(store, 0))
        self._arrays = _Hung(store.clauses, regions_of(store), forest, np.zeros(0, np.int32))
        self._see(store, 0)

    def follow(self, store: ClauseStore, begin: int) -> bool:
        """See the clause rows from *begin* on; more attributes mean more dimensions."""
        if self._arrays is None or 4 + 2 * _slots(store, begin) > self._arrays.forest.low.size:
            return False
        self._see(store, begin)
        return True

    def grow(self, points: int) -> None:
        """Make room."""
        forest = self._arrays.forest
        rows = len(self._arrays.clauses.boxes)
        self._arrays = self._arrays._replace(forest=grown_forest(forest, len(forest.roots), rows, points))

    def _see(self, store: ClauseStore, begin: int) -> None:
        old, clauses = self._arrays, store.clauses
        rows = np.arange(begin, store.rows)
        known = int(runs_take(clauses.keyword_runs, clauses.keywords, rows)[1].max(initial=-1)) + 1
        frequencies = old.frequencies
        if known > len(frequencies):
            frequencies = np.zeros(known + known // 2, np.int32)
            frequencies[: len(old.frequencies)] = old.frequencies
        self._arrays = _Hung(
            clauses,
            regions_of(store),
            grown_forest(old.forest, len(frequencies) + 1, store.rows, 1),
            frequencies,
        )

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the trees, and how frequent words are."""
        return super().at_rest() | {"frequencies": self._arrays.frequencies}

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the trees and the frequencies."""
        super().restore(store, arrays)
        self._arrays = self._arrays._replace(frequencies=arrays["frequencies"])

    @property
    def nbytes(self) -> int:
        """Memory."""
        return 0 if self._arrays is None else array_bytes(self._arrays[2:])

    def stats(self) -> dict[str, Any]:
        """Trees, and how they are."""
        return {"trees": int(np.count_nonzero(self._arrays.forest.roots >= 0)), **super().stats()}


def _slots(store: ClauseStore, begin: int) -> int:
    """Return how many pairs of dimensions the tests of the clause rows from *begin* on need."""
    attributes = int(attributes_of(store.clauses, begin).max(initial=-1)) + 1
    return next((slots for slots in config.COVERING_SLOTS if slots >= attributes), config.COVERING_SLOTS[-1])


@kernel
def _bit(code: int, bits: int, base: int) -> Any:
    hashed = (np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    return np.uint64(1) << (hashed % np.uint64(bits) + np.uint64(base))


@kernel
def _sign(clauses: Clauses, c: int) -> Any:
    """Return the bits of a clause; those of one that covers it are among them."""
    sign = np.uint64(0)
    for i in range(clauses.keyword_runs[c, 0], clauses.keyword_runs[c, 1]):
        sign |= _bit(clauses.keywords[i], _WORD_BITS, 0)
    if clauses.forbidden.size > 0:
        for i in range(clauses.forbidden_runs[c, 0], clauses.forbidden_runs[c, 1]):
            sign |= _bit(clauses.forbidden[i], _FORBIDDEN_BITS, _WORD_BITS)
    if clauses.test_attributes.size > 0:
        for i in range(clauses.test_runs[c, 0], clauses.test_runs[c, 1]):
            sign |= _bit(clauses.test_attributes[i], _ATTRIBUTE_BITS, _WORD_BITS + _FORBIDDEN_BITS)
    return sign


@kernel
def _point(clauses: Clauses, c: int, asks: bool, out: NDArray[np.float32]) -> None:
    """Write the point of a clause that is kept, or that *asks*: who covers it dominates it."""
    boxes = clauses.boxes
    out[0], out[1], out[2], out[3] = -boxes[c, 0], -boxes[c, 1], boxes[c, 2], boxes[c, 3]
    out[4:] = np.inf if asks else -np.inf
    if clauses.test_attributes.size > 0:
        for i in range(clauses.test_runs[c, 0], clauses.test_runs[c, 1]):
            if clauses.test_flags[i] & NEGATED:
                continue
            at = 4 + 2 * (clauses.test_attributes[i] % ((out.size - 4) // 2))
            low, high = np.float32(-clauses.test_lows[i]), np.float32(clauses.test_highs[i])
            if asks:
                out[at], out[at + 1] = min(out[at], low), min(out[at + 1], high)
            else:
                out[at], out[at + 1] = max(out[at], low), max(out[at + 1], high)
    if not asks:
        for d in range(4, out.size, 2):
            if out[d] == -np.inf and out[d + 1] == -np.inf:  # no test: everything is allowed
                out[d] = out[d + 1] = np.inf


@kernel
def _find(
    index: _Hung,
    rows: Rows,
    subject: int,
    k: int,
    out: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: Scratch,
    counters: NDArray[np.int64],
) -> Any:
    clauses, regions, forest, _ = index
    query, owners, roots = scratch.point, rows.owners, forest.roots
    stack, alive, hits = enough_scratch(scratch, forest.used[DEEPEST], forest.buckets.used[LARGEST])
    found, pending[0] = 0, 0
    mine = first_clause(rows, subject)
    if mine < 0:
        return 0
    _point(clauses, mine, True, query)
    missing = ~_sign(clauses, mine)
    runs, keywords = clauses.keyword_runs, clauses.keywords
    for at in range(runs[mine, 0] - 1, runs[mine, 1]):
        tree = 0 if at < runs[mine, 0] else keywords[at] + 1
        if roots[tree] < 0:
            continue
        stack[0] = roots[tree]
        depth = 1
        while depth > 0:
            depth, count = advance(forest, stack, depth, query, missing, alive, hits, counters)
            for i in range(count):
                other = owners[hits[i]]
                if other == subject or clause_covers(clauses, regions, hits[i], mine) == NO:
                    continue
                known = False
                for j in range(found):
                    known |= out[j] == other
                if known:
                    continue
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
def _add(index: _Hung, rows: Rows, subject: int, scratch: Scratch) -> None:
    clauses, _, forest, frequencies = index
    clause = first_clause(rows, subject)
    while clause >= 0:
        tree, rarest = 0, 0
        for i in range(clauses.keyword_runs[clause, 0], clauses.keyword_runs[clause, 1]):
            word = clauses.keywords[i]
            if tree == 0 or frequencies[word] < rarest:
                tree, rarest = word + 1, frequencies[word]
            frequencies[word] += 1
        _point(clauses, clause, False, scratch.point)
        insert_point(forest, tree, clause, _sign(clauses, clause), scratch.point, scratch.spare)
        clause = next_clause(rows, clause)


@kernel
def _take(index: _Hung, rows: Rows, subject: int, scratch: Scratch) -> None:
    clauses, _, forest, frequencies = index
    clause = first_clause(rows, subject)
    while clause >= 0:
        for i in range(clauses.keyword_runs[clause, 0], clauses.keyword_runs[clause, 1]):
            frequencies[clauses.keywords[i]] -= 1
        remove_point(forest, clause, scratch.spare)
        clause = next_clause(rows, clause)


@kernel
def _room(index: _Hung, count: int) -> Any:
    return forest_has_room(index.forest, count)


@kernel
def _covers(index: _Hung, rows: Rows, a: int, b: int) -> Any:
    return relation(index.clauses, index.regions, rows, a, b)


register(_Hung, Operations(_find, _add, _take, _room, _covers))
