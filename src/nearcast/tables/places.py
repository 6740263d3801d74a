"""The place columns of a table: points and boxes in bulk, shapes one by one."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.assembly import Placed, place
from nearcast.errors import ColumnError
from nearcast.geometry import (
    EVERYWHERE,
    Box,
    Circle,
    Place,
    Planar,
    Point,
    Region,
    Space,
    as_place,
    as_region,
)
from nearcast.tables.source import Source

__all__ = ["BOX", "places", "regions"]

BOX = ("xmin", "ymin", "xmax", "ymax")
_CIRCLE = ("lon", "lat", "radius_m")


def regions(source: Source, space: Space) -> Placed:
    """Return the region of each subscription; where several are given, geometry wins over circle over box."""
    boxes = _boxes(source)
    if (
        boxes is not None
        and not any(name in source for name in ("geometry", *_CIRCLE))
        and _plain(boxes, space)
    ):
        return _in_bulk(boxes)
    found: list[Region | Place] = [EVERYWHERE] * source.size
    if boxes is not None:
        for row in _given(boxes):
            found[row] = source.at(row, partial(Box, space=space), *boxes[row].tolist())
    circles = source.numbers(_CIRCLE)
    if circles is not None:
        for row in _given(circles):
            found[row] = source.at(row, _circle, space, *circles[row].tolist())
    for row, geometry in _geometries(source):
        found[row] = source.at(row, as_region, geometry, space)
    return place(found)


def places(source: Source, space: Space) -> Placed:
    """Return the place of each message; where several are given, geometry wins over circle over point over box."""
    points = source.numbers(("lon", "lat"))
    xy = np.full((source.size, 2), np.nan) if points is None else points
    areas: dict[int, Place] = {}
    boxes = _boxes(source)
    if boxes is not None:
        for row in _given(boxes):
            if np.isnan(xy[row]).all():
                areas[int(row)] = source.at(row, partial(Box, space=space), *boxes[row].tolist())
    circles = source.numbers(_CIRCLE) if "radius_m" in source else None
    if circles is not None:
        for row in np.flatnonzero(~np.isnan(circles[:, 2])):
            areas[int(row)] = source.at(row, _circle, space, *circles[row].tolist())
    for row, geometry in _geometries(source):
        areas[row] = source.at(row, as_place, geometry, space)
    rest = np.setdiff1d(np.arange(source.size), np.fromiter(areas, np.int64, len(areas)), assume_unique=True)
    _check_points(source, xy, rest, space)
    if not areas:
        return _in_bulk(np.concatenate([xy, xy], axis=1))
    return place(
        [
            areas[row] if row in areas else Point(x=x, y=y, space=space)
            for row, (x, y) in enumerate(xy.tolist())
        ]
    )


def _circle(space: Space, x: float, y: float, radius: float) -> Circle:
    return Circle(x=x, y=y, radius=radius, space=space)


def _in_bulk(boxes: NDArray[np.float64]) -> Placed:
    """Return rows of one plain box each."""
    return place([])._replace(offsets=np.arange(len(boxes) + 1), boxes=boxes)


def _plain(boxes: NDArray[np.float64], space: Space) -> bool:
    """Tell whether every box is legal, given, and clear of the antimeridian."""
    xmin, ymin, xmax, ymax = boxes.T
    plain = (xmin <= xmax) & (ymin <= ymax)  # False for NaN
    if isinstance(space, Planar):
        plain &= (xmin >= space.xmin) & (xmax <= space.xmax) & (ymin >= space.ymin) & (ymax <= space.ymax)
    else:
        plain &= (xmin > -180) & (xmax < 180) & (ymin >= -90) & (ymax <= 90)
    return bool(plain.all())


def _check_points(source: Source, xy: NDArray[np.float64], rows: NDArray[np.int64], space: Space) -> None:
    """Raise for the first of the given rows whose point has no meaning."""
    x, y = xy[rows, 0], xy[rows, 1]
    if isinstance(space, Planar):
        good = (x >= space.xmin) & (x <= space.xmax) & (y >= space.ymin) & (y <= space.ymax)
    else:
        good = (np.abs(x) <= 180) & (np.abs(y) <= 90)
    if good.all():
        return
    row = int(rows[~good][0])
    if np.isnan(xy[row]).all():
        raise ColumnError(
            f"{source.name_of(row)} has no place; give lon and lat, geometry, or xmin, ymin, xmax, ymax"
        )
    source.at(row, lambda: Point(x=float(xy[row, 0]), y=float(xy[row, 1]), space=space))


def _boxes(source: Source) -> NDArray[np.float64] | None:
    """Return the boxes of the table, from four columns or one struct."""
    if "bbox" in source:
        column = source["bbox"]
        if not pa.types.is_struct(column.type) or not {field.name for field in column.type} >= set(BOX):
            raise ColumnError(f"bbox must be a column of structs of {', '.join(BOX)}, not of {column.type}")
        return source.floats([pc.struct_field(column, name) for name in BOX], "bbox")
    return source.numbers(BOX)


def _given(columns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the rows that have any of the numbers."""
    return np.flatnonzero(~np.isnan(columns).all(axis=1))


def _geometries(source: Source) -> list[tuple[int, bytes | str]]:
    """Return (row, WKB or WKT) where there is one."""
    if "geometry" not in source:
        return []
    column = source["geometry"]
    kind = column.type
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.large_binary() if pa.types.is_binary_view(kind) else pa.large_string())
    elif not (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_null(kind)
    ):
        raise ColumnError(
            f"geometry must be a column of WKB or WKT, not of {kind}; GeoPandas writes WKB by to_wkb()"
        )
    return [(row, value) for row, value in enumerate(column.to_pylist()) if value is not None]
