"""Reads the place columns of a table: points, boxes and circles in bulk, and the odd places one by one.

Odd places are polygons, boxes and circles that meet the antimeridian or a pole, and mistakes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.columns.circles import circle_boxes, good_points
from nearcast.columns.clause_rows import Placement, place
from nearcast.columns.from_arrow.declared import foreign_crs, is_spark_geometry, spark_crs
from nearcast.columns.from_arrow.names import BOX
from nearcast.columns.from_arrow.source import Source, is_text
from nearcast.columns.ragged import offsets_of
from nearcast.columns.shapes import NO_SHAPES, Shapes
from nearcast.errors import ColumnError, GeometryError
from nearcast.geometry import Box, Circle, Place, Planar, Point, Region, Space, as_place, as_region
from nearcast.geometry.crs import require_wgs84

__all__ = ["CIRCLE", "given_regions", "places", "regions"]

CIRCLE = ("lon", "lat", "radius_m")
# The columns besides lon and lat that say where a message is.
_OTHER_PLACES = ("geometry", "radius_m", "bbox", *BOX)
_WKB_POINT = np.dtype([("head", "u1", 5), ("xy", "<f8", 2)])
_EVERYWHERE = (-np.inf, -np.inf, np.inf, np.inf)


def regions(source: Source, space: Space, circles: NDArray[np.float64] | None = None) -> Placement:
    """Return the region of each subscription; a geometry takes precedence over a circle, a circle over a box.

    *circles* are those of the table, where the caller has read them.
    """
    layout = _Layout(source, space, np.tile(_EVERYWHERE, (source.size, 1)))
    boxes = _boxes(source)
    if boxes is not None:
        layout.put_boxes(_any_given(boxes), boxes)
    if circles is None:
        circles = source.numbers(CIRCLE)
    if circles is not None:
        layout.put_circles(_any_given(circles), circles)
    geometry = _geometry(source, space)
    for row in np.flatnonzero(geometry.is_valid()):
        layout.put(row, source.at("place", row, as_region, geometry[row].as_py(), space))
    return layout.placed()


def given_regions(source: Source, space: Space) -> NDArray[np.bool_]:
    """Mark the rows that have a geometry, or a box."""
    given = np.array(_geometry(source, space).is_valid())
    boxes = _boxes(source)
    return given if boxes is None else given | _any_given(boxes)


def places(source: Source, space: Space) -> Placement:
    """Return the place of each message; the order of precedence is geometry, circle, point, box."""
    points = source.numbers(("lon", "lat"))
    if points is not None and _only_points(source, points, space):
        return Placement(np.arange(len(points) + 1), np.concatenate([points, points], axis=1), NO_SHAPES)
    xy = np.full((source.size, 2), np.nan) if points is None else points
    layout = _Layout(source, space, np.concatenate([xy, xy], axis=1))
    rest = np.ones(source.size, bool)  # the rows whose place is their point
    boxes = _boxes(source)
    if boxes is not None:
        rows = _any_given(boxes) & np.isnan(xy).all(axis=1)
        layout.put_boxes(rows, boxes)
        rest &= ~rows
    circles = source.numbers(CIRCLE) if "radius_m" in source else None
    if circles is not None:
        rows = ~np.isnan(circles[:, 2])
        layout.put_circles(rows, circles)
        rest &= ~rows
    geometry = _geometry(source, space)
    given = np.asarray(geometry.is_valid())
    points = _wkb_points(geometry)
    plain = good_points(points[:, 0], points[:, 1], space)
    layout.put_points(plain, points)
    for row in np.flatnonzero(given & ~plain):
        layout.put(row, source.at("place", row, as_place, geometry[row].as_py(), space))
    rest &= ~given
    _check_points(source, xy, np.flatnonzero(rest), space)
    return layout.placed()


def _only_points(source: Source, points: NDArray[np.float64], space: Space) -> bool:
    """Tell whether every message has a point and nothing else, as is most common."""
    others = any(name in source for name in _OTHER_PLACES)
    return not others and bool(good_points(points[:, 0], points[:, 1], space).all())


class _Layout:
    """Collects the place of each row, where a later one overrides an earlier one; the result is that of ``place``."""

    def __init__(self, source: Source, space: Space, boxes: NDArray[np.float64]) -> None:
        self._source = source
        self._space = space
        self._boxes = boxes  # of the rows that are not odd
        self._circles = np.full((len(boxes), 3), np.nan)  # of those that have one
        self._odd = np.zeros(len(boxes), bool)
        self._objects: dict[int, Region | Place] = {}  # of the odd rows

    def put_points(self, rows: NDArray[np.bool_], points: NDArray[np.float64]) -> None:
        """Put the points of the marked rows; they are known to lie in the space."""
        self._boxes[rows], self._circles[rows], self._odd[rows] = np.tile(points[rows], 2), np.nan, False

    def put_boxes(self, rows: NDArray[np.bool_], boxes: NDArray[np.float64]) -> None:
        """Put the boxes of the marked rows."""
        plain = rows & _plain_boxes(boxes, self._space)
        self._boxes[plain] = boxes[plain]
        for row in np.flatnonzero(rows & ~plain):
            self.put(row, self._source.at("place", row, _box, self._space, *boxes[row].tolist()))

    def put_circles(self, rows: NDArray[np.bool_], circles: NDArray[np.float64]) -> None:
        """Put the circles of the marked rows."""
        boxes = np.full((len(rows), 4), np.nan)
        boxes[rows] = circle_boxes(circles[rows], self._space)
        plain = ~np.isnan(boxes[:, 0])
        self._boxes[plain], self._circles[plain], self._odd[plain] = boxes[plain], circles[plain], False
        for row in np.flatnonzero(rows & ~plain):
            self.put(row, self._source.at("place", row, _circle, self._space, *circles[row].tolist()))

    def put(self, row: int | np.int64, region: Region | Place | None) -> None:
        """Put an odd region; do nothing if it was refused."""
        if region is None:
            return
        self._odd[row] = True
        self._objects[int(row)] = region

    def placed(self) -> Placement:
        """Return the boxes and shapes of all rows, in their order."""
        n, odd = len(self._boxes), self._odd
        circular = ~odd & ~np.isnan(self._circles[:, 0])
        if not odd.any() and not circular.any():
            return Placement(np.arange(n + 1), self._boxes, NO_SHAPES)
        objects = [self._objects[row] for row in np.flatnonzero(odd).tolist()]
        special = place(objects)
        counts = np.ones(n, np.int64)
        counts[odd] = np.diff(special.offsets)
        ours = np.repeat(odd, counts)
        boxes = np.empty((len(ours), 4))
        boxes[ours], boxes[~ours] = special.boxes, self._boxes[~odd]
        shaped = circular.copy()
        shaped[odd] = [not region.exact for region in objects]
        if not shaped.any():
            return Placement(offsets_of(counts), boxes, NO_SHAPES)
        numbers = np.where(shaped, np.cumsum(shaped) - 1, -1).astype(np.int32)
        circles, polygons = self._circles[shaped], np.full(int(shaped.sum()), None, object)
        circles[odd[shaped]], polygons[odd[shaped]] = special.shapes.circles, special.shapes.polygons
        return Placement(offsets_of(counts), boxes, Shapes(np.repeat(numbers, counts), circles, polygons))


def _circle(space: Space, x: float, y: float, radius: float) -> Circle:
    _refuse_missing(CIRCLE, (x, y, radius))
    return Circle(x=x, y=y, radius=radius, space=space)


def _box(space: Space, xmin: float, ymin: float, xmax: float, ymax: float) -> Box:
    _refuse_missing(BOX, (xmin, ymin, xmax, ymax))
    return Box(xmin, ymin, xmax, ymax, space)


def _refuse_missing(names: Sequence[str], values: Sequence[float]) -> None:
    """Raise if some of the numbers that describe a place together are null."""
    missing = [name for name, value in zip(names, values) if math.isnan(value)]
    if missing:
        raise GeometryError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; {', '.join(names)} belong "
            "together, so add what is missing, or leave out the rest"
        )


def _plain_boxes(boxes: NDArray[np.float64], space: Space) -> NDArray[np.bool_]:
    """Mark the boxes that are legal and clear of the antimeridian; one with NaN is not."""
    xmin, ymin, xmax, ymax = boxes.T
    plain: NDArray[np.bool_] = (xmin <= xmax) & (ymin <= ymax)
    if isinstance(space, Planar):
        plain &= (xmin >= space.xmin) & (xmax <= space.xmax) & (ymin >= space.ymin) & (ymax <= space.ymax)
    else:
        plain &= (xmin > -180) & (xmax < 180) & (ymin >= -90) & (ymax <= 90)
    return plain


def _check_points(source: Source, xy: NDArray[np.float64], rows: NDArray[np.int64], space: Space) -> None:
    """Refuse those of the given rows that have no point, or one outside of the space."""
    for row in rows[~good_points(xy[rows, 0], xy[rows, 1], space)]:
        if np.isnan(xy[row]).all():
            source.refuse(
                "place",
                row,
                ColumnError(
                    f"{source.name_of(row)} has no place; give lon and lat, geometry, or xmin, ymin, xmax, ymax"
                ),
            )
        else:
            source.at("place", row, _point, space, *xy[row].tolist())


def _point(space: Space, x: float, y: float) -> Point:
    _refuse_missing(("lon", "lat"), (x, y))
    return Point(x=x, y=y, space=space)


def _boxes(source: Source) -> NDArray[np.float64] | None:
    """Return the boxes of the table, from four columns or one struct."""
    if "bbox" in source and not pa.types.is_null(source["bbox"].type):
        column = source["bbox"]
        if not pa.types.is_struct(column.type) or not {field.name for field in column.type} >= set(BOX):
            raise ColumnError(f"bbox must be a column of structs of {', '.join(BOX)}, not of {column.type}")
        return source.floats([pc.struct_field(column, name) for name in BOX], "bbox")
    return source.numbers(BOX)


def _any_given(columns: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the rows that have any of the numbers."""
    return np.asarray(~np.isnan(columns).all(axis=1), np.bool_)


