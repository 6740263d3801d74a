"""The names of columns: which are read, which are left out, and which must be a mistake.

A missing column has a meaning too: a subscription without a region asks for every place, and without an id the number
of the row is one. So a misspelt name must not pass for a missing column. The rules are the same for every table,
however it arrives:

- Subscriptions have a column ``expression`` or ``keywords``, in which each says something: ``*`` for every message.
- A column of subscriptions whose name is nearly one of ours (``expresion``, ``keyword``), or another common name for
  one (``latitude``, ``radius``, ``region``), is an error. Any other column is left out, with one warning.
- Any other column of messages is an attribute. It is an error only if its name is nearly that of a missing column:
  ``txt`` where there is neither ``text`` nor ``keywords``, ``expire_at`` without ``expires_at``, ``ID`` without ``id``,
  ``lng`` or ``location`` without a place.
- Names are case-sensitive. A column ``Price`` where subscriptions ask for ``price`` causes one warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from nearcast.columns.attributes import AttributeNames
from nearcast.errors import NEAR, ColumnError, nearest, shown, warn

__all__ = [
    "BOX",
    "KEPT",
    "MESSAGE_COLUMNS",
    "MOVE_COLUMNS",
    "PLACE",
    "PLACES",
    "SUBSCRIPTION_COLUMNS",
    "TIMES",
    "check_messages",
    "check_moves",
    "message_column_meant",
    "read_columns",
    "require",
    "tell_other_case",
    "words_meant",
]

BOX = ("xmin", "ymin", "xmax", "ymax")
PLACES = (("geometry",), ("lon", "lat", "radius_m"), BOX, ("bbox",))  # the ways to say where
_WORDS = ("expression", "keywords")
TIMES = ("published_at", "expires_at")
PLACE = tuple(name for way in PLACES for name in way)
SUBSCRIPTION_COLUMNS = ("id", *_WORDS, *PLACE)
MOVE_COLUMNS = ("id", *PLACE)
MESSAGE_COLUMNS = ("id", "text", "keywords", *PLACE, *TIMES)

# Other names that people give to these columns. Of documents, place and region are members (nearcast.files.documents).
_PLACE_NAMES = {
    **dict.fromkeys(("longitude", "lng", "long", "x"), "lon"),
    **dict.fromkeys(("latitude", "y"), "lat"),
    **dict.fromkeys(("radius", "radius_km", "r"), "radius_m"),
    **dict.fromkeys(("geom", "the_geom", "wkt", "wkb", "geojson", "polygon"), "geometry"),
    **dict.fromkeys(("region", "regions", "place", "location", "position", "coordinates"), "geometry"),
    **{f"{side[1:]}{side[0]}": side for side in BOX},  # minx
    **dict(zip(("west", "south", "east", "north"), BOX)),
    **dict.fromkeys(("box", "bounds"), "bbox"),
}
_WORD_NAMES = {
    **dict.fromkeys(("query", "filter", "expr", "condition", "interest", "text"), "expression"),
    **dict.fromkeys(("words", "tags", "terms", "topics"), "keywords"),
}
_TEXT_NAMES = {"txt": "text", "tex": "text"}
# Columns that the pipeline keeps, which matching does not read; nobody needs a warning of them.
KEPT = "_kept_"  # begins the names of those that are kept for deliveries
_CHANGED_AT = "_changed_at"  # kept with subscriptions
_LOOSE = 0.6  # how similar a name must be to be suggested for a column that is missing


def read_columns(names: Sequence[str], about: str = "") -> list[str]:
    """Return the columns of a table of subscriptions that are read; a warning, prefixed by *about*, names the others.

    Raise ColumnError if a name must be a mistake, or if no column says what the subscriptions ask for.

    >>> read_columns(["id", "expression"])
    ['id', 'expression']
    >>> read_columns(["id", "query"])
    Traceback (most recent call last):
        ...
    nearcast.errors.ColumnError: subscriptions need a column expression or keywords; there is 'query': did you mean \
