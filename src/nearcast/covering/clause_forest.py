"""Full subscriptions: place, words and tests in one index. The step that the paper leaves open.

Shen, Tirthapura and Aluru, "Indexing for Subscription Covering in Publish-Subscribe Systems" (2005), index rectangles
and name the rest as future work: "a full solution needs to find indexing schemes for each of these data types, and more
importantly, integrate them into a single index" (section I.A).

Here each word has a k-d tree of its own. A clause is filed under one of its words, the rarest at the time, and a clause
without words in a tree apart. The words of a clause that covers a query are all among the query's, so a query searches
the trees of its own words and the tree of clauses without words.

In each tree containment is dominance (section IV.A): the four sides of the box are four dimensions, and tests have
pairs of dimensions. There is a pair for each attribute, unless there are very many; then attributes share pairs, and a
clause counts with the widest of its tests in a pair, a query with the narrowest of its own. A sign of 64 bits, hashed
from words, forbidden words and attributes, rules out most of the points that are left, and
:func:`~nearcast.covering.relation.covers_by_age` decides on the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.covering.buckets import LARGEST
from nearcast.covering.forest import (
    Forest,
    ForestArrays,
    advance,
    deepest,
    forest_has_room,
    insert_point,
    remove_point,
)
from nearcast.covering.g_k import kernels_for
from nearcast.covering.growing import GrowingArrays
from nearcast.covering.index import TreeIndex
from nearcast.covering.rectangles import attributes_of
from nearcast.covering.relation import NO, UNDECIDED, YES, clause_covers, covers_by_age, full_covers
from nearcast.covering.subscriptions import (
    Scratch,
    Subscriptions,
    enough_scratch,
    first_clause,
    next_clause,
)
from nearcast.kernels import kernel
from nearcast.kernels.verify import NEGATED, Clauses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.columns.rows.clauses import ClauseStore

__all__ = ["ClauseForest"]

# Bits of a sign: words, forbidden words, attributes.
_WORD_BITS, _FORBIDDEN_BITS, _ATTRIBUTE_BITS = 48, 8, 8


class _WordTrees(NamedTuple):
    """A tree for each word, as kernels see them."""

    forest: Forest  # tree 0 for clauses without words, tree w + 1 for word w
    frequencies: NDArray[np.int32]  # by word: how many clauses have it


@kernel
def _bit(code: int, bits: int, base: int) -> Any:
    hashed = (np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    return np.uint64(1) << (hashed % np.uint64(bits) + np.uint64(base))


@kernel
def _sign(clauses: Clauses, c: int) -> Any:
    """Return the bits of a clause; they include those of every clause that covers it."""
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
    """Write the point of a clause that is stored, or of one that *asks*: points of its covers dominate it."""
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
    index: _WordTrees,
    held: Subscriptions,
    asked: Subscriptions,
    subject: int,
    k: int,
    out: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: Scratch,
    counters: NDArray[np.int64],
) -> Any:
    forest, query = index.forest, scratch.point
    stack, alive, hits = enough_scratch(scratch, deepest(forest), forest.buckets.used[LARGEST])
    found, pending[0] = 0, 0
    mine = first_clause(asked, subject)
    if mine < 0:
        return 0
    # Whatever covers the subject covers its first clause, so it is enough to search for that.
    clauses = asked.content.clauses
    _point(clauses, mine, True, query)
    missing = ~_sign(clauses, mine)
    begin, end = clauses.keyword_runs[mine, 0], clauses.keyword_runs[mine, 1]
    for at in range(begin - 1, end):
        tree = 0 if at < begin else clauses.keywords[at] + 1
        if tree >= forest.roots.size or forest.roots[tree] < 0:
            continue
        stack[0] = forest.roots[tree]
        depth = 1
        while depth > 0:
            depth, count = advance(forest, stack, depth, query, missing, alive, hits, counters)
            for i in range(count):
                if clause_covers(held.content, hits[i], asked.content, mine) == NO:
                    continue
                other, known = held.owners[hits[i]], False
                for j in range(found):
                    known |= out[j] == other
                if known:
                    continue
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
def _add(index: _WordTrees, held: Subscriptions, subject: int, scratch: Scratch) -> None:
    clauses, frequencies = held.content.clauses, index.frequencies
    clause = first_clause(held, subject)
    while clause >= 0:
        tree, rarest = 0, 0
        for i in range(clauses.keyword_runs[clause, 0], clauses.keyword_runs[clause, 1]):
            word = clauses.keywords[i]
            if tree == 0 or frequencies[word] < rarest:
                tree, rarest = word + 1, frequencies[word]
            frequencies[word] += 1
        _point(clauses, clause, False, scratch.point)
        insert_point(index.forest, tree, clause, _sign(clauses, clause), scratch.point, scratch.spare)
        clause = next_clause(held, clause)


@kernel
def _take(index: _WordTrees, held: Subscriptions, subject: int, scratch: Scratch) -> None:
    clauses, frequencies = held.content.clauses, index.frequencies
    clause = first_clause(held, subject)
    while clause >= 0:
        for i in range(clauses.keyword_runs[clause, 0], clauses.keyword_runs[clause, 1]):
            frequencies[clauses.keywords[i]] -= 1
        remove_point(index.forest, clause, scratch.spare)
        clause = next_clause(held, clause)


@kernel
def _has_room(index: _WordTrees, count: int) -> Any:
    return forest_has_room(index.forest, count)


class ClauseForest(TreeIndex):
    """A k-d tree for each word."""

    name = "forest"
    kernels = kernels_for(_find, _add, _take, _has_room, full_covers)

    def load(self, store: ClauseStore) -> None:
        """Begin anew, with as many dimensions as the attributes need."""
        living = np.flatnonzero(store.alive)
        self._trees = ForestArrays(4 + 2 * _pairs(store, living))
        self._frequencies = GrowingArrays(frequencies=np.zeros(0, np.int32))
        self._reach(store, living)

    def follow(self, store: ClauseStore, clauses: NDArray[np.int64]) -> bool:
        """Make room for new clause rows and words; more attributes mean more dimensions, and another layout."""
        if 4 + 2 * _pairs(store, clauses) > self._trees.view.low.size:
            return False
        self._reach(store, clauses)
        return True

    def _reach(self, store: ClauseStore, clauses: NDArray[np.int64]) -> None:
        known = int(store.keywords_of(clauses).max(initial=-1)) + 1
        self._frequencies.make_room("frequencies", known, 0)
        self._trees.make_room(known + 1, store.rows, 1)
        self._see()

    def _see(self) -> None:
        self.arrays = _WordTrees(self._trees.view, self._frequencies["frequencies"])

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the trees, and how frequent words are."""
        return super().at_rest() | {"frequencies": self._frequencies["frequencies"]}

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the trees and the frequencies."""
        super().restore(store, arrays)
        self._frequencies = GrowingArrays(frequencies=arrays["frequencies"])
        self._see()

    def stats(self) -> dict[str, Any]:
        """Return how many trees there are, and figures about them."""
        return {"trees": int(np.count_nonzero(self._trees.view.roots >= 0)), **super().stats()}


def _pairs(store: ClauseStore, clauses: NDArray[np.int64]) -> int:
    """Return how many pairs of dimensions the tests of the given clause rows need."""
    attributes = int(attributes_of(store.clauses, clauses).max(initial=-1)) + 1
    return next((pairs for pairs in config.COVERING_SLOTS if pairs >= attributes), config.COVERING_SLOTS[-1])
