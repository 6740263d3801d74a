"""``location``: a k-d tree cuts the space into one cell a shard, so that the cells' messages cost about the same.

A subscription is stored in every cell that its boxes touch, a message is sent to every cell that it touches: one, for
a point. A cut is made where the cost of messages is divided in proportion to the shards on its two sides, on the axis
where fewer subscriptions cross it.
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

    Node i cuts axis ``axes[i]`` at ``values[i]``: what is below goes to child ``children[i, 0]``, the cut itself and
    what is above to ``children[i, 1]``. A negative child is a shard, ``~child``; node 0 is the root.
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
    def fitted(cls, sample: Sample, shards: int) -> Self:
        """Cut the space by the sampled messages and the boxes of the clauses."""
        boxes = sample.table.clauses.boxes[sample.clauses]
        probes = sample.batch.probes.boxes[sample.probes]
        points = (probes[:, :2] + probes[:, 2:]) / 2
        axes, values = np.zeros(shards - 1, np.int32), np.zeros(shards - 1)
        children = np.zeros((shards - 1, 2), np.int32)
        # Where a subtree hangs (node, side), its points and boxes, its first shard and how many it has.
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
            for k, there, near, at, many in (
                (0, below, boxes[:, axis] < value, first, count // 2),
                (1, ~below, boxes[:, axis + 2] >= value, first + count // 2, count - count // 2),
            ):
                waiting.append((node, k, points[there], costs[there], boxes[near], at, many))
        return cls(shards, axes, values, children)

    def route_clauses(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Routes:
        """Each row to the cells that its box touches."""
        return self._touched(table.clauses.boxes[rows])

    def route_probes(self, batch: MessageBatch, rows: NDArray[np.int64]) -> Routes:
        """Each row to the cells that its box touches."""
        return self._touched(batch.probes.boxes[rows])

    def _touched(self, boxes: NDArray[np.float64]) -> Routes:
        offsets = np.zeros(len(boxes) + 1, np.int64)
        tree = (self._axes, self._values, self._children)
        _cells(*tree, boxes, offsets, np.empty(0, np.int32), True)
        np.cumsum(offsets, out=offsets)
        shards = np.empty(offsets[-1], np.int32)
        _cells(*tree, boxes, offsets, shards, False)
        return Routes(offsets, shards)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the tree."""
        return {"axes": self._axes, "values": self._values, "children": self._children}

    @classmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the tree again."""
        return cls(shards, arrays["axes"], arrays["values"], arrays["children"])


def _cut(
    points: NDArray[np.float64], costs: NDArray[np.float64], boxes: NDArray[np.float64], share: float
) -> tuple[int, float]:
    """Return the axis and the value of a cut that has *share* of the cost below it."""
    best = (np.inf, np.inf, 0, 0.0)
    for axis in range(2):
        if not len(points):
            break
        order = np.argsort(points[:, axis], kind="stable")
        along, heaped = points[order, axis], np.cumsum(costs[order])
        at = int(np.searchsorted(heaped, share * heaped[-1], side="right"))
        # The cut is a coordinate of a point, which goes above; of equal ones all do.
        choices = {float(along[min(at, len(along) - 1)])}
        choices |= set(along[np.searchsorted(along, list(choices), side="right") % len(along)].tolist())
        for value in choices:
            below = heaped[k - 1] if (k := int(np.searchsorted(along, value))) else 0.0
            crossing = float(((boxes[:, axis] < value) & (boxes[:, axis + 2] >= value)).sum())
            uneven = abs(below / heaped[-1] - share)
            # Evenness within some percent is as good as any; then the fewer copies the better.
            best = min(best, (max(uneven, config.SHARD_EVEN), crossing, axis, value))
    return best[2], best[3]


@kernel
def _cells(
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
