"""The written forms: expressions as text; messages and subscriptions as text and as JSON.

**Expressions.** ``coffee AND (discount OR "happy hour") NOT decaf`` asks for words. ``NOT`` binds closest,
then ``AND``, then ``OR``; words side by side are joined by ``AND``; a phrase in double quotes asks for all of
its words; ``*`` is every message. Attributes are compared: ``price < 3300``, ``100 <= capacity <= 256``,
``brand = "Huawei"``, ``brand != "Huawei"``, ``rating IN (4, 5)``, ``rating NOT IN (1, 2)``. A name that is
not an identifier stands in backticks. The operators ``AND OR NOT IN WITHIN`` are recognised in any case, so
that ``coffee or tea`` means what it says; to ask for such a word, quote it: ``"or"``.

**Subscriptions**: ``anna: coffee NOT decaf WITHIN CIRCLE (-73.99 40.73, 800 m)``, the id and the region
optional.

**Messages**: ``m1: Half price coffee WITH price = 2.5, brand = "Blue Bottle" AT POINT (-73.99 40.73) FROM
2026-11-15T08:00:00Z UNTIL 2026-11-15T10:00:00Z``. The text before ``WITH`` is free; ``WITH``, ``AT``,
``FROM`` and ``UNTIL`` are in capitals.

In both, digits are an integer id; an id that is a string of digits, or has spaces, stands in double quotes.

**JSON**: see :func:`message_from_json` and :func:`subscription_from_json`. Whatever is written here is read
back equal.
"""

from __future__ import annotations

import json
import math
import operator
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from nearcast import config
from nearcast.clock import iso
from nearcast.errors import ExpressionError, ModelError, shown
from nearcast.geometry import EVERYWHERE, WGS84, Region, Space, as_place, as_region, to_geojson
from nearcast.geometry import to_text as place_to_text
from nearcast.model import Id, Message, Subscription
from nearcast.predicates import (
    ANYTHING,
    AllOf,
    AnyOf,
    Expression,
    Interval,
    Not,
    Test,
    Value,
    Word,
    attribute,
    phrase,
)

__all__ = [
    "format_expression",
    "message_from_json",
    "message_from_text",
    "message_to_json",
    "message_to_text",
    "parse",
    "subscription_from_json",
    "subscription_from_text",
    "subscription_to_json",
    "subscription_to_text",
]

_OPERATORS: Final = frozenset({"AND", "OR", "NOT", "IN", "WITHIN"})
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_SPELLINGS: Final = {"==": "=", "<>": "!=", "≤": "<=", "≥": ">=", "≠": "!="}

