"""The scan: test every probe against every clause. It is the fallback, and the baseline of every benchmark."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.structure import Answers, ClauseStructure, Progress, View, silent

__all__ = ["Scan"]

_BLOCK = config.SCAN_BLOCK
# Different hashes of keywords. The set of a message's hashes rules out most clauses before keywords are compared.
_HASHES = 1024


class Scan(ClauseStructure):
    """Test every clause. Nothing is arranged, and a match takes time proportional to the number of clauses.

    A reader of an older view sees a clause vanish when it is dropped: the store marks it in place.
    """

    name: ClassVar[str] = "scan"
    shifts = rewrites = True

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Do nothing, as for every other change: the store has all that a scan reads."""

    def add(self, rows: NDArray[np.int64]) -> None:
        """Do nothing."""

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Do nothing."""

    def shift(self, rows: NDArray[np.int64]) -> None:
        """Do nothing."""

    def rewrite(self, rows: NDArray[np.int64], changed: NDArray[np.bool_]) -> None:
        """Do nothing."""

    def view(self) -> View:
        """Return the clauses, and which of them are alive."""
        return View(_scan, _SearchArrays(self.store.clauses, self.store.alive))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return nothing."""
        return {}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Do nothing."""


class _SearchArrays(NamedTuple):
    clauses: Clauses
    alive: NDArray[np.bool_]


@kernel
def _hash(word: int) -> Any:
    return (np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(54)


@kernel
def _scan(arrays: _SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int) -> int:
    """Match the probes from *start* to *stop*: by boxes, then by one keyword, then by the whole clause.

    The boxes are contiguous and are compared without branches, so a block takes no longer than reading it.
    """
    clauses, alive = arrays
    ends, out = answers
    boxes, runs, keywords = clauses.boxes, clauses.keyword_runs, clauses.keywords
    probe_boxes, probe_offsets, probe_keywords = probes.boxes, probes.keyword_offsets, probes.keywords
    seen = np.zeros(_HASHES, np.bool_)
    for p in range(start, stop):
        xmin, ymin, xmax, ymax = probe_boxes[p, 0], probe_boxes[p, 1], probe_boxes[p, 2], probe_boxes[p, 3]
        last = filled
        for first in range(0, alive.size, _BLOCK):
            beyond = min(first + _BLOCK, alive.size)
            if last + beyond - first > out.size:
                return p
            for c in range(first, beyond):
                out[last] = c
                last += (
                    (boxes[c, 0] <= xmax)
                    & (boxes[c, 2] >= xmin)
                    & (boxes[c, 1] <= ymax)
                    & (boxes[c, 3] >= ymin)
                    & alive[c]
                )
        for k in range(probe_offsets[p], probe_offsets[p + 1]):
            seen[_hash(probe_keywords[k])] = True
        kept = filled
        for i in range(filled, last):
            c = out[i]
            out[kept] = c
            kept += runs[c, 0] == runs[c, 1] or seen[_hash(keywords[runs[c, 0]])]
        for k in range(probe_offsets[p], probe_offsets[p + 1]):
            seen[_hash(probe_keywords[k])] = False
        filled = keep_satisfied(clauses, probes, p, out, filled, kept)
        ends[p] = filled
    return stop
