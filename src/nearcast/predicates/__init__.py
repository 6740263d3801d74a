"""Expressions over keywords and attributes, and their normal form.

An expression is built with :func:`word`, :func:`phrase` and :func:`attribute`, and combined with ``&``, ``|``
and ``~``:

>>> wish = word("coffee") & (word("discount") | phrase("happy hour")) & (attribute("price") < 3)
>>> wish.matches({"coffee", "happy", "hour"}, {"price": 2.5})
True
>>> [sorted(clause.keywords) for clause in wish.clauses()]
[['coffee', 'discount'], ['coffee', 'happy', 'hour']]

Logic is three-valued, as in SQL. A test of an attribute that the message lacks, or has with the other type, is
*unknown*; the negation of unknown is unknown; and a message matches only if the whole expression is true. So neither
``price < 3`` nor its negation holds for a message without a price. Keywords are never unknown: a message has a word or
it does not.

The normal form (:meth:`Expression.clauses`) is a disjunction of :class:`Clause` objects: a message matches the
expression if and only if it matches one of them. ``Expression.matches`` evaluates the tree directly and is the
specification of the normal form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

from nearcast import config, text
from nearcast.errors import ExpressionError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

__all__ = [
    "ANYTHING",
    "AllOf",
    "AnyOf",
    "Anything",
    "Attribute",
    "Clause",
    "Expression",
    "Interval",
    "Not",
    "Test",
    "Value",
    "Word",
    "attribute",
    "phrase",
    "word",
]

Value: TypeAlias = float | str

_set = object.__setattr__  # for frozen instances
_USE_EQUALITY = "use =, != or IN (in Python ==, != or one_of)"


# --- Intervals ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Interval:
    """The values that a test accepts: a range of numbers or one string or, if *negated*, all others of that type.

    Parameters
    ----------
    low, high
        The ends: two numbers (infinite for no bound), or the same string twice.
    low_open, high_open
        Whether the end itself is excluded.
    negated
        Whether the value must lie outside.

    >>> Interval(100, 256).holds(256)
    True
    >>> Interval(3, 3, negated=True).holds(None) is None
    True
    """

    low: Value
    high: Value
    low_open: bool = False
    high_open: bool = False
    negated: bool = False

    def __post_init__(self) -> None:
        low, high = _value(self.low), _value(self.high)
        if isinstance(low, str) or isinstance(high, str):
            if low != high or self.low_open or self.high_open:
                raise ExpressionError(
                    f"an interval of strings is one string, not from {shown(low)} to {shown(high)}: strings "
                    f"have no order here; {_USE_EQUALITY}"
                )
        elif low > high:
            raise ExpressionError(f"the interval's low end {low!r} is above its high end {high!r}; swap them")
        elif low == high and (self.low_open or self.high_open or math.isinf(low)):
            raise ExpressionError(
                f"no number lies between {low!r} and {high!r} with an open end; close both ends"
            )
        _set(self, "low", low)
        _set(self, "high", high)
        # An infinite end is never reached, so it counts as closed: equal intervals then have equal fields.
        _set(self, "low_open", bool(self.low_open) and low != -math.inf)
        _set(self, "high_open", bool(self.high_open) and high != math.inf)
        _set(self, "negated", bool(self.negated))

    @property
    def textual(self) -> bool:
        """Whether the interval is a string."""
        return isinstance(self.low, str)

    def holds(self, value: Value | None) -> bool | None:
        """Return whether *value* is accepted; ``None`` (unknown) if it is missing or of the other type."""
        if value is None or isinstance(value, str) != self.textual:
            return None
        return self._contains(value) != self.negated

    def _contains(self, value: Any) -> bool:
        low: Any = self.low
        high: Any = self.high
        return (low < value or (low == value and not self.low_open)) and (
            value < high or (value == high and not self.high_open)
        )

    def _covers(self, other: Interval) -> bool:
        """Return whether this range contains the other one (of the same type; negation is ignored)."""
        low: Any = (self.low, self.low_open)
        high: Any = (self.high, not self.high_open)
        return bool(low <= (other.low, other.low_open) and high >= (other.high, not other.high_open))

    def _intersection(self, other: Interval) -> Interval | None:
        """Return the intersection of two ranges (of the same type; negation is ignored), ``None`` if it is empty."""
        low: Any = max((self.low, self.low_open), (other.low, other.low_open))
        high: Any = min((self.high, not self.high_open), (other.high, not other.high_open))
        empty = low[0] > high[0] or (low[0] == high[0] and (low[1] or not high[1]))
        return None if empty else Interval(low[0], high[0], low[1], not high[1])

    def _positive(self) -> Interval:
        """Return a negated range with only one bound as the range on the other side of that bound."""
        if self.negated and not self.textual:
            if self.low == -math.inf and self.high != math.inf:
                return Interval(self.high, math.inf, low_open=not self.high_open)
            if self.high == math.inf and self.low != -math.inf:
                return Interval(-math.inf, self.low, high_open=not self.low_open)
        return self


def _value(value: Any) -> Value:
    """Return *value* as a float or a string."""
    if isinstance(value, str):
        return value
    if not isinstance(value, float | Real):  # float first: the abstract class is slow to test
        raise ExpressionError(
            f"{shown(value)} is neither a number nor a string; attributes have only these values"
        )
    try:
        number = float(value) + 0.0  # -0.0 becomes 0.0
    except OverflowError:
        raise ExpressionError(f"{shown(value)} is too large for a number of 64 bits") from None
    if math.isnan(number):
        raise ExpressionError("nan cannot be compared; leave the attribute out instead")
    return number


# --- Expressions --------------------------------------------------------------------------------------------
class Expression:
    """A condition on the keywords and attributes of a message; immutable; combined with ``&``, ``|`` and ``~``."""

    __slots__ = ()

    depth: int

    def __and__(self, other: Expression) -> Expression:
        return AllOf((self, other)) if isinstance(other, Expression) else NotImplemented

    def __or__(self, other: Expression) -> Expression:
        return AnyOf((self, other)) if isinstance(other, Expression) else NotImplemented

    def __invert__(self) -> Expression:
        return Not(self)

    def __bool__(self) -> bool:
        raise ExpressionError(
            "an expression is not true or false by itself; combine expressions with &, | and ~ (not and, or, not), "
            "and write 100 <= capacity <= 256 as attribute('capacity').between(100, 256)"
        )

    def matches(self, keywords: Set[str], attributes: Mapping[str, Value]) -> bool:
        """Return whether a message with these keywords and attributes satisfies the expression."""
        return self.truth(keywords, attributes) is True

    def truth(self, keywords: Set[str], attributes: Mapping[str, Value]) -> bool | None:
        """Return ``True``, ``False``, or ``None`` for unknown (Kleene's logic)."""
        raise NotImplementedError

    def clauses(self, limit: int = config.MAX_CLAUSES) -> tuple[Clause, ...]:
        """Return the normal form: conjunctions, at least one of which every matching message satisfies.

        Their order is that of the expression. Contradictions, duplicates and clauses that another clause makes
        redundant are dropped. Raises :class:`ExpressionError` if more than *limit* clauses are needed, or if nothing
        can ever match.
        """
        from nearcast.predicates.normal_form import normal_form

        return normal_form(self, limit)


@dataclass(frozen=True, slots=True)
class Word(Expression):
    """The message has this keyword."""

    keyword: str
    depth = 1  # of the class: it is no field

    def __post_init__(self) -> None:
        _set(self, "keyword", text.keyword(self.keyword))

    def truth(self, keywords: Set[str], attributes: Mapping[str, Value]) -> bool | None:
        """Return whether the message has the keyword."""
        return self.keyword in keywords


@dataclass(frozen=True, slots=True)
class Test(Expression):
    """The message's attribute has a value that the interval accepts."""

    __test__ = False  # pytest must not collect it

    attribute: str
    interval: Interval
    depth = 1  # of the class: it is no field

    def __post_init__(self) -> None:
        _check_attribute(self.attribute)
        if not isinstance(self.interval, Interval):
            raise ExpressionError(f"{shown(self.interval)} is not an Interval")

    def __invert__(self) -> Test:
        return Test(self.attribute, replace(self.interval, negated=not self.interval.negated))

    def truth(self, keywords: Set[str], attributes: Mapping[str, Value]) -> bool | None:
        """Return whether the interval accepts the attribute's value; unknown without the attribute."""
        return self.interval.holds(attributes.get(self.attribute))


@dataclass(frozen=True, slots=True)
class AllOf(Expression):
    """Every part holds; nested conjunctions are flattened."""

    parts: tuple[Expression, ...]
    depth: int = field(default=1, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _flatten(self, AllOf)

    def truth(self, keywords: Set[str], attributes: Mapping[str, Value]) -> bool | None:
        """Return the smallest truth value of the parts, where false < unknown < true."""
        known: bool | None = True
        for part in self.parts:
            truth = part.truth(keywords, attributes)
            if truth is False:
                return False
            if truth is None:
                known = None
        return known


@dataclass(frozen=True, slots=True)
class AnyOf(Expression):
    """At least one part holds; nested disjunctions are flattened."""

    parts: tuple[Expression, ...]
    depth: int = field(default=1, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _flatten(self, AnyOf)

    def truth(self, keywords: Set[str], attributes: Mapping[str, Value]) -> bool | None:
        """Return the largest truth value of the parts, where false < unknown < true."""
        known: bool | None = False
        for part in self.parts:
            truth = part.truth(keywords, attributes)
            if truth is True:
                return True
            if truth is None:
                known = None
        return known


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """The part does not hold; unknown stays unknown."""

    part: Expression
    depth: int = field(default=1, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.part, Expression):
            raise ExpressionError(
                f"{shown(self.part)} is not an expression; use word(…), phrase(…) or attribute(…)"
            )
        _set(self, "depth", _deeper((self.part,)))

    def truth(self, keywords: Set[str], attributes: Mapping[str, Value]) -> bool | None:
        """Return the negation of the part's truth value."""
        truth = self.part.truth(keywords, attributes)
        return None if truth is None else not truth


@dataclass(frozen=True, slots=True, repr=False)
class Anything(Expression):
    """The expression that every message matches. Use the only instance, :data:`ANYTHING`."""

    depth = 1  # of the class: it is no field

    def truth(self, keywords: Set[str], attributes: Mapping[str, Value]) -> bool | None:
        """Return ``True``."""
        return True

    def __repr__(self) -> str:
        return "ANYTHING"

    def __reduce__(self) -> str:
        return "ANYTHING"


ANYTHING = Anything()


def _flatten(node: AllOf | AnyOf, kind: type[AllOf | AnyOf]) -> None:
    parts: list[Expression] = []
    for part in node.parts:
        if isinstance(part, kind):
            parts += part.parts
        elif isinstance(part, Expression):
            parts.append(part)
        else:
            raise ExpressionError(
                f"{shown(part)} is not an expression; use word(…), phrase(…) or attribute(…)"
            )
    if len(parts) < 2:
        raise ExpressionError(
            f"{kind.__name__} joins at least two expressions, not {len(parts)}; use the part itself"
        )
    _set(node, "parts", tuple(parts))
    _set(node, "depth", _deeper(parts))


def _deeper(parts: Iterable[Expression]) -> int:
    depth = 1 + max([part.depth for part in parts])
    if depth > config.MAX_EXPRESSION_DEPTH:
        raise ExpressionError(
            f"the expression is nested more than {config.MAX_EXPRESSION_DEPTH} levels deep "
            "(config.MAX_EXPRESSION_DEPTH); flatten it, or split it into several subscriptions"
        )
    return depth


def _check_attribute(name: object) -> None:
    if not isinstance(name, str) or not name or len(name) > config.MAX_KEYWORD_CHARS:
        raise ExpressionError(
            f"{shown(name)} is not the name of an attribute; give a string of 1 to "
            f"{config.MAX_KEYWORD_CHARS} characters"
        )


# --- Builders -----------------------------------------------------------------------------------------------
def word(keyword: str) -> Word:
    """Return the expression for one keyword.

    >>> word("Coffee")
    Word(keyword='coffee')
    """
    return Word(keyword)


def phrase(words: str) -> Expression:
    """Return the expression for all words of a text, in any order.

    >>> phrase("Happy hour")
    AllOf(parts=(Word(keyword='happy'), Word(keyword='hour')))
    """
    found = tuple(map(_word_of, dict.fromkeys(text.asked_words(words))))
    if not found:
        raise ExpressionError(f"{shown(words)} has no letter and no digit, so it is not a phrase; give words")
    return AllOf(found) if len(found) > 1 else found[0]


def _word_of(keyword: str) -> Word:
    """Return the expression for a keyword that is already in normal form."""
    made = object.__new__(Word)
    _set(made, "keyword", keyword)
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    """The name of an attribute; comparing it gives an expression: ``attribute("price") < 3300``."""

    name: str

    __hash__ = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        _check_attribute(self.name)

    def __lt__(self, value: float) -> Test:
        return self._between(-math.inf, value, high_open=True)

    def __le__(self, value: float) -> Test:
        return self._between(-math.inf, value)

    def __gt__(self, value: float) -> Test:
        return self._between(value, math.inf, low_open=True)

    def __ge__(self, value: float) -> Test:
        return self._between(value, math.inf)

    def __eq__(self, value: object) -> Test:  # type: ignore[override]
        return Test(self.name, Interval(value, value))  # type: ignore[arg-type]

    def __ne__(self, value: object) -> Test:  # type: ignore[override]
        return Test(self.name, Interval(value, value, negated=True))  # type: ignore[arg-type]

    def between(self, low: float, high: float) -> Test:
        """Return the test for ``low <= value <= high``."""
        return self._between(low, high)

    def one_of(self, *values: Value) -> Expression:
        """Return the expression for "equal to one of these".

        >>> attribute("rating").one_of(4, 5) == (attribute("rating") == 4) | (attribute("rating") == 5)
        True
        """
        tests = tuple(dict.fromkeys(self == value for value in values))
        if not tests:
            raise ExpressionError(f"one_of for {self.name!r} has no values; give at least one")
        return AnyOf(tests) if len(tests) > 1 else tests[0]

    def _between(self, low: Any, high: Any, low_open: bool = False, high_open: bool = False) -> Test:
        for end in (low, high):
            if isinstance(end, str):
                raise ExpressionError(
                    f"{self.name!r} cannot be above or below {shown(end)}: strings have no order here; {_USE_EQUALITY}"
                )
        return Test(self.name, Interval(low, high, low_open, high_open))


def attribute(name: str) -> Attribute:
    """Return the attribute *name*, to be compared with a number or a string.

    >>> attribute("capacity").between(100, 256).matches(set(), {"capacity": 128.0})
    True
    """
    return Attribute(name)


# --- Normal form --------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Clause:
    """One conjunction: all keywords, none of the forbidden ones, and every test. Indexes store clauses."""

    keywords: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    tests: tuple[Test, ...] = ()

    def matches(self, keywords: Set[str], attributes: Mapping[str, Value]) -> bool:
        """Return whether a message with these keywords and attributes satisfies the clause."""
        return (
            self.keywords <= keywords
            and self.forbidden.isdisjoint(keywords)
            and all(test.interval.holds(attributes.get(test.attribute)) for test in self.tests)
        )

    def expression(self) -> Expression:
        """Return the clause as an expression, with words in alphabetical order."""
        parts: list[Expression] = [Word(keyword) for keyword in sorted(self.keywords)]
        parts += self.tests
        parts += [Not(Word(keyword)) for keyword in sorted(self.forbidden)]
        return ANYTHING if not parts else parts[0] if len(parts) == 1 else AllOf(tuple(parts))
