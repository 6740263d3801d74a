"""Files of JSON objects: JSON lines, GeoJSON.

There are three kinds of objects, and each becomes a row of flat columns. A *document* has a ``place`` or a ``region``,
as in :mod:`nearcast.model.documents`. A *Feature* has a geometry and properties. Any other object has *flat columns*
already: ``lon``, ``lat``, ``text`` and so on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

import pyarrow as pa

from nearcast import config
from nearcast.clock import microseconds
from nearcast.columns.from_arrow.names import BOX, MESSAGE_COLUMNS, PLACE, SUBSCRIPTION_COLUMNS, TIMES
from nearcast.errors import ColumnError, GeometryError, InputError, ModelError, shown
from nearcast.files.columnar import Rename
from nearcast.geometry import Box, Circle, Everywhere, Place, Point, Region, from_geojson, from_text
from nearcast.geometry.crs import require_wgs84_geojson

__all__ = ["Kind", "from_document", "from_lines", "place_columns"]

Kind = Literal["message", "subscription"]

_WHERE = {"message": "place", "subscription": "region"}


def from_lines(lines: Iterable[bytes], kind: Kind, rename: Rename) -> pa.Table:
    """Return a row for each line that is not empty, with the names that *rename* gives."""

    def objects() -> Iterator[tuple[str, Any]]:
        for number, line in enumerate(lines, 1):
            if len(line) > config.MAX_RECORD_CHARS:
                raise ModelError(
                    f"line {number}: {len(line)} bytes are over the limit of {config.MAX_RECORD_CHARS} for one {kind} "
                    "(config.MAX_RECORD_CHARS); simplify its polygon, or shorten its text"
                )
            if line.strip():
                yield f"line {number}", _loaded(line, f"line {number}: ")

    return _table(objects(), kind, rename)


def from_document(content: bytes, kind: Kind, rename: Rename) -> pa.Table:
    """Return a row for each feature of a FeatureCollection, for each object of an array, or for a single object."""
    document = _loaded(content)
    if isinstance(document, Mapping) and document.get("type") == "FeatureCollection":
        require_wgs84_geojson(document)
        members, name = document.get("features"), "feature"
        if not isinstance(members, list):
            raise ModelError(f"the features of a FeatureCollection are {shown(members)}; give an array")
    else:
        members, name = document if isinstance(document, list) else [document], "object"
    return _table(((f"{name} {number}", member) for number, member in enumerate(members)), kind, rename)


def _table(objects: Iterable[tuple[str, Any]], kind: Kind, rename: Rename) -> pa.Table:
    """Return labelled objects as a table; an error begins with the label."""
    labels: list[str] = []
    members: list[dict[str, Any]] = []
    for label, value in objects:
        with _about(label):
            fields = _fields(value, kind)
            members.append(_with_attributes(fields) if kind == "message" else fields)
        labels.append(label)
    given = list(dict.fromkeys(name for fields in members for name in fields))
    # An empty file has no column that could be missing.
    ours = dict(zip(given, rename(given))) if given else {}
    rows: list[dict[str, Any]] = []
    for label, fields in zip(labels, members):
        with _about(label):
            rows.append(_flat({ours[name]: member for name, member in fields.items()}, kind))
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _column(name, [row.get(name) for row in rows], labels) for name in names})


@contextmanager
def _about(label: str) -> Iterator[None]:
    """Begin errors with a label."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{label}: {error}") from None


