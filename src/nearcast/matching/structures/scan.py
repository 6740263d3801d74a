"""The scan: every probe against every clause; the fallback, and the baseline of every benchmark."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.index import Matcher

__all__ = ["Scan"]


class Scan(Matcher):
    """Test every clause: no structure, nothing to maintain, time proportional to the number of clauses."""

    name: ClassVar[str] = "scan"

    def _build(self) -> None: ...

    def _add(self, clause_rows: NDArray[np.int64]) -> None: ...

    def _drop(self, clause_rows: NDArray[np.int64]) -> None: ...

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None: ...

    def _search(
        self,
        probes: Probes,
        start: int,
        stop: int,
        counts: NDArray[np.int64],
        out: NDArray[np.int32],
        filled: int,
    ) -> tuple[int, int]:
        done: tuple[int, int]
        done = _scan(self.store.clauses, self.store.alive, probes, start, stop, counts, out, filled)
        return done


@kernel
def _scan(
    clauses: Clauses,
    alive: NDArray[np.bool_],
    probes: Probes,
    start: int,
    stop: int,
    counts: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    boxes, probe_boxes = clauses.boxes, probes.boxes
    for p in range(start, stop):
        xmin, ymin, xmax, ymax = probe_boxes[p, 0], probe_boxes[p, 1], probe_boxes[p, 2], probe_boxes[p, 3]
        last = filled
        for c in range(alive.size):
            # Boxes first: they lie in a row, and they refuse most clauses.
            if boxes[c, 0] <= xmax and boxes[c, 2] >= xmin and boxes[c, 1] <= ymax and boxes[c, 3] >= ymin:
                if last == out.size:
                    return p, filled
                out[last] = c
                last += alive[c]
        last = keep_satisfied(clauses, probes, p, out, filled, last)
        counts[p - start] = last - filled
        filled = last
    return stop, filled
