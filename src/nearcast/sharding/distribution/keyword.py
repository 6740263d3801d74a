"""``keyword``: each clause to the shard of its rarest keyword, each message to the shards of its keywords.

Rare is what few sampled messages have. Clauses without keywords are together in one shard, which then gets every
message. Words are given to shards by what they cost: the messages that have the word, and what these meet there.
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

_NOWHERE = -1  # the home of a word that is no clause's rarest


class Keyword(Distribution):
    """Words to shards: ``homes[code + 1]``; ``homes[0]`` is for clauses without words.

    ``seen[code]`` is how many sampled messages had the word.
    """

    name: ClassVar[str] = "keyword"

    def __init__(self, shards: int, homes: NDArray[np.int32], seen: NDArray[np.int64]) -> None:
        super().__init__(shards)
        self._homes, self._seen = homes, seen

    @classmethod
    def fitted(cls, sample: Sample, shards: int) -> Self:
        """Give the rarest words of the clauses to shards, the costly ones first, each to the shard with least to do."""
        clauses, probes = sample.table.clauses, sample.batch.probes
        _, words = ragged_take(probes.keyword_offsets, probes.keywords, sample.probes)
        size = max(int(clauses.keywords.max(initial=-1)), int(words.max(initial=-1))) + 1
        seen = np.bincount(words, minlength=size)
        keys = _rarest(clauses.keyword_runs, clauses.keywords, sample.clauses, seen) + 1
        deliveries = np.bincount(keys, sample.deliveries[sample.clauses], minlength=size + 1)
        # A word that no sampled message had may still come.
        messages = np.append(len(sample.probes), seen) + 1
        costs = config.SHARD_MESSAGE_NS * messages + config.SHARD_DELIVERY_NS * deliveries
        homes = np.full(size + 1, _NOWHERE, np.int32)
        loads = [(0.0, shard) for shard in range(shards)]
        used = np.unique(keys)
        for key in used[np.argsort(-costs[used], kind="stable")].tolist():
            load, shard = loads[0]
            homes[key] = shard
            heapq.heapreplace(loads, (load + costs[key], shard))
        return cls(shards, homes, seen)

    def grown(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Self:
        """Return the same with homes for the rarest words of these clause rows that have none."""
        clauses = table.clauses
        size = max(int(clauses.keywords.max(initial=-1)) + 1, len(self._seen))
        seen = np.concatenate([self._seen, np.zeros(size - len(self._seen), np.int64)])
        homes = np.concatenate([self._homes, np.full(size + 1 - len(self._homes), _NOWHERE, np.int32)])
        keys = np.unique(_rarest(clauses.keyword_runs, clauses.keywords, rows, seen) + 1)
        homeless = keys[homes[keys] == _NOWHERE]
        homes[homeless] = homeless % self.shards
        return type(self)(self.shards, homes, seen)

    def route_clauses(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Routes:
        """Each row to the home of its rarest word."""
        clauses = table.clauses
        _, words = runs_take(clauses.keyword_runs, clauses.keywords, rows)
        known = words.max(initial=-1) < len(self._seen)
        homes = self._homes[
            _rarest(clauses.keyword_runs, clauses.keywords, rows, self._seen) + 1 if known else []
        ]
        if not known or (homes == _NOWHERE).any():
            raise UnknownError("subscriptions came after the words were distributed; let it grow first")
        return Routes.single(homes)

    def route_probes(self, batch: MessageBatch, rows: NDArray[np.int64]) -> Routes:
        """Each row to the homes of its words, and to that of the clauses without."""
        offsets, words = ragged_take(batch.probes.keyword_offsets, batch.probes.keywords, rows)
        owners = np.repeat(np.arange(len(rows)), np.diff(offsets))
        known = words < len(self._seen)  # a word that came later is no clause's rarest
        owners = np.concatenate([owners[known], np.arange(len(rows))])
        homes = np.concatenate([self._homes[words[known] + 1], np.full(len(rows), self._homes[0])])
        there = homes != _NOWHERE
        return Routes.from_pairs(owners[there], homes[there], len(rows))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the homes of words, and how many sampled messages had each."""
        return {"homes": self._homes, "seen": self._seen}

    @classmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the same homes."""
        return cls(shards, arrays["homes"], arrays["seen"])


def _rarest(
    runs: NDArray[np.int32], words: NDArray[np.int32], rows: NDArray[np.int64], seen: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the code of each row's rarest word (of equally rare ones the greatest), -1 where there is none."""
    starts, codes = runs_take(runs, words, rows)
    out = np.full(len(rows), -1, np.int64)
    worded = np.diff(starts) > 0
    if worded.any():
        size = len(seen)
        ranks = np.minimum.reduceat(seen[codes] * size + (size - 1 - codes), starts[:-1][worded])
        out[worded] = size - 1 - ranks % size
    return out
