"""The scan of stored messages: test every clause against every probe. It is the oracle, and the fallback."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, StoredProbes, keep_satisfying, keep_valid
from nearcast.matching.structure import Answers, MessageStructure, Moment, Progress, View, silent

__all__ = ["MessageScan"]


class MessageScan(MessageStructure):
    """Test every message. Nothing is arranged, and a match takes time proportional to the number of messages.

    A reader of an older view sees a message vanish when it is dropped: the store marks it in place.
    """

    name: ClassVar[str] = "scan"

    def build(self, sample: Clauses | None = None, tell: Progress = silent) -> None:
        """Do nothing, as for every other change: the store has all that a scan reads."""

    def add(self, rows: NDArray[np.int64]) -> None:
        """Do nothing."""

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Do nothing."""

    def view(self) -> View:
        """Return the probe rows, and which of them are alive."""
        return View(_scan, _SearchArrays(self.store.stored, self.store.alive))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return nothing."""
        return {}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Do nothing."""


class _SearchArrays(NamedTuple):
    stored: StoredProbes
    alive: NDArray[np.bool_]


@kernel
def _scan(
    arrays: _SearchArrays,
    clauses: Clauses,
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    stored, alive = arrays
    ends, out = answers
    boxes, expires, clause_boxes = stored.boxes, stored.expires, clauses.boxes
    for c in range(start, stop):
        xmin, ymin = clause_boxes[c, 0], clause_boxes[c, 1]
        xmax, ymax = clause_boxes[c, 2], clause_boxes[c, 3]
        last = filled
        for p in range(alive.size):
            if boxes[p, 0] <= xmax and boxes[p, 2] >= xmin and boxes[p, 1] <= ymax and boxes[p, 3] >= ymin:
                if last == out.size:
                    return c
                out[last] = p
                last += alive[p]
        last = keep_valid(expires, moment.now, out, filled, last, moment.expired)
        filled = keep_satisfying(stored, clauses, c, out, filled, last)
        ends[c] = filled
    return stop
