"""Figures of a distribution for top-k before anything runs: copies, messages sent, and how the work is divided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.ragged import ragged_take
from nearcast.sharding.distribution.routes import Routes
from nearcast.sharding.ranked.base import RankedDistribution, RankedSample
from nearcast.sharding.ranked.words import loose_prefix

__all__ = ["RankedFigures", "measure"]


@dataclass(frozen=True)
class RankedFigures:
    """The figures of one distribution on one set of subscriptions and messages.

    *replication* is the mean number of shards that store a subscription (Table 5 of the paper), *sent* the mean number
    of shards that a message goes to: its communication cost. *work* is what the shards do for a message: the
    subscriptions there that are found by one of its words, summed over the words and the shards. *skew* is the work of
    the busiest shard divided by the mean.
    """

    distribution: str
    shards: int
    replication: float
    sent: float
    work: float
    skew: float
    stored: NDArray[np.int64]  # how many subscriptions each shard stores
    loads: NDArray[np.float64]  # the work of each shard for a message of the stream

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "distribution": self.distribution,
            "shards": self.shards,
            "replication": round(self.replication, 4),
            "messages_sent_per_message": round(self.sent, 4),
            "work_per_message": round(self.work, 2),
            "load_skew": round(self.skew, 4),
        }


def measure(distribution: RankedDistribution, sample: RankedSample) -> RankedFigures:
    """Return the figures of *distribution* on all subscriptions and messages of *sample*."""
    wishes, messages = sample.wishes, sample.messages
    stored = distribution.route_wishes(wishes, sample.idf)
    sent = distribution.route_messages(messages)
    loads = _loads(distribution, stored, sample) / max(len(messages), 1)
    mean = float(loads.mean())
    return RankedFigures(
        distribution.name,
        distribution.shards,
        len(stored.shards) / max(wishes.size, 1),
        len(sent.shards) / max(len(messages), 1),
        float(loads.sum()),
        float(loads.max()) / mean if mean else 1.0,
        np.bincount(stored.shards, minlength=distribution.shards),
        loads,
    )


def _loads(distribution: RankedDistribution, stored: Routes, sample: RankedSample) -> NDArray[np.float64]:
    """Return how many subscriptions each shard finds by a word of a message.

    Where a message goes everywhere, a subscription is found by the words of its loose prefix (section 5.1). Where words
    are divided, it is found by those that belong to the shard. Either way, all messages that have the word are there.
    """
    wishes, messages = sample.wishes, sample.messages
    every = wishes.offsets, wishes.words
    found_by = every if distribution.divides_words else loose_prefix(wishes, sample.idf)
    offsets, words = ragged_take(*found_by, stored.rows)
    shards = np.repeat(stored.shards, np.diff(offsets))
    found = distribution.finds(shards, words)
    probes = messages.probes
    theirs = ragged_take(probes.keyword_offsets, probes.keywords, messages.probe_offsets[:-1])[1]
    heard = np.bincount(theirs, minlength=int(words.max(initial=-1)) + 1)
    weights = heard[words[found]].astype(np.float64)
    return np.asarray(np.bincount(shards[found], weights, minlength=distribution.shards), np.float64)
