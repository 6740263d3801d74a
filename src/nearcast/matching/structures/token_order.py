"""The global order of tokens that tries and quadtrees share: the rarest first.

If its paths begin with the rarest token, a trie has many thin branches at the root, where a message finds its own by
direct access, and few nodes below each. Compared with the most frequent token first, a message of 9 tokens takes two
thirds of the time, and a message of 300 tokens a fifth, on the workload of the AP-Tree paper (Wang, Zhang, Zhang, Lin
and Wang, 2015).

A token is ``LAST`` minus the rank of its word, and words are ranked by decreasing frequency. Words that come later get
the next ranks, so they count as the rarest, and the order of the others stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses

__all__ = ["LAST", "TokenOrder", "message_tokens"]

LAST = 2**31 - 1  # the token of the most frequent word
_NONE = -1  # the rank of a word that no clause has
_INSERTION_UP_TO = config.INSERTION_SORT_UP_TO
_RADIX_FROM, _DIGIT_BITS = config.RADIX_SORT_FROM, config.RADIX_SORT_BITS
_DIGITS = 1 << _DIGIT_BITS


class TokenOrder:
    """The rank of each word by decreasing frequency."""

    def __init__(self, keywords: NDArray[np.int32]) -> None:
        frequency = np.bincount(keywords)
        words = np.flatnonzero(frequency)
        words = words[np.argsort(-frequency[words], kind="stable")]
        ranks = np.full(len(frequency), _NONE, np.int32)
        ranks[words] = np.arange(len(words))
        self._ranks = GrowableArray(ranks, borrowed=False)
        self.size = len(words)

    @property
    def ranks(self) -> NDArray[np.int32]:
        """The rank of each word, or -1 if no clause has it."""
        return self._ranks.values

    def reach(self, keywords: NDArray[np.int32]) -> None:
        """Give ranks to words that have none yet."""
        unseen = int(keywords.max(initial=-1)) + 1 - len(self.ranks)
        if unseen > 0:
            self._ranks.fill(unseen, _NONE)
        fresh = np.unique(keywords[self.ranks[keywords] == _NONE])
        self.ranks[fresh] = np.arange(self.size, self.size + len(fresh))
        self.size += len(fresh)

    def arranged(
        self, clauses: Clauses, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the tokens of the given clause rows, ascending in each row, as (offsets, tokens)."""
        offsets = offsets_of(clauses.keyword_runs[rows, 1] - clauses.keyword_runs[rows, 0])
        tokens = np.empty(offsets[-1], np.int32)
        _arrange(clauses.keyword_runs, clauses.keywords, self.ranks, rows, offsets, tokens)
        return offsets, tokens

    @classmethod
    def restored(cls, ranks: NDArray[np.int32]) -> TokenOrder:
        """Restore on a mapped array."""
        order = cls(np.empty(0, np.int32))
        order._ranks = GrowableArray(ranks, borrowed=False)
        order.size = int(ranks.max(initial=_NONE)) + 1
        return order


@kernel
def _sort_by_digits(tokens: NDArray[np.int32]) -> None:
    """Sort many tokens by radix sort: digit by digit, from the last digit on, as far as tokens differ."""
    deepest = LAST - int(tokens.min())
    spare, ends = np.empty_like(tokens), np.empty(_DIGITS, np.int64)
    shift = 0
    while deepest >> shift > 0:
        ends[:] = 0
        for token in tokens:
            ends[(token >> shift) & (_DIGITS - 1)] += 1
        total = 0
        for digit in range(_DIGITS):
            total += ends[digit]
            ends[digit] = total
        for i in range(tokens.size - 1, -1, -1):
            digit = (tokens[i] >> shift) & (_DIGITS - 1)
            ends[digit] -= 1
            spare[ends[digit]] = tokens[i]
        tokens[:] = spare
        shift += _DIGIT_BITS


@kernel
def _sort(tokens: NDArray[np.int32], first: int, last: int) -> None:
    if last - first > _RADIX_FROM:
        _sort_by_digits(tokens[first:last])
        return
    if last - first > _INSERTION_UP_TO:
        tokens[first:last].sort()
        return
    for i in range(first + 1, last):
        token = tokens[i]
        j = i
        while j > first and tokens[j - 1] > token:
            tokens[j] = tokens[j - 1]
            j -= 1
        tokens[j] = token


@kernel
def _arrange(
    keyword_runs: NDArray[np.int32],
    keywords: NDArray[np.int32],
    ranks: NDArray[np.int32],
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    for i in range(rows.size):
        shift = keyword_runs[rows[i], 0] - offsets[i]
        for at in range(offsets[i], offsets[i + 1]):
            out[at] = LAST - ranks[keywords[at + shift]]
        _sort(out, offsets[i], offsets[i + 1])


@kernel
def message_tokens(
    keywords: NDArray[np.int32], start: int, stop: int, ranks: NDArray[np.int32], out: NDArray[np.int32]
) -> Any:
    """Write the tokens of the message keywords[start:stop] that some clause has, ascending; return how many."""
    count = 0
    for i in range(start, stop):
        word = keywords[i]
        if word < ranks.size and ranks[word] != _NONE:
            out[count] = LAST - ranks[word]
            count += 1
    # The most frequent words tend to have the smallest codes, so the tokens come in almost descending order.
    for i in range(count >> 1):
        out[i], out[count - 1 - i] = out[count - 1 - i], out[i]
    _sort(out, 0, count)
    return count
