"""After the index: shapes, then subscriptions.

An index answers with clause rows per probe row, exact for boxes, words and tests. Here circles and polygons decide
what their boxes only suggest, clause rows become subscription rows, probe rows become message rows, and a
subscription that several clauses or boxes found is kept once. A table of plain boxes passes through untouched.
"""

from __future__ import annotations

import math
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
    rows = found.rows if store.rows_are_subscriptions else store.owners[found.rows]
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
    probe_index, _ = probe_shapes
    for p in range(offsets.size - 1):
        x, y = probe_boxes[p, 0], probe_boxes[p, 1]
        point = probe_index[p] < 0 and x == probe_boxes[p, 2] and y == probe_boxes[p, 3]
        for i in range(offsets[p], offsets[p + 1]):
            shape = index[rows[i]]
            if shape < 0 and probe_index[p] < 0:
                keep[i] = 1
            elif point and not np.isnan(circles[shape, 2]):
                cx, cy, r = circles[shape, 0], circles[shape, 1], circles[shape, 2]
                if planar:
                    distance = math.sqrt((cx - x) * (cx - x) + (cy - y) * (cy - y))
                else:
                    distance = _great_circle(cx, cy, x, y, radius)
                keep[i] = distance <= r
            else:
                keep[i] = _UNDECIDED


@kernel
def _great_circle(lon1: float, lat1: float, lon2: float, lat2: float, radius: float) -> float:
    """Return the distance, by the very operations of :func:`nearcast.geometry.great_circle`: the rim decides alike."""
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    sine_phi = math.sin(math.radians(lat2 - lat1) / 2)
    sine_lambda = math.sin(math.radians(lon2 - lon1) / 2)
    haversine = sine_phi * sine_phi + math.cos(phi1) * math.cos(phi2) * sine_lambda * sine_lambda
    return 2 * radius * math.asin(min(1.0, math.sqrt(haversine)))


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
    # Few pairs come here one by one, but the same region and the same place come again and again.
    regions: dict[int, Region] = {}
    places: dict[int, Place | Region] = {}
    starts = batch.probe_offsets
    for i in np.flatnonzero(~bulk):
        row, message = int(rows[i]), int(batch.owners[probes[i]])
        subscription = int(store.owners[row])
        if subscription not in regions:
            regions[subscription] = _region(store, row)
        if message not in places:
            places[message] = _place(batch, int(starts[message]), int(starts[message + 1]))
        decided[i] = touches(regions[subscription], places[message])
    return decided


def _numbers(shapes: Shapes, rows: NDArray[Any]) -> NDArray[np.int32]:
    return shapes.index[rows] if shapes else np.full(len(rows), -1, np.int32)


def _region(store: ClauseStore, row: int) -> Region:
    """Return the region of the subscription that owns a clause row."""
    shape = store.shapes.region(row, store.space)
    if shape is not None:
        return shape
    boxes = store.clauses.boxes[store.clause_rows(store.owners[[row]])]
    return region_of_boxes(np.unique(boxes, axis=0), store.space)


def _place(batch: MessageBatch, start: int, stop: int) -> Place | Region:
    """Return the place of the message that has the probe rows *start* to *stop*."""
    shape = batch.shapes.region(start, batch.space)
    if shape is not None:
        return shape
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
