"""The common part of the rivals that count: the predicates of clauses, lists of them, and counters.

An index that counts posts a clause once for each of its predicates. A message goes through the lists of the predicates
that it satisfies, and a clause whose predicates are all satisfied is a candidate. The place of a clause is two more
predicates, on x and y, as in the experiments of Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding
Engine for Spatiotemporal-aware Pub/Sub Systems" (2021).

Counters count down: a search copies the number that each clause needs, in one byte, and a clause is a candidate when
its byte becomes zero. So a posting takes one load and one store. A clause is removed by letting it need more than can
ever be satisfied; its postings are removed when the index is next laid out.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel
from nearcast.kernels.verify import NEGATED, Clauses

__all__ = ["NEVER", "PLACES", "CountingLists", "ListPool", "Predicates", "predicates_of"]

PLACES = 2  # x and y are the attributes 0 and 1 here, attribute a of the tests is a + 2
NEVER = 255  # what a removed clause needs; config.COUNTED_PREDICATES keeps every count below it

_Self = TypeVar("_Self", bound="CountingLists")


class Predicates(NamedTuple):
    """Intervals that a message must meet, ends included: never narrower than the clause's own."""

    owners: NDArray[np.int32]  # the clause of each, by its position among the given ones
    attributes: NDArray[np.int32]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]


def predicates_of(clauses: Clauses, rows: NDArray[np.int64]) -> Predicates:
    """Return the predicates of the given clause rows that can be counted, clause by clause.

    Negated tests cannot be, sides of a box without any end say nothing, and a clause has a byte to count in: all
    these are left to verification.
    """
    tests = 0
    if len(clauses.test_attributes):
        tests = int((clauses.test_runs[rows, 1] - clauses.test_runs[rows, 0]).sum())
    most = PLACES * len(rows) + tests
    owners, attributes = np.empty(most, np.int32), np.empty(most, np.int32)
    lows, highs = np.empty(most), np.empty(most)
    n = _flatten(clauses, rows, Predicates(owners, attributes, lows, highs), config.COUNTED_PREDICATES)
    return Predicates(owners[:n], attributes[:n], lows[:n], highs[:n])


@kernel
def _flatten(clauses: Clauses, rows: NDArray[np.int64], out: Predicates, most: int) -> int:
    boxes, test_runs, test_attributes = clauses.boxes, clauses.test_runs, clauses.test_attributes
    test_lows, test_highs, test_flags = clauses.test_lows, clauses.test_highs, clauses.test_flags
    owners, attributes, lows, highs = out
    any_tests = test_attributes.size > 0
    n = 0
    for i in range(rows.size):
        c = rows[i]
        first = n
        for axis in range(PLACES):
            low, high = boxes[c, axis], boxes[c, axis + 2]
            if low > -np.inf or high < np.inf:
                owners[n], attributes[n], lows[n], highs[n] = i, axis, low, high
                n += 1
        if any_tests:
            for t in range(test_runs[c, 0], test_runs[c, 1]):
                if not test_flags[t] & NEGATED and n - first < most:
                    owners[n], attributes[n] = i, test_attributes[t] + PLACES
                    lows[n], highs[n] = test_lows[t], test_highs[t]
                    n += 1
    return n


class ListPool(NamedTuple):
    """Lists of numbers with room to grow; the arrays of postings are longer than what is used."""

    starts: NDArray[np.int64]  # of each list
    sizes: NDArray[np.int32]
    rooms: NDArray[np.int32]
    items: NDArray[np.int32]  # what is counted
    keys: NDArray[np.float32]  # a number with each, or nothing at all


