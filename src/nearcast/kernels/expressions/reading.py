"""Turns tokens into a program: the grammar of :mod:`nearcast.language.reading`, without its errors.

Parts of the same kind are joined in one step, as ``AllOf`` and ``AnyOf`` flatten theirs: a conjunction that becomes a
part of another conjunction is dissolved, unless it is negated. The same holds for disjunctions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.expressions.program import (
    ALL_OF,
    ANY_OF,
    ANYTHING,
    MAX_BYTES,
    MAX_DEPTH,
    NOTHING,
    TEXT,
    Program,
    add_step,
    add_test_step,
    add_word_steps,
    attribute_number,
    clear,
    string_number,
)
from nearcast.kernels.expressions.scanning import (
    AND,
    CLOSE,
    COMMA,
    END,
    GREATER,
    GREATER_EQUAL,
    IN,
    LESS,
    LESS_EQUAL,
    NAME,
    NOT,
    NUMBER,
    OPEN,
    OR,
    STAR,
    STRING,
    UNEQUAL,
    WORD,
    next_token,
    number_value,
)
from nearcast.kernels.verify import HIGH_OPEN, LOW_OPEN, NEGATED

__all__ = ["read"]

# How the parts of an operand are joined at its top; _WRONG if the expression is left to Python.
_ALONE, _BY_AND, _BY_OR, _WRONG = range(4)
# The state of an open parenthesis: how many alternatives it has, how many parts the last of them has, how many NOTs
# stand before the next part, and whether NOTs outside negate it all.
_ALTERNATIVES, _PARTS, _NOTS, _NEGATED = range(4)


@kernel
def read(data: NDArray[np.uint8], start: int, stop: int, folds: NDArray[np.uint16], program: Program) -> bool:
    """Read the expression data[start:stop] into *program*; return False if it is left to Python."""
    clear(program)
    if stop - start > MAX_BYTES:
        return False
    program.end, program.stop = start, stop
    _take(data, folds, program)
    levels = program.levels
    levels[0] = 0
    level = depth = 0
    awaited = True  # whether a word, a test or a parenthesis must come next
    joint: Any = np.int64(_ALONE)  # of the last operand
    size: Any = np.int64(1)
    while True:
        here, kind = levels[level], program.kind
        if awaited and kind in (NOT, OPEN):
            depth += 1
            if depth > MAX_DEPTH:
                return False
            if kind == NOT:
                here[_NOTS] += 1
            else:
                level += 1
                levels[level] = 0
                levels[level, _NEGATED] = here[_NEGATED] ^ here[_NOTS] & 1
            _take(data, folds, program)
            continue
        if awaited:
            joint, size = _operand(data, folds, here[_NEGATED] ^ here[_NOTS] & 1, program)
            if joint == _WRONG:
                return False
        elif kind in (OR, CLOSE, END):
            joint, size = _end_conjunction(here, joint, size, program)
            if kind == OR:
                awaited = True
                _take(data, folds, program)
                continue
            if here[_ALTERNATIVES] > 1:
                joint, size = _BY_OR, here[_ALTERNATIVES]
                add_step(program, ALL_OF if here[_NEGATED] else ANY_OF, size)
            if kind == END or level == 0:
                return kind == END and level == 0
            level -= 1
            depth -= 1
            here = levels[level]
            _take(data, folds, program)
        else:
            # Parts side by side are joined by AND; what cannot be a part is refused as an operand.
            awaited = True
            if kind == AND:
                _take(data, folds, program)
            continue
        # An operand is complete: it becomes a part.
        if here[_NOTS] > 0:
            depth -= here[_NOTS]
            here[_NOTS] = 0
            joint, size = _ALONE, 1
        if joint == _BY_AND:
            program.step_count -= 1
        here[_PARTS] += size if joint == _BY_AND else 1
        awaited = False


@kernel
def _take(data: NDArray[np.uint8], folds: NDArray[np.uint16], program: Program) -> None:
    """Go on to the next token."""
    program.kind, program.begin, program.end = next_token(data, program.end, program.stop, folds)


@kernel
def _end_conjunction(here: NDArray[np.int64], joint: int, size: int, program: Program) -> Any:
    """Join the parts of the last alternative, given (joint, size) of its last part; return those of the result."""
    parts = here[_PARTS]
    here[_PARTS] = 0
    if parts > 1:
        add_step(program, ANY_OF if here[_NEGATED] else ALL_OF, parts)
        here[_ALTERNATIVES] += 1
        return _BY_AND, parts
    if joint == _BY_OR:
        program.step_count -= 1
    here[_ALTERNATIVES] += size if joint == _BY_OR else 1
    return joint, size


@kernel
def _operand(data: NDArray[np.uint8], folds: NDArray[np.uint16], negated: int, program: Program) -> Any:
    """Read words, a comparison or a star; return (joint, size)."""
    kind, begin, end = program.kind, program.begin, program.end
    if kind == STAR:
        add_step(program, NOTHING if negated else ANYTHING, 0)
        _take(data, folds, program)
        return _ALONE, 1
    if kind < WORD or kind > STRING:
        return _WRONG, 0
    _take(data, folds, program)
    if program.kind <= UNEQUAL:
        return _comparison(data, folds, kind, begin, end, negated, program)
    if kind in (WORD, NAME):
        excluded = 0
        if program.kind == NOT:
            after, _, after_end = next_token(data, program.end, program.stop, folds)
            if after == IN:
                excluded = 1
                program.kind, program.end = after, after_end
        if program.kind == IN:
            if kind != NAME:
                return _WRONG, 0
            name = attribute_number(data, begin, end, program)
            return _membership(data, folds, name, excluded, negated, program)
    if kind == NUMBER and not 48 <= data[begin] <= 57:  # a sign or a dot comes first, so it is not a word
        return _WRONG, 0
    size = add_word_steps(data, begin, end, folds, negated, program)
    if size > 1:
        add_step(program, ANY_OF if negated else ALL_OF, size)
        return _BY_AND, size
    return (_ALONE if size == 1 else _WRONG), size


@kernel
def _comparison(
    data: NDArray[np.uint8],
    folds: NDArray[np.uint16],
    kind: int,
    begin: int,
    end: int,
    negated: int,
    program: Program,
) -> Any:
    """Read a comparison from its sign on: ``name < value``, or ``number < name [< number]``.

    *kind*, *begin* and *end* are those of the token before the sign.
    """
    sign = program.kind
    _take(data, folds, program)
    if kind == NAME:
        name = attribute_number(data, begin, end, program)
        text, value = _value(data, program)
    elif kind == NUMBER and program.kind == NAME:
        name = attribute_number(data, program.begin, program.end, program)
        text, value = 0, number_value(data, begin, end)
        sign = sign ^ 1 if sign <= GREATER_EQUAL else sign
    else:
        return _WRONG, 0
    _take(data, folds, program)
    ordered = sign <= GREATER_EQUAL
    low, high, flags = value, value, text
    if program.kind <= UNEQUAL:  # a range between two numbers, with both signs in the same direction
        second = program.kind
        _take(data, folds, program)
        if kind != NUMBER or program.kind != NUMBER or not ordered:
            return _WRONG, 0
        bound = number_value(data, program.begin, program.end)
        _take(data, folds, program)
        if sign in (GREATER, GREATER_EQUAL) and second in (LESS, LESS_EQUAL):
            high = bound
        elif sign in (LESS, LESS_EQUAL) and second in (GREATER, GREATER_EQUAL):
            low = bound
        else:
            return _WRONG, 0
        flags |= LOW_OPEN if GREATER in (sign, second) else 0
        flags |= HIGH_OPEN if LESS in (sign, second) else 0
        if program.kind <= UNEQUAL or not (low < high or (low == high and flags == 0)):
            return _WRONG, 0
    elif sign in (LESS, LESS_EQUAL):
        low = -np.inf
        flags |= HIGH_OPEN if sign == LESS else 0
    elif ordered:
        high = np.inf
        flags |= LOW_OPEN if sign == GREATER else 0
    elif sign == UNEQUAL:
        flags |= NEGATED
    wrong = np.isnan(value) or (text and ordered)
    if wrong or not add_test_step(program, name, low, high, flags, negated):
        return _WRONG, 0
    return _ALONE, 1


@kernel
def _membership(
    data: NDArray[np.uint8],
    folds: NDArray[np.uint16],
    name: int,
    excluded: int,
    negated: int,
    program: Program,
) -> Any:
    """Read a list of values in parentheses, from IN on."""
    first = program.step_count
    _take(data, folds, program)
    if program.kind != OPEN:
        return _WRONG, 0
    while program.kind != CLOSE:
        _take(data, folds, program)
        text, value = _value(data, program)
        again = False
        for step in range(first, program.step_count):
            test = program.steps[step, 1]
            again |= program.test_lows[test] == value and program.test_flags[test] & TEXT == text
        if np.isnan(value) or not (
            again or add_test_step(program, name, value, value, text, negated ^ excluded)
        ):
            return _WRONG, 0
        _take(data, folds, program)
        if program.kind not in (COMMA, CLOSE):
            return _WRONG, 0
    _take(data, folds, program)
    size = program.step_count - first
    if size == 1:
        return _ALONE, 1
    add_step(program, ALL_OF if negated ^ excluded else ANY_OF, size)
    return (_ALONE if excluded else _BY_OR), size


@kernel
def _value(data: NDArray[np.uint8], program: Program) -> Any:
    """Return (TEXT, number of the string) or (0, number) of the token; with NaN if it is left to Python."""
    if program.kind == NUMBER:
        return 0, number_value(data, program.begin, program.end)
    if program.kind != STRING:
        return 0, np.nan
    string = string_number(data, program.begin + 1, program.end - 1, program)
    return TEXT, (np.nan if string < 0 else np.float64(string))
