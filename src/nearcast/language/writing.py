"""Writing expressions, such that reading the text returns an equal expression."""

from __future__ import annotations

import json
import math
from typing import Final

from nearcast.language.grammar import CLAUSES, FLIPPED, NAME, OPERATORS, TOKEN
from nearcast.predicates import AllOf, AnyOf, Expression, Interval, Not, Test, Value, Word

__all__ = ["format_expression", "quoted", "written_name", "written_value"]

# JSON escapes control characters in strings. These characters end a line, too, for str.splitlines and for editors.
_BREAKS: Final = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}


def format_expression(expression: Expression) -> str:
    """Return the text of *expression*; :func:`parse` of it returns an equal expression.

    >>> from nearcast.language import parse
    >>> format_expression(parse("coffee (discount or tea) not decaf"))
    'coffee AND (discount OR tea) AND NOT decaf'
    """
    if isinstance(expression, AnyOf):
        return _in_list(expression, "IN") or " OR ".join(_part(part, AnyOf) for part in expression.parts)
    if isinstance(expression, AllOf):
        return " AND ".join(_part(part, AllOf) for part in expression.parts)
    if isinstance(expression, Not):
        listed = _in_list(expression.part, "NOT IN") if isinstance(expression.part, AnyOf) else None
        return listed or f"NOT {_part(expression.part, Not)}"
    if isinstance(expression, Word):
        return _written_word(expression.keyword)
    if isinstance(expression, Test):
        return _written_test(written_name(expression.attribute), expression.interval)
    return "*"


def _part(part: Expression, inside: type[Expression]) -> str:
    """Return the text of a part, in parentheses if it binds less than the expression around it."""
    text = format_expression(part)
    if isinstance(part, AnyOf) and _in_list(part, "IN") is None:
        return f"({text})"
    return f"({text})" if isinstance(part, AllOf) and inside is Not else text


def _in_list(expression: AnyOf, verb: str) -> str | None:
    """Return ``name IN (…)`` if all alternatives compare the same attribute with different values for equality."""
    tests = [
        part
        for part in expression.parts
        if isinstance(part, Test) and part.interval.low == part.interval.high
    ]
    plain = len(tests) == len(expression.parts) == len(set(tests)) and not any(
        t.interval.negated for t in tests
    )
    if not plain or len({test.attribute for test in tests}) > 1:
        return None
    values = ", ".join(written_value(test.interval.low) for test in tests)
    return f"{written_name(tests[0].attribute)} {verb} ({values})"


def _written_test(name: str, interval: Interval) -> str:
    low, high = written_value(interval.low), written_value(interval.high)
    if interval.low == interval.high:
        return f"{name} {'!=' if interval.negated else '='} {low}"
    below, above = "<" if interval.low_open else "<=", "<" if interval.high_open else "<="
    if interval.low == -math.inf:
        text = f"{name} {above} {high}"
    elif interval.high == math.inf:
        text = f"{name} {FLIPPED[below]} {low}"
    else:
        text = f"{low} {below} {name} {above} {high}"
    return f"NOT {text}" if interval.negated else text


def _written_word(keyword: str) -> str:
    found = TOKEN.fullmatch(keyword)
    bare = found is not None and found.lastgroup in ("word", "number") and keyword.upper() not in OPERATORS
    return keyword if bare else quoted(keyword)


def written_name(name: str) -> str:
    r"""Return the name of an attribute on one line, in backticks if it needs them.

    >>> print(written_name("price"), written_name("half price"), written_name("price\n(USD)"))
    price `half price` `price\n(USD)`
    """
    found = TOKEN.fullmatch(name)
    bare = found is not None and found.lastgroup == "word" and NAME.fullmatch(name)
    if bare and name.upper() not in OPERATORS | CLAUSES:
        return name
    return "`" + quoted(name)[1:-1].replace("`", "``") + "`"


def written_value(value: Value) -> str:
    """Return a number with all its digits, or a string in quotes."""
    return quoted(value) if isinstance(value, str) else repr(value).removesuffix(".0")


def quoted(text: str) -> str:
    """Return a text in double quotes, on one line."""
    return json.dumps(text, ensure_ascii=False).translate(_BREAKS)
