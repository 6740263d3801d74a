"""The buffers that the paper compares with (section 6.1): kmax of Yi et al. [41] and Skyband of Mouratidis et al. [29].

The paper is Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding Window" (2017).
"""

from __future__ import annotations

from dataclasses import dataclass

from nearcast import config
from nearcast.ranking.policies import Policy

__all__ = ["KMax", "Skyband"]


@dataclass(frozen=True)
class KMax(Policy):
    """The best k' messages, k <= k' <= kmax: filled up to kmax, one less with each that leaves, without dominance."""

    name = "kmax"
    times: float = config.RANKING_KMAX  # kmax in units of k

    def wanted(self, k: int) -> int:
        """Return kmax."""
        return max(k, round(self.times * k))

    def limit(self, k: int) -> int:
        """Return kmax."""
        return self.wanted(k)

    def dominators(self, k: int) -> int:
        """Return a number that is never reached."""
        return 2**31 - 1


@dataclass(frozen=True)
class Skyband(Policy):
    """The k-skyband of the messages that reach a *share* of the k-th score of the last re-evaluation.

    Where more than :meth:`wanted` messages reach it, θ is the score of the last wanted one instead: for a subscription
    in the middle of a city that asks for whatever is near, a thousand messages lie within a twentieth of the score.
    """

    name = "skyband"
    share: float = config.RANKING_SKYBAND

    def wanted(self, k: int) -> int:
        """Return the most messages that a re-evaluation asks for."""
        return round(config.RANKING_SKYBAND_WANTED * k)

    def limit(self, k: int) -> int:
        """Return a number that is never reached."""
        return 2**31 - 2

    def room(self, k: int) -> int:
        """Return room for the wanted messages."""
        return self.wanted(k)

    def ratio(self) -> float:
        """Return θ as a share of the k-th score."""
        return self.share
