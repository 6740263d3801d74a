"""``location``: a k-d tree cuts the space into one cell per shard, such that the messages of all cells cost the same.

A subscription is stored in every cell that its boxes touch, and a message is sent to every cell that it touches: one,
if it is at a point. A cut divides the cost of messages in proportion to the number of shards on its two sides; of the
two axes, the one is taken on which fewer subscriptions cross the cut.

This follows SpatialPartition, Algorithm 3 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword
Publish/Subscribe Over Sliding Window" (2017), which also balances costs by the cuts of a k-d tree. It departs in three
ways. The cost of a cell is the time that its messages and deliveries take, not the number of subscriptions times the
probability of a message (Equation 15). The axes need not take turns, and any number of shards is possible, not only
powers of two. And subscriptions are regions, so some are stored in several cells, but a message need not go to all.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.kernels import kernel
from nearcast.sharding.distribution.base import Distribution, Sample
from nearcast.sharding.distribution.routes import Routes

__all__ = ["Location"]


class Location(Distribution):
    """The cells of a k-d tree.

    Node i cuts axis ``axes[i]`` at ``values[i]``. Coordinates below the cut belong to child ``children[i, 0]``, those
    at or above it to ``children[i, 1]``. A negative child is the shard ``~child``; node 0 is the root.
    """

    name: ClassVar[str] = "location"

    def __init__(
        self,
        shards: int,
        axes: NDArray[np.int32],
        values: NDArray[np.float64],
        children: NDArray[np.int32],
    ) -> None:
        super().__init__(shards)
        self._axes, self._values, self._children = axes, values, children

    @classmethod
    def fit(cls, sample: Sample, shards: int) -> Self:
        """Cut the space by the costs of the sampled messages and the boxes of the clauses (Algorithm 3)."""
        boxes = sample.table.clauses.boxes[sample.clauses]
        probes = sample.batch.probes.boxes[sample.probes]
        points = (probes[:, :2] + probes[:, 2:]) / 2
        axes, values = np.zeros(shards - 1, np.int32), np.zeros(shards - 1)
        children = np.zeros((shards - 1, 2), np.int32)
        # Of each subtree: its parent and side, its points with their costs, its boxes, its first shard, its shards.
        waiting = [(-1, 0, points, sample.costs[sample.probes], boxes, 0, shards)]
        used = 0
        while waiting:
            parent, side, points, costs, boxes, first, count = waiting.pop()
            if count == 1:
                if parent >= 0:
                    children[parent, side] = ~first
                continue
            node = used
            used += 1
            if parent >= 0:
                children[parent, side] = node
            axis, value = _cut(points, costs, boxes, (count // 2) / count)
            axes[node], values[node] = axis, value
            below = points[:, axis] < value
            for side, inside, touching, start, part in (
                (0, below, boxes[:, axis] < value, first, count // 2),
                (1, ~below, boxes[:, axis + 2] >= value, first + count // 2, count - count // 2),
            ):
                waiting.append((node, side, points[inside], costs[inside], boxes[touching], start, part))
        return cls(shards, axes, values, children)

    def route_clauses(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Routes:
        """Send each row to the cells that its box touches."""
        return self.cells(table.clauses.boxes[rows])

    def route_probes(self, batch: MessageBatch, rows: NDArray[np.int64]) -> Routes:
        """Send each row to the cells that its box touches."""
        return self.cells(batch.probes.boxes[rows])

    def cells(self, boxes: NDArray[np.float64]) -> Routes:
        """Return the cells that each box touches."""
        offsets = np.zeros(len(boxes) + 1, np.int64)
        tree = (self._axes, self._values, self._children)
        _find_cells(*tree, boxes, offsets, np.empty(0, np.int32), True)
        np.cumsum(offsets, out=offsets)
        shards = np.empty(offsets[-1], np.int32)
        _find_cells(*tree, boxes, offsets, shards, False)
        return Routes(offsets, shards)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the tree."""
        return {"axes": self._axes, "values": self._values, "children": self._children}

    @classmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the distribution that the arrays came from."""
        return cls(shards, arrays["axes"], arrays["values"], arrays["children"])


def _cut(
    points: NDArray[np.float64], costs: NDArray[np.float64], boxes: NDArray[np.float64], share: float
) -> tuple[int, float]:
    """Return the axis and the value of a cut with about *share* of the cost below it."""
    best = (np.inf, np.inf, 0, 0.0)
    for axis in range(2):
        if not len(points):
            break
        order = np.argsort(points[:, axis], kind="stable")
        along, summed = points[order, axis], np.cumsum(costs[order])
        at = int(np.searchsorted(summed, share * summed[-1], side="right"))
        # A cut is the coordinate of a point, which then lies above it, as all points with that coordinate do. Try the
        # coordinate where the share is reached, and the next one.
        choices = {float(along[min(at, len(along) - 1)])}
        choices |= set(along[np.searchsorted(along, list(choices), side="right") % len(along)].tolist())
        for value in choices:
            below = summed[k - 1] if (k := int(np.searchsorted(along, value))) else 0.0
            crossing = float(((boxes[:, axis] < value) & (boxes[:, axis + 2] >= value)).sum())
            uneven = abs(below / summed[-1] - share)
            # Cuts that miss the share by little are equally good; among those, the one with the fewest copies wins.
            best = min(best, (max(uneven, config.SHARD_EVEN), crossing, axis, value))
    return best[2], best[3]


@kernel
def _find_cells(
    axes: NDArray[np.int32],
    values: NDArray[np.float64],
    children: NDArray[np.int32],
    boxes: NDArray[np.float64],
    offsets: NDArray[np.int64],
    shards: NDArray[np.int32],
    counting: bool,
) -> None:
    """Count the cells that each box touches into offsets[1:], or write them, ascending, from offsets[:-1] on."""
    stack = np.empty(axes.size + 2, np.int64)
    for i in range(boxes.shape[0]):
        at = np.int64(0) if counting else offsets[i]
        stack[0] = 0 if axes.size else -1
        top = 1
        while top > 0:
            top -= 1
            node = stack[top]
            if node < 0:
                if not counting:
                    shards[at] = ~node
                at += 1
                continue
            axis, value = axes[node], values[node]
            if boxes[i, axis + 2] >= value:
                stack[top] = children[node, 1]
                top += 1
            if boxes[i, axis] < value:
                stack[top] = children[node, 0]
                top += 1
        if counting:
            offsets[i + 1] = at
