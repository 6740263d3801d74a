"""Writes normal forms to blocks of clauses, whose words, names and values are still strings."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.expressions.normal_form import (
    MAX_CLAUSE_TESTS,
    MAX_CLAUSES,
    STACK,
    Stack,
    find_normal_form,
)
from nearcast.kernels.expressions.program import MAX_BYTES, MAX_WORDS, PROGRAM, TEXT, Program
from nearcast.kernels.expressions.reading import read

__all__ = ["BLOCK", "new_room", "read_expressions"]

# The sizes of a block; the clauses of any single expression fit.
_CLAUSES = max(16_384, MAX_CLAUSES)
_TESTS = max(16_384, MAX_CLAUSES * MAX_CLAUSE_TESTS)
_STRINGS = max(65_536, MAX_CLAUSES * MAX_WORDS, _TESTS)
_BYTES = max(1_048_576, MAX_CLAUSES * MAX_CLAUSE_TESTS * MAX_BYTES)

_STRING_LIST = np.dtype(
    [
        ("count", np.int64),
        ("filled", np.int64),  # bytes
        ("sizes", np.int64, _STRINGS),
        ("bytes", np.uint8, _BYTES),
    ],
    align=True,
)
BLOCK = np.dtype(
    [
        ("clauses", np.int64),  # how many
        ("keyword_counts", np.int64, _CLAUSES),
        ("forbidden_counts", np.int64, _CLAUSES),
        ("test_counts", np.int64, _CLAUSES),
        ("keywords", _STRING_LIST),
        ("forbidden", _STRING_LIST),
        ("test_names", _STRING_LIST),
        ("test_strings", _STRING_LIST),  # of the tests for a string, in their order
        ("test_lows", np.float64, _TESTS),
        ("test_highs", np.float64, _TESTS),
        ("test_flags", np.uint8, _TESTS),
    ],
    align=True,
)
_Block: TypeAlias = Any
_StringList: TypeAlias = Any

_ROOM = np.dtype([("program", PROGRAM), ("stack", STACK), ("block", BLOCK)], align=True)


def new_room() -> Any:
    """Return the working space of :func:`read_expressions`: one record, whose ``block`` receives the clauses."""
    return np.zeros(1, _ROOM).view(np.recarray)


@kernel
def read_expressions(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    first: int,
    folds: NDArray[np.uint16],
    room: Any,
    clause_counts: NDArray[np.int64],
) -> Any:
    """Write the clauses of expressions from *first* on to a block until it is full; return the next expression.

    The entry of *clause_counts* is 0 for an expression that is left to Python.
    """
    program, stack, block = room[0].program, room[0].stack, room[0].block
    block.clauses = 0
    for strings in (block.keywords, block.forbidden, block.test_names, block.test_strings):
        strings.count = strings.filled = 0
    for row in range(first, clause_counts.size):
        start, stop = offsets[row], offsets[row + 1]
        clauses = 0
        if read(data, start, stop, folds, program):
            clauses = find_normal_form(program, stack)
        if not _fits(block, stop - start, program, stack, clauses):
            return row
        for clause in range(clauses):
            _write_clause(block, data, program, stack, clause)
        clause_counts[row] = clauses
    return clause_counts.size


@kernel
def _fits(block: _Block, size: int, program: Program, stack: Stack, clauses: int) -> Any:
    """Tell whether there is room for the clauses of an expression of *size* bytes, however they repeat its parts."""
    words, tests = program.word_count, 0
    letters = program.word_offsets[words]
    for clause in range(clauses):
        tests += stack.test_counts[clause]
    return (
        block.clauses + clauses <= _CLAUSES
        and block.test_names.count + tests <= _TESTS
        and max(block.keywords.count, block.forbidden.count) + clauses * words <= _STRINGS
        and max(block.keywords.filled, block.forbidden.filled) + clauses * letters <= _BYTES
        and max(block.test_names.filled, block.test_strings.filled) + tests * size <= _BYTES
    )


@kernel
def _write_clause(
    block: _Block, data: NDArray[np.uint8], program: Program, stack: Stack, clause: int
) -> None:
    row = block.clauses
    block.clauses += 1
    block.keyword_counts[row] = _write_words(block.keywords, program, stack.keywords[clause])
    block.forbidden_counts[row] = _write_words(block.forbidden, program, stack.forbidden[clause])
    block.test_counts[row] = stack.test_counts[clause]
    for i in range(stack.test_counts[clause]):
        test, at = stack.tests[clause, i], block.test_names.count
        name, flags = program.test_names[test], program.test_flags[test]
        _write(block.test_names, data, program.names[name, 0], program.names[name, 1])
        if flags & TEXT:
            string = np.int64(program.test_lows[test])
            _write(block.test_strings, data, program.strings[string, 0], program.strings[string, 1])
        block.test_lows[at] = program.test_lows[test]
        block.test_highs[at] = program.test_highs[test]
        block.test_flags[at] = flags


@kernel
def _write_words(strings: _StringList, program: Program, words: int) -> Any:
    """Write the words whose bits are set; return how many."""
    count = word = 0
    while words:
        if words & 1:
            _write(strings, program.letters, program.word_offsets[word], program.word_offsets[word + 1])
            count += 1
        words >>= 1
        word += 1
    return count


@kernel
def _write(strings: _StringList, data: NDArray[np.uint8], begin: int, end: int) -> None:
    at = strings.filled
    for i in range(end - begin):
        strings.bytes[at + i] = data[begin + i]
    strings.sizes[strings.count] = end - begin
    strings.count += 1
    strings.filled = at + end - begin
