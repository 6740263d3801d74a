"""Whether two places have a point in common: the definition that every index must agree with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nearcast import config
from nearcast.errors import GeometryError
from nearcast.geometry.polygons import bounds_of
from nearcast.geometry.regions import Box, Circle, Everywhere, Place, Point, Polygon, Region
from nearcast.geometry.spaces import Bounds, Geographic, Planar, wrapped
from nearcast.geometry.sphere import great_circle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shapely.geometry.base import BaseGeometry

__all__ = ["distance", "shape_of_box", "touches"]


def touches(a: Place | Region, b: Place | Region) -> bool:
    """Return whether *a* and *b* have a point in common; their boundaries count.

    The relation is symmetric. Distances to a circle are great-circle distances in WGS84 and Euclidean in a planar
    space; to measure them, the outline of a polygon is cut into pieces of ``config.OUTLINE_STEP_DEG`` degrees. If two
    values touch, a box of one meets a box of the other. The only exception: two points on the antimeridian, one at
    longitude -180 and one at 180.

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
    if isinstance(other, Circle):
        return _between(circle, other) <= circle.radius + other.radius
    return distance(circle, other) <= circle.radius


def distance(position: Point | Circle, other: Place) -> float:
    """Return how far it is from a position, or the centre of a circle, to the nearest point of *other*.

    ``touches`` decides by the same distances. The distance to the outline of a polygon on the globe is right to a few
    metres.

    >>> round(distance(Point(lon=0, lat=0), Circle(lon=1, lat=0, radius=11_195)))
    100000
    """
    if isinstance(other, Point | Circle):
        return max(_between(position, other) - (other.radius if isinstance(other, Circle) else 0), 0.0)
    x, y, planar = position.x, position.y, isinstance(position.space, Planar)
    if isinstance(other, Box):
        to_box = _planar_box_distance if planar else _box_distance
        return min(to_box(x, y, box) for box in other.boxes())
    if _shapes_meet(Point(x=x, y=y, space=position.space), other):
        return 0.0
    if planar:
        import shapely

        return float(shapely.distance(shapely.Point(x, y), other.geometry))
    return _outline_distance(x, y, other.geometry)


def _between(a: Point | Circle, b: Point | Circle) -> float:
    """Return the distance between two positions, or centres."""
    return (_euclidean if isinstance(a.space, Planar) else great_circle)(a.x, a.y, b.x, b.y)


def _euclidean(x1: float, y1: float, x2: float, y2: float) -> float:
    # Not math.hypot: the kernel that decides for many pairs rounds exactly like this.
    return math.sqrt((x1 - x2) * (x1 - x2) + (y1 - y2) * (y1 - y2))


def _planar_box_distance(x: float, y: float, box: Bounds) -> float:
    return math.hypot(max(box[0] - x, 0.0, x - box[2]), max(box[1] - y, 0.0, y - box[3]))


def _box_distance(x: float, y: float, box: Bounds) -> float:
    """Return the great-circle distance from a position to a box of meridians and parallels.

    On a given parallel, the point with the smallest difference in longitude is closest. So the closest point is on the
    position's own meridian if the box contains it. Otherwise it is on the nearer of the two meridian edges: at the foot
    of the great circle that is perpendicular to the edge, or at an end of the edge.
    """
    xmin, ymin, xmax, ymax = box
    if xmin <= x <= xmax:
        return great_circle(x, y, x, min(max(y, ymin), ymax))
    edge = min(xmin, xmax, key=lambda lon: abs(wrapped(lon - x)))
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
    """Return whether two places meet as shapes in the plane, with the antimeridian at either longitude."""
    return any(one.intersects(other) for one in _shapes(a) for other in _shapes(b))


def _shapes(place: Place) -> Iterable[BaseGeometry]:
    import shapely

    if isinstance(place, Polygon):
        yield place.geometry
        west, _, east, _ = bounds_of(place.geometry)
        if isinstance(place.space, Geographic) and west == -180:
            yield shapely.transform(place.geometry, lambda xy: xy - [-360.0, 0.0])
        if isinstance(place.space, Geographic) and east == 180:
            yield shapely.transform(place.geometry, lambda xy: xy - [360.0, 0.0])
        return
    yield from map(shape_of_box, place.boxes())


def shape_of_box(bounds: Bounds) -> BaseGeometry:
    """Return a box as a shapely geometry: a line or a point if it has no width or no height."""
    import shapely

    xmin, ymin, xmax, ymax = bounds
    corners = dict.fromkeys(((xmin, ymin), (xmax, ymin), (xmax, ymax), (xmin, ymax)))
    if len(corners) == 4:
        box: BaseGeometry = shapely.box(xmin, ymin, xmax, ymax)
        return box
    return shapely.LineString(corners) if len(corners) > 1 else shapely.Point(xmin, ymin)
