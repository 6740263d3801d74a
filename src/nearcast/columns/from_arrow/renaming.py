"""Columns that have other names: one mapping from our names to those of a table, the same at every door.

A mapping such as ``{"lat": "latitude", "text": "body"}`` says which column of a table is read as which of ours; on the
command line it is written ``--rename lat=latitude``. For messages, our name may also be that of an attribute. Where a
call reads several tables, an entry holds for each of them that has such a column. Entries for one of them alone come in
a mapping of their own: ``{"messages": {"id": "nr"}, "subscriptions": {"id": "user"}}``, or ``--rename messages.id=nr``.
Those for a table that a call does not read are ignored, so one mapping can serve all calls.

An entry that changes nothing would be a mistake that nobody notices. So all of these are errors, with the nearest right
name: a name that is not one of ours, a column that no table has, two of ours for one column, and one of ours that the
table has already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa

from nearcast.columns.from_arrow.names import (
    MESSAGE_COLUMNS,
    MOVE_COLUMNS,
    SUBSCRIPTION_COLUMNS,
    message_column_meant,
)
from nearcast.errors import ColumnError, nearest, shown

__all__ = ["Columns", "Kind", "Renaming", "rename_table", "renaming_of", "with_names"]

Kind = Literal["messages", "subscriptions", "moves"]
#: The argument ``columns=``: our name to theirs, or ``messages``, ``subscriptions``, ``moves`` to a mapping of its own.
Columns = Mapping[str, str | Mapping[str, str]]

_OURS: dict[Kind, tuple[str, ...]] = {
    "messages": MESSAGE_COLUMNS,
    "subscriptions": SUBSCRIPTION_COLUMNS,
    "moves": MOVE_COLUMNS,
}


class Renaming:
    """The mapping for the tables of one call, which are renamed one by one, in any order.

    >>> renaming = Renaming({"lat": "latitude", "lon": "longitude"}, "messages")
    >>> renaming.apply("messages", ["id", "longitude", "latitude", "price"])
    ['id', 'lon', 'lat', 'price']
    >>> Renaming({"lat": "latitude"}, "messages").apply("messages", ["id", "Latitude"])
    Traceback (most recent call last):
        ...
    nearcast.errors.ColumnError: the messages have no column 'latitude' to read as lat; did you mean 'Latitude'?
    """

    def __init__(self, columns: Columns | None, *kinds: Kind) -> None:
        self._shared: dict[str, str] = {}  # the entries that hold for every table
        self._own: dict[str, dict[str, str]] = {kind: {} for kind in _OURS}
        self._unused: dict[str, str] = {}
        self._waiting = list(kinds)
        self._seen: dict[Kind, Sequence[str]] = {}
        if columns is not None:
            self._take(columns)

    def _take(self, columns: object) -> None:
        if not isinstance(columns, Mapping):
            raise ColumnError(
                f"columns must map our names to those of the table, as in {{'lat': 'latitude'}}, not {shown(columns)}"
            )
        for name, theirs in columns.items():
            if isinstance(theirs, Mapping):
                if name not in self._own:
                    meant = nearest(str(name), _OURS)
                    hint = f"; did you mean {meant}?" if meant else f"; there are {', '.join(_OURS)}"
                    raise ColumnError(f"there are no tables {shown(name)} to rename columns of{hint}")
                self._own[name] = {ours: _checked(ours, other) for ours, other in theirs.items()}
            else:
                self._shared[name] = _checked(name, theirs)
        self._unused = dict(self._shared)

    def __bool__(self) -> bool:
        return bool(self._shared) or any(self._own.values())

    def apply(self, kind: Kind, names: Sequence[str]) -> list[str]:
        """Return the names of the columns of a table, those in the mapping under our name.

        With the last of the tables, entries that none of them has a column for are errors, too.
        """
        chosen = self._chosen(kind, names)
        back: dict[str, str] = {}
        for ours, theirs in chosen.items():
            if theirs in back:
                raise ColumnError(
                    f"column {shown(theirs)} of the {kind} cannot be both {back[theirs]} and {ours}; "
                    "name another column for one of them"
                )
            if ours in names and ours not in chosen.values():
                raise ColumnError(
                    f"the {kind} have a column {shown(ours)} already, and {shown(theirs)} would be a second one; "
                    "leave one of them out"
                )
            back[theirs] = ours
        renamed = [back.get(name, name) for name in names]
        if kind == "messages":
            _refuse_likenesses(chosen, renamed)
        self._seen[kind] = names
        self._waiting.remove(kind)
        if not self._waiting and self._unused:
            self._refuse(*next(iter(self._unused.items())), self._seen)
        return renamed

    def _chosen(self, kind: Kind, names: Sequence[str]) -> dict[str, str]:
        """Return the entries that hold for a table, our name to theirs."""
        own, chosen = self._own[kind], {}
        for ours, theirs in self._shared.items():
            if ours in own:
                self._unused.pop(ours, None)
            elif _is_ours(kind, ours) and theirs in names:
                chosen[ours] = theirs
                self._unused.pop(ours, None)
        for ours, theirs in own.items():
            if not _is_ours(kind, ours) or theirs not in names:
                self._refuse(ours, theirs, {kind: names})
            chosen[ours] = theirs
        return chosen

    def _refuse(self, ours: str, theirs: str, seen: Mapping[Kind, Sequence[str]]) -> None:
        """Raise for an entry that no table has a use for."""
        for kind, names in seen.items():
            if not _is_ours(kind, ours) and (theirs in names or len(seen) == 1):
                if theirs in _OURS[kind] and ours in names:
                    continue  # the other way round
                meant = nearest(ours, _OURS[kind])
                hint = f"; did you mean {meant}?" if meant else f"; there are {', '.join(_OURS[kind])}"
                raise ColumnError(f"{kind} have no {shown(ours)} that {shown(theirs)} could be read as{hint}")
        names = [name for known in seen.values() for name in known]
        if ours in names and any(theirs in _OURS[kind] for kind in seen):
            raise ColumnError(
                f"{ours}={theirs} is the wrong way round: our name comes first; write {theirs}={ours}"
            )
        who = " and the ".join(seen)
        near = nearest(theirs, names)
        if ours in names:
            hint = f"; there is a column {ours} already, so leave this out"
        elif near is not None:
            hint = f"; did you mean {shown(near)}?"
        else:
            hint = f"; the columns are {', '.join(dict.fromkeys(names))}"
        raise ColumnError(f"the {who} have no column {shown(theirs)} to read as {ours}{hint}")


def _checked(ours: object, theirs: object) -> str:
    if not isinstance(theirs, str) or not isinstance(ours, str) or not theirs or not ours:
        raise ColumnError(
            f"columns map our names to those of the table, as in {{'lat': 'latitude'}}; "
            f"{shown(ours)}: {shown(theirs)} are not two names"
        )
    return theirs


def _is_ours(kind: Kind, name: str) -> bool:
    """Tell whether a table may have a column of this name; messages may have any attribute."""
    return name in _OURS[kind] or (kind == "messages" and name not in SUBSCRIPTION_COLUMNS)


def _refuse_likenesses(chosen: Mapping[str, str], renamed: Sequence[str]) -> None:
    """Refuse a new name of an attribute that must be a mistake for one of ours."""
    for ours, theirs in chosen.items():
        meant = message_column_meant(ours, renamed)
        if meant is not None:
            raise ColumnError(
                f"messages have no {shown(ours)} that {shown(theirs)} could be read as; did you mean {meant}? "
                "If it is meant as an attribute, give it another name"
            )


def renaming_of(columns: Columns | Renaming | None, *kinds: Kind) -> Renaming:
    """Return the renaming of a call that reads the tables *kinds*; one that is given is under way already."""
    return columns if isinstance(columns, Renaming) else Renaming(columns, *kinds)


def rename_table(table: pa.Table, columns: Columns | Renaming | None, kind: Kind) -> pa.Table:
    """Return an Arrow table with our names."""
    if columns is None:
        return table
    return with_names(table, renaming_of(columns, kind).apply(kind, table.column_names))


def with_names(table: pa.Table, names: list[str]) -> pa.Table:
    """Return an Arrow table with other names; what GeoParquet declares about a column follows its name."""
    if names == table.column_names:
        return table
    metadata = dict(table.schema.metadata or {})
    if b"geo" in metadata:
        metadata[b"geo"] = _renamed_geometry(metadata[b"geo"], dict(zip(table.column_names, names)))
    return table.rename_columns(names).replace_schema_metadata(metadata)


def _renamed_geometry(written: bytes, ours: Mapping[str, str]) -> bytes:
    """Return GeoParquet's metadata for columns with other names; a column that is now the geometry is the primary one.

    Metadata that cannot be read is returned as it is: those who need it refuse it.
    """
    try:
        geo = json.loads(written)
        columns = {ours.get(name, name): declared for name, declared in geo["columns"].items()}
        primary = ours.get(geo["primary_column"], geo["primary_column"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return written
    chosen = "geometry" if "geometry" in ours.values() and "geometry" in columns else primary
    return json.dumps({**geo, "columns": columns, "primary_column": chosen}).encode()
