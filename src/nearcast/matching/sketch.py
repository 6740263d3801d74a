"""A clause's intervals on eight attributes in two words, and a message's values in one: tested all at once.

There are two groups of eight: the attributes that are tested most, and the next ones. Each has a byte. Its values are
cut into 126 disjoint cells, numbered from 1 on the attribute's scale; cell 0 is the null cell of messages that lack it.
A clause keeps the first and the last cell of its interval, from 0 to 127 where it has no test. So eight comparisons are
two subtractions: with the top bit of each byte set beforehand, it stays set where the difference is not negative. What
passes is decided on the clause itself; what does not pass is refused rightly, because a scale never falls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.matching.scale import ABSENT

__all__ = ["FIELDS", "GROUPS", "GUARDS", "interval_words", "passes", "value_word"]

FIELDS = 8  # attributes in a word
GROUPS = 2
GUARDS = np.uint64(0x8080808080808080)
_CELLS = 126
_ANY = 127


@kernel
def _cell(place: float) -> int:
    return 1 + min(int(place * _CELLS), _CELLS - 1)


@kernel
def interval_words(fields: NDArray[np.int32], positions: NDArray[np.float64], group: int) -> Any:
    """Return the first and the last cells of a clause, from its positions on all scales; *fields* are their numbers."""
    first, last = np.uint64(0), ~GUARDS  # any value, also none
    for field in range(group * FIELDS, min((group + 1) * FIELDS, fields.size)):
        low, high = positions[fields[field], 0], positions[fields[field], 1]
        if low != ABSENT:
            shift = np.uint64(8 * (field % FIELDS))
            first |= np.uint64(_cell(low)) << shift
            last ^= np.uint64(_ANY ^ _cell(high)) << shift
    return first, last


@kernel
def value_word(fields: NDArray[np.int32], positions: NDArray[np.float64], group: int) -> Any:
    """Return the cells of a message, from its positions on all scales."""
    word = np.uint64(0)
    for field in range(group * FIELDS, min((group + 1) * FIELDS, fields.size)):
        place = positions[fields[field], 0]
        if place != ABSENT:
            word |= np.uint64(_cell(place)) << np.uint64(8 * (field % FIELDS))
    return word


@kernel
def passes(word: Any, first: Any, last: Any) -> Any:
    """Tell whether each byte of *word* lies between those of *first* and *last*; all are below 128."""
    return ((word | GUARDS) - first) & ((last | GUARDS) - word) & GUARDS == GUARDS
