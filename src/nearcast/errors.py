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
    ├── IndexFileError                      an index directory that is damaged or of another version
    └── RuntimeUnavailableError (also RuntimeError)   something outside is missing: Java, an optional package

The policy: a message names the offending value, the limit that it breaks and the way out. Errors of the libraries
below (NumPy, Arrow, Shapely) never reach the caller for a mistake that the caller made: the layer that first sees
the value checks it. Nothing is half-applied when an error is raised.
"""

from __future__ import annotations

__all__ = [
    "ColumnError",
    "DuplicateError",
    "ExpressionError",
    "GeometryError",
    "IndexFileError",
    "InputError",
    "ModelError",
    "NearcastError",
    "RuntimeUnavailableError",
    "UnknownError",
    "shown",
]


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
    """An index directory that is damaged, incomplete or of another version."""


class RuntimeUnavailableError(NearcastError, RuntimeError):
    """Something outside of Nearcast is missing: Java, or an optional package."""


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
