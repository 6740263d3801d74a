"""Reading expressions, by recursive descent over tokens; errors show the position and the way out."""

from __future__ import annotations

import json
import math
import operator
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from nearcast import config
from nearcast.errors import ExpressionError, shown
from nearcast.language.grammar import FLIPPED, NAME, OPERATORS, SPELLINGS, TOKEN, located
from nearcast.predicates import ANYTHING, AllOf, AnyOf, Expression, Interval, Test, Value, attribute, phrase

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Reader", "parse"]


class _Token(NamedTuple):
    kind: str  # string, quoted, compare, number, word, operator, mark, end
    text: str  # as written, but operators in capitals and comparisons in one spelling
    at: int


def parse(text: str) -> Expression:
    """Return the expression that *text* describes.

    Raises :class:`ExpressionError`, which shows the position in the text, if the text cannot be read or breaks a
    limit.

    >>> parse("coffee NOT decaf")
    AllOf(parts=(Word(keyword='coffee'), Not(part=Word(keyword='decaf'))))
    >>> parse("price < 3") == (attribute("price") < 3)
    True
    """
    if not isinstance(text, str):
        raise ExpressionError(f"{shown(text)} is not a text; an expression is written as a string")
    if len(text) > config.MAX_EXPRESSION_CHARS:
        raise _too_long(len(text))
    reader = Reader(text)
    expression = reader.expression()
    if reader.sees("operator", "WITHIN"):
        reader.fail(
            "WITHIN begins a region, which is not part of an expression; give the region by itself, use "
            'Subscription.from_text, or quote the word: "within"'
        )
    reader.expect_end()
    return expression


def _too_long(length: int) -> ExpressionError:
    return ExpressionError(
        f"the expression of {length} characters is over the limit of {config.MAX_EXPRESSION_CHARS} "
        "(config.MAX_EXPRESSION_CHARS); split it into several subscriptions"
    )


