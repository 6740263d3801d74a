"""Does one subscription cover another, polygons included? What kernels leave undecided, shapely decides here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast import config
from nearcast.covering.relation import UNDECIDED, YES, Regions, clause_covers
from nearcast.geometry import Planar
from nearcast.geometry.touching import shape_of_box

if TYPE_CHECKING:
    from nearcast.columns.rows.clauses import ClauseStore

__all__ = ["regions_of", "subscription_covers"]


def regions_of(store: ClauseStore) -> Regions:
    """Return the regions of clause rows, for kernels."""
    globe = 0.0 if isinstance(store.space, Planar) else config.EARTH_RADIUS_M
    return Regions(store.shapes.index, store.shapes.circles, globe)


def subscription_covers(store: ClauseStore, a: int, b: int) -> bool:
    """Tell whether each clause of subscription row *b* is covered by one of row *a*; see ``relation``."""
    regions = regions_of(store)
    mine, others = (store.parts(np.array([row])).tolist() for row in (a, b))
    return bool(others) and all(any(_covers(store, regions, one, other) for one in mine) for other in others)


def _covers(store: ClauseStore, regions: Regions, a: int, b: int) -> bool:
    answer = clause_covers(store.clauses, regions, a, b)
    return _contains(store, a, b) if answer == UNDECIDED else bool(answer == YES)


def _contains(store: ClauseStore, a: int, b: int) -> bool:
    """Tell whether the shape of clause row *a* contains the region of row *b*, where one of them is a polygon.

    On the globe a circle in a polygon is judged by its boxes, which are larger: never a false yes.
    """
    import shapely

    shapes, planar = store.shapes, isinstance(store.space, Planar)
    mine, other = shapes.index[a], shapes.index[b]
    outer = shapes.polygons[mine]
    if outer is None:  # a circle in the plane, around a polygon
        x, y, radius = shapes.circles[mine].tolist()
        corners = shapely.get_coordinates(shapes.polygons[other])
        reach = float(np.hypot(corners[:, 0] - x, corners[:, 1] - y).max())
        return bool(reach + config.CIRCLE_PAD * (abs(x) + abs(y) + radius) <= radius)
    if other >= 0 and shapes.polygons[other] is not None:
        return bool(mine == other or shapely.covers(outer, shapes.polygons[other]))
    if other >= 0 and planar:
        x, y, radius = shapes.circles[other].tolist()
        centre = shapely.Point(x, y)
        reach = radius + config.CIRCLE_PAD * (abs(x) + abs(y) + radius)
        return bool(outer.covers(centre) and outer.boundary.distance(centre) >= reach)
    return bool(shapely.covers(outer, shape_of_box(store.clauses.boxes[b].tolist())))
