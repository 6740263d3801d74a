"""How much a buffer holds: the fewer messages, the more often it must be re-evaluated.

Section 6.2 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding Window" (2017).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from nearcast import config

__all__ = ["CostBased", "Policy", "best_size", "cost"]


@dataclass(frozen=True)
class Policy(ABC):
    """The limits of a buffer for k results."""

    name: ClassVar[str]

    @abstractmethod
    def wanted(self, k: int) -> int:
        """Return how many messages, the best ones, a re-evaluation asks for."""

    @abstractmethod
    def limit(self, k: int) -> int:
        """Return how many entries a buffer may have; a larger one is cut down to the :meth:`wanted` best."""

    def room(self, k: int) -> int:
        """Return how many entries a new buffer has room for."""
        return self.limit(k) + 1

    def dominators(self, k: int) -> int:
        """Return how many messages must dominate another one for it to be dropped."""
        return k

    def ratio(self) -> float:
        """Return θ of a re-evaluation as a share of the k-th score; 0 if θ is the score of the last wanted message."""
        return 0.0


@dataclass(frozen=True)
class CostBased(Policy):
    """cSkyband, the cost-based k-skyband: the buffer with the least cost by Equation 13.

    The paper minimises over θ, by the distribution of the scores of each subscription. Here the variable is how many
    messages of the window score at least θ (prob(θ) · |W|), so that one minimum serves all subscriptions with the same
    k: a re-evaluation asks for this many of the best messages, and the score of the last one is θ.
    """

    name = "cost-based"

    def wanted(self, k: int) -> int:
        """Return the size with the least cost."""
        return best_size(k)

    def limit(self, k: int) -> int:
        """Return k / 2 more, so that a buffer is cut now and then instead of at every message."""
        return best_size(k) + max(config.RANKING_SPARE, k // 2)


def cost(size: int, k: int) -> float:
    """Return C(s) of Equation 13, times |W|, for a buffer whose θ is reached by *size* messages of the window.

    Maintenance is Equation 9 plus a fixed price for touching a buffer at all. Re-evaluation is Equation 10 with Z'(s)
    of Equation 12: the expected steps of a random walk from *size* down to k - 1, reflected at twice *size*.
    """
    maintenance = size * (config.RANKING_TOUCH + k * (1 + math.log(max(1.0, size / k))))
    above = size - k + 1
    steps = 2 * above * size + above * (above + 1)
    return maintenance + config.RANKING_REEVALUATION * size / steps


@lru_cache(maxsize=1024)
def best_size(k: int) -> int:
    """Return how many messages should reach θ: the *size* with the least :func:`cost`."""
    return min(range(k, 4 * k + 64), key=lambda size: cost(size, k))