def _geometry(source: Source, space: Space) -> pa.Array:
    """Return the geometries as WKB or WKT, null where there is none. On a plane, any coordinate system will do."""
    if "geometry" not in source:
        return pa.nulls(source.size)
    if not isinstance(space, Planar):
        require_wgs84(source.crs)
    column = source["geometry"]
    if is_spark_geometry(column.type):
        return _checked_wkb(source, column, space)
    kind = column.type
    if is_text(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_null(kind)):
        raise ColumnError(
            f"geometry must be a column of WKB or WKT, not of {kind}; to_wkb() of GeoPandas writes WKB"
        )
    return column


def _checked_wkb(source: Source, column: pa.Array, space: Space) -> pa.Array:
    """Return the WKB of Spark's geometries; one in another coordinate system is refused."""
    if not isinstance(space, Planar):
        require_wgs84(spark_crs(column.type))
        for row, crs in foreign_crs(column).items():
            source.at("place", row, require_wgs84, crs)
    return pc.struct_field(column, "wkb")


def _wkb_points(geometry: pa.Array) -> NDArray[np.float64]:
    """Return x, y of the rows that are plain points in little-endian WKB, the usual form of points; NaN elsewhere."""
    xy = np.full((len(geometry), 2), np.nan)
    if pa.types.is_binary(geometry.type) or pa.types.is_large_binary(geometry.type):
        fitting = pc.fill_null(pc.equal(pc.binary_length(geometry), _WKB_POINT.itemsize), False)
        rows = np.flatnonzero(fitting)
        found = np.frombuffer(b"".join(geometry.filter(fitting).to_pylist()), _WKB_POINT)
        points = (found["head"] == (1, 1, 0, 0, 0)).all(axis=1)  # the byte order, and the type as a uint32
        xy[rows[points]] = found["xy"][points]
    return xy
