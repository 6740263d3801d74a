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
from nearcast.columns.vocabulary import string_buffers
from nearcast.errors import UnknownError
from nearcast.kernels.hashing import hash_integers, hash_strings
from nearcast.sharding.distribution.base import Distribution, Sample
from nearcast.sharding.distribution.routes import Routes

__all__ = ["Keyword"]

_NOWHERE = -1  # the shard of a word that is not the rarest of any clause
_HASH_BITS = 44  # of the hash of a word, where equally rare words are ranked;
_MOST_SEEN = (1 << 64 - _HASH_BITS) - 1  # the other bits count the messages that have the word


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
        keys = _rarest(sample.table, sample.clauses, frequencies) + 1
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
        """Return a distribution with shards for those of the rarest words of these clause rows that have none.

        The shard of such a word follows from its letters, so all who need it find the same one.
        """
        keys = np.unique(_rarest(table, rows, self._frequencies) + 1)
        homes = self._reaching(int(keys.max(initial=-1)) + 1)
        homeless = keys[homes[keys] == _NOWHERE]
        if not len(homeless):
            return self
        homes[homeless] = np.where(
            homeless == 0, 0, _hashes(table, homeless - 1) % np.uint64(self.shards)
        ).astype(np.int32)
        return type(self)(self.shards, homes, self._frequencies)

    def added(self, since: Self) -> NDArray[np.int64]:
        """Return the words that got shards, and these shards in the upper half."""
        before = since._reaching(len(self._homes))
        keys = np.flatnonzero(self._homes != before)
        return keys | self._homes[keys].astype(np.int64) << 32

    def joined(self, added: NDArray[np.int64]) -> Self:
        """Return a distribution that also has the shards that these words got elsewhere."""
        keys = added & 0xFFFFFFFF
        homes = self._reaching(int(keys.max(initial=-1)) + 1)
        homes[keys] = added >> 32
        return type(self)(self.shards, homes, self._frequencies)

    def _reaching(self, size: int) -> NDArray[np.int32]:
        """Return a copy of the homes, for *size* keys at least."""
        more = np.full(max(size - len(self._homes), 0), _NOWHERE, np.int32)
        return np.concatenate([self._homes, more])

    def route_clauses(self, table: SubscriptionTable, rows: NDArray[np.int64]) -> Routes:
        """Send each row to the shard of its rarest word."""
        keys = _rarest(table, rows, self._frequencies) + 1
        homes = self._homes[keys] if keys.max(initial=-1) < len(self._homes) else np.array([_NOWHERE])
        if (homes == _NOWHERE).any():
            raise UnknownError(
                "these subscriptions have words that no shard was given; let the distribution grow first (grown)"
            )
        return Routes.single(homes)

    def route_probes(self, batch: MessageBatch, rows: NDArray[np.int64]) -> Routes:
        """Send each row to the shards of its words, and to the shard of the clauses without words."""
        offsets, words = ragged_take(batch.probes.keyword_offsets, batch.probes.keywords, rows)
        owners = np.repeat(np.arange(len(rows)), np.diff(offsets))
        known = words < len(self._homes) - 1  # a later word is not the rarest of any clause
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
    table: SubscriptionTable, rows: NDArray[np.int64], frequencies: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the code of each clause row's rarest word, -1 if it has no words.

    Of equally rare words, their letters decide and not their codes, which may differ from process to process.
    """
    starts, codes = runs_take(table.clauses.keyword_runs, table.clauses.keywords, rows)
    out = np.full(len(rows), -1, np.int64)
    counts = np.diff(starts)
    worded = counts > 0
    if not worded.any():
        return out
    distinct, which = np.unique(codes, return_inverse=True)
    seen = np.zeros(len(distinct), np.uint64)
    known = distinct < len(frequencies)
    seen[known] = np.minimum(frequencies[distinct[known]], _MOST_SEEN)
    ranks = (seen << np.uint64(_HASH_BITS) | _hashes(table, distinct) >> np.uint64(64 - _HASH_BITS))[which]
    begins = starts[:-1][worded]
    least = np.repeat(np.minimum.reduceat(ranks, begins), counts[worded]) == ranks
    owners = np.repeat(np.flatnonzero(worded), counts[worded])
    out[owners[least]] = codes[least]
    if np.count_nonzero(least) > len(begins):  # two hashes agree: compare the words themselves
        for row in np.flatnonzero(np.bincount(owners[least]) > 1).tolist():
            tied = codes[least & (owners == row)]
            words = tied.tolist() if table.vocabulary is None else table.vocabulary.decode(tied)
            out[row] = min(zip(words, tied.tolist()))[1]
    return out


def _hashes(table: SubscriptionTable, codes: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a hash of the letters of each word or, where the caller works with codes, of the code."""
    out = np.empty(len(codes), np.uint64)
    if table.vocabulary is None:
        hash_integers(codes.astype(np.int64), out)
    else:
        data, offsets, _ = string_buffers(table.vocabulary.take(codes))
        hash_strings(data, offsets, out)
    return out
