"""After the index: shapes, then subscriptions.

An index answers with clause rows per probe row, exact for boxes, words and tests. Here circles and polygons decide
what their boxes only suggest, clause rows become subscription rows, probe rows become message rows, and a
subscription that several clauses or boxes found is kept once. A table of plain boxes passes through untouched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches, MessageBatch
from nearcast.geometry import Place, Planar, Point, Region, touches
from nearcast.kernels import kernel
from nearcast.ragged import offsets_of
from nearcast.shapes import Shapes, region_of_boxes

if TYPE_CHECKING:
    from nearcast.matching.store import ClauseStore

__all__ = ["resolve"]

_UNDECIDED = 2


def resolve(store: ClauseStore, batch: MessageBatch, found: Matches) -> Matches:
    """Turn clause rows per probe into subscription rows per message."""
    if store.shapes or batch.shapes:
        found = _refined(store, batch, found)
    rows = store.owners[found.rows]
    if store.one_clause_each and len(batch.owners) == batch.size:
        return Matches(found.offsets, rows)
    offsets = found.offsets[batch.probe_offsets]
    counts = np.empty(batch.size, np.int64)
    filled = _distinct(offsets, rows, counts)
    return Matches(offsets_of(counts), rows[:filled])


def _refined(store: ClauseStore, batch: MessageBatch, found: Matches) -> Matches:
    """Keep the pairs whose shapes touch."""
    keep = np.empty(len(found.rows), np.uint8)
    planar = isinstance(store.space, Planar)
    _circles(
        found.offsets,
        found.rows,
        _shape_view(store.shapes, store.rows),
        _shape_view(batch.shapes, len(batch.owners)),
        batch.probes.boxes,
        planar,
        config.EARTH_RADIUS_M,
        keep,
    )
    undecided = np.flatnonzero(keep == _UNDECIDED)
    if len(undecided):
        keep[undecided] = _polygons(store, batch, found, undecided)
    kept = keep == 1
    totals = offsets_of(kept)
    return Matches(totals[found.offsets], found.rows[kept])


def _shape_view(shapes: Shapes, rows: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return (index, circles) as the kernel takes them; a column without shapes gets an index of -1."""
    return (shapes.index if shapes else np.full(rows, -1, np.int32)), shapes.circles


@kernel
def _circles(
    offsets: NDArray[np.int64],
    rows: NDArray[np.int32],
    clause_shapes: tuple[NDArray[np.int32], NDArray[np.float64]],
    probe_shapes: tuple[NDArray[np.int32], NDArray[np.float64]],
    probe_boxes: NDArray[np.float64],
    planar: bool,
    radius: float,
    keep: NDArray[np.uint8],
) -> None:
    """Decide pairs of a point and a circle or box (1: they touch, 0: they do not), leave the rest undecided (2)."""
    index, circles = clause_shapes
    for p in range(offsets.size - 1):
        x, y = probe_boxes[p, 0], probe_boxes[p, 1]
        point = probe_shapes[0][p] < 0 and x == probe_boxes[p, 2] and y == probe_boxes[p, 3]
        for i in range(offsets[p], offsets[p + 1]):
            shape = index[rows[i]]
            if shape < 0 and probe_shapes[0][p] < 0:
                keep[i] = 1
            elif point and not np.isnan(circles[shape, 2]):
                cx, cy, r = circles[shape, 0], circles[shape, 1], circles[shape, 2]
                if planar:
                    distance = np.hypot(x - cx, y - cy)
                else:
                    distance = _great_circle(cx, cy, x, y, radius)
                keep[i] = distance <= r
            else:
                keep[i] = _UNDECIDED


@kernel
def _great_circle(lon1: float, lat1: float, lon2: float, lat2: float, radius: float) -> Any:
    """Haversine distance, as :func:`nearcast.geometry.great_circle`."""
    a, b = np.radians(lat1), np.radians(lat2)
    h = np.sin((b - a) / 2) ** 2 + np.cos(a) * np.cos(b) * np.sin(np.radians(lon2 - lon1) / 2) ** 2
    return 2 * radius * np.arcsin(np.sqrt(min(1.0, h)))


def _polygons(
    store: ClauseStore, batch: MessageBatch, found: Matches, pairs: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Decide the given pairs with polygons and areas, by Shapely: points in bulk, the rest one by one."""
    import shapely

    probes, rows = found.messages[pairs], found.rows[pairs]
    boxes = batch.probes.boxes
    decided = np.empty(len(pairs), np.bool_)
    x, y = boxes[probes, 0], boxes[probes, 1]
    is_point = (x == boxes[probes, 2]) & (y == boxes[probes, 3]) & (_numbers(batch.shapes, probes) < 0)
    # On the antimeridian a point has two names; ``touches`` knows both.
    bulk = is_point & ((np.abs(x) != 180) if not isinstance(store.space, Planar) else True)
    polygons = store.shapes.polygons[store.shapes.index[rows[bulk]]]
    if len(polygons):
        shapely.prepare(polygons)
        decided[bulk] = shapely.intersects_xy(polygons, x[bulk], y[bulk])
    for i in np.flatnonzero(~bulk):
        region = store.shapes.region(int(rows[i]), store.space) or region_of_boxes(
            store.clauses.boxes[_box_rows(store, int(rows[i]))], store.space
        )
        decided[i] = touches(region, _place(batch, int(probes[i])))
    return decided


def _numbers(shapes: Shapes, rows: NDArray[Any]) -> NDArray[np.int32]:
    return shapes.index[rows] if shapes else np.full(len(rows), -1, np.int32)


def _box_rows(store: ClauseStore, row: int) -> NDArray[np.int64]:
    """Return clause rows that hold the distinct boxes of the subscription that owns *row*."""
    rows = store.clause_rows(store.owners[[row]])
    _, first = np.unique(store.clauses.boxes[rows], axis=0, return_index=True)
    return rows[first]


def _place(batch: MessageBatch, probe: int) -> Place | Region:
    """Return the place of the message that *probe* belongs to."""
    shape = batch.shapes.region(probe, batch.space)
    if shape is not None:
        return shape
    start, stop = batch.probe_offsets[batch.owners[probe]], batch.probe_offsets[batch.owners[probe] + 1]
    boxes = batch.probes.boxes[start:stop]
    x, y, x2, y2 = boxes[0].tolist()
    if len(boxes) == 1 and x == x2 and y == y2:
        return Point(x=x, y=y, space=batch.space)
    return region_of_boxes(boxes, batch.space)


@kernel
def _distinct(offsets: NDArray[np.int64], rows: NDArray[np.int32], counts: NDArray[np.int64]) -> int:
    """Sort and deduplicate the rows of each group in place, closing the gaps; return how many are left."""
    filled = 0
    for group in range(offsets.size - 1):
        start, stop = offsets[group], offsets[group + 1]
        rows[start:stop].sort()
        first = filled
        for i in range(start, stop):
            if i == start or rows[i] != rows[i - 1]:
                rows[filled] = rows[i]
                filled += 1
        counts[group] = filled - first
    return filled
