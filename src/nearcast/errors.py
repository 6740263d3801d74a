"""Every error that Nearcast raises, in one tree.

::

    NearcastError
    ├── InputError (also ValueError)        the caller passed something wrong
    │   ├── GeometryError                   a coordinate, box, circle or polygon
    │   ├── ExpressionError                 keywords, predicates, or the written form of an expression
    │   ├── ModelError                      a field of a Message or a Subscription
    │   ├── ColumnError                     an array or a table: shape, type, missing column
    │   └── DuplicateError                  an id that is already in use
    ├── UnknownError (also LookupError)     an id, a row or a name that does not exist
    ├── IndexFileError                      a saved directory that is damaged, or of another kind or format
    ├── StorageError                        a place that lacks an operation, or that another writer uses
    └── RuntimeUnavailableError (also RuntimeError)   something outside Nearcast is missing: Java, an optional package

    NearcastWarning (a UserWarning)         the input can be used, but perhaps not as it was meant

The policy: a message names the offending value, the limit that it breaks and the way out. A caller's mistake never
surfaces as an error of an underlying library (NumPy, Arrow, Shapely): the layer that first sees a value checks it.
When an error is raised, nothing is half-applied.
"""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Iterable
from numbers import Integral
from typing import Any

__all__ = [
    "NEAR",
    "ColumnError",
    "DuplicateError",
    "ExpressionError",
    "GeometryError",
    "IndexFileError",
    "InputError",
    "ModelError",
    "NearcastError",
    "NearcastWarning",
    "RuntimeUnavailableError",
    "StorageError",
    "UnknownError",
    "counted",
    "nearest",
    "shown",
    "warn",
    "whole_number",
]

# How alike two names must be, as difflib counts: one wrong letter in eight or one missing letter in four passes;
# `published` is not `published_at`.
NEAR = 0.87


class NearcastError(Exception):
    """The base class: catch this to catch everything that Nearcast raises on purpose."""


class InputError(NearcastError, ValueError):
    """An input that cannot be used; the message names the value and says what to do."""


class GeometryError(InputError):
    """A coordinate, box, circle or polygon that has no meaning."""


class ExpressionError(InputError):
    """A keyword expression, a predicate or a written form that cannot be read, or that is too large."""


class ModelError(InputError):
    """A field of a message or a subscription that cannot be used."""


class ColumnError(InputError):
    """An array or table of the wrong shape or type, or without a column that is needed."""


class DuplicateError(InputError):
    """An id that is already in use."""


class UnknownError(NearcastError, LookupError):
    """An id, a row or a name that does not exist."""


class IndexFileError(NearcastError):
    """A saved directory, of an index or anything else, that is damaged, incomplete, or has another kind or format."""


class RuntimeUnavailableError(NearcastError, RuntimeError):
    """Something outside Nearcast is missing: Java, or an optional package."""


class StorageError(NearcastError):
    """A place that cannot keep what it should: a file system or store that lacks an operation, or a second writer."""


class NearcastWarning(UserWarning):
    """An input that can be used, but perhaps not as it was meant."""


def warn(sentence: str) -> None:
    """Issue a :class:`NearcastWarning` that points to the line that called Nearcast.

    Python shows the same sentence once for each line.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "nearcast":
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, NearcastWarning, stacklevel=level)


def nearest(name: str, known: Iterable[str], near: float = NEAR) -> str | None:
    """Return the *known* name that *name* is a misspelling of, if there is one.

    Case and punctuation between words are ignored. Names of up to three letters match in no other way: another short
    name is too likely to be a word of its own. *near* is how alike two names must be, from 0 to 1.

    >>> nearest("Expresion", ["id", "expression"]), nearest("radius-M", ["radius_m"])
    ('expression', 'radius_m')
    >>> nearest("uid", ["id", "expression"]) is None
    True
    """
    plain = {_plain(other): other for other in known}
    own = _plain(name)
    if _joined(own) in map(_joined, plain):
        return next(other for key, other in plain.items() if _joined(key) == _joined(own))
    long = [key for key in plain if len(key) > 3]
    found = difflib.get_close_matches(own, long if len(own) > 3 else [], 1, near)
    return plain[found[0]] if found else None


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name.strip().casefold())


def _joined(name: str) -> str:
    return name.replace("_", "")


def shown(value: object, limit: int = 80) -> str:
    """Return *value* as error messages show it: its ``repr``, cut to *limit* characters.

    >>> shown("coffee")
    "'coffee'"
    >>> shown("x" * 200, limit=12)
    "'xxxxxxx…' (200 characters)"
    """
    if isinstance(value, str) and len(value) > limit:
        return f"{value[: limit - 5]!r}".removesuffix("'") + f"…' ({len(value)} characters)"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as sentences show it.

    >>> counted(1, "delivery"), counted(2_000, "delivery")
    ('1 delivery', '2,000 deliveries')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun.removesuffix('y') + 'ies' if noun.endswith('y') else noun + 's'}"


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return *value*, the argument called *name*, if it is a whole number from *least* to *most*; raise if not.

    ``True`` and ``False`` are not numbers here.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        limits = f"from {least:,}" if most is None else f"from {least:,} to {most:,}"
        raise InputError(f"{name} must be a whole number {limits}, not {shown(value)}")
    return int(value)
