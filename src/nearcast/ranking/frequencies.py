"""How rare words are: a snapshot of document frequencies, by which words weigh.

Scores are comparable, and can be computed again, because the snapshot does not change while messages flow. A new one
is a new :class:`~nearcast.ranking.TopK`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns.ragged import integers
from nearcast.errors import ColumnError, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.columns import MessageBatch

__all__ = ["DocumentFrequencies"]


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many of *documents* messages each word occurs; *counts* by code, or one for each of *words*.

    >>> snapshot = DocumentFrequencies([10, 990], documents=1_000, version="2026-11")
    >>> snapshot.idf(3).round(2)  # the third word was not seen: it is as rare as if it had been seen once
    array([4.62, 0.7 , 6.91])
    """

    counts: NDArray[np.int64]
    documents: int
    version: str = ""
    words: Sequence[str] | None = None  # that the codes stand for; None: the codes are the caller's

    def __init__(
        self, counts: Any, documents: int, version: str = "", words: Sequence[str] | None = None
    ) -> None:
        counted = integers(counts, np.int64, "document frequencies")
        if isinstance(documents, bool) or not isinstance(documents, int | np.integer) or documents < 1:
            raise ColumnError(f"documents must be a whole number from 1, not {shown(documents)}")
        if len(counted) and (counted.min() < 0 or counted.max() > documents):
            wrong = counted[(counted < 0) | (counted > documents)][0]
            raise ColumnError(
                f"a word is in {wrong} of {documents} documents; it must be from 0 to {documents}"
            )
        if words is not None and (len(words) != len(counted) or len(set(words)) != len(words)):
            raise ColumnError(f"there are {len(counted):,} counts; words must be as many, none of them twice")
        object.__setattr__(self, "counts", counted)
        object.__setattr__(self, "documents", int(documents))
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "words", words)

    @classmethod
    def of(cls, batch: MessageBatch, version: str = "") -> DocumentFrequencies:
        """Count the words of a batch."""
        return cls(np.bincount(batch.probes.keywords), max(1, len(batch)), version)

    def idf(self, size: int) -> NDArray[np.float64]:
        """Return the weights of the first *size* codes: ``ln(1 + documents / frequency)``."""
        counts = np.zeros(size, np.int64)
        known = min(size, len(self.counts))
        counts[:known] = self.counts[:known]
        weights: NDArray[np.float64] = np.log1p(self.documents / np.maximum(counts, 1))
        return weights
