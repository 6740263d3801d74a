"""Turns the expressions of a table into clauses: the common kinds in bulk, the rest with the parser.

Each distinct expression is read once. The kernels report no errors, and skip whatever is unusual or large. Such an
expression goes through :func:`nearcast.language.parse`, whose errors name the row; so do all expressions of a table
that is too small to be worth compiling the kernels for. The clauses are the same either way.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config, language
from nearcast.columns.attributes import AttributeNames
from nearcast.columns.clause_rows import ClauseLists, code_clauses
from nearcast.columns.clauses import concat_clauses
from nearcast.columns.from_arrow.bulk import code_string_clauses, read_in_bulk
from nearcast.columns.from_arrow.source import Source
from nearcast.columns.ragged import offsets_of
from nearcast.columns.vocabulary import Vocabulary
from nearcast.errors import ColumnError
from nearcast.predicates import Clause

__all__ = ["expression_clauses"]


def expression_clauses(
    source: Source, vocabulary: Vocabulary, attributes: AttributeNames
) -> tuple[ClauseLists, NDArray[np.int64]]:
    """Return the clauses of each distinct expression, and which expression each row has.

    A row with a null has the last one, which has no clauses. Nothing gets a code before everything has been read.
    """
    column = _check_utf8(source.strings("expression")).dictionary_encode()
    for row in np.flatnonzero(column.is_null()) if column.null_count else ():
        missing = ColumnError(f"{source.name_of(row)} has no expression; write * for every message")
        source.refuse("expression", row, missing)
    distinct = column.dictionary
    numbers = column.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False).astype(np.int64)
    if len(distinct) < config.EXPRESSIONS_IN_BULK:
        parsed = _parse(source, distinct, np.arange(len(distinct)), numbers)
        return code_clauses([*parsed, ()], vocabulary, attributes), numbers
    clauses, counts = read_in_bulk(distinct)
    known, others = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    parsed = _parse(source, distinct.take(pa.array(others)), others, numbers)
    rest = code_clauses([*parsed, ()], vocabulary, attributes)
    lists = ClauseLists(
        offsets_of(np.concatenate([counts[known], np.diff(rest.offsets)])),
        concat_clauses([code_string_clauses(clauses, vocabulary, attributes), rest.clauses]),
    )
    place_of = np.empty(len(distinct) + 1, np.int64)
    place_of[np.concatenate([known, others, [len(distinct)]])] = np.arange(len(distinct) + 1)
    return lists, place_of[numbers]


def _check_utf8(column: pa.Array) -> pa.Array:
    """Return a column of strings; raise if some of its bytes are not UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ColumnError(f"expression must be text in UTF-8: {error}") from None
    return column


def _parse(
    source: Source, expressions: pa.Array, which: NDArray[np.int64], numbers: NDArray[np.int64]
) -> list[tuple[Clause, ...]]:
    """Return the clauses of each expression; none where it is refused.

    *which* has the number of each expression, *numbers* that of each row's expression.
    """

    def rows(number: np.int64) -> NDArray[np.int64]:
        return np.flatnonzero(numbers == number)

    return [
        source.at("expression", partial(rows, number), _clauses_of, expression) or ()
        for number, expression in zip(which, expressions.to_pylist())
    ]


def _clauses_of(expression: str) -> tuple[Clause, ...]:
    return language.parse(expression).clauses()
