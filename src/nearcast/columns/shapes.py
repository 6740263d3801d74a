"""Shapes: the circles and polygons of rows whose boxes only bound their regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.parts import Arrays
from nearcast.columns.ragged import check_positions, checked_offsets, offsets_of
from nearcast.geometry import EVERYWHERE, Box, Circle, Polygon, Region, Space

__all__ = ["NO_SHAPES", "Shapes", "arrays_of_polygons", "polygons_from_arrays", "region_of_boxes"]


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """A column of shapes beside a column of boxes.

    ``index[row]`` is the number of the row's shape, or -1 where the box is the region; an empty *index* means that no
    row has a shape.
    """

    index: NDArray[np.int32]
    circles: NDArray[np.float64]  # [s, 3]: x, y, radius; the radius is NaN where the shape is a polygon
    polygons: NDArray[Any]  # object[s]: shapely geometries, None where the shape is a circle

    def __bool__(self) -> bool:
        return len(self.index) > 0

    def __len__(self) -> int:
        return len(self.circles)

    @property
    def nbytes(self) -> int:
        """Memory of the column; each vertex of a polygon counts 16 bytes."""
        import shapely

        vertices = int(shapely.get_num_coordinates(self.polygons).sum()) if len(self.polygons) else 0
        return self.index.nbytes + self.circles.nbytes + self.polygons.nbytes + 16 * vertices

    def region(self, row: int, space: Space) -> Circle | Polygon | None:
        """Return the shape of a row, or None where its box is the region."""
        if not self or self.index[row] < 0:
            return None
        number = self.index[row]
        if self.polygons[number] is not None:
            return Polygon(self.polygons[number], space)
        x, y, radius = self.circles[number].tolist()
        return Circle(x=x, y=y, radius=radius, space=space)

    def take(self, rows: NDArray[Any], owners: NDArray[np.int32] | None = None) -> Shapes:
        """Return the column for the given rows alone; shapes that none of them has are dropped.

        With the *owners* of the new rows, each of them gets shapes of its own, even if one row is taken for several
        owners: a shape is given back when its owner leaves.
        """
        if not self:
            return self
        index = self.index[rows]
        shaped = index >= 0
        keys = index[shaped].astype(np.int64)
        if owners is not None:
            keys += owners[shaped].astype(np.int64) * len(self)
        used, dense = np.unique(keys, return_inverse=True)
        if not len(used):
            return NO_SHAPES
        if owners is not None:
            used %= len(self)
        index = index.copy()
        index[shaped] = dense
        return Shapes(index, self.circles[used], self.polygons[used])

    @classmethod
    def of(cls, regions: Sequence[Circle | Polygon], index: NDArray[np.int32]) -> Shapes:
        """Build from the shapes and the number of each row's shape."""
        if not regions:
            return NO_SHAPES
        circles = np.full((len(regions), 3), np.nan)
        polygons = np.empty(len(regions), object)
        for number, region in enumerate(regions):
            if isinstance(region, Circle):
                circles[number] = region.x, region.y, region.radius
            else:
                polygons[number] = region.geometry
        return cls(index, circles, polygons)


NO_SHAPES = Shapes(np.empty(0, np.int32), np.empty((0, 3)), np.empty(0, object))


def arrays_of_polygons(polygons: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the flat arrays that :func:`polygons_from_arrays` takes: which shapes are polygons, and their WKB."""
    import shapely

    numbers = np.flatnonzero(shapely.is_geometry(polygons))
    written = shapely.to_wkb(polygons[numbers]).tolist()
    return {
        "numbers": numbers,
        "offsets": offsets_of(np.array([len(one) for one in written], np.int64)),
        "bytes": np.frombuffer(b"".join(written), np.uint8),
    }


def polygons_from_arrays(arrays: Arrays, shapes: int) -> NDArray[Any]:
    """Return the polygons that the arrays came from, in a column for the given number of shapes."""
    import shapely

    polygons = np.empty(shapes, object)
    check_positions(arrays["numbers"], shapes, "polygons")
    checked_offsets(arrays["offsets"], len(arrays["numbers"]), len(arrays["bytes"]), "polygon")
    offsets, data = arrays["offsets"].tolist(), arrays["bytes"].tobytes()
    written = [data[start:stop] for start, stop in pairwise(offsets)]
    polygons[arrays["numbers"]] = shapely.from_wkb(np.array(written, object))
    return polygons


def region_of_boxes(boxes: NDArray[np.float64], space: Space) -> Region:
    """Return the region of one or two index boxes: the inverse of ``Box.boxes()`` and ``EVERYWHERE.boxes()``.

    >>> from nearcast.geometry import WGS84
    >>> region_of_boxes(np.array(Box(170, 0, -170, 9).boxes()), WGS84)
    Box(170.0, 0.0, -170.0, 9.0)
    """
    if len(boxes) == 1:
        xmin, ymin, xmax, ymax = boxes[0].tolist()
        if np.isinf(boxes[0]).all():
            return EVERYWHERE
        return Box(xmin, ymin, xmax, ymax, space)
    east, west = (boxes[0], boxes[1]) if boxes[0][2] == 180 and boxes[1][0] == -180 else (boxes[1], boxes[0])
    ymin, ymax = float(east[1]), float(east[3])
    if west[2] == -180:  # the western box is only the antimeridian, where the eastern one ends
        return Box(float(east[0]), ymin, 180.0, ymax, space)
    if east[0] == 180:
        return Box(-180.0, ymin, float(west[2]), ymax, space)
    return Box(float(east[0]), ymin, float(west[2]), ymax, space)
