"""The scan of stored messages: every clause against every probe; the oracle, and the fallback."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Stored, keep_satisfying, keep_valid
from nearcast.matching.messages.store import MessageStore

__all__ = ["MessageScan"]


class MessageScan(MessageStore):
    """Test every message: no structure, nothing to maintain, time proportional to the number of messages."""

    name: ClassVar[str] = "scan"

    def _build(self) -> None: ...

    def _add(self, probe_rows: NDArray[np.int64]) -> None: ...

    def _drop(self, probe_rows: NDArray[np.int64]) -> None: ...

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
        done: tuple[int, int]
        rows = self.rows
        done = _scan(rows.stored, rows.alive, clauses, start, stop, now, counts, out, filled, expired)
        return done


@kernel
def _scan(
    stored: Stored,
    alive: NDArray[np.bool_],
    clauses: Clauses,
    start: int,
    stop: int,
    now: int,
    counts: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
    expired: NDArray[np.int32],
) -> Any:
    boxes, expires, clause_boxes = stored.boxes, stored.expires, clauses.boxes
    for c in range(start, stop):
        xmin, ymin, xmax, ymax = (
            clause_boxes[c, 0],
            clause_boxes[c, 1],
            clause_boxes[c, 2],
            clause_boxes[c, 3],
        )
        last = filled
        for p in range(alive.size):
            if boxes[p, 0] <= xmax and boxes[p, 2] >= xmin and boxes[p, 1] <= ymax and boxes[p, 3] >= ymin:
                if last == out.size:
                    return c, filled
                out[last] = p
                last += alive[p]
        last = keep_valid(expires, now, out, filled, last, expired)
        last = keep_satisfying(stored, clauses, c, out, filled, last)
        counts[c - start] = last - filled
        filled = last
    return stop, filled
