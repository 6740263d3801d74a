"""Buffers of the rivals: kmax (Yi et al., [41] in the paper) and Skyband (Mouratidis et al., [29])."""

from __future__ import annotations

from dataclasses import dataclass

from nearcast import config
from nearcast.ranking.policies import Policy

__all__ = ["KMax", "Skyband"]


@dataclass(frozen=True)
class KMax(Policy):
    """The best k' messages, k <= k' <= kmax: filled to kmax, one less with each that leaves, no dominance."""

    name = "kmax"
    times: float = config.RANKING_KMAX  # kmax, in units of k

    def wanted(self, k: int) -> int:
        """Return kmax."""
        return max(k, round(self.times * k))

    def limit(self, k: int) -> int:
        """Return kmax."""
        return self.wanted(k)

    def dominators(self, k: int) -> int:
        """Return more than there can be."""
        return 2**31 - 1


@dataclass(frozen=True)
class Skyband(Policy):
    """The k-skyband of the messages that reach a share of the k-th score at the last re-evaluation.

    Where many do (a subscription to whatever is near), θ is the score of the best of these at which there are enough:
    in the middle of a city a twentieth of the score is a thousand messages.
    """

    name = "skyband"
    share: float = config.RANKING_SKYBAND

    def wanted(self, k: int) -> int:
        """Return how many are enough."""
        return round(config.RANKING_SKYBAND_WANTED * k)

    def limit(self, k: int) -> int:
        """Return more than there can be."""
        return 2**31 - 2

    def room(self, k: int) -> int:
        """Return room for as many."""
        return self.wanted(k)

    def ratio(self) -> float:
        """Return the share of the k-th score that is the threshold."""
        return self.share