_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<compare><=|>=|==|!=|<>|<|>|=|≤|≥|≠)
    | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![^\s()<>=!,"`*]) | [-+]inf\b)
    | (?P<word>[\#@]?[^\W_](?:[-'’.&/]?[^\s\x00-\x2f:-@\[-^`{-\x7f’≤≥≠])*)
    | (?P<mark>[(),*])
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME: Final = re.compile(r"[^\W\d]\w*(?:\.\w+)*")


class _Token(NamedTuple):
    kind: str  # string, quoted, compare, number, word, operator, mark, end
    text: str
    at: int


# --- Expressions: reading -----------------------------------------------------------------------------------
def parse(text: str) -> Expression:
    """Return the expression that *text* says.

    Raises :class:`ExpressionError`, which shows the place in the text, when it cannot be read or breaks a
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
    reader = _Reader(text)
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


class _Reader:
    """A recursive-descent reader with one token of lookahead; its depth, hence its stack, is limited."""

    def __init__(self, text: str, start: int = 0) -> None:
        self.text = text
        self.start = start
        self.end = start  # of the current token
        self.depth = 0
        self.token = self._scan()

    # Tokens
    def _scan(self) -> _Token:
        while True:
            at = self.end
            if at - self.start > config.MAX_EXPRESSION_CHARS:
                raise _too_long(at - self.start)
            if at == len(self.text):
                return _Token("end", "", at)
            found = _TOKEN.match(self.text, at)
            if found is None:
                self._fail_on_character(at)
            self.end = found.end()
            kind, text = str(found.lastgroup), found.group()
            if kind == "word":
                self._check_word(text, at)
                if text.upper() in _OPERATORS:
                    return _Token("operator", text.upper(), at)
            if kind != "space":
                return _Token(kind, _SPELLINGS.get(text, text), at)

    def take(self) -> _Token:
        token = self.token
        self.token = self._scan()
        return token

    def sees(self, kind: str, text: str | None = None) -> bool:
        return self.token.kind == kind and (text is None or self.token.text == text)

    def _check_word(self, text: str, at: int) -> None:
        if text.isascii():
            return
        for offset, char in enumerate(text):
            if not (char.isascii() or char.isalnum() or unicodedata.category(char)[0] in "MC" or char == "’"):
                self._fail_on_character(at + offset)

    # Expressions
    def expression(self) -> Expression:
        if self.sees("end") and not self.text[self.start :].strip():
            raise ExpressionError("the expression is empty; write * (or give None) to ask for every message")
        parts = [self._conjunction()]
        while self.sees("operator", "OR"):
            self.take()
            parts.append(self._conjunction())
        return AnyOf(tuple(parts)) if len(parts) > 1 else parts[0]

    def _conjunction(self) -> Expression:
        parts = [self._negation()]
        while True:
            if self.sees("operator", "AND"):
                self.take()
            elif self.token.kind not in _BEGINNINGS and self.token.text not in ("NOT", "(", "*"):
                break
            parts.append(self._negation())
        return AllOf(tuple(parts)) if len(parts) > 1 else parts[0]

    def _negation(self) -> Expression:
        if not self.sees("operator", "NOT"):
            return self._primary()
        with _Nested(self):
            self.take()
            return ~self._negation()

    def _primary(self) -> Expression:
        token = self.token
        if token.kind in _BEGINNINGS:
            self.take()
            if self.sees("compare"):
                return self._comparison(token)
            if token.kind in ("word", "quoted") and (test := self._membership(token)) is not None:
                return test
            return self._words(token)
        if self.sees("mark", "*"):
            self.take()
            return ANYTHING
        if self.sees("mark", "("):
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
        return self._built(token, lambda: phrase(words))

    # Comparisons
    def _comparison(self, left: _Token) -> Expression:
        """Read on after *left*: ``name < value``, or ``value < name [< value]``."""
        sign = self.take().text
        if left.kind in ("word", "quoted"):
            name, value = self._name(left), self._value()
            if self.sees("compare"):
                self.fail("an interval is written low <= name <= high, with the name in the middle")
            return self._test(left, name, sign, value)
        low = self._value_of(left)
        name = self._name(self.take())
        if not self.sees("compare"):
            return self._test(left, name, _FLIPPED[sign], low)
        second = self.take().text
        high = self._value()
        if {sign, second} <= {">", ">="}:
            sign, second, low, high = _FLIPPED[second], _FLIPPED[sign], high, low
        if not {sign, second} <= {"<", "<="}:
            self.fail("an interval is written low <= name <= high, with both signs in one direction", left)
        return self._built(
            left, lambda: Test(name, Interval(low, high, low_open=sign == "<", high_open=second == "<"))
        )

    def _test(self, at: _Token, name: str, sign: str, value: Value) -> Expression:
        return self._built(at, lambda: _COMPARISONS[sign](attribute(name), value))

    def _membership(self, name: _Token) -> Expression | None:
        """Read ``[NOT] IN (value, …)`` after a name, or nothing."""
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
        values = [self._value()]
        while self.sees("mark", ","):
            self.take()
            values.append(self._value())
        if not self.sees("mark", ")"):
            self.fail("the values after IN are separated by commas and closed by a )")
        self.take()
        test = self._built(name, lambda: attribute(self._name(name)).one_of(*values))
        return ~test if negated else test

    def _name(self, token: _Token) -> str:
        if token.kind == "quoted":
            return token.text[1:-1].replace("``", "`")
        if token.kind != "word" or not _NAME.fullmatch(token.text):
            self.fail(
                "the name of an attribute should stand here; put one that is not an identifier in backticks",
                token,
            )
        return token.text

    def _value(self) -> Value:
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
        """Return what *build* makes; an error tells where it happened."""
        try:
            return build()
        except ExpressionError as error:
            self.fail(str(error), at)

    def expect_end(self) -> None:
        if self.sees("mark", ")"):
            self.fail("this parenthesis was never opened; remove it, or add a ( before")
        if not self.sees("end"):
            self.fail(f"{shown(self.token.text)} was not expected here; join conditions with AND or OR")

    def fail(self, reason: str, token: _Token | None = None) -> NoReturn:
        raise ExpressionError(_located(self.text, (token or self.token).at, reason)) from None

    def _fail_on_character(self, at: int) -> NoReturn:
        char = self.text[at]
        hint = _HINTS.get(char, "comparisons are < <= = != >= > and IN; quote what is not letters and digits")
        raise ExpressionError(_located(self.text, at, f"unknown operator {char!r}: {hint}"))


class _Nested:
    """One level of nesting, refused when there are too many."""

    def __init__(self, reader: _Reader) -> None:
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


_BEGINNINGS: Final = frozenset({"word", "string", "number", "quoted"})
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Expression]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
_HINTS: Final = {
    '"': "this quote is never closed; add another",
    "`": "this backtick is never closed, or nothing is inside; add another",
    "'": "quote with \", not with '",
    "“": 'quote with "',
    "”": 'quote with "',
    "„": 'quote with "',
    "&": "write AND",
    "+": "write AND",
    "|": "write OR",
    "!": "write NOT",
    "-": "write NOT",
    ":": "an id and its colon stand at the beginning of a whole subscription only; compare with =",
}


def _located(text: str, at: int, reason: str) -> str:
    """Return *reason* with the place in the text, as a line with a caret below."""
    begin = text.rfind("\n", 0, at) + 1
    line = text.count("\n", 0, at) + 1
    end = text.find("\n", at)
    shown_from = max(begin, at - 50)
    excerpt = text[shown_from : min(len(text) if end < 0 else end, at + 30)]
    return f"{reason} (line {line}, column {at - begin + 1})\n    {excerpt}\n    {' ' * (at - shown_from)}^"


# --- Expressions: writing -----------------------------------------------------------------------------------
def format_expression(expression: Expression) -> str:
    """Return the text of *expression*; :func:`parse` reads it back equal.

    >>> format_expression(parse("coffee (discount OR 'x') not decaf".replace("'", '"')))
    'coffee AND (discount OR x) AND NOT decaf'
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
        return _written_test(_written_name(expression.attribute), expression.interval)
    return "*"


def _part(part: Expression, inside: type[Expression]) -> str:
    """Return the text of a part, in parentheses where it binds less than what is around it."""
    text = format_expression(part)
    if isinstance(part, AnyOf) and _in_list(part, "IN") is None:
        return f"({text})"
    return f"({text})" if isinstance(part, AllOf) and inside is Not else text


def _in_list(expression: AnyOf, verb: str) -> str | None:
    """Return ``name IN (…)`` for alternatives that are one attribute's equality with different values."""
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
    values = ", ".join(_written_value(test.interval.low) for test in tests)
    return f"{_written_name(tests[0].attribute)} {verb} ({values})"


def _written_test(name: str, interval: Interval) -> str:
    low, high = _written_value(interval.low), _written_value(interval.high)
    if interval.low == interval.high:
        return f"{name} {'!=' if interval.negated else '='} {low}"
    below, above = "<" if interval.low_open else "<=", "<" if interval.high_open else "<="
    if interval.low == -math.inf:
        text = f"{name} {above} {high}"
    elif interval.high == math.inf:
        text = f"{name} {_FLIPPED[below]} {low}"
    else:
        text = f"{low} {below} {name} {above} {high}"
    return f"NOT {text}" if interval.negated else text


def _written_word(keyword: str) -> str:
    found = _TOKEN.fullmatch(keyword)
    bare = found is not None and found.lastgroup in ("word", "number") and keyword.upper() not in _OPERATORS
    return keyword if bare else _quoted(keyword)


def _written_name(name: str) -> str:
    found = _TOKEN.fullmatch(name)
    bare = found is not None and found.lastgroup == "word" and _NAME.fullmatch(name)
    return name if bare and name.upper() not in _OPERATORS | _CLAUSES else "`" + name.replace("`", "``") + "`"


def _written_value(value: Value) -> str:
    return _quoted(value) if isinstance(value, str) else repr(value).removesuffix(".0")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# --- Text ---------------------------------------------------------------------------------------------------
_CLAUSES: Final = frozenset({"WITH", "AT", "FROM", "UNTIL"})
_ID: Final = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*")|([^\s:"`(),]+))\s*:(?=\s|$)""", re.DOTALL)
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_AFTER_WORDS: Final = re.compile(
    r"(?<!\S)(?:WITH(?=\s+(?:`|[^\W\d][\w.]*\s*=))|AT(?=\s+(?i:POINT|BOX|CIRCLE|POLYGON|MULTIPOLYGON)\s*\())"
)
_TIMES: Final = re.compile(r"(?:(?<!\S)FROM\s+(\S+))?\s*(?:(?<!\S)UNTIL\s+(\S+))?\s*$")
_FIRST_TIME: Final = re.compile(r"(?<!\S)(?:FROM|UNTIL)(?!\S)")


