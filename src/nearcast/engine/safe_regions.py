"""Safe regions: circles around the positions of subscribers inside which nothing changes while messages stay the same.

The subscriber's region is a circle around its position. A message inside it stays inside while the subscriber moves by
no more than the radius less the distance, one outside stays outside while it moves by less than the distance less the
radius. The safe region of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware
Publish/Subscribe" (2015), footnote 17, has only the second half.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches, SubscriptionTable
from nearcast.columns.circles import place_circles
from nearcast.columns.ids import IdColumn, Ids
from nearcast.columns.regions import circles_of, region_at, regions_of, relocated
from nearcast.errors import GeometryError, shown
from nearcast.geometry import Circle, Planar, Space
from nearcast.matching import Index, MessageStore
from nearcast.matching.distances import distances
from nearcast.matching.refine import stored_side
from nearcast.model import Id

__all__ = ["SafeRegions", "margins", "read_circles", "safe_radii"]


class SafeRegions:
    """The safe regions of several subscribers: pairs of an id and a :class:`Circle`, held as columns.

    A radius of 0 means that the subscriber must report every step.
    """

    __slots__ = ("_circles", "_ids", "_space")

    def __init__(self, ids: IdColumn, circles: NDArray[np.float64], space: Space) -> None:
        self._ids, self._circles, self._space = ids, circles, space

    @property
    def circles(self) -> NDArray[np.float64]:
        """The circles as rows of x, y and radius."""
        return self._circles

    def __len__(self) -> int:
        return len(self._circles)

    def __iter__(self) -> Iterator[tuple[Id, Circle]]:
        for key, (x, y, radius) in zip(self._ids.to_pylist(), self._circles.tolist(), strict=True):
            yield key, Circle(x=x, y=y, radius=radius, space=self._space)

    def __repr__(self) -> str:
        return f"<SafeRegions: {len(self):,}>"

    def to_arrow(self) -> pa.Table:
        """Return the columns ``subscription_id``, ``lon``, ``lat`` and ``radius_m``."""
        x, y, radius = (pa.array(np.ascontiguousarray(column)) for column in self._circles.T)
        return pa.table({"subscription_id": self._ids.to_arrow(), "lon": x, "lat": y, "radius_m": radius})

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the columns through the Arrow C stream interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def read_circles(
    rows: NDArray[np.int64], ids: Ids, index: Index
) -> tuple[SubscriptionTable, NDArray[np.float64]]:
    """Return the subscriptions in *rows*, and their circles; one that has no circle is an error."""
    table = index.subscriptions(rows)
    circles = circles_of(table)
    others = np.flatnonzero(np.isnan(circles[:, 2]))
    if len(others):
        name = ids.column(rows[others[:1]]).to_pylist()[0]
        kind = type(region_at(regions_of(table), int(others[0]), table.space)).__name__
        raise GeometryError(
            f"safe_region takes circles; the region of subscription {shown(name)} is "
            f"{'everywhere' if kind == 'Everywhere' else f'a {kind}'}"
        )
    return table, circles


def margins(circles: NDArray[np.float64], space: Space) -> NDArray[np.float64]:
    """Return by how much rounding may move a decision about circles: a safe region is smaller by that much."""
    if not isinstance(space, Planar):
        return np.full(len(circles), config.SAFE_MARGIN_M)
    x, y, radius = np.abs(circles).T
    margin: NDArray[np.float64] = config.SAFE_MARGIN * (x + y + config.SAFE_REACHES[-1] * radius)
    return margin


def safe_radii(
    store: MessageStore,
    table: SubscriptionTable,
    circles: NDArray[np.float64],
    now: int,
    at_most: float | None = None,
    *,
    inside: bool = True,
) -> NDArray[np.float64]:
    """Return the radius of each subscription's safe region, among the messages of *store* that are valid at *now*.

    The regions of *table* are the given *circles*. Messages are looked for in circles that are twice as large, and in
    larger ones only for those to whom nothing is near. Nobody's is larger than the largest of these circles allows, or
    than *at_most*. Without *inside*, messages may go out of reach: that is the paper's safe region.
    """
    space = table.space
    planar = isinstance(space, Planar)
    margin = margins(circles, space)
    # The place of a polygon beyond the circle that is asked for is as doubtful as that of one inside.
    beyond = margin + (config.OUTLINE_DOUBT_M if store.rows.shapes and not planar else 0.0)
    furthest = np.full(len(circles), config.SAFE_FURTHEST if planar else config.SAFE_FURTHEST_M)
    if at_most is not None:
        furthest = np.minimum(furthest, circles[:, 2] + at_most + beyond)
    radii = np.zeros(len(circles))
    rest = np.arange(len(circles))
    for factor in config.SAFE_REACHES if len(store) else config.SAFE_REACHES[-1:]:
        own = circles[rest]
        reach = np.minimum(factor * own[:, 2], furthest[rest])
        free = reach - own[:, 2] - beyond[rest]  # how far it is to what was not looked for
        if len(store):
            asking = table if len(rest) == len(circles) else table.take(rest)
            wider = place_circles(np.column_stack([own[:, :2], reach]), space)
            # Without a time: a search at a time removes what has expired, and those who hold it must be told first.
            found = store.match(relocated(asking, wider))
            near = _rooms(store, own, found, now, inside) - margin[rest]
        else:
            near = np.full(len(rest), np.inf)
        radii[rest] = np.minimum(near, free)
        rest = rest[near > free]
        if not len(rest):
            break
    return np.maximum(radii, 0.0)


def _rooms(
    store: MessageStore, circles: NDArray[np.float64], found: Matches, now: int, inside: bool
) -> NDArray[np.float64]:
    """Return how far each circle can move before the first of the messages found for it comes in, or goes out."""
    rooms = np.full(len(circles), np.inf)
    if len(found.rows):
        own, rows = circles[found.messages], store.rows
        first = found.rows if rows.parts_are_owners else rows.chains[0][found.rows]
        far, doubt = distances(own, stored_side(rows), first)
        room = np.abs(far - own[:, 2]) - doubt
        room[rows.expires_at[found.rows] <= now] = np.inf
        if not inside:
            room[far <= own[:, 2]] = np.inf
        some = np.flatnonzero(found.counts)
        rooms[some] = np.minimum.reduceat(room, found.offsets[some])
    return rooms
