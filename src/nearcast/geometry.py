"""Places and regions: points, boxes, circles, polygons, everywhere; and whether two of them touch.

A message's place and a subscription's region are values of the same types. Every one lives in a *space*:
:data:`WGS84` (degrees, longitude first, distances in metres along great circles) or a :class:`Planar`
rectangle (any unit, Euclidean). Boundaries belong to the region. Longitude −180 and 180 are one meridian, and
a box with ``xmin > xmax`` runs across it. Edges of polygons are straight in longitude and latitude, as in
GeoJSON.

:func:`touches` is the definition of "this message is in that region". Indexes prune by ``place.boxes()``,
which always contain the place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from nearcast import config
from nearcast.errors import GeometryError, shown

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

__all__ = [
    "EVERYWHERE",
    "WGS84",
    "Box",
    "Circle",
    "Everywhere",
    "Geographic",
    "Place",
    "Planar",
    "Point",
    "Polygon",
    "Region",
    "Space",
    "as_place",
    "as_region",
    "from_geojson",
    "from_text",
    "great_circle",
    "to_geojson",
    "to_text",
    "touches",
]

Bounds: TypeAlias = tuple[float, float, float, float]  # xmin, ymin, xmax, ymax
Boxes: TypeAlias = tuple[Bounds, ...]


# --- Spaces ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Geographic:
    """Longitude and latitude in degrees on WGS84; distances in metres. The one instance is :data:`WGS84`."""

    axes: ClassVar[tuple[str, str]] = ("longitude", "latitude")

    def check(self, x: float, y: float) -> None:
        """Raise :class:`GeometryError` unless (*x*, *y*) is a longitude and a latitude."""
        if not -90 <= y <= 90:
            hint = "; are longitude and latitude swapped?" if 90 < abs(y) <= 180 and abs(x) <= 90 else ""
            raise GeometryError(
                f"latitude {y!r} is outside [-90, 90]{hint or '; latitudes are degrees north of the equator'}"
            )
        if not -180 <= x <= 180:
            raise GeometryError(
                f"longitude {x!r} is outside [-180, 180]; write it as {_wrapped(x)!r}, and an area that "
                "crosses the antimeridian as a Box with xmin > xmax or as a MultiPolygon split there"
            )

    def __repr__(self) -> str:
        return "WGS84"

    def __reduce__(self) -> str:
        return "WGS84"


@dataclass(frozen=True, slots=True)
class Planar:
    """A rectangle of the plane, in any unit; distances are Euclidean, in the same unit.

    >>> Point(x=3, y=4, space=Planar(0, 0, 10, 10))
    Point(x=3.0, y=4.0, space=Planar(xmin=0.0, ymin=0.0, xmax=10.0, ymax=10.0))
    """

    xmin: float
    ymin: float
    xmax: float
    ymax: float
    axes: ClassVar[tuple[str, str]] = ("x", "y")

    def __post_init__(self) -> None:
        for name in ("xmin", "ymin", "xmax", "ymax"):
            object.__setattr__(self, name, _number(getattr(self, name), name))
        if self.xmin > self.xmax or self.ymin > self.ymax:
            raise GeometryError(
                f"a planar space needs xmin <= xmax and ymin <= ymax, not {self!r}; swap the ends"
            )

    def check(self, x: float, y: float) -> None:
        """Raise :class:`GeometryError` unless (*x*, *y*) is in the rectangle."""
        if not (self.xmin <= x <= self.xmax and self.ymin <= y <= self.ymax):
            raise GeometryError(f"({x!r}, {y!r}) is outside {self!r}; widen the space or clip the coordinate")


WGS84: Final = Geographic()
Space: TypeAlias = Geographic | Planar


# --- Places and regions ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Point:
    """One position.

    >>> Point(lon=-73.99, lat=40.73)
    Point(lon=-73.99, lat=40.73)
    """

    x: float
    y: float
    space: Space
    exact: ClassVar[bool] = True

    def __init__(
        self,
        *,
        lon: float | None = None,
        lat: float | None = None,
        x: float | None = None,
        y: float | None = None,
        space: Space = WGS84,
    ) -> None:
        _place_at(self, lon, lat, x, y, space)

    @property
    def lon(self) -> float:
        """Longitude in degrees (or x in a planar space)."""
        return self.x

    @property
    def lat(self) -> float:
        """Latitude in degrees (or y in a planar space)."""
        return self.y

    def boxes(self) -> Boxes:
        """Return the point as one box without extent."""
        return ((self.x, self.y, self.x, self.y),)

    def __repr__(self) -> str:
        return f"Point({_position(self)}{_suffix(self.space)})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Box:
    """Everything between two meridians and two parallels, or a planar rectangle; its edges belong to it.

    In WGS84, ``xmin > xmax`` means that the box crosses the antimeridian.

    >>> Box(170, -20, -170, -10).boxes()
    ((170.0, -20.0, 180.0, -10.0), (-180.0, -20.0, -170.0, -10.0))
    """

    xmin: float
    ymin: float
    xmax: float
    ymax: float
    space: Space
    exact: ClassVar[bool] = True

    def __init__(self, xmin: float, ymin: float, xmax: float, ymax: float, space: Space = WGS84) -> None:
        _set(
            self,
            xmin=_number(xmin, "xmin"),
            ymin=_number(ymin, "ymin"),
            xmax=_number(xmax, "xmax"),
            ymax=_number(ymax, "ymax"),
            space=_space(space),
        )
        space.check(self.xmin, self.ymin)
        space.check(self.xmax, self.ymax)
        if self.ymin > self.ymax:
            raise GeometryError(f"a box needs ymin <= ymax, not {self.ymin!r} > {self.ymax!r}; swap them")
        if self.xmin > self.xmax and isinstance(space, Planar):
            raise GeometryError(
                f"a planar box needs xmin <= xmax, not {self.xmin!r} > {self.xmax!r}; swap them "
                "(only a WGS84 box can cross the antimeridian)"
            )

    def boxes(self) -> Boxes:
        """Return one box, or two where it meets the antimeridian; together they are exactly this box."""
        if self.xmin > self.xmax:
            return (self.xmin, self.ymin, 180.0, self.ymax), (-180.0, self.ymin, self.xmax, self.ymax)
        bounds = (self.xmin, self.ymin, self.xmax, self.ymax)
        return (bounds,) if isinstance(self.space, Planar) else _both_names(bounds)

    def __repr__(self) -> str:
        return f"Box({self.xmin!r}, {self.ymin!r}, {self.xmax!r}, {self.ymax!r}{_suffix(self.space)})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Circle:
    """Everything within *radius* of a centre: metres along a great circle, or planar units.

    >>> touches(Circle(lon=0, lat=0, radius=112_000), Point(lon=1, lat=0))
    True
    """

    x: float
    y: float
    radius: float
    space: Space
    exact: ClassVar[bool] = False

    def __init__(
        self,
        *,
        radius: float,
        lon: float | None = None,
        lat: float | None = None,
        x: float | None = None,
        y: float | None = None,
        space: Space = WGS84,
    ) -> None:
        _place_at(self, lon, lat, x, y, space)
        radius = _number(radius, "radius")
        if radius < 0:
            raise GeometryError(f"radius {radius!r} is negative; give a distance of 0 or more")
        _set(self, radius=radius)

    @property
    def lon(self) -> float:
        """Longitude of the centre in degrees (or x in a planar space)."""
        return self.x

    @property
    def lat(self) -> float:
        """Latitude of the centre in degrees (or y in a planar space)."""
        return self.y

    def boxes(self) -> Boxes:
        """Return one or two boxes that contain the circle, a hair wider, so that rounding loses no point."""
        if isinstance(self.space, Planar):
            reach = self.radius + config.CIRCLE_PAD * (abs(self.x) + abs(self.y) + self.radius)
            return ((self.x - reach, self.y - reach, self.x + reach, self.y + reach),)
        reach = math.degrees(self.radius / config.EARTH_RADIUS_M) + config.CIRCLE_PAD_DEG
        south, north = max(-90.0, self.y - reach), min(90.0, self.y + reach)
        if reach >= 179:  # nearly the whole sphere, where the distance itself is ill-conditioned
            return ((-180.0, -90.0, 180.0, 90.0),)
        if south == -90 or north == 90:  # around a pole, every longitude is near
            return ((-180.0, south, 180.0, north),)
        widest = math.sin(math.radians(reach)) / math.cos(math.radians(self.y)) * (1 + config.CIRCLE_PAD)
        half = math.degrees(math.asin(min(1.0, widest))) + config.CIRCLE_PAD_DEG
        west, east = self.x - half, self.x + half
        if west < -180:
            return (-180.0, south, east, north), (west + 360, south, 180.0, north)
        if east > 180:
            return (west, south, 180.0, north), (-180.0, south, east - 360, north)
        return _both_names((west, south, east, north))

    def __repr__(self) -> str:
        return f"Circle({_position(self)}, radius={self.radius!r}{_suffix(self.space)})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Polygon:
    """A polygon or multipolygon; holes are outside, rings belong to it.

    Two polygons are equal when they have the same rings, wherever each ring begins.

    Parameters
    ----------
    geometry
        A shapely ``Polygon`` or ``MultiPolygon``, a GeoJSON mapping, WKT, or WKB.
    space
        :data:`WGS84` or a :class:`Planar`; every vertex must lie in it.

    >>> Polygon("POLYGON ((0 0, 4 0, 0 3, 0 0))")
    Polygon('POLYGON ((0 0, 0 3, 4 0, 0 0))')
    """

    wkb: bytes
    space: Space
    geometry: BaseGeometry = field(compare=False)
    exact: ClassVar[bool] = False

    def __init__(self, geometry: Any, space: Space = WGS84) -> None:
        shape = _checked_polygon(_as_shapely(geometry), _space(space))
        _set(self, wkb=shape.wkb, space=space, geometry=shape)

    def boxes(self) -> Boxes:
        """Return one or two boxes that contain the polygon."""
        import shapely

        bounds = _bounds(self.geometry)
        if isinstance(self.space, Planar):
            return (bounds,)
        if bounds[0] > -180 or bounds[2] < 180:
            return _both_names(bounds)
        # It meets the antimeridian from both sides: leave out the widest gap between its parts, if any.
        spans = sorted((part[0], part[2]) for part in map(_bounds, shapely.get_parts(self.geometry)))
        west, gap = spans[0][1], (0.0, 180.0, -180.0)
        for low, high in spans:
            gap = max(gap, (low - west, west, low))
            west = max(west, high)
        if gap[0] <= 0:
            return (bounds,)
        return (-180.0, bounds[1], gap[1], bounds[3]), (gap[2], bounds[1], 180.0, bounds[3])

    def __repr__(self) -> str:
        written = _wkt(self.geometry)
        if len(written) > 120:
            count = int(_vertices(self.geometry))
            written = f"{written[:100]}…, {count} vertices"
        return f"Polygon({written!r}{_suffix(self.space)})"


@dataclass(frozen=True, slots=True, repr=False)
class Everywhere:
    """The region that touches every place of every space. Use the one instance, :data:`EVERYWHERE`."""

    exact: ClassVar[bool] = True

    def boxes(self) -> Boxes:
        """Return the one unbounded box."""
        return ((-math.inf, -math.inf, math.inf, math.inf),)

    def __repr__(self) -> str:
        return "EVERYWHERE"

    def __reduce__(self) -> str:
        return "EVERYWHERE"


EVERYWHERE: Final = Everywhere()
Region: TypeAlias = Box | Circle | Polygon | Everywhere
Place: TypeAlias = Point | Box | Circle | Polygon


# --- Touching ----------------------------------------------------------------------------------------------
def great_circle(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """Return the distance in metres between two positions in degrees, on a sphere of the Earth's mean radius.

    >>> round(great_circle(0, 0, 1, 0))
    111195
    """
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    sine_phi = math.sin(math.radians(lat2 - lat1) / 2)
    sine_lambda = math.sin(math.radians(lon2 - lon1) / 2)
    haversine = sine_phi * sine_phi + math.cos(phi1) * math.cos(phi2) * sine_lambda * sine_lambda
    return 2 * config.EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(haversine)))


def touches(a: Place | Region, b: Place | Region) -> bool:
    """Return whether *a* and *b* have a point in common; their boundaries count.

    Symmetric. Distances to a circle are great-circle distances in WGS84 and Euclidean in a planar space; the
    outline of a polygon is followed in pieces of ``config.OUTLINE_STEP_DEG`` degrees for that. If two values
    touch, a box of one meets a box of the other (the one exception: two points with the two names of the
    antimeridian).

    >>> touches(Box(170, 0, 180, 10), Point(lon=-180, lat=5))
    True
    """
    if isinstance(a, Everywhere) or isinstance(b, Everywhere):
        return True
    if a.space != b.space:
        raise GeometryError(f"{a!r} and {b!r} lie in different spaces; give both the same space=")
    if isinstance(a, Point) and isinstance(b, Point):
        apart = abs(a.x - b.x)
        return a.y == b.y and (apart == 0 or (apart == 360 and isinstance(a.space, Geographic)))
    if not any(_overlap(one, other) for one in a.boxes() for other in b.boxes()):
        return False
    if a.exact and b.exact:
        return True
    if isinstance(a, Circle):
        return _reaches(a, b)
    if isinstance(b, Circle):
        return _reaches(b, a)
    return _shapes_meet(a, b)


def _overlap(a: Bounds, b: Bounds) -> bool:
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]


def _reaches(circle: Circle, other: Place) -> bool:
    """Return whether *other* comes within the radius of the circle's centre."""
    x, y, radius, planar = circle.x, circle.y, circle.radius, isinstance(circle.space, Planar)
    if isinstance(other, Point | Circle):
        distance = _euclidean if planar else great_circle
        return distance(x, y, other.x, other.y) <= radius + (other.radius if isinstance(other, Circle) else 0)
    if isinstance(other, Box):
        to_box = _planar_box_distance if planar else _box_distance
        return any(to_box(x, y, box) <= radius for box in other.boxes())
    if _shapes_meet(Point(x=x, y=y, space=circle.space), other):
        return True
    if planar:
        import shapely

        return bool(shapely.distance(shapely.Point(x, y), other.geometry) <= radius)
    return _outline_distance(x, y, other.geometry) <= radius


