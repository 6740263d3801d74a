"""The grammar that readers and writers share: tokens, reserved words, and how an error shows its position."""

from __future__ import annotations

import re
from typing import Final

from nearcast import config
from nearcast.errors import ModelError

__all__ = ["CLAUSES", "FLIPPED", "NAME", "OPERATORS", "SPELLINGS", "TOKEN", "check_size", "located"]

OPERATORS: Final = frozenset({"AND", "OR", "NOT", "IN", "WITHIN"})
CLAUSES: Final = frozenset({"WITH", "AT", "FROM", "UNTIL"})
FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
SPELLINGS: Final = {"==": "=", "<>": "!=", "≤": "<=", "≥": ">=", "≠": "!="}

# A token and the space before it.
TOKEN: Final = re.compile(
    r"""
    \s*+ (?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<compare><=|>=|==|!=|<>|<|>|=|≤|≥|≠)
    | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![^\s()<>=!,"`*]) | [-+]inf\b)
    | (?P<word>[\#@]?[^\W_](?:[-'’.&/]?[^\s\x00-\x2f:-@\[-^`{-\x7f’≤≥≠])*)
    | (?P<mark>[(),*])
    )
    """,
    re.VERBOSE | re.DOTALL,
)
NAME: Final = re.compile(r"[^\W\d]\w*(?:\.\w+)*")


def located(text: str, at: int, reason: str) -> str:
    """Return *reason* with the line of the text that it is about and a caret below the position."""
    begin = text.rfind("\n", 0, at) + 1
    line = text.count("\n", 0, at) + 1
    end = text.find("\n", at)
    shown_from = max(begin, at - 50)
    excerpt = text[shown_from : min(len(text) if end < 0 else end, at + 30)]
    return f"{reason} (line {line}, column {at - begin + 1})\n    {excerpt}\n    {' ' * (at - shown_from)}^"


def check_size(text: str | bytes | bytearray) -> None:
    """Refuse a written message or subscription that is too long, before it is read."""
    if len(text) > config.MAX_RECORD_CHARS:
        raise ModelError(
            f"{len(text)} characters are over the limit of {config.MAX_RECORD_CHARS} for one message or "
            "subscription (config.MAX_RECORD_CHARS); shorten its text, or simplify its polygon"
        )
