"""Messages, subscriptions, and the deliveries between them.

>>> from nearcast.geometry import Circle, Point
>>> message = Message("m1", "Half price coffee", Point(lon=-73.99, lat=40.73), {"price": 2.5})
>>> anna = Subscription("anna", "coffee AND price < 3 NOT decaf", Circle(lon=-74, lat=40.73, radius=1500))
>>> anna.matches(message)
True

Both can also be written as a line of text (:mod:`nearcast.model.lines`) or a JSON object
(:mod:`nearcast.model.documents`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from numbers import Real
from types import MappingProxyType
from typing import Any, TypeAlias

from nearcast import config
from nearcast.clock import iso, microseconds
from nearcast.errors import ModelError, shown
from nearcast.geometry import EVERYWHERE, WGS84, Place, Region, Space, as_place, as_region, touches
from nearcast.language import format_expression, parse
from nearcast.predicates import ANYTHING, AllOf, AnyOf, Clause, Expression, Not, Test, Value
from nearcast.text import keywords as keywords_of

__all__ = ["Delivery", "Id", "Message", "Subscription"]

Id: TypeAlias = int | str
Time: TypeAlias = int | datetime | str


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Message:
    """Something that happens at a place, described by words and values, and of interest for some time.

    Parameters
    ----------
    id
        A string, or an integer of 64 bits.
    keywords
        A text, whose words become the keywords, or several words.
    place
        A ``Point``, or an area (``Box``, ``Circle``, ``Polygon``), or either as GeoJSON, WKT, WKB or a shapely
        geometry.
    attributes
        A mapping of names to numbers or strings; ``True`` and ``False`` become 1 and 0.
    published_at, expires_at
        The period in which the message may be delivered. Give aware ``datetime`` objects, ISO 8601 with an offset, or
        microseconds since 1970 UTC; they are kept as microseconds. An engine holds the message back until
        ``published_at``. The message is valid before the instant ``expires_at``: an engine keeps it until then, for
        later subscribers. A message without ``expires_at`` is momentary: it is delivered to those who are subscribed
        when it is published, and not kept.
    """

    id: Id
    keywords: frozenset[str]
    place: Place
    attributes: Mapping[str, Value] = field(hash=False)
    published_at: int | None
    expires_at: int | None

    def __init__(
        self,
        id: Id,
        keywords: str | Iterable[str],
        place: Any,
        attributes: Mapping[str, Value] = MappingProxyType({}),
        *,
        published_at: Time | None = None,
        expires_at: Time | None = None,
    ) -> None:
        start = None if published_at is None else microseconds(published_at, "published_at")
        end = None if expires_at is None else microseconds(expires_at, "expires_at")
        if start is not None and end is not None and end <= start:
            raise ModelError(
                f"message {shown(id)} expires at {iso(end)}, not after its publication at {iso(start)}; "
                "give a later expires_at, or none at all"
            )
        for name, value in (
            ("id", _checked_id(id)),
            ("keywords", keywords_of(keywords)),
            ("place", as_place(place)),
            ("attributes", MappingProxyType(_checked_attributes(attributes))),
            ("published_at", start),
            ("expires_at", end),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        parts = [repr(self.id), repr(" ".join(sorted(self.keywords))), repr(self.place)]
        if self.attributes:
            parts.append(repr(dict(self.attributes)))
        parts += [
            f"{name}={iso(time)!r}"
            for name, time in (("published_at", self.published_at), ("expires_at", self.expires_at))
            if time is not None
        ]
        return f"Message({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        state = (
            self.id,
            self.keywords,
            self.place,
            dict(self.attributes),
            self.published_at,
            self.expires_at,
        )
        return _restored, state

    def to_json(self) -> str:
        """Return the message as a JSON object; :meth:`from_json` reads it back."""
        from nearcast.model import documents

        return documents.message_to_json(self)

    @classmethod
    def from_json(cls, document: str | bytes | Mapping[str, Any], *, space: Space = WGS84) -> Message:
        """Return the message that a JSON object or a GeoJSON Feature describes."""
        from nearcast.model import documents

        return documents.message_from_json(document, space=space)

    def to_text(self) -> str:
        """Return the message as one line of text; :meth:`from_text` reads it back."""
        from nearcast.model import lines

        return lines.message_to_text(self)

    @classmethod
    def from_text(cls, text: str, *, id: Id | None = None, space: Space = WGS84) -> Message:
        """Return the message that a line describes; with *id* given, the line has none."""
        from nearcast.model import lines

        return lines.message_from_text(text, id=id, space=space)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Subscription:
    """What a subscriber wants to receive: an expression over words and values, and a region.

    Parameters
    ----------
    id
        A string, or an integer of 64 bits.
    expression
        An ``Expression``, its written form (see :func:`nearcast.language.parse`), or ``None`` for every
        message.
    region
        A region, or its form as GeoJSON, WKT, WKB, a shapely geometry or four numbers; everywhere if not given
        or ``None``.

    ``clauses`` is the normal form of the expression.
    """

    id: Id
    expression: Expression
    region: Region
    clauses: tuple[Clause, ...] = field(compare=False)

    def __init__(self, id: Id, expression: Expression | str | None = None, region: Any = EVERYWHERE) -> None:
        if expression is None:
            expression = ANYTHING
        elif isinstance(expression, str):
            expression = parse(expression)
        elif not isinstance(expression, Expression):
            raise ModelError(
                f"{shown(expression)} is not an expression; give its text, word(…), phrase(…), attribute(…), "
                "or None for every message"
            )
        for test in _tests(expression):
            _check_characters(test.attribute, "the attribute")
            if isinstance(test.interval.low, str):
                _check_characters(test.interval.low, f"attribute {shown(test.attribute)}: the value")
        for name, value in (
            ("id", _checked_id(id)),
            ("expression", expression),
            ("region", EVERYWHERE if region is None else as_region(region)),
            ("clauses", expression.clauses()),
        ):
            object.__setattr__(self, name, value)

    def matches(self, message: Message) -> bool:
        """Return whether *message* satisfies a clause and its place touches the region; times are ignored."""
        return any(
            clause.matches(message.keywords, message.attributes) for clause in self.clauses
        ) and touches(self.region, message.place)

    def __repr__(self) -> str:
        return f"Subscription({self.id!r}, {format_expression(self.expression)!r}, {self.region!r})"

    def to_json(self) -> str:
        """Return the subscription as a JSON object; :meth:`from_json` reads it back."""
        from nearcast.model import documents

        return documents.subscription_to_json(self)

    @classmethod
    def from_json(cls, document: str | bytes | Mapping[str, Any], *, space: Space = WGS84) -> Subscription:
        """Return the subscription that a JSON object or a GeoJSON Feature describes."""
        from nearcast.model import documents

        return documents.subscription_from_json(document, space=space)

    def to_text(self) -> str:
        """Return the subscription as one line of text; :meth:`from_text` reads it back."""
        from nearcast.model import lines

        return lines.subscription_to_text(self)

    @classmethod
    def from_text(cls, text: str, *, id: Id | None = None, space: Space = WGS84) -> Subscription:
        """Return the subscription that a line describes; with *id* given, the line has none."""
        from nearcast.model import lines

        return lines.subscription_from_text(text, id=id, space=space)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message for one subscriber, or its withdrawal.

    Parameters
    ----------
    subscription_id, message_id
        Who receives what.
    change
        ``"+"`` for a new message, ``"-"`` for one that is withdrawn.
    reason
        The cause: ``"publish"``, ``"subscribe"`` (the message was there already), ``"update"``, ``"move"``,
        ``"replace"`` (another message took its id), ``"unsubscribe"`` or ``"expire"``.
    score, rank
        Only for top-k subscriptions.
    """

    subscription_id: Id
    message_id: Id
    change: str = "+"
    reason: str = "publish"
    score: float | None = None
    rank: int | None = None


