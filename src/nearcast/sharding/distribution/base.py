"""What every distribution does: name the shards that store each subscription, and those that get each message.

There is one rule: a message and a subscription that match have a shard in common. Clause rows and probe rows are routed
one by one, so that a clause and a probe that match meet in a shard. A subscription is stored whole wherever one of its
clauses is, so every shard that has both the message and the subscription reaches the same decision. The first of these
shards delivers: no pair is delivered twice, and shards need not compare their answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.matching import build_index
from nearcast.sharding.distribution.routes import Routes

__all__ = ["Distribution", "Sample"]


class Sample:
    """Data that a distribution is fitted to: clause rows of a table, and probe rows of messages.

    If the table is a sample of the subscriptions, each stands for *weight* of them.
    """

    def __init__(self, table: SubscriptionTable, batch: MessageBatch, weight: float = 1.0) -> None:
        self.table, self.batch, self.weight = table, batch, weight
        self.clauses, self.probes = np.arange(len(table.owners)), np.arange(len(batch.owners))

    def part(self, clauses: NDArray[np.int64], probes: NDArray[np.int64]) -> Sample:
        """Return the sample of these rows only."""
        part = copy(self)  # keeps the cached properties, which are about all rows
        part.clauses, part.probes = clauses, probes
        return part

    @cached_property
    def found(self) -> Matches:
        """The matches of all messages."""
        return build_index(self.table).match(self.batch)

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """The cost of matching the message of each probe row in one shard, in nanoseconds."""
        costs = config.SHARD_DELIVERY_NS * self.weight * self.found.counts.astype(np.float64)
        return (config.SHARD_MESSAGE_NS + costs)[self.batch.owners]

    @cached_property
    def deliveries(self) -> NDArray[np.float64]:
        """For each clause row, how many messages its subscription matches, times its weight."""
        counts = np.bincount(self.found.rows, minlength=len(self.table)).astype(np.float64)
        return self.weight * counts[self.table.owners]


class Distribution(ABC):
    """A rule that sends subscriptions and messages to the shards 0 to *shards* - 1."""

    name: ClassVar[str]

    def __init__(self, shards: int) -> None:
        self.shards = shards

    def __repr__(self) -> str:
        return f"<{self.name} distribution over {self.shards:,} shard{'s' * (self.shards != 1)}>"

    def route_subscriptions(self, table: SubscriptionTable) -> Routes:
        """Return the shards that store each subscription."""
        rows = np.arange(len(table.owners))
        return self.route_clauses(table, rows).folded(table.owners, len(table))

    def route_messages(self, batch: MessageBatch) -> Routes:
        """Return the shards that each message is sent to."""
        rows = np.arange(len(batch.owners))
        return self.route_probes(batch, rows).folded(batch.owners, len(batch))

    @classmethod
    @abstractmethod
    def fit(cls, sample: Sample, shards: int) -> Self:
        """Return the distribution over *shards* shards that suits *sample*."""

    def grown(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Self:
        """Return a distribution that can route these clause rows too; it routes all others as before.

        Where a clause is sent depends on the clause and on what the distribution was fitted to, on nothing else. So
        distributions that grew apart, in any order and by any codes of new words, agree on what both can route.
        """
        return self

    def added(self, since: Self) -> NDArray[np.int64]:
        """Return what this distribution can route and *since*, from which it grew, cannot: for :meth:`joined`."""
        return np.empty(0, np.int64)

    def joined(self, added: NDArray[np.int64]) -> Self:
        """Return a distribution that can also route what others, which grew from this one, have added."""
        return self

    @abstractmethod
    def route_clauses(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Routes:
        """Return the shards of clause rows."""

    @abstractmethod
    def route_probes(self, batch: MessageBatch, rows: NDArray[np.int64]) -> Routes:
        """Return the shards of probe rows."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays, by name, that :meth:`restored` takes."""

    @classmethod
    @abstractmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the distribution that these arrays came from."""
