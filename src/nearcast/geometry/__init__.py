"""Places and regions (points, boxes, circles, polygons, everywhere), and whether two of them touch.

A message's place and a subscription's region have the same types. Each lies in a *space*: :data:`WGS84` (degrees,
longitude first, distances in metres along great circles) or a :class:`Planar` rectangle (any unit, Euclidean
distances). A region includes its boundary. Longitudes −180 and 180 are the same meridian, and a box with
``xmin > xmax`` crosses it. Edges of polygons are straight in longitude and latitude, as in GeoJSON.

:func:`touches` defines when a message is in a region. Indexes prune by ``place.boxes()``, which always contain the
place.
"""

from __future__ import annotations

from nearcast.geometry.formats import as_place, as_region, from_geojson, from_text, to_geojson, to_text
from nearcast.geometry.regions import EVERYWHERE, Box, Circle, Everywhere, Place, Point, Polygon, Region
from nearcast.geometry.spaces import WGS84, Geographic, Planar, Space
from nearcast.geometry.sphere import great_circle
from nearcast.geometry.touching import distance, touches

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
    "distance",
    "from_geojson",
    "from_text",
    "great_circle",
    "to_geojson",
    "to_text",
    "touches",
]
