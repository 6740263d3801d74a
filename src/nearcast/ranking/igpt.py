"""IGPT: individual and group pruning, with the subscription index laid out as in the paper.

Section 5 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding Window" (2017).
A quadtree divides the places of subscriptions, and each leaf has an inverted file (section 5.3, Figure 5). Each posting
list is divided into groups by quantiles of α* = α / (1 - α) (section 5.2.1), and each group is ordered by
kScore* = θ / (1 - α). :class:`~nearcast.ranking.blocks.Blocks` gives the same answers several times faster. This index
is for comparison, and shows what each pruning is worth:

==============  ======================================================================================================
``prefix``      location-aware prefix (Definition 4, Lemma 3)
``max-weight``  max-weight refinement of the prefix (Definition 5, Theorem 1)
``outer``       outer spatial bound (Definition 7); without it, every message counts as being at the place
``inner``       inner spatial bound (Definitions 6 and 8)
``unseen``      bound for unseen keywords (Equation 5, Theorem 2)
``group``       group pruning (Lemma 5, Theorem 3)
``early``       early termination within a group (Theorem 4)
``cell``        cell-based pruning (Lemma 6)
==============  ======================================================================================================

The first five are individual pruning (section 5.1), the last three group pruning (section 5.2).

Three things differ from the paper:

- θ takes the place of kScore, as the remark in section 6.2 says.
- The posting lists are kept by word and then by leaf, not by leaf and then by word. A message walks through the leaves
  that have its words instead of looking up each word in every leaf.
- Algorithm 1, taken literally, loses results. A group that is skipped for one word may contain a subscription that an
  earlier word made a candidate. Its partial sum then lacks a word, so both Theorem 2 and the final score are computed
  from too little. Here Theorems 1 and 2 are applied only when a subscription is first met, where its partial sum is
  complete, and candidates are scored from scratch in the end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.errors import UnknownError, shown
from nearcast.kernels import kernel
from nearcast.ranking.curve import z_order
from nearcast.ranking.finder import PAIRS, wider
from nearcast.ranking.scoring import Metric, score
from nearcast.ranking.static import StaticFinder

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from nearcast.ranking.subscribers import SubscriptionTable
    from nearcast.ranking.windows import MessageTable

__all__ = ["IGPT", "PRUNINGS"]

PRUNINGS = ("prefix", "max-weight", "outer", "inner", "unseen", "group", "early", "cell")
_PREFIX, _MAX_WEIGHT, _OUTER, _INNER, _UNSEEN, _GROUP, _EARLY, _CELL = (1 << i for i in range(len(PRUNINGS)))
#: Above this α, kScore* and α* become too large to compute with: such a subscription is never skipped.
_EXTREME = 1.0 - 1e-6
_SLACK = 1e-9


class _Index(NamedTuple):
    """The leaves of the quadtree and their inverted files."""

    # of each leaf
    boxes: NDArray[np.float64]  # [leaves, 6]
    needs: NDArray[np.float64]  # the least λ_S of its subscriptions (Equation 8)
    members: NDArray[np.int64]  # [leaves + 1] into rows
    rows: NDArray[np.int32]
    # of each word: the leaves that have it, one list each
    words: NDArray[np.int64]  # [words + 1] into lists
    leaves: NDArray[np.int32]
    # of each list: its groups
    groups: NDArray[np.int64]  # [lists + 1]
    # of each group
    starts: NDArray[np.int64]  # [groups + 1] into the postings
    # of each posting
    locals_: NDArray[np.int32]  # the subscription, by its position among the members of the leaf
    kscores: NDArray[np.float64]  # kScore*
    alphas: NDArray[np.float64]  # α*
    weights: NDArray[np.float64]  # wt(s.w)
    sums: NDArray[np.float64]  # wtsum(s.w) (Equation 3)
    afters: NDArray[np.float64]  # maxwt of the words after w (Equation 4)
    inners: NDArray[np.float64]  # distance to the border of the leaf
    most_weights: NDArray[np.float64]  # maxwt(G[s]) (Equation 6)
    most_alphas: NDArray[np.float64]  # G[s].α* (Equation 7)


class IGPT(StaticFinder):
    """An index with individual and group pruning; see the module.

    *prunings* are the ones to use, by default all. *groups* is the number of groups of a posting list, *leaf* the most
    subscriptions in a leaf (section 8.1.1).
    """

    name = "igpt"

    def __init__(
        self,
        metric: Metric,
        prunings: Collection[str] = PRUNINGS,
        *,
        groups: int = config.RANKING_GROUPS,
        leaf: int = config.RANKING_LEAF,
    ) -> None:
        super().__init__(metric)
        for name in prunings:
            if name not in PRUNINGS:
                raise UnknownError(f"no pruning {shown(name)}; there are {', '.join(PRUNINGS)}")
        self._use = sum(1 << PRUNINGS.index(name) for name in set(prunings))
        self._groups, self._leaf = groups, leaf
        self._index: _Index | None = None
        self._leaf_of = np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return 0 if self._index is None else sum(array.nbytes for array in self._index)

    def stats(self) -> dict[str, Any]:
        """Figures about the quadtree."""
        return {} if self._index is None else {"quadtree_leaves": len(self._index.boxes)}

    def _lay_out(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        codes = z_order(subscriptions.places[rows])
        order = np.argsort(codes, kind="stable")
        rows, codes = rows[order], codes[order]
        cuts = np.array(_leaves(codes, self._leaf), np.int64)
        members = np.append(cuts, len(rows))
        leaf_of = np.repeat(np.arange(len(cuts)), np.diff(members))
        self._leaf_of = np.full(subscriptions.rows, -1, np.int32)
        self._leaf_of[rows] = leaf_of
        places = subscriptions.places[rows] * self._scale
        boxes = np.concatenate([np.minimum.reduceat(places, cuts), np.maximum.reduceat(places, cuts)], axis=1)
        counts = subscriptions.counts[rows].astype(np.int64)
        picks = np.arange(counts.sum()) + np.repeat(
            subscriptions.starts[rows] - (np.cumsum(counts) - counts), counts
        )
        words = subscriptions.words[picks]
        owner = np.repeat(np.arange(len(rows)), counts)  # position in rows
        alpha = np.minimum(subscriptions.alphas[rows], _EXTREME)
        star = alpha / (1 - alpha)
        # The α-partition (section 5.2.1): groups by quantiles of α* over all subscriptions.
        edges = np.quantile(star, np.linspace(0, 1, self._groups + 1)[1:-1]) if len(star) else np.empty(0)
        group = np.searchsorted(edges, star)[owner]
        theta = subscriptions.thresholds[rows] / (1 - alpha)
        extreme = subscriptions.alphas[rows] > _EXTREME
        theta, star = np.where(extreme, -1e300, theta), np.where(extreme, 0.0, star)
        order = np.lexsort((theta[owner], group, leaf_of[owner], words))
        words, owner, group, leaf = words[order], owner[order], group[order], leaf_of[owner][order]
        new_list = (np.diff(words, prepend=-1) != 0) | (np.diff(leaf, prepend=-1) != 0)
        new_group = new_list | (np.diff(group, prepend=-1) != 0)
        starts = np.append(np.flatnonzero(new_group), len(words))
        firsts = np.flatnonzero(new_list)
        weights, sums, afters = (np.empty(len(words)) for _ in range(3))
        _weigh(subscriptions, rows[owner], words, idf, weights, sums, afters)
        low, high = boxes[leaf, :3], boxes[leaf, 3:]
        here = places[owner]
        axes = slice(0, 3 if self.metric.radius else 2)  # in the plane, the third axis has no border
        inners = np.minimum(here - low, high - here)[:, axes].min(axis=1)
        self._index = _Index(
            boxes,
            _needs(subscriptions, rows, members),
            members,
            rows,
            np.searchsorted(words[firsts], np.arange(len(idf) + 1)),
            leaf[firsts].astype(np.int32),
            np.append(np.searchsorted(starts, firsts), len(starts) - 1),
            starts,
            (owner - members[leaf]).astype(np.int32),
            theta[owner],
            star[owner],
            weights,
            sums,
            afters,
            inners,
            np.empty(len(words)),
            np.empty(len(words)),
        )
        _all_suffixes(self._index)

    def _retune(self, subscriptions: SubscriptionTable, rows: NDArray[np.int32]) -> None:
        if self._index is not None:
            _retune(self._index, subscriptions, rows, self._leaf_of)

    def _search(
        self,
        subscriptions: SubscriptionTable,
        messages: MessageTable,
        begin: int,
        end: int,
        idf: NDArray[np.float64],
        counters: NDArray[np.int64],
        room: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
        if self._index is None:
            return np.zeros(end - begin + 1, np.int64), np.empty(0, np.int32), np.empty(0)
        found: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]] = _search(
            self._index,
            self._inside,
            subscriptions,
            messages,
            begin,
            end,
            idf,
            self.metric,
            self._scale,
            self._use,
            counters,
            room,
        )
        return found


def _leaves(codes: NDArray[np.uint64], most: int) -> list[int]:
    """Return where the leaves of a quadtree begin, given sorted positions on the Z-curve."""
    cuts: list[int] = []
    todo = [(0, len(codes), 60)]
    while todo:
        begin, end, bits = todo.pop()
        if end - begin <= most or bits == 0:
            if end > begin:
                cuts.append(begin)
            continue
        bits -= 3
        parts = (codes[begin:end] >> np.uint64(bits)) & np.uint64(7)
        edges = begin + np.searchsorted(parts, np.arange(9))
        todo += [(int(edges[i]), int(edges[i + 1]), bits) for i in range(8)]
    return sorted(cuts)


@kernel
def _weigh(
    subscriptions: SubscriptionTable,
    owners: NDArray[np.int32],
    words: NDArray[np.int32],
    idf: NDArray[np.float64],
    weights: NDArray[np.float64],
    sums: NDArray[np.float64],
    afters: NDArray[np.float64],
) -> None:
    """Write wt(s.w), wtsum(s.w) and the largest weight after w for each posting (Equations 3 and 4)."""
    for i in range(len(words)):
        row, word = owners[i], words[i]
        mine, total, after = idf[word], 0.0, 0.0
        for at in range(subscriptions.starts[row], subscriptions.starts[row] + subscriptions.counts[row]):
            other = subscriptions.words[at]
            if idf[other] < mine or (idf[other] == mine and other > word):
                total += idf[other]
                after = max(after, idf[other])
        weights[i] = mine / subscriptions.lengths[row]
        sums[i] = (mine + total) / subscriptions.lengths[row]
        afters[i] = after / subscriptions.lengths[row]


@kernel
def _need(subscriptions: SubscriptionTable, row: int) -> Any:
    """Return λ_S of a subscription (Equation 8)."""
    alpha = subscriptions.alphas[row]
    if alpha <= 0.0:
        return -np.inf if subscriptions.thresholds[row] <= 1.0 else np.inf
    return (subscriptions.thresholds[row] - (1.0 - alpha)) / alpha


@kernel
def _needs(subscriptions: SubscriptionTable, rows: NDArray[np.int32], members: NDArray[np.int64]) -> Any:
    out = np.empty(len(members) - 1)
    for leaf in range(len(out)):
        least = np.inf
        for i in range(members[leaf], members[leaf + 1]):
            least = min(least, _need(subscriptions, rows[i]))
        out[leaf] = least
    return out


@kernel
def _suffixes(index: _Index, group: int) -> None:
    """Compute maxwt(G[s]) and G[s].α* of a group (Equations 6 and 7)."""
    weight, alpha = 0.0, 0.0
    for p in range(index.starts[group + 1] - 1, index.starts[group] - 1, -1):
        weight = max(weight, index.weights[p])
        alpha = max(alpha, index.alphas[p])
        index.most_weights[p], index.most_alphas[p] = weight, alpha


@kernel
def _all_suffixes(index: _Index) -> None:
    for group in range(len(index.starts) - 1):
        _suffixes(index, group)


@kernel
def _retune(
    index: _Index, subscriptions: SubscriptionTable, rows: NDArray[np.int32], leaf_of: NDArray[np.int32]
) -> None:
    """Move the postings of rows with new thresholds to where they belong in their groups (section 5.5)."""
    for row in rows:
        leaf = leaf_of[row]
        index.needs[leaf] = min(index.needs[leaf], _need(subscriptions, row))
        if subscriptions.alphas[row] > _EXTREME:
            continue
        value = subscriptions.thresholds[row] / (1.0 - subscriptions.alphas[row])
        for at in range(subscriptions.starts[row], subscriptions.starts[row] + subscriptions.counts[row]):
            word = subscriptions.words[at]
            low, high = index.words[word], index.words[word + 1]
            number = low + np.searchsorted(index.leaves[low:high], leaf)
            for group in range(index.groups[number], index.groups[number + 1]):
                begin, end = index.starts[group], index.starts[group + 1]
                p = begin
                while p < end and index.rows[index.members[leaf] + index.locals_[p]] != row:
                    p += 1
                if p == end:
                    continue
                index.kscores[p] = value
                while p > begin and index.kscores[p - 1] > index.kscores[p]:
                    _swap(index, p - 1, p)
                    p -= 1
                while p + 1 < end and index.kscores[p + 1] < index.kscores[p]:
                    _swap(index, p, p + 1)
                    p += 1
                _suffixes(index, group)


@kernel
def _swap(index: _Index, i: int, j: int) -> None:
    index.locals_[i], index.locals_[j] = index.locals_[j], index.locals_[i]
    for column in (index.kscores, index.alphas, index.weights, index.sums, index.afters, index.inners):
        column[i], column[j] = column[j], column[i]


@kernel
def _stop(index: _Index, begin: int, end: int, total: float, near: float) -> Any:
    """Return ŝ of Theorem 4, the posting from which on a group is skipped, by binary search."""
    while begin < end:
        middle = (begin + end) // 2
        bound = index.kscores[middle] - index.most_alphas[middle] * near
        if index.most_weights[middle] * total < bound - _SLACK * (1.0 + abs(bound)):
            end = middle
        else:
            begin = middle + 1
    return begin


@kernel
def _search(
    index: _Index,
    inside: NDArray[np.bool_],
    subscriptions: SubscriptionTable,
    messages: MessageTable,
    begin: int,
    end: int,
    idf: NDArray[np.float64],
    metric: Metric,
    scale: float,
    use: int,
    counters: NDArray[np.int64],
    room: int,
) -> Any:
    """Run Algorithm 1 for the messages *begin* to *end*."""
    boxes, leaves, groups, starts = index.boxes, index.leaves, index.groups, index.starts
    out_offsets = np.zeros(end - begin + 1, np.int64)
    out_rows, out_scores = np.empty(PAIRS, np.int32), np.empty(PAIRS)
    widest = 0
    for leaf in range(len(boxes)):
        widest = max(widest, index.members[leaf + 1] - index.members[leaf])
    partial = np.zeros(widest)  # the map R: 0 if not met yet, below 0 if skipped
    seen = np.empty(widest, np.int32)
    found, done = 0, 0
    while done < end - begin and found < room:
        m = begin + done - messages.base
        low, high = messages.starts[m], messages.stops[m]
        words = messages.words[low:high]
        words = words[np.argsort(-idf[words], kind="mergesort")]
        count = len(words)
        weights, sums, mosts = np.empty(count), np.zeros(count + 1), np.zeros(count + 1)
        cursors, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for i in range(count - 1, -1, -1):
            weights[i] = idf[words[i]] / messages.lengths[m]
            sums[i] = sums[i + 1] + weights[i]
            mosts[i] = max(mosts[i + 1], weights[i])
            if words[i] + 1 < len(index.words):
                cursors[i], ends[i] = index.words[words[i]], index.words[words[i] + 1]
        x, y, z = messages.places[m, 0] * scale, messages.places[m, 1] * scale, messages.places[m, 2] * scale
        for leaf in range(len(boxes)):
            a = max(0.0, boxes[leaf, 0] - x, x - boxes[leaf, 3])
            b = max(0.0, boxes[leaf, 1] - y, y - boxes[leaf, 4])
            c = max(0.0, boxes[leaf, 2] - z, z - boxes[leaf, 5])
            outer = math.sqrt(a * a + b * b + c * c)
            near = max(0.0, 1.0 - outer) if use & _OUTER else 1.0
            counters[0] += 1
            # Lines 5 and 6: cell-based pruning.
            skipped = bool(use & _CELL) and index.needs[leaf] > near + _SLACK
            counters[1] += not skipped
            met = 0
            for i in range(count):
                while cursors[i] < ends[i] and leaves[cursors[i]] < leaf:
                    cursors[i] += 1
                if skipped or cursors[i] == ends[i] or leaves[cursors[i]] != leaf:
                    continue
                number = cursors[i]
                for group in range(groups[number], groups[number + 1]):
                    first, last = starts[group], starts[group + 1]
                    # Lines 11 and 12: group pruning.
                    bound = index.kscores[first] - index.most_alphas[first] * near
                    if use & _GROUP and index.most_weights[first] * sums[i] < bound - _SLACK * (
                        1.0 + abs(bound)
                    ):
                        continue
                    # Lines 13 to 16: early termination.
                    if use & _EARLY:
                        last = _stop(index, first, last, sums[i], near)
                    counters[2] += last - first
                    for p in range(first, last):
                        local = index.locals_[p]
                        if partial[local] < 0.0:
                            continue
                        # Lines 19 to 21: λ_T of Equation 2, and the location-aware prefix.
                        closest = near
                        if use & _INNER and outer > 0.0:
                            closest = max(0.0, near - index.inners[p])
                        need = index.kscores[p] - index.alphas[p] * closest
                        need -= _SLACK * (1.0 + abs(need))
                        fresh = partial[local] == 0.0
                        if fresh and use & _PREFIX:
                            most = mosts[i] if use & _MAX_WEIGHT else 1.0
                            if most * index.sums[p] < need:
                                continue
                        # Lines 22 to 28: the partial sum, and the bound for unseen keywords.
                        partial[local] += index.weights[p] * weights[i]
                        if not fresh:
                            continue
                        seen[met] = local
                        met += 1
                        if use & _UNSEEN:
                            rest = min(
                                (index.sums[p] - index.weights[p]) * mosts[i + 1],
                                sums[i + 1] * index.afters[p],
                            )
                            if partial[local] + rest < need:
                                partial[local] = -1.0
            # Line 29: verification.
            for k in range(met):
                alive = partial[seen[k]] > 0.0
                partial[seen[k]] = 0.0
                row = index.rows[index.members[leaf] + seen[k]]
                if not alive or not inside[row]:
                    continue
                counters[3] += 1
                value, rarest = score(subscriptions, row, messages, m, idf, metric)
                if rarest >= 0 and value >= subscriptions.thresholds[row]:
                    if found == len(out_rows):
                        out_rows, out_scores = wider(out_rows, found + 1), wider(out_scores, found + 1)
                    out_rows[found], out_scores[found] = row, value
                    found += 1
        done += 1
        out_offsets[done] = found
    return out_offsets[: done + 1], out_rows[:found], out_scores[:found]
