"""Places and regions as GeoJSON and as text, and from any form that a caller may pass."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from nearcast.errors import GeometryError, shown
from nearcast.geometry.crs import require_wgs84_geojson
from nearcast.geometry.polygons import as_shapely, rectangle, wkt_of
from nearcast.geometry.regions import EVERYWHERE, Box, Circle, Everywhere, Place, Point, Polygon, Region
from nearcast.geometry.spaces import WGS84, Bounds, Geographic, Planar, Space

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

__all__ = ["as_place", "as_region", "from_geojson", "from_text", "to_geojson", "to_text"]


def as_region(value: Any, space: Space = WGS84) -> Region:
    """Return *value* as a region.

    Accepts a region, a shapely geometry, a GeoJSON mapping, text (WKT, or what :func:`to_text` writes), WKB, or four
    numbers (xmin, ymin, xmax, ymax). A polygon that is a rectangle becomes a :class:`Box`. ``None`` is refused: it may
    be a missing value, and everywhere is written :data:`EVERYWHERE`.

    >>> as_region((-74.1, 40.6, -73.8, 40.9))
    Box(-74.1, 40.6, -73.8, 40.9)
    """
    if value is None:
        raise GeometryError("None is not a region; for everywhere, give EVERYWHERE")
    place = _read(value, space)
    if isinstance(place, Point):
        raise GeometryError(
            f"{place!r} is a point, not a region; give a Circle with a radius, a Box, a Polygon or EVERYWHERE"
        )
    return place


def as_place(value: Any, space: Space = WGS84) -> Place:
    """Return *value* as the place of a message: like :func:`as_region`, but with points and without everywhere."""
    place = None if value is None else _read(value, space)
    if place is None or isinstance(place, Everywhere):
        raise GeometryError(
            f"{shown(value)} is not a place; a message needs a Point, a Box, a Circle or a Polygon"
        )
    return place


def _read(value: Any, space: Space) -> Place | Region:
    if isinstance(value, Point | Box | Circle | Polygon | Everywhere):
        return value
    if isinstance(value, str):
        return from_text(value, space)
    if isinstance(value, Mapping):
        return from_geojson(value, space)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        if len(value) != 4:
            raise GeometryError(f"{shown(value)} is not a box; give four numbers: xmin, ymin, xmax, ymax")
        xmin, ymin, xmax, ymax = value
        return Box(xmin, ymin, xmax, ymax, space)
    return _from_shapely(as_shapely(value, space), space)


# --- GeoJSON -------------------------------------------------------------------------------------------------
def to_geojson(place: Place | Region) -> dict[str, Any] | None:
    """Return *place* as a GeoJSON geometry; everywhere is ``None``.

    A box becomes a rectangle with a ``bbox`` member (a MultiPolygon if it crosses the antimeridian), a circle becomes a
    Point with a ``radius`` member. :func:`from_geojson` reads both back.

    >>> to_geojson(Circle(lon=1, lat=2, radius=800))
    {'type': 'Point', 'coordinates': [1.0, 2.0], 'radius': 800.0}
    """
    if isinstance(place, Everywhere):
        return None
    if isinstance(place, Point):
        return {"type": "Point", "coordinates": [place.x, place.y]}
    if isinstance(place, Circle):
        return {"type": "Point", "coordinates": [place.x, place.y], "radius": place.radius}
    if isinstance(place, Polygon):
        written: dict[str, Any] = _lists(place.geometry.__geo_interface__)
        return written
    bbox = (place.xmin, place.ymin, place.xmax, place.ymax)
    if place.xmin > place.xmax:
        return {
            "type": "MultiPolygon",
            "bbox": list(bbox),
            "coordinates": [[_ring(box)] for box in place.boxes()],
        }
    return {"type": "Polygon", "bbox": list(bbox), "coordinates": [_ring(bbox)]}


def from_geojson(mapping: Mapping[str, Any] | None, space: Space = WGS84) -> Place | Region:
    """Return the place that a GeoJSON geometry or Feature describes; ``None`` is everywhere.

    A Point with a ``radius`` member is a circle, a rectangle is a :class:`Box`.
    """
    if mapping is None:
        return EVERYWHERE
    if not isinstance(mapping, Mapping):
        raise GeometryError(
            f"{shown(mapping)} is not GeoJSON; give an object with a 'type' and 'coordinates'"
        )
    if isinstance(space, Geographic):
        require_wgs84_geojson(mapping)
    kind = mapping.get("type")
    if kind == "Feature":
        return from_geojson(mapping.get("geometry"), space)
    if kind in ("FeatureCollection", "GeometryCollection"):
        raise GeometryError(f"a {kind} has several places; give one of its members at a time")
    if kind == "Point":
        return _point_from_geojson(mapping, space)
    return _from_shapely(as_shapely(mapping, space), space)


def _point_from_geojson(mapping: Mapping[str, Any], space: Space) -> Point | Circle:
    position = mapping.get("coordinates")
    if not isinstance(position, Sequence) or isinstance(position, str) or len(position) < 2:
        raise GeometryError(f"a GeoJSON Point needs coordinates [x, y], not {shown(position)}")
    x, y = position[0], position[1]
    if mapping.get("radius") is None:
        return Point(x=x, y=y, space=space)
    return Circle(x=x, y=y, radius=mapping["radius"], space=space)


def _ring(box: Bounds) -> list[list[float]]:
    xmin, ymin, xmax, ymax = box
    return [[xmin, ymin], [xmax, ymin], [xmax, ymax], [xmin, ymax], [xmin, ymin]]


def _lists(value: Any) -> Any:
    """Return nested tuples as lists, as in JSON."""
    if isinstance(value, dict):
        return {name: _lists(member) for name, member in value.items()}
    return [_lists(member) for member in value] if isinstance(value, tuple) else value


# --- Text ----------------------------------------------------------------------------------------------------
def to_text(place: Place | Region) -> str:
    """Return *place* as text: WKT, extended by ``BOX``, ``CIRCLE`` and ``EVERYWHERE``.

    >>> to_text(Circle(lon=-73.99, lat=40.73, radius=800))
    'CIRCLE (-73.99 40.73, 800 m)'
    """
    if isinstance(place, Everywhere):
        return "EVERYWHERE"
    if isinstance(place, Polygon):
        return wkt_of(place.geometry)
    if isinstance(place, Box):
        return (
            f"BOX ({_digits(place.xmin)} {_digits(place.ymin)}, {_digits(place.xmax)} {_digits(place.ymax)})"
        )
    position = f"{_digits(place.x)} {_digits(place.y)}"
    if isinstance(place, Point):
        return f"POINT ({position})"
    return (
        f"CIRCLE ({position}, {_digits(place.radius)}{' m' if isinstance(place.space, Geographic) else ''})"
    )


def from_text(text: str, space: Space = WGS84) -> Place | Region:
    """Return the place that *text* describes: any output of :func:`to_text`, or a point or polygon in WKT.

    In WGS84 the radius of a circle is in metres (``800 m``, or ``800``) or kilometres (``1.5 km``); in a planar space
    it is a plain number.

    >>> from_text("circle (-73.99 40.73, 1.5 km)")
    Circle(lon=-73.99, lat=40.73, radius=1500.0)
    """
    kind, _, rest = text.strip().partition("(")
    kind = kind.strip().upper()
    if kind == "EVERYWHERE" and not rest:
        return EVERYWHERE
    if kind not in _PATTERNS:
        if kind in ("POLYGON", "MULTIPOLYGON"):
            return _from_shapely(as_shapely(text.strip(), space), space)
        raise GeometryError(
            f"{shown(text)} is not a place; write POINT (x y), BOX (xmin ymin, xmax ymax), "
            "CIRCLE (x y, radius m), POLYGON ((x y, …)), MULTIPOLYGON (((x y, …))) or EVERYWHERE"
        )
    pattern, form = _PATTERNS[kind]
    found = pattern.fullmatch(rest.strip())
    if found is None:
        raise GeometryError(f"{shown(text)} cannot be read; write {form}")
    if kind == "CIRCLE":
        *numbers, unit = found.groups()
        if unit and isinstance(space, Planar):
            raise GeometryError(
                f"{shown(text)} has a radius in {unit}, but a planar space has no unit; leave it out"
            )
        x, y, radius = map(float, numbers)
        return Circle(x=x, y=y, radius=_metres(radius, unit), space=space)
    if kind == "POINT":
        x, y = map(float, found.groups())
        return Point(x=x, y=y, space=space)
    xmin, ymin, xmax, ymax = map(float, found.groups())
    return Box(xmin, ymin, xmax, ymax, space)


_NUMBER: Final = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_PATTERNS: Final = {
    "POINT": (re.compile(rf"{_NUMBER}\s+{_NUMBER}\s*\)"), "POINT (x y)"),
    "BOX": (
        re.compile(rf"{_NUMBER}\s+{_NUMBER}\s*,\s*{_NUMBER}\s+{_NUMBER}\s*\)"),
        "BOX (xmin ymin, xmax ymax)",
    ),
    "CIRCLE": (
        re.compile(rf"{_NUMBER}\s+{_NUMBER}\s*,\s*{_NUMBER}\s*(m|km)?\s*\)", re.IGNORECASE),
        "CIRCLE (x y, radius m), with the radius in m or km",
    ),
}


def _digits(value: float) -> str:
    return repr(value).removesuffix(".0")


def _metres(radius: float, unit: str | None) -> float:
    return radius * 1000 if unit and unit.lower() == "km" else radius


# --- Shapely -------------------------------------------------------------------------------------------------
def _from_shapely(geometry: Any, space: Space) -> Place:
    if geometry.geom_type == "Point" and not geometry.is_empty:
        return Point(x=geometry.x, y=geometry.y, space=space)
    return _as_box(geometry, space) or Polygon(geometry, space)


def _as_box(geometry: BaseGeometry, space: Space) -> Box | None:
    """Return a rectangle (or two that meet at the antimeridian) as a box, ``None`` for other shapes."""
    parts = [rectangle(part) for part in getattr(geometry, "geoms", (geometry,))]
    if len(parts) == 1 and parts[0] is not None:
        return Box(*parts[0], space=space)
    if len(parts) != 2 or isinstance(space, Planar) or parts[0] is None or parts[1] is None:
        return None
    west, east = sorted((parts[0], parts[1]))
    crosses = west[0] == -180 and east[2] == 180 and west[2] < east[0]
    return Box(east[0], east[1], west[2], west[3]) if crosses and west[1::2] == east[1::2] else None
