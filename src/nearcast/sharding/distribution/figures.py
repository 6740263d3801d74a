"""What a distribution does to data, before anything runs: copies, messages sent, and how evenly the work falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.sharding.distribution.base import Distribution, Sample
from nearcast.sharding.distribution.routes import delivering_shards

__all__ = ["Figures", "measured"]


@dataclass(frozen=True)
class Figures:
    """The figures of one distribution on one set of subscriptions and messages.

    *replication* is how often a subscription is stored, *sent* to how many shards a message goes. The load of a shard
    is what the messages sent to it and the deliveries that it makes cost; *skew* is that of the busiest shard over the
    mean, and *storage_skew* the same of the subscriptions stored. *bottleneck_ns* is the load of the busiest shard for
    a message of the whole stream: the stream cannot be faster.
    """

    distribution: str
    shards: int
    replication: float
    sent: float
    skew: float
    storage_skew: float
    bottleneck_ns: float
    loads: NDArray[np.float64]  # of each shard, in nanoseconds for a message of the stream
    stored: NDArray[np.int64]  # subscriptions of each shard

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "distribution": self.distribution,
            "shards": self.shards,
            "replication": round(self.replication, 4),
            "messages_sent_per_message": round(self.sent, 4),
            "load_skew": round(self.skew, 4),
            "storage_skew": round(self.storage_skew, 4),
            "bottleneck_ns_per_message": round(self.bottleneck_ns, 1),
            "loads_ns_per_message": [round(load, 1) for load in self.loads.tolist()],
            "stored": self.stored.tolist(),
        }


def measured(distribution: Distribution, sample: Sample) -> Figures:
    """Return the figures of *distribution* on all subscriptions and messages of *sample*."""
    shards, table, batch, found = distribution.shards, sample.table, sample.batch, sample.found
    stored, sent = distribution.subscriptions(table), distribution.messages(batch)
    delivering = delivering_shards(stored, sent, found.rows, found.messages)
    if (delivering < 0).any():
        raise AssertionError(f"{distribution!r} sends a message past a subscription that it matches")
    messages = np.bincount(sent.shards, minlength=shards)
    loads = config.SHARD_MESSAGE_NS * messages + config.SHARD_DELIVERY_NS * np.bincount(
        delivering, minlength=shards
    )
    loads = loads / max(len(batch), 1)
    held = np.bincount(stored.shards, minlength=shards)
    return Figures(
        distribution.name,
        shards,
        len(stored.shards) / max(len(table), 1),
        len(sent.shards) / max(len(batch), 1),
        _skew(loads),
        _skew(held),
        float(loads.max()),
        loads,
        held,
    )


def _skew(values: NDArray[Any]) -> float:
    mean = float(values.mean())
    return float(values.max()) / mean if mean else 1.0
