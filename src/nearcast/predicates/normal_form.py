"""The normal form of an expression: a disjunction of clauses, found in bounded time.

Negation is pushed down to the leaves (a negated test is a test with a negated interval), conjunctions are multiplied
out, and on the way contradictions, duplicates and clauses that another one makes superfluous are dropped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nearcast import config
from nearcast.errors import ExpressionError, shown
from nearcast.predicates import AllOf, AnyOf, Clause, Expression, Interval, Not, Test, Word

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["normal_form"]


def normal_form(expression: Expression, limit: int) -> tuple[Clause, ...]:
    """Return the clauses of *expression*, in its order; see :meth:`Expression.clauses`."""
    found = _normal(expression, False, _Budget(limit))
    if not found:
        raise ExpressionError(f"{shown(expression)} can never match: every alternative contradicts itself")
    return tuple(found)


class _Budget:
    """How many clauses there may be, and how much work finding them may take; bounds the time on any expression."""

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


def _normal(expression: Expression, negated: bool, budget: _Budget) -> list[Clause]:
    """Return the clauses of *expression* or of its negation; an empty list if it can never be true."""
    if isinstance(expression, Not):
        return _normal(expression.part, not negated, budget)
    if isinstance(expression, AllOf | AnyOf):
        parts = [_normal(part, negated, budget) for part in expression.parts]
        conjunction = isinstance(expression, AllOf) != negated
        return _conjunction(parts, budget) if conjunction else _disjunction(parts, budget)
    if isinstance(expression, Word):
        only = frozenset((expression.keyword,))
        return [Clause(forbidden=only) if negated else Clause(only)]
    if isinstance(expression, Test):
        test = ~expression if negated else expression
        interval = test.interval._positive()
        if interval.negated and interval.low == -math.inf:
            return []  # outside of everything
        return [Clause(tests=(Test(test.attribute, interval),))]
    return [] if negated else [Clause()]


def _disjunction(parts: Iterable[Iterable[Clause]], budget: _Budget) -> list[Clause]:
    kept: list[Clause] = []
    for part in parts:
        for clause in part:
            _add(kept, clause, budget)
    return kept


def _conjunction(parts: list[list[Clause]], budget: _Budget) -> list[Clause]:
    # Parts that are one clause are merged at once; only real alternatives multiply.
    alternatives = [part for part in parts if len(part) != 1]
    common = _merged([part[0] for part in parts if len(part) == 1])
    kept = [] if common is None else [common]
    for part in alternatives:
        product: list[Clause] = []
        for left in kept:
            for right in part:
                budget.spend(left._size + right._size + len(product))
                if (clause := _merged([left, right])) is not None:
                    _add(product, clause, budget)
        kept = product
    return kept


def _add(kept: list[Clause], clause: Clause, budget: _Budget) -> None:
    """Add *clause* unless one of *kept* makes it superfluous, and drop those that it makes superfluous."""
    if any(clause._implies(other) for other in kept):
        return
    kept[:] = [other for other in kept if not other._implies(clause)]
    kept.append(clause)
    if len(kept) > budget.limit:
        raise budget.exceeded()


def _merged(clauses: list[Clause]) -> Clause | None:
    """Return the conjunction of several clauses as one, its tests simplified; ``None`` if contradictory."""
    keywords: frozenset[str] = frozenset().union(*(clause.keywords for clause in clauses))
    forbidden: frozenset[str] = frozenset().union(*(clause.forbidden for clause in clauses))
    if not keywords.isdisjoint(forbidden):
        return None
    by_attribute: dict[str, list[Test]] = {}
    for clause in clauses:
        for test in clause.tests:
            by_attribute.setdefault(test.attribute, []).append(test)
    tests: list[Test] = []
    for name, same in by_attribute.items():
        if len(same) > 1:
            intervals = _simplified([test.interval for test in same])
            if intervals is None:
                return None
            same = [Test(name, interval) for interval in intervals]
        tests += same
    return Clause(keywords, forbidden, tuple(tests))


def _simplified(intervals: list[Interval]) -> list[Interval] | None:
    """Return fewer intervals that hold for the same values, or ``None`` if no value satisfies all."""
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