def _euclidean(x1: float, y1: float, x2: float, y2: float) -> float:
    return math.hypot(x1 - x2, y1 - y2)


def _planar_box_distance(x: float, y: float, box: Bounds) -> float:
    return math.hypot(max(box[0] - x, 0.0, x - box[2]), max(box[1] - y, 0.0, y - box[3]))


def _box_distance(x: float, y: float, box: Bounds) -> float:
    """Return the great-circle distance from a position to a box of meridians and parallels.

    On a given parallel the point with the smallest difference in longitude is closest. So the answer is on
    the position's own meridian where the box has it, and on the nearer of the two meridian edges elsewhere:
    there, at the foot of the great circle that is perpendicular to the edge, or at an end of it.
    """
    xmin, ymin, xmax, ymax = box
    if xmin <= x <= xmax:
        return great_circle(x, y, x, min(max(y, ymin), ymax))
    edge = min(xmin, xmax, key=lambda lon: abs(_wrapped(lon - x)))
    phi = math.radians(y)
    foot = math.degrees(math.atan2(math.sin(phi), math.cos(phi) * math.cos(math.radians(edge - x))))
    nearest = [ymin, ymax, foot] if ymin <= foot <= ymax else [ymin, ymax]
    return min(great_circle(x, y, edge, lat) for lat in nearest)


