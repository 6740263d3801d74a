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

from nearcast.geometry.regions import EVERYWHERE, Box, Circle, Everywhere, Place, Point, Polygon, Region
from nearcast.geometry.spaces import WGS84, Geographic, Planar, Space
from nearcast.geometry.sphere import great_circle
from nearcast.geometry.touching import touches
from nearcast.geometry.written import as_place, as_region, from_geojson, from_text, to_geojson, to_text

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
