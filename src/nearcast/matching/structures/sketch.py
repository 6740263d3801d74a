"""A clause's intervals on eight attributes in two words, and a message's values in one: tested all at once.

There are two groups of eight: the attributes that are tested most, and the next ones. Each has a byte. Its values are
cut into 126 disjoint cells, numbered from 1 on the attribute's scale; cell 0 is the null cell of messages that lack it.
A clause keeps the first and the last cell of its interval, from 0 to 127 where it has no test. So eight comparisons are
two subtractions: with the top bit of each byte set beforehand, it stays set where the difference is not negative. What
passes is decided on the clause itself; what does not pass is refused rightly, because a scale never falls.

A *run code* is the same in short, one word for a clause as well: 7 cells and the null cell, four bits for the first one
and four for the last one, which is counted from the end, so that a single subtraction makes sixteen comparisons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.matching.structures.scale import ABSENT

__all__ = [
    "FIELDS",
    "GROUPS",
    "GUARDS",
    "RUN_CELLS",
    "RUN_GUARDS",
    "interval_words",
    "passes",
    "run_code",
    "value_code",
    "value_word",
]

FIELDS = 8  # attributes in a word
GROUPS = 2
GUARDS = np.uint64(0x8080808080808080)
RUN_CELLS = 7
RUN_GUARDS = np.uint64(0x8888888888888888)
_CELLS = 126
_ANY = 127


@kernel
def _cell(place: float, cells: int) -> int:
    return 1 + min(int(place * cells), cells - 1)


@kernel
def interval_words(fields: NDArray[np.int32], positions: NDArray[np.float64], group: int) -> Any:
    """Return the first and the last cells of a clause, from its positions on all scales; *fields* are their numbers."""
    first, last = np.uint64(0), ~GUARDS  # any value, also none
    for field in range(group * FIELDS, min((group + 1) * FIELDS, fields.size)):
        low, high = positions[fields[field], 0], positions[fields[field], 1]
        if low != ABSENT:
            shift = np.uint64(8 * (field % FIELDS))
            first |= np.uint64(_cell(low, _CELLS)) << shift
            last ^= np.uint64(_ANY ^ _cell(high, _CELLS)) << shift
    return first, last


@kernel
def value_word(fields: NDArray[np.int32], positions: NDArray[np.float64], group: int) -> Any:
    """Return the cells of a message, from its positions on all scales."""
    word = np.uint64(0)
    for field in range(group * FIELDS, min((group + 1) * FIELDS, fields.size)):
        place = positions[fields[field], 0]
        if place != ABSENT:
            word |= np.uint64(_cell(place, _CELLS)) << np.uint64(8 * (field % FIELDS))
    return word


@kernel
def passes(word: Any, first: Any, last: Any) -> Any:
    """Tell whether each byte of *word* lies between those of *first* and *last*; all are below 128."""
    return ((word | GUARDS) - first) & ((last | GUARDS) - word) & GUARDS == GUARDS


@kernel
def run_code(fields: NDArray[np.int32], positions: NDArray[np.float64]) -> Any:
    """Return the run code of a clause, from its positions on all scales; *fields* are the numbers of FIELDS of them."""
    code = np.uint64(0)  # any value, also none
    for field in range(fields.size):
        low, high = positions[fields[field], 0], positions[fields[field], 1]
        if low != ABSENT:
            first, last = _cell(low, RUN_CELLS), _cell(high, RUN_CELLS)
            code |= np.uint64(first | (RUN_CELLS - last) << 4) << np.uint64(8 * field)
    return code


@kernel
def value_code(fields: NDArray[np.int32], positions: NDArray[np.float64]) -> Any:
    """Return the cells of a message with all guards set: a code is met if they are still set when it is subtracted.

    On an axis an area spans several cells: the last of them must not lie before the clause's first, nor the first after
    its last.
    """
    code = RUN_GUARDS
    for field in range(fields.size):
        low, high = positions[fields[field], 0], positions[fields[field], 1]
        first = last = 0
        if low != ABSENT:
            first, last = _cell(low, RUN_CELLS), _cell(high, RUN_CELLS)
        code |= np.uint64(last | (RUN_CELLS - first) << 4) << np.uint64(8 * field)
    return code
