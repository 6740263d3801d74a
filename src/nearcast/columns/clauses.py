"""Clause rows: taken, compared, with all their offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.ragged import ragged_take
from nearcast.kernels.verify import Clauses

__all__ = ["concat_clauses", "distinct_conjunctions", "take_clauses", "with_offsets", "words_alone"]


def with_offsets(clauses: Clauses) -> Clauses:
    """Return clauses of which every ragged column has all offsets: an index leaves out those of an empty column."""
    n = len(clauses.keyword_offsets)

    def all_of(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        return offsets if len(offsets) == n else np.zeros(n, np.int64)

    return clauses._replace(
        forbidden_offsets=all_of(clauses.forbidden_offsets), test_offsets=all_of(clauses.test_offsets)
    )


def words_alone(clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which of the given clause rows have neither forbidden keywords nor tests."""
    alone = np.ones(len(rows), np.bool_)
    for offsets in (clauses.forbidden_offsets, clauses.test_offsets):
        if offsets[-1]:
            alone &= offsets[rows + 1] == offsets[rows]
    return alone


def take_clauses(clauses: Clauses, rows: NDArray[np.int64]) -> Clauses:
    """Return the given clause rows."""
    clauses = with_offsets(clauses)
    test_offsets, tests = ragged_take(clauses.test_offsets, np.arange(len(clauses.test_flags)), rows)
    return Clauses(
        clauses.boxes[rows]
        if len(clauses.boxes)
        else clauses.boxes,  # clauses of an expression have none yet
        *ragged_take(clauses.keyword_offsets, clauses.keywords, rows),
        *ragged_take(clauses.forbidden_offsets, clauses.forbidden, rows),
        test_offsets,
        clauses.test_attributes[tests],
        clauses.test_lows[tests],
        clauses.test_highs[tests],
        clauses.test_flags[tests],
    )


def concat_clauses(first: Clauses, second: Clauses) -> Clauses:
    """Return the clauses of both, one after the other; every ragged column must have all its offsets."""

    def joined(name: str) -> NDArray[Any]:
        a, b = getattr(first, name), getattr(second, name)
        return np.concatenate([a, b[1:] + a[-1]] if name.endswith("_offsets") else [a, b])

    return Clauses(*map(joined, Clauses._fields))


def distinct_conjunctions(clauses: Clauses, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return of the given clause rows the first of each conjunction: those of a region with two boxes come twice."""
    seen: dict[tuple[bytes, ...], int] = {}
    clauses = with_offsets(clauses)
    for row in rows.tolist():
        words = slice(*clauses.keyword_offsets[row : row + 2])
        forbidden = slice(*clauses.forbidden_offsets[row : row + 2])
        tests = slice(*clauses.test_offsets[row : row + 2])
        parts: list[NDArray[Any]] = [clauses.keywords[words], clauses.forbidden[forbidden]]
        parts += [column[tests] for column in clauses[6:]]
        seen.setdefault(tuple(part.tobytes() for part in parts), row)
    return np.array(list(seen.values()), np.int64)
