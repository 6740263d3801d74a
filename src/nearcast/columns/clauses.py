"""Operations on clause rows: build them from CSR columns, take some, concatenate, compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.ragged import offsets_of, runs_of, runs_take
from nearcast.kernels.verify import Clauses

__all__ = [
    "clauses_from_csr",
    "concat_clauses",
    "distinct_conjunctions",
    "keyword_offsets",
    "take_clauses",
    "words_alone",
]


def clauses_from_csr(
    boxes: NDArray[np.float64],
    keyword_offsets: NDArray[np.int64],
    keywords: NDArray[np.int32],
    forbidden_offsets: NDArray[np.int64],
    forbidden: NDArray[np.int32],
    test_offsets: NDArray[Any],
    *tests: NDArray[Any],
) -> Clauses:
    """Build clauses from ragged columns that are given as (offsets, values)."""
    return Clauses(
        boxes,
        runs_of(keyword_offsets),
        keywords,
        runs_of(forbidden_offsets),
        forbidden,
        runs_of(test_offsets),
        *tests,
    )


def keyword_offsets(clauses: Clauses) -> NDArray[np.int64]:
    """Return where the keywords of each clause of a table begin; in a table they are in the order of the rows."""
    return offsets_of(clauses.keyword_runs[:, 1] - clauses.keyword_runs[:, 0])


def words_alone(clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which of the given clause rows have neither forbidden keywords nor tests."""
    alone = np.ones(len(rows), np.bool_)
    for runs in (clauses.forbidden_runs, clauses.test_runs):
        if len(runs):
            alone &= runs[rows, 1] == runs[rows, 0]
    return alone


def take_clauses(clauses: Clauses, rows: NDArray[np.int64]) -> Clauses:
    """Return the given clause rows, with their values in the order of the rows."""
    runs = clauses.test_runs[rows] if len(clauses.test_runs) else np.zeros((len(rows), 2), np.int32)
    test_offsets = offsets_of(runs[:, 1] - runs[:, 0])
    tests = np.arange(test_offsets[-1]) + np.repeat(runs[:, 0] - test_offsets[:-1], np.diff(test_offsets))
    return clauses_from_csr(
        # The clauses of an expression have no boxes yet.
        clauses.boxes[rows] if len(clauses.boxes) else clauses.boxes,
        *runs_take(clauses.keyword_runs, clauses.keywords, rows),
        *_take_runs(clauses.forbidden_runs, clauses.forbidden, rows),
        test_offsets,
        clauses.test_attributes[tests],
        clauses.test_lows[tests],
        clauses.test_highs[tests],
        clauses.test_flags[tests],
    )


def _take_runs(
    runs: NDArray[np.int32], values: NDArray[Any], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return (offsets, values) of the given rows; a store leaves out the runs of a column that is empty."""
    if not len(runs):
        return np.zeros(len(rows) + 1, np.int64), values[:0]
    return runs_take(runs, values, rows)


def concat_clauses(parts: Sequence[Clauses]) -> Clauses:
    """Return the clauses of all parts, one after the other; each part has all its columns."""
    values = {"keyword_runs": "keywords", "forbidden_runs": "forbidden", "test_runs": "test_attributes"}

    def concatenate(name: str) -> NDArray[Any]:
        arrays = [getattr(part, name) for part in parts]
        if name in values:
            begins = offsets_of(np.array([len(getattr(part, values[name])) for part in parts]))[:-1]
            arrays = [array + np.int32(begin) for array, begin in zip(arrays, begins)]
        return np.concatenate(arrays)

    return Clauses(*map(concatenate, Clauses._fields))


def distinct_conjunctions(clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first of the given clause rows for each conjunction; a region of two boxes has each of them twice."""
    first_rows: dict[tuple[bytes, ...], int] = {}
    taken = take_clauses(clauses, rows)
    for i, row in enumerate(rows.tolist()):
        words, forbidden, tests = (
            slice(*runs[i].tolist()) for runs in (taken.keyword_runs, taken.forbidden_runs, taken.test_runs)
        )
        parts: list[NDArray[Any]] = [taken.keywords[words], taken.forbidden[forbidden]]
        parts += [column[tests] for column in taken[6:]]
        first_rows.setdefault(tuple(part.tobytes() for part in parts), row)
    return np.array(list(first_rows.values()), np.int64)
