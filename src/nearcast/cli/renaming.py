"""The option ``--rename``: columns that have other names in the files.

::

    def command(rename: Rename = None) -> None:
        columns = renaming.parse(rename)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nearcast.errors import InputError, shown

if TYPE_CHECKING:
    from nearcast.columns.from_arrow.renaming import Columns

__all__ = ["Rename", "parse"]

Rename = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="OURS=THEIRS",
        help="Read the column THEIRS as OURS, such as lat=latitude; messages.id=nr is for messages alone. "
        "May be repeated.",
    ),
]
_TABLES = ("messages", "subscriptions")


def parse(given: list[str] | None) -> Columns | None:
    """Return the renamings as the mapping that ``columns=`` takes in Python; None if there are none.

    >>> parse(["lat=latitude", "messages.id=nr"])
    {'lat': 'latitude', 'messages': {'id': 'nr'}}
    """
    if not given:
        return None
    shared: dict[str, str] = {}
    own: dict[str, dict[str, str]] = {}
    for written in given:
        name, _, theirs = (part.strip() for part in written.partition("="))
        table, dot, column = name.partition(".")
        ours = column if dot and table in _TABLES else name
        if not ours or not theirs:
            raise InputError(
                f"--rename {shown(written)} has the wrong form; write lat=latitude, our name first"
            )
        entries = own.setdefault(table, {}) if ours is not name else shared
        if entries.setdefault(ours, theirs) != theirs:
            raise InputError(
                f"--rename names two columns for {name}: {shown(entries[ours])} and {shown(theirs)}; leave one out"
            )
    return {**shared, **own}