def _outline_distance(x: float, y: float, geometry: BaseGeometry) -> float:
    """Return the distance in metres from a position to the rings of a polygon.

    The rings are cut into short pieces and projected (azimuthal equidistant) around the position: distances
    from the origin are then true at every cut. Pieces on the far side of the sphere are judged by their ends
    alone, since the projection tears there.
    """
    import numpy as np
    import shapely

    rings = shapely.get_rings(shapely.get_parts(shapely.segmentize(geometry, config.OUTLINE_STEP_DEG)))
    coordinates, ring = shapely.get_coordinates(rings, return_index=True)
    lon, lat = np.radians(coordinates[:, 0] - x), np.radians(coordinates[:, 1])
    phi = math.radians(y)
    haversine = np.sin((lat - phi) / 2) ** 2 + math.cos(phi) * np.cos(lat) * np.sin(lon / 2) ** 2
    distance = 2 * np.arcsin(np.minimum(1.0, np.sqrt(haversine)))
    azimuth = np.arctan2(
        np.sin(lon) * np.cos(lat), math.cos(phi) * np.sin(lat) - math.sin(phi) * np.cos(lat) * np.cos(lon)
    )
    projected = np.column_stack((distance * np.sin(azimuth), distance * np.cos(azimuth)))
    nearest = float(distance.min())
    pieces = (ring[1:] == ring[:-1]) & (np.minimum(distance[1:], distance[:-1]) < math.pi / 2)
    start, step = projected[:-1][pieces], np.diff(projected, axis=0)[pieces]
    if len(start):
        squared = np.maximum((step * step).sum(axis=1), np.finfo(np.float64).tiny)
        along = np.clip(-(start * step).sum(axis=1) / squared, 0.0, 1.0)
        foot = start + along[:, None] * step
        nearest = min(nearest, float(np.hypot(foot[:, 0], foot[:, 1]).min()))
    return nearest * config.EARTH_RADIUS_M


