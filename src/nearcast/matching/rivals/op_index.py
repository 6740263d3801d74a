"""OpIndex: clauses by pivot attribute, their predicates by attribute and operator, and counters.

Zhang, Chan and Tan (An efficient publish/subscribe index for e-commerce databases, VLDB 2014) put a clause under its
pivot, the least frequent of its attributes, so a message without that attribute never reads it. Within a pivot,
predicates are grouped by attribute and operator and sorted by value, so those that a message satisfies are contiguous.
An interval is two predicates, ``>= low`` and ``<= high``, or one ``= value``. A clause whose predicates are all
satisfied is a candidate.

The directory of a pivot lists the groups that it has, so no missing group is searched for (the paper's signatures serve
this purpose). Clauses have *slots*, numbered pivot by pivot when the index is laid out, so the counters of a group lie
close together. Newcomers follow the sorted part of a group until they are a fixed share of it.
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
from nearcast.matching.structure import Answers, ClauseStructure, Progress, View, silent

__all__ = ["OpIndex"]

_EQUAL, _AT_LEAST, _AT_MOST = 0, 1, 2  # operators; a group's key is pivot, attribute, operator
_OPERATOR_BITS, _ATTRIBUTE_BITS = 2, 30
_ATTRIBUTE = (1 << _ATTRIBUTE_BITS) - 1
_PIVOT_SHIFT = _OPERATOR_BITS + _ATTRIBUTE_BITS
_UNCOUNTED = 0  # the list of clauses without a predicate that can be counted; groups follow


class _Groups(NamedTuple):
    """The directory: all groups in the order of their keys, so those of one pivot in a row."""

    keys: NDArray[np.int64]
    lists: NDArray[np.int32]  # where the postings of each are
    pivots: NDArray[np.int64]  # groups of pivot a: pivots[a] to pivots[a + 1]


class OpIndex(ClauseStructure):
    """Counting over sorted lists under pivot attributes, with verification.

    Postings come behind the sorted part of their list and are sorted into it in place. A reader of an older view might
    count one twice or not at all, so nobody may read while the lists change.
    """

    name: ClassVar[str] = "op-index"
    lingers: ClassVar[bool] = True

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Choose pivots, post all clauses and sort the lists."""
        self._frequency = np.zeros(PLACES, np.int64)
        self._groups = _Groups(np.empty(0, np.int64), np.empty(0, np.int32), np.zeros(1, np.int64))
        self._lists = CountingLists(np.zeros(1, np.int64), keyed=True)
        self._sorted = np.zeros(1, np.int32)  # postings of each list that are in order; the rest follows them
        self._slots = GrowableArray(np.empty(0, np.int32), borrowed=False)  # of each clause row
        self._slot_rows = GrowableArray(np.empty(0, np.int32), borrowed=False)  # of each slot
        self._needs = GrowableArray(np.empty(0, np.uint8), borrowed=False)  # of each slot
        rows = np.flatnonzero(self.store.alive)
        tell("choosing pivots", 0.0)
        targets, slots, values = self._postings(rows)
        tell("posting", 0.4)
        self._lists = CountingLists(np.bincount(targets, minlength=len(self._groups.keys) + 1), keyed=True)
        self._lists.post(targets, slots, values)
        tell("sorting", 0.6)
        self._sort(np.arange(1, len(self._groups.keys) + 1))

    def add(self, rows: NDArray[np.int64]) -> None:
        """Post clauses behind the sorted part of their lists."""
        targets, slots, values = self._postings(rows)
        self._lists.more_lists(len(self._groups.keys) + 1)
        self._lists.post(targets, slots, values)
        sizes, ordered = self._lists.pool.sizes, self._sorted
        tails = sizes[: len(ordered)] - ordered
        tails[_UNCOUNTED] = 0
        self._sort(np.flatnonzero(tails > np.maximum(config.OP_TAIL, config.OP_TAIL_SHARE * ordered)))

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove clauses: let them need more predicates than can ever be satisfied."""
        self._needs.values[self._slots.values[rows]] = NEVER

    def _postings(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Return (list, slot, value) of all postings of clause rows, which get their slots; name new groups."""
        predicates = predicates_of(self.store.clauses, rows)
        seen = np.bincount(predicates.attributes, minlength=len(self._frequency))
        seen[: len(self._frequency)] += self._frequency
        self._frequency = seen
        pivots = np.full(len(rows), -1, np.int64)  # -1: nothing to count
        _choose_pivots(predicates, self._frequency, pivots)

        first = len(self._slot_rows.values)
        order = np.argsort(pivots, kind="stable")
        slots = np.empty(len(rows), np.int32)
        slots[order] = np.arange(first, first + len(rows))
        self._slot_rows.extend(rows[order])
        self._slots.fill(self.store.rows - len(self._slots.values), -1)
        self._slots.values[rows] = slots

        owners = predicates.owners
        most = 2 * len(owners)
        keys, at, values = np.empty(most, np.int64), np.empty(most, np.int32), np.empty(most, np.float32)
        count = _operators(predicates, pivots[owners], slots[owners], keys, at, values)
        keys, at, values = keys[:count], at[:count], values[:count]
        self._needs.extend(np.bincount(at - first, minlength=len(rows)))

        uncounted = slots[pivots < 0]
        return (
            np.append(np.full(len(uncounted), _UNCOUNTED), self._lists_of(keys)),
            np.append(uncounted, at),
            np.append(np.zeros(len(uncounted), np.float32), values),
        )

    def _lists_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the list of each key; new ones are numbered and enter the directory."""
        known = self._groups.keys
        if len(keys):
            at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            new = np.unique(keys if not len(known) else keys[known[at] != keys])
            if len(new):
                lists = np.append(self._groups.lists, np.arange(len(known) + 1, len(known) + len(new) + 1))
                known = np.append(known, new)
                order = np.argsort(known)
                known = known[order]
                pivots = np.arange((int(known[-1]) >> _PIVOT_SHIFT) + 2) << _PIVOT_SHIFT
                self._groups = _Groups(known, lists[order].astype(np.int32), np.searchsorted(known, pivots))
                self._sorted = np.append(self._sorted, np.zeros(len(new), np.int32))
        return self._groups.lists[np.searchsorted(known, keys)].astype(np.int64)

    def _sort(self, lists: NDArray[np.int64]) -> None:
        """Put the postings of lists in order."""
        pool = self._lists.pool
        for target in lists.tolist():
            part = slice(pool.starts[target], pool.starts[target] + pool.sizes[target])
            order = np.argsort(pool.keys[part], kind="stable")  # quick where most are in order
            pool.keys[part] = pool.keys[part][order]
            pool.items[part] = pool.items[part][order]
        self._sorted[lists] = pool.sizes[lists]

    def view(self) -> View:
        """Return the groups, their lists and what each clause needs."""
        return View(
            _search,
            _SearchArrays(
                self.store.clauses,
                self._groups,
                self._lists.pool,
                self._sorted,
                self._needs.values,
                self._slot_rows.values,
                int((self._groups.keys >> _OPERATOR_BITS & _ATTRIBUTE).max(initial=PLACES - 1)) + 1,
            ),
        )

    def stats(self) -> dict[str, Any]:
        """Return the figures of pivots and groups."""
        sizes = self._lists.pool.sizes
        return {
            "pivots": int(np.count_nonzero(np.diff(self._groups.pivots))),
            "groups": len(self._groups.keys),
            "longest_list": int(sizes.max(initial=0)),
            "postings": self._lists.postings,
            "unsorted_postings": int((sizes[: len(self._sorted)] - self._sorted)[1:].sum()),
            "uncounted_clauses": int(sizes[_UNCOUNTED]),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays."""
        return {
            "frequency": self._frequency,
            "sorted": self._sorted,
            "slots": self._slots.values,
            "slot_rows": self._slot_rows.values,
            "needs": self._needs.values,
            **{f"group_{name}": array for name, array in self._groups._asdict().items()},
            **self._lists.arrays("list_"),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the flat arrays."""
        self._frequency, self._sorted = arrays["frequency"], arrays["sorted"]
        self._slots = GrowableArray(arrays["slots"], borrowed=False)
        self._slot_rows = GrowableArray(arrays["slot_rows"], borrowed=False)
        self._needs = GrowableArray(arrays["needs"], borrowed=False)
        self._groups = _Groups(**{name: arrays[f"group_{name}"] for name in _Groups._fields})
        self._lists = CountingLists.restored(arrays, "list_", keyed=True)

    def check(self) -> list[str]:
        """Compare the groups with the clauses; return what is wrong."""
        found = []
        pool, groups, alive = self._lists.pool, self._groups, self.store.alive
        lists, places = self._lists.flat()
        values = pool.keys[places]
        ordered = np.zeros(len(pool.sizes), np.int64)
        ordered[1 : len(self._sorted)] = self._sorted[1:]
        falls = (lists[1:] == lists[:-1]) & (values[1:] < values[:-1])
        if (falls & (places[1:] < (pool.starts + ordered)[lists[1:]])).any():
            found.append("a list is not in order")
        if (groups.keys[1:] <= groups.keys[:-1]).any():
            found.append("the directory of groups is not in order")

        slots, living = self._slots.values[alive], np.flatnonzero(alive)
        rows = self._slot_rows.values[pool.items[places]].astype(np.int64)
        key_of = np.full(len(pool.sizes), -1, np.int64)
        key_of[groups.lists] = groups.keys
        keys = key_of[lists]
        counted = (keys >= 0) & alive[rows]
        keys, rows, values = keys[counted], rows[counted], values[counted]
        if not np.array_equal(self._slot_rows.values[slots], living):
            found.append("the slots of clauses are not theirs")
        elif not np.array_equal(self._needs.values[slots], np.bincount(rows, minlength=len(alive))[alive]):
            found.append("a clause needs another number of predicates than are posted")
        pivots = np.unique(rows << 32 | keys >> _PIVOT_SHIFT)
        attributes = keys >> _OPERATOR_BITS & _ATTRIBUTE
        if (pivots[1:] >> 32 == pivots[:-1] >> 32).any():
            found.append("a clause stands under two pivots")
        elif not np.isin(pivots, rows << 32 | attributes).all():
            found.append("a clause stands under a pivot that it has no predicate on")
        expected = _all_operators(self.store.clauses, living)
        posted = np.stack([rows, keys & (1 << _PIVOT_SHIFT) - 1, values])
        if posted.shape != expected.shape or not np.array_equal(
            posted[:, np.lexsort(posted)], expected[:, np.lexsort(expected)]
        ):
            found.append(f"{posted.shape[1]} postings are not the {expected.shape[1]} predicates of clauses")
        return found


def _all_operators(clauses: Clauses, living: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return (clause row, attribute and operator, value) of all predicates, whatever their pivot."""
    predicates = predicates_of(clauses, living)
    n = len(predicates.owners)
    rows = living[predicates.owners].astype(np.int32)
    keys, out, values = np.empty(2 * n, np.int64), np.empty(2 * n, np.int32), np.empty(2 * n, np.float32)
    count = _operators(predicates, np.zeros(n, np.int64), rows, keys, out, values)
    return np.stack([out[:count], keys[:count], values[:count]])


@kernel
def _choose_pivots(predicates: Predicates, frequency: NDArray[np.int64], pivots: NDArray[np.int64]) -> None:
    """Write the least frequent attribute of each clause; x and y only where it has no other."""
    owners, attributes = predicates.owners, predicates.attributes
    for i in range(attributes.size):
        a, best = attributes[i], pivots[owners[i]]
        if best < 0 or (a >= PLACES and (best < PLACES or frequency[a] < frequency[best])):
            pivots[owners[i]] = a


@kernel
def _operators(
    predicates: Predicates,
    pivots: NDArray[np.int64],
    slots: NDArray[np.int32],
    keys: NDArray[np.int64],
    out: NDArray[np.int32],
    values: NDArray[np.float32],
) -> int:
    """Write (key of the group, slot, value) of the operators that make up each interval; return how many there are.

    Values are rounded, like those of messages, so their order is kept.
    """
    _, attributes, lows, highs = predicates
    n = 0
    for i in range(attributes.size):
        key = pivots[i] << _PIVOT_SHIFT | np.int64(attributes[i]) << _OPERATOR_BITS
        low, high = lows[i], highs[i]
        if low == high:
            keys[n], out[n], values[n] = key | _EQUAL, slots[i], low
            n += 1
            continue
        if low > -np.inf or high == np.inf:  # also without any end: the attribute must be there
            keys[n], out[n], values[n] = key | _AT_LEAST, slots[i], low
            n += 1
        if high < np.inf:
            keys[n], out[n], values[n] = key | _AT_MOST, slots[i], high
            n += 1
    return n


@kernel
def _first_from(keys: NDArray[np.float32], start: int, stop: int, value: np.float32, beyond: bool) -> int:
    """Return the first place in keys[start:stop], ascending, that is at least *value*, or *beyond* it."""
    while start < stop:
        middle = (start + stop) >> 1
        if keys[middle] < value or (beyond and keys[middle] == value):
            start = middle + 1
        else:
            stop = middle
    return start


class _SearchArrays(NamedTuple):
    clauses: Clauses
    groups: _Groups
    pool: ListPool
    ordered: NDArray[np.int32]  # postings of each list that are in order
    needs: NDArray[np.uint8]  # of each slot
    slot_rows: NDArray[np.int32]
    attributes: int  # that clauses are posted under, x and y among them


@kernel
def _search(
    arrays: _SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    clauses, groups, pool, ordered, needs, slot_rows, attributes = arrays
    ends, out = answers
    starts, sizes, _, items, keys = pool
    group_keys, group_lists, pivots = groups
    boxes, value_offsets, value_attributes = probes.boxes, probes.value_offsets, probes.value_attributes
    values = probes.values
    lows, highs = np.empty(attributes, np.float32), np.empty(attributes, np.float32)
    missing = np.empty_like(needs)
    for p in range(start, stop):
        last = filled
        missing[:] = needs
        for i in range(starts[_UNCOUNTED], starts[_UNCOUNTED] + sizes[_UNCOUNTED]):
            if last == out.size:
                return p
            out[last] = items[i]
            last += needs[items[i]] != NEVER
        lows[PLACES:] = np.nan
        for a in range(PLACES):
            lows[a], highs[a] = boxes[p, a], boxes[p, a + 2]
        for at in range(value_offsets[p], value_offsets[p + 1]):
            a = PLACES + value_attributes[at]
            if a < attributes:
                lows[a] = highs[a] = values[at]
        for pivot in range(min(attributes, pivots.size - 1)):
            if np.isnan(lows[pivot]):
                continue
            for g in range(pivots[pivot], pivots[pivot + 1]):
                attribute = group_keys[g] >> _OPERATOR_BITS & _ATTRIBUTE
                if np.isnan(lows[attribute]):
                    continue
                operator = group_keys[g] & (1 << _OPERATOR_BITS) - 1
                target = group_lists[g]
                begin, tail = starts[target], starts[target] + ordered[target]
                low, high = np.float32(-np.inf), np.float32(np.inf)  # values that the message satisfies
                end = tail
                if operator != _AT_LEAST:
                    low = lows[attribute]
                    begin = _first_from(keys, begin, end, low, False)
                if operator != _AT_MOST:
                    high = highs[attribute]
                    end = _first_from(keys, begin, end, high, True)
                for i in range(begin, end):
                    s = np.uint32(items[i])
                    still = missing[s] - 1
                    missing[s] = still
                    if still == 0:
                        if last == out.size:
                            return p
                        out[last] = s
                        last += 1
                for i in range(tail, starts[target] + sizes[target]):
                    if low <= keys[i] <= high:
                        s = np.uint32(items[i])
                        still = missing[s] - 1
                        missing[s] = still
                        if still == 0:
                            if last == out.size:
                                return p
                            out[last] = s
                            last += 1
        for i in range(filled, last):
            out[i] = slot_rows[out[i]]
        filled = keep_satisfied(clauses, probes, p, out, filled, last)
        ends[p] = filled
    return stop
