"""IGPT: the subscription index of section 5, as the paper lays it out.

A quadtree over the places of subscriptions; in each leaf an inverted file; each posting list divided by quantiles of
α* = α / (1 - α) into groups; each group ordered by kScore* = θ / (1 - α). :class:`~nearcast.ranking.blocks.Blocks`
answers the same questions several times faster; this one is for comparison, and to see what each pruning is worth:

==============  ======================================================================================================
``prefix``      location-aware prefix (Lemma 3), refined by the largest weight with ``max-weight`` (Theorem 1)
``outer``       outer spatial bound (Definition 7); without it every message is as near as can be
``inner``       inner spatial bound (Definitions 6 and 8)
``unseen``      bound for unseen keywords (Theorem 2)
``group``       group pruning (Theorem 3)
``early``       early termination within a group (Theorem 4)
``cell``        cell pruning (Lemma 6)
==============  ======================================================================================================

The posting lists are kept by word and then by leaf, not by leaf and then by word, so that a message walks through the
leaves that have its words instead of asking every leaf for each of them.

Algorithm 1, taken literally, loses results: a group that is skipped at one word may hold a subscription that an earlier
word made a candidate; its partial sum then lacks a word, and Theorem 2, or the final score, is computed from too
little. Theorems 1 and 2 are therefore applied when a subscription is met first, where its partial sum is complete, and
candidates are scored anew in the end.
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
from nearcast.ranking.laid import Laid
from nearcast.ranking.scoring import Metric, score

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from nearcast.ranking.subscribers import Asked
    from nearcast.ranking.windows import Stored

__all__ = ["IGPT", "PRUNINGS"]

PRUNINGS = ("prefix", "max-weight", "outer", "inner", "unseen", "group", "early", "cell")
_PREFIX, _MAX_WEIGHT, _OUTER, _INNER, _UNSEEN, _GROUP, _EARLY, _CELL = (1 << i for i in range(len(PRUNINGS)))
_EXTREME = (
    1.0 - 1e-6
)  # from this α on, kScore* and α* are beyond measure: such a subscription is never skipped
_SLACK = 1e-9


class _Index(NamedTuple):
    """The quadtree and its inverted files."""

    # of each leaf
    boxes: NDArray[np.float64]  # [leaves, 6]
    needs: NDArray[np.float64]  # the least λ_S of its subscriptions (Equation 8)
    members: NDArray[np.int64]  # [leaves + 1] into rows
    rows: NDArray[np.int32]
    # by word: the leaves that have it
    words: NDArray[np.int64]  # [words + 1] into lists
    leaves: NDArray[np.int32]
    # by list: its groups
    groups: NDArray[np.int64]  # [lists + 1]
    # of each group
    starts: NDArray[np.int64]  # [groups + 1] into the postings
    # of each posting
    locals_: NDArray[np.int32]  # the subscription, by its place among the members of the leaf
    kscores: NDArray[np.float64]  # kScore*
    alphas: NDArray[np.float64]  # α*
    weights: NDArray[np.float64]  # wt(s.w)
    sums: NDArray[np.float64]  # wtsum(s.w), Equation 3
    afters: NDArray[np.float64]  # maxwt of the words after w
    inners: NDArray[np.float64]  # distance to the border of the leaf
    most_weights: NDArray[np.float64]  # Equation 6
    most_alphas: NDArray[np.float64]  # Equation 7


class IGPT(Laid):
    """Individual and group pruning; see the module.

    *prunings* are those to use, all of them by default; *groups* and *leaf* are the paper's parameters.
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
        """Memory."""
        return 0 if self._index is None else sum(array.nbytes for array in self._index)

    def stats(self) -> dict[str, Any]:
        """Figures about the quadtree."""
        return {} if self._index is None else {"quadtree_leaves": len(self._index.boxes)}

    def _lay_out(self, asked: Asked, rows: NDArray[np.int32], idf: NDArray[np.float64]) -> None:
        codes = z_order(asked.places[rows])
        order = np.argsort(codes, kind="stable")
        rows, codes = rows[order], codes[order]
        cuts = np.array(_leaves(codes, self._leaf), np.int64)
        members = np.append(cuts, len(rows))
        leaf_of = np.repeat(np.arange(len(cuts)), np.diff(members))
        self._leaf_of = np.full(asked.rows, -1, np.int32)
        self._leaf_of[rows] = leaf_of
        places = asked.places[rows] * self._scale
        boxes = np.concatenate([np.minimum.reduceat(places, cuts), np.maximum.reduceat(places, cuts)], axis=1)
        counts = asked.counts[rows].astype(np.int64)
        picks = np.arange(counts.sum()) + np.repeat(asked.starts[rows] - (np.cumsum(counts) - counts), counts)
        words = asked.words[picks]
        owner = np.repeat(np.arange(len(rows)), counts)  # position in rows
        alpha = np.minimum(asked.alphas[rows], _EXTREME)
        star = alpha / (1 - alpha)
        # Groups by quantiles of α* (section 5.2.1): as many as the list is long enough for.
        edges = np.quantile(star, np.linspace(0, 1, self._groups + 1)[1:-1]) if len(star) else np.empty(0)
        group = np.searchsorted(edges, star)[owner]
        theta = asked.thresholds[rows] / (1 - alpha)
        extreme = asked.alphas[rows] > _EXTREME
        theta, star = np.where(extreme, -1e300, theta), np.where(extreme, 0.0, star)
        order = np.lexsort((theta[owner], group, leaf_of[owner], words))
        words, owner, group, leaf = words[order], owner[order], group[order], leaf_of[owner][order]
        new_list = (np.diff(words, prepend=-1) != 0) | (np.diff(leaf, prepend=-1) != 0)
        new_group = new_list | (np.diff(group, prepend=-1) != 0)
        starts = np.append(np.flatnonzero(new_group), len(words))
        firsts = np.flatnonzero(new_list)
        weights, sums, afters = (np.empty(len(words)) for _ in range(3))
        _weigh(asked, rows[owner], words, idf, weights, sums, afters)
        low, high = boxes[leaf, :3], boxes[leaf, 3:]
        here = places[owner]
        axes = slice(0, 3 if self.metric.radius else 2)  # nothing leaves the plane through its third axis
        inners = np.minimum(here - low, high - here)[:, axes].min(axis=1)
        self._index = _Index(
            boxes,
            _needs(asked, rows, members),
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

    def _retune(self, asked: Asked, rows: NDArray[np.int32]) -> None:
        if self._index is not None:
            _retune(self._index, asked, rows, self._leaf_of)

    def _search(
        self,
        asked: Asked,
        stored: Stored,
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
            asked,
            stored,
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
    """Return where the leaves of a quadtree over sorted positions on the Z-curve begin."""
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
    asked: Asked,
    owners: NDArray[np.int32],
    words: NDArray[np.int32],
    idf: NDArray[np.float64],
    weights: NDArray[np.float64],
    sums: NDArray[np.float64],
    afters: NDArray[np.float64],
) -> None:
    """Write wt(s.w), wtsum(s.w), and the largest weight after w, of each posting."""
    for i in range(len(words)):
        row, word = owners[i], words[i]
        mine, total, after = idf[word], 0.0, 0.0
        for at in range(asked.starts[row], asked.starts[row] + asked.counts[row]):
            other = asked.words[at]
            if idf[other] < mine or (idf[other] == mine and other > word):
                total += idf[other]
                after = max(after, idf[other])
        weights[i] = mine / asked.lengths[row]
        sums[i] = (mine + total) / asked.lengths[row]
        afters[i] = after / asked.lengths[row]


@kernel
def _need(asked: Asked, row: int) -> Any:
    """Return λ_S of a subscription (Equation 8)."""
    alpha = asked.alphas[row]
    if alpha <= 0.0:
        return -np.inf if asked.thresholds[row] <= 1.0 else np.inf
    return (asked.thresholds[row] - (1.0 - alpha)) / alpha


@kernel
def _needs(asked: Asked, rows: NDArray[np.int32], members: NDArray[np.int64]) -> Any:
    out = np.empty(len(members) - 1)
    for leaf in range(len(out)):
        least = np.inf
        for i in range(members[leaf], members[leaf + 1]):
            least = min(least, _need(asked, rows[i]))
        out[leaf] = least
    return out


@kernel
def _suffixes(index: _Index, group: int) -> None:
    """Compute Equations 6 and 7 for a group."""
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
def _retune(index: _Index, asked: Asked, rows: NDArray[np.int32], leaf_of: NDArray[np.int32]) -> None:
    """Put the postings of rows with a new threshold where they belong in their groups."""
    for row in rows:
        leaf = leaf_of[row]
        index.needs[leaf] = min(index.needs[leaf], _need(asked, row))
        if asked.alphas[row] > _EXTREME:
            continue
        value = asked.thresholds[row] / (1.0 - asked.alphas[row])
        for at in range(asked.starts[row], asked.starts[row] + asked.counts[row]):
            word = asked.words[at]
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
    """Return the first posting of a group from which on all are skipped (Theorem 4), by bisection."""
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
    asked: Asked,
    stored: Stored,
    begin: int,
    end: int,
    idf: NDArray[np.float64],
    metric: Metric,
    scale: float,
    use: int,
    counters: NDArray[np.int64],
    room: int,
) -> Any:
    """Algorithm 1 for the messages *begin* to *end*."""
    boxes, leaves, groups, starts = index.boxes, index.leaves, index.groups, index.starts
    out_offsets = np.zeros(end - begin + 1, np.int64)
    out_rows, out_scores = np.empty(PAIRS, np.int32), np.empty(PAIRS)
    widest = 0
    for leaf in range(len(boxes)):
        widest = max(widest, index.members[leaf + 1] - index.members[leaf])
    partial = np.zeros(widest)  # R: 0 not seen, below 0 skipped
    seen = np.empty(widest, np.int32)
    found, done = 0, 0
    while done < end - begin and found < room:
        m = begin + done - stored.base
        low, high = stored.starts[m], stored.stops[m]
        words = stored.words[low:high]
        words = words[np.argsort(-idf[words], kind="mergesort")]
        count = len(words)
        weights, sums, mosts = np.empty(count), np.zeros(count + 1), np.zeros(count + 1)
        cursors, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for i in range(count - 1, -1, -1):
            weights[i] = idf[words[i]] / stored.lengths[m]
            sums[i] = sums[i + 1] + weights[i]
            mosts[i] = max(mosts[i + 1], weights[i])
            if words[i] + 1 < len(index.words):
                cursors[i], ends[i] = index.words[words[i]], index.words[words[i] + 1]
        x, y, z = stored.places[m, 0] * scale, stored.places[m, 1] * scale, stored.places[m, 2] * scale
        for leaf in range(len(boxes)):
            a = max(0.0, boxes[leaf, 0] - x, x - boxes[leaf, 3])
            b = max(0.0, boxes[leaf, 1] - y, y - boxes[leaf, 4])
            c = max(0.0, boxes[leaf, 2] - z, z - boxes[leaf, 5])
            outer = math.sqrt(a * a + b * b + c * c)
            near = max(0.0, 1.0 - outer) if use & _OUTER else 1.0
            counters[0] += 1
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
                    bound = index.kscores[first] - index.most_alphas[first] * near
                    if use & _GROUP and index.most_weights[first] * sums[i] < bound - _SLACK * (
                        1.0 + abs(bound)
                    ):
                        continue
                    if use & _EARLY:
                        last = _stop(index, first, last, sums[i], near)
                    counters[2] += last - first
                    for p in range(first, last):
                        local = index.locals_[p]
                        if partial[local] < 0.0:
                            continue
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
            for k in range(met):
                alive = partial[seen[k]] > 0.0
                partial[seen[k]] = 0.0
                row = index.rows[index.members[leaf] + seen[k]]
                if not alive or not inside[row]:
                    continue
                counters[3] += 1
                value, rarest = score(asked, row, stored, m, idf, metric)
                if rarest >= 0 and value >= asked.thresholds[row]:
                    if found == len(out_rows):
                        out_rows, out_scores = wider(out_rows, found + 1), wider(out_scores, found + 1)
                    out_rows[found], out_scores[found] = row, value
                    found += 1
        done += 1
        out_offsets[done] = found
    return out_offsets[: done + 1], out_rows[:found], out_scores[:found]
