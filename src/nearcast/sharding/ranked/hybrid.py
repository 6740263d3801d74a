"""The hybrids of section 8.2: one distribution over groups of shards, and another inside each group."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import MessageBatch
from nearcast.columns.parts import nested, part_of
from nearcast.sharding.distribution.routes import Routes
from nearcast.sharding.ranked.base import RankedDistribution, RankedSample, Wishes
from nearcast.sharding.ranked.location import Cells
from nearcast.sharding.ranked.words import Prefix

__all__ = ["LocationPrefix", "PrefixLocation"]


class Hybrid(RankedDistribution):
    """A distribution *outer* over groups, and ``inner[g]`` over the shards of group g; groups number theirs in turn."""

    divides_words: ClassVar[bool] = True
    outer_class: ClassVar[type[RankedDistribution]]
    inner_class: ClassVar[type[RankedDistribution]]

    def __init__(self, outer: RankedDistribution, inner: list[RankedDistribution]) -> None:
        super().__init__(sum(part.shards for part in inner))
        self._outer, self._inner = outer, inner

    @classmethod
    def fit(cls, sample: RankedSample, shards: int, groups: int | None = None) -> Self:
        """Fit the groups to the whole sample, and the inside of each group to the part that is sent to it.

        By default, the number of groups is the greatest divisor of the number of shards that is at most its square
        root.
        """
        if groups is None:
            groups = max(g for g in range(1, math.isqrt(shards) + 1) if shards % g == 0)
        outer = cls.outer_class.fit(sample, groups)
        stored = outer.route_wishes(sample.wishes, sample.idf)
        sent = outer.route_messages(sample.messages)
        inner: list[RankedDistribution] = []
        for group in range(groups):
            mine, theirs = (routes.rows[routes.shards == group] for routes in (stored, sent))
            inner.append(cls.inner_class.fit(sample.part(mine, theirs), shards // groups))
        return cls(outer, inner)

    def grown(self, wishes: Wishes, idf: NDArray[np.float64]) -> Self:
        """Return the same groups, which can route these subscriptions, too, and so can the inside of each group."""
        outer = self._outer.grown(wishes, idf)
        groups = outer.route_wishes(wishes, idf)
        inner = [
            part.grown(wishes.take(groups.rows[groups.shards == group]), idf)
            for group, part in enumerate(self._inner)
        ]
        return type(self)(outer, inner)

    def route_wishes(self, wishes: Wishes, idf: NDArray[np.float64]) -> Routes:
        """Send each subscription to its groups, and to its shards inside each of them."""
        groups = self._outer.route_wishes(wishes, idf)
        return self._inside(groups, lambda part, rows: part.route_wishes(wishes.take(rows), idf), wishes.size)

    def route_messages(self, batch: MessageBatch) -> Routes:
        """Send each message to its groups, and to its shards inside each of them."""
        groups = self._outer.route_messages(batch)
        return self._inside(groups, lambda part, rows: part.route_messages(batch.take(rows)), len(batch))

    def finds(self, shards: NDArray[np.int32], words: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Tell which words belong to which shards: to the group, and to the shard inside it."""
        ends = np.cumsum([part.shards for part in self._inner])
        groups = np.searchsorted(ends, shards, side="right").astype(np.int32)
        found = self._outer.finds(groups, words)
        for group, part in enumerate(self._inner):
            here = np.flatnonzero(groups == group)
            first = np.int32(ends[group] - part.shards)
            found[here] &= part.finds(shards[here] - first, words[here])
        return found

    def _inside(self, groups: Routes, route: Any, size: int) -> Routes:
        """Return the shards of *size* rows, given their groups and a function that routes rows inside a group."""
        owners, shards, first = [np.empty(0, np.int64)], [np.empty(0, np.int32)], 0
        of_group = groups.rows
        for group, part in enumerate(self._inner):
            members = of_group[groups.shards == group]
            found = route(part, members)
            owners.append(members[found.rows])
            shards.append(found.shards + np.int32(first))
            first += part.shards
        return Routes.from_pairs(np.concatenate(owners), np.concatenate(shards), size)

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


class LocationPrefix(Hybrid):
    """Spatial-first: cells, and words inside a cell."""

    name: ClassVar[str] = "location-prefix"
    outer_class: ClassVar[type[RankedDistribution]] = Cells
    inner_class: ClassVar[type[RankedDistribution]] = Prefix


class PrefixLocation(Hybrid):
    """Keyword-first: groups of words, and cells inside a group."""

    name: ClassVar[str] = "prefix-location"
    outer_class: ClassVar[type[RankedDistribution]] = Prefix
    inner_class: ClassVar[type[RankedDistribution]] = Cells
