"""What comes into reach and what goes out of it when the regions of subscriptions change.

A search finds the messages that have what a subscription asks for and that may be in one of its regions, before or
after, but not in both: with a search of the structure's own (:class:`~nearcast.matching.structure.Moves`), or by asking
for the strips of the one box that the other does not cover. Then each pair is decided, exactly.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches, SubscriptionTable
from nearcast.columns.clause_rows import Placement
from nearcast.columns.clauses import take_clauses
from nearcast.columns.ragged import offsets_of
from nearcast.columns.regions import region_at
from nearcast.columns.rows.messages import MessageRows
from nearcast.geometry import Planar, Space, touches
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, boxes_touch
from nearcast.matching.refine import UNDECIDED, distinct_owners, judge, place_of_message
from nearcast.matching.structure import Moves

__all__ = ["apart", "boxes_in_circles", "decide", "interleaved", "moved_clauses", "strips_of"]

_NOWHERE = (np.inf, np.inf, -np.inf, -np.inf)
_ROW_BITS = 32


def moved_clauses(table: SubscriptionTable, before: Placement, after: Placement) -> Moves:
    """Return the clauses of subscriptions whose regions, before and after, have one box each."""
    owners, clauses = table.owners, table.clauses
    old = before.boxes[owners]
    kept_before = _boxes_inside(before, table.space)[owners]
    kept_after = _boxes_inside(after, table.space)[owners]
    kept = np.hstack(
        [
            np.maximum(kept_before[:, :2], kept_after[:, :2]),
            np.minimum(kept_before[:, 2:], kept_after[:, 2:]),
        ]
    )
    around = np.hstack(
        [
            np.minimum(old[:, :2], clauses.boxes[:, :2]),
            np.maximum(old[:, 2:], clauses.boxes[:, 2:]),
        ]
    )
    return Moves(clauses._replace(boxes=around), old, clauses.boxes, kept)


def _boxes_inside(placed: Placement, space: Space) -> NDArray[np.float64]:
    """Return a box inside each region: the box itself, one in a circle, or none in a polygon."""
    if not placed.shapes:
        return placed.boxes
    boxes = placed.boxes.copy()
    shaped = np.flatnonzero(placed.shapes.index >= 0)
    boxes[shaped] = boxes_in_circles(placed.shapes.circles[placed.shapes.index[shaped]], space)
    return boxes


def boxes_in_circles(circles: NDArray[np.float64], space: Space) -> NDArray[np.float64]:
    """Return a box inside each circle (x, y, radius); one that contains nothing where the circle is large, or NaN.

    All points of a box are within reach if its corners are. On the sphere, that holds for a box that keeps clear of the
    poles, because the distance along a meridian falls and then rises.
    """
    x, y, radius = circles.T
    boxes = np.tile(_NOWHERE, (len(circles), 1))
    if isinstance(space, Planar):
        width = height = radius * (math.sqrt(0.5) * _SAFE)
        fine = ~np.isnan(radius)
    else:
        reach = radius / config.EARTH_RADIUS_M
        height = np.degrees(reach) * (math.sqrt(0.5) * _SAFE)
        # Of the two parallels, the one nearer the equator is the wider one, and allows fewer degrees.
        nearer = np.radians(np.maximum(np.abs(y) - height, 0.0))
        with np.errstate(invalid="ignore", divide="ignore"):
            rest = np.sin(reach / 2) ** 2 - np.sin(np.radians(height) / 2) ** 2
            sine = np.sqrt(np.maximum(rest, 0.0) / (np.cos(np.radians(y)) * np.cos(nearer)))
            width = np.degrees(2 * np.arcsin(np.minimum(sine, 1.0))) * _SAFE
            fine = (np.degrees(reach) < _SMALL_DEG) & (np.abs(y) + height < _POLAR_DEG)
            fine &= np.abs(x) + width < 180
    boxes[fine] = np.column_stack([x - width, y - height, x + width, y + height])[fine]
    return boxes


_SAFE = 1 - 1e-6  # a box inside a circle is smaller by this factor, so that rounding takes no point out
_SMALL_DEG, _POLAR_DEG = 10.0, 80.0


def strips_of(moves: Moves, owners: NDArray[np.int32]) -> tuple[Clauses, NDArray[np.int32]]:
    """Return clauses for the parts of the boxes before and after that are not in both, and whose they are.

    Beyond the kept box, a box has four strips at most: to the left and to the right of it, below and above. If nothing
    is kept, it is taken whole.
    """
    boxes, picks = [], []
    for outer in (moves.before, moves.after):
        xmin, ymin, xmax, ymax = outer.T
        low, high = np.maximum(moves.kept[:, :2], outer[:, :2]), np.minimum(moves.kept[:, 2:], outer[:, 2:])
        (left, lower), (right, upper) = low.T, high.T
        whole = (low > high).any(axis=1)
        for strip, present in (
            ((xmin, ymin, xmax, ymax), whole),
            ((xmin, ymin, left, ymax), ~whole & (left > xmin)),
            ((right, ymin, xmax, ymax), ~whole & (right < xmax)),
            ((left, ymin, right, lower), ~whole & (lower > ymin)),
            ((left, upper, right, ymax), ~whole & (upper < ymax)),
        ):
            rows = np.flatnonzero(present)
            boxes.append(np.column_stack(strip)[rows])
            picks.append(rows)
    rows = np.concatenate(picks)
    order = np.argsort(rows, kind="stable")
    strips = take_clauses(moves.clauses, rows[order])._replace(boxes=np.concatenate(boxes)[order])
    return strips, owners[rows[order]]


# --- Decisions -----------------------------------------------------------------------------------------------------


def decide(
    stored: MessageRows, before: Placement, after: Placement, whose: NDArray[np.int32], found: Matches
) -> tuple[Matches, Matches]:
    """Return the messages that came into reach of each subscription, and those that went out of it.

    *found* are probe rows that have the words and values of a question; the question of group i is one of subscription
    ``whose[i]``, and groups are in the order of the subscriptions.
    """
    size = len(after.offsets) - 1
    subs, probes = whose[found.messages].astype(np.int32), found.rows
    told, holds = np.empty(len(subs), np.uint8), np.empty(len(subs), np.uint8)
    planar = isinstance(stored.space, Planar)
    numbers = stored.shapes.index if stored.shapes else _NO_NUMBERS
    for region, verdicts in ((before, told), (after, holds)):
        shapes = region.shapes.index if region.shapes else _NO_NUMBERS
        circles = region.shapes.circles
        _judge_all(
            region.boxes, shapes, circles, subs, stored.stored.boxes, numbers, probes, planar, verdicts
        )
    owners = stored.owners[probes]
    undecided = (told == UNDECIDED) | (holds == UNDECIDED)
    if not stored.one_part_each:  # any of its boxes may touch
        undecided |= stored.chains[1][probes] >= 0 if len(stored.chains[1]) else False
        undecided |= stored.chains[0][owners] != probes if len(stored.chains[0]) else False
    for i in np.flatnonzero(undecided).tolist():
        place = place_of_message(stored, int(probes[i]))
        for region, verdicts in ((before, told), (after, holds)):
            verdicts[i] = touches(region_at(region, int(subs[i]), stored.space), place)
    single = stored.one_part_each and not (whose[1:] == whose[:-1]).any()
    return tuple(
        _grouped(subs[chosen], owners[chosen], size, single) for chosen in (holds > told, told > holds)
    )  # type: ignore[return-value]


_NO_NUMBERS = np.empty(0, np.int32)


@kernel
def _judge_all(
    boxes: NDArray[np.float64],
    shapes: NDArray[np.int32],
    circles: NDArray[np.float64],
    subs: NDArray[np.int32],
    probe_boxes: NDArray[np.float64],
    probe_shapes: NDArray[np.int32],
    probes: NDArray[np.int32],
    planar: bool,
    verdicts: NDArray[np.uint8],
) -> None:
    """Decide whether messages lie in regions; see :func:`~nearcast.matching.refine.judge`."""
    for i in range(subs.size):
        s, p = subs[i], probes[i]
        shape = shapes[s] if shapes.size > 0 else -1
        other = probe_shapes[p] if probe_shapes.size > 0 else -1
        verdicts[i] = 0
        if boxes_touch(boxes, s, probe_boxes, p):
            verdicts[i] = judge(shape, circles, other, probe_boxes, p, planar)


def _grouped(subs: NDArray[np.int32], owners: NDArray[np.int32], size: int, single: bool) -> Matches:
    """Return pairs of a subscription and a message, in the order of the subscriptions, as matches."""
    offsets = offsets_of(np.bincount(subs, minlength=size))
    return Matches(offsets, owners) if single else distinct_owners(offsets, owners)


def apart(old: Matches, new: Matches) -> tuple[Matches, Matches]:
    """Return what is in *new* and not in *old*, and the reverse."""
    before, after = _keys(old), _keys(new)
    came, went = np.isin(after, before, invert=True), np.isin(before, after, invert=True)
    return (
        Matches(offsets_of(np.bincount(new.messages[came], minlength=len(new))), new.rows[came]),
        Matches(offsets_of(np.bincount(old.messages[went], minlength=len(old))), old.rows[went]),
    )


def _keys(found: Matches) -> NDArray[np.int64]:
    return (found.messages << _ROW_BITS) | found.rows


def interleaved(
    first: NDArray[np.bool_], one: tuple[Matches, Matches], other: tuple[Matches, Matches]
) -> tuple[Matches, Matches]:
    """Return the answers of *one* for the subscriptions that are marked, and those of *other* for the rest."""
    order = np.argsort(np.concatenate([np.flatnonzero(first), np.flatnonzero(~first)]))
    both = [
        Matches(np.concatenate([a.offsets, a.offsets[-1] + b.offsets[1:]]), np.concatenate([a.rows, b.rows]))
        for a, b in zip(one, other)
    ]
    return tuple(_in_order(found, order) for found in both)  # type: ignore[return-value]


def _in_order(found: Matches, order: NDArray[np.int64]) -> Matches:
    """Return the groups of *found* in another order."""
    counts = found.counts[order]
    offsets = offsets_of(counts)
    picks = np.arange(offsets[-1]) + np.repeat(found.offsets[order] - offsets[:-1], counts)
    return Matches(offsets, found.rows[picks])
