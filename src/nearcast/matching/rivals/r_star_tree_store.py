"""R*-Tree as a store: each message a box over place and attributes, in the tree of libspatialindex.

It is built as in Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for
Spatiotemporal-aware Pub/Sub Systems" (2021), section 6.2.4: where a message lacks an attribute, its box spans the whole
domain, and so does the query of a subscription without a test. Candidates are verified (:mod:`.box_tree` has the tree).

Messages that come and go are inserted and deleted one by one, unless there are so many at once that packing takes less
time. It needs the package ``rtree`` (``pip install nearcast[bench]``).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import runs_take
from nearcast.columns.rows.messages import MessageRows
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, StoredProbes, keep_satisfying, keep_valid
from nearcast.matching.rivals.box_tree import BoxTree
from nearcast.matching.rivals.counting import PLACES, Predicates, predicates_of
from nearcast.matching.structure import Answers, MessageStructure, Moment, Progress, View, silent

__all__ = ["MessageRStarTree"]


class MessageRStarTree(MessageStructure):
    """An R*-Tree over places and values, with verification.

    A change is made to the one tree that there is, and a view holds no other. So nobody may read while it changes.
    """

    name: ClassVar[str] = "r-star-tree"
    lingers: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("packed",)

    def __init__(self, store: MessageRows, *, packed: bool = True) -> None:
        """Begin; it is built *packed* or by inserting one message after the other, as the paper does."""
        super().__init__(store)
        self._packed = packed

    def build(self, sample: Clauses | None = None, tell: Progress = silent) -> None:
        """Make the tree."""
        rows = self.members()
        self._tree = BoxTree(rows, self._predicates(rows), packed=self._packed, tell=tell)

    def _predicates(self, rows: NDArray[np.int64]) -> Predicates:
        """Return what subscriptions must ask for to match the given probe rows: their sides and values."""
        stored = self.store.stored
        offsets, values = runs_take(stored.value_runs, stored.values, rows)
        _, attributes = runs_take(stored.value_runs, stored.value_attributes, rows)
        numbers, boxes = np.arange(len(rows), dtype=np.int32), stored.boxes[rows]
        return Predicates(
            np.concatenate([numbers, numbers, np.repeat(numbers, np.diff(offsets))]),
            np.concatenate([np.zeros_like(numbers), np.ones_like(numbers), attributes + np.int32(PLACES)]),
            np.concatenate([boxes[:, 0], boxes[:, 1], values]),
            np.concatenate([boxes[:, 2], boxes[:, 3], values]),
        )

    def add(self, rows: NDArray[np.int64]) -> None:
        """Insert messages, or pack the tree anew."""
        if self._tree.worn(len(rows), self.store.living):
            self.build()
        else:
            self._tree.insert(rows, self._predicates(rows))

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Delete messages, or pack the tree anew."""
        if self._tree.worn(len(rows), self.store.living):
            self.build()
        else:
            self._tree.delete(rows, self._predicates(rows))

    def view(self) -> View:
        """Return the tree; it is not an array, so the search is not a kernel."""
        return View(_search, _SearchArrays(self.store.stored, self._tree))

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
        """Compare the entries of the tree with the messages."""
        return self._tree.check(self.members(), self._predicates)


class _SearchArrays(NamedTuple):
    stored: StoredProbes
    tree: BoxTree


def _search(
    arrays: _SearchArrays,
    clauses: Clauses,
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    stored, tree = arrays
    for first in range(start, stop, config.R_STAR_BLOCK):
        last = min(first + config.R_STAR_BLOCK, stop)
        asked = predicates_of(clauses, np.arange(first, last))
        offsets, rows = tree.search(*tree.boxes(last - first, asked))
        at = _verify(stored, clauses, moment, first, last, rows, offsets, answers, filled)
        if at < last:
            return at
        filled = int(answers.ends[last - 1])
    return stop


@kernel
def _verify(
    stored: StoredProbes,
    clauses: Clauses,
    moment: Moment,
    start: int,
    stop: int,
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    answers: Answers,
    filled: int,
) -> int:
    """Keep the rows that are valid and satisfy each clause, among those that the tree suggests."""
    ends, out = answers
    expires = stored.expires
    for c in range(start, stop):
        begin, end = offsets[c - start], offsets[c - start + 1]
        last = filled + end - begin
        if last > out.size:
            return c
        for i in range(begin, end):
            out[filled + i - begin] = rows[i]
        last = keep_valid(expires, moment.now, out, filled, last, moment.expired)
        filled = keep_satisfying(stored, clauses, c, out, filled, last)
        ends[c] = filled
    return stop
