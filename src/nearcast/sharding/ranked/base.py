"""What every distribution for top-k does: name the shards of each subscription, and those of each message."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import MessageBatch
from nearcast.columns.ragged import ragged_take
from nearcast.sharding.distribution.routes import Routes

__all__ = ["RankedDistribution", "RankedSample", "Wishes"]


class Wishes(NamedTuple):
    """What a distribution looks at in top-k subscriptions, by row."""

    keys: NDArray[np.uint64]  # a hash of the id
    points: NDArray[np.float64]  # [rows, 2]: x, y (longitude, latitude)
    offsets: NDArray[np.int64]  # the words of row i are words[offsets[i]:offsets[i + 1]]
    words: NDArray[np.int32]
    alphas: NDArray[np.float64]
    #: A message that scores less changes nothing; -inf while there are too few results.
    lowest: NDArray[np.float64]

    @property
    def size(self) -> int:
        """The number of subscriptions."""
        return len(self.keys)

    def take(self, rows: NDArray[np.int64]) -> Wishes:
        """Return some of the rows."""
        words = ragged_take(self.offsets, self.words, rows)
        return Wishes(self.keys[rows], self.points[rows], *words, self.alphas[rows], self.lowest[rows])

    def with_words(self, offsets: NDArray[np.int64], words: NDArray[np.int32]) -> Wishes:
        """Return the same subscriptions with other words."""
        return self._replace(offsets=offsets, words=words)


class RankedSample(NamedTuple):
    """Data that a distribution is fitted to: subscriptions, messages, and the weight of each word by code."""

    wishes: Wishes
    messages: MessageBatch
    idf: NDArray[np.float64]

    def part(self, wishes: NDArray[np.int64], messages: NDArray[np.int64]) -> RankedSample:
        """Return the sample of these rows only."""
        return RankedSample(self.wishes.take(wishes), self.messages.take(messages), self.idf)


class RankedDistribution(ABC):
    """A rule that sends top-k subscriptions and messages to the shards 0 to *shards* - 1."""

    name: ClassVar[str]
    divides_words: ClassVar[bool] = False  # a shard finds its subscriptions only by words that belong to it

    def __init__(self, shards: int) -> None:
        self.shards = shards

    def __repr__(self) -> str:
        return f"<{self.name} distribution over {self.shards:,} shard{'s' * (self.shards != 1)}>"

    @classmethod
    @abstractmethod
    def fit(cls, sample: RankedSample, shards: int) -> Self:
        """Return the distribution over *shards* shards that suits *sample*."""

    def grown(self, wishes: Wishes, idf: NDArray[np.float64]) -> Self:
        """Return a distribution that can route these subscriptions, too; it routes all others as before.

        Where a subscription is sent depends on it and on what the distribution was fitted to, so distributions that
        grew apart agree on what both can route.
        """
        return self

    @abstractmethod
    def route_wishes(self, wishes: Wishes, idf: NDArray[np.float64]) -> Routes:
        """Return the shards of each subscription."""

    @abstractmethod
    def route_messages(self, batch: MessageBatch) -> Routes:
        """Return the shards that each message is sent to."""

    def finds(self, shards: NDArray[np.int32], words: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Tell for pairs of a shard and a word whether the shard finds subscriptions by it, or leaves it to others."""
        return np.ones(len(words), np.bool_)

    def kept(
        self, wishes: Wishes, idf: NDArray[np.float64], stored: Routes
    ) -> tuple[Routes, NDArray[np.int64]]:
        """Return the shards of subscriptions that are *stored* there now, and the rows that need more than these.

        Shards that are not needed any more are given up when everything is routed anew (:meth:`route_wishes`), as in
        section 7.3.4: to move a subscription costs more than to keep it.
        """
        needed = self.route_wishes(wishes, idf)
        both = stored.united(needed)
        return both, np.flatnonzero(np.diff(both.offsets) > np.diff(stored.offsets))

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays, by name, that :meth:`restored` takes."""

    @classmethod
    @abstractmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the distribution that these arrays came from."""
