"""Figures of a distribution before anything runs: copies, messages sent, and how evenly the work is divided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.sharding.distribution.base import Distribution, Sample
from nearcast.sharding.distribution.routes import delivering_shards

__all__ = ["Figures", "measure"]


@dataclass(frozen=True)
class Figures:
    """The figures of one distribution on one set of subscriptions and messages.

    *replication* is the mean number of shards that store a subscription, *sent* the mean number that a message goes to.
    The load of a shard is the cost of the messages sent to it and of the deliveries that it makes. *skew* is the load
    of the busiest shard divided by the mean, *storage_skew* the same for stored subscriptions. *bottleneck_ns* is the
    load of the busiest shard per message of the whole stream: the stream cannot be faster.
    """

    distribution: str
    shards: int
    replication: float
    sent: float
    skew: float
    storage_skew: float
    bottleneck_ns: float
    loads: NDArray[np.float64]  # of each shard, in nanoseconds per message of the stream
    stored: NDArray[np.int64]  # how many subscriptions each shard stores

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
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


def measure(distribution: Distribution, sample: Sample) -> Figures:
    """Return the figures of *distribution* on all subscriptions and messages of *sample*."""
    shards, table, batch, found = distribution.shards, sample.table, sample.batch, sample.found
    stored, sent = distribution.route_subscriptions(table), distribution.route_messages(batch)
    delivering = delivering_shards(stored, sent, found.rows, found.messages)
    if (delivering < 0).any():
        raise AssertionError(f"{distribution!r} does not bring a message to a subscription that it matches")
    messages = np.bincount(sent.shards, minlength=shards)
    deliveries = sample.weight * np.bincount(delivering, minlength=shards)
    loads = config.SHARD_MESSAGE_NS * messages + config.SHARD_DELIVERY_NS * deliveries
    loads = loads / max(len(batch), 1)
    subscriptions = np.bincount(stored.shards, minlength=shards)
    return Figures(
        distribution.name,
        shards,
        len(stored.shards) / max(len(table), 1),
        len(sent.shards) / max(len(batch), 1),
        _skew(loads),
        _skew(subscriptions),
        float(loads.max()),
        loads,
        subscriptions,
    )


def _skew(values: NDArray[Any]) -> float:
    mean = float(values.mean())
    return float(values.max()) / mean if mean else 1.0
