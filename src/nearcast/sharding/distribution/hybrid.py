"""Hybrids: one distribution over groups of shards, and another inside each group.

``location-keyword`` cuts the space into cells and gives each cell a group of shards, among which it divides the words:
a message goes to few shards, and several of them share a crowded place. ``keyword-location`` divides the words among
the groups, and each group cuts the space by its own subscriptions and messages: several shards share a frequent word.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.parts import nested, part_of
from nearcast.sharding.distribution.base import Distribution, Sample
from nearcast.sharding.distribution.keyword import Keyword
from nearcast.sharding.distribution.location import Location
from nearcast.sharding.distribution.routes import Routes

__all__ = ["KeywordLocation", "LocationKeyword"]

_PART = 48  # the bit from which on an addition has the number of its part


class Hybrid(Distribution):
    """A distribution *outer* over groups, and ``inner[g]`` over the shards of group g; groups number theirs in turn.

    The number of groups is the greatest divisor of the number of shards that is at most its square root. If that is 1,
    the inner distribution does everything.
    """

    outer_class: ClassVar[type[Distribution]]
    inner_class: ClassVar[type[Distribution]]

    def __init__(self, outer: Distribution, inner: list[Distribution]) -> None:
        super().__init__(sum(part.shards for part in inner))
        self._outer, self._inner = outer, inner

    @classmethod
    def fit(cls, sample: Sample, shards: int) -> Self:
        """Fit the groups to the whole sample, and the inside of each group to the part that is sent to it."""
        groups = max(g for g in range(1, math.isqrt(shards) + 1) if shards % g == 0)
        outer = cls.outer_class.fit(sample, groups)
        stored = outer.route_clauses(sample.table, sample.clauses)
        sent = outer.route_probes(sample.batch, sample.probes)
        inner: list[Distribution] = []
        for group in range(groups):
            part = sample.part(
                sample.clauses[stored.rows[stored.shards == group]],
                sample.probes[sent.rows[sent.shards == group]],
            )
            inner.append(cls.inner_class.fit(part, shards // groups))
        return cls(outer, inner)

    def grown(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Self:
        """Return the same groups, which can route these rows too, and so can the inside of each group."""
        outer = self._outer.grown(table, rows)
        stored = outer.route_clauses(table, rows)
        inner = [
            part.grown(table, rows[stored.rows[stored.shards == group]])
            for group, part in enumerate(self._inner)
        ]
        return type(self)(outer, inner)

    def added(self, since: Self) -> NDArray[np.int64]:
        """Return what all parts have added, with the number of the part in the upper bits: 0 for the groups."""
        parts = zip([self._outer, *self._inner], [since._outer, *since._inner])
        return np.concatenate([part.added(old) | number << _PART for number, (part, old) in enumerate(parts)])

    def joined(self, added: NDArray[np.int64]) -> Self:
        """Return the same groups with what others have added to each part."""
        outer, *inner = (
            part.joined(added[added >> _PART == number] & ((1 << _PART) - 1))
            for number, part in enumerate([self._outer, *self._inner])
        )
        return type(self)(outer, inner)

    def route_clauses(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Routes:
        """Send each row to its groups, and to its shards inside each of them."""
        routes = self._outer.route_clauses(table, rows)
        return self._route_in_groups(
            routes, rows, [lambda some, part=part: part.route_clauses(table, some) for part in self._inner]
        )

    def route_probes(self, batch: MessageBatch, rows: NDArray[np.int64]) -> Routes:
        """Send each row to its groups, and to its shards inside each of them."""
        routes = self._outer.route_probes(batch, rows)
        return self._route_in_groups(
            routes, rows, [lambda some, part=part: part.route_probes(batch, some) for part in self._inner]
        )

    def _route_in_groups(self, groups: Routes, rows: NDArray[np.int64], routes: list[Any]) -> Routes:
        """Return the shards of rows, given their groups and the function that routes rows inside each group."""
        owners, shards, first = [np.empty(0, np.int64)], [np.empty(0, np.int32)], 0
        for group, part in enumerate(self._inner):
            members = groups.rows[groups.shards == group]
            found = routes[group](rows[members])
            owners.append(members[found.rows])
            shards.append(found.shards + np.int32(first))
            first += part.shards
        return Routes.from_pairs(np.concatenate(owners), np.concatenate(shards), len(rows))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of all parts, and the number of shards of each group."""
        parts = {"outer": self._outer} | {str(g): part for g, part in enumerate(self._inner)}
        sizes = np.array([part.shards for part in self._inner])
        return {"sizes": sizes} | nested(**{name: each.arrays() for name, each in parts.items()})

    @classmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the hybrid of the parts that the arrays came from."""
        sizes = arrays["sizes"].tolist()
        outer = cls.outer_class.restored(len(sizes), part_of(arrays, "outer"))
        inner = [cls.inner_class.restored(size, part_of(arrays, str(g))) for g, size in enumerate(sizes)]
        return cls(outer, inner)


class LocationKeyword(Hybrid):
    """Cells first, words inside a cell."""

    name: ClassVar[str] = "location-keyword"
    outer_class: ClassVar[type[Distribution]] = Location
    inner_class: ClassVar[type[Distribution]] = Keyword


class KeywordLocation(Hybrid):
    """Words first, cells inside a group of words."""

    name: ClassVar[str] = "keyword-location"
    outer_class: ClassVar[type[Distribution]] = Keyword
    inner_class: ClassVar[type[Distribution]] = Location
