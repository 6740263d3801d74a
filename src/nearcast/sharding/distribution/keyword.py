"""``keyword``: a clause goes to the shard of its rarest keyword, a message to the shards of all its keywords.

A keyword is rare if few sampled messages have it. Clauses without keywords share one shard, which then gets every
message. Keywords are given to shards by their cost: the messages that have them, and the deliveries that follow.

It takes the place of the keyword-based method (section 7.3.3) of Wang, Zhang, Zhang, Lin and Huang, "Top-k
Spatial-keyword Publish/Subscribe Over Sliding Window" (2017). There, the list of keywords by frequency is cut in two
again and again (Algorithm 4), so that the costs of the parts (Equation 16) vary little (Equation 17), and a
subscription is stored in the parts of all its keywords. A clause here needs all of its keywords at once, so one of them
is enough; this resembles the paper's prefix-based method (section 7.3.4), with a prefix of a single word. And keywords
need not stay in order of frequency: the costliest goes first, each to the shard with the least load.
"""

from __future__ import annotations

import heapq
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.ragged import ragged_take, runs_take
from nearcast.errors import UnknownError
from nearcast.sharding.distribution.base import Distribution, Sample
from nearcast.sharding.distribution.routes import Routes

__all__ = ["Keyword"]

_NOWHERE = -1  # the shard of a word that is not the rarest of any clause


class Keyword(Distribution):
    """Divides words among shards.

    ``homes[code + 1]`` is the shard of a word, ``homes[0]`` that of clauses without words, and
    ``frequencies[code]`` is the number of sampled messages that have the word.
    """

    name: ClassVar[str] = "keyword"

    def __init__(self, shards: int, homes: NDArray[np.int32], frequencies: NDArray[np.int64]) -> None:
        super().__init__(shards)
        self._homes, self._frequencies = homes, frequencies

    @classmethod
    def fit(cls, sample: Sample, shards: int) -> Self:
        """Give the rarest words of clauses to shards, the costliest first, each to the shard with the least load."""
        clauses, probes = sample.table.clauses, sample.batch.probes
        _, words = ragged_take(probes.keyword_offsets, probes.keywords, sample.probes)
        size = max(int(clauses.keywords.max(initial=-1)), int(words.max(initial=-1))) + 1
        frequencies = np.bincount(words, minlength=size)
        keys = _rarest(clauses.keyword_runs, clauses.keywords, sample.clauses, frequencies) + 1
        deliveries = np.bincount(keys, sample.deliveries[sample.clauses], minlength=size + 1)
        # A word that no sampled message has may still come: it costs as if one had it.
        messages = np.append(len(sample.probes), frequencies) + 1
        costs = config.SHARD_MESSAGE_NS * messages + config.SHARD_DELIVERY_NS * deliveries
        homes = np.full(size + 1, _NOWHERE, np.int32)
        loads = [(0.0, shard) for shard in range(shards)]
        used = np.unique(keys)
        for key in used[np.argsort(-costs[used], kind="stable")].tolist():
            load, shard = loads[0]
            homes[key] = shard
            heapq.heapreplace(loads, (load + costs[key], shard))
        return cls(shards, homes, frequencies)

    def grown(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Self:
        """Return a distribution with shards for those of the rarest words of these clause rows that have none."""
        clauses = table.clauses
        size = max(int(clauses.keywords.max(initial=-1)) + 1, len(self._frequencies))
        more = np.zeros(size - len(self._frequencies), np.int64)
        frequencies = np.concatenate([self._frequencies, more])
        homes = np.concatenate([self._homes, np.full(size + 1 - len(self._homes), _NOWHERE, np.int32)])
        keys = np.unique(_rarest(clauses.keyword_runs, clauses.keywords, rows, frequencies) + 1)
        homeless = keys[homes[keys] == _NOWHERE]
        homes[homeless] = homeless % self.shards
        return type(self)(self.shards, homes, frequencies)

    def route_clauses(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Routes:
        """Send each row to the shard of its rarest word."""
        clauses = table.clauses
        _, words = runs_take(clauses.keyword_runs, clauses.keywords, rows)
        known = words.max(initial=-1) < len(self._frequencies)
        homes = self._homes[
            _rarest(clauses.keyword_runs, clauses.keywords, rows, self._frequencies) + 1 if known else []
        ]
        if not known or (homes == _NOWHERE).any():
            raise UnknownError(
                "these subscriptions have words that no shard was given; let the distribution grow first (grown)"
            )
        return Routes.single(homes)

    def route_probes(self, batch: MessageBatch, rows: NDArray[np.int64]) -> Routes:
        """Send each row to the shards of its words, and to the shard of the clauses without words."""
        offsets, words = ragged_take(batch.probes.keyword_offsets, batch.probes.keywords, rows)
        owners = np.repeat(np.arange(len(rows)), np.diff(offsets))
        known = words < len(self._frequencies)  # a later word is not the rarest of any clause
        owners = np.concatenate([owners[known], np.arange(len(rows))])
        homes = np.concatenate([self._homes[words[known] + 1], np.full(len(rows), self._homes[0])])
        used = homes != _NOWHERE
        return Routes.from_pairs(owners[used], homes[used], len(rows))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the shards of words, and the number of sampled messages that have each."""
        return {"homes": self._homes, "seen": self._frequencies}

    @classmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the distribution that the arrays came from."""
        return cls(shards, arrays["homes"], arrays["seen"])


def _rarest(
    runs: NDArray[np.int32],
    words: NDArray[np.int32],
    rows: NDArray[np.int64],
    frequencies: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the code of each row's rarest word (of equally rare ones the greatest code), -1 if it has no words."""
    starts, codes = runs_take(runs, words, rows)
    out = np.full(len(rows), -1, np.int64)
    worded = np.diff(starts) > 0
    if worded.any():
        size = len(frequencies)
        ranks = np.minimum.reduceat(frequencies[codes] * size + (size - 1 - codes), starts[:-1][worded])
        out[worded] = size - 1 - ranks % size
    return out
