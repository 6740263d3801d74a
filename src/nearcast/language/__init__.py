"""The written forms: expressions as text; messages and subscriptions as text and as JSON.

**Expressions.** ``coffee AND (discount OR "happy hour") NOT decaf`` asks for words. ``NOT`` binds closest,
then ``AND``, then ``OR``; words side by side are joined by ``AND``; a phrase in double quotes asks for all of
its words; ``*`` is every message. Attributes are compared: ``price < 3300``, ``100 <= capacity <= 256``,
``brand = "Huawei"``, ``brand != "Huawei"``, ``rating IN (4, 5)``, ``rating NOT IN (1, 2)``. A name that is
not an identifier stands in backticks, with the escapes of a string and two backticks for one. The operators
``AND OR NOT IN WITHIN`` are recognised in any case, so that ``coffee or tea`` means what it says; to ask for
such a word, quote it: ``"or"``.

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

from nearcast.language.documents import (
    message_from_json,
    message_to_json,
    subscription_from_json,
    subscription_to_json,
)
from nearcast.language.lines import (
    message_from_text,
    message_to_text,
    subscription_from_text,
    subscription_to_text,
)
from nearcast.language.reading import parse
from nearcast.language.writing import format_expression

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
