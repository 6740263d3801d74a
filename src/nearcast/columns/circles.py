"""Circles in bulk: their boxes, and their layout as regions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.clause_rows import Placement
from nearcast.columns.ragged import offsets_of
from nearcast.columns.shapes import Shapes
from nearcast.geometry import Circle, Planar, Space

__all__ = ["circle_boxes", "good_points", "place_circles"]


def place_circles(circles: NDArray[np.float64], space: Space) -> Placement:
    """Lay out circles, given as x, y and radius: what ``place`` does for objects."""
    boxes = circle_boxes(circles, space)
    counts, numbers = np.ones(len(circles), np.int64), np.arange(len(circles), dtype=np.int32)
    odd = np.flatnonzero(np.isnan(boxes[:, 0]))
    if len(odd):
        layouts = [
            Circle(x=x, y=y, radius=radius, space=space).boxes() for x, y, radius in circles[odd].tolist()
        ]
        counts[odd] = [len(layout) for layout in layouts]
        numbers = np.repeat(numbers, counts)
        boxes = boxes[numbers]
        boxes[np.isin(numbers, odd)] = [box for layout in layouts for box in layout]
    return Placement(offsets_of(counts), boxes, Shapes(numbers, circles, np.full(len(circles), None, object)))


def circle_boxes(circles: NDArray[np.float64], space: Space) -> NDArray[np.float64]:
    """Return the box of each circle exactly as ``Circle.boxes()`` does; NaN where only that method can tell.

    Such a circle meets a pole or the antimeridian, or is not a valid circle. The sines of NumPy differ from those of
    ``math`` in the last bit, and a circle must have the same box however it arrives.
    """
    legal = good_points(circles[:, 0], circles[:, 1], space) & (circles[:, 2] >= 0) & (circles[:, 2] < np.inf)
    x, y, radius = circles[legal].T
    if isinstance(space, Planar):
        reach = radius + config.CIRCLE_PAD * (np.abs(x) + np.abs(y) + radius)
        found = np.column_stack([x - reach, y - reach, x + reach, y + reach])
    else:
        reach = radius / config.EARTH_RADIUS_M * (180 / math.pi) + config.CIRCLE_PAD_DEG
        sines = _each(math.sin, reach * (math.pi / 180))
        cosines = _each(math.cos, y * (math.pi / 180))
        widest = np.minimum(1.0, np.abs(sines) / cosines * (1 + config.CIRCLE_PAD))
        half = _each(math.asin, widest) * (180 / math.pi) + config.CIRCLE_PAD_DEG
        found = np.column_stack([x - half, y - reach, x + half, y + reach])
        found[(found <= (-180, -90, -180, -90)).any(axis=1) | (found >= (180, 90, 180, 90)).any(axis=1)] = (
            np.nan
        )
    boxes = np.full((len(circles), 4), np.nan)
    boxes[legal] = found
    return boxes


def _each(function: Callable[[float], float], values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.fromiter(map(function, values.tolist()), np.float64, len(values))


def good_points(x: NDArray[np.float64], y: NDArray[np.float64], space: Space) -> NDArray[np.bool_]:
    """Mark the points that lie in the space; one with NaN does not."""
    if isinstance(space, Planar):
        return (x >= space.xmin) & (x <= space.xmax) & (y >= space.ymin) & (y <= space.ymax)
    return (np.abs(x) <= 180) & (np.abs(y) <= 90)
