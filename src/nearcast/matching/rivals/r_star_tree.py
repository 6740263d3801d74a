"""R*-Tree: each clause a box over place and attributes, in the tree of libspatialindex.

As the MO-Tree paper measures it (section 6.1.3): where a clause has no test it spans the whole domain, and so does the
query of a message that lacks an attribute. What is found is verified (:mod:`.box_tree` has the tree).

Clauses that come and go are inserted and deleted one by one, unless so many at once that packing takes less time.

It needs the package ``rtree`` (``pip install nearcast[bench]``). Its tree is no flat array: a saved index holds the
clauses alone, and opening it packs the tree anew.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.index import Matcher
from nearcast.matching.rivals.box_tree import BoxTree, coordinate
from nearcast.matching.rivals.counting import PLACES, Predicates, predicates_of
from nearcast.matching.rivals.domains import Domains

__all__ = ["RStarTree"]


class RStarTree(Matcher):
    """An R*-Tree over place and attributes, with verification."""

    name: ClassVar[str] = "r-star-tree"
    parameters: ClassVar[tuple[str, ...]] = ("packed",)
    _packed = True
    _room: ClassVar[int] = config.R_STAR_ROOM  # plenty: to ask the tree again for want of room is dear

    def __init__(self, *arguments: Any, packed: bool = True, **keywords: Any) -> None:
        """Build; *packed* or by inserting one clause after the other, as the paper does."""
        self._packed = packed
        super().__init__(*arguments, **keywords)

    def _build(self) -> None:
        rows = np.flatnonzero(self.store.alive)
        self._tree = BoxTree(rows, self._predicates(rows), packed=self._packed, tell=self._tell)

    def _predicates(self, rows: NDArray[np.int64]) -> Predicates:
        return predicates_of(self.store.clauses, rows)

    def _add(self, clause_rows: NDArray[np.int64]) -> None:
        if self._tree.worn(len(clause_rows), self.store.rows - self.store.dead):
            self._build()
        else:
            self._tree.insert(clause_rows, self._predicates(clause_rows))

    def _drop(self, clause_rows: NDArray[np.int64]) -> None:
        if self._tree.worn(len(clause_rows), self.store.rows - self.store.dead):
            self._build()
        else:
            self._tree.delete(clause_rows, self._predicates(clause_rows))

    def _search(
        self,
        probes: Probes,
        start: int,
        stop: int,
        counts: NDArray[np.int64],
        out: NDArray[np.int32],
        filled: int,
    ) -> tuple[int, int]:
        for first in range(start, stop, config.R_STAR_BLOCK):
            last = min(first + config.R_STAR_BLOCK, stop)
            lows, highs = self._tree.whole(last - first)
            _probe_boxes(self._tree.domains, self._tree.dimension_of, probes, first, lows, highs)
            offsets, rows = self._tree.search(lows, highs)
            at, filled = _verify(
                self.store.clauses, probes, first, last, rows, offsets, counts[first - start :], out, filled
            )
            if at < last:
                return at, filled
        return stop, filled

    def stats(self) -> dict[str, Any]:
        """Return the figures of every index, and those of the tree.

        The bytes are those of the boxes and numbers of its entries, the least that the tree takes; it does not tell.
        """
        figures = super().stats()
        own = figures["clauses"] * 8 * (2 * self._tree.dimensions + 1)
        total = figures["bytes"] + own
        return figures | {
            "bytes": total,
            "bytes_of_structure": own,
            "bytes_per_subscription": round(total / max(len(self), 1), 1),
            "dimensions": self._tree.dimensions,
            "capacity": config.R_STAR_CAPACITY,
        }

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._build()

    def _check(self) -> list[str]:
        return self._tree.check(np.flatnonzero(self.store.alive), self._predicates)


@kernel
def _probe_boxes(
    domains: Domains,
    dimension_of: NDArray[np.int64],
    probes: Probes,
    first: int,
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
) -> None:
    """Narrow the query of each probe from *first* on to its place and the values that it has."""
    boxes, values = probes.boxes, probes.attributes
    domain_lows, scales = domains
    for i in range(lows.shape[0]):
        p = first + i
        for a in range(min(dimension_of.size, PLACES + values.shape[1])):
            d = dimension_of[a]
            begin = boxes[p, a] if a < PLACES else values[p, a - PLACES]
            end = boxes[p, a + 2] if a < PLACES else begin
            if d >= 0 and not np.isnan(begin):
                lows[i, d] = coordinate(begin, domain_lows[a], scales[a])
                highs[i, d] = coordinate(end, domain_lows[a], scales[a])


@kernel
def _verify(
    clauses: Clauses,
    probes: Probes,
    start: int,
    stop: int,
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Keep of the rows that the tree suggests for each probe those that it satisfies."""
    for p in range(start, stop):
        begin, end = offsets[p - start], offsets[p - start + 1]
        last = filled + end - begin
        if last > out.size:
            return p, filled
        for i in range(begin, end):
            out[filled + i - begin] = rows[i]
        last = keep_satisfied(clauses, probes, p, out, filled, last)
        counts[p - start] = last - filled
        filled = last
    return stop, filled
