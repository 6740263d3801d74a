"""Buffers of the rivals: kmax (Yi et al., [41] in the paper) and Skyband (Mouratidis et al., [29])."""

from __future__ import annotations

from nearcast import config
from nearcast.ranking.policies import Policy

__all__ = ["KMax", "Skyband"]


class KMax(Policy):
    """The best k' messages, k <= k' <= kmax: filled to kmax, one less with each that leaves, no dominance."""

    name = "kmax"

    def __init__(self, times: float = config.RANKING_KMAX) -> None:
        self._times = times  # kmax, in units of k

    def wanted(self, k: int) -> int:
        """Return kmax."""
        return max(k, round(self._times * k))

    def limit(self, k: int) -> int:
        """Return kmax."""
        return self.wanted(k)

    def dominators(self, k: int) -> int:
        """Return more than there can be."""
        return 2**31 - 1


class Skyband(Policy):
    """The k-skyband of all messages that reach a share of the k-th score at the last re-evaluation."""

    name = "skyband"

    def __init__(self, share: float = config.RANKING_SKYBAND) -> None:
        self._share = share

    def wanted(self, k: int) -> int:
        """Return how many are asked for at first; twice as many where all of them reach the threshold."""
        return 4 * k

    def limit(self, k: int) -> int:
        """Return more than there can be."""
        return 2**31 - 2

    def room(self, k: int) -> int:
        """Return room for as many as are asked for at first."""
        return 4 * k

    def ratio(self) -> float:
        """Return the share of the k-th score that is the threshold."""
        return self._share
