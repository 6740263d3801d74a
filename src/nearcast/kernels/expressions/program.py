"""The program of an expression: the steps that build its normal form, operands first, and the words and tests in it.

``coffee (tea OR milk)`` is *need coffee, need tea, need milk, any of 2, all of 2*. Negation is pushed down to words and
tests as they are read, so a program has no step for it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.expressions.scanning import folded
from nearcast.kernels.verify import HIGH_OPEN, LOW_OPEN, NEGATED

__all__ = [
    "ALL_OF",
    "ANYTHING",
    "ANY_OF",
    "FORBID",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_TESTS",
    "MAX_WORDS",
    "NEED",
    "NOTHING",
    "PROGRAM",
    "TEST",
    "TEXT",
    "Program",
    "add_step",
    "add_test",
    "add_test_step",
    "add_word_steps",
    "attribute_number",
    "clear",
    "string_number",
]

# Anything larger is left to Python.
MAX_BYTES = 1_024  # of an expression
# A level here is at most two levels of the tree of an expression.
MAX_DEPTH = min(16, config.MAX_EXPRESSION_DEPTH // 4)
MAX_WORDS = 60  # distinct ones, because a set of words is the bits of one number
MAX_TESTS = 64
_MAX_STEPS = 2 * MAX_BYTES  # a word or a test has at least one byte, a joint at least two operands
_LONGEST = config.MAX_KEYWORD_CHARS

NEED, FORBID, TEST, ANYTHING, NOTHING, ALL_OF, ANY_OF = range(7)  # the steps
TEXT = 8  # a flag of a test, besides LOW_OPEN, HIGH_OPEN and NEGATED: its ends are the number of a string

# The working space for one expression after another. A record is passed as one pointer; a tuple of arrays is not.
PROGRAM = np.dtype(
    [
        ("step_count", np.int64),
        ("steps", np.int64, (_MAX_STEPS, 2)),  # the step; its word or test, or how many operands it has
        ("word_count", np.int64),
        ("word_offsets", np.int64, MAX_WORDS + 1),  # word w is letters[word_offsets[w]:word_offsets[w + 1]]
        ("letters", np.uint8, 2 * MAX_BYTES),  # UTF-8; a letter can fold to a longer one
        ("name_count", np.int64),
        ("names", np.int64, (MAX_TESTS, 2)),  # where the names of attributes begin and end in the text
        ("string_count", np.int64),
        ("strings", np.int64, (MAX_TESTS, 2)),  # where string values begin and end in the text
        ("test_count", np.int64),
        ("test_names", np.int64, MAX_TESTS),
        ("test_lows", np.float64, MAX_TESTS),
        ("test_highs", np.float64, MAX_TESTS),
        ("test_flags", np.int64, MAX_TESTS),
        # The state of the reader: the token, where the text ends, and the open parentheses.
        ("kind", np.int64),
        ("begin", np.int64),
        ("end", np.int64),
        ("stop", np.int64),
        ("levels", np.int64, (MAX_DEPTH + 1, 4)),
    ],
    align=True,
)
Program: TypeAlias = Any


@kernel
def clear(program: Program) -> None:
    """Forget everything."""
    program.step_count = program.word_count = program.name_count = program.string_count = 0
    program.test_count = program.word_offsets[0] = 0


@kernel
def add_step(program: Program, step: int, operand: int) -> None:
    """Add a step; there is always room."""
    program.steps[program.step_count, 0] = step
    program.steps[program.step_count, 1] = operand
    program.step_count += 1


# --- Words ---------------------------------------------------------------------------------------------------------
@kernel
def add_word_steps(
    data: NDArray[np.uint8], begin: int, end: int, folds: NDArray[np.uint16], negated: int, program: Program
) -> Any:
    """Add a step for each distinct keyword of a text; return how many, 0 if the text is left to Python."""
    first = program.step_count
    filled = program.word_offsets[program.word_count]
    chars = 0
    at = begin
    while at <= end:
        fold, size = folded(data, at, end, folds) if at < end else (np.int64(0), 1)
        if fold:
            filled = _write_letter(program.letters, filled, fold)
            chars += 1
        elif at < end and data[at] > 127:
            return 0
        elif chars:
            word = _word_number(program, filled)
            if word < 0 or chars > _LONGEST:
                return 0
            again = False
            for step in range(first, program.step_count):
                again |= program.steps[step, 1] == word
            if not again:
                add_step(program, FORBID if negated else NEED, word)
            filled = program.word_offsets[program.word_count]
            chars = 0
        at += size
    return program.step_count - first


@kernel
def _write_letter(letters: NDArray[np.uint8], at: int, char: Any) -> Any:
    """Write a character as UTF-8; return where the next one goes."""
    if char < 0x80:
        letters[at] = char
        return at + 1
    if char < 0x800:
        letters[at] = 0xC0 | char >> 6
        letters[at + 1] = 0x80 | char & 0x3F
        return at + 2
    letters[at] = 0xE0 | char >> 12
    letters[at + 1] = 0x80 | char >> 6 & 0x3F
    letters[at + 2] = 0x80 | char & 0x3F
    return at + 3


@kernel
def _word_number(program: Program, end: int) -> Any:
    """Return the number of the last word, whose letters end at *end*; a new word is added. -1 if there is no room."""
    letters, offsets, count = program.letters, program.word_offsets, program.word_count
    for word in range(count):
        if _same(letters, offsets[word], offsets[word + 1], offsets[count], end):
            return word
    if count == MAX_WORDS:
        return np.int64(-1)
    offsets[count + 1] = end
    program.word_count += 1
    return count


# --- Tests ---------------------------------------------------------------------------------------------------------
@kernel
def attribute_number(data: NDArray[np.uint8], begin: int, end: int, program: Program) -> Any:
    """Return the number of the attribute that is named data[begin:end]; -1 if there is no room."""
    if end - begin > _LONGEST:
        return np.int64(-1)
    number = _find_span(data, begin, end, program.names, program.name_count)
    program.name_count += number == program.name_count
    return number


@kernel
def string_number(data: NDArray[np.uint8], begin: int, end: int, program: Program) -> Any:
    """Return the number of the value data[begin:end]; -1 if there is no room."""
    number = _find_span(data, begin, end, program.strings, program.string_count)
    program.string_count += number == program.string_count
    return number


@kernel
def _find_span(data: NDArray[np.uint8], begin: int, end: int, spans: NDArray[np.int64], count: int) -> Any:
    """Return which of *count* spans equals data[begin:end]; if none does, it is added. -1 if there is no room."""
    for i in range(count):
        if _same(data, spans[i, 0], spans[i, 1], begin, end):
            return i
    if count == len(spans):
        return np.int64(-1)
    spans[count, 0], spans[count, 1] = begin, end
    return count


@kernel
def add_test_step(program: Program, name: int, low: float, high: float, flags: int, negated: int) -> Any:
    """Add a test or its negation; a negated range without a lower or upper bound is the range on its other side.

    Return False if there is no room.
    """
    if negated:
        flags ^= NEGATED
    if flags & NEGATED and low == -np.inf:
        low, high, flags = high, np.inf, (0 if flags & HIGH_OPEN else LOW_OPEN)
    elif flags & NEGATED and high == np.inf:
        low, high, flags = -np.inf, low, (0 if flags & LOW_OPEN else HIGH_OPEN)
    test = -1 if name < 0 else add_test(program, name, low, high, flags)
    if test >= 0:
        add_step(program, TEST, test)
    return test >= 0


@kernel
def add_test(program: Program, name: int, low: float, high: float, flags: int) -> Any:
    """Keep a test; return its number, -1 if there is no room."""
    test = program.test_count
    if test == MAX_TESTS:
        return np.int64(-1)
    program.test_names[test] = name
    program.test_lows[test] = low
    program.test_highs[test] = high
    program.test_flags[test] = flags
    program.test_count += 1
    return test


@kernel
def _same(data: NDArray[np.uint8], a: int, a_end: int, b: int, b_end: int) -> bool:
    """Tell whether data[a:a_end] and data[b:b_end] are equal."""
    if a_end - a != b_end - b:
        return False
    while a < a_end and data[a] == data[b]:
        a += 1
        b += 1
    return a == a_end
