"""Sketches: eight intervals of a clause in two 64-bit words, eight values of a message in one, compared all at once.

There are two groups of eight attributes: the most tested ones, and the next ones. Each attribute has a byte. Its scale
is cut into 126 disjoint cells, numbered from 1; cell 0 is the null cell, for messages that lack the attribute. A clause
keeps the first and the last cell of its interval, or 0 and 127 where it has no test. So eight intervals are compared by
two subtractions: the top bit of each byte is set beforehand, and stays set where the difference is not negative. A
clause that passes must still be verified; a clause that does not pass cannot match, because a scale never falls.

A *run code* is a shorter form that takes one word for a clause, too. It has 7 cells and the null cell, and takes four
bits for the first cell and four for the last, which is counted from the end. So one subtraction makes sixteen
comparisons.
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
    """Return the first and the last cells of a clause, given its positions on all scales.

    *fields* are the numbers of the sketched scales.
    """
    first, last = np.uint64(0), ~GUARDS  # any value, or none
    for field in range(group * FIELDS, min((group + 1) * FIELDS, fields.size)):
        low, high = positions[fields[field], 0], positions[fields[field], 1]
        if low != ABSENT:
            shift = np.uint64(8 * (field % FIELDS))
            first |= np.uint64(_cell(low, _CELLS)) << shift
            last ^= np.uint64(_ANY ^ _cell(high, _CELLS)) << shift
    return first, last


@kernel
def value_word(fields: NDArray[np.int32], positions: NDArray[np.float64], group: int) -> Any:
    """Return the cells of a message, given its positions on all scales."""
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
    """Return the run code of a clause, given its positions on all scales; *fields* are the coded ones."""
    code = np.uint64(0)  # any value, or none
    for field in range(fields.size):
        low, high = positions[fields[field], 0], positions[fields[field], 1]
        if low != ABSENT:
            first, last = _cell(low, RUN_CELLS), _cell(high, RUN_CELLS)
            code |= np.uint64(first | (RUN_CELLS - last) << 4) << np.uint64(8 * field)
    return code


@kernel
def value_code(fields: NDArray[np.int32], positions: NDArray[np.float64]) -> Any:
    """Return the cells of a message with all guards set; a clause passes if they stay set when its code is subtracted.

    An area may span several cells of an axis. Then its last cell must not be before the clause's first, and its first
    cell not after the clause's last.
    """
    code = RUN_GUARDS
    for field in range(fields.size):
        low, high = positions[fields[field], 0], positions[fields[field], 1]
        first = last = 0
        if low != ABSENT:
            first, last = _cell(low, RUN_CELLS), _cell(high, RUN_CELLS)
        code |= np.uint64(last | (RUN_CELLS - first) << 4) << np.uint64(8 * field)
    return code
