"""What follows a search: shapes decide, and rows become owners. Both directions of matching use it.

The answer of a search is pairs of a clause row and a probe row, grouped by the side that asks, exact for boxes, words
and tests. Here circles and polygons decide the pairs whose boxes touch, rows are replaced by their owners
(subscriptions, messages), and an owner that was found through several clauses or boxes is kept once. Plain boxes pass
through unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.ragged import offsets_of
from nearcast.columns.shapes import Shapes, region_of_boxes
from nearcast.geometry import Place, Planar, Point, Region, Space, touches
from nearcast.kernels import kernel
from nearcast.kernels.sphere import great_circle

if TYPE_CHECKING:
    from nearcast.columns.rows.clauses import ClauseStore
    from nearcast.columns.rows.messages import MessageRows

__all__ = [
    "UNDECIDED",
    "Side",
    "batch_side",
    "distinct_owners",
    "judge",
    "place_at",
    "place_of_message",
    "resolve",
    "resolve_stored",
    "stored_side",
]

UNDECIDED = 2
_NO_NUMBERS = np.empty(0, np.int32)


def resolve(store: ClauseStore, batch: MessageBatch, found: Matches) -> Matches:
    """Turn the clause rows found for each probe into subscription rows for each message."""
    candidates = len(found.rows)
    if store.shapes or batch.shapes:
        clauses = _clauses(store, lambda owner: store.parts(np.array([owner])))
        probes = batch_side(batch)
        found = _filter(found, _touching(clauses, found.rows, probes, found.messages))
    rows = found.rows if store.parts_are_owners else store.owners[found.rows]
    if store.one_part_each and len(batch.owners) == batch.size:
        return Matches(found.offsets, rows, candidates)
    distinct = distinct_owners(found.offsets[batch.probe_offsets], rows)
    return Matches(distinct.offsets, distinct.rows, candidates)


def resolve_stored(stored: MessageRows, table: SubscriptionTable, found: Matches) -> Matches:
    """Turn the probe rows found for each clause into message rows for each subscription."""
    starts = table.clause_offsets
    if stored.shapes or table.shapes:
        clauses = _clauses(table, lambda owner: np.arange(starts[owner], starts[owner + 1]))
        probes = stored_side(stored)
        found = _filter(found, _touching(clauses, found.messages, probes, found.rows))
    rows = stored.owners[found.rows]
    if stored.one_part_each and len(table.owners) == table.size:
        return Matches(found.offsets, rows)
    return distinct_owners(found.offsets[starts], rows)


class Side(NamedTuple):
    """One side of the pairs: clause rows or probe rows, and their owners."""

    boxes: NDArray[np.float64]
    shapes: Shapes
    owners: NDArray[np.int32]
    space: Space
    rows_of: Callable[[int], NDArray[np.int64]]  # the rows of an owner


def batch_side(batch: MessageBatch) -> Side:
    """Return the probe rows of a batch."""
    starts = batch.probe_offsets
    return Side(
        batch.probes.boxes,
        batch.shapes,
        batch.owners,
        batch.space,
        lambda owner: np.arange(starts[owner], starts[owner + 1]),
    )


def stored_side(stored: MessageRows) -> Side:
    """Return the probe rows of a store of messages."""
    return Side(
        stored.stored.boxes,
        stored.shapes,
        stored.owners,
        stored.space,
        lambda owner: stored.parts(np.array([owner])),
    )


def place_of_message(stored: MessageRows, row: int) -> Place | Region:
    """Return the place of the message that owns a stored probe row."""
    return place_at(stored_side(stored), row)


def _clauses(rows: ClauseStore | SubscriptionTable, rows_of: Callable[[int], NDArray[np.int64]]) -> Side:
    return Side(rows.clauses.boxes, rows.shapes, rows.owners, rows.space, rows_of)


def _filter(found: Matches, kept: NDArray[np.bool_]) -> Matches:
    return Matches(offsets_of(kept)[found.offsets], found.rows[kept])


def distinct_owners(offsets: NDArray[np.int64], rows: NDArray[np.int32]) -> Matches:
    """Return each row of a group once; *rows* is overwritten."""
    distinct = np.zeros_like(offsets)
    filled = _distinct(offsets, rows, distinct[1:])
    return Matches(distinct, rows[:filled])


def _touching(
    clauses: Side, clause_rows: NDArray[Any], probes: Side, probe_rows: NDArray[Any]
) -> NDArray[np.bool_]:
    """Tell which pairs of a clause row and a probe row have shapes that touch."""
    keep = np.empty(len(clause_rows), np.uint8)
    _circles(
        clause_rows,
        probe_rows,
        _numbers(clauses),
        clauses.shapes.circles,
        _numbers(probes),
        probes.boxes,
        isinstance(clauses.space, Planar),
        keep,
    )
    undecided = np.flatnonzero(keep == UNDECIDED)
    if len(undecided):
        keep[undecided] = _polygons(clauses, clause_rows[undecided], probes, probe_rows[undecided])
    touching: NDArray[np.bool_] = keep == 1
    return touching


def _numbers(side: Side) -> NDArray[np.int32]:
    """Return the number of each row's shape, -1 for none; an empty array if no row has one."""
    return side.shapes.index if side.shapes else _NO_NUMBERS