def _restored(
    id: Id,
    keywords: frozenset[str],
    place: Place,
    attributes: dict[str, Value],
    published_at: int | None,
    expires_at: int | None,
) -> Message:
    return Message(id, keywords, place, attributes, published_at=published_at, expires_at=expires_at)


def _checked_id(id: Any) -> Id:
    if isinstance(id, str):
        if not id:
            raise ModelError("the id is empty; give a string or an integer")
        _check_characters(id, "id")
        return id
    if isinstance(id, bool) or not isinstance(id, int):
        raise ModelError(f"id {shown(id)} is neither a string nor an integer; convert it with str(…)")
    if not -(2**63) <= id < 2**63:
        raise ModelError(f"id {shown(id)} does not fit in 64 bits; give it as a string")
    return id


def _checked_attributes(attributes: Any) -> dict[str, Value]:
    if not isinstance(attributes, Mapping):
        raise ModelError(f"attributes {shown(attributes)} are not a mapping; map names to numbers or strings")
    return {_checked_name(name): _checked_value(name, value) for name, value in attributes.items()}


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= config.MAX_KEYWORD_CHARS:
        raise ModelError(
            f"{shown(name)} is not the name of an attribute; give a string of 1 to "
            f"{config.MAX_KEYWORD_CHARS} characters"
        )
    _check_characters(name, "the attribute")
    return name


def _checked_value(name: str, value: Any) -> Value:
    if isinstance(value, str):
        _check_characters(value, f"attribute {shown(name)}: the value")
        return value
    if not isinstance(value, Real):
        raise ModelError(
            f"attribute {shown(name)} is {shown(value)}; give a number or a string, or leave it out"
        )
    try:
        number = float(value) + 0.0  # -0.0 becomes 0.0
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ModelError(
            f"attribute {shown(name)} is {number!r}; give a finite number, or leave the attribute out"
        )
    return number


def _check_characters(text: str, what: str) -> None:
    """Refuse a lone surrogate, which JSON can express but UTF-8 cannot; in keywords it separates words."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ModelError(
            f"{what} {shown(text)} has a lone surrogate at position {error.start}, half of a character; "
            "leave it out, or write the whole character"
        ) from None


def _tests(expression: Expression) -> Iterator[Test]:
    """Yield every test of an attribute, at any depth."""
    if isinstance(expression, Test):
        yield expression
    elif isinstance(expression, Not):
        yield from _tests(expression.part)
    elif isinstance(expression, AllOf | AnyOf):
        for part in expression.parts:
            yield from _tests(part)
