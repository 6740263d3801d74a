"""``hash``: a subscription goes to one shard by its id, a message to all shards (section 7.3.1, Equation 14)."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import MessageBatch
from nearcast.sharding.distribution.routes import Routes
from nearcast.sharding.ranked.base import RankedDistribution, RankedSample, Wishes

__all__ = ["Hashed"]


class Hashed(RankedDistribution):
    """Spreads subscriptions evenly, whatever they ask for."""

    name: ClassVar[str] = "hash"

    @classmethod
    def fit(cls, sample: RankedSample, shards: int) -> Self:
        """Return the distribution; there is nothing to fit."""
        return cls(shards)

    def route_wishes(self, wishes: Wishes, idf: NDArray[np.float64]) -> Routes:
        """Send each subscription to the shard of its id."""
        return Routes.single((wishes.keys % np.uint64(self.shards)).astype(np.int64))

    def route_messages(self, batch: MessageBatch) -> Routes:
        """Send each message to all shards."""
        return Routes.everywhere(len(batch), self.shards)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return no arrays: the number of shards says everything."""
        return {}

    @classmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the distribution."""
        return cls(shards)