def subscription_to_text(subscription: Subscription) -> str:
    """Return a subscription as a line: ``id: expression WITHIN region``."""
    line = f"{_written_id(subscription.id)}: {format_expression(subscription.expression)}"
    return (
        line if subscription.region == EVERYWHERE else f"{line} WITHIN {place_to_text(subscription.region)}"
    )


def subscription_from_text(text: str, *, id: Id | None = None, space: Space = WGS84) -> Subscription:
    """Return the subscription of a line: ``[id:] expression [WITHIN region]``.

    With *id* given, the line has none.

    >>> subscription_from_text("anna: coffee NOT decaf WITHIN CIRCLE (-73.99 40.73, 800 m)")
    Subscription('anna', 'coffee AND NOT decaf', Circle(lon=-73.99, lat=40.73, radius=800.0))
    """
    id, start = _read_id(text, id)
    reader = _Reader(text, start)
    expression = reader.expression()
    region: Region = EVERYWHERE
    if reader.sees("operator", "WITHIN"):
        region = as_region(text[reader.end :].strip(), space)
    else:
        reader.expect_end()
    return Subscription(id, expression, region)


def message_to_text(message: Message) -> str:
    """Return a message as a line: ``id: words WITH name = value, … AT place FROM time UNTIL time``."""
    parts = [f"{_written_id(message.id)}:", *sorted(message.keywords)]
    if message.attributes:
        values = (
            f"{_written_name(name)} = {_written_value(value)}" for name, value in message.attributes.items()
        )
        parts.append(f"WITH {', '.join(values)}")
    parts.append(f"AT {place_to_text(message.place)}")
    if message.published_at is not None:
        parts.append(f"FROM {iso(message.published_at)}")
    if message.expires_at is not None:
        parts.append(f"UNTIL {iso(message.expires_at)}")
    return " ".join(parts)


