"""The domain of each attribute, as far as subscriptions show it; a value becomes a share of it, from 0 to 1.

The map keeps order and moves values outside the domain to its edges, so a value inside an interval stays inside. An
index that partitions shares may therefore suggest too many answers, but never too few.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.matching.rivals.counting import PLACES, Predicates

__all__ = ["Domains", "domains_of", "share"]


class Domains(NamedTuple):
    """Where the domain of each attribute begins, and the factor that turns a distance from there into a share."""

    lows: NDArray[np.float64]
    scales: NDArray[np.float64]  # 0 if nothing is known about the attribute


def domains_of(predicates: Predicates) -> Domains:
    """Return the domains of x, y and all attributes of tests: from the least to the greatest finite end."""
    count = max(int(predicates.attributes.max(initial=-1)) + 1, PLACES)
    lows, highs = np.full(count, np.inf), np.full(count, -np.inf)
    _bounds(predicates, lows, highs)
    known = lows < highs
    halves = np.where(known, highs / 2 - lows / 2, 1.0)  # halves, because the whole extent may overflow
    return Domains(np.where(known, lows, 0.0), np.where(known, 0.5 / np.maximum(halves, 1e-300), 0.0))


@kernel
def _bounds(predicates: Predicates, lows: NDArray[np.float64], highs: NDArray[np.float64]) -> None:
    _, attributes, begins, ends = predicates
    for i in range(attributes.size):
        a = attributes[i]
        for end in (begins[i], ends[i]):
            if np.isfinite(end):
                lows[a] = min(lows[a], end)
                highs[a] = max(highs[a], end)


@kernel
def share(value: float, low: float, scale: float) -> float:
    """Return the share of a domain that lies below a value."""
    if scale == 0.0:
        return 0.0
    return min(max((value - low) * scale, 0.0), 1.0)
