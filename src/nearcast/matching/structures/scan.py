"""The scan: every probe against every clause; the fallback, and the baseline of every benchmark."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.structure import Answers, ClauseStructure, Progress, View, silent

__all__ = ["Scan"]


class Scan(ClauseStructure):
    """Test every clause: nothing to arrange, time proportional to the number of clauses.

    A reader of an older view sees a clause vanish when it is dropped: the store marks it in place.
    """

    name: ClassVar[str] = "scan"

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Do nothing, as every other change does: the store has it all."""

    def add(self, rows: NDArray[np.int64]) -> None:
        """Do nothing."""

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Do nothing."""

    def view(self) -> View:
        """Return the clauses and which of them count."""
        return View(_scan, _Scanned(self.store.clauses, self.store.alive))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return nothing."""
        return {}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Do nothing."""


class _Scanned(NamedTuple):
    clauses: Clauses
    alive: NDArray[np.bool_]


@kernel
def _scan(scanned: _Scanned, probes: Probes, start: int, stop: int, answers: Answers, filled: int) -> int:
    clauses, alive = scanned
    ends, out = answers
    boxes, probe_boxes = clauses.boxes, probes.boxes
    for p in range(start, stop):
        xmin, ymin, xmax, ymax = probe_boxes[p, 0], probe_boxes[p, 1], probe_boxes[p, 2], probe_boxes[p, 3]
        last = filled
        for c in range(alive.size):
            # Boxes first: they lie in a row, and they refuse most clauses.
            if boxes[c, 0] <= xmax and boxes[c, 2] >= xmin and boxes[c, 1] <= ymax and boxes[c, 3] >= ymin:
                if last == out.size:
                    return p
                out[last] = c
                last += alive[c]
        filled = keep_satisfied(clauses, probes, p, out, filled, last)
        ends[p] = filled
    return stop
