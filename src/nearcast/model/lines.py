"""Messages and subscriptions as one line of text.

**Subscriptions**: ``anna: coffee NOT decaf WITHIN CIRCLE (-73.99 40.73, 800 m)``. The id and the region are optional.

**Messages**: ``m1: Half price coffee WITH price = 2.5, brand = "Blue Bottle" AT POINT (-73.99 40.73) FROM
2026-11-15T08:00:00Z UNTIL 2026-11-15T10:00:00Z``. The text before ``WITH`` is free; ``WITH``, ``AT``,
``FROM`` and ``UNTIL`` are in capitals.

In both, digits are an integer id. An id that is a string of digits, or that has spaces, is put in double quotes.
Reading a written line returns an equal value.
"""

from __future__ import annotations

import json
import re
from typing import Final

from nearcast.clock import iso
from nearcast.errors import ModelError, shown
from nearcast.geometry import EVERYWHERE, WGS84, Region, Space, as_place, as_region, to_text
from nearcast.language.grammar import check_size
from nearcast.language.reading import Reader
from nearcast.language.writing import format_expression, quoted, written_name, written_value
from nearcast.model import Id, Message, Subscription
from nearcast.predicates import Value

__all__ = [
    "message_from_text",
    "message_to_text",
    "subscription_from_text",
    "subscription_to_text",
    "time_of",
]

_ID: Final = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*")|([^\s:"`(),]+))\s*:(?=\s|$)""", re.DOTALL)
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_AFTER_WORDS: Final = re.compile(
    r"(?<!\S)(?:WITH(?=\s+(?:`|[^\W\d][\w.]*\s*=))|AT(?=\s+(?i:POINT|BOX|CIRCLE|POLYGON|MULTIPOLYGON)\s*\())"
)
_TIMES: Final = re.compile(r"(?:(?<!\S)FROM\s+(\S+))?\s*(?:(?<!\S)UNTIL\s+(\S+))?\s*$")
_FIRST_TIME: Final = re.compile(r"(?<!\S)(?:FROM|UNTIL)(?!\S)")


def subscription_to_text(subscription: Subscription) -> str:
    """Return a subscription as a line: ``id: expression WITHIN region``."""
    line = f"{_written_id(subscription.id)}: {format_expression(subscription.expression)}"
    return line if subscription.region == EVERYWHERE else f"{line} WITHIN {to_text(subscription.region)}"


def subscription_from_text(text: str, *, id: Id | None = None, space: Space = WGS84) -> Subscription:
    """Return the subscription of a line: ``[id:] expression [WITHIN region]``.

    With *id* given, the line has none.

    >>> subscription_from_text("anna: coffee NOT decaf WITHIN CIRCLE (-73.99 40.73, 800 m)")
    Subscription('anna', 'coffee AND NOT decaf', Circle(lon=-73.99, lat=40.73, radius=800.0))
    """
    id, start = _read_id(text, id)
    reader = Reader(text, start)
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
            f"{written_name(name)} = {written_value(value)}" for name, value in message.attributes.items()
        )
        parts.append(f"WITH {', '.join(values)}")
    parts.append(f"AT {to_text(message.place)}")
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
    published_at, expires_at = (time_of(time) for time in read.groups())
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
    reader = Reader(text, start)
    attributes: dict[str, Value] = {}
    while True:
        at = reader.take()
        name = reader.name(at)
        if name in attributes:
            reader.fail(f"the attribute {name!r} has two values; give one", at)
        if not reader.sees("compare", "="):
            reader.fail(f"an equals sign is missing; write the value of an attribute as {name} = …")
        reader.take()
        attributes[name] = reader.value()
        if reader.sees("word", "AT"):
            return attributes, reader.end
        if not reader.sees("mark", ","):
            reader.fail(
                "after the value of an attribute, write a comma and the next one, or AT and the place"
            )
        reader.take()


def _read_id(text: str, id: Id | None) -> tuple[Id, int]:
    """Return the id at the beginning of a line, or the given one, and where the rest begins."""
    if not isinstance(text, str):
        raise ModelError(f"{shown(text)} is not a text; give a string")
    check_size(text)
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
        raise ModelError(
            f"the id {shown(found.group(1))} has a wrong escape; write \\\\ for a backslash"
        ) from None


def _id_of(text: str) -> Id:
    return int(text) if _INTEGER.fullmatch(text) else text


def _written_id(id: Id) -> str:
    if isinstance(id, int):
        return str(id)
    found = _ID.fullmatch(id + ":")
    return id if found and found.group(2) == id and _id_of(id) == id else quoted(id)


def time_of(text: str | None) -> int | str | None:
    """Return a time as it was written: ISO 8601, or an integer of microseconds."""
    return int(text) if text is not None and _INTEGER.fullmatch(text) else text
