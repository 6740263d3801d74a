"""``keyword`` and ``prefix``: each shard has some of the words, and what has such a word is sent to it.

Both divide the words by KeywordPartition, Algorithm 4 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword
Publish/Subscribe Over Sliding Window" (2017). By ``keyword`` (section 7.3.3) a subscription is stored with all of its
words. By ``prefix`` (section 7.3.4) it is stored with some: a message that has none of them cannot score enough,
wherever it is. The paper takes the *loose prefix* (Definition 12), the rarest words, and the words are divided by these
here, too. But then a subscription is stored in the fewest shards whose words do: several of its words may be in one.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import MessageBatch
from nearcast.columns.ragged import ragged_take
from nearcast.errors import UnknownError
from nearcast.kernels import kernel
from nearcast.sharding.distribution.routes import Routes
from nearcast.sharding.ranked.base import RankedDistribution, RankedSample, Wishes

__all__ = ["Keyword", "Prefix", "loose_prefix"]

_NOWHERE = -1
_GROW = "these subscriptions have words that no shard was given; let the distribution grow first (grown)"


class Keyword(RankedDistribution):
    """Divides words among shards; ``homes[code]`` is the shard of a word, -1 if no subscription is stored with it."""

    name: ClassVar[str] = "keyword"
    divides_words: ClassVar[bool] = True

    def __init__(self, shards: int, homes: NDArray[np.int32]) -> None:
        super().__init__(shards)
        self._homes = homes

    @classmethod
    def fit(cls, sample: RankedSample, shards: int) -> Self:
        """Divide the words of subscriptions (Algorithm 4)."""
        wishes = cls._stored_with(sample.wishes, sample.idf)
        return cls(shards, _divide(wishes, sample.messages, shards))

    @staticmethod
    def _stored_with(wishes: Wishes, idf: NDArray[np.float64]) -> Wishes:
        """Return subscriptions with those words by which they are stored."""
        return wishes

    def grown(self, wishes: Wishes, idf: NDArray[np.float64]) -> Self:
        """Return a distribution with shards for those words that have none: the shards that their codes name."""
        words = np.unique(self._stored_with(wishes, idf).words)
        homes = np.full(max(len(self._homes), int(words.max(initial=-1)) + 1), _NOWHERE, np.int32)
        homes[: len(self._homes)] = self._homes
        homeless = words[homes[words] == _NOWHERE]
        if not len(homeless):
            return self
        homes[homeless] = homeless % self.shards
        return type(self)(self.shards, homes)

    def route_wishes(self, wishes: Wishes, idf: NDArray[np.float64]) -> Routes:
        """Send each subscription to the shards of the words by which it is stored."""
        chosen = self._stored_with(wishes, idf)
        routes, homeless = self._route(chosen.offsets, chosen.words)
        if homeless:
            raise UnknownError(_GROW)
        return routes

    def finds(self, shards: NDArray[np.int32], words: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Tell which words belong to which shards."""
        found: NDArray[np.bool_] = self._homes_of(words) == shards
        return found

    def route_messages(self, batch: MessageBatch) -> Routes:
        """Send each message to the shards of its words."""
        probes = batch.probes
        words = ragged_take(probes.keyword_offsets, probes.keywords, batch.probe_offsets[:-1])
        return self._route(*words)[0]

    def _route(self, offsets: NDArray[np.int64], words: NDArray[np.int32]) -> tuple[Routes, bool]:
        """Return the shards of rows with these words, and whether some of the words have none."""
        homes = self._homes_of(words)
        rows, there = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), homes != _NOWHERE
        return Routes.from_pairs(rows[there], homes[there], len(offsets) - 1), not there.all()

    def _homes_of(self, words: NDArray[np.int32]) -> NDArray[np.int32]:
        homes = np.full(len(words), _NOWHERE, np.int32)
        known = words < len(self._homes)
        homes[known] = self._homes[words[known]]
        return homes

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the shards of words."""
        return {"homes": self._homes}

    @classmethod
    def restored(cls, shards: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the distribution that the arrays came from."""
        return cls(shards, arrays["homes"])