def message_from_text(text: str, *, id: Id | None = None, space: Space = WGS84) -> Message:
    """Return the message of a line: ``[id:] text [WITH name = value, …] AT place [FROM time] [UNTIL time]``.

    With *id* given, the line has none.

    >>> message_from_text("m1: Half price! WITH price = 2.5 AT POINT (1 2) UNTIL 2026-11-15T10:00:00Z")
    Message('m1', 'half price', Point(lon=1.0, lat=2.0), {'price': 2.5}, expires_at='2026-11-15T10:00:00Z')
    """
    id, start = _read_id(text, id)
    found = _AFTER_WORDS.search(text, start)
    if found is None:
        raise ModelError(
            f"the message {shown(text)} has no place; end it with one, like AT POINT (-73.99 40.73)"
        )
    end = found.end()
    attributes: dict[str, Value] = {}
    if found.group() == "WITH":
        attributes, end = _read_attributes(text, end)
    times = _FIRST_TIME.search(text, end)
    place_end = times.start() if times else len(text)
    read = _TIMES.match(text, place_end)
    if read is None:
        raise ModelError(
            f"{shown(text[place_end:])} cannot be read; after the place comes FROM time UNTIL time, each "
            "optional, in this order"
        )
    published_at, expires_at = (_read_time(time) for time in read.groups())
    return Message(
        id,
        text[start : found.start()],
        as_place(text[end:place_end].strip(), space),
        attributes,
        published_at=published_at,
        expires_at=expires_at,
    )


