"""R*-Tree: each clause a box over place and attributes, in the tree of libspatialindex.

As the MO-Tree paper measures it (section 6.1.3): one dimension for x, one for y and one for each attribute; where a
clause has no test it spans the whole domain, and so does the query of a message that lacks an attribute. Dimensions
are shares of domains, from 0 to 1, so that areas and margins of nodes mean something; what lies outside is taken to
the edge. All of this finds too much at most, and what is found is verified.

The tree is packed when the index is built; clauses that come and go are inserted and deleted one by one, unless so many
at once that packing takes less time: a deletion has to look into every node that contains the box.

It needs the package ``rtree`` (``pip install nearcast[bench]``). Its tree is no flat array: a saved index holds the
clauses alone, and opening it packs the tree anew.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.errors import RuntimeUnavailableError
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.matcher import Matcher
from nearcast.matching.rivals.counting import PLACES, Predicates, predicates_of
from nearcast.matching.rivals.domains import Domains, domains_of, share
from nearcast.ragged import offsets_of

__all__ = ["RStarTree"]

_Boxes = tuple[NDArray[np.float64], NDArray[np.float64]]


class RStarTree(Matcher):
    """An R*-Tree over place and attributes, with verification."""

    name: ClassVar[str] = "r-star-tree"
    _room = config.R_STAR_ROOM  # plenty: to ask the tree again for want of room is dear

    def _build(self) -> None:
        rows = np.flatnonzero(self.store.alive)
        predicates = predicates_of(self.store.clauses, rows)
        self._domains = domains_of(predicates)
        self._laid_for = len(rows)
        frequency = np.bincount(predicates.attributes, minlength=PLACES)[PLACES:]
        by_frequency = np.argsort(-frequency, kind="stable")[: config.R_STAR_ATTRIBUTES]
        chosen = PLACES + np.sort(by_frequency[frequency[by_frequency] > 0])
        self._dimensions = PLACES + len(chosen)
        self._dimension_of = np.full(PLACES + len(frequency), -1)  # of x, y and each attribute
        self._dimension_of[:PLACES] = np.arange(PLACES)
        self._dimension_of[chosen] = np.arange(PLACES, self._dimensions)
        self._tell("packing the tree", 0.0)
        self._tree = _tree(rows, *self._boxes(rows, predicates))
        self._alone = Lock()  # a search in libspatialindex takes nodes from pools that threads would share

    def _add(self, clause_rows: NDArray[np.int64]) -> None:
        living = self.store.rows - self.store.dead
        if living > config.RIVAL_GROWTH * max(self._laid_for, config.RIVAL_FIRST):
            self._build()
        else:
            self._one_by_one(clause_rows, self._tree.insert)

    def _drop(self, clause_rows: NDArray[np.int64]) -> None:
        self._one_by_one(clause_rows, self._tree.delete)

    def _one_by_one(self, rows: NDArray[np.int64], change: Callable[[int, list[float]], None]) -> None:
        """Insert or delete clause rows; when they are many, the tree is packed anew in less time."""
        if len(rows) > max(config.R_STAR_FEW, config.R_STAR_FEW_SHARE * (self.store.rows - self.store.dead)):
            self._build()
            return
        for row, box in zip(rows.tolist(), np.hstack(self._boxes(rows)).tolist()):
            change(row, box)

    def _boxes(self, rows: NDArray[np.int64], predicates: Predicates | None = None) -> _Boxes:
        """Return the lower and the upper corners of clause rows."""
        if predicates is None:
            predicates = predicates_of(self.store.clauses, rows)
        lows, highs = np.zeros((len(rows), self._dimensions)), np.ones((len(rows), self._dimensions))
        _clause_boxes(self._domains, self._dimension_of, predicates, lows, highs)
        return lows, highs

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
            lows = np.zeros((last - first, self._dimensions))
            highs = np.ones((last - first, self._dimensions))
            _probe_boxes(self._domains, self._dimension_of, probes, first, lows, highs)
            with self._alone:
                rows, sizes = self._tree.intersection_v(lows, highs)
            offsets = offsets_of(sizes)
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
        own = figures["clauses"] * 8 * (2 * self._dimensions + 1)
        total = figures["bytes"] + own
        return figures | {
            "bytes": total,
            "bytes_of_structure": own,
            "bytes_per_subscription": round(total / max(len(self), 1), 1),
            "dimensions": self._dimensions,
            "capacity": config.R_STAR_CAPACITY,
        }

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._build()

    def _check(self) -> list[str]:
        alive = np.flatnonzero(self.store.alive)
        everything = np.zeros((1, self._dimensions)), np.ones((1, self._dimensions))
        held = np.sort(self._tree.intersection_v(*everything)[0])
        if not np.array_equal(held, alive):
            return [f"the tree holds {len(held)} entries, not the {len(alive)} clauses that are alive"]
        leaves = self._tree.leaves()
        rows = np.array([row for _, entries, _ in leaves for row in entries], np.int64)
        bounds = np.array([bounds for _, _, bounds in leaves]).reshape(-1, 2 * self._dimensions)
        around = np.repeat(bounds, [len(entries) for _, entries, _ in leaves], axis=0)
        lows, highs = self._boxes(rows)
        if (lows < around[:, : self._dimensions]).any() or (highs > around[:, self._dimensions :]).any():
            return ["a clause reaches beyond its leaf"]
        return []


def _tree(rows: NDArray[np.int64], lows: NDArray[np.float64], highs: NDArray[np.float64]) -> Any:
    """Return a tree of libspatialindex, packed with the given boxes."""
    try:
        from rtree.index import Index, Property, RT_Star
    except ImportError:
        raise RuntimeUnavailableError(
            "the index 'r-star-tree' needs rtree, which is not installed; pip install nearcast[bench]"
        ) from None
    properties = Property(
        dimension=lows.shape[1],
        variant=RT_Star,
        leaf_capacity=config.R_STAR_CAPACITY,
        index_capacity=config.R_STAR_CAPACITY,
        near_minimum_overlap_factor=config.R_STAR_CAPACITY - 1,  # it must be less than a node holds
    )
    if not len(rows):
        return Index(properties=properties)
    return Index((rows, lows, highs), properties=properties)


@kernel
def _clause_boxes(
    domains: Domains,
    dimension_of: NDArray[np.int64],
    predicates: Predicates,
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
) -> None:
    """Narrow the box of each clause by its predicates."""
    owners, attributes, begins, ends = predicates
    domain_lows, scales = domains
    for i in range(attributes.size):
        a, c = attributes[i], owners[i]
        if a < dimension_of.size and dimension_of[a] >= 0:
            d = dimension_of[a]
            lows[c, d] = max(lows[c, d], share(begins[i], domain_lows[a], scales[a]))
            # Two tests may exclude each other. A box must not be turned over, though.
            highs[c, d] = max(min(highs[c, d], share(ends[i], domain_lows[a], scales[a])), lows[c, d])


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
                lows[i, d] = share(begin, domain_lows[a], scales[a])
                highs[i, d] = share(end, domain_lows[a], scales[a])


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
