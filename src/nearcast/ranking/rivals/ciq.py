"""CIQ: the covering-cell index of Chen et al. ([12] in the paper), without its time decay.

Described in section 2.2 and Figure 2 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe
Over Sliding Window" (2017). A quadtree divides the space. Each subscription is assigned to cells that together cover
the whole space: small ones around its place, large ones far away. For each of them it has a textual bound, MinT: the
least textual similarity that a message in the cell must have. A message walks down the tree to its place. In each cell
on the way, it reads the inverted file, which is ordered by subscription, document at a time, and verifies the
subscriptions whose MinT it reaches.

On the globe, in three dimensions, a cell has eight children instead of four.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.kernels import kernel
from nearcast.ranking.finder import PAIRS, wider
from nearcast.ranking.scoring import Metric, score
from nearcast.ranking.static import StaticFinder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.ranking.subscribers import SubscriptionTable
    from nearcast.ranking.windows import MessageTable

__all__ = ["CIQ"]


class _Index(NamedTuple):
    """The inverted files of all cells, by cell and word."""

    origin: NDArray[np.float64]  # [4]: the lowest corner of the space, and its extent
    keys: NDArray[np.int64]  # cell and word of each list, ascending
    lists: NDArray[np.int64]  # [lists + 1]
    covers: NDArray[np.int64]  # the pair (subscription, cell) of each posting
    owners: NDArray[np.int32]  # the subscription of each pair, ascending within a cell
    bounds: NDArray[np.float64]  # MinT of each pair
    nearest: NDArray[np.float64]  # the largest SSim of a message in the cell, for each pair
    pairs: NDArray[np.int64]  # [rows + 1] into pair_of
    pair_of: NDArray[np.int64]


class CIQ(StaticFinder):
    """Covering cells, read document at a time; see the module."""

    name = "ciq"

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._index: _Index | None = None

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return 0 if self._index is None else sum(array.nbytes for array in self._index)

    def _lay_out(
        self, subscriptions: SubscriptionTable, rows: NDArray[np.int32], idf: NDArray[np.float64]
    ) -> None:
        places = np.zeros_like(subscriptions.places)
        places[rows] = subscriptions.places[rows] * self._scale  # other rows were never written
        low = places[rows].min(axis=0, initial=np.inf)
        extent = float((places[rows].max(axis=0, initial=-np.inf) - low).max(initial=0.0)) or 1.0
        origin = np.array([*low, extent * (1 + 1e-9)])
        axes = 3 if self.metric.radius else 2
        most = 1 + ((1 << axes) - 1) * (config.RANKING_CIQ_LEVELS)
        cells, nearest = _cover(places, rows, origin, axes, config.RANKING_CIQ_LEVELS, most)
        owners = np.repeat(rows, most)
        order = np.lexsort((owners, cells))
        cells, nearest, owners = cells[order], nearest[order], owners[order]
        by_row = np.argsort(owners, kind="stable")
        counts = subscriptions.counts[owners].astype(np.int64)
        picks = np.repeat(subscriptions.starts[owners] - (np.cumsum(counts) - counts), counts) + np.arange(
            counts.sum()
        )
        covers = np.repeat(np.arange(len(owners)), counts)
        keys = cells[covers] * (2**31) + subscriptions.words[picks]
        order = np.argsort(keys, kind="stable")  # within a list by pair, and so by subscription
        keys, covers = keys[order], covers[order]
        firsts = np.flatnonzero(np.diff(keys, prepend=-1))
        self._index = _Index(
            origin,
            keys[firsts],
            np.append(firsts, len(keys)),
            covers,
            owners,
            np.empty(len(owners)),
            nearest,
            np.searchsorted(owners[by_row], np.arange(subscriptions.rows + 1)),
            by_row,
        )
        _bound(self._index, subscriptions, rows)

    def _retune(self, subscriptions: SubscriptionTable, rows: NDArray[np.int32]) -> None:
        if self._index is not None:
            _bound(self._index, subscriptions, rows)

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
        axes = 3 if self.metric.radius else 2
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
            axes,
            counters,
            room,
        )
        return found


@kernel
def _child(origin: NDArray[np.float64], place: NDArray[np.float64], axes: int, depth: int) -> Any:
    """Return the cell of a given depth that contains a place; a place outside the space is moved to its border."""
    code = np.int64(0)
    for axis in range(axes):
        cell = int((place[axis] - origin[axis]) / origin[3] * (1 << depth))
        cell = min(max(cell, 0), (1 << depth) - 1)
        code |= np.int64(cell) << (np.int64(axis) * 8)
    return code | (np.int64(depth) << np.int64(24))


@kernel
def _distance(origin: NDArray[np.float64], place: NDArray[np.float64], axes: int, code: int) -> Any:
    """Return the distance from a place to a cell; cells at the border of the space extend to infinity."""
    depth = code >> 24
    width = origin[3] / (1 << depth)
    squared = 0.0
    for axis in range(axes):
        cell = (code >> (axis * 8)) & 255
        low = origin[axis] + cell * width if cell > 0 else -np.inf
        high = origin[axis] + (cell + 1) * width if cell < (1 << depth) - 1 else np.inf
        apart = max(0.0, low - place[axis], place[axis] - high)
        squared += apart * apart
    return math.sqrt(squared)


@kernel
def _cover(
    places: NDArray[np.float64],
    rows: NDArray[np.int32],
    origin: NDArray[np.float64],
    axes: int,
    levels: int,
    most: int,
) -> Any:
    """Cover the space for each row: divide the cell that contains it again and again, and keep the siblings."""
    cells, nearest = np.empty(len(rows) * most, np.int64), np.empty(len(rows) * most)
    at = 0
    for row in rows:
        for depth in range(1, levels + 1):
            own = _child(origin, places[row], axes, depth)
            parent = _child(origin, places[row], axes, depth - 1)
            for sibling in range(1 << axes):
                code: Any = np.int64(depth) << np.int64(24)
                for axis in range(axes):
                    half = ((parent >> (axis * 8)) & 255) * 2 + ((sibling >> axis) & 1)
                    code |= np.int64(half) << (np.int64(axis) * 8)
                if code != own or depth == levels:
                    cells[at] = code
                    nearest[at] = max(0.0, 1.0 - _distance(origin, places[row], axes, code))
                    at += 1
    return cells, nearest


@kernel
def _bound(index: _Index, subscriptions: SubscriptionTable, rows: NDArray[np.int32]) -> None:
    """Compute MinT of rows in each of their cells: λ_T of Equation 2, with the nearest place of the cell."""
    for row in rows:
        alpha = subscriptions.alphas[row]
        for i in range(index.pairs[row], index.pairs[row + 1]):
            pair = index.pair_of[i]
            gap = subscriptions.thresholds[row] - alpha * index.nearest[pair] - 1e-9
            index.bounds[pair] = (
                gap / (1.0 - alpha) if gap > 0.0 and alpha < 1.0 else (np.inf if gap > 0.0 else 0.0)
            )


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
    axes: int,
    counters: NDArray[np.int64],
    room: int,
) -> Any:
    keys, lists, covers, owners, bounds = index.keys, index.lists, index.covers, index.owners, index.bounds
    out_offsets = np.zeros(end - begin + 1, np.int64)
    out_rows, out_scores = np.empty(PAIRS, np.int32), np.empty(PAIRS)
    place = np.empty(3)
    found, done = 0, 0
    while done < end - begin and found < room:
        m = begin + done - messages.base
        low, high = messages.starts[m], messages.stops[m]
        cursors, ends = np.empty(high - low, np.int64), np.empty(high - low, np.int64)
        weights = np.empty(high - low)
        for axis in range(3):
            place[axis] = messages.places[m, axis] * scale
        for depth in range(1, config.RANKING_CIQ_LEVELS + 1):
            cell = _child(index.origin, place, axes, depth)
            open_ = 0
            for i in range(low, high):
                key = cell * np.int64(2**31) + messages.words[i]
                at = np.searchsorted(keys, key)
                if at < len(keys) and keys[at] == key:
                    cursors[open_], ends[open_] = lists[at], lists[at + 1]
                    weights[open_] = idf[messages.words[i]] * idf[messages.words[i]]
                    open_ += 1
            counters[0] += 1
            while open_ > 0:
                pair = covers[cursors[0]]
                for i in range(1, open_):
                    pair = min(pair, covers[cursors[i]])
                total = 0.0
                i = 0
                while i < open_:
                    if covers[cursors[i]] == pair:
                        total += weights[i]
                        cursors[i] += 1
                        counters[2] += 1
                        if cursors[i] == ends[i]:
                            open_ -= 1
                            cursors[i], ends[i], weights[i] = cursors[open_], ends[open_], weights[open_]
                            continue
                    i += 1
                row = owners[pair]
                if (
                    total < bounds[pair] * subscriptions.lengths[row] * messages.lengths[m] * (1.0 - 1e-12)
                    or not inside[row]
                ):
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