def _read_attributes(text: str, start: int) -> tuple[dict[str, Value], int]:
    """Read ``name = value, …`` up to ``AT``; return the attributes and where the place begins."""
    reader = _Reader(text, start)
    attributes: dict[str, Value] = {}
    while True:
        at = reader.take()
        name = reader._name(at)
        if name in attributes:
            reader.fail(f"the attribute {name!r} has two values; give one", at)
        if not reader.sees("compare", "="):
            reader.fail(f"the value of an attribute is written {name} = …")
        reader.take()
        attributes[name] = reader._value()
        if reader.sees("word", "AT"):
            return attributes, reader.end
        if not reader.sees("mark", ","):
            reader.fail("after the value of an attribute comes a comma and the next one, or AT and the place")
        reader.take()


def _read_id(text: str, id: Id | None) -> tuple[Id, int]:
    """Return the id at the beginning of a line (or the one that was given), and where the rest begins."""
    if not isinstance(text, str):
        raise ModelError(f"{shown(text)} is not a text")
    if len(text) > config.MAX_RECORD_CHARS:
        raise _record_too_long(len(text))
    if id is not None:
        return id, 0
    found = _ID.match(text)
    if found is None:
        raise ModelError(f"{shown(text)} has no id; begin it with one and a colon, like anna: …, or give id=")
    if found.group(1) is None:
        return _id_of(found.group(2)), found.end()
    try:
        return str(json.loads(found.group(1), strict=False)), found.end()
    except ValueError:
        raise ModelError(f"the id {shown(found.group(1))} has a wrong escape") from None


def _id_of(text: str) -> Id:
    return int(text) if len(text) < 20 and _INTEGER.fullmatch(text) else text


def _written_id(id: Id) -> str:
    if isinstance(id, int):
        return str(id)
    found = _ID.fullmatch(id + ":")
    return id if found and found.group(2) == id and _id_of(id) == id else _quoted(id)


def _read_time(text: str | None) -> int | str | None:
    return int(text) if text is not None and len(text) < 21 and _INTEGER.fullmatch(text) else text


def _record_too_long(length: int) -> ModelError:
    return ModelError(
        f"{length} characters are over the limit of {config.MAX_RECORD_CHARS} for one message or "
        "subscription (config.MAX_RECORD_CHARS); shorten its text, or simplify its polygon"
    )


# --- JSON ---------------------------------------------------------------------------------------------------
_MESSAGE_FIELDS: Final = ("id", "keywords", "text", "place", "attributes", "published_at", "expires_at")
_SUBSCRIPTION_FIELDS: Final = ("id", "expression", "region")