def _shapes_meet(a: Place, b: Place) -> bool:
    """Return whether two places meet as shapes in the plane, under either name of the antimeridian."""
    return any(one.intersects(other) for one in _shapes(a) for other in _shapes(b))


def _shapes(place: Place) -> Iterable[BaseGeometry]:
    import shapely

    if isinstance(place, Polygon):
        yield place.geometry
        west, _, east, _ = _bounds(place.geometry)
        if isinstance(place.space, Geographic) and west == -180:
            yield shapely.transform(place.geometry, lambda xy: xy - [-360.0, 0.0])
        if isinstance(place.space, Geographic) and east == 180:
            yield shapely.transform(place.geometry, lambda xy: xy - [360.0, 0.0])
        return
    for xmin, ymin, xmax, ymax in place.boxes():
        corners = dict.fromkeys(((xmin, ymin), (xmax, ymin), (xmax, ymax), (xmin, ymax)))
        if len(corners) == 4:
            yield shapely.box(xmin, ymin, xmax, ymax)
        else:  # a box without width or height is a line or a point, which shapely must be told
            yield shapely.LineString(corners) if len(corners) > 1 else shapely.Point(xmin, ymin)


# --- Reading and writing -----------------------------------------------------------------------------------
def as_region(value: Any, space: Space = WGS84) -> Region:
    """Return *value* as a region.

    Accepts a region, a shapely geometry, a GeoJSON mapping, text (WKT, or what :func:`to_text` writes), WKB,
    four numbers (xmin, ymin, xmax, ymax), or ``None`` for everywhere. A polygon that is a rectangle becomes a
    :class:`Box`.

    >>> as_region((-74.1, 40.6, -73.8, 40.9))
    Box(-74.1, 40.6, -73.8, 40.9)
    """
    place = _read(value, space)
    if isinstance(place, Point):
        raise GeometryError(
            f"{place!r} is a point, not a region; give a Circle with a radius, a Box, a Polygon or EVERYWHERE"
        )
    return place


