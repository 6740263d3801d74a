"""R*-Tree as a store: each message a box over place and attributes, in the tree of libspatialindex.

As the MO-Tree paper measures it (section 6.2.4): an attribute that a message lacks is its whole domain, which makes an
area of a point; a subscription asks for the whole domain where it has no test. What is found is verified
(:mod:`.box_tree` has the tree).

Messages that come and go are inserted and deleted one by one, unless so many at once that packing takes less time. It
needs the package ``rtree`` (``pip install nearcast[bench]``).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import ragged_take
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Stored, keep_satisfying, keep_valid
from nearcast.matching.messages.store import MessageStore
from nearcast.matching.rivals.box_tree import BoxTree
from nearcast.matching.rivals.counting import PLACES, Predicates, predicates_of

__all__ = ["RStarTreeStore"]


class RStarTreeStore(MessageStore):
    """An R*-Tree over places and values, with verification."""

    name: ClassVar[str] = "r-star-tree"
    parameters: ClassVar[tuple[str, ...]] = ("packed",)

    def __init__(self, *arguments: Any, packed: bool = True, **keywords: Any) -> None:
        """Build; *packed* or by inserting one message after the other, as the paper does."""
        self._packed = packed
        super().__init__(*arguments, **keywords)

    def _build(self) -> None:
        rows = np.flatnonzero(self.rows.alive)
        self._tree = BoxTree(rows, self._predicates(rows), packed=self._packed, tell=self._tell)

    def _predicates(self, rows: NDArray[np.int64]) -> Predicates:
        """Return what subscriptions must ask for to match the given probe rows: their sides and values."""
        stored = self.rows.stored
        offsets, values = ragged_take(stored.value_offsets, stored.values, rows)
        _, attributes = ragged_take(stored.value_offsets, stored.value_attributes, rows)
        numbers, boxes = np.arange(len(rows), dtype=np.int32), stored.boxes[rows]
        return Predicates(
            np.concatenate([numbers, numbers, np.repeat(numbers, np.diff(offsets))]),
            np.concatenate([np.zeros_like(numbers), np.ones_like(numbers), attributes + np.int32(PLACES)]),
            np.concatenate([boxes[:, 0], boxes[:, 1], values]),
            np.concatenate([boxes[:, 2], boxes[:, 3], values]),
        )

    def _add(self, probe_rows: NDArray[np.int64]) -> None:
        if self._tree.worn(len(probe_rows), self.rows.rows - self.rows.dead):
            self._build()
        else:
            self._tree.insert(probe_rows, self._predicates(probe_rows))

    def _drop(self, probe_rows: NDArray[np.int64]) -> None:
        if self._tree.worn(len(probe_rows), self.rows.rows - self.rows.dead):
            self._build()
        else:
            self._tree.delete(probe_rows, self._predicates(probe_rows))

    def _search(
        self,
        clauses: Clauses,
        start: int,
        stop: int,
        now: int,
        counts: NDArray[np.int64],
        out: NDArray[np.int32],
        filled: int,
        expired: NDArray[np.int32],
    ) -> tuple[int, int]:
        for first in range(start, stop, config.R_STAR_BLOCK):
            last = min(first + config.R_STAR_BLOCK, stop)
            asked = predicates_of(clauses, np.arange(first, last))
            offsets, rows = self._tree.search(*self._tree.boxes(last - first, asked))
            at, filled = _verify(
                self.rows.stored,
                clauses,
                first,
                last,
                now,
                rows,
                offsets,
                counts[first - start :],
                out,
                filled,
                expired,
            )
            if at < last:
                return at, filled
        return stop, filled

    def stats(self) -> dict[str, Any]:
        """Return the figures of every store, and those of the tree."""
        return super().stats() | {
            "dimensions": self._tree.dimensions,
            "capacity": config.R_STAR_CAPACITY,
        }

    def _bytes(self) -> int:
        """Return the bytes of the boxes and numbers of entries, the least that the tree takes; it does not tell."""
        return (self.rows.rows - self.rows.dead) * 8 * (2 * self._tree.dimensions + 1)

    def _check(self) -> list[str]:
        return self._tree.check(np.flatnonzero(self.rows.alive), self._predicates)


@kernel
def _verify(
    stored: Stored,
    clauses: Clauses,
    start: int,
    stop: int,
    now: int,
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
    expired: NDArray[np.int32],
) -> Any:
    """Keep of the rows that the tree suggests for each clause those that are valid and satisfy it."""
    expires = stored.expires
    for c in range(start, stop):
        begin, end = offsets[c - start], offsets[c - start + 1]
        last = filled + end - begin
        if last > out.size:
            return c, filled
        for i in range(begin, end):
            out[filled + i - begin] = rows[i]
        last = keep_valid(expires, now, out, filled, last, expired)
        last = keep_satisfying(stored, clauses, c, out, filled, last)
        counts[c - start] = last - filled
        filled = last
    return stop, filled
