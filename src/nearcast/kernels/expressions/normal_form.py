"""Turns a program into its normal form, as :mod:`nearcast.predicates.normal_form` does; sets of words are bits here.

Lists of clauses are on a stack. A word or a test pushes a list of one clause; *all of* and *any of* replace their
operands by one list, built where the operands were. Each function here is the twin of one there, and does the same in
the same order.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.expressions.program import (
    ALL_OF,
    ANY_OF,
    FORBID,
    MAX_BYTES,
    MAX_WORDS,
    NEED,
    NOTHING,
    TEST,
    TEXT,
    Program,
    add_test,
)
from nearcast.kernels.verify import HIGH_OPEN, LOW_OPEN, NEGATED

__all__ = ["MAX_CLAUSES", "MAX_CLAUSE_TESTS", "STACK", "Stack", "find_normal_form"]

MAX_CLAUSES = config.MAX_CLAUSES
MAX_CLAUSE_TESTS = 16
# How many pairs of clauses may be multiplied out: so few that Python's own limit on the work is never reached.
_MAX_PAIRS = config.MAX_NORMAL_FORM_WORK // (2 * (MAX_WORDS + MAX_CLAUSE_TESTS) + MAX_CLAUSES)
# The clauses needed above the top of the stack: those being multiplied, the product, and one more.
_ABOVE = 2 * MAX_CLAUSES + 1
_ROOM = 4 * _ABOVE  # clauses in all
_GATHERED = 4 * MAX_CLAUSE_TESTS  # tests of all clauses that are merged at once

# Lists of clauses, which refer to the words and tests of a program.
STACK = np.dtype(
    [
        ("keywords", np.int64, _ROOM),  # a bit for each word
        ("forbidden", np.int64, _ROOM),
        ("test_counts", np.int64, _ROOM),
        ("tests", np.int64, (_ROOM, MAX_CLAUSE_TESTS)),
        ("starts", np.int64, MAX_BYTES + 1),  # of each list
        ("gathered", np.int64, _GATHERED),  # the tests of the clause that is being made
    ],
    align=True,
)
Stack: TypeAlias = Any


@kernel
def find_normal_form(program: Program, stack: Stack) -> Any:
    """Write the clauses to the beginning of the stack; return how many, 0 if they are left to Python."""
    starts = stack.starts
    starts[0] = 0
    # A plain 0 is a constant to Numba, and the functions that take it would be compiled twice.
    lists: Any = np.int64(0)
    top = pairs = lists
    for at in range(program.step_count):
        step, operand = program.steps[at, 0], program.steps[at, 1]
        if top + _ABOVE > _ROOM:
            return 0
        if step in (ALL_OF, ANY_OF):
            lists -= operand
            if step == ANY_OF:
                top = _disjunction(starts[lists], top, program, stack)
            else:
                top, pairs = _conjunction(lists, operand, top, pairs, program, stack)
            if top < 0:
                return 0
        elif step != NOTHING:
            _clear(stack, top)
            if step == NEED:
                stack.keywords[top] = 1 << operand
            elif step == FORBID:
                stack.forbidden[top] = 1 << operand
            elif step == TEST:
                stack.tests[top, 0] = operand
                stack.test_counts[top] = 1
            top += 1
        lists += 1
        starts[lists] = top
    return top


@kernel
def _disjunction(begin: int, end: int, program: Program, stack: Stack) -> Any:
    """Reduce the clauses begin:end to those that no other makes redundant; return the new end, -1 if too many."""
    kept = begin
    for clause in range(begin, end):
        kept = _add(stack, begin, kept, clause, program)
        if kept < 0:
            break
    return kept


@kernel
def _conjunction(lists: int, size: int, top: int, pairs: int, program: Program, stack: Stack) -> Any:
    """Multiply out *size* lists of clauses from list *lists* on; return (new end or -1 if too many, pairs so far)."""
    starts = stack.starts
    # Lists of one clause are merged in one go; only real alternatives multiply.
    if not _gather(stack, top, lists, size):
        return -1, pairs
    kept = top + _simplify(program, stack, top)
    if kept < top:
        return -1, pairs
    for part in range(lists, lists + size):
        if starts[part + 1] - starts[part] == 1:
            continue
        product = kept
        for left in range(top, kept):
            for right in range(starts[part], starts[part + 1]):
                pairs += 1
                merged = _merge(stack, left, right, product, program)
                if merged < 0 or pairs > _MAX_PAIRS:
                    return -1, pairs
                if merged:
                    product = _add(stack, kept, product, product, program)
                    if product < 0:
                        return -1, pairs
        _move(stack, kept, product, top)
        kept = top + product - kept
    _move(stack, top, kept, starts[lists])
    return starts[lists] + kept - top, pairs


@kernel
def _add(stack: Stack, begin: int, end: int, clause: int, program: Program) -> Any:
    """Add *clause* to begin:end unless one of these makes it redundant, and drop those that it makes redundant.

    Return the new end, -1 if there are too many. The clause is at *end* or after it.
    """
    for other in range(begin, end):
        if _implies(stack, clause, other, program):
            return end
    kept = begin
    for other in range(begin, end):
        if not _implies(stack, other, clause, program):
            _copy(stack, other, kept)
            kept += 1
    _copy(stack, clause, kept)
    return kept + 1 if kept + 1 - begin <= MAX_CLAUSES else -1


@kernel
def _implies(stack: Stack, clause: int, other: int, program: Program) -> Any:
    """Tell whether every message that matches *clause* is known to match *other* too."""
    if stack.keywords[other] & ~stack.keywords[clause] or stack.forbidden[other] & ~stack.forbidden[clause]:
        return False
    for j in range(stack.test_counts[other]):
        theirs = stack.tests[other, j]
        found = False
        for i in range(stack.test_counts[clause]):
            mine = stack.tests[clause, i]
            if program.test_names[mine] == program.test_names[theirs] and _narrower(program, mine, theirs):
                found = True
                break
        if not found:
            return False
    return True


# --- Merging -------------------------------------------------------------------------------------------------------
@kernel
def _gather(stack: Stack, to: int, lists: int, size: int) -> Any:
    """Unite the clauses of all lists of one clause as the clause *to*; return False if there are too many tests.

    Its tests are in ``gathered``, still to be simplified.
    """
    _clear(stack, to)
    for part in range(lists, lists + size):
        clause = stack.starts[part]
        if stack.starts[part + 1] - clause == 1 and not _gather_one(stack, clause, to):
            return False
    return True


@kernel
def _gather_one(stack: Stack, clause: int, to: int) -> Any:
    """Unite a clause with the clause *to*, whose tests are in ``gathered``; return False if there are too many."""
    stack.keywords[to] |= stack.keywords[clause]
    stack.forbidden[to] |= stack.forbidden[clause]
    count = stack.test_counts[to]
    if count + stack.test_counts[clause] > _GATHERED:
        return False
    for i in range(stack.test_counts[clause]):
        stack.gathered[count + i] = stack.tests[clause, i]
    stack.test_counts[to] = count + stack.test_counts[clause]
    return True


@kernel
def _merge(stack: Stack, left: int, right: int, to: int, program: Program) -> Any:
    """Write the conjunction of two clauses; return 1, 0 if they contradict each other, -1 if it has too many tests."""
    _clear(stack, to)
    if not (_gather_one(stack, left, to) and _gather_one(stack, right, to)):
        return -1
    return _simplify(program, stack, to)


@kernel
def _simplify(program: Program, stack: Stack, to: int) -> Any:
    """Simplify the gathered tests of the clause *to*, one attribute at a time in the order of appearance.

    Return 1, 0 if the clause contradicts itself, -1 if it has too many tests.
    """
    if stack.keywords[to] & stack.forbidden[to]:
        return 0
    gathered, count = stack.gathered, stack.test_counts[to]
    stack.test_counts[to] = 0
    for i in range(count):
        name = program.test_names[gathered[i]]
        before = same = 0
        for j in range(count):
            if program.test_names[gathered[j]] == name:
                same += 1
                before += j < i
        if before:
            continue
        if same == 1:
            if not _keep_test(stack, to, gathered[i]):
                return -1
            continue
        found = _simplify_attribute(program, stack, to, i, count)
        if found != 1:
            return found
    return 1


@kernel
def _simplify_attribute(program: Program, stack: Stack, to: int, first: int, count: int) -> Any:
    """Simplify the gathered tests first:count of the attribute of *first*; return what :func:`_simplify` does."""
    names, flags, gathered = program.test_names, program.test_flags, stack.gathered
    name, text = names[gathered[first]], flags[gathered[first]] & TEXT
    within: Any = np.int64(-1)
    for i in range(first, count):
        test = gathered[i]
        if names[test] != name:
            continue
        if flags[test] & TEXT != text:
            return 0  # a value is a number or a string, never both
        if not flags[test] & NEGATED:
            if within >= 0:
                if not _meet(program, within, test):
                    return 0
                test = _intersection(program, within, test)
                if test < 0:
                    return -1
            within = test
    if within >= 0:
        for i in range(first, count):
            hole = gathered[i]
            if names[hole] == name and flags[hole] & NEGATED and _covers(program, hole, within):
                return 0
        if not _keep_test(stack, to, within):
            return -1
    begin = stack.test_counts[to]
    for i in range(first, count):
        hole = gathered[i]
        if names[hole] != name or not flags[hole] & NEGATED:
            continue
        needed = within < 0 or _meet(program, within, hole)
        for j in range(begin, stack.test_counts[to]):
            needed &= not _equal(program, stack.tests[to, j], hole)
        if needed and not _keep_test(stack, to, hole):
            return -1
    return 1


@kernel
def _keep_test(stack: Stack, clause: int, test: int) -> Any:
    count = stack.test_counts[clause]
    if count == MAX_CLAUSE_TESTS:
        return False
    stack.tests[clause, count] = test
    stack.test_counts[clause] = count + 1
    return True


# --- Intervals (negation aside, as in ``Interval``; strings are numbered, so that only equal ones meet) -------------
@kernel
def _narrower(program: Program, mine: int, other: int) -> Any:
    """Tell whether every value that *mine* accepts is accepted by *other*."""
    my_flags, other_flags = program.test_flags[mine], program.test_flags[other]
    if my_flags & TEXT != other_flags & TEXT:
        return False
    if my_flags & NEGATED:
        return other_flags & NEGATED != 0 and _covers(program, mine, other)
    return not _meet(program, mine, other) if other_flags & NEGATED else _covers(program, other, mine)


@kernel
def _covers(program: Program, a: int, b: int) -> Any:
    lows, highs, flags = program.test_lows, program.test_highs, program.test_flags
    return (lows[a] < lows[b] or (lows[a] == lows[b] and flags[a] & LOW_OPEN <= flags[b] & LOW_OPEN)) and (
        highs[a] > highs[b] or (highs[a] == highs[b] and flags[a] & HIGH_OPEN <= flags[b] & HIGH_OPEN)
    )


@kernel
def _meet(program: Program, a: int, b: int) -> Any:
    low, high, flags = _common(program, a, b)
    return low < high or (low == high and flags & (LOW_OPEN | HIGH_OPEN) == 0)


@kernel
def _intersection(program: Program, a: int, b: int) -> Any:
    """Return the test for the intersection of two ranges; -1 if there is no room for it."""
    low, high, flags = _common(program, a, b)
    return add_test(program, program.test_names[a], low, high, flags)


@kernel
def _common(program: Program, a: int, b: int) -> Any:
    """Return (low, high, flags) of the intersection of two ranges; low is above high if it is empty."""
    lows, highs, flags = program.test_lows, program.test_highs, program.test_flags
    low, low_open = lows[a], flags[a] & LOW_OPEN
    if lows[b] > low or (lows[b] == low and flags[b] & LOW_OPEN):
        low, low_open = lows[b], flags[b] & LOW_OPEN
    high, high_open = highs[a], flags[a] & HIGH_OPEN
    if highs[b] < high or (highs[b] == high and flags[b] & HIGH_OPEN):
        high, high_open = highs[b], flags[b] & HIGH_OPEN
    return low, high, low_open | high_open | flags[a] & TEXT


@kernel
def _equal(program: Program, a: int, b: int) -> Any:
    return (
        program.test_lows[a] == program.test_lows[b]
        and program.test_highs[a] == program.test_highs[b]
        and program.test_flags[a] == program.test_flags[b]
    )


# --- Rows of the stack ---------------------------------------------------------------------------------------------
@kernel
def _clear(stack: Stack, clause: int) -> None:
    stack.keywords[clause] = stack.forbidden[clause] = stack.test_counts[clause] = 0


@kernel
def _copy(stack: Stack, clause: int, to: int) -> None:
    if clause == to:
        return
    stack.keywords[to] = stack.keywords[clause]
    stack.forbidden[to] = stack.forbidden[clause]
    stack.test_counts[to] = stack.test_counts[clause]
    for i in range(stack.test_counts[clause]):
        stack.tests[to, i] = stack.tests[clause, i]


@kernel
def _move(stack: Stack, begin: int, end: int, to: int) -> None:
    """Copy the clauses begin:end down to *to*."""
    for i in range(end - begin):
        _copy(stack, begin + i, to + i)
