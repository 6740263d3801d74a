"""The score of a message for a subscription, the same to the last bit wherever it is computed.

This is Equation 1 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding Window"
(2017). Places are three-dimensional points: (x, y, 0) in the plane, a unit vector on the globe, where the straight line
through the earth gives the great circle. Words are sets of codes, ascending. The weight of a word is its inverse
document frequency, divided by the length of the vector that the words of the message, or of the subscription, form.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.errors import InputError, shown
from nearcast.geometry import Geographic
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.geometry import Space
    from nearcast.ranking.subscribers import SubscriptionTable
    from nearcast.ranking.windows import MessageTable

__all__ = [
    "Metric",
    "common",
    "lengths",
    "metric_of",
    "nearness",
    "places_of",
    "score",
    "space_corners",
    "tail_of",
]


class Metric(NamedTuple):
    """What kernels need to know of a space to measure distances."""

    radius: float  # of the globe; 0 in the plane
    max_distance: float  # where nearness ends
    slack: float  # by how much bounds in single precision are widened


def metric_of(space: Space, max_distance: float | None) -> Metric:
    """Return the metric of a space; by default, *max_distance* is the largest distance in it."""
    if isinstance(space, Geographic):
        radius = extent = config.EARTH_RADIUS_M
        farthest = math.pi * radius
    else:
        radius, extent = 0.0, max(map(abs, (space.xmin, space.ymin, space.xmax, space.ymax)))
        farthest = math.hypot(space.xmax - space.xmin, space.ymax - space.ymin)
    far = farthest if max_distance is None else max_distance
    if isinstance(far, bool) or not isinstance(far, int | float) or not 0 < far < math.inf:
        raise InputError(f"max_distance must be a positive number, not {shown(far)}")
    # The rounding error of a place grows with its coordinates, that of a score does not exceed a fixed one.
    return Metric(radius, float(far), config.RANKING_SLACK + config.RANKING_ROUNDING * extent / far)


def places_of(points: NDArray[np.float64], space: Space) -> NDArray[np.float64]:
    """Return the points (x, y) of a space as three-dimensional places."""
    if isinstance(space, Geographic):
        lon, lat = np.radians(points[:, 0]), np.radians(points[:, 1])
        return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
    return np.concatenate([points, np.zeros((len(points), 1))], axis=1)


def space_corners(space: Space) -> NDArray[np.float64]:
    """Return two places, the lowest and the highest corner of a box that contains all places of a space."""
    if isinstance(space, Geographic):
        return np.array([[-1.0] * 3, [1.0] * 3])
    return np.array([[space.xmin, space.ymin, 0.0], [space.xmax, space.ymax, 0.0]])


@kernel
def nearness(squared: float, metric: Metric) -> Any:
    """Return SSim of Equation 1: 1 at the same place, 0 at the largest distance and beyond."""
    distance = math.sqrt(squared)
    if metric.radius > 0.0:
        distance = 2.0 * metric.radius * math.asin(min(1.0, 0.5 * distance))
    return max(0.0, 1.0 - distance / metric.max_distance)


@kernel
def common(
    subscriptions: NDArray[np.int32],
    start: int,
    stop: int,
    given: NDArray[np.int32],
    at: int,
    end: int,
    idf: NDArray[np.float64],
) -> Any:
    """Return the sum of the squared weights of the common words, and the rarest of them (-1 if there are none).

    Of words that weigh the same, the one with the highest code counts as the rarest. Words get codes when they are
    first seen, so frequent words tend to have low ones.
    """
    total, rarest = 0.0, -1
    while start < stop and at < end:
        one, other = subscriptions[start], given[at]
        if one == other:
            weight = idf[one]
            total += weight * weight
            if rarest < 0 or weight >= idf[rarest]:
                rarest = one
        start += one <= other
        at += other <= one
    return total, rarest


@kernel
def score(
    subscriptions: SubscriptionTable,
    row: int,
    messages: MessageTable,
    m: int,
    idf: NDArray[np.float64],
    metric: Metric,
) -> Any:
    """Return Equation 1 for a subscription and row *m* of the messages, and the rarest common word (-1 for none)."""
    start = subscriptions.starts[row]
    total, rarest = common(
        subscriptions.words,
        start,
        start + subscriptions.counts[row],
        messages.words,
        messages.starts[m],
        messages.stops[m],
        idf,
    )
    x = subscriptions.places[row, 0] - messages.places[m, 0]
    y = subscriptions.places[row, 1] - messages.places[m, 1]
    z = subscriptions.places[row, 2] - messages.places[m, 2]
    alpha = subscriptions.alphas[row]
    words = total / (subscriptions.lengths[row] * messages.lengths[m])
    return alpha * nearness(x * x + y * y + z * z, metric) + (1.0 - alpha) * words, rarest


@kernel
def tail_of(subscriptions: SubscriptionTable, row: int, word: int, idf: NDArray[np.float64]) -> Any:
    """Return the sum of the squared weights of a subscription's words from *word* on, in the order rarest first.

    Divided by the two lengths, it is the most that these words can contribute to TSim. Theorem 1 bounds the same by
    maxwt · wtsum (Equations 3 and 4); this bound is exact if the message has all of them.
    """
    mine, tail = idf[word], 0.0
    for at in range(subscriptions.starts[row], subscriptions.starts[row] + subscriptions.counts[row]):
        other = subscriptions.words[at]
        if idf[other] < mine or (idf[other] == mine and other <= word):
            tail += idf[other] * idf[other]
    return tail


@kernel
def lengths(
    offsets: NDArray[np.int64], codes: NDArray[np.int32], idf: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    """Write the length of the vector that each row of words forms; 1 for a row without words."""
    for row in range(len(offsets) - 1):
        total = 0.0
        for at in range(offsets[row], offsets[row + 1]):
            total += idf[codes[at]] * idf[codes[at]]
        out[row] = math.sqrt(total) if total > 0.0 else 1.0
