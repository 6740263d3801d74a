"""Which subscriptions does a message concern? Blocks of postings, pruned by reach.

The subscription index of section 5, transposed: a list for each word, and in it cells of space, instead of lists of
words in each cell of space. A message looks at its own words only, and the headers of a word's cells are side by side:
at a million subscriptions it reads some thousand headers one after the other instead of asking a thousand cells for
nine words each. Cells adapt to the word: a rare one has one, a frequent one as many as it needs.

Words are taken from the rarest to the most frequent (term at a time, Algorithm 1). The bounds:

========================  ============================================================================================
group pruning             a block, or a group of blocks, is skipped when the message is farther away than its *reach*
                          (Theorems 1 and 3, and Lemma 6), which depends on the weight of the message's words
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
from nearcast.columns.parts import nested, part_of
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.slabs import END, size_class
from nearcast.ranking.curve import z_order
from nearcast.ranking.finder import PAIRS, Finder, Found, wider
from nearcast.ranking.pool import (
    ALPHA,
    BLOCK,
    FIELDS,
    GROUP,
    LEVELS,
    SHARE,
    TAIL,
    THRESHOLD,
    Pool,
    Y,
    Z,
    empty_pool,
    find_posting,
    grown_pool,
    insert,
    pool_arrays,
    remove,
    summarize,
    take_headers,
    take_postings,
)
from nearcast.ranking.scoring import Metric, score, tail_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.ranking.subscribers import Asked
    from nearcast.ranking.windows import Stored

__all__ = ["Blocks"]

LINE = config.CACHE_LINE // 4  # numbers of four bytes in a cache line
AHEAD = 4  # blocks that are asked for before they are needed


class Blocks(Finder):
    """Blocks of postings; see the module."""

    name = "blocks"

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._scale = (metric.radius or 1.0) / metric.max_distance
        self._pool = empty_pool(1024, 1024, 4096, np.linspace(0.0, 1.0, LEVELS))
        self._rows = 0
        self._tuned = 0  # messages that the levels were chosen by

    @property
    def nbytes(self) -> int:
        """Memory."""
        return sum(array.nbytes for array in self._pool)

    def stats(self) -> dict[str, Any]:
        """Figures about the blocks."""
        return {"blocks": int(self._pool.blocks.sum()), "posting_slots": int(self._pool.posting_slabs[END])}

    def add(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Insert few rows; lay many out together with those that are there."""
        self._rows += len(rows)
        if len(rows) > max(config.RANKING_BULK, self._rows // 8):
            self._build(asked, rows, idf)
            return
        at = 0
        while at < len(rows):
            self._make_room(asked, rows[at], len(idf))
            at = _insert_rows(self._pool, asked, rows, at, idf, self._scale)

    def drop(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Take the postings of rows away."""
        self._rows -= len(rows)
        _remove_rows(self._pool, asked, rows, self._scale)

    def changed(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        """Let the postings of rows, and their blocks, know the new thresholds."""
        _change_rows(self._pool, asked, rows, self._scale)

    def tune(self, lengths: NDArray[np.float64], idf: NDArray[np.float64]) -> None:
        """Choose the levels by the messages there are, again when these have doubled."""
        if len(lengths) < 2 * self._tuned or not len(lengths):
            return
        self._tuned = len(lengths)
        self._pool.knots[1:-1] = np.quantile(1.0 / lengths, np.linspace(0, 1, LEVELS - 2))
        self._pool.knots[-1] = 1.0 / idf.min(initial=1.0)
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

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the pool, and by how many messages the levels were chosen."""
        return {"tuned": np.array([self._tuned]), **nested(pool=pool_arrays(self._pool))}

    def restore(
        self, arrays: Arrays, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Take the pool; there is no room in it until somebody needs some."""
        self._pool = Pool(**part_of(arrays, "pool"))
        self._rows, self._tuned = len(rows), int(arrays["tuned"][0])

    def _make_room(self, asked: Asked, row: int, words: int) -> None:
        """Let the postings of a row find their places, and those of many more."""
        pool = self._pool
        mine = asked.words[asked.starts[row] : asked.starts[row] + asked.counts[row]]
        known = mine[mine < len(pool.room)]
        headers = int(pool.header_slabs[END]) + 2 * int(pool.room[known].sum()) + GROUP * len(mine)
        postings = int(pool.posting_slabs[END]) + len(mine) * (2 * BLOCK + 4)
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
        pool = empty_pool(len(idf) + len(idf) // 4, headers, len(words) * 2 + 4 * headers, self._pool.knots)
        self._pool = pool
        _lay_out(pool, asked, owners[order], words[order], idf, self._scale)


def _owners(pool: Pool) -> NDArray[np.int32]:
    """Return the rows that have postings."""
    out = np.empty(int(pool.size[: int(pool.header_slabs[END])].sum()), np.int32)
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
        headers, postings = pool.header_slabs[END], pool.posting_slabs[END]
        for i in range(asked.starts[row], asked.starts[row] + asked.counts[row]):
            headers += 2 * pool.room[asked.words[i]] + GROUP
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
                summarize(pool, word, header)


@kernel
def _summarize_all(pool: Pool) -> None:
    for word in range(len(pool.first)):
        for header in range(pool.first[word], pool.first[word] + pool.blocks[word]):
            summarize(pool, word, header)


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
        room = 1 << size_class(blocks)
        first = take_headers(pool, room)
        pool.first[word], pool.blocks[word], pool.room[word] = first, blocks, room
        for block in range(blocks):
            low, high = begin + block * count // blocks, begin + (block + 1) * count // blocks
            capacity = BLOCK if blocks > 1 else max(4, 1 << size_class(high - low))
            header = first + block
            pool.at[header], pool.capacity[header] = take_postings(pool, capacity), capacity
            pool.size[header] = high - low
            for i in range(high - low):
                _posting(asked, owners[low + i], word, idf, scale, posting)
                pool.owners[pool.at[header] + i] = owners[low + i]
                for field in range(FIELDS):
                    pool.fields[pool.at[header] * FIELDS + field * capacity + i] = posting[field]
            summarize(pool, word, header)
        begin = end


@kernel
def _near(
    boxes: NDArray[np.float32],
    reach: NDArray[np.float32],
    start: int,
    stop: int,
    level: int,
    share: np.float32,
    place: tuple[np.float32, ...],
    slack: np.float32,
    out: NDArray[np.float32],
) -> None:
    """Write for some blocks, or groups of them, by how much a message is inside their reach; below 0 it is not.

    The reach is a convex function of the message's weight (the largest of linear ones): between two knots it is at most
    what a straight line says.
    """
    x0, y0, z0 = boxes[0, start:stop], boxes[1, start:stop], boxes[2, start:stop]
    x1, y1, z1 = boxes[3, start:stop], boxes[4, start:stop], boxes[5, start:stop]
    below, above = reach[level, start:stop], reach[level + 1, start:stop]
    x, y, z = place
    zero, one = np.float32(0.0), np.float32(1.0)
    for i in range(stop - start):
        a = max(zero, x0[i] - x, x - x1[i])
        b = max(zero, y0[i] - y, y - y1[i])
        c = max(zero, z0[i] - z, z - z1[i])
        most = below[i] + share * (above[i] - below[i]) + slack * (one + abs(below[i]) + abs(above[i]))
        inside = most * abs(most) - (a * a + b * b + c * c)
        out[i] = inside if most < one else one  # who reaches the farthest distance reaches everything


@kernel
def _near_blocks(
    pool: Pool,
    word: int,
    level: int,
    share: np.float32,
    place: tuple[np.float32, ...],
    slack: np.float32,
    margins: NDArray[np.float32],
    group_margins: NDArray[np.float32],
    out: NDArray[np.int64],
) -> Any:
    """Write the blocks of a word that a message is near, group by group where there are many; return how many."""
    start, stop, count = pool.first[word], pool.first[word] + pool.blocks[word], 0
    first, last, each = start, start + 1, stop - start  # one range of all
    if stop - start >= 2 * GROUP:
        first, last, each = start // GROUP, (stop + GROUP - 1) // GROUP, GROUP
        _near(pool.group_boxes, pool.group_reach, first, last, level, share, place, slack, group_margins)
    else:
        group_margins[0] = np.float32(0.0)
    for group in range(last - first):
        if group_margins[group] >= np.float32(0.0):
            low = start + group * each
            high = min(low + each, stop)
            _near(pool.boxes, pool.reach, low, high, level, share, place, slack, margins)
            for k in range(high - low):
                out[count] = low + k
                count += margins[k] >= np.float32(0.0)
    return count


@kernel
def _margins(
    fields: NDArray[np.float32],
    base: int,
    wide: int,
    n: int,
    place: tuple[np.float32, ...],
    inverse: np.float32,
    contribution: np.float32,
    slack: np.float32,
    out: NDArray[np.float32],
) -> None:
    """Write for each posting of a block by how much the best score that is possible passes θ."""
    xs, ys, zs = (
        fields[base : base + n],
        fields[base + Y * wide : base + Y * wide + n],
        fields[base + Z * wide : base + Z * wide + n],
    )
    alphas, shares, tails, thresholds = (
        fields[base + ALPHA * wide : base + ALPHA * wide + n],
        fields[base + SHARE * wide : base + SHARE * wide + n],
        fields[base + TAIL * wide : base + TAIL * wide + n],
        fields[base + THRESHOLD * wide : base + THRESHOLD * wide + n],
    )
    x, y, z = place
    for i in range(n):
        a, b, c = xs[i] - x, ys[i] - y, zs[i] - z
        near = max(np.float32(0.0), np.float32(1.0) - np.float32(math.sqrt(a * a + b * b + c * c)))
        tail = min(tails[i], contribution)
        out[i] = alphas[i] * near + shares[i] * inverse * tail + slack - thresholds[i]


@kernel
def _prefetch_block(pool: Pool, header: int) -> None:
    at, capacity = pool.at[header], pool.capacity[header]
    for i in range(at * FIELDS, (at + capacity) * FIELDS, LINE):
        prefetch(pool.fields, i)
    for i in range(at, at + capacity, LINE):
        prefetch(pool.owners, i)


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

    Three rounds for each message, so that misses overlap: over the headers of its words, over the postings of the
    blocks that are near, over the subscriptions that are left.
    """
    blocks, at, capacity, size = pool.blocks, pool.at, pool.capacity, pool.size
    owners, fields, knots = pool.owners, pool.fields, pool.knots
    words = stored.words
    thresholds, starts = asked.thresholds, asked.starts
    out_offsets = np.zeros(end - begin + 1, np.int64)
    out_rows, out_scores = np.empty(PAIRS, np.int32), np.empty(PAIRS)
    near, near_words = np.empty(1024, np.int64), np.empty(1024, np.int32)
    kept_rows, kept_words = np.empty(1024, np.int32), np.empty(1024, np.int32)
    margins, group_margins = np.empty(1024, np.float32), np.empty(1024, np.float32)
    zero, slack = np.float32(0.0), np.float32(metric.slack)
    found, done = 0, 0
    while done < end - begin and found < room:
        m = begin + done - stored.base
        low, high = stored.starts[m], stored.stops[m]
        inverse = 1.0 / stored.lengths[m]
        level = 0
        while level < LEVELS - 2 and inverse > knots[level + 1]:
            level += 1
        share = np.float32((inverse - knots[level]) / max(knots[level + 1] - knots[level], 1e-300))
        if inverse > knots[LEVELS - 1]:
            share = np.float32(np.inf)  # nothing is known of so much weight: all blocks are near
        place = (
            np.float32(stored.places[m, 0] * scale),
            np.float32(stored.places[m, 1] * scale),
            np.float32(stored.places[m, 2] * scale),
        )
        hits = 0
        for i in range(low, high):
            word = words[i]
            if word >= len(blocks) or blocks[word] == 0:
                continue
            if blocks[word] > len(margins):
                margins, group_margins = wider(margins, blocks[word]), wider(group_margins, blocks[word])
            if hits + blocks[word] > len(near):
                near, near_words = wider(near, hits + blocks[word]), wider(near_words, hits + blocks[word])
            more = _near_blocks(pool, word, level, share, place, slack, margins, group_margins, near[hits:])
            near_words[hits : hits + more] = word
            hits += more
            counters[0] += blocks[word]
        counters[1] += hits
        kept = 0
        for k in range(min(hits, AHEAD)):
            _prefetch_block(pool, near[k])
        for k in range(hits):
            if k + AHEAD < hits:
                _prefetch_block(pool, near[k + AHEAD])
            header, word = near[k], near_words[k]
            n, start = size[header], at[header]
            if kept + n > len(kept_rows):
                kept_rows, kept_words = wider(kept_rows, kept + n), wider(kept_words, kept + n)
            tail = 0.0  # of the words of the message from this one on: what they can contribute, at most
            for i in range(low, high):
                tail += idf[words[i]] * idf[words[i]] * (idf[words[i]] <= idf[word])
            contribution = np.float32(tail * (1.0 + config.RANKING_SLACK))
            _margins(
                fields,
                start * FIELDS,
                capacity[header],
                n,
                place,
                np.float32(inverse),
                contribution,
                slack,
                margins,
            )
            for i in range(n):
                kept_rows[kept], kept_words[kept] = owners[start + i], word
                kept += margins[i] >= zero
            counters[2] += n
        counters[3] += kept
        for k in range(kept):
            prefetch(thresholds, kept_rows[k])
        for k in range(kept):
            prefetch(asked.words, starts[kept_rows[k]])
        if found + kept > len(out_rows):
            out_rows, out_scores = wider(out_rows, found + kept), wider(out_scores, found + kept)
        for k in range(kept):
            row = kept_rows[k]
            value, rarest = score(asked, row, stored, m, idf, metric)
            out_rows[found], out_scores[found] = row, value
            # A subscription that shares several words is found by the rarest of them.
            found += (rarest == kept_words[k]) & (value >= thresholds[row])
        done += 1
        out_offsets[done] = found
    return out_offsets[: done + 1], out_rows[:found], out_scores[:found]
