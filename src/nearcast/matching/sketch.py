"""A clause's intervals on eight attributes in two words, and a message's values in one: tested all at once.

There are two groups of eight: the attributes that are tested most, and the next ones. Each has a byte. Its values are
cut into 126 disjoint cells, numbered from 1 on the attribute's scale; cell 0 is the null cell of messages that lack it.
A clause keeps the first and the last cell of its interval, from 0 to 127 where it has no test. So eight comparisons are
two subtractions: with the top bit of each byte set beforehand, it stays set where the difference is not negative. What
passes is decided on the clause itself; what does not pass is refused rightly, because a scale never falls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Stored
from nearcast.matching.scale import clause_ends, position, scale_of

__all__ = [
    "FIELDS",
    "GUARDS",
    "Sketch",
    "passes",
    "sketch_clauses",
    "sketch_of",
    "sketch_stored",
    "sketch_values",
    "tests_of",
]

FIELDS = 8  # attributes in a word
GROUPS = 2
GUARDS = np.uint64(0x8080808080808080)
_CELLS = 126
_ANY = 127


class Sketch(NamedTuple):
    """The attributes that have a byte, most tested first, and their scales."""

    sources: NDArray[np.int32]  # as many as there are, FIELDS of each group at the most
    knots: NDArray[np.float64]


def sketch_of(clauses: Clauses, rows: NDArray[np.int64]) -> Sketch:
    """Return a sketch for the attributes that a sample of clause *rows* tests most often."""
    tests = tests_of(clauses, rows)
    counts = np.bincount(clauses.test_attributes[tests]) if len(tests) else np.zeros(0, np.int64)
    order = np.argsort(-counts, kind="stable")
    sources = order[counts[order] > 0][: GROUPS * FIELDS].astype(np.int32)
    knots = np.empty((len(sources), config.SCALE_KNOTS + 1))
    for field, source in enumerate(sources):
        own = tests[clauses.test_attributes[tests] == source]
        knots[field] = scale_of(np.concatenate([clauses.test_lows[own], clauses.test_highs[own]]))
    return Sketch(sources, knots)


def tests_of(clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of the tests of clause rows."""
    if not len(clauses.test_attributes):
        return np.empty(0, np.int64)
    starts, stops = clauses.test_offsets[rows], clauses.test_offsets[rows + 1]
    counts = stops - starts
    return np.repeat(stops - np.cumsum(counts), counts) + np.arange(counts.sum())


@kernel
def _cell(knots: NDArray[np.float64], field: int, value: float) -> int:
    return 1 + min(int(position(knots, field, value) * _CELLS), _CELLS - 1)


@kernel
def sketch_clauses(
    sketch: Sketch, clauses: Clauses, rows: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    """Write the first and the last cells of clause *rows* to *out* [rows, 4]: those of the first group come first."""
    sources, knots = sketch
    boxes, test_offsets = clauses.boxes, clauses.test_offsets
    attributes, lows, highs, flags = clauses[6:]
    for i in range(rows.size):
        for group in range(GROUPS):
            out[i, 2 * group], out[i, 2 * group + 1] = np.uint64(0), ~GUARDS  # any value, also none
        for field in range(sources.size):
            tested, low, high = clause_ends(
                sources[field], rows[i], boxes, test_offsets, attributes, lows, highs, flags
            )
            if tested:
                group, shift = field // FIELDS, np.uint64(8 * (field % FIELDS))
                out[i, 2 * group] |= np.uint64(_cell(knots, field, low)) << shift
                out[i, 2 * group + 1] ^= np.uint64(_ANY ^ _cell(knots, field, high)) << shift


@kernel
def sketch_values(
    sources: NDArray[np.int32], knots: NDArray[np.float64], values: NDArray[np.float64], p: int, group: int
) -> Any:
    """Return the cells of the values of message row *p*, as one word for a group."""
    word = np.uint64(0)
    for field in range(group * FIELDS, min((group + 1) * FIELDS, sources.size)):
        source = sources[field]
        if source < values.shape[1] and not np.isnan(values[p, source]):
            word |= np.uint64(_cell(knots, field, values[p, source])) << np.uint64(8 * (field % FIELDS))
    return word


@kernel
def sketch_stored(sketch: Sketch, stored: Stored, rows: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    """Write the cells of the values of stored probe *rows* to *out* [rows, 2], one word for each group."""
    sources, knots = sketch
    _, _, _, offsets, attributes, values, _ = stored
    for i in range(rows.size):
        for group in range(GROUPS):
            out[i, group] = np.uint64(0)
        for at in range(offsets[rows[i]], offsets[rows[i] + 1]):
            for field in range(sources.size):
                if sources[field] == attributes[at]:
                    cell = np.uint64(_cell(knots, field, values[at]))
                    out[i, field // FIELDS] |= cell << np.uint64(8 * (field % FIELDS))


@kernel
def passes(word: Any, first: Any, last: Any) -> Any:
    """Tell whether each byte of *word* lies between those of *first* and *last*; all are below 128."""
    return ((word | GUARDS) - first) & ((last | GUARDS) - word) & GUARDS == GUARDS
