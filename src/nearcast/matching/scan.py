"""The scan: every probe against every clause. The oracle in compiled form, and the honest baseline of every benchmark."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes, boxes_touch, tests_hold, words_hold
from nearcast.matching.matcher import Matcher

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
    for p in range(start, stop):
        begin = filled
        for c in range(alive.size):
            # Boxes first: they lie in a row, and they refuse most clauses.
            if (
                boxes_touch(clauses.boxes, c, probes.boxes, p)
                and alive[c]
                and words_hold(clauses, c, probes, p)
                and tests_hold(clauses, c, probes, p)
            ):
                if filled == out.size:
                    return p, begin
                out[filled] = c
                filled += 1
        counts[p - start] = filled - begin
    return stop, filled
