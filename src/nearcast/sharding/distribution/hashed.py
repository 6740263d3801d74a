"""``hash``: each subscription to one shard by its id, each message to all of them."""

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
    """Subscriptions spread evenly, whatever they ask for; every message is matched by every shard."""

    name: ClassVar[str] = "hash"

    @classmethod
    def fitted(cls, sample: Sample, shards: int) -> Self:
        """There is nothing to fit."""
        return cls(shards)

    def route_clauses(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Routes:
        """Each row by the id of its subscription."""
        return Routes.single(_hashes(table)[table.owners[rows]] % np.uint64(self.shards))

    def route_probes(self, batch: MessageBatch, rows: NDArray[np.int64]) -> Routes:
        """Each row everywhere."""
        return Routes.everywhere(len(rows), self.shards)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """There are none."""
        return {}

    @classmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return it."""
        return cls(shards)


def _hashes(table: SubscriptionTable) -> NDArray[np.uint64]:
    """Return a hash of each subscription's id: of its bytes or its value, so that it is the same everywhere."""
    out = np.empty(len(table), np.uint64)
    if table.ids is None:
        hash_integers(np.arange(len(table)), out)
    elif pa.types.is_integer(table.ids.type):
        hash_integers(table.ids.to_numpy().astype(np.int64), out)
    else:
        data, offsets, _ = string_buffers(table.ids)
        hash_strings(data, offsets, out)
    return out
