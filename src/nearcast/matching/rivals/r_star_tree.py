"""R*-Tree: each clause a box over place and attributes, in the tree of libspatialindex.

It is built as in Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for
Spatiotemporal-aware Pub/Sub Systems" (2021), section 6.1.3: where a clause has no test, its box spans the whole domain,
and so does the query of a message that lacks an attribute. Candidates are verified (:mod:`.box_tree` has the tree).

Clauses that come and go are inserted and deleted one by one, unless there are so many at once that packing takes less
time.

It needs the package ``rtree`` (``pip install nearcast[bench]``). Its tree is no flat array: a saved index holds the
clauses alone, and opening it packs the tree anew.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.rivals.box_tree import BoxTree, coordinate
from nearcast.matching.rivals.counting import PLACES, Predicates, predicates_of
from nearcast.matching.rivals.domains import Domains
from nearcast.matching.structure import Answers, ClauseStructure, Progress, View, silent

__all__ = ["RStarTree"]


class RStarTree(ClauseStructure):
    """An R*-Tree over place and attributes, with verification.

    A change is made to the one tree that there is, and a view holds no other. So nobody may read while it changes.
    """

    name: ClassVar[str] = "r-star-tree"
    lingers: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("packed",)
    room: ClassVar[int] = config.R_STAR_ROOM  # plenty, because searching again for want of room is expensive

    def __init__(self, store: ClauseStore, *, packed: bool = True) -> None:
        """Begin; it is built *packed* or by inserting one clause after the other, as the paper does."""
        super().__init__(store)
        self._packed = packed

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Make the tree."""
        rows = self.members()
        self._tree = BoxTree(rows, self._predicates(rows), packed=self._packed, tell=tell)

    def _predicates(self, rows: NDArray[np.int64]) -> Predicates:
        return predicates_of(self.store.clauses, rows)

    def add(self, rows: NDArray[np.int64]) -> None:
        """Insert clauses, or pack the tree anew."""
        if self._tree.worn(len(rows), self.store.living):
            self.build()
        else:
            self._tree.insert(rows, self._predicates(rows))

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Delete clauses, or pack the tree anew."""
        if self._tree.worn(len(rows), self.store.living):
            self.build()
        else:
            self._tree.delete(rows, self._predicates(rows))

    def view(self) -> View:
        """Return the tree; it is not an array, so the search is not a kernel."""
        return View(_search, _SearchArrays(self.store.clauses, self._tree))

    def stats(self) -> dict[str, Any]:
        """Return the figures of the tree."""
        return {"dimensions": self._tree.dimensions, "capacity": config.R_STAR_CAPACITY}

    @property
    def nbytes(self) -> int:
        """The bytes of the boxes and numbers of its entries, the least that the tree takes; it does not tell."""
        return (self.store.living) * 8 * (2 * self._tree.dimensions + 1)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return how the tree is built; the tree itself cannot be saved."""
        return {"packed": np.array([self._packed])}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Rebuild the tree."""
        self._packed = bool(arrays["packed"][0])
        self.build()

    def check(self) -> list[str]:
        """Compare the entries of the tree with the clauses."""
        return self._tree.check(self.members(), self._predicates)


class _SearchArrays(NamedTuple):
    clauses: Clauses
    tree: BoxTree


def _search(
    arrays: _SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int
) -> int:
    clauses, tree = arrays
    for first in range(start, stop, config.R_STAR_BLOCK):
        last = min(first + config.R_STAR_BLOCK, stop)
        lows, highs = tree.whole(last - first)
        _probe_boxes(tree.domains, tree.dimension_of, probes, first, lows, highs)
        offsets, rows = tree.search(lows, highs)
        at = _verify(clauses, probes, first, last, rows, offsets, answers, filled)
        if at < last:
            return at
        filled = int(answers.ends[last - 1])
    return stop


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
    boxes, value_offsets, value_attributes = probes.boxes, probes.value_offsets, probes.value_attributes
    values = probes.values
    domain_lows, scales = domains
    for i in range(lows.shape[0]):
        p = first + i
        first_value = value_offsets[p]
        for k in range(PLACES + value_offsets[p + 1] - first_value):
            at = first_value + k - PLACES
            a = k if k < PLACES else PLACES + value_attributes[at]
            d = dimension_of[a] if a < dimension_of.size else -1
            begin = boxes[p, k] if k < PLACES else values[at]
            end = boxes[p, k + 2] if k < PLACES else begin
            if d >= 0:
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
    answers: Answers,
    filled: int,
) -> int:
    """Keep the rows that each probe satisfies, among those that the tree suggests."""
    ends, out = answers
    for p in range(start, stop):
        begin, end = offsets[p - start], offsets[p - start + 1]
        last = filled + end - begin
        if last > out.size:
            return p
        for i in range(begin, end):
            out[filled + i - begin] = rows[i]
        filled = keep_satisfied(clauses, probes, p, out, filled, last)
        ends[p] = filled
    return stop
