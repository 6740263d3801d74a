"""The subscription index: blocks of postings, pruned by their reach.

This is message dissemination (section 5, Algorithm 1) of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword
Publish/Subscribe Over Sliding Window" (2017), with the index turned around. The paper has a quadtree with an inverted
file in each leaf (:mod:`~nearcast.ranking.igpt`). Here each word has one posting list, divided into blocks of postings
that lie close together (:mod:`~nearcast.ranking.postings`). A message reads only the lists of its own words, and the
headers of a word's blocks are side by side in memory: at a million subscriptions it reads some thousand headers in a
row instead of looking up nine words in each of a thousand cells. A rare word has one block, a frequent one as many as
it needs.

Words are ordered from the rarest to the most frequent, as in section 3. The prunings of the paper, and what stands for
them:

=====================================  ================================================================================
group pruning (Theorem 3),             A block, or a group of blocks, is skipped if the message is farther away than
cell-based pruning (Lemma 6)           its *reach*, which depends on the weight of the message's words: :func:`_near`.
outer spatial bound (Definition 7)     The distance from the message to the box of a block, also in :func:`_near`.
individual pruning (Theorem 1),        A posting is skipped if its distance and the words from its own on, be they those
unseen keywords (Equation 5)           of the subscription or those of the message, cannot reach θ: :func:`_margins`.
=====================================  ================================================================================

Three things differ from Algorithm 1. There is no map R of partial sums: what is left is verified at once, when its
rarest common word is met (lines 22 to 29). There is no early termination (Theorem 4) and no inner spatial bound
(Definition 6): all postings of a block are compared, by their own distances. And θ takes the place of kScore, as the
remark in section 6.2 says.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.columns.parts import nested, part_of
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.slabs import END, size_class
from nearcast.kernels.threads import side_by_side
from nearcast.ranking.curve import z_order
from nearcast.ranking.finder import PAIRS, Finder, Hits, wider
from nearcast.ranking.postings import (
    ALPHA,
    BLOCK,
    FIELDS,
    GROUP,
    LEVELS,
    SHARE,
    TAIL,
    THRESHOLD,
    PostingLists,
    Y,
    Z,
    change_threshold,
    empty_lists,
    find_posting,
    grown_lists,
    insert,
    list_arrays,
    remove,
    summarize,
    take_headers,
    take_postings,
)
from nearcast.ranking.scoring import Metric, score, tail_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.ranking.subscribers import SubscriptionTable
    from nearcast.ranking.windows import MessageTable

__all__ = ["Blocks"]

LINE = config.CACHE_LINE // 4  # four-byte numbers in a cache line
AHEAD = 4  # how many blocks ahead memory is prefetched
SHARED = 128  # rows whose thresholds a thread should have to change


class Blocks(Finder):
    """An index of blocks of postings; see the module."""

    name = "blocks"

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._scale = (metric.radius or 1.0) / metric.max_distance
        self._lists = empty_lists(1024, 1024, 4096, np.linspace(0.0, 1.0, LEVELS))
        self._rows = 0
        self._words = 0  # how many words may have postings
        self._tuned = 0  # how many messages the knots were chosen by

    def __deepcopy__(self, memo: dict[int, Any]) -> Blocks:
        """Return a copy, without the addresses that are not in use."""
        twin, lists = copy.copy(self), list_arrays(self._lists, self._words)
        twin._lists = PostingLists(**{name: array.copy() for name, array in lists.items()})
        return twin

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(array.nbytes for array in list_arrays(self._lists, self._words).values())

    def stats(self) -> dict[str, Any]:
        """Figures about the blocks."""
        blocks, slots = self._lists.blocks[: self._words].sum(), self._lists.posting_slabs[END]
        return {"blocks": int(blocks), "posting_slots": int(slots)}

    def add(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Insert rows one by one or, if they are many, lay out all rows again."""
        self._rows += len(rows)
        old, self._words = self._words, len(idf)
        if len(rows) > max(config.RANKING_BULK, self._rows // 8):
            self._build(subscriptions, np.concatenate([_owners(self._lists, old), rows]), idf)
            return
        at = 0
        while at < len(rows):
            self._make_room(subscriptions, rows[at], len(idf))
            at = _insert_rows(self._lists, subscriptions, rows, at, idf, self._scale)

    def drop(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Remove the postings of rows."""
        self._rows -= len(rows)
        _remove_rows(self._lists, subscriptions, rows, self._scale)

    def update(
        self,
        subscriptions: SubscriptionTable,
        rows: NDArray[np.int32],
        idf: NDArray[np.float64],
        threads: int = 1,
    ) -> None:
        """Write the new thresholds of rows to their postings and blocks; if rows are many, threads share the words."""
        parts = min(threads, 1 + len(rows) // SHARED)

        def change(part: int) -> None:
            _change_rows(self._lists, subscriptions, rows, self._scale, part, parts)

        side_by_side(change, range(parts), parts)

    def tune(self, lengths: NDArray[np.float64], idf: NDArray[np.float64]) -> None:
        """Choose the knots by the messages in the window, again each time their number has doubled, until it is large.

        That computes all headers again. More messages would hardly change the knots.
        """
        if len(lengths) < 2 * self._tuned or not len(lengths) or self._tuned >= config.RANKING_TUNED:
            return
        self._tuned = len(lengths)
        self._lists.knots[1:-1] = np.quantile(1.0 / lengths, np.linspace(0, 1, LEVELS - 2))
        self._lists.knots[-1] = 1.0 / idf.min(initial=1.0)
        _summarize_all(self._lists, self._words)

    def find(
        self,
        subscriptions: SubscriptionTable,
        messages: MessageTable,
        begin: int,
        end: int,
        idf: NDArray[np.float64],
        room: int,
    ) -> Hits:
        """Run Algorithm 1."""
        counters = np.zeros(4, np.int64)
        offsets, rows, scores = _find(
            self._lists, subscriptions, messages, begin, end, idf, self.metric, self._scale, counters, room
        )
        return Hits(offsets, rows, scores, counters)

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the posting lists, and how many messages the knots were chosen by."""
        return {"tuned": np.array([self._tuned]), **nested(lists=list_arrays(self._lists, self._words))}

    def restore(
        self,
        arrays: Arrays,
        subscriptions: SubscriptionTable,
        rows: NDArray[np.int32],
        idf: NDArray[np.float64],
    ) -> None:
        """Take the posting lists as they are; they get room to grow when they need it."""
        self._lists = PostingLists(**part_of(arrays, "lists"))
        self._rows, self._words = len(rows), len(self._lists.first)
        self._tuned = int(arrays["tuned"][0])

    def _make_room(self, subscriptions: SubscriptionTable, row: int, words: int) -> None:
        """Make room for the postings of a row, and of many more."""
        lists = self._lists
        mine = subscriptions.words[
            subscriptions.starts[row] : subscriptions.starts[row] + subscriptions.counts[row]
        ]
        known = mine[mine < len(lists.room)]
        headers = int(lists.header_slabs[END]) + 2 * int(lists.room[known].sum()) + GROUP * len(mine)
        postings = int(lists.posting_slabs[END]) + len(mine) * (2 * BLOCK + 4)
        if words > len(lists.first) or headers > len(lists.at) or postings > len(lists.owners):
            self._lists = grown_lists(
                lists, words + words // 4, headers + headers // 2, postings + postings // 2
            )

    def _build(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        """Lay out the postings of *rows*, which may be named several times, ordered by word and by place."""
        rows = np.unique(rows)
        counts = subscriptions.counts[rows].astype(np.int64)
        owners = np.repeat(rows, counts)
        picks = np.arange(counts.sum()) + np.repeat(
            subscriptions.starts[rows] - (np.cumsum(counts) - counts), counts
        )
        words = subscriptions.words[picks]
        order = np.lexsort((z_order(subscriptions.places)[owners], words))
        headers = int(len(words) // BLOCK * 4 + 4 * np.count_nonzero(np.bincount(words)) + 4096)
        lists = empty_lists(
            len(idf) + len(idf) // 4, headers, len(words) * 2 + 4 * headers, self._lists.knots
        )
        self._lists = lists
        _lay_out(lists, subscriptions, owners[order], words[order], idf, self._scale)


def _owners(lists: PostingLists, words: int) -> NDArray[np.int32]:
    """Return the rows that have postings, for each of them."""
    out = np.empty(int(lists.size[: int(lists.header_slabs[END])].sum()), np.int32)
    return out[: _collect_owners(lists, words, out)]


@kernel
def _collect_owners(lists: PostingLists, words: int, out: NDArray[np.int32]) -> Any:
    count = 0
    for word in range(words):
        for header in range(lists.first[word], lists.first[word] + lists.blocks[word]):
            for i in range(lists.size[header]):
                out[count] = lists.owners[lists.at[header] + i]
                count += 1
    return count


@kernel
def _posting(
    subscriptions: SubscriptionTable,
    row: int,
    word: int,
    idf: NDArray[np.float64],
    scale: float,
    out: NDArray[np.float32],
) -> None:
    """Write the fields of the posting that a subscription has for a word."""
    for axis in range(3):
        out[axis] = subscriptions.places[row, axis] * scale
    out[ALPHA] = subscriptions.alphas[row]
    out[SHARE] = (1.0 - subscriptions.alphas[row]) / subscriptions.lengths[row]
    out[TAIL] = tail_of(subscriptions, row, word, idf)
    out[THRESHOLD] = subscriptions.thresholds[row]


@kernel
def _insert_rows(
    lists: PostingLists,
    subscriptions: SubscriptionTable,
    rows: NDArray[np.int32],
    begin: int,
    idf: NDArray[np.float64],
    scale: float,
) -> Any:
    """Insert the postings of rows from *begin* on; return the first row that there was no room for."""
    posting = np.empty(FIELDS, np.float32)
    for at in range(begin, len(rows)):
        row = rows[at]
        headers, postings = lists.header_slabs[END], lists.posting_slabs[END]
        for i in range(subscriptions.starts[row], subscriptions.starts[row] + subscriptions.counts[row]):
            headers += 2 * lists.room[subscriptions.words[i]] + GROUP
            postings += 2 * BLOCK + 4
        if headers > len(lists.at) or postings > len(lists.owners):
            return at
        for i in range(subscriptions.starts[row], subscriptions.starts[row] + subscriptions.counts[row]):
            word = subscriptions.words[i]
            _posting(subscriptions, row, word, idf, scale, posting)
            insert(lists, word, row, posting)
    return len(rows)


@kernel
def _remove_rows(
    lists: PostingLists, subscriptions: SubscriptionTable, rows: NDArray[np.int32], scale: float
) -> None:
    place = np.empty(3, np.float32)
    for row in rows:
        for axis in range(3):
            place[axis] = subscriptions.places[row, axis] * scale
        for i in range(subscriptions.starts[row], subscriptions.starts[row] + subscriptions.counts[row]):
            word = subscriptions.words[i]
            remove(lists, word, row, place[0], place[1], place[2])


@kernel
def _change_rows(
    lists: PostingLists,
    subscriptions: SubscriptionTable,
    rows: NDArray[np.int32],
    scale: float,
    part: int,
    parts: int,
) -> None:
    """Write new thresholds to the postings of words with ``word % parts == part``, and to their blocks."""
    starts, counts, words = subscriptions.starts, subscriptions.counts, subscriptions.words
    place = np.empty(3, np.float32)
    for i in range(len(rows)):
        if i + 2 * AHEAD < len(rows):
            prefetch(subscriptions.places, rows[i + 2 * AHEAD])
        if i + AHEAD < len(rows):
            prefetch(words, starts[rows[i + AHEAD]])
        row = rows[i]
        for axis in range(3):
            place[axis] = subscriptions.places[row, axis] * scale
        for at in range(starts[row], starts[row] + counts[row]):
            if words[at] % parts == part:
                header, k = find_posting(lists, words[at], row, place[0], place[1], place[2])
                if header >= 0:
                    change_threshold(lists, words[at], header, k, subscriptions.thresholds[row])


@kernel
def _summarize_all(lists: PostingLists, words: int) -> None:
    for word in range(words):
        for header in range(lists.first[word], lists.first[word] + lists.blocks[word]):
            summarize(lists, word, header)


@kernel
def _lay_out(
    lists: PostingLists,
    subscriptions: SubscriptionTable,
    owners: NDArray[np.int32],
    words: NDArray[np.int32],
    idf: NDArray[np.float64],
    scale: float,
) -> None:
    """Fill empty lists with postings that are ordered by word and place."""
    posting = np.empty(FIELDS, np.float32)
    begin = 0
    while begin < len(words):
        word, end = words[begin], begin
        while end < len(words) and words[end] == word:
            end += 1
        count = end - begin
        blocks = 1 if count <= BLOCK else (4 * count + 3 * BLOCK - 1) // (3 * BLOCK)
        room = 1 << size_class(blocks)
        first = take_headers(lists, room)
        lists.first[word], lists.blocks[word], lists.room[word] = first, blocks, room
        for block in range(blocks):
            low, high = begin + block * count // blocks, begin + (block + 1) * count // blocks
            capacity = BLOCK if blocks > 1 else max(4, 1 << size_class(high - low))
            header = first + block
            lists.at[header], lists.capacity[header] = take_postings(lists, capacity), capacity
            lists.size[header] = high - low
            for i in range(high - low):
                _posting(subscriptions, owners[low + i], word, idf, scale, posting)
                lists.owners[lists.at[header] + i] = owners[low + i]
                for field in range(FIELDS):
                    lists.fields[lists.at[header] * FIELDS + field * capacity + i] = posting[field]
            summarize(lists, word, header)
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
    """Write how far inside the reach of each block, or group of blocks, a message is; below 0 it is outside.

    The reach is a convex function of the message's weight, since it is the maximum of linear ones. Between two knots
    it is therefore at most what a straight line gives. *share* is the message's position between the two.
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
        out[i] = inside if most < one else one  # beyond the largest distance, nearness stays 0


@kernel
def _near_blocks(
    lists: PostingLists,
    word: int,
    level: int,
    share: np.float32,
    place: tuple[np.float32, ...],
    slack: np.float32,
    margins: NDArray[np.float32],
    group_margins: NDArray[np.float32],
    out: NDArray[np.int64],
) -> Any:
    """Write the blocks of a word whose reach a message is in; return how many. Many blocks are asked by group first."""
    start, stop, count = lists.first[word], lists.first[word] + lists.blocks[word], 0
    first, last, each = start, start + 1, stop - start  # one group of all
    if stop - start >= 2 * GROUP:
        first, last, each = start // GROUP, (stop + GROUP - 1) // GROUP, GROUP
        _near(lists.group_boxes, lists.group_reach, first, last, level, share, place, slack, group_margins)
    else:
        group_margins[0] = np.float32(0.0)
    for group in range(last - first):
        if group_margins[group] >= np.float32(0.0):
            low = start + group * each
            high = min(low + each, stop)
            _near(lists.boxes, lists.reach, low, high, level, share, place, slack, margins)
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
    """Write by how much the best possible score of each posting of a block exceeds θ (Theorem 1 and Equation 5)."""
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
def _prefetch_block(lists: PostingLists, header: int) -> None:
    at, capacity = lists.at[header], lists.capacity[header]
    for i in range(at * FIELDS, (at + capacity) * FIELDS, LINE):
        prefetch(lists.fields, i)
    for i in range(at, at + capacity, LINE):
        prefetch(lists.owners, i)


@kernel
def _find(
    lists: PostingLists,
    subscriptions: SubscriptionTable,
    messages: MessageTable,
    begin: int,
    end: int,
    idf: NDArray[np.float64],
    metric: Metric,
    scale: float,
    counters: NDArray[np.int64],
    room: int,
) -> Any:
    """Run Algorithm 1 for the messages *begin* to *end*: find the rows that reach θ, and their scores.

    Each message takes three rounds, so that cache misses overlap: over the headers of its words, over the postings of
    the blocks that are near, and over the subscriptions that are left.
    """
    blocks, at, capacity, size = lists.blocks, lists.at, lists.capacity, lists.size
    owners, fields, knots = lists.owners, lists.fields, lists.knots
    words = messages.words
    thresholds, starts = subscriptions.thresholds, subscriptions.starts
    out_offsets = np.zeros(end - begin + 1, np.int64)
    out_rows, out_scores = np.empty(PAIRS, np.int32), np.empty(PAIRS)
    near, near_words = np.empty(1024, np.int64), np.empty(1024, np.int32)
    kept_rows, kept_words = np.empty(1024, np.int32), np.empty(1024, np.int32)
    margins, group_margins = np.empty(1024, np.float32), np.empty(1024, np.float32)
    zero, slack = np.float32(0.0), np.float32(metric.slack)
    found, done = 0, 0
    while done < end - begin and found < room:
        m = begin + done - messages.base
        low, high = messages.starts[m], messages.stops[m]
        inverse = 1.0 / messages.lengths[m]
        level = 0
        while level < LEVELS - 2 and inverse > knots[level + 1]:
            level += 1
        share = np.float32((inverse - knots[level]) / max(knots[level + 1] - knots[level], 1e-300))
        if inverse > knots[LEVELS - 1]:
            share = np.float32(np.inf)  # heavier than the last knot: all blocks are near
        place = (
            np.float32(messages.places[m, 0] * scale),
            np.float32(messages.places[m, 1] * scale),
            np.float32(messages.places[m, 2] * scale),
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
            more = _near_blocks(lists, word, level, share, place, slack, margins, group_margins, near[hits:])
            near_words[hits : hits + more] = word
            hits += more
            counters[0] += blocks[word]
        counters[1] += hits
        kept = 0
        for k in range(min(hits, AHEAD)):
            _prefetch_block(lists, near[k])
        for k in range(hits):
            if k + AHEAD < hits:
                _prefetch_block(lists, near[k + AHEAD])
            header, word = near[k], near_words[k]
            n, start = size[header], at[header]
            if kept + n > len(kept_rows):
                kept_rows, kept_words = wider(kept_rows, kept + n), wider(kept_words, kept + n)
            tail = 0.0  # the most that the words of the message from this one on can contribute
            for i in range(low, high):
                weight = idf[words[i]]
                if weight < idf[word] or (weight == idf[word] and words[i] <= word):
                    tail += weight * weight
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
            prefetch(subscriptions.words, starts[kept_rows[k]])
        if found + kept > len(out_rows):
            out_rows, out_scores = wider(out_rows, found + kept), wider(out_scores, found + kept)
        for k in range(kept):
            row = kept_rows[k]
            value, rarest = score(subscriptions, row, messages, m, idf, metric)
            out_rows[found], out_scores[found] = row, value
            # A subscription that shares several words is met several times; the rarest word counts.
            found += (rarest == kept_words[k]) & (value >= thresholds[row])
        done += 1
        out_offsets[done] = found
    return out_offsets[: done + 1], out_rows[:found], out_scores[:found]
