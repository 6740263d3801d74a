"""When two places touch, slow and obvious: plain Python and Shapely over value types, nothing of the package's code.

Positions are degrees on a sphere of the Earth's mean radius, or coordinates in a plane. The meridian of 180° has two
names, and a box whose west is east of its east crosses it.
"""

import math
from itertools import pairwise

import shapely

from nearcast.geometry import Box, Circle, Everywhere, Planar, Point, Polygon

RADIUS = 6_371_008.8  # metres: the mean radius of WGS84
STEP = 0.1  # degrees: the pieces in which the outline of a polygon is followed


def touches(a, b):
    """Do two places have a point in common? Boundaries count."""
    if isinstance(a, Everywhere) or isinstance(b, Everywhere):
        return True
    if isinstance(a, Circle):
        return reaches(a, b)
    if isinstance(b, Circle):
        return reaches(b, a)
    if isinstance(a, Polygon) or isinstance(b, Polygon):
        return any(one.intersects(other) for one in outlines(a) for other in outlines(b))
    return any(
        max(one[0], other[0]) <= min(one[2], other[2]) and max(one[1], other[1]) <= min(one[3], other[3])
        for one in rectangles(a)
        for other in rectangles(b)
    )


def rectangles(place):
    """Return a point or box as (west, south, east, north), each under every name that it has."""
    flat = isinstance(place.space, Planar)
    if isinstance(place, Point):
        found = [(place.x, place.y, place.x, place.y)]
    elif place.xmin > place.xmax:
        found = [(place.xmin, place.ymin, 180.0, place.ymax), (-180.0, place.ymin, place.xmax, place.ymax)]
    else:
        found = [(place.xmin, place.ymin, place.xmax, place.ymax)]
    if not flat:
        found += [(-180.0, s, -180.0, n) for _, s, east, n in found if east == 180]
        found += [(180.0, s, 180.0, n) for west, s, _, n in found if west == -180]
    return found


def outlines(place):
    """Return a place as Shapely sees it, under every name of the antimeridian."""
    if not isinstance(place, Polygon):
        return [rectangle(*bounds) for bounds in rectangles(place)]
    found = [place.geometry]
    if not isinstance(place.space, Planar):
        west, _, east, _ = place.geometry.bounds
        found += [shapely.transform(place.geometry, lambda xy: xy - [-360.0, 0.0])] * (west == -180)
        found += [shapely.transform(place.geometry, lambda xy: xy - [360.0, 0.0])] * (east == 180)
    return found


def rectangle(west, south, east, north):
    if west < east and south < north:
        return shapely.box(west, south, east, north)
    if (west, south) == (east, north):
        return shapely.Point(west, south)
    return shapely.LineString([(west, south), (east, north)])


def reaches(circle, other):
    """Does a place come within the radius of a circle's centre?"""
    flat = isinstance(circle.space, Planar)
    centre, apart = (circle.x, circle.y), (plane if flat else sphere)
    if isinstance(other, Point | Circle):
        return apart(*centre, other.x, other.y) <= circle.radius + getattr(other, "radius", 0.0)
    if isinstance(other, Box):
        return any(to_rectangle(centre, bounds, flat) <= circle.radius for bounds in rectangles(other))
    if touches(Point(x=circle.x, y=circle.y, space=circle.space), other):
        return True
    if flat:
        return shapely.Point(centre).distance(other.geometry) <= circle.radius
    return to_outline(centre, other.geometry) <= circle.radius


def plane(x1, y1, x2, y2):
    return math.sqrt((x1 - x2) * (x1 - x2) + (y1 - y2) * (y1 - y2))


def sphere(lon1, lat1, lon2, lat2):
    """Return the great-circle distance, by the haversine formula."""
    up = math.sin(math.radians(lat2 - lat1) / 2)
    across = math.sin(math.radians(lon2 - lon1) / 2)
    h = up * up + math.cos(math.radians(lat1)) * math.cos(math.radians(lat2)) * across * across
    return 2 * RADIUS * math.asin(min(1.0, math.sqrt(h)))


def to_rectangle(centre, bounds, flat):
    """Return how far a position is from a rectangle."""
    (x, y), (west, south, east, north) = centre, bounds
    if flat:
        return math.hypot(max(west - x, 0.0, x - east), max(south - y, 0.0, y - north))
    if west <= x <= east:
        return sphere(x, y, x, min(max(y, south), north))
    # Of a parallel, the nearest point is on the nearer meridian; there it is an end, or the foot of the perpendicular.
    edge = min(west, east, key=lambda lon: abs((lon - x + 180) % 360 - 180))
    phi = math.radians(y)
    foot = math.degrees(math.atan2(math.sin(phi), math.cos(phi) * math.cos(math.radians(edge - x))))
    return min(sphere(x, y, edge, lat) for lat in (south, north, min(max(foot, south), north)))


def to_outline(centre, geometry):
    """Return how far a position is from the rings of a polygon, piece by piece in an azimuthal projection."""
    nearest = math.inf
    for polygon in shapely.get_parts(shapely.segmentize(geometry, STEP)):
        for ring in (polygon.exterior, *polygon.interiors):
            places = [projected(centre, *position) for position in ring.coords]
            for one, two in pairwise(places):
                nearest = min(nearest, math.hypot(*one), math.hypot(*two))
                if min(math.hypot(*one), math.hypot(*two)) < math.pi / 2:
                    nearest = min(nearest, shapely.LineString([one, two]).distance(shapely.Point(0, 0)))
    return nearest * RADIUS


def projected(centre, lon, lat):
    """Return a position in radians around *centre*, at its true distance and direction."""
    distance = sphere(*centre, lon, lat) / RADIUS
    east, phi, other = math.radians(lon - centre[0]), math.radians(centre[1]), math.radians(lat)
    direction = math.atan2(
        math.sin(east) * math.cos(other),
        math.cos(phi) * math.sin(other) - math.sin(phi) * math.cos(other) * math.cos(east),
    )
    return distance * math.sin(direction), distance * math.cos(direction)
