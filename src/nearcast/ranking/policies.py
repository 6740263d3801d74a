"""How much a buffer holds: when the window has moved on, fewer messages mean more re-evaluations (section 6.2)."""

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
    """What a buffer for k results takes in, and what it lets go."""

    name: ClassVar[str]

    @abstractmethod
    def wanted(self, k: int) -> int:
        """Return how many of the best messages a re-evaluation asks for."""

    @abstractmethod
    def limit(self, k: int) -> int:
        """Return how many entries a buffer may have; with more, only the :meth:`wanted` best stay."""

    def room(self, k: int) -> int:
        """Return how many entries a buffer has room for at first."""
        return self.limit(k) + 1

    def dominators(self, k: int) -> int:
        """Return how many messages must dominate another one so that it goes."""
        return k

    def ratio(self) -> float:
        """Return which share of the k-th score a re-evaluation takes as the threshold; 0: what is wanted decides."""
        return 0.0


@dataclass(frozen=True)
class CostBased(Policy):
    """cSkyband: the size that costs least by Equation 13."""

    name = "cost-based"

    def wanted(self, k: int) -> int:
        """Return the size that costs least."""
        return best_size(k)

    def limit(self, k: int) -> int:
        """Return half of k more, so that a buffer is cut now and then, not at every message."""
        return best_size(k) + max(config.RANKING_SPARE, k // 2)


def cost(size: int, k: int) -> float:
    """Return Equation 13 for a buffer whose threshold *size* messages of the window reach, times the window's size.

    Equation 9, with the price of touching a buffer at all beside that of its entries, and Equations 10 and 12 for the
    steps of a random walk from *size* down to k - 1, reflected at twice the *size*.
    """
    maintenance = size * (config.RANKING_TOUCH + k * (1 + math.log(max(1.0, size / k))))
    above = size - k + 1
    steps = 2 * above * size + above * (above + 1)
    return maintenance + config.RANKING_REEVALUATION * size / steps


@lru_cache(maxsize=1024)
def best_size(k: int) -> int:
    """Return how many messages should reach the threshold: the minimum of :func:`cost`."""
    return min(range(k, 4 * k + 64), key=lambda size: cost(size, k))
