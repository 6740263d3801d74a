"""How far messages are from positions: for questions to which "it touches" is too short an answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.geometry import Place, Planar, Point, Polygon, distance
from nearcast.kernels import kernel
from nearcast.kernels.sphere import great_circle
from nearcast.matching.refine import Side, place_at

__all__ = ["distances"]

_NO_NUMBERS = np.empty(0, np.int32)


def distances(
    positions: NDArray[np.float64], messages: Side, rows: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far each position (x, y, …) is from the message that owns a probe row, and how wrong that may be.

    It is right apart from rounding, except for polygons on the globe. The distance to a circle is that to its centre
    less its radius: inside, it is negative.
    """
    planar = isinstance(messages.space, Planar)
    numbers = messages.shapes.index if messages.shapes else _NO_NUMBERS
    found, doubt = np.empty(len(rows)), np.zeros(len(rows))
    _distances(positions, messages.boxes, numbers, messages.shapes.circles, rows, planar, found)
    places: dict[int, Place] = {}
    for i in np.flatnonzero(np.isnan(found)).tolist():
        owner = int(messages.owners[rows[i]])
        if owner not in places:
            places[owner] = place_at(messages, int(rows[i]))  # type: ignore[assignment]  # no message is everywhere
        place, (x, y) = places[owner], positions[i, :2].tolist()
        found[i] = distance(Point(x=x, y=y, space=messages.space), place)
        if isinstance(place, Polygon) and not planar:
            doubt[i] = config.OUTLINE_DOUBT_M
    return found, doubt


@kernel
def _distances(
    positions: NDArray[np.float64],
    boxes: NDArray[np.float64],
    shapes: NDArray[np.int32],
    circles: NDArray[np.float64],
    rows: NDArray[Any],
    planar: bool,
    found: NDArray[np.float64],
) -> None:
    """Compute the distances of points and circles; NaN marks the others."""
    for i in range(rows.size):
        row = rows[i]
        shape = shapes[row] if shapes.size > 0 else -1
        x, y, radius = boxes[row, 0], boxes[row, 1], 0.0
        if shape >= 0:
            x, y, radius = circles[shape, 0], circles[shape, 1], circles[shape, 2]
        elif x != boxes[row, 2] or y != boxes[row, 3]:
            radius = math.nan
        if math.isnan(radius):
            found[i] = math.nan
            continue
        px, py = positions[i, 0], positions[i, 1]
        if planar:
            found[i] = math.sqrt((px - x) * (px - x) + (py - y) * (py - y)) - radius
        else:
            found[i] = great_circle(px, py, x, y) - radius
