"""The words that have codes, and how much each of them weighs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns.coding import Coding
from nearcast.columns.parts import nested, part_of
from nearcast.columns.ragged import offsets_of
from nearcast.errors import InputError, counted, shown
from nearcast.ranking.frequencies import DocumentFrequencies
from nearcast.text import keywords

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays

__all__ = ["Weights"]


class Weights:
    """Weights of words by code: by the snapshot of document frequencies, or all the same without one."""

    def __init__(self, coding: Coding, frequencies: DocumentFrequencies | None) -> None:
        if frequencies is not None and not isinstance(frequencies, DocumentFrequencies):
            raise InputError(f"document_frequency must be DocumentFrequencies, not {shown(frequencies)}")
        self.coding, self.frequencies = coding, frequencies
        self.idf = np.empty(0)
        if frequencies is not None and frequencies.words is not None:
            coding.words()[0].add(frequencies.words)

    def learn(self, codes: NDArray[np.int32]) -> None:
        """Make sure that all of these codes have weights."""
        size = int(codes.max(initial=-1)) + 1
        if size > len(self.idf):
            self._weigh(size + size // 4)

    def coded(
        self, words: Sequence[Iterable[str]], count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return *count* rows of words as codes, normalised as the text of a message is."""
        if isinstance(words, str) or not isinstance(words, Sequence):
            raise InputError(f"words must be a list with the words of each subscription, not {shown(words)}")
        if len(words) != count:
            raise InputError(
                f"{counted(len(words), 'list')} of words for {counted(count, 'point')}; give one for each"
            )
        rows = [sorted(keywords(row)) for row in words]
        codes = self.coding.words()[0].add([word for row in rows for word in row])
        return offsets_of(np.array([len(row) for row in rows], np.int64)), codes

    def document(self) -> dict[str, Any]:
        """Return the plain values that :meth:`restored` takes besides the arrays."""
        known = self.frequencies
        return {
            "coding": self.coding.document(),
            "codes": len(self.idf),
            "frequencies": None
            if known is None
            else {
                "documents": known.documents,
                "version": known.version,
                "words": known.words is not None,  # if so, they have the first codes
            },
        }

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        counts = {} if self.frequencies is None else {"counts": self.frequencies.counts}
        return counts | nested(coding=self.coding.arrays())

    @classmethod
    def restored(cls, document: dict[str, Any], arrays: Arrays) -> Weights:
        """Return the weights that these values and arrays were taken from."""
        weights = cls(Coding.restored(document["coding"], part_of(arrays, "coding")), None)
        saved = document["frequencies"]
        if saved is not None:
            words = weights.coding.vocabulary if saved["words"] else None
            weights.frequencies = DocumentFrequencies.coded(
                arrays["counts"], saved["documents"], saved["version"], words
            )
        weights._weigh(document["codes"])
        return weights

    def _weigh(self, size: int) -> None:
        self.idf = np.ones(size) if self.frequencies is None else self.frequencies.idf(size)
