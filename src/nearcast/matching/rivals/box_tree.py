"""Boxes over place and attributes, in an R*-Tree of libspatialindex.

There is one dimension for x, one for y and one for each attribute (the most frequent ones, if there are many). Where a
row has no predicate on a dimension, it spans the whole domain. Dimensions are shares of domains, from 0 to 1, so that
the areas and margins of nodes are comparable; values outside a domain are moved to its edge. Shares are rounded down to
coarse steps, because libspatialindex treats the smallest boxes as points. So a search may find too many rows, but never
too few.

The tree is packed when it is made, or built by inserts; later changes are made one by one. A packed tree is many times
as fast, because inserts leave nodes that overlap in most of the many dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import offsets_of
from nearcast.errors import RuntimeUnavailableError
from nearcast.kernels import kernel
from nearcast.matching.rivals.counting import PLACES, Predicates
from nearcast.matching.rivals.domains import Domains, domains_of, share

__all__ = ["BoxTree", "Boxes", "coordinate"]

_STEPS = config.R_STAR_STEPS

Boxes: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]  # lower and upper corners


class BoxTree:
    """A tree over rows; the box of a row is what its predicates allow."""

    def __init__(
        self,
        rows: NDArray[np.int64],
        predicates: Predicates,
        *,
        packed: bool,
        tell: Callable[[str, float], None],
    ) -> None:
        """Make the tree; the owners of *predicates* count in the order of *rows*."""
        self.domains = domains_of(predicates)
        frequency = np.bincount(predicates.attributes, minlength=PLACES)[PLACES:]
        by_frequency = np.argsort(-frequency, kind="stable")[: config.R_STAR_ATTRIBUTES]
        chosen = PLACES + np.sort(by_frequency[frequency[by_frequency] > 0])
        self.dimensions = PLACES + len(chosen)
        self.dimension_of = np.full(PLACES + len(frequency), -1)  # of x, y and each attribute
        self.dimension_of[:PLACES] = np.arange(PLACES)
        self.dimension_of[chosen] = np.arange(PLACES, self.dimensions)
        self._built_of, self._packed = len(rows), packed
        lows, highs = self.boxes(len(rows), predicates)
        self.tree = _tree(rows[:0] if not packed else rows, lows, highs)
        if packed:
            tell("packing the tree", 0.0)
        else:
            for first in range(0, len(rows), config.R_STAR_TOLD):
                tell("inserting into the tree", first / len(rows))
                some = slice(first, first + config.R_STAR_TOLD)
                self._change(self.tree.insert, rows[some], lows[some], highs[some])
        self._alone = Lock()  # searches in libspatialindex share pools of nodes, so only one may run

    def whole(self, count: int) -> Boxes:
        """Return *count* boxes that span all domains."""
        return np.zeros((count, self.dimensions)), np.ones((count, self.dimensions))

    def boxes(self, count: int, predicates: Predicates) -> Boxes:
        """Return *count* boxes, as narrow as the predicates that belong to them say."""
        lows, highs = self.whole(count)
        _narrow(self.domains, self.dimension_of, predicates, lows, highs)
        return lows, highs

    def worn(self, changes: int, living: int) -> bool:
        """Tell whether packing again is faster than this many changes, or the domains are out of date."""
        many = self._packed and changes > max(config.R_STAR_FEW, config.R_STAR_FEW_SHARE * living)
        return many or living > config.RIVAL_GROWTH * max(self._built_of, config.RIVAL_FIRST)

    def insert(self, rows: NDArray[np.int64], predicates: Predicates) -> None:
        """Insert rows."""
        self._change(self.tree.insert, rows, *self.boxes(len(rows), predicates))

    def delete(self, rows: NDArray[np.int64], predicates: Predicates) -> None:
        """Delete rows; each is searched for in every node that contains its box."""
        self._change(self.tree.delete, rows, *self.boxes(len(rows), predicates))

    def _change(
        self,
        change: Callable[[int, list[float]], None],
        rows: NDArray[np.int64],
        lows: NDArray[np.float64],
        highs: NDArray[np.float64],
    ) -> None:
        for row, box in zip(rows.tolist(), np.hstack([lows, highs]).tolist()):
            change(row, box)

    def search(self, lows: NDArray[np.float64], highs: NDArray[np.float64]) -> Any:
        """Return the rows whose boxes touch each of the given ones, as (offsets, rows)."""
        with self._alone:
            rows, sizes = self.tree.intersection_v(lows, highs)
        return offsets_of(sizes), rows

    def check(
        self, alive: NDArray[np.int64], predicates_of: Callable[[NDArray[np.int64]], Predicates]
    ) -> list[str]:
        """Compare the tree with the rows that should be in it; return what is wrong."""
        held = np.sort(self.search(*self.whole(1))[1])
        if not np.array_equal(held, alive):
            return [f"the tree holds {len(held)} entries, not the {len(alive)} rows that are alive"]
        leaves = self.tree.leaves()
        rows = np.array([row for _, entries, _ in leaves for row in entries], np.int64)
        bounds = np.array([bounds for _, _, bounds in leaves]).reshape(-1, 2 * self.dimensions)
        around = np.repeat(bounds, [len(entries) for _, entries, _ in leaves], axis=0)
        lows, highs = self.boxes(len(rows), predicates_of(rows))
        if (lows < around[:, : self.dimensions]).any() or (highs > around[:, self.dimensions :]).any():
            return ["a row reaches beyond its leaf"]
        return []


def _tree(rows: NDArray[np.int64], lows: NDArray[np.float64], highs: NDArray[np.float64]) -> Any:
    """Return a tree of libspatialindex, packed with the given boxes."""
    try:
        from rtree.index import Index, Property, RT_Star
    except ImportError:
        raise RuntimeUnavailableError(
            "'r-star-tree' needs rtree, which is not installed; pip install nearcast[bench]"
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
def coordinate(value: float, low: float, scale: float) -> Any:
    """Return the position of a value on the dimension of its domain."""
    return np.floor(share(value, low, scale) * _STEPS) / _STEPS


@kernel
def _narrow(
    domains: Domains,
    dimension_of: NDArray[np.int64],
    predicates: Predicates,
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
) -> None:
    """Narrow boxes by the predicates that belong to them."""
    owners, attributes, begins, ends = predicates
    domain_lows, scales = domains
    for i in range(attributes.size):
        a, box = attributes[i], owners[i]
        if a < dimension_of.size and dimension_of[a] >= 0:
            d = dimension_of[a]
            lows[box, d] = max(lows[box, d], coordinate(begins[i], domain_lows[a], scales[a]))
            # Two tests may exclude each other, but the low end of a box must not exceed its high end.
            highs[box, d] = max(
                min(highs[box, d], coordinate(ends[i], domain_lows[a], scales[a])), lows[box, d]
            )
