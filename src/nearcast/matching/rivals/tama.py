"""TAMA, exact: a matching table by attribute, then by level of discretisation, and counters.

Zhao and Wu (Towards approximate event processing in a large-scale content-based network, ICDCS 2011) cut the domain
of an attribute into 2^l cells on level l. An interval is composed of few cells, coarse ones inside and fine ones at its
ends; a value lies in one cell of each level, and at most one of these belongs to the interval. So a message reads
one list for each attribute and level, and counts.

The cells at the two ends of an interval extend beyond it, which makes the original approximate. Here the candidates
that counting finds are verified. With H attributes, N clauses and a share s of their predicates that
hold, a message costs H times the number of levels look-ups and s · N · predicates counts.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.rivals.counting import (
    NEVER,
    PLACES,
    CountingLists,
    ListPool,
    Predicates,
    predicates_of,
)
from nearcast.matching.rivals.domains import Domains, domains_of, share
from nearcast.matching.structure import Answers, ClauseStructure, Progress, View, silent

__all__ = ["TAMA"]

_LEVEL = config.TAMA_LEVEL
_FINEST = 1 << _LEVEL  # cells on the finest level; cell k of level l has the number 2^l + k, as in a heap
_CELLS = 2 * _FINEST  # numbers that an attribute takes; its number 0 is no cell
_UNCOUNTED = 0  # so the list of x's number 0 is free for clauses without a predicate that can be counted


class TAMA(ClauseStructure):
    """Counting over cells of several levels, with verification.

    Postings are appended in place, and what a clause needs is overwritten. A reader of an older view might count too
    little or too much, so nobody may read while the lists change.
    """

    name: ClassVar[str] = "tama"
    lingers: ClassVar[bool] = True

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Measure the domains, then the lists, then post all clauses."""
        clauses, rows = self.store.clauses, self.members()
        self._domains = domains_of(predicates_of(clauses, rows))
        self._laid_for = len(rows)
        lists = len(self._domains.lows) * _CELLS
        self._needs = GrowableArray(np.full(self.store.rows, NEVER, np.uint8), borrowed=False)
        sizes = np.zeros(lists, np.int64)
        chunks = np.split(rows, range(config.COUNTING_CHUNK, len(rows), config.COUNTING_CHUNK))
        for i, chunk in enumerate(chunks):
            tell("measuring lists", i / len(chunks))
            sizes += np.bincount(self._postings(chunk)[0], minlength=lists)
        self._lists = CountingLists(sizes, keyed=False)
        for i, chunk in enumerate(chunks):
            tell("posting", i / len(chunks))
            self._lists.post(*self._postings(chunk))

    def add(self, rows: NDArray[np.int64]) -> None:
        """Post clauses, or measure the domains again if there are many more clauses than before."""
        living = self.store.living
        if living > config.RIVAL_GROWTH * max(self._laid_for, config.RIVAL_FIRST):
            self.build()
            return
        self._needs.fill(self.store.rows - len(self._needs.values), NEVER)
        targets, items = self._postings(rows)
        self._lists.more_lists((int(targets.max(initial=0)) // _CELLS + 1) * _CELLS)
        self._lists.post(targets, items)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove clauses: let them need more predicates than can ever be satisfied."""
        self._needs.values[rows] = NEVER

    def _postings(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return (list, clause row) of all postings of clause rows; note what these need."""
        predicates = predicates_of(self.store.clauses, rows)
        needs = np.bincount(predicates.owners, minlength=len(rows))
        self._needs.values[rows] = needs
        uncounted = rows[needs == 0]
        most = (2 * _LEVEL + 1) * len(predicates.owners)
        targets, items = np.empty(most, np.int64), np.empty(most, np.int32)
        count = _cover(self._domains, predicates, rows, targets, items)
        return (
            np.append(np.full(len(uncounted), _UNCOUNTED), targets[:count]),
            np.append(uncounted.astype(np.int32), items[:count]),
        )

    def view(self) -> View:
        """Return the matching table and what each clause needs."""
        return View(
            _search,
            _SearchArrays(
                self.store.clauses, self.store.alive, self._domains, self._lists.pool, self._needs.values
            ),
        )

    def stats(self) -> dict[str, Any]:
        """Return the figures of the matching table."""
        sizes = self._lists.pool.sizes
        return {
            "attributes": len(np.unique(np.flatnonzero(sizes[PLACES * _CELLS :]) // _CELLS)),
            "levels": _LEVEL + 1,
            "lists": int(np.count_nonzero(sizes)),
            "longest_list": int(sizes.max(initial=0)),
            "postings": self._lists.postings,
            "uncounted_clauses": int(sizes[_UNCOUNTED]),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        return {
            "needs": self._needs.values,
            "domain_lows": self._domains.lows,
            "domain_scales": self._domains.scales,
            "laid_for": np.array([self._laid_for]),
            **self._lists.arrays("list_"),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        self._needs = GrowableArray(arrays["needs"], borrowed=False)
        self._domains = Domains(arrays["domain_lows"], arrays["domain_scales"])
        self._laid_for = int(arrays["laid_for"][0])
        self._lists = CountingLists.restored(arrays, "list_", keyed=False)

    def check(self) -> list[str]:
        """Compare the matching table with the clauses; return what is wrong."""
        found = []
        alive = self.store.alive
        needs = self._needs.values.copy()
        expected = np.stack(self._postings(np.flatnonzero(alive)))
        if not np.array_equal(needs, self._needs.values) or (needs[~alive] != NEVER).any():
            found.append("a clause needs another number of predicates than it has")
            self._needs.values[:] = needs
        lists, places = self._lists.flat()
        items = self._lists.pool.items[places]
        posted = np.stack([lists, items])[:, alive[items]]
        if posted.shape != expected.shape or not np.array_equal(
            posted[:, np.lexsort(posted)], expected[:, np.lexsort(expected)]
        ):
            found.append(f"{posted.shape[1]} postings are not the {expected.shape[1]} of the clauses' cells")
        return found


@kernel
def _cell(domains: Domains, attribute: int, value: float) -> int:
    """Return the number of the finest cell of a value."""
    part = 0.0  # an attribute that came later has one cell
    if attribute < domains.lows.size:
        part = share(value, domains.lows[attribute], domains.scales[attribute])
    return _FINEST + min(int(part * _FINEST), _FINEST - 1)


@kernel
def _cover(
    domains: Domains,
    predicates: Predicates,
    rows: NDArray[np.int64],
    targets: NDArray[np.int64],
    items: NDArray[np.int32],
) -> int:
    """Write (list, clause row) for the fewest cells that make up each interval; return how many there are."""
    owners, attributes, lows, highs = predicates
    n = 0
    for i in range(owners.size):
        c = rows[owners[i]]
        first = attributes[i] * _CELLS
        left = _cell(domains, attributes[i], lows[i])
        right = _cell(domains, attributes[i], highs[i]) + 1
        while left < right:  # level by level: cells at the ends that have no sibling in the interval
            if left & 1:
                targets[n], items[n] = first + left, c
                n += 1
                left += 1
            if right & 1:
                right -= 1
                targets[n], items[n] = first + right, c
                n += 1
            left >>= 1
            right >>= 1
    return n


class _SearchArrays(NamedTuple):
    clauses: Clauses
    alive: NDArray[np.bool_]
    domains: Domains
    pool: ListPool
    needs: NDArray[np.uint8]


@kernel
def _search(
    arrays: _SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    clauses, alive, domains, pool, needs = arrays
    ends, out = answers
    starts, sizes, _, items, _ = pool
    boxes, value_offsets, value_attributes = probes.boxes, probes.value_offsets, probes.value_attributes
    values, attributes = probes.values, sizes.size // _CELLS
    missing = np.empty_like(needs)
    for p in range(start, stop):
        last = filled
        missing[:] = needs
        for i in range(starts[_UNCOUNTED], starts[_UNCOUNTED] + sizes[_UNCOUNTED]):
            if last == out.size:
                return p
            out[last] = items[i]
            last += alive[items[i]]
        first_value = value_offsets[p]
        for k in range(PLACES + value_offsets[p + 1] - first_value):
            if k < PLACES:
                attribute = k
                low, high = boxes[p, k], boxes[p, k + 2]
            else:
                at = first_value + k - PLACES
                attribute = PLACES + value_attributes[at]
                low = high = values[at]
            if attribute >= attributes:
                continue
            left, right = _cell(domains, attribute, low), _cell(domains, attribute, high)
            while left > 0:
                # An area may meet several cells of one interval. Then a clause is a candidate too early, but once.
                for cell in range(attribute * _CELLS + left, attribute * _CELLS + right + 1):
                    for i in range(starts[cell], starts[cell] + sizes[cell]):
                        c = np.uint32(items[i])
                        still = missing[c] - 1
                        missing[c] = still
                        if still == 0:
                            if last == out.size:
                                return p
                            out[last] = c
                            last += 1
                left >>= 1
                right >>= 1
        filled = keep_satisfied(clauses, probes, p, out, filled, last)
        ends[p] = filled
    return stop