def _flat(fields: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """Return the members of an object as flat columns."""
    if isinstance(fields.get("bbox"), list):
        fields |= zip(BOX, _corners(fields.pop("bbox")))
    geometry = fields.pop("geometry", None)
    if geometry is not None:
        fields |= place_columns(from_text(geometry) if isinstance(geometry, str) else from_geojson(geometry))
    if isinstance(fields.get("keywords"), str):
        fields["keywords"] = fields["keywords"].split()
    for name in TIMES:
        if fields.get(name) is not None:
            fields[name] = microseconds(fields[name], name)
    known = MESSAGE_COLUMNS if kind == "message" else SUBSCRIPTION_COLUMNS
    for name, member in fields.items():
        if name not in known and (kind == "subscription" or isinstance(member, Mapping | list)):
            fields[name] = None  # the value is not read; the name is kept for the warning that it is left out
    return fields


def _fields(value: Any, kind: Kind) -> dict[str, Any]:
    """Return the members of an object, with its place, if any, under ``geometry``."""
    if not isinstance(value, Mapping):
        raise ModelError(f"{shown(value)} is not a {kind}; give a JSON object")
    fields = dict(value)
    if fields.get("type") == "Feature":
        require_wgs84_geojson(fields)
        properties = fields.get("properties") or {}
        if not isinstance(properties, Mapping):
            raise ModelError(f"the properties of a Feature are {shown(properties)}; give an object")
        outer = {"id": fields["id"]} if "id" in fields else {}
        return {**properties, **outer, "geometry": fields.get("geometry")}
    where = _WHERE[kind]
    beside = next((name for name in PLACE if fields.get(name) is not None), None)
    if where in fields and beside is None:
        fields["geometry"] = fields.pop(where)
    elif fields.get(where) is None and kind == "subscription":
        fields.pop(where, None)
    elif kind == "subscription" or isinstance(fields.get(where), Mapping):  # else it is an attribute
        raise ModelError(f"{shown(where)} and {shown(beside)} both say where it is; give one of them")
    return fields


def _with_attributes(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a message with its attributes, which a document has in an object of their own."""
    attributes = fields.get("attributes")
    if not isinstance(attributes, Mapping):
        return fields
    del fields["attributes"]
    if taken := [name for name in attributes if name in fields or name in MESSAGE_COLUMNS]:
        raise ModelError(f"an attribute cannot have the name {shown(taken[0])} in a file; rename it")
    return {**fields, **attributes}


def place_columns(place: Place | Region) -> dict[str, Any]:
    """Return the flat columns that describe *place*; none for everywhere."""
    if isinstance(place, Point):
        return {"lon": place.x, "lat": place.y}
    if isinstance(place, Circle):
        return {"lon": place.x, "lat": place.y, "radius_m": place.radius}
    if isinstance(place, Box):
        return {name: getattr(place, name) for name in BOX}
    return {} if isinstance(place, Everywhere) else {"geometry": place.wkb}


def _corners(bbox: list[Any]) -> list[Any]:
    if len(bbox) != 4:
        raise GeometryError(f"bbox is {shown(bbox)}; give four numbers: xmin, ymin, xmax, ymax")
    return bbox


def _column(name: str, values: list[Any], labels: list[str]) -> pa.Array:
    """Return values as one column; a mixture of text and numbers is an error, since a column has one type."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        kinds = [_kind_of(value) for value in values]
        first = next(i for i, kind in enumerate(kinds) if kind)
        for i, kind in enumerate(kinds):
            if kind and kind != kinds[first]:
                own = name in MESSAGE_COLUMNS or name in SUBSCRIPTION_COLUMNS
                raise ColumnError(
                    f"{labels[i]}: {name} is {kind}, {shown(values[i])}, but it is {kinds[first]} in "
                    f"{labels[first]}; write one kind of value{'' if own else ', or use two names'}"
                ) from None
        raise ColumnError(
            f"the values of {name}, like {shown(values[first])}, cannot be read as a column"
        ) from None


def _kind_of(value: Any) -> str:
    for kind, name in ((bool, "a truth value"), (str, "a text"), (int | float, "a number"), (list, "a list")):
        if isinstance(value, kind):
            return name
    return "" if value is None else "an object"


def _loaded(content: bytes, label: str = "") -> Any:
    """Return the value of a JSON text; mistakes in it become errors that name their position."""

    def refuse(constant: str) -> NoReturn:
        raise ModelError(f"{label}{constant} is not a number in JSON; leave the value out")

    try:
        return json.loads(content, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise ModelError(f"{label}this is not JSON: {error}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{label}this is not JSON: byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise ModelError(f"{label}this JSON is nested too deeply") from None
    except ModelError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise ModelError(f"{label}this JSON has a number that is too long: {error}") from None
