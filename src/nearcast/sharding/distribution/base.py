"""What a distribution is: for each subscription the shards that store it, for each message the shards that it goes to.

The one rule: a message and a subscription that match have a shard in common. Clause rows and probe rows are routed one
by one, and a pair of them that matches meets; a subscription is then stored whole wherever one of its clauses is, so
that every shard that has both sides decides alike. The first of these shards delivers: no pair is found twice, and
nothing has to be compared between shards.
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
    """What a distribution is fitted to: clause rows of a table, and probe rows of messages."""

    def __init__(self, table: SubscriptionTable, batch: MessageBatch) -> None:
        self.table, self.batch = table, batch
        self.clauses, self.probes = np.arange(len(table.owners)), np.arange(len(batch.owners))

    def part(self, clauses: NDArray[np.int64], probes: NDArray[np.int64]) -> Sample:
        """Return the same with these rows only."""
        some = copy(self)  # with what is known already
        some.clauses, some.probes = clauses, probes
        return some

    @cached_property
    def found(self) -> Matches:
        """What the messages match."""
        return build_index(self.table).match(self.batch)

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """What the message of each probe row costs where it is matched, in nanoseconds."""
        costs: NDArray[np.float64] = config.SHARD_DELIVERY_NS * self.found.counts.astype(np.float64)
        return (config.SHARD_MESSAGE_NS + costs)[self.batch.owners]

    @cached_property
    def deliveries(self) -> NDArray[np.int64]:
        """How many of the messages the subscription of each clause row matches."""
        return np.bincount(self.found.rows, minlength=len(self.table))[self.table.owners]


class Distribution(ABC):
    """Subscriptions and messages to shards 0 to *shards* - 1."""

    name: ClassVar[str]

    def __init__(self, shards: int) -> None:
        self.shards = shards

    def __repr__(self) -> str:
        return f"<{self.name} distribution over {self.shards:,} shard{'s' * (self.shards != 1)}>"

    def subscriptions(self, table: SubscriptionTable) -> Routes:
        """Return the shards that store each subscription."""
        rows = np.arange(len(table.owners))
        return self.route_clauses(table, rows).folded(table.owners, len(table))

    def messages(self, batch: MessageBatch) -> Routes:
        """Return the shards that each message is sent to."""
        rows = np.arange(len(batch.owners))
        return self.route_probes(batch, rows).folded(batch.owners, len(batch))

    @classmethod
    @abstractmethod
    def fitted(cls, sample: Sample, shards: int) -> Self:
        """Return the distribution over so many shards that suits *sample*."""

    def grown(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Self:
        """Return a distribution that also takes these clause rows; those that it was fitted to stay in place."""
        return self

    @abstractmethod
    def route_clauses(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Routes:
        """Return the shards of clause rows."""

    @abstractmethod
    def route_probes(self, batch: MessageBatch, rows: NDArray[np.int64]) -> Routes:
        """Return the shards of probe rows."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what :meth:`restored` takes: flat arrays by name."""

    @classmethod
    @abstractmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the distribution that these arrays came from."""
