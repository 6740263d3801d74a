"""The regions of subscriptions as columns of their own: taken from a table, and exchanged for others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.clause_rows import ClauseLists, Placement, cross
from nearcast.columns.clauses import distinct_conjunctions, take_clauses
from nearcast.columns.ragged import offsets_of
from nearcast.columns.shapes import Shapes, region_of_boxes
from nearcast.columns.subscriptions import SubscriptionTable
from nearcast.geometry import EVERYWHERE, Region, Space

__all__ = ["circles_of", "radii_of", "region_at", "regions_of", "relocated", "single_boxes", "take_regions"]


def regions_of(table: SubscriptionTable) -> Placement:
    """Return the region of each subscription. One without clauses has none: it can be anywhere."""
    if len(table.owners) == table.size and not (table.owners[1:] == table.owners[:-1]).any():
        return Placement(np.arange(table.size + 1), table.clauses.boxes, table.shapes)
    first = _first_of_each_box(table)
    counts = np.bincount(table.owners[first], minlength=table.size)
    boxes, shapes = table.clauses.boxes[first], table.shapes.take(first)
    if counts.all():
        return Placement(offsets_of(counts), boxes, shapes)
    everywhere = np.array(EVERYWHERE.boxes())
    missing = np.flatnonzero(counts == 0)
    at = offsets_of(counts)[missing]
    counts[missing] = 1
    boxes = np.insert(boxes, at, everywhere, axis=0)
    if shapes:
        shapes = Shapes(np.insert(shapes.index, at, -1), shapes.circles, shapes.polygons)
    return Placement(offsets_of(counts), boxes, shapes)


def _first_of_each_box(table: SubscriptionTable) -> NDArray[np.int64]:
    """Return the first clause row of each subscription with each of its boxes, in the order of the rows."""
    keys = np.column_stack([table.owners.astype(np.float64), table.clauses.boxes])
    return np.sort(np.unique(keys, axis=0, return_index=True)[1])


def single_boxes(table: SubscriptionTable) -> NDArray[np.bool_]:
    """Tell which subscriptions have clauses, all of them with the same box."""
    boxes, owners = table.clauses.boxes, table.owners
    single = np.zeros(table.size, np.bool_)
    single[owners] = True
    same = owners[1:] == owners[:-1]
    if same.any():
        single[owners[1:][same & (boxes[1:] != boxes[:-1]).any(axis=1)]] = False
    return single


def take_regions(placed: Placement, rows: NDArray[np.int64]) -> Placement:
    """Return the regions in the given rows."""
    counts = np.diff(placed.offsets)[rows]
    offsets = offsets_of(counts)
    picks = np.arange(offsets[-1]) + np.repeat(placed.offsets[rows] - offsets[:-1], counts)
    return Placement(offsets, placed.boxes[picks], placed.shapes.take(picks))


def circles_of(table: SubscriptionTable) -> NDArray[np.float64]:
    """Return x, y and radius of each subscription's circle; NaN where the region is none."""
    circles = np.full((table.size, 3), np.nan)
    if table.shapes:
        numbers = table.shapes.index
        shaped = np.flatnonzero(numbers >= 0)
        circles[table.owners[shaped]] = table.shapes.circles[numbers[shaped]]
    return circles


def radii_of(table: SubscriptionTable) -> NDArray[np.float64]:
    """Return the radius of each subscription's circle; NaN where the region is none."""
    return circles_of(table)[:, 2]


def region_at(placed: Placement, row: int, space: Space) -> Region:
    """Return the region in a row as an object."""
    first, last = placed.offsets[row], placed.offsets[row + 1]
    return placed.shapes.region(int(first), space) or region_of_boxes(placed.boxes[first:last], space)


def relocated(table: SubscriptionTable, placed: Placement) -> SubscriptionTable:
    """Return the subscriptions of *table* with other regions: each conjunction with each box of the new region."""
    clauses, owners, shapes = table.clauses, table.owners, placed.shapes
    if len(placed.boxes) == table.size and single_boxes(table)[owners].all():
        alone = len(owners) == table.size and not (owners[1:] == owners[:-1]).any()
        if not alone:
            shapes = shapes.take(owners)
        boxes = placed.boxes if alone else placed.boxes[owners]
        return SubscriptionTable(
            clauses._replace(boxes=boxes), owners, table.size, shapes, table.ids, table.coding
        )
    starts = table.clause_offsets
    rows = [np.arange(starts[row], starts[row + 1]) for row in range(table.size)]
    picks = [distinct_conjunctions(clauses, own) if len(own) > 1 else own for own in rows]
    counts = np.array([len(own) for own in picks], np.int64)
    chosen = np.concatenate([np.empty(0, np.int64), *picks])
    bare = take_clauses(clauses, chosen)._replace(boxes=np.empty((0, 4)))
    lists = ClauseLists(offsets_of(counts), bare)
    crossed, owners, shapes = cross(lists, np.arange(table.size), placed)
    return SubscriptionTable(crossed, owners, table.size, shapes, table.ids, table.coding)
