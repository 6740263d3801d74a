"""Polygons as shapely geometries, checked; shapely is imported at first use.

Mistakes that shapely would report in its own way become a :class:`~nearcast.errors.GeometryError` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nearcast import config
from nearcast.errors import GeometryError, shown
from nearcast.geometry.crs import require_wgs84_geojson, require_wgs84_srid
from nearcast.geometry.spaces import Geographic, number

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

    from nearcast.geometry.spaces import Bounds, Space

__all__ = ["as_shapely", "bounds_of", "checked_polygon", "rectangle", "vertex_count", "wkt_of"]


def as_shapely(value: Any, space: Space) -> Any:
    """Return the shapely geometry of GeoJSON, WKT, WKB, or of a shapely geometry itself.

    On the globe, one that declares another coordinate system than WGS84 is refused; on a plane, any will do.
    """
    import shapely

    geometry = _read(value)
    if isinstance(space, Geographic):
        if isinstance(value, Mapping):
            require_wgs84_geojson(value)
        require_wgs84_srid(shapely.get_srid(geometry))
    return geometry


def _read(value: Any) -> Any:
    import numpy as np
    import shapely
    import shapely.geometry

    if isinstance(value, shapely.Geometry):
        return value
    try:
        with np.errstate(invalid="ignore"):  # NaN is reported when the vertices are checked
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


def checked_polygon(geometry: BaseGeometry, space: Space) -> BaseGeometry:
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
        raise GeometryError(f"the geometry of an area is {what}; give a Polygon or a MultiPolygon")
    if (vertices := vertex_count(geometry)) > config.MAX_POLYGON_VERTICES:
        raise GeometryError(
            f"a polygon of {vertices} vertices is over the limit of {config.MAX_POLYGON_VERTICES} "
            "(config.MAX_POLYGON_VERTICES); simplify it with shapely.simplify"
        )
    # Adding 0.0 turns -0.0 into 0.0, so that equal polygons have equal bytes.
    geometry = shapely.transform(shapely.force_2d(geometry), lambda xy: xy + 0.0)
    for x, y in shapely.get_coordinates(geometry).tolist():
        space.check(number(x, space.axes[0]), number(y, space.axes[1]))
    if not shapely.is_valid(geometry):
        raise GeometryError(
            f"the polygon is not valid: {shapely.is_valid_reason(geometry)}; "
            "repair it with shapely.make_valid"
        )
    return shapely.normalize(geometry)


def rectangle(polygon: Any) -> Bounds | None:
    """Return the bounds of a polygon that is an axis-parallel rectangle with four corners, else ``None``."""
    if polygon.geom_type != "Polygon" or polygon.is_empty or len(polygon.interiors) > 0:
        return None
    ring = [position[:2] for position in polygon.exterior.coords]
    if len(ring) != 5 or any(a[0] != b[0] and a[1] != b[1] for a, b in pairwise(ring)):
        return None
    (xmin, ymin), (xmax, ymax) = min(ring), max(ring)
    corners = {(xmin, ymin), (xmax, ymin), (xmax, ymax), (xmin, ymax)}
    return (xmin, ymin, xmax, ymax) if set(ring) == corners else None


def bounds_of(geometry: BaseGeometry) -> Bounds:
    """Return xmin, ymin, xmax, ymax."""
    xmin, ymin, xmax, ymax = geometry.bounds
    return float(xmin), float(ymin), float(xmax), float(ymax)


def vertex_count(geometry: BaseGeometry) -> int:
    """Return the number of vertices of all rings."""
    import shapely

    return int(shapely.get_num_coordinates(geometry))


def wkt_of(geometry: BaseGeometry) -> str:
    """Return WKT with all digits, so that reading it returns an equal geometry."""
    import shapely

    return str(shapely.to_wkt(geometry, rounding_precision=-1))
