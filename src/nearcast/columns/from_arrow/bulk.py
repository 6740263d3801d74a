"""Reads a column of expressions in bulk, with the kernels of :mod:`nearcast.kernels.expressions`, and codes it."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import text
from nearcast.columns.attributes import AttributeNames
from nearcast.columns.clauses import clauses_from_csr
from nearcast.columns.ragged import code_sets, offsets_of
from nearcast.columns.vocabulary import Vocabulary, string_buffers
from nearcast.kernels.expressions.program import TEXT
from nearcast.kernels.expressions.writing import new_room, read_expressions
from nearcast.kernels.verify import Clauses

__all__ = ["StringClauses", "code_string_clauses", "read_in_bulk"]


class StringClauses(NamedTuple):
    """Clauses of strings, not yet coded: how many words and tests each has, and all of them one after the other."""

    keyword_counts: NDArray[np.int64]
    keyword_sizes: NDArray[np.int64]
    keyword_bytes: NDArray[np.uint8]
    forbidden_counts: NDArray[np.int64]
    forbidden_sizes: NDArray[np.int64]
    forbidden_bytes: NDArray[np.uint8]
    test_counts: NDArray[np.int64]
    name_sizes: NDArray[np.int64]  # of the attribute of each test
    name_bytes: NDArray[np.uint8]
    string_sizes: NDArray[np.int64]  # of the tests for a string, whose lows and highs mean nothing
    string_bytes: NDArray[np.uint8]
    test_lows: NDArray[np.float64]
    test_highs: NDArray[np.float64]
    test_flags: NDArray[np.uint8]


def read_in_bulk(expressions: pa.Array) -> tuple[StringClauses, NDArray[np.int64]]:
    """Return the clauses of expressions, and how many each has; 0 where it is left to the parser."""
    counts = np.zeros(len(expressions), np.int64)
    room = new_room()
    blocks = [_copy(room[0].block)]  # without clauses yet, so that there is a block in any case
    data, offsets, _ = string_buffers(expressions)
    done = 0
    while done < len(expressions):
        done = read_expressions(data, offsets, done, _folds(), room, counts)
        blocks.append(_copy(room[0].block))
    return StringClauses(*map(np.concatenate, zip(*blocks))), counts


@cache
def _folds() -> NDArray[np.uint16]:
    return np.frombuffer(text.letter_folds(), np.uint16)


def _copy(block: Any) -> StringClauses:
    """Return a copy of the clauses of a block."""
    n, t = block.clauses, block.test_names.count

    def strings(column: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        return column.sizes[: column.count].copy(), column.bytes[: column.filled].copy()

    return StringClauses(
        block.keyword_counts[:n].copy(),
        *strings(block.keywords),
        block.forbidden_counts[:n].copy(),
        *strings(block.forbidden),
        block.test_counts[:n].copy(),
        *strings(block.test_names),
        *strings(block.test_strings),
        block.test_lows[:t].copy(),
        block.test_highs[:t].copy(),
        block.test_flags[:t].copy(),
    )


def code_string_clauses(
    clauses: StringClauses, vocabulary: Vocabulary, attributes: AttributeNames
) -> Clauses:
    """Code the strings of clauses; new words and attributes get codes."""
    n = len(clauses.test_counts)
    texts = clauses.test_flags & TEXT != 0
    lows, highs = clauses.test_lows.copy(), clauses.test_highs.copy()
    lows[texts] = highs[texts] = attributes.strings.add(_to_arrow(clauses.string_sizes, clauses.string_bytes))
    keywords = vocabulary.add(_to_arrow(clauses.keyword_sizes, clauses.keyword_bytes))
    forbidden = vocabulary.add(_to_arrow(clauses.forbidden_sizes, clauses.forbidden_bytes))
    return clauses_from_csr(
        np.empty((0, 4)),
        *code_sets(offsets_of(clauses.keyword_counts), keywords, n, "keyword"),
        *code_sets(offsets_of(clauses.forbidden_counts), forbidden, n, "forbidden"),
        offsets_of(clauses.test_counts),
        _attribute_numbers(_to_arrow(clauses.name_sizes, clauses.name_bytes), texts, attributes),
        lows,
        highs,
        clauses.test_flags & ~np.uint8(TEXT),
    )


def _attribute_numbers(
    names: pa.Array, texts: NDArray[np.bool_], attributes: AttributeNames
) -> NDArray[np.int32]:
    """Return the column of each test's attribute; new attributes are added in the order of their appearance."""
    local = Vocabulary()
    keys = 2 * local.add(names).astype(np.int64) + texts
    distinct, first, which = np.unique(keys, return_index=True, return_inverse=True)
    known = list(local)
    numbers = np.empty(len(distinct), np.int32)
    for i in np.argsort(first):
        numbers[i] = attributes.add(known[distinct[i] // 2], text=bool(distinct[i] % 2))
    return numbers[which]


def _to_arrow(sizes: NDArray[np.int64], data: NDArray[np.uint8]) -> pa.Array:
    return pa.LargeStringArray.from_buffers(len(sizes), pa.py_buffer(offsets_of(sizes)), pa.py_buffer(data))