class CountingLists:
    """Numbered lists of what is counted, in which nothing is ever looked for; postings may have keys."""

    def __init__(self, sizes: NDArray[Any], *, keyed: bool) -> None:
        """Make empty lists with room for this many postings each, and some more."""
        sizes = sizes + (config.COUNTING_SLACK * sizes).astype(np.int64)
        total = int(sizes.sum())
        self.pool = ListPool(
            offsets_of(sizes)[:-1],
            np.zeros(len(sizes), np.int32),
            sizes.astype(np.int32),
            np.empty(total, np.int32),
            np.empty(total if keyed else 0, np.float32),
        )
        self._keyed = keyed
        self._used = total

    @property
    def postings(self) -> int:
        """How many postings there are, those of removed clauses among them."""
        return int(self.pool.sizes.sum(dtype=np.int64))

    def more_lists(self, lists: int) -> None:
        """Make sure that there are at least this many lists."""
        pool = self.pool
        if lists > len(pool.starts):
            more = max(lists - len(pool.starts), len(pool.starts) // 2)
            self.pool = pool._replace(
                starts=np.append(pool.starts, np.zeros(more, np.int64)),
                sizes=np.append(pool.sizes, np.zeros(more, np.int32)),
                rooms=np.append(pool.rooms, np.zeros(more, np.int32)),
            )

    def post(
        self, targets: NDArray[np.int64], items: NDArray[np.int32], keys: NDArray[np.float32] | None = None
    ) -> None:
        """Append ``items[i]`` to the list ``targets[i]``; a full list moves to where it has double the room."""
        if keys is None:
            keys = np.empty(0, np.float32)
        done = 0
        while done < len(items):
            done, self._used = _post(
                self.pool, targets, items, keys, done, self._used, config.POSTING_START
            )  # fmt: skip
            if done < len(items):
                self._make_room(int(self.pool.sizes[targets[done]]))

    def flat(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the list of each posting, and where in the pool it stands."""
        sizes = self.pool.sizes
        lists = np.repeat(np.arange(len(sizes)), sizes)
        places = np.arange(len(lists)) + np.repeat(self.pool.starts - offsets_of(sizes)[:-1], sizes)
        return lists, places

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        used = self.pool._replace(items=self.pool.items[: self._used], keys=self.pool.keys[: self._used])
        return {prefix + name: array for name, array in used._asdict().items()}

    @classmethod
    def restored(cls: type[_Self], arrays: dict[str, NDArray[Any]], prefix: str, *, keyed: bool) -> _Self:
        """Restore on mapped arrays."""
        lists = cls(np.empty(0, np.int64), keyed=keyed)
        lists.pool = ListPool(**{name: arrays[prefix + name] for name in ListPool._fields})
        lists._used = len(lists.pool.items)
        return lists

    def _make_room(self, size: int) -> None:
        """Make room for a list of *size* postings to double: compact, and grow by half unless that freed enough."""
        pool = self.pool
        need = max(config.POSTING_START, 2 * size)
        room, held = len(pool.items), int(pool.rooms.sum(dtype=np.int64))
        if room - held < max(need, config.COMPACT_WASTE * room):
            room += max(room // 2, need)
        items = np.empty(room, np.int32)
        keys = np.empty(room if self._keyed else 0, np.float32)
        self._used = _compact(pool, items, keys)
        self.pool = pool._replace(items=items, keys=keys)


@kernel
def _post(
    pool: ListPool,
    targets: NDArray[np.int64],
    more: NDArray[np.int32],
    more_keys: NDArray[np.float32],
    begin: int,
    used: int,
    least: int,
) -> Any:
    """Append postings from number *begin* on; returns (next, used) when done or when the pool is full."""
    starts, sizes, rooms, items, keys = pool
    keyed = more_keys.size > 0
    for i in range(begin, more.size):
        target = targets[i]
        size = sizes[target]
        if size == rooms[target]:
            wider = max(least, 2 * size)
            if used + wider > items.size:
                return i, used
            start = starts[target]
            items[used : used + size] = items[start : start + size]
            if keyed:
                keys[used : used + size] = keys[start : start + size]
            starts[target] = used
            rooms[target] = wider
            used += wider
        at = starts[target] + size
        items[at] = more[i]
        if keyed:
            keys[at] = more_keys[i]
        sizes[target] = size + 1
    return more.size, used


@kernel
def _compact(pool: ListPool, items: NDArray[np.int32], keys: NDArray[np.float32]) -> int:
    """Move all lists, each with its room, to the front of new arrays; return the end."""
    starts, sizes, rooms, old_items, old_keys = pool
    keyed = old_keys.size > 0
    used = 0
    for i in range(starts.size):
        start, size = starts[i], sizes[i]
        items[used : used + size] = old_items[start : start + size]
        if keyed:
            keys[used : used + size] = old_keys[start : start + size]
        starts[i] = used
        used += rooms[i]
    return used