expression? For every message, write * as the expression
    """
    read, others = _split(tuple(names))
    if left := ", ".join(map(repr, others)):
        warn(f"{about}left out {left}; a subscription has {', '.join(SUBSCRIPTION_COLUMNS)}")
    return list(read)


@lru_cache
def _split(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    known = (*SUBSCRIPTION_COLUMNS, _CHANGED_AT)
    others = tuple(name for name in names if name not in known and not name.startswith(KEPT))
    for name in others:
        meant = _find_intended(name, SUBSCRIPTION_COLUMNS, _PLACE_NAMES)
        if meant is not None:
            raise ColumnError(
                f"a table of subscriptions has no column {shown(name)}; did you mean {meant}? "
                f"{_rename_it(name, meant)}, or leave it out"
            )
    if names and not set(_WORDS) & set(names):  # a table without columns has no rows
        suggested = [(name, _find_intended(name, _WORDS, _WORD_NAMES, _LOOSE)) for name in others]
        there = next(
            (f"there is {shown(name)}: did you mean {meant}?" for name, meant in suggested if meant),
            f"the columns are {', '.join(names)}.",
        )
        raise ColumnError(
            f"subscriptions need a column expression or keywords; {there} For every message, write * as the expression"
        )
    return tuple(name for name in names if name in SUBSCRIPTION_COLUMNS), others


def words_meant(names: Sequence[str]) -> bool:
    """Tell whether a column must be meant for the words of subscriptions, under another name.

    >>> words_meant(["id", "query"]), words_meant(["id", "lon"])
    (True, False)
    """
    return any(
        _find_intended(name, _WORDS, _WORD_NAMES) for name in names if name not in SUBSCRIPTION_COLUMNS
    )


def check_moves(names: Sequence[str]) -> None:
    """Raise ColumnError if the name of a column of moves must be a mistake; warn of others, which are left out.

    >>> check_moves(["id", "lon", "latitude"])
    Traceback (most recent call last):
        ...
    nearcast.errors.ColumnError: a table of moves has no column 'latitude'; did you mean lat? Rename it \
(columns={'lat': 'latitude'} or --rename lat=latitude), or leave it out
    """
    if others := _not_of_moves(tuple(names)):
        warn(f"left out {', '.join(map(repr, others))}; a move has {', '.join(MOVE_COLUMNS)}")


@lru_cache
def _not_of_moves(names: tuple[str, ...]) -> list[str]:
    others = [name for name in names if name not in MOVE_COLUMNS]
    for name in others:
        meant = _find_intended(name, MOVE_COLUMNS, _PLACE_NAMES)
        if meant is not None:
            raise ColumnError(
                f"a table of moves has no column {shown(name)}; did you mean {meant}? "
                f"{_rename_it(name, meant)}, or leave it out"
            )
    return others


def require(needed: Sequence[str], names: Sequence[str], what: str) -> None:
    """Raise unless the needed columns are among *names*."""
    for column in needed:
        if column not in names:
            near = next((f"; did you mean {shown(name)}?" for name in names if nearest(name, [column])), "")
            raise ColumnError(f"{what} need a column {column}; the columns are {', '.join(names)}{near}")


@lru_cache
def check_messages(names: tuple[str, ...]) -> None:
    """Raise ColumnError if the name of a column of messages must be a mistake.

    >>> check_messages(("ID", "text", "lon", "lat"))
    Traceback (most recent call last):
        ...
    nearcast.errors.ColumnError: messages have a column 'ID' and no id; did you mean id? Rename it \
(columns={'id': 'ID'} or --rename id=ID); if it is meant as an attribute, give it another name
    """
    for name in names:
        meant = message_column_meant(name, names)
        if meant is not None:
            raise ColumnError(
                f"messages have a column {shown(name)} and no {meant}; did you mean {meant}? "
                f"{_rename_it(name, meant)}; if it is meant as an attribute, give it another name"
            )


def message_column_meant(name: str, names: Sequence[str]) -> str | None:
    """Return the column that *name* is a misspelling of, or another name for, if messages with columns *names* lack it.

    >>> message_column_meant("lng", ["text", "lng", "lat"])
    'lon'
    >>> message_column_meant("lng", ["text", "lng", "geometry"]) is None
    True
    """
    if name in MESSAGE_COLUMNS:
        return None
    return _find_intended(name, _missing_in(tuple(names)), {**_TEXT_NAMES, **_PLACE_NAMES})


@lru_cache
def _missing_in(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns of messages that a table lacks, and for which it has no other."""
    there = set(names)
    missing = [name for name in ("id", *TIMES) if name not in there]
    if not there & {"text", "keywords"}:
        missing += ["text", "keywords"]
    for way in PLACES:
        if not any(there & set(other) for other in PLACES if other is not way):
            missing += [name for name in way if name not in there and name != "radius_m"]
    return tuple(missing)


def _rename_it(theirs: str, ours: str) -> str:
    """Return the way out for a column that has another name than ours."""
    if theirs == "radius_km":
        return f"Convert it to metres, as {ours}"
    return f"Rename it (columns={{{ours!r}: {theirs!r}}} or --rename {ours}={theirs})"


def _find_intended(name: str, known: Sequence[str], others: dict[str, str], near: float = NEAR) -> str | None:
    """Return the known column that a name is meant to be, by its own name or another common one; None if unclear."""
    also = {other: own for other, own in others.items() if own in known}
    found = nearest(name, [*known, *also], near)
    return None if found is None else also.get(found, found)


def tell_other_case(names: Sequence[str], attributes: AttributeNames) -> None:
    """Warn of columns of messages whose names differ in case alone from attributes that subscriptions ask for."""
    for name in names:
        attribute = None if name in MESSAGE_COLUMNS else attributes.other_case(name)
        if attribute is not None and attribute not in names:
            warn(
                f"messages have a column {shown(name)}, and subscriptions ask for {shown(attribute)}: names of "
                "attributes are case-sensitive; rename the column if they are the same"
            )