def as_place(value: Any, space: Space = WGS84) -> Place:
    """Return *value* as the place of a message: as :func:`as_region`, with points, without everywhere."""
    place = None if value is None else _read(value, space)
    if place is None or isinstance(place, Everywhere):
        raise GeometryError(
            f"{shown(value)} is not a place; a message needs a Point, a Box, a Circle or a Polygon"
        )
    return place


def _read(value: Any, space: Space) -> Place | Region:
    if value is None:
        return EVERYWHERE
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
    return _from_shapely(_as_shapely(value), space)


def to_geojson(place: Place | Region) -> dict[str, Any] | None:
    """Return *place* as a GeoJSON geometry; everywhere is ``None``.

    A box is a rectangle with a ``bbox`` member (a MultiPolygon where it crosses the antimeridian), a circle a
    Point with a ``radius`` member. :func:`from_geojson` reads all of them back.

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
    kind = mapping.get("type")
    if kind == "Feature":
        return from_geojson(mapping.get("geometry"), space)
    if kind in ("FeatureCollection", "GeometryCollection"):
        raise GeometryError(f"a {kind} is several places; give one of its members at a time")
    if kind == "Point":
        return _point_from_geojson(mapping, space)
    return _from_shapely(_as_shapely(mapping), space)


def _point_from_geojson(mapping: Mapping[str, Any], space: Space) -> Point | Circle:
    position = mapping.get("coordinates")
    if not isinstance(position, Sequence) or isinstance(position, str) or len(position) < 2:
        raise GeometryError(f"a GeoJSON Point needs coordinates [x, y], not {shown(position)}")
    x, y = position[0], position[1]
    if mapping.get("radius") is None:
        return Point(x=x, y=y, space=space)
    return Circle(x=x, y=y, radius=mapping["radius"], space=space)


def to_text(place: Place | Region) -> str:
    """Return *place* as text: WKT, and ``BOX``, ``CIRCLE`` and ``EVERYWHERE`` in the same manner.

    >>> to_text(Circle(lon=-73.99, lat=40.73, radius=800))
    'CIRCLE (-73.99 40.73, 800 m)'
    """
    if isinstance(place, Everywhere):
        return "EVERYWHERE"
    if isinstance(place, Polygon):
        return _wkt(place.geometry)
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
    """Return the place that *text* describes: what :func:`to_text` writes, and points and polygons of WKT.

    The radius of a circle is in metres (``800 m``, or ``800``) or kilometres (``1.5 km``) in WGS84, a plain
    number in a planar space.

    >>> from_text("circle (-73.99 40.73, 1.5 km)")
    Circle(lon=-73.99, lat=40.73, radius=1500.0)
    """
    kind, _, rest = text.strip().partition("(")
    kind = kind.strip().upper()
    if kind == "EVERYWHERE" and not rest:
        return EVERYWHERE
    if kind not in _PATTERNS:
        if kind in ("POLYGON", "MULTIPOLYGON"):
            return _from_shapely(_as_shapely(text.strip()), space)
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


# --- Helpers -----------------------------------------------------------------------------------------------
def _set(target: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(target, name, value)


def _number(value: Any, name: str) -> float:
    """Return *value* as a finite float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise GeometryError(f"{name} {shown(value)} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise GeometryError(f"{name} is {number!r}; coordinates and distances are finite numbers")
    return number


def _space(space: Any) -> Space:
    if not isinstance(space, Geographic | Planar):
        raise GeometryError(f"{shown(space)} is not a space; give WGS84 or Planar(xmin, ymin, xmax, ymax)")
    return space


def _place_at(
    target: Point | Circle,
    lon: float | None,
    lat: float | None,
    x: float | None,
    y: float | None,
    space: Space,
) -> None:
    """Set the position of *target* from lon and lat, or from x and y."""
    _space(space)
    names = space.axes
    if x is None and y is None:
        x, y = lon, lat
    elif lon is not None or lat is not None:
        raise GeometryError("a position is lon= and lat=, or x= and y=, not a mixture of both")
    if x is None or y is None:
        raise GeometryError("a position needs both lon= and lat= (or x= and y= in a planar space)")
    _set(target, x=_number(x, names[0]), y=_number(y, names[1]), space=space)
    space.check(target.x, target.y)


def _position(place: Point | Circle) -> str:
    names = ("lon", "lat") if isinstance(place.space, Geographic) else ("x", "y")
    return f"{names[0]}={place.x!r}, {names[1]}={place.y!r}"


def _suffix(space: Space) -> str:
    return "" if isinstance(space, Geographic) else f", space={space!r}"


def _wrapped(lon: float) -> float:
    """Return *lon* in [-180, 180)."""
    return (lon + 180) % 360 - 180


def _metres(radius: float, unit: str | None) -> float:
    return radius * 1000 if unit and unit.lower() == "km" else radius


def _both_names(bounds: Bounds) -> Boxes:
    """Return a WGS84 box, and beside it the other name of the antimeridian where it reaches that."""
    xmin, ymin, xmax, ymax = bounds
    if xmin == -180 and xmax < 180:
        return bounds, (180.0, ymin, 180.0, ymax)
    if xmax == 180 and xmin > -180:
        return bounds, (-180.0, ymin, -180.0, ymax)
    return (bounds,)


def _ring(box: Bounds) -> list[list[float]]:
    xmin, ymin, xmax, ymax = box
    return [[xmin, ymin], [xmax, ymin], [xmax, ymax], [xmin, ymax], [xmin, ymin]]


def _digits(value: float) -> str:
    return repr(value).removesuffix(".0")


def _lists(value: Any) -> Any:
    """Return nested tuples as the lists that JSON has."""
    if isinstance(value, dict):
        return {name: _lists(member) for name, member in value.items()}
    return [_lists(member) for member in value] if isinstance(value, tuple) else value


# --- Shapely, loaded at first use --------------------------------------------------------------------------
def _as_shapely(value: Any) -> Any:
    """Return a shapely geometry from one, from GeoJSON, WKT or WKB."""
    import numpy as np
    import shapely
    import shapely.geometry

    if isinstance(value, shapely.Geometry):
        return value
    try:
        with np.errstate(invalid="ignore"):  # nan is found, and named, when the vertices are checked
            if isinstance(value, str):
                return shapely.from_wkt(value)
            if isinstance(value, bytes | bytearray | memoryview):
                return shapely.from_wkb(bytes(value))
            if isinstance(value, Mapping):
                return shapely.geometry.shape(dict(value))
    except (shapely.errors.ShapelyError, ValueError, TypeError, LookupError, AttributeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise GeometryError(
            f"{shown(value)} is not a geometry ({reason}); give GeoJSON, WKT, WKB or a shapely geometry"
        ) from None
    raise GeometryError(
        f"{shown(value)} is not a geometry; give a region, GeoJSON, WKT, WKB, a shapely geometry, or the "
        "four numbers xmin, ymin, xmax, ymax"
    )


def _from_shapely(geometry: Any, space: Space) -> Place:
    if geometry.geom_type == "Point" and not geometry.is_empty:
        return Point(x=geometry.x, y=geometry.y, space=space)
    return _as_box(geometry, space) or Polygon(geometry, space)


def _as_box(geometry: BaseGeometry, space: Space) -> Box | None:
    """Return the box that a polygon is (or two that meet at the antimeridian), ``None`` for other shapes."""
    parts = [_rectangle(part) for part in getattr(geometry, "geoms", (geometry,))]
    if len(parts) == 1 and parts[0] is not None:
        return Box(*parts[0], space=space)
    if len(parts) != 2 or isinstance(space, Planar) or parts[0] is None or parts[1] is None:
        return None
    west, east = sorted((parts[0], parts[1]))
    crosses = west[0] == -180 and east[2] == 180 and west[2] < east[0]
    return Box(east[0], east[1], west[2], west[3]) if crosses and west[1::2] == east[1::2] else None


def _rectangle(polygon: Any) -> Bounds | None:
    """Return the bounds of a polygon that is an axis-parallel rectangle with four corners."""
    if polygon.geom_type != "Polygon" or polygon.is_empty or len(polygon.interiors) > 0:
        return None
    ring = [position[:2] for position in polygon.exterior.coords]
    if len(ring) != 5 or any(a[0] != b[0] and a[1] != b[1] for a, b in pairwise(ring)):
        return None
    (xmin, ymin), (xmax, ymax) = min(ring), max(ring)
    corners = {(xmin, ymin), (xmax, ymin), (xmax, ymax), (xmin, ymax)}
    return (xmin, ymin, xmax, ymax) if set(ring) == corners else None


def _checked_polygon(geometry: BaseGeometry, space: Space) -> BaseGeometry:
    """Return *geometry* in normal form if it is a valid polygon of *space*."""
    import shapely

    if geometry is None or geometry.geom_type not in ("Polygon", "MultiPolygon") or geometry.is_empty:
        what = (
            "nothing"
            if geometry is None
            else f"an empty {geometry.geom_type}"
            if geometry.is_empty
            else f"a {geometry.geom_type}"
        )
        raise GeometryError(f"a region's geometry is a Polygon or a MultiPolygon, not {what}")
    if (vertices := _vertices(geometry)) > config.MAX_POLYGON_VERTICES:
        raise GeometryError(
            f"a polygon of {vertices} vertices is over the limit of {config.MAX_POLYGON_VERTICES} "
            "(config.MAX_POLYGON_VERTICES); simplify it with shapely.simplify"
        )
    geometry = shapely.transform(
        shapely.force_2d(geometry), lambda xy: xy + 0.0
    )  # -0.0 becomes 0.0: equal bytes
    for x, y in shapely.get_coordinates(geometry).tolist():
        space.check(_number(x, space.axes[0]), _number(y, space.axes[1]))
    if not shapely.is_valid(geometry):
        raise GeometryError(
            f"the polygon is not valid: {shapely.is_valid_reason(geometry)}; "
            "repair it with shapely.make_valid"
        )
    return shapely.normalize(geometry)


def _bounds(geometry: BaseGeometry) -> Bounds:
    xmin, ymin, xmax, ymax = geometry.bounds
    return float(xmin), float(ymin), float(xmax), float(ymax)


def _vertices(geometry: BaseGeometry) -> int:
    import shapely

    return int(shapely.get_num_coordinates(geometry))


def _wkt(geometry: BaseGeometry) -> str:
    import shapely

    return str(shapely.to_wkt(geometry, rounding_precision=-1))