class Reader:
    """A recursive-descent parser with one token of lookahead; its depth, and so its stack, is limited."""

    def __init__(self, text: str, start: int = 0) -> None:
        self.text = text
        self.start = start
        self.limit = start + config.MAX_EXPRESSION_CHARS
        self.end = start  # of the current token
        self.depth = 0
        self.token = self._scan()

    # Tokens
    def _scan(self) -> _Token:
        if self.end > self.limit:
            raise _too_long(self.end - self.start)
        found = TOKEN.match(self.text, self.end)
        if found is None:
            return self._scan_end()
        kind: str = found.lastgroup  # type: ignore[assignment]  # every match is one of the kinds
        text, self.end = found[kind], found.end()
        at = self.end - len(text)  # without the space before the token
        if at > self.limit:
            raise _too_long(at - self.start)
        if kind == "word":
            if not text.isascii():
                self._check_word(text, at)
            if len(text) <= _LONGEST_OPERATOR and (name := text.upper()) in OPERATORS:
                return _Token("operator", name, at)
        elif kind == "compare":
            text = SPELLINGS.get(text, text)
        return _Token(kind, text, at)

    def _scan_end(self) -> _Token:
        """Return the end token if only space is left; anything else is an error, since it begins no token."""
        at = len(self.text) - len(self.text[self.end :].lstrip())
        if at > self.limit:
            raise _too_long(at - self.start)
        if at < len(self.text):
            self._fail_on_character(at)
        self.end = at
        return _Token("end", "", at)

    def take(self) -> _Token:
        """Return the current token and go on to the next one."""
        token = self.token
        self.token = self._scan()
        return token

    def sees(self, kind: str, text: str | None = None) -> bool:
        """Return whether the current token has this kind and, if given, this text."""
        return self.token.kind == kind and (text is None or self.token.text == text)

    def _check_word(self, text: str, at: int) -> None:
        for offset, char in enumerate(text):
            if not (char.isascii() or char.isalnum() or unicodedata.category(char)[0] in "MC" or char == "’"):
                self._fail_on_character(at + offset)

    # Expressions
    def expression(self) -> Expression:
        """Read an expression, up to the first token that cannot belong to it."""
        if self.token.kind == "end" and not self.text[self.start :].strip():
            raise ExpressionError("the expression is empty; write * for every message")
        parts = [self._conjunction()]
        while self.token.text == "OR":
            self.take()
            parts.append(self._conjunction())
        return AnyOf(tuple(parts)) if len(parts) > 1 else parts[0]

    def _conjunction(self) -> Expression:
        parts = [self._negation()]
        while True:
            if self.token.text == "AND":
                self.take()
            elif self.token.kind not in _BEGINNINGS and self.token.text not in ("NOT", "(", "*"):
                break
            parts.append(self._negation())
        return AllOf(tuple(parts)) if len(parts) > 1 else parts[0]

    def _negation(self) -> Expression:
        if self.token.text != "NOT":
            return self._primary()
        with _Nested(self):
            self.take()
            return ~self._negation()

    def _primary(self) -> Expression:
        token = self.token
        if token.kind in _BEGINNINGS:
            self.take()
            if self.token.kind == "compare":
                return self._comparison(token)
            if self.token.kind == "operator" and (test := self._membership(token)) is not None:
                return test
            return self._words(token)
        if token.text == "*":
            self.take()
            return ANYTHING
        if token.text == "(":
            with _Nested(self):
                self.take()
                inside = self.expression()
                if not self.sees("mark", ")"):
                    if self.sees("end"):
                        self.fail("this parenthesis is never closed; add a )", token)
                    self.expect_end()
                self.take()
                return inside
        if token.kind == "end":
            self.fail("something is missing at the end: a word, a phrase or a comparison")
        if token.kind == "operator":
            self.fail(
                f"{token.text} stands where a word, a phrase or a comparison should; to ask for the word, "
                f'quote it: "{token.text.lower()}"'
            )
        if token.kind == "compare":
            self.fail(f"{token.text} needs the name of an attribute before it, like price {token.text} 3")
        self.fail(f"{token.text} stands where a word, a phrase or a comparison should")

    def _words(self, token: _Token) -> Expression:
        if token.kind == "quoted":
            self.fail('a name in backticks is an attribute and needs a comparison; quote words with "', token)
        if token.kind == "number" and not token.text[0].isdigit():
            self.fail(f"{token.text} is a number without a comparison; write price < {token.text}", token)
        words = self._string(token) if token.kind == "string" else token.text
        try:
            return phrase(words)
        except ExpressionError as error:
            self.fail(str(error), token)

    # Comparisons
    def _comparison(self, left: _Token) -> Expression:
        """Read on after *left*: ``name < value``, or ``value < name [< value]``."""
        sign = self.take().text
        if left.kind in ("word", "quoted"):
            name, value = self.name(left), self.value()
            if self.sees("compare"):
                self.fail("an interval is written low <= name <= high, with the name in the middle")
            return self._test(left, name, sign, value)
        low = self._value_of(left)
        name = self.name(self.take())
        if not self.sees("compare"):
            return self._test(left, name, FLIPPED[sign], low)
        second = self.take().text
        high = self.value()
        if {sign, second} <= {">", ">="}:
            sign, second, low, high = FLIPPED[second], FLIPPED[sign], high, low
        if not {sign, second} <= {"<", "<="}:
            self.fail("an interval is written low <= name <= high, with both signs in one direction", left)
        return self._built(
            left, lambda: Test(name, Interval(low, high, low_open=sign == "<", high_open=second == "<"))
        )

    def _test(self, at: _Token, name: str, sign: str, value: Value) -> Expression:
        return self._built(at, lambda: _COMPARISONS[sign](attribute(name), value))

    def _membership(self, name: _Token) -> Expression | None:
        """Read ``[NOT] IN (value, …)`` after a name, or nothing."""
        if name.kind not in ("word", "quoted"):
            return None
        before = self.token, self.end
        negated = self.sees("operator", "NOT")
        if negated:
            self.take()
        if not self.sees("operator", "IN"):
            self.token, self.end = before
            return None
        self.take()
        if not self.sees("mark", "("):
            self.fail(
                'IN is followed by values in parentheses, like rating IN (4, 5); for the word, quote it: "in"'
            )
        self.take()
        values = [self.value()]
        while self.sees("mark", ","):
            self.take()
            values.append(self.value())
        if not self.sees("mark", ")"):
            self.fail("the values after IN are separated by commas and closed by a )")
        self.take()
        test = self._built(name, lambda: attribute(self.name(name)).one_of(*values))
        return ~test if negated else test

    def name(self, token: _Token) -> str:
        """Return *token* as the name of an attribute."""
        if token.kind == "quoted":
            return self._name_inside(token)
        if token.kind != "word" or not NAME.fullmatch(token.text):
            self.fail(
                "the name of an attribute should stand here; put one that is not an identifier in backticks",
                token,
            )
        return token.text

    def _name_inside(self, token: _Token) -> str:
        """Return a name in backticks: the escapes are those of a string, but a quote needs none."""
        inside = token.text[1:-1].replace("``", "`")
        string = re.sub(
            r'\\.|"', lambda found: '\\"' if found[0] == '"' else found[0], inside, flags=re.DOTALL
        )
        try:
            return str(json.loads(f'"{string}"', strict=False))
        except ValueError:
            self.fail("this name has a wrong escape; write \\\\ for a backslash", token)

    def value(self) -> Value:
        """Read a number or a string."""
        return self._value_of(self.take())

    def _value_of(self, token: _Token) -> Value:
        if token.kind == "string":
            return self._string(token)
        if token.text in ("inf", "+inf", "-inf"):
            return float(token.text)
        if token.kind == "number":
            number = float(token.text)
            if math.isinf(number):
                self.fail("this number is too large for 64 bits; write inf for no bound", token)
            return number
        if token.kind in ("word", "operator"):
            self.fail(f'a number or a string should stand here; a string is quoted: "{token.text}"', token)
        self.fail("a number or a string in double quotes should stand here", token)

    def _string(self, token: _Token) -> str:
        try:
            return str(json.loads(token.text, strict=False))
        except ValueError:
            self.fail('this string has a wrong escape; write \\" for a quote and \\\\ for a backslash', token)

    # Errors
    def _built(self, at: _Token, build: Callable[[], Expression]) -> Expression:
        """Return the result of *build*; an error gets the position of the token *at*."""
        try:
            return build()
        except ExpressionError as error:
            self.fail(str(error), at)

    def expect_end(self) -> None:
        """Raise an error if any token is left."""
        if self.sees("mark", ")"):
            self.fail("this parenthesis was never opened; remove it, or add a ( before")
        if not self.sees("end"):
            self.fail(f"{shown(self.token.text)} was not expected here; join conditions with AND or OR")

    def fail(self, reason: str, token: _Token | None = None) -> NoReturn:
        """Raise an error that shows the position of *token*, by default the current one."""
        raise ExpressionError(located(self.text, (token or self.token).at, reason)) from None

    def _fail_on_character(self, at: int) -> NoReturn:
        char = self.text[at]
        hint = _HINTS.get(char, "comparisons are < <= = != >= > and IN; quote what is not letters and digits")
        reason = _QUOTES.get(char, f"unknown operator {char!r}: {hint}")
        raise ExpressionError(located(self.text, at, reason))


class _Nested:
    """A context manager that counts one level of nesting and refuses too many."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __enter__(self) -> None:
        self.reader.depth += 1
        if self.reader.depth > config.MAX_EXPRESSION_DEPTH:
            self.reader.fail(
                f"nested more than {config.MAX_EXPRESSION_DEPTH} levels deep (config.MAX_EXPRESSION_DEPTH); "
                "flatten the expression, or split it into several subscriptions"
            )

    def __exit__(self, *_: object) -> None:
        self.reader.depth -= 1


_LONGEST_OPERATOR: Final = max(map(len, OPERATORS))
_BEGINNINGS: Final = frozenset({"word", "string", "number", "quoted"})
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Expression]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
_QUOTES: Final = {
    '"': "this quote is never closed; add another",
    "`": "this backtick is never closed, or nothing is inside; add another",
    "'": "quote with \", not with '",
    **{quote: f'quote with ", not with {quote}' for quote in "“”„"},
}
_HINTS: Final = {
    "&": "write AND",
    "+": "write AND",
    "|": "write OR",
    "!": "write NOT",
    "-": "write NOT",
    ":": "an id and its colon stand at the beginning of a whole subscription only; compare with =",
}
