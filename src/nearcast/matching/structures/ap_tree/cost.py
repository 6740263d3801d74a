"""The cost model (section 3.3.1), and the partitions that it rates: by keywords (3.3.2) and by space (3.3.3).

The numbers are those of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware
Publish/Subscribe" (2015). By equation 1 a message is expected to verify Σ w(B)·p(B) clauses: a cut or cell B holds w(B)
clauses, and the message visits it with probability p(B). But the visit itself waits for memory a few times, as long as
it takes to verify many clauses. So here a part costs (w(B) + v)·p(B), where v is ``config.AP_TREE_VISIT``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel

__all__ = ["Likelihood", "evenly", "heuristic_cuts", "optimal_cuts", "partition_cost", "share", "strips"]

_PRIOR = config.AP_TREE_PRIOR
_TRIES = config.AP_TREE_BORDERS


class Likelihood(NamedTuple):
    """How likely messages are to have words and to be at places: what p(B) is computed from (section 3.3.1)."""

    words: NDArray[np.float32]  # by rank: how likely a message is to have the word, p(w)
    unseen: float  # the same for a word whose rank is beyond these
    places: NDArray[np.float32]  # [m, 2], a sample; when it is empty, p(B) is the share of the area


@kernel
def sums(values: NDArray[np.float64]) -> Any:
    """Return the sums of the first 0, 1, … values."""
    out = np.zeros(values.size + 1)
    for i in range(values.size):
        out[i + 1] = out[i] + values[i]
    return out


@kernel
def partition_cost(
    weights: NDArray[np.float64], hits: NDArray[np.float64], firsts: NDArray[np.int64], visit: float
) -> Any:
    """Return Σ (w(B) + visit)·p(B) over cuts that begin at the words *firsts* (equations 1 and 3, plus visits)."""
    cost = 0.0
    for i in range(firsts.size):
        last = firsts[i + 1] if i + 1 < firsts.size else weights.size
        weight = hit = 0.0
        for k in range(firsts[i], last):
            weight += weights[k]
            hit += hits[k]
        cost += (weight + visit) * hit
    return cost


@kernel
def optimal_cuts(weights: NDArray[np.float64], hits: NDArray[np.float64], cuts: int) -> Any:
    """Return where the cuts of least cost begin (Algorithm 2, by equation 2).

    The paper tries all places for the first cut; here it is the last cut, which comes to the same. The cost of a
    cut is a product of two sums over it (equation 3), which satisfies the quadrangle inequality: the best
    beginning of the last cut never moves back when words are added at the end. So each row of the table is filled
    by divide and conquer, in O(f·|V|·log |V|) steps in all instead of the paper's O(f·|V|²).
    """
    n = weights.size
    weight, hit = sums(weights), sums(hits)
    best = weight * hit  # lines 1 and 2: the cost of the first j words in one cut (equation 3)
    next_best = np.empty(n + 1)
    begins = np.zeros((cuts + 1, n + 1), np.int32)  # of the last of c cuts over the first j words
    stack = np.empty((128, 4), np.int64)
    for c in range(2, cuts + 1):  # lines 3 to 6: the cost of the first j words in c cuts (equation 2)
        stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = c, n, c - 1, n - 1
        top = 1
        while top > 0:
            top -= 1
            low, high, first, last = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
            if low > high:
                continue
            j = (low + high) >> 1
            least, begin = np.inf, first
            for i in range(first, min(j - 1, last) + 1):
                cost = best[i] + (weight[j] - weight[i]) * (hit[j] - hit[i])
                if cost < least:
                    least, begin = cost, i
            next_best[j] = least
            begins[c, j] = begin
            stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = low, j - 1, first, begin
            top += 1
            stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = j + 1, high, begin, last
            top += 1
        best, next_best = next_best, best
    # Line 7: follow the best beginnings back from the last cut.
    firsts = np.zeros(cuts, np.int64)
    end = n
    for c in range(cuts, 1, -1):
        end = begins[c, end]
        firsts[c - 1] = end
    return firsts


@kernel
def evenly(weights: NDArray[np.float64], parts: int) -> Any:
    """Return where parts of about the same weight begin. No part is empty: there must be at least as many weights."""
    firsts = np.zeros(parts, np.int64)
    left = weights.sum()
    at = 0
    for part in range(parts - 1):
        firsts[part] = at
        target, weight = left / (parts - part), 0.0
        end = weights.size - (parts - part - 1)  # each part behind needs an entry
        while at < end and (at == firsts[part] or weight + 0.5 * weights[at] <= target):
            weight += weights[at]
            at += 1
        left -= weight
    firsts[parts - 1] = at
    return firsts


@kernel
def heuristic_cuts(weights: NDArray[np.float64], hits: NDArray[np.float64], cuts: int) -> Any:
    """Return where cuts begin that have even weights at first and are then improved border by border (Algorithm 3)."""
    weight, hit = sums(weights), sums(hits)
    firsts = evenly(weights, cuts)  # line 1
    for i in range(1, cuts):  # lines 2 to 5: move the border between two neighbouring cuts to its best place
        left = firsts[i - 1]
        right = firsts[i + 1] if i + 1 < cuts else weights.size
        least = np.inf
        for border in range(left + 1, right):
            cost = (weight[border] - weight[left]) * (hit[border] - hit[left]) + (
                weight[right] - weight[border]
            ) * (hit[right] - hit[border])
            if cost < least:
                least = cost
                firsts[i] = border
    return firsts


@kernel
def share(places: NDArray[np.float32], low: float, high: float, from_: float, to: float) -> Any:
    """Return how likely a message between *low* and *high* is to lie in the strip [from_, to).

    The estimate rests on the sampled *places* in the node (ascending) and, as if they were a few messages more, on
    the strip's share of the extent.
    """
    seen = np.searchsorted(places, np.float32(to)) - np.searchsorted(places, np.float32(from_))
    extent = (min(to, high) - max(from_, low)) / (high - low) if high > low else 1.0
    return (seen + _PRIOR * max(extent, 0.0)) / (places.size + _PRIOR)


@kernel
def _strip_cost(
    starts: NDArray[np.float32],
    ends: NDArray[np.float32],
    places: NDArray[np.float32],
    low: float,
    high: float,
    from_: float,
    to: float,
) -> Any:
    """Return w·p of the strip [from_, to): how many boxes reach into it, times its share of the messages."""
    weight = np.searchsorted(starts, np.float32(to)) - np.searchsorted(ends, np.float32(from_))
    return weight * share(places, low, high, from_, to)


@kernel
def strips(
    starts: NDArray[np.float32],
    ends: NDArray[np.float32],
    centres: NDArray[np.float32],
    places: NDArray[np.float32],
    low: float,
    high: float,
    count: int,
) -> Any:
    """Return the inner borders of at most *count* strips between *low* and *high* (section 3.3.3, one dimension).

    At first the borders divide the centres of boxes evenly. Then each moves to the best place between its neighbours,
    among the places where a box begins or has just ended; where these are many, only some of them are tried, at even
    distances. All arrays are ascending.
    """
    borders = np.empty(count - 1, np.float32)
    for i in range(count - 1):
        borders[i] = centres[(i + 1) * centres.size // count]
    for i in range(count - 1):
        left = low if i == 0 else borders[i - 1]
        right = high if i == count - 2 else borders[i + 1]
        best = borders[i]
        least = _strip_cost(starts, ends, places, low, high, left, best) + _strip_cost(
            starts, ends, places, low, high, best, right
        )
        for side in range(2):
            values = starts if side == 0 else ends
            first = np.searchsorted(values, np.float32(left))
            last = np.searchsorted(values, np.float32(right))
            step = max(int(last - first) // _TRIES, 1)
            for k in range(first, last, step):
                border = values[k] if side == 0 else np.nextafter(values[k], np.float32(np.inf))
                cost = _strip_cost(starts, ends, places, low, high, left, border) + _strip_cost(
                    starts, ends, places, low, high, border, right
                )
                if cost < least:
                    least, best = cost, border
        borders[i] = best
    kept = 0
    for i in range(count - 1):
        if borders[i] > low and borders[i] <= high and (kept == 0 or borders[i] > borders[kept - 1]):
            borders[kept] = borders[i]
            kept += 1
    return borders[:kept]
