"""Does one subscription cover another, polygons included? Shapely decides what kernels leave undecided."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nearcast import config
from nearcast.covering.relation import UNDECIDED, YES, Content, Regions, clause_covers
from nearcast.geometry import Planar
from nearcast.geometry.touching import shape_of_box

if TYPE_CHECKING:
    from nearcast.columns.rows.clauses import ClauseStore

__all__ = ["content_of", "subscription_covers"]


def content_of(store: ClauseStore) -> Content:
    """Return what the clause rows of a store ask for, for kernels."""
    globe = 0.0 if isinstance(store.space, Planar) else config.EARTH_RADIUS_M
    return Content(store.clauses, Regions(store.shapes.index, store.shapes.circles, globe))


def subscription_covers(held: ClauseStore, a: int, asked: ClauseStore, b: int) -> bool:
    """Tell whether each clause of row *b* of *asked* is covered by one of row *a* of *held*; see ``relation``."""
    mine = held.parts(np.array([a])).tolist()
    others = asked.parts(np.array([b])).tolist()
    return bool(others) and all(any(_covers(held, one, asked, other) for one in mine) for other in others)


def _covers(held: ClauseStore, a: int, asked: ClauseStore, b: int) -> bool:
    answer = clause_covers(content_of(held), a, content_of(asked), b)
    return _contains(held, a, asked, b) if answer == UNDECIDED else bool(answer == YES)


def _contains(held: ClauseStore, a: int, asked: ClauseStore, b: int) -> bool:
    """Tell whether the shape of clause row *a* contains the region of clause row *b*, where one is a polygon.

    On the globe, a circle in a polygon is judged by its box. That is larger, so the answer is never a false yes.
    """
    import shapely

    planar = isinstance(held.space, Planar)
    mine, other = held.shapes.index[a], asked.shapes.index[b] if asked.shapes else -1
    outer, inner = held.shapes.polygons[mine], asked.shapes.polygons[other] if other >= 0 else None
    if outer is None:  # a circle in the plane, around a polygon
        x, y, radius = held.shapes.circles[mine].tolist()
        corners = shapely.get_coordinates(inner)
        reach = float(np.hypot(corners[:, 0] - x, corners[:, 1] - y).max())
        return bool(reach + config.CIRCLE_PAD * (abs(x) + abs(y) + radius) <= radius)
    if inner is not None:
        return bool(outer is inner or shapely.covers(outer, inner))
    if other >= 0 and planar:
        x, y, radius = asked.shapes.circles[other].tolist()
        centre = shapely.Point(x, y)
        reach = radius + config.CIRCLE_PAD * (abs(x) + abs(y) + radius)
        return bool(outer.covers(centre) and outer.boundary.distance(centre) >= reach)
    return bool(shapely.covers(outer, shape_of_box(asked.clauses.boxes[b].tolist())))