class Prefix(Keyword):
    """Stores a subscription only where it has to be."""

    name: ClassVar[str] = "prefix"

    def route_wishes(self, wishes: Wishes, idf: NDArray[np.float64]) -> Routes:
        """Send each subscription to the fewest shards such that its other words do not make a result."""
        offsets, shards = np.zeros(len(wishes.offsets), np.int64), np.empty_like(wishes.words)
        room = max(int(np.diff(wishes.offsets).max(initial=0)), 1)
        homes = self._homes_of(wishes.words)
        demands = wishes.offsets, wishes.words, wishes.alphas, wishes.lowest
        if not _choose_shards(*demands, idf, homes, room, offsets, shards):
            raise UnknownError(_GROW)
        return Routes(offsets, shards[: offsets[-1]])

    @staticmethod
    def _stored_with(wishes: Wishes, idf: NDArray[np.float64]) -> Wishes:
        return wishes.with_words(*loose_prefix(wishes, idf))


def loose_prefix(wishes: Wishes, idf: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the words of each loose prefix (Definition 12), the rarest first.

    A message that is at the very place of a subscription, but has only words behind the prefix, scores less than
    ``lowest``. Equation 18 says the same of the similarity of words alone. The paper bounds it by the sum of the
    weights; the bound here is the length of the vector that these words form, which such a message can reach.
    """
    offsets = np.zeros(len(wishes.offsets), np.int64)
    words = np.empty_like(wishes.words)
    room = max(int(np.diff(wishes.offsets).max(initial=0)), 1)
    _cut_prefixes(wishes.offsets, wishes.words, wishes.alphas, wishes.lowest, idf, room, offsets, words)
    return offsets, words[: offsets[-1]]


@kernel
def _cut_prefixes(
    offsets: NDArray[np.int64],
    words: NDArray[np.int32],
    alphas: NDArray[np.float64],
    lowest: NDArray[np.float64],
    idf: NDArray[np.float64],
    room: int,
    out_offsets: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    ordered, filled = np.empty(room, np.int32), 0
    for row in range(alphas.size):
        size = offsets[row + 1] - offsets[row]
        total = 0.0
        for i in range(size):
            word = words[offsets[row] + i]
            total += idf[word] * idf[word]
            at = i
            while at > 0 and (
                idf[ordered[at - 1]] < idf[word]
                or (idf[ordered[at - 1]] == idf[word] and ordered[at - 1] > word)
            ):
                ordered[at] = ordered[at - 1]
                at -= 1
            ordered[at] = word
        tail = total
        for i in range(size):
            share = np.sqrt(max(tail, 0.0) / total) if total > 0.0 else 1.0
            if alphas[row] + (1.0 - alphas[row]) * share + config.RANKING_SLACK < lowest[row]:
                break
            out[filled] = ordered[i]
            filled += 1
            tail -= idf[ordered[i]] * idf[ordered[i]]
        out_offsets[row + 1] = filled


@kernel
def _choose_shards(
    offsets: NDArray[np.int64],
    words: NDArray[np.int32],
    alphas: NDArray[np.float64],
    lowest: NDArray[np.float64],
    idf: NDArray[np.float64],
    homes: NDArray[np.int32],
    room: int,
    out_offsets: NDArray[np.int64],
    out: NDArray[np.int32],
) -> bool:
    """Write the shards of each row, ascending; return False if a row needs a word that has no shard.

    The squares of the weights in a shard add up, so the fewest shards are those with the largest sums. *homes* are the
    shards of the words, one for each entry.
    """
    shards, sums = np.empty(room, np.int32), np.empty(room)
    filled = 0
    for row in range(alphas.size):
        total, count = 0.0, 0
        for i in range(offsets[row], offsets[row + 1]):
            weight = idf[words[i]] * idf[words[i]]
            total += weight
            if homes[i] < 0:
                continue
            at = 0
            while at < count and shards[at] != homes[i]:
                at += 1
            if at == count:
                shards[at], sums[at] = homes[i], 0.0
                count += 1
            sums[at] += weight
        tail, begin = total, filled
        while True:
            share = np.sqrt(max(tail, 0.0) / total) if total > 0.0 else 1.0
            enough = alphas[row] + (1.0 - alphas[row]) * share + config.RANKING_SLACK < lowest[row]
            if count == 0 or enough:
                break
            best = 0
            for at in range(1, count):
                if sums[at] > sums[best] or (sums[at] == sums[best] and shards[at] < shards[best]):
                    best = at
            at = filled
            while at > begin and out[at - 1] > shards[best]:
                out[at] = out[at - 1]
                at -= 1
            out[at] = shards[best]
            filled += 1
            tail -= sums[best]
            count -= 1
            shards[best], sums[best] = shards[count], sums[count]
        if not enough:  # all shards are taken: no word may be left out
            for i in range(offsets[row], offsets[row + 1]):
                if homes[i] < 0:
                    return False
        out_offsets[row + 1] = filled
    return True


def _divide(wishes: Wishes, messages: MessageBatch, shards: int) -> NDArray[np.int32]:
    """Return the shard of each word (KeywordPartition, Algorithm 4).

    The words that subscriptions are stored with, from the most to the least frequent in messages, are cut in two again
    and again, where the costs of both sides, for each shard there, are as equal as they can be. The cost of some words
    is the number of subscriptions that have one of them, times the share of messages that have one (Equation 16). Any
    number of shards is possible, not only powers of two.
    """
    probes = messages.probes
    their_offsets, theirs = ragged_take(probes.keyword_offsets, probes.keywords, messages.probe_offsets[:-1])
    size = max(int(wishes.words.max(initial=-1)), int(theirs.max(initial=-1))) + 1
    homes = np.full(size, _NOWHERE, np.int32)
    wanted = np.unique(wishes.words)
    frequency = np.bincount(theirs, minlength=size)[wanted]
    ordered = wanted[np.argsort(-frequency, kind="stable")]
    ranks = np.full(size, -1)
    ranks[ordered] = np.arange(len(ordered))
    ours = _ranked(wishes.offsets, ranks[wishes.words])
    heard = _ranked(their_offsets, ranks[theirs])
    waiting = [(0, len(ordered), 0, shards)]
    while waiting:
        low, high, first, count = waiting.pop()
        if count == 1:
            homes[ordered[low:high]] = first
            continue
        less = count // 2
        cut = _cut(ours, heard, low, high, less, count - less)
        waiting.append((low, cut, first, less))
        waiting.append((cut, high, first + less, count - less))
    return homes


def _ranked(
    offsets: NDArray[np.int64], ranks: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of a row and a rank, without words that nobody asks for."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return rows[ranks >= 0], ranks[ranks >= 0]


def _cut(ours: Any, heard: Any, low: int, high: int, less: int, more: int) -> int:
    """Return the rank at which to cut the words from *low* to *high*: *less* shards get those before it."""
    if high - low < 2:
        return high
    (mine, mine_after), (theirs, theirs_after) = (_with_either(pairs, low, high) for pairs in (ours, heard))
    before, after = mine * theirs / less, mine_after * theirs_after / more
    # Words that no message was seen with cost nothing; then subscriptions alone decide.
    uneven = np.abs(mine / less - mine_after / more)
    return low + 1 + int(np.lexsort((uneven, np.abs(before - after)))[0])


def _with_either(pairs: Any, low: int, high: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return, for each cut after *low* and before *high*, how many rows have a word on its left, and on its right."""
    rows, ranks = pairs
    inside = (ranks >= low) & (ranks < high)
    rows, ranks = rows[inside], ranks[inside] - low
    width = high - low
    if not len(rows):
        nothing = np.zeros(width - 1)
        return nothing, nothing
    begins = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
    least, most = np.minimum.reduceat(ranks, begins), np.maximum.reduceat(ranks, begins)
    left = np.cumsum(np.bincount(least, minlength=width))[:-1]
    right = len(begins) - np.cumsum(np.bincount(most, minlength=width))[:-1]
    return left.astype(np.float64), right.astype(np.float64)
