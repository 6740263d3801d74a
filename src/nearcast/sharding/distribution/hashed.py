"""``hash``: a subscription goes to one shard by its id, a message to all shards.

This is the hashing-based method (section 7.3.1, Equation 14) of Wang, Zhang, Zhang, Lin and Huang, "Top-k
Spatial-keyword Publish/Subscribe Over Sliding Window" (2017), with a hash of the id instead of the id itself.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.vocabulary import string_buffers
from nearcast.kernels.hashing import hash_integers, hash_strings
from nearcast.sharding.distribution.base import Distribution, Sample
from nearcast.sharding.distribution.routes import Routes

__all__ = ["Hash"]


class Hash(Distribution):
    """Spreads subscriptions evenly, whatever they ask for; every shard matches every message."""

    name: ClassVar[str] = "hash"

    @classmethod
    def fit(cls, sample: Sample, shards: int) -> Self:
        """Return the distribution; there is nothing to fit."""
        return cls(shards)

    def route_clauses(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Routes:
        """Send each row to the shard of its subscription's id."""
        return Routes.single(_hashes(table)[table.owners[rows]] % np.uint64(self.shards))

    def route_probes(self, batch: MessageBatch, rows: NDArray[np.int64]) -> Routes:
        """Send each row to all shards."""
        return Routes.everywhere(len(rows), self.shards)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return no arrays: the number of shards says everything."""
        return {}

    @classmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the distribution."""
        return cls(shards)


def _hashes(table: SubscriptionTable) -> NDArray[np.uint64]:
    """Return a hash of each subscription's id, taken from its bytes or its value: the same in every process."""
    out = np.empty(len(table), np.uint64)
    if table.ids is None:
        hash_integers(np.arange(len(table)), out)
    elif pa.types.is_integer(table.ids.type):
        hash_integers(table.ids.to_numpy().astype(np.int64), out)
    else:
        data, offsets, _ = string_buffers(table.ids)
        hash_strings(data, offsets, out)
    return out
