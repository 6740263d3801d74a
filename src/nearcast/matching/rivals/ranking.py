"""Find the keywords that represent a clause: its least frequent ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import runs_take
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses

__all__ = ["NO_WORD", "Frequencies", "pick_rarest"]

NO_WORD = -1  # stands for a clause without keywords: every message has it


class Frequencies:
    """How many of the living clauses have each keyword."""

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self._counts = GrowableArray(counts, borrowed=False)

    @property
    def values(self) -> NDArray[np.int64]:
        """The counts, by keyword."""
        return self._counts.values

    def add(self, clauses: Clauses, rows: NDArray[np.int64]) -> None:
        """Count the keywords of new clause rows."""
        _, words = runs_take(clauses.keyword_runs, clauses.keywords, rows)
        unseen = int(words.max(initial=-1)) + 1 - len(self.values)
        if unseen > 0:
            self._counts.fill(unseen, 0)
        np.add.at(self.values, words, 1)

    def drop(self, clauses: Clauses, rows: NDArray[np.int64]) -> None:
        """Stop counting the keywords of clause rows that are removed."""
        _, words = runs_take(clauses.keyword_runs, clauses.keywords, rows)
        np.subtract.at(self.values, words, 1)

    def rarest(self, clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the rarest keyword of each clause row, or NO_WORD if it has none."""
        out = np.empty((len(rows), 1), np.int32)
        for_all(clauses.keyword_runs, clauses.keywords, self.values, rows, out)
        return out[:, 0]


@kernel
def pick_rarest(
    runs: NDArray[np.int32],
    keywords: NDArray[np.int32],
    frequency: NDArray[np.int64],
    c: int,
    out: NDArray[np.int32],
) -> int:
    """Write the rarest keywords of clause *c*, rarest first, as many as *out* holds; return how many there are.

    Of equally rare ones the smaller code comes first, so that clauses with the same words have the same ones.
    """
    filled = 0
    for k in range(runs[c, 0], runs[c, 1]):
        word = keywords[k]
        at = filled
        while at > 0 and frequency[out[at - 1]] > frequency[word]:
            if at < out.size:
                out[at] = out[at - 1]
            at -= 1
        if at < out.size:
            out[at] = word
            filled = min(filled + 1, out.size)
    return filled


@kernel
def for_all(
    runs: NDArray[np.int32],
    keywords: NDArray[np.int32],
    frequency: NDArray[np.int64],
    rows: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    """Write the rarest keywords of each clause row, followed by NO_WORD."""
    for i in range(rows.size):
        for k in range(pick_rarest(runs, keywords, frequency, rows[i], out[i]), out.shape[1]):
            out[i, k] = NO_WORD
