"""Every error that Nearcast raises, in one tree.

::

    NearcastError
    ├── InputError (also ValueError)        what the caller gave is wrong
    │   ├── GeometryError                   a coordinate, box, circle or polygon
    │   ├── ExpressionError                 keywords, predicates, or the written form around them
    │   ├── ModelError                      a field of a Message or a Subscription
    │   ├── ColumnError                     an array or a table: shape, type, missing column
    │   └── DuplicateError                  an id that is already in use
    ├── UnknownError (also LookupError)     an id, a row or a name that does not exist
    ├── IndexFileError                      a saved directory that is damaged, or of another kind or format
    └── RuntimeUnavailableError (also RuntimeError)   something outside is missing: Java, an optional package

    NearcastWarning (a UserWarning)         what was given can be used, but perhaps not as it was meant

The policy: a message names the offending value, the limit that it breaks and the way out. Errors of the libraries
below (NumPy, Arrow, Shapely) never reach the caller for a mistake that the caller made: the layer that first sees
the value checks it. Nothing is half-applied when an error is raised.
"""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Iterable

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
    "UnknownError",
    "nearest",
    "shown",
    "warn",
]

NEAR = 0.87  # as difflib counts: a wrong letter in eight, a missing one in four; `published` is not `published_at`


class NearcastError(Exception):
    """The root: catch this to catch everything that Nearcast raises on purpose."""


class InputError(NearcastError, ValueError):
    """What the caller gave cannot be used; the message says which value, and what to do."""


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
    """A saved directory, of an index or anything else, that is damaged, incomplete, or of another kind or format."""


class RuntimeUnavailableError(NearcastError, RuntimeError):
    """Something outside of Nearcast is missing: Java, or an optional package."""


class NearcastWarning(UserWarning):
    """What the caller gave can be used, but perhaps not as it was meant."""


def warn(sentence: str) -> None:
    """Issue a :class:`NearcastWarning` that points at the line that called Nearcast.

    Python shows the same sentence about the same line once.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "nearcast":
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, NearcastWarning, stacklevel=level)


def nearest(name: str, known: Iterable[str], near: float = NEAR) -> str | None:
    """Return the one of the *known* names that *name* is a misspelling of, if there is one.

    Capitals and the marks between words do not count. Of names of three letters and less nothing else is near: they
    are words of their own too easily. *near* is how alike names must be, from 0 to 1.

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
    """Return *value* as an error message shows it: its ``repr``, cut to *limit* characters.

    >>> shown("coffee")
    "'coffee'"
    >>> shown("x" * 200, limit=12)
    "'xxxxxxx…' (200 characters)"
    """
    if isinstance(value, str) and len(value) > limit:
        return f"{value[: limit - 5]!r}".removesuffix("'") + f"…' ({len(value)} characters)"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
