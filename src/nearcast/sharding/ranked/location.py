"""``location``: the cells of a k-d tree (section 7.3.2): neighbours share a shard, which makes its bounds tighter.

A message goes to all shards: one that is far away may still be among the best, if its words fit.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import MessageBatch
from nearcast.sharding.distribution.location import Location
from nearcast.sharding.distribution.routes import Routes
from nearcast.sharding.ranked.base import RankedDistribution, RankedSample, Wishes

__all__ = ["Cells"]


class Cells(RankedDistribution):
    """Spreads subscriptions by place."""

    name: ClassVar[str] = "location"

    def __init__(self, tree: Location) -> None:
        super().__init__(tree.shards)
        self._tree = tree

    @classmethod
    def fit(cls, sample: RankedSample, shards: int) -> Self:
        """Cut the space in two again and again (SpatialPartition, Algorithm 3).

        The axes take turns. A cut leaves the costs of both sides, for each shard there, as equal as it can; the cost is
        the number of subscriptions times the share of messages (Equation 15). Any number of shards is possible, not
        only powers of two.
        """
        boxes = sample.messages.probes.boxes[sample.messages.probe_offsets[:-1]]
        arriving = (boxes[:, :2] + boxes[:, 2:]) / 2
        axes, values = np.zeros(shards - 1, np.int32), np.zeros(shards - 1)
        children = np.zeros((shards - 1, 2), np.int32)
        # Of each subtree: its parent and side, its depth, its subscriptions and messages, its first shard, its shards.
        waiting = [(-1, 0, 0, sample.wishes.points, arriving, 0, shards)]
        used = 0
        while waiting:
            parent, side, depth, points, messages, first, count = waiting.pop()
            if count == 1:
                if parent >= 0:
                    children[parent, side] = ~first
                continue
            node, axis, less = used, depth % 2, count // 2
            used += 1
            if parent >= 0:
                children[parent, side] = node
            value = _cut(points[:, axis], messages[:, axis], less, count - less)
            axes[node], values[node] = axis, value
            below, early = points[:, axis] < value, messages[:, axis] < value
            waiting.append((node, 0, depth + 1, points[below], messages[early], first, less))
            waiting.append((node, 1, depth + 1, points[~below], messages[~early], first + less, count - less))
        return cls(Location(shards, axes, values, children))

    def route_wishes(self, wishes: Wishes, idf: NDArray[np.float64]) -> Routes:
        """Send each subscription to the cell of its place."""
        return self._tree.cells(np.hstack([wishes.points, wishes.points]))

    def route_messages(self, batch: MessageBatch) -> Routes:
        """Send each message to all shards."""
        return Routes.everywhere(len(batch), self.shards)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the tree."""
        return self._tree.arrays()

    @classmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the distribution that the arrays came from."""
        return cls(Location.restored(shards, arrays))


def _cut(points: NDArray[np.float64], messages: NDArray[np.float64], less: int, more: int) -> float:
    """Return the coordinate of a subscription at which to cut: *less* shards lie below it, *more* at or above it."""
    if not len(points):
        return 0.0
    choices = np.unique(points)
    subscriptions = np.searchsorted(np.sort(points), choices)  # how many lie below
    arriving = np.searchsorted(np.sort(messages), choices)
    below = subscriptions * arriving / less
    above = (len(points) - subscriptions) * (len(messages) - arriving) / more
    # Where no message was seen all costs are 0; then subscriptions alone decide.
    uneven = np.abs(subscriptions / less - (len(points) - subscriptions) / more)
    return float(choices[np.lexsort((uneven, np.abs(below - above)))[0]])
