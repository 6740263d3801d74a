"""The widths of the cells of a layer, by the numbers of the paper's equations and lemmas.

The paper is Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for Spatiotemporal-aware
Pub/Sub Systems" (2021), section 5. The domain of values is normalised to [0, 1]. Level i of a layer has ``counts[i]``
cells of one width that overlap their neighbours; it is meant for intervals no wider than ``targets[i]``. Distributions
are given as points that stand for equal shares: samples of measured ones, and quantiles of the uniform law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Law",
    "even_targets",
    "intercepted",
    "least_width",
    "level_counts",
    "mean_stabbed",
    "most_width",
    "optimal_widths",
    "overlap",
    "success_rate",
]

_POINTS = 1024  # points that stand for a distribution
_STEPS = 256  # steps between the least and the greatest useful width, by default
_HALVINGS = 60


@dataclass(frozen=True)
class Law:
    """The distributions of a layer: widths and low ends of intervals, values of messages (P_w, P_l and P_e)."""

    widths: NDArray[np.float64]
    lows: NDArray[np.float64] | None = None  # of the same intervals; None: uniform where there is room
    values: NDArray[np.float64] | None = None  # None: uniform


def level_counts(levels: int) -> NDArray[np.int64]:
    """Return the paper's number of cells of each level, c_i = L - i + 1."""
    return np.arange(levels, 0, -1)


def even_targets(counts: NDArray[np.int64], widths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return t_i such that all cells hold equally many intervals (equation 1); the last is 1.

    Lemma 2 says t_i = i / L for c_i = L - i + 1 and widths that become rarer in proportion.
    """
    targets: NDArray[np.float64] = np.quantile(widths, np.cumsum(counts) / counts.sum())
    targets[-1] = 1.0
    return targets


def overlap(count: int, width: float) -> float:
    """Return o_i, the width that two neighbouring cells share (Lemma 1)."""
    return (count * width - 1) / (count - 1)


def least_width(target: float) -> float:
    """Return W_min: a cell narrower than its target holds none of the widest intervals (Lemma 3)."""
    return target


def most_width(target: float, count: int) -> float:
    """Return W_max: at this width each interval of the target width finds a cell (Lemma 3, o_i = t_i)."""
    return (target * (count - 1) + 1) / count


def mean_stabbed(count: int, width: Any, values: NDArray[np.float64] | None) -> Any:
    """Return ρ_i, the mean number of cells of a level that a value lies in (equations 2 and 3), for each width."""
    if values is None or count == 1:
        return count * width
    width = np.asarray(width)[..., None]
    starts = (1 - width) / (count - 1) * np.arange(count)
    ordered = np.sort(values)
    inside = np.searchsorted(ordered, starts + width, "right") - np.searchsorted(ordered, starts, "left")
    return inside.sum(axis=-1) / max(len(ordered), 1)


def success_rate(
    count: int, width: Any, widths: NDArray[np.float64], lows: NDArray[np.float64] | None
) -> Any:
    """Return r_i(x), the chance that each interval finds a cell of the level (equations 4 and 5, Lemma 4)."""
    if count == 1:
        return np.ones(len(widths))
    if lows is None:
        room = np.maximum(width - widths, 0.0)
        return np.minimum(count * room / np.maximum(1.0 - widths, 1e-12), 1.0)
    step = (1 - width) / (count - 1)
    nearest = np.minimum(np.floor(lows / np.maximum(step, 1e-300)), count - 1)
    return ((lows >= nearest * step) & (lows + widths <= nearest * step + width)).astype(np.float64)


def intercepted(count: int, width: Any, low: float, high: float, law: Law) -> Any:
    """Return γ_i, the share of all intervals that are wider than *low*, at most *high*, and find a cell.

    This is equation 6. For an array of widths, a share is returned for each.
    """
    meant = (law.widths > low) & (law.widths <= high)
    lows = None if law.lows is None else law.lows[meant]
    found = success_rate(count, np.asarray(width)[..., None], law.widths[meant], lows)
    return found.sum(axis=-1) / max(len(law.widths), 1)


def optimal_widths(
    counts: NDArray[np.int64],
    targets: NDArray[np.float64],
    threshold: float,
    law: Law,
    steps: int = _STEPS,
) -> NDArray[np.float64]:
    """Return the w_i with which the levels intercept most intervals while a value stabs *threshold* (η) cells.

    This is equation 7. Theorem 1 sets the derivatives of equation 9 to zero. Here each level tries widths between W_min
    and W_max, and for a given price λ of a stabbed cell it takes the one with the largest γ_i - λ ρ_i. The price is
    raised until Σ ρ_i = η. The last level is one cell as wide as the domain. If the threshold is too low for any
    widths, the narrowest cells are returned; if it is high enough, the widest.
    """
    levels = len(counts)
    tried: list[NDArray[np.float64]] = []
    gains: list[NDArray[np.float64]] = []
    costs: list[NDArray[np.float64]] = []
    for i in range(levels - 1):
        count, target = int(counts[i]), float(targets[i])
        below = float(targets[i - 1]) if i else -1.0
        ways = np.linspace(least_width(target), most_width(target, count), steps + 1)
        tried.append(ways)
        gain = intercepted(count, ways, below, target, law)
        # A wider cell never intercepts fewer intervals, though samples may suggest it.
        gains.append(np.maximum.accumulate(gain))
        costs.append(mean_stabbed(count, ways, law.values))

    def chosen(price: float) -> list[int]:
        return [int(np.argmax(gain - price * cost)) for gain, cost in zip(gains, costs)]

    def stabbed(picks: list[int]) -> float:
        return 1.0 + sum(float(cost[pick]) for cost, pick in zip(costs, picks))

    low, high = 0.0, 1.0
    picks = [steps] * (levels - 1)
    if stabbed(picks) > threshold:
        while stabbed(chosen(high)) > threshold and high < 1e9:
            high *= 4
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if stabbed(chosen(middle)) <= threshold else (middle, high)
        picks = chosen(high)
    return np.append([float(ways[pick]) for ways, pick in zip(tried, picks)], 1.0)
