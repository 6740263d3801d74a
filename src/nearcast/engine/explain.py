"""Explanations: why a message matches a subscription, or why not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nearcast.geometry import Circle, Everywhere, Place, Planar, Point, Region, great_circle, to_text, touches
from nearcast.language import format_expression
from nearcast.language.writing import written_name, written_value
from nearcast.model import Id, Message, Subscription
from nearcast.predicates import Clause, Test, Word

__all__ = ["Check", "Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tested: what was asked, whether it holds, and what was found instead."""

    asked: str
    holds: bool
    found: str = ""

    def __str__(self) -> str:
        return f"{'✓' if self.holds else '✗'} {self.asked}{f': {self.found}' if self.found else ''}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The outcome of the region and, clause by clause, of every test; the region and one clause must hold to match.

    >>> from nearcast.geometry import Circle, Point
    >>> anna = Subscription("anna", "coffee AND price < 3", Circle(lon=0, lat=0, radius=500))
    >>> print(explain(anna, Message("m1", "Coffee!", Point(lon=0, lat=0.004), {"price": 4})))
    message 'm1' does not match subscription 'anna'
    ├─ ✓ within CIRCLE (0 0, 500 m): 445 m from the centre
    └─ ✗ coffee AND price < 3
       ├─ ✓ coffee
       └─ ✗ price < 3: price is 4
    """

    subscription: Id
    message: Id
    region: Check
    clauses: tuple[tuple[Check, tuple[Check, ...]], ...]

    @property
    def matches(self) -> bool:
        """Whether the message matches the subscription."""
        return self.region.holds and any(clause.holds for clause, _ in self.clauses)

    def __bool__(self) -> bool:
        return self.matches

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the explanation as the lines of a tree."""
        verb = "matches" if self.matches else "does not match"
        yield f"message {self.message!r} {verb} subscription {self.subscription!r}"
        yield f"├─ {self.region}"
        for number, (clause, checks) in enumerate(self.clauses, 1):
            last = number == len(self.clauses)
            yield f"{'└─' if last else '├─'} {clause}"
            for at, check in enumerate(checks, 1):
                yield f"{'   ' if last else '│  '}{'└─' if at == len(checks) else '├─'} {check}"

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values, for JSON."""

        def plain(check: Check) -> dict[str, Any]:
            return {"asked": check.asked, "holds": check.holds, "found": check.found}

        return {
            "subscription": self.subscription,
            "message": self.message,
            "matches": self.matches,
            "region": plain(self.region),
            "clauses": [
                plain(clause) | {"checks": [plain(c) for c in checks]} for clause, checks in self.clauses
            ],
        }


def explain(subscription: Subscription, message: Message) -> Explanation:
    """Test *message* against *subscription*, and keep the outcome of every test."""
    clauses = []
    for clause in subscription.clauses:
        checks = tuple(_checks(clause, message))
        asked = format_expression(clause.expression())
        clauses.append((Check(asked, all(check.holds for check in checks)), checks))
    region = _region(subscription.region, message.place)
    return Explanation(subscription.id, message.id, region, tuple(clauses))


def _checks(clause: Clause, message: Message) -> Iterator[Check]:
    for word in sorted(clause.keywords):
        there = word in message.keywords
        yield Check(format_expression(Word(word)), there, "" if there else "not among the keywords")
    for word in sorted(clause.forbidden):
        there = word in message.keywords
        yield Check(
            f"NOT {format_expression(Word(word))}", not there, "it is among the keywords" if there else ""
        )
    for test in clause.tests:
        yield Check(format_expression(test), *_value(test, message))


def _value(test: Test, message: Message) -> tuple[bool, str]:
    name, value = written_name(test.attribute), message.attributes.get(test.attribute)
    if value is None:
        return False, f"the message has no {name}"
    holds = test.interval.holds(value)
    if holds is None:
        kind = "a text" if isinstance(value, str) else "a number"
        return False, f"{name} is {kind}, {written_value(value)}"
    return holds, "" if holds else f"{name} is {written_value(value)}"


def _region(region: Region, place: Place) -> Check:
    holds = touches(region, place)
    if isinstance(region, Everywhere):
        return Check("everywhere", holds)
    found = "" if holds else f"the message is at {to_text(place)}"
    if isinstance(region, Circle) and isinstance(place, Point):
        found = f"{_distance(region, place)} from the centre"
    return Check(f"within {to_text(region)}", holds, found)


def _distance(circle: Circle, point: Point) -> str:
    """Return how far a point is from the centre: in whole metres, or finer if that would hide the outcome."""
    if isinstance(circle.space, Planar):
        return written_value(math.hypot(circle.x - point.x, circle.y - point.y))
    metres = great_circle(circle.x, circle.y, point.x, point.y)
    return f"{metres:,.{0 if abs(metres - circle.radius) >= 1 else 6}f} m"
