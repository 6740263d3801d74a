"""Which subscriptions does a message concern? Blocks of postings, pruned by reach.

The subscription index of section 5, transposed: a list for each word, and in it cells of space, instead of lists of
words in each cell of space. A message looks at its own words only, and the headers of a word's cells are side by side:
at a million subscriptions it reads some thousand headers one after the other instead of asking a thousand cells for
nine words each. Cells adapt to the word: a rare one has one, a frequent one as many as it needs.

Words are taken from the rarest to the most frequent (term at a time, Algorithm 1). The bounds:

========================  ============================================================================================
group pruning             a block is skipped when the message is farther away than its *reach* (Theorems 1 and 3, and
                          Lemma 6), which is exact for the postings in it at the given level of weight
outer spatial bound       the distance from the message to the box of the block (Definition 7)
unseen words              a posting is skipped when its words from this one on, or those of the message, can contribute
                          too little (Equation 5, Theorem 2)
========================  ============================================================================================

What is left is verified at once, by its rarest common word: no map of partial sums is kept. θ takes the place of kScore
everywhere (section 6.2, remark).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.ranking.curve import z_order
from nearcast.ranking.finder import Finder, Found
from nearcast.ranking.pool import (
    ALPHA,
    BLOCK,
    FIELDS,
    LEVELS,
    SHARE,
    TAIL,
    THRESHOLD,
    Pool,
    empty_pool,
    find_posting,
    grown_pool,
    insert,
    remove,
    summarize,
)
from nearcast.ranking.scoring import Metric, score, tail_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.subscribers import Asked
    from nearcast.ranking.windows import Stored

__all__ = ["Blocks"]


class Blocks(Finder):
    """Blocks of postings; see the module."""

    name = "blocks"

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._scale = (metric.radius or 1.0) / metric.max_distance
        edges = np.full(LEVELS, np.inf)
        self._pool = empty_pool(1024, 1024, 4096, edges)
        self._tuned = 0  # messages that the levels were chosen by

    @property
    def nbytes(self) -> int:
        """Memory."""
        return sum(array.nbytes for array in self._pool)

    def stats(self) -> dict[str, Any]:
        """Figures about the blocks."""
        return {"blocks": int(self._pool.blocks.sum()), "postings": int(self._pool.used[1])}

    def add(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Insert few rows; lay many out together with those that are there."""
        if len(rows) > max(config.RANKING_BULK, int(self._pool.blocks.sum())):
            self._build(asked, rows, idf)
            return
        at = 0
        while at < len(rows):
            self._make_room(len(idf))
            at = _insert_rows(self._pool, asked, rows, at, idf, self._scale)

    def drop(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Take the postings of rows away."""
        _remove_rows(self._pool, asked, rows, self._scale)

    def changed(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Let the postings of rows, and their blocks, know the new thresholds."""
        _change_rows(self._pool, asked, rows, self._scale)

    def tune(self, lengths: NDArray[np.float64], idf: NDArray[np.float64]) -> None:
        """Choose the levels by the messages there are, again when these have doubled."""
        if len(lengths) < 2 * self._tuned or not len(lengths):
            return
        self._tuned = len(lengths)
        shares = np.linspace(0, 1, LEVELS + 1)[1:-1]
        self._pool.edges[:-1] = np.quantile(1.0 / lengths, shares, method="higher")
        self._pool.edges[-1] = np.inf
        _summarize_all(self._pool)

    def find(
        self, asked: Asked, stored: Stored, begin: int, end: int, idf: NDArray[np.float64], room: int
    ) -> Found:
        """Algorithm 1, by blocks."""
        counters = np.zeros(4, np.int64)
        offsets, rows, scores = _find(
            self._pool, asked, stored, begin, end, idf, self.metric, self._scale, counters, room
        )
        return Found(offsets, rows, scores, counters)

    def _make_room(self, words: int) -> None:
        """Let at least one posting of each row find its place."""
        pool = self._pool
        widest = 2 * int(pool.room.max(initial=1))
        headers = int(pool.used[0]) + 4 * widest + 1024
        postings = int(pool.used[1]) + 16 * BLOCK
        if words > len(pool.first) or headers > len(pool.at) or postings > len(pool.owners):
            self._pool = grown_pool(
                pool, words + words // 4, headers + headers // 2, postings + postings // 2
            )

    def _build(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Lay all postings out anew, those of *rows* among them, ordered by word and by place."""
        old = _owners(self._pool)
        rows = np.unique(np.concatenate([old, rows]))
        counts = asked.counts[rows].astype(np.int64)
        owners = np.repeat(rows, counts)
        picks = np.arange(counts.sum()) + np.repeat(asked.starts[rows] - (np.cumsum(counts) - counts), counts)
        words = asked.words[picks]
        order = np.lexsort((z_order(asked.places)[owners], words))
        headers = int(len(words) // BLOCK * 4 + 4 * np.count_nonzero(np.bincount(words)) + 4096)
        pool = empty_pool(len(idf) + len(idf) // 4, headers, len(words) * 2 + 4 * headers, self._pool.edges)
        self._pool = pool
        _lay_out(pool, asked, owners[order], words[order], idf, self._scale)


def _owners(pool: Pool) -> NDArray[np.int32]:
    """Return the rows that have postings."""
    out = np.empty(int(pool.size[: int(pool.used[0])].sum()) if int(pool.used[0]) else 0, np.int32)
    return np.unique(out[: _collect_owners(pool, out)])


@kernel
def _collect_owners(pool: Pool, out: NDArray[np.int32]) -> Any:
    count = 0
    for word in range(len(pool.first)):
        for header in range(pool.first[word], pool.first[word] + pool.blocks[word]):
            for i in range(pool.size[header]):
                out[count] = pool.owners[pool.at[header] + i]
                count += 1
    return count


@kernel
def _posting(
    asked: Asked, row: int, word: int, idf: NDArray[np.float64], scale: float, out: NDArray[np.float32]
) -> None:
    """Write the fields of the posting of a word of a subscription."""
    for axis in range(3):
        out[axis] = asked.places[row, axis] * scale
    out[ALPHA] = asked.alphas[row]
    out[SHARE] = (1.0 - asked.alphas[row]) / asked.lengths[row]
    out[TAIL] = tail_of(asked, row, word, idf)
    out[THRESHOLD] = asked.thresholds[row]


@kernel
def _insert_rows(
    pool: Pool, asked: Asked, rows: NDArray[np.int32], begin: int, idf: NDArray[np.float64], scale: float
) -> Any:
    """Insert the postings of rows from *begin* on; return how far the room in the pool went."""
    posting = np.empty(FIELDS, np.float32)
    for at in range(begin, len(rows)):
        row = rows[at]
        headers, postings = pool.used[0], pool.used[1]
        for i in range(asked.starts[row], asked.starts[row] + asked.counts[row]):
            headers += 2 * pool.room[asked.words[i]] + 2
            postings += 2 * BLOCK + 4
        if headers > len(pool.at) or postings > len(pool.owners):
            return at
        for i in range(asked.starts[row], asked.starts[row] + asked.counts[row]):
            word = asked.words[i]
            _posting(asked, row, word, idf, scale, posting)
            insert(pool, word, row, posting)
    return len(rows)


@kernel
def _remove_rows(pool: Pool, asked: Asked, rows: NDArray[np.int32], scale: float) -> None:
    place = np.empty(3, np.float32)
    for row in rows:
        for axis in range(3):
            place[axis] = asked.places[row, axis] * scale
        for i in range(asked.starts[row], asked.starts[row] + asked.counts[row]):
            word = asked.words[i]
            remove(pool, word, row, place[0], place[1], place[2])


@kernel
def _change_rows(pool: Pool, asked: Asked, rows: NDArray[np.int32], scale: float) -> None:
    """Let postings know new thresholds."""
    place = np.empty(3, np.float32)
    for row in rows:
        for axis in range(3):
            place[axis] = asked.places[row, axis] * scale
        for at in range(asked.starts[row], asked.starts[row] + asked.counts[row]):
            word = asked.words[at]
            header, i = find_posting(pool, word, row, place[0], place[1], place[2])
            if header >= 0:
                pool.fields[pool.at[header] * FIELDS + THRESHOLD * pool.capacity[header] + i] = (
                    asked.thresholds[row]
                )
                summarize(pool, header)


@kernel
def _summarize_all(pool: Pool) -> None:
    for word in range(len(pool.first)):
        for header in range(pool.first[word], pool.first[word] + pool.blocks[word]):
            summarize(pool, header)


@kernel
def _lay_out(
    pool: Pool,
    asked: Asked,
    owners: NDArray[np.int32],
    words: NDArray[np.int32],
    idf: NDArray[np.float64],
    scale: float,
) -> None:
    """Fill an empty pool with postings in order of word and place."""
    posting = np.empty(FIELDS, np.float32)
    begin = 0
    while begin < len(words):
        word, end = words[begin], begin
        while end < len(words) and words[end] == word:
            end += 1
        count = end - begin
        blocks = 1 if count <= BLOCK else (4 * count + 3 * BLOCK - 1) // (3 * BLOCK)
        room = 1
        while room < blocks:
            room *= 2
        first = pool.used[0]
        pool.used[0] += room
        pool.first[word], pool.blocks[word], pool.room[word] = first, blocks, room
        for block in range(blocks):
            low, high = begin + block * count // blocks, begin + (block + 1) * count // blocks
            capacity = 4
            while capacity < high - low:
                capacity *= 2
            if blocks > 1:
                capacity = BLOCK
            header = first + block
            pool.at[header], pool.capacity[header] = pool.used[1], capacity
            pool.size[header] = high - low
            pool.used[1] += capacity
            for i in range(high - low):
                _posting(asked, owners[low + i], word, idf, scale, posting)
                pool.owners[pool.at[header] + i] = owners[low + i]
                for field in range(FIELDS):
                    pool.fields[pool.at[header] * FIELDS + field * capacity + i] = posting[field]
            summarize(pool, header)
        begin = end


@kernel
def _find(
    pool: Pool,
    asked: Asked,
    stored: Stored,
    begin: int,
    end: int,
    idf: NDArray[np.float64],
    metric: Metric,
    scale: float,
    counters: NDArray[np.int64],
    room: int,
) -> Any:
    """Algorithm 1 for the messages *begin* to *end*: who reaches θ, and by which score.

    It stops before the message whose subscriptions might not fit.
    """
    first, blocks, at, capacity, size = pool.first, pool.blocks, pool.at, pool.capacity, pool.size
    boxes, reach, owners, fields, edges = pool.boxes, pool.reach, pool.owners, pool.fields, pool.edges
    places, words, offsets, long = stored.places, stored.words, stored.offsets, stored.lengths
    thresholds = asked.thresholds
    out_offsets = np.zeros(end - begin + 1, np.int64)
    out_rows, out_scores = np.empty(room, np.int32), np.empty(room)
    near = np.empty(1024, np.int64)
    candidates = np.empty(1024, np.int32)
    found, done = 0, 0
    slack = np.float32(config.RANKING_SLACK)
    for message in range(begin, end):
        m = message - stored.base
        low, high = offsets[m], offsets[m + 1]
        order = np.argsort(-idf[words[low:high]], kind="mergesort")
        inverse = 1.0 / long[m]
        inverse32 = np.float32(inverse)
        level = 0
        while level < LEVELS - 1 and inverse > edges[level]:
            level += 1
        x = np.float32(places[m, 0] * scale)
        y = np.float32(places[m, 1] * scale)
        z = np.float32(places[m, 2] * scale)
        tail = 0.0  # of the words of the message, from the present one on
        for i in range(low, high):
            tail += idf[words[i]] * idf[words[i]]
        before = found
        full = False
        for rank in range(high - low):
            word = words[low + order[rank]]
            contribution = np.float32(tail) * (np.float32(1.0) + slack)
            tail -= idf[word] * idf[word]
            if word >= len(first) or blocks[word] == 0:
                continue
            start, count = first[word], blocks[word]
            if count > len(near):
                near = np.empty(2 * count, np.int64)
            hits = 0
            for header in range(start, start + count):
                a = max(np.float32(0.0), boxes[0, header] - x, x - boxes[3, header])
                b = max(np.float32(0.0), boxes[1, header] - y, y - boxes[4, header])
                c = max(np.float32(0.0), boxes[2, header] - z, z - boxes[5, header])
                near[hits] = header
                hits += a * a + b * b + c * c <= reach[level, header]
            counters[0] += count
            counters[1] += hits
            kept = 0
            for k in range(hits):
                header = near[k]
                n, wide = size[header], capacity[header]
                base = at[header] * FIELDS
                if kept + n > len(candidates):
                    more = np.empty(2 * (kept + n), np.int32)
                    more[:kept] = candidates[:kept]
                    candidates = more
                for i in range(n):
                    p = base + i
                    a = fields[p] - x
                    b = fields[p + wide] - y
                    c = fields[p + 2 * wide] - z
                    distance = math.sqrt(a * a + b * b + c * c)
                    text = fields[p + SHARE * wide] * inverse32 * min(fields[p + TAIL * wide], contribution)
                    bound = fields[p + ALPHA * wide] * max(np.float32(0.0), np.float32(1.0) - distance) + text
                    candidates[kept] = owners[at[header] + i]
                    kept += bound + slack >= fields[p + THRESHOLD * wide]
                counters[2] += n
            counters[3] += kept
            for k in range(kept):
                prefetch(asked.places, candidates[k])
                prefetch(asked.starts, candidates[k])
            for k in range(kept):
                row = candidates[k]
                value, rarest = score(asked, row, stored, m, idf, metric)
                if rarest == word and value >= thresholds[row]:
                    if found == room:
                        full = True
                        break
                    out_rows[found], out_scores[found] = row, value
                    found += 1
            if full:
                break
        if full:
            found = before
            break
        done += 1
        out_offsets[done] = found
    return out_offsets[: done + 1], out_rows[:found], out_scores[:found]
