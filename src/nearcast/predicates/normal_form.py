"""The normal form of an expression: a disjunction of clauses, found in bounded time.

Negation is pushed down to the leaves (a negated test is a test with a negated interval), and conjunctions are
multiplied out. Along the way contradictions, duplicates and clauses that another clause makes redundant are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

from nearcast import config
from nearcast.errors import ExpressionError
from nearcast.predicates import AllOf, AnyOf, Clause, Expression, Interval, Not, Test, Word

__all__ = ["normal_form"]

# A clause in the making: keywords, forbidden keywords, tests, and the attributes of the tests.
_Parts: TypeAlias = tuple[frozenset[str], frozenset[str], tuple[Test, ...], frozenset[str]]
_NONE: frozenset[str] = frozenset()


def normal_form(expression: Expression, limit: int) -> tuple[Clause, ...]:
    """Return the clauses of *expression*, in its order; see :meth:`Expression.clauses`."""
    found = _normal(expression, False, _Budget(limit))
    if not found:
        raise ExpressionError(
            "the expression can never match: every alternative contradicts itself, as a NOT a does"
        )
    return tuple([Clause(keywords, forbidden, tests) for keywords, forbidden, tests, _ in found])


class _Budget:
    """The limits on the number of clauses and on the work of finding them; they bound the time for any expression."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.work = config.MAX_NORMAL_FORM_WORK

    def spend(self, work: int) -> None:
        self.work -= work
        if self.work < 0:
            raise self.exceeded()

    def exceeded(self) -> ExpressionError:
        return ExpressionError(
            f"the normal form of the expression goes over the limit of {self.limit} clauses (config.MAX_CLAUSES); "
            "split it into several subscriptions"
        )


def _normal(expression: Expression, negated: bool, budget: _Budget) -> list[_Parts]:
    """Return the clauses of *expression*, or of its negation; an empty list if that can never be true."""
    if isinstance(expression, Word):
        only = frozenset((expression.keyword,))
        return [(_NONE, only, (), _NONE) if negated else (only, _NONE, (), _NONE)]
    if isinstance(expression, Not):
        return _normal(expression.part, not negated, budget)
    if isinstance(expression, AllOf | AnyOf):
        parts = [_normal(part, negated, budget) for part in expression.parts]
        conjunction = isinstance(expression, AllOf) != negated
        return _conjunction(parts, budget) if conjunction else _disjunction(parts, budget)
    if isinstance(expression, Test):
        test = ~expression if negated else expression
        interval = test.interval._positive()
        if interval.negated and interval.low == -math.inf:
            return []  # nothing is outside an unbounded interval
        return [(_NONE, _NONE, (Test(test.attribute, interval),), frozenset((test.attribute,)))]
    return [] if negated else [(_NONE, _NONE, (), _NONE)]


def _disjunction(parts: Iterable[Iterable[_Parts]], budget: _Budget) -> list[_Parts]:
    kept: list[_Parts] = []
    for part in parts:
        for clause in part:
            _add(kept, clause, budget)
    return kept


def _conjunction(parts: list[list[_Parts]], budget: _Budget) -> list[_Parts]:
    # Parts with a single clause are merged first; only real alternatives multiply.
    common = _merged([part[0] for part in parts if len(part) == 1])
    kept = [] if common is None else [common]
    for part in parts:
        if len(part) == 1:
            continue
        product: list[_Parts] = []
        for left in kept:
            for right in part:
                budget.spend(_size(left) + _size(right) + len(product))
                if (clause := _merged([left, right])) is not None:
                    _add(product, clause, budget)
        kept = product
    return kept


def _size(clause: _Parts) -> int:
    keywords, forbidden, tests, _ = clause
    return len(keywords) + len(forbidden) + len(tests)


def _add(kept: list[_Parts], clause: _Parts, budget: _Budget) -> None:
    """Add *clause* unless one of *kept* makes it redundant, and drop those that it makes redundant."""
    for other in kept:
        if _implies(clause, other):
            return
    kept[:] = [other for other in kept if not _implies(other, clause)]
    kept.append(clause)
    if len(kept) > budget.limit:
        raise budget.exceeded()


def _implies(clause: _Parts, other: _Parts) -> bool:
    """Return whether every message that matches *clause* provably matches *other*, too."""
    keywords, forbidden, tests, attributes = clause
    other_keywords, other_forbidden, other_tests, other_attributes = other
    if not (other_keywords <= keywords and other_forbidden <= forbidden and other_attributes <= attributes):
        return False
    if not other_tests:
        return True
    mine: dict[str, set[Interval]] = {}
    for test in tests:
        mine.setdefault(test.attribute, set()).add(test.interval)
    return all(
        test.interval in (intervals := mine[test.attribute])
        or any(_narrower(interval, test.interval) for interval in intervals)
        for test in other_tests
    )


def _narrower(mine: Interval, other: Interval) -> bool:
    """Return whether every value that *mine* accepts is accepted by *other*."""
    if mine.textual != other.textual:
        return False
    if mine.negated:
        return mine._covers(other) if other.negated else other.low == -math.inf and other.high == math.inf
    return mine._intersection(other) is None if other.negated else other._covers(mine)


def _merged(clauses: list[_Parts]) -> _Parts | None:
    """Return the conjunction of several clauses as one with simplified tests, ``None`` if it is contradictory."""
    keywords = _NONE.union(*[clause[0] for clause in clauses])
    forbidden = _NONE.union(*[clause[1] for clause in clauses])
    if not keywords.isdisjoint(forbidden):
        return None
    tests = [test for clause in clauses for test in clause[2]]
    if not tests:
        return keywords, forbidden, (), _NONE
    simplified = _simplified(tests)
    if simplified is None:
        return None
    return keywords, forbidden, tuple(simplified), _NONE.union(*[clause[3] for clause in clauses])


def _simplified(tests: list[Test]) -> list[Test] | None:
    """Return fewer tests that accept the same values, or ``None`` if no values satisfy all of them."""
    by_attribute: dict[str, list[Test]] = {}
    for test in tests:
        by_attribute.setdefault(test.attribute, []).append(test)
    found: list[Test] = []
    for name, same in by_attribute.items():
        if len(same) > 1:
            intervals = _common([test.interval for test in same])
            if intervals is None:
                return None
            same = [Test(name, interval) for interval in intervals]
        found += same
    return found


def _common(intervals: list[Interval]) -> list[Interval] | None:
    """Return fewer intervals that accept the same values, or ``None`` if no value satisfies all of them."""
    if len({interval.textual for interval in intervals}) > 1:
        return None  # a value is a number or a string, never both
    within: Interval | None = None
    for interval in intervals:
        if not interval.negated:
            within = interval if within is None else within._intersection(interval)
            if within is None:
                return None
    outside = list(dict.fromkeys(interval for interval in intervals if interval.negated))
    if within is None:
        return outside
    if any(hole._covers(within) for hole in outside):
        return None
    return [within, *(hole for hole in outside if within._intersection(hole) is not None)]
