"""Document frequencies: how rare words are, and so how much each of them weighs.

They are a snapshot that does not change while messages flow, so scores can be compared and computed again. Other
frequencies need another :class:`~nearcast.ranking.TopK`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns import MessageBatch
from nearcast.columns.ragged import integers, ragged_take
from nearcast.errors import ColumnError, InputError, shown, whole_number
from nearcast.text import keyword

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.vocabulary import Vocabulary

__all__ = ["DocumentFrequencies"]


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many of *documents* messages each word occurs.

    *counts* are by code, or one for each of *words*. A word that was never seen is as rare as one seen once, as the
    third one here:

    >>> snapshot = DocumentFrequencies([10, 990], documents=1_000, version="2026-11")
    >>> snapshot.idf(3).round(2)
    array([4.62, 0.7 , 6.91])
    """

    counts: NDArray[np.int64]
    documents: int
    version: str = ""
    #: The normalised words that the codes stand for; None where the codes are the caller's own.
    words: tuple[str, ...] | None = None

    def __init__(
        self, counts: Any, documents: int, version: str = "", words: Iterable[str] | None = None
    ) -> None:
        counted = integers(counts, np.int64, "document frequencies")
        documents = whole_number("documents", documents, 1)
        if not isinstance(version, str):
            raise ColumnError(f"version must be a string, not {shown(version)}")
        if len(counted) and (counted.min() < 0 or counted.max() > documents):
            wrong = counted[(counted < 0) | (counted > documents)][0]
            raise ColumnError(
                f"a word is in {wrong} of {documents} documents; a count must be from 0 to {documents}"
            )
        if words is not None:
            words = _normalised(words)
            if len(words) != len(counted):
                raise ColumnError(
                    f"there are {len(counted):,} counts and {len(words):,} words; give one count for each word"
                )
        object.__setattr__(self, "counts", counted)
        object.__setattr__(self, "documents", int(documents))
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "words", words)

    @classmethod
    def of(cls, batch: MessageBatch, version: str = "") -> DocumentFrequencies:
        """Count the words of a batch.

        If the batch was made from a table or from objects, the snapshot keeps the words themselves, so they weigh the
        same wherever it is used. If it was made from the caller's codes, the codes are counted.
        """
        if not isinstance(batch, MessageBatch):
            raise InputError(f"words are counted in a MessageBatch, not in {shown(batch)}")
        found = batch.probes.keywords
        if len(batch.owners) > len(batch):  # an area of several boxes has its words in each of them
            _, found = ragged_take(batch.probes.keyword_offsets, found, batch.probe_offsets[:-1])
        counts = np.bincount(found)
        return cls.coded(counts, max(1, len(batch)), version, batch.vocabulary)

    @classmethod
    def coded(
        cls, counts: NDArray[np.int64], documents: int, version: str, vocabulary: Vocabulary | None
    ) -> DocumentFrequencies:
        """Return the frequencies of the first words of a vocabulary or, without one, of codes."""
        if vocabulary is None:
            return cls(counts, documents, version)
        words = vocabulary.take(np.arange(len(counts)))
        snapshot = cls(counts[words.is_valid().to_numpy(zero_copy_only=False)], documents, version)
        object.__setattr__(snapshot, "words", tuple(words.drop_null().to_pylist()))
        return snapshot

    def idf(self, size: int) -> NDArray[np.float64]:
        """Return the weights of the first *size* codes: ``ln(1 + documents / frequency)``."""
        size = whole_number("the number of codes", size, 0)
        counts = np.zeros(size, np.int64)
        known = min(size, len(self.counts))
        counts[:known] = self.counts[:known]
        weights: NDArray[np.float64] = np.log1p(self.documents / np.maximum(counts, 1))
        return weights


def _normalised(words: Iterable[str]) -> tuple[str, ...]:
    """Return words as they stand in messages; each must be a single keyword, and no two the same."""
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise ColumnError(f"words must be a list of strings, not {shown(words)}")
    seen: dict[str, str] = {}
    for word in words:
        normal = keyword(word)
        if normal in seen:
            raise ColumnError(
                f"{shown(seen[normal])} and {shown(word)} are the same word; add their counts up"
            )
        seen[normal] = word
    return tuple(seen)
