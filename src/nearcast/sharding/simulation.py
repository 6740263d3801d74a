"""How a distribution divides data that stands for much more: what the busiest shard has, beyond chance.

In a sample, some shard has the most by chance, because few subscriptions and messages make its load; among a thousand
times as many that levels out, while a crowded place or a frequent word stays. So the busiest shard is found in one half
of the subscriptions and messages, and its load is read from the other half.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.sharding.costs import Costs, routing_ns
from nearcast.sharding.distribution.base import Distribution, Sample
from nearcast.sharding.distribution.routes import delivering_shards

__all__ = ["Simulation", "simulate"]


class Simulation(NamedTuple):
    """The figures of a distribution with one number of shards."""

    distribution: str
    shards: int
    copies: float  # of a subscription
    sent: float  # shards that a message goes to
    stored: float  # the share of all subscriptions that the fullest shard stores
    arriving: float  # the share of all messages that the shard with the most gets
    leaving: float  # the share of all deliveries that the shard with the most makes
    load_ns: float  # processor time of the busiest shard, for each message of the stream
    even_ns: float  # the same if all shards had the same load
    routing_ns: float  # of one message


def simulate(
    distribution: Distribution, sample: Sample, costs: Costs, matches: float, deliveries: float
) -> Simulation:
    """Return the figures of *distribution* on *sample*.

    A message has so many *matches* among all subscriptions, if they are like those of the sample, and so many
    *deliveries*, for which somebody may have another number in mind.
    """
    table, batch, found, shards = sample.table, sample.batch, sample.found, distribution.shards
    stored, sent = distribution.route_subscriptions(table), distribution.route_messages(batch)
    delivering = delivering_shards(stored, sent, found.rows, found.messages)
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(len(table)) < 0.5, rng.random(len(batch)) < 0.5  # one half of each
    mixed = ours[found.rows] != theirs[found.messages]
    halves = np.where(mixed, _NEITHER, ours[found.rows])
    storing = _shares(stored.shards, ours[stored.rows], shards, len(table))
    arriving = _shares(sent.shards, theirs[sent.rows], shards, len(batch))
    leaving = _shares(delivering, halves, shards, len(found.rows))
    loads = (
        costs.message_ns * arriving + (costs.match_ns * matches + costs.delivery_ns * deliveries) * leaving
    )
    return Simulation(
        distribution.name,
        shards,
        len(stored.shards) / max(len(table), 1),
        len(sent.shards) / max(len(batch), 1),
        _most(storing),
        _most(arriving),
        _most(leaving),
        _most(loads),
        float(loads.mean()),
        routing_ns(distribution, batch),
    )


_NEITHER = 2


def _shares(shards: NDArray[np.int32], halves: NDArray[Any], count: int, size: int) -> NDArray[np.float64]:
    """Return what each shard has in each half, as a share of all that there is in the half: [2, shards].

    *size* is what there would be if each were in one shard.
    """
    counts = np.stack([np.bincount(shards[halves == half], minlength=count) for half in (0, 1)])
    in_shards = counts.sum(axis=1, keepdims=True)
    # Each half has its part of what is in shards; together they have len(shards) / size of it.
    shares: NDArray[np.float64] = counts / np.maximum(in_shards, 1) * (len(shards) / max(size, 1))
    return shares


def _most(loads: NDArray[np.float64]) -> float:
    """Return what the busiest shard has: found in one half, read from the other, and never less than the mean."""
    read = [loads[1 - half, loads[half].argmax()] for half in (0, 1)]
    return max(float(np.mean(read)), float(loads.mean()))
