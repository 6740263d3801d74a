"""The types of places and regions: points, boxes, circles, polygons, and everywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from nearcast import config
from nearcast.errors import GeometryError
from nearcast.geometry.polygons import as_shapely, bounds_of, checked_polygon, vertex_count, wkt_of
from nearcast.geometry.spaces import WGS84, Bounds, Boxes, Geographic, Planar, Space, checked_space, number

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

__all__ = ["EVERYWHERE", "Box", "Circle", "Everywhere", "Place", "Point", "Polygon", "Region"]


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
        """Return the point as one box of zero size."""
        return ((self.x, self.y, self.x, self.y),)

    def __repr__(self) -> str:
        return f"Point({_position(self)}{_suffix(self.space)})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Box:
    """Everything between two meridians and two parallels, or a planar rectangle, including the edges.

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
            xmin=number(xmin, "xmin"),
            ymin=number(ymin, "ymin"),
            xmax=number(xmax, "xmax"),
            ymax=number(ymax, "ymax"),
            space=checked_space(space),
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
        """Return one box, or two where this box meets the antimeridian; together they are exactly this box."""
        if self.xmin > self.xmax:
            return (self.xmin, self.ymin, 180.0, self.ymax), (-180.0, self.ymin, self.xmax, self.ymax)
        bounds = (self.xmin, self.ymin, self.xmax, self.ymax)
        return (bounds,) if isinstance(self.space, Planar) else _both_names(bounds)

    def __repr__(self) -> str:
        return f"Box({self.xmin!r}, {self.ymin!r}, {self.xmax!r}, {self.ymax!r}{_suffix(self.space)})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Circle:
    """Everything within *radius* of a centre: metres along a great circle, or planar units.

    >>> from nearcast.geometry import touches
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
        radius = number(radius, "radius")
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
        """Return one or two boxes that contain the circle, with a tiny margin so that rounding loses no point."""
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
    """A polygon or multipolygon, including its rings; holes are outside.

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
        shape = checked_polygon(as_shapely(geometry, checked_space(space)), space)
        _set(self, wkb=shape.wkb, space=space, geometry=shape)

    def boxes(self) -> Boxes:
        """Return one or two boxes that contain the polygon."""
        import shapely

        bounds = bounds_of(self.geometry)
        if isinstance(self.space, Planar):
            return (bounds,)
        if bounds[0] > -180 or bounds[2] < 180:
            return _both_names(bounds)
        # The polygon meets the antimeridian from both sides: leave out the widest gap between its parts, if any.
        spans = sorted((part[0], part[2]) for part in map(bounds_of, shapely.get_parts(self.geometry)))
        covered, gap = spans[0][1], (0.0, 0.0, 0.0)  # the easternmost end so far; width and ends of the gap
        for low, high in spans:
            gap = max(gap, (low - covered, covered, low))
            covered = max(covered, high)
        width, west, east = gap
        if width <= 0:
            return (bounds,)
        return (-180.0, bounds[1], west, bounds[3]), (east, bounds[1], 180.0, bounds[3])

    def __repr__(self) -> str:
        written = wkt_of(self.geometry)
        if len(written) > 120:
            count = int(vertex_count(self.geometry))
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


def _set(target: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(target, name, value)


def _place_at(
    target: Point | Circle,
    lon: float | None,
    lat: float | None,
    x: float | None,
    y: float | None,
    space: Space,
) -> None:
    """Set the position of *target* from lon and lat, or from x and y."""
    checked_space(space)
    names = space.axes
    if x is None and y is None:
        x, y = lon, lat
    elif lon is not None or lat is not None:
        raise GeometryError("a position mixes lon= and lat= with x= and y=; give one pair")
    if x is None or y is None:
        raise GeometryError("a position needs both lon= and lat= (or x= and y= in a planar space)")
    _set(target, x=number(x, names[0]), y=number(y, names[1]), space=space)
    space.check(target.x, target.y)


def _position(place: Point | Circle) -> str:
    names = ("lon", "lat") if isinstance(place.space, Geographic) else ("x", "y")
    return f"{names[0]}={place.x!r}, {names[1]}={place.y!r}"


def _suffix(space: Space) -> str:
    return "" if isinstance(space, Geographic) else f", space={space!r}"


def _both_names(bounds: Bounds) -> Boxes:
    """Return a WGS84 box and, if it reaches the antimeridian, its edge there under the other longitude."""
    xmin, ymin, xmax, ymax = bounds
    if xmin == -180 and xmax < 180:
        return bounds, (180.0, ymin, 180.0, ymax)
    if xmax == 180 and xmin > -180:
        return bounds, (-180.0, ymin, -180.0, ymax)
    return (bounds,)