def message_to_json(message: Message) -> str:
    """Return a message as a JSON object; what is empty is left out."""
    fields: dict[str, Any] = {
        "id": message.id,
        "keywords": sorted(message.keywords),
        "place": to_geojson(message.place),
    }
    if message.attributes:
        fields["attributes"] = dict(message.attributes)
    for name in ("published_at", "expires_at"):
        if (time := getattr(message, name)) is not None:
            fields[name] = _read_time(iso(time))
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def message_from_json(document: str | bytes | Mapping[str, Any], *, space: Space = WGS84) -> Message:
    """Return the message of a JSON object.

    Fields: ``id``; ``keywords`` (words) or ``text`` (free text); ``place`` (GeoJSON); ``attributes``
    (object); ``published_at``, ``expires_at`` (ISO 8601 with offset, or microseconds). Or a GeoJSON Feature:
    its geometry is the place, its properties are the other fields.

    >>> message_from_json('{"id": 7, "text": "Hot soup", "place": {"type": "Point", "coordinates": [1, 2]}}')
    Message(7, 'hot soup', Point(lon=1.0, lat=2.0))
    """
    fields = _fields(document, "message", "place", _MESSAGE_FIELDS)
    for name in ("id", "place"):
        if fields.get(name) is None:
            raise ModelError(f"the message has no {name!r}; it needs an id and a place")
    if "text" in fields and "keywords" in fields:
        raise ModelError("the message has both 'text' and 'keywords'; give one of them")
    words = fields.get("text", fields.get("keywords", ()))
    if "text" in fields and not isinstance(words, str):
        raise ModelError(f"'text' is {shown(words)}, not a string; a list of words is called 'keywords'")
    return Message(
        fields["id"],
        words,
        as_place(fields["place"], space),
        fields.get("attributes") or {},
        published_at=fields.get("published_at"),
        expires_at=fields.get("expires_at"),
    )


def subscription_to_json(subscription: Subscription) -> str:
    """Return a subscription as a JSON object."""
    fields = {
        "id": subscription.id,
        "expression": format_expression(subscription.expression),
        "region": to_geojson(subscription.region),
    }
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def subscription_from_json(
    document: str | bytes | Mapping[str, Any], *, space: Space = WGS84
) -> Subscription:
    """Return the subscription of a JSON object.

    Fields: ``id``; ``expression`` (its text; absent or null for every message); ``region`` (GeoJSON; absent
    or null for everywhere). Or a GeoJSON Feature: its geometry is the region, its properties are the other
    fields.

    >>> subscription_from_json('{"id": "anna", "expression": "coffee"}')
    Subscription('anna', 'coffee', EVERYWHERE)
    """
    fields = _fields(document, "subscription", "region", _SUBSCRIPTION_FIELDS)
    if fields.get("id") is None:
        raise ModelError("the subscription has no 'id'; it needs one")
    expression = fields.get("expression")
    if expression is not None and not isinstance(expression, str):
        raise ModelError(
            f"'expression' is {shown(expression)}, not a string; write it as text, like \"coffee NOT decaf\""
        )
    return Subscription(fields["id"], expression, as_region(fields.get("region"), space))


def _fields(document: Any, what: str, where: str, known: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of an object, or of a Feature as if it were one; unknown fields are refused."""
    loaded = document if isinstance(document, Mapping) else _load(document)
    if not isinstance(loaded, Mapping):
        raise ModelError(f"a {what} is a JSON object, not {shown(loaded)}")
    fields = dict(loaded)
    if fields.get("type") == "Feature":
        properties = fields.get("properties") or {}
        if not isinstance(properties, Mapping):
            raise ModelError(f"the properties of a Feature are an object, not {shown(properties)}")
        outer = {"id": fields["id"]} if "id" in fields else {}
        if twice := [name for name in properties if name in outer or name == where]:
            raise ModelError(
                f"{shown(twice[0])} is given twice, by the Feature and by its properties; give it once"
            )
        fields = {**properties, **outer, where: fields.get("geometry")}
    if unknown := [name for name in fields if name not in known]:
        raise ModelError(f"a {what} has no field {shown(unknown[0])}; its fields are {', '.join(known)}")
    return fields


def _load(document: Any) -> Any:
    """Return what a JSON text holds; its mistakes become :class:`ModelError`."""
    if not isinstance(document, str | bytes | bytearray):
        raise ModelError(f"{shown(document)} is not JSON; give a string, bytes or a mapping")
    if len(document) > config.MAX_RECORD_CHARS:
        raise _record_too_long(len(document))
    try:
        return json.loads(document, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ModelError(_located(error.doc, error.pos, f"this is not JSON: {error.msg}")) from None
    except UnicodeDecodeError as error:
        raise ModelError(f"this is not JSON: byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise ModelError("this JSON is nested too deeply for a message or a subscription") from None
    except ModelError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise ModelError(f"this JSON has a number that is too long: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ModelError(f"{name} is not a number of JSON; leave the value out")