@kernel
def _circles(
    clause_rows: NDArray[Any],
    probe_rows: NDArray[Any],
    clause_shapes: NDArray[np.int32],
    circles: NDArray[np.float64],
    probe_shapes: NDArray[np.int32],
    probe_boxes: NDArray[np.float64],
    planar: bool,
    keep: NDArray[np.uint8],
) -> None:
    """Decide pairs of a point and a circle, and of two boxes (1: they touch, 0: they do not); mark the others by 2."""
    for i in range(clause_rows.size):
        p = probe_rows[i]
        shape = clause_shapes[clause_rows[i]] if clause_shapes.size > 0 else -1
        other = probe_shapes[p] if probe_shapes.size > 0 else -1
        keep[i] = judge(shape, circles, other, probe_boxes, p, planar)


@kernel
def judge(
    shape: int,
    circles: NDArray[np.float64],
    other: int,
    probe_boxes: NDArray[np.float64],
    p: int,
    planar: bool,
) -> Any:
    """Tell whether a region touches probe *p*, if their boxes touch: 1 or 0, or 2 where only objects can decide.

    *shape* and *other* are the numbers of their shapes, -1 for a box.
    """
    if shape < 0 and other < 0:
        return 1
    x, y = probe_boxes[p, 0], probe_boxes[p, 1]
    point = other < 0 and x == probe_boxes[p, 2] and y == probe_boxes[p, 3]
    if not point or np.isnan(circles[shape, 2]):
        return UNDECIDED
    cx, cy, radius = circles[shape, 0], circles[shape, 1], circles[shape, 2]
    if planar:
        distance = math.sqrt((cx - x) * (cx - x) + (cy - y) * (cy - y))
    else:
        distance = great_circle(cx, cy, x, y)
    return 1 if distance <= radius else 0


def _polygons(
    clauses: Side, clause_rows: NDArray[Any], probes: Side, probe_rows: NDArray[Any]
) -> NDArray[np.bool_]:
    """Decide pairs with polygons and areas, with Shapely: points in bulk, the rest one by one."""
    import shapely

    decided = np.empty(len(clause_rows), np.bool_)
    boxes = probes.boxes[probe_rows]
    x, y = boxes[:, 0], boxes[:, 1]
    is_point = (x == boxes[:, 2]) & (y == boxes[:, 3])
    if probes.shapes:
        is_point &= probes.shapes.index[probe_rows] < 0
    # A point on the antimeridian has two longitudes; ``touches`` knows both.
    bulk = is_point & ((np.abs(x) != 180) if not isinstance(clauses.space, Planar) else True)
    if bulk.any():
        polygons = clauses.shapes.polygons[clauses.shapes.index[clause_rows[bulk]]]
        shapely.prepare(polygons)
        decided[bulk] = shapely.intersects_xy(polygons, x[bulk], y[bulk])
    # Few pairs are decided one by one, but among them the same regions and places occur again and again.
    regions: dict[int, Region] = {}
    places: dict[int, Place | Region] = {}
    for i in np.flatnonzero(~bulk):
        clause, probe = int(clause_rows[i]), int(probe_rows[i])
        subscription, message = int(clauses.owners[clause]), int(probes.owners[probe])
        if subscription not in regions:
            regions[subscription] = _region(clauses, clause)
        if message not in places:
            places[message] = place_at(probes, probe)
        decided[i] = touches(regions[subscription], places[message])
    return decided


def _region(clauses: Side, row: int) -> Region:
    """Return the region of the subscription that owns a clause row."""
    shape = clauses.shapes.region(row, clauses.space)
    if shape is not None:
        return shape
    boxes = clauses.boxes[clauses.rows_of(int(clauses.owners[row]))]
    return region_of_boxes(np.unique(boxes, axis=0), clauses.space)


def place_at(probes: Side, row: int) -> Place | Region:
    """Return the place of the message that owns a probe row."""
    shape = probes.shapes.region(row, probes.space)
    if shape is not None:
        return shape
    boxes = probes.boxes[probes.rows_of(int(probes.owners[row]))]
    x, y, x2, y2 = boxes[0].tolist()
    if len(boxes) == 1 and x == x2 and y == y2:
        return Point(x=x, y=y, space=probes.space)
    return region_of_boxes(boxes, probes.space)


@kernel
def _distinct(offsets: NDArray[np.int64], rows: NDArray[np.int32], ends: NDArray[np.int64]) -> int:
    """Keep the first occurrence of each row in a group, in place, without gaps; return how many rows are left.

    The rows of each group go into a hash table of their own, which is at most half full.
    """
    longest = 0
    for group in range(offsets.size - 1):
        longest = max(longest, offsets[group + 1] - offsets[group])
    bits = 1
    while 1 << bits < 2 * longest:
        bits += 1
    table = np.empty(1 << bits, np.int32)
    filled = 0
    for group in range(offsets.size - 1):
        start, stop = offsets[group], offsets[group + 1]
        bits = 1
        while 1 << bits < 2 * (stop - start):
            bits += 1
        mask = (1 << bits) - 1
        for slot in range(mask + 1):
            table[slot] = -1
        for i in range(start, stop):
            row = rows[i]
            slot = int(row) * 0x9E3779B1 >> 8 & mask
            while table[slot] >= 0 and table[slot] != row:
                slot = slot + 1 & mask
            if table[slot] < 0:
                table[slot] = row
                rows[filled] = row
                filled += 1
        ends[group] = filled
    return filled
