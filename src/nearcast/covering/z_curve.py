"""Rectangles on a Z-curve.

Section IV.D of Shen, Tirthapura and Aluru, "Indexing for Subscription Covering in Publish-Subscribe Systems" (2005).
The key of a point interleaves the bits of its cell's coordinates (Fig. 7). A cell of any size is an interval of keys,
so its points are a segment of the curve, which a binary search finds. A query's range extends to the right boundary in
every dimension, and only a few of the points in it are sought, so the search prefers large cells at that boundary.

The paper leaves out the details of its search; this is ours. Cells are halved from the dominating corner down, the
half with the larger coordinates first. A half that the range does not reach is left out. One that lies wholly in the
range, or whose segment lies in a single bucket, is looked through. The paper puts a 1 before each key to tell the cells
of different sizes apart; here a cell is its first key and its level.

The paper keeps the order in an AVL tree. Here it is a sorted directory of buckets with the least key of each: inserting
and removing touches one bucket, and the directory only when a bucket is split or merged. The paper's cells are equal in
size. Here their bounds are quantiles of the data on each axis; any bounds are right, as long as they keep the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.parts import nested, part_of
from nearcast.covering.buckets import (
    LARGEST,
    LIMIT,
    BucketPool,
    Buckets,
    below_top,
    free_bucket,
    has_room,
    new_bucket,
    pour,
    put,
    survivors,
    take_out,
)
from nearcast.covering.g_k import kernels_for
from nearcast.covering.growing import GrowingArrays
from nearcast.covering.index import RectangleIndex
from nearcast.covering.rectangles import Corners, rectangle_covers, rectangle_covers_by_age, rounded
from nearcast.covering.subscriptions import (
    Scratch,
    Subscriptions,
    enough_scratch,
    first_clause,
    new_scratch,
)
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.columns.rows.clauses import ClauseStore

__all__ = ["ZCurve"]

UNDERFLOW = config.COVERING_UNDERFLOW
KEY_BITS = config.COVERING_KEY_BITS
ONE = np.uint64(1)


class _Curve(NamedTuple):
    """The curve, as kernels see it."""

    bounds: NDArray[np.float64]  # [dimensions in keys, cells - 1]: ascending
    bits: int  # of each coordinate in a key
    keys: NDArray[np.uint64]  # by clause row
    least: NDArray[np.uint64]  # by place in the directory: the bucket has keys from here on
    directory: NDArray[np.int32]  # the buckets, in the order of keys
    buckets: Buckets
    used: NDArray[np.int64]  # one entry: how many buckets are in the directory


@kernel
def _key(index: _Curve, corners: Corners, clause: int) -> Any:
    """Return the key of a point: the highest bits of all coordinates first."""
    points, bounds, bits = corners.points, index.bounds, index.bits
    key = np.uint64(0)
    dimensions = bounds.shape[0]
    for d in range(dimensions):
        cell = np.uint64(np.searchsorted(bounds[d], points[clause, d], side="right"))
        for bit in range(bits):
            if cell >> np.uint64(bits - 1 - bit) & ONE:
                key |= ONE << np.uint64(dimensions * bits - 1 - (bit * dimensions + d))
    return key


@kernel
def _place(least: NDArray[np.uint64], low: int, high: int, key: np.uint64) -> Any:
    """Return the last place of the directory in [low, high) whose keys begin at *key* or before it, or low - 1."""
    while low < high:
        middle = (low + high) >> 1
        if least[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel
def _add(index: _Curve, held: Subscriptions, subject: int, scratch: Scratch) -> None:
    least, directory, buckets, used, keys = (
        index.least,
        index.directory,
        index.buckets,
        index.used,
        index.keys,
    )
    clause = first_clause(held, subject)
    keys[clause] = key = _key(index, held.content, clause)
    rounded(held.content, clause, scratch.point)
    if used[0] == 0:
        least[0], directory[0] = 0, new_bucket(buckets, LIMIT, 0)
        used[0] = 1
    at = _place(least, 0, used[0], key)
    number = directory[at]
    size = buckets.size[number]
    if size >= LIMIT and size == buckets.capacity[number]:
        first = np.int64(buckets.at[number])
        mine = np.empty(size, np.uint64)
        for i in range(size):
            mine[i] = keys[buckets.rows[first + i]]
        ordered = np.sort(mine)
        i = size // 2
        while i < size and ordered[i] == ordered[0]:  # equal keys stay together
            i += 1
        if i < size:
            cut = ordered[i]
            new = new_bucket(buckets, LIMIT, 0)
            pour(buckets, number, new, mine >= cut, scratch.spare)
            for j in range(used[0], at + 1, -1):
                least[j], directory[j] = least[j - 1], directory[j - 1]
            least[at + 1], directory[at + 1] = cut, new
            used[0] += 1
            if key >= cut:
                number = new
    put(buckets, number, clause, held.content.signs[clause], scratch.point)


@kernel
def _take(index: _Curve, held: Subscriptions, subject: int, scratch: Scratch) -> None:
    least, directory, buckets, used = index.least, index.directory, index.buckets, index.used
    clause = first_clause(held, subject)
    number = take_out(buckets, clause)
    if buckets.size[number] >= UNDERFLOW or used[0] == 1:
        return
    at = max(1, _place(least, 0, used[0], index.keys[clause]))  # the upper one of two neighbours
    upper, lower = directory[at], directory[at - 1]
    size = buckets.size[upper]
    if size + buckets.size[lower] > LIMIT * 3 // 4:
        return
    pour(buckets, upper, lower, np.ones(size, np.bool_), scratch.spare)
    free_bucket(buckets, upper)
    used[0] -= 1
    for j in range(at, used[0]):
        least[j], directory[j] = least[j + 1], directory[j + 1]


@kernel
def _find(
    index: _Curve,
    held: Subscriptions,
    asked: Subscriptions,
    subject: int,
    k: int,
    out: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: Scratch,
    counters: NDArray[np.int64],
) -> Any:
    bounds, bits, least, directory, buckets = (
        index.bounds,
        index.bits,
        index.least,
        index.directory,
        index.buckets,
    )
    at, size, capacity, _, tops, bucket_rows, bucket_signs, coordinates, _, _, _ = buckets
    mine = first_clause(asked, subject)
    query, missing = scratch.point, ~asked.content.signs[mine]
    rounded(asked.content, mine, query)
    _, alive, hits = enough_scratch(scratch, 0, buckets.used[LARGEST])
    dimensions = bounds.shape[0]
    total = dimensions * bits
    wanted = _key(index, asked.content, mine)
    # Cells that are still to be visited: their first key, their level, the dimensions in which they still equal the
    # query's cell (beyond it in all dimensions, a cell lies wholly in the range), and the places of the directory
    # that their points may be in.
    firsts, levels, equal = (
        np.empty(total + 1, np.uint64),
        np.empty(total + 1, np.int64),
        np.empty(total + 1, np.uint64),
    )
    lows, highs = np.empty(total + 1, np.int64), np.empty(total + 1, np.int64)
    depth, found = 1, 0
    firsts[0], levels[0], lows[0], highs[0] = 0, 0, 0, index.used[0]
    equal[0] = (ONE << np.uint64(dimensions)) - ONE
    seen = index.used[0]  # places from here on have been looked through
    while depth > 0:
        depth -= 1
        first, level, tied = firsts[depth], levels[depth], equal[depth]
        low, high = lows[depth], min(highs[depth], seen)
        counters[0] += 1
        while high - low > 1 and level < total and tied != 0:
            half = ONE << np.uint64(total - 1 - level)
            axis = ONE << np.uint64(level % dimensions)
            upper = first | half
            # The place where the upper half begins may have keys of the lower half, too.
            begin = _place(least, low, high, upper)
            cut = begin + 1 if least[begin] < upper else begin
            if tied & axis == 0 or wanted & half == 0:  # the range reaches into the lower half
                firsts[depth], levels[depth], equal[depth] = first, level + 1, tied
                lows[depth], highs[depth] = low, cut
                depth += 1
                if wanted & half == 0:
                    tied &= ~axis  # the upper half is beyond the query on this axis
            first, level, low = upper, level + 1, begin
            counters[0] += 1
        for place in range(min(high, seen) - 1, low - 1, -1):
            seen = place
            number = directory[place]
            if not below_top(tops, number, query):
                continue
            counters[1] += size[number]
            count = survivors(
                np.int64(at[number]),
                np.int64(size[number]),
                np.int64(capacity[number]),
                coordinates,
                bucket_rows,
                bucket_signs,
                query,
                missing,
                alive,
                hits,
            )
            for i in range(count):
                if rectangle_covers_by_age(held, hits[i], asked, subject, mine):
                    out[found] = held.owners[hits[i]]
                    found += 1
                    if found == k:
                        return found
    return found


@kernel
def _has_room(index: _Curve, count: int) -> Any:
    return index.used[0] + count < index.least.size and has_room(index.buckets, count)


class ZCurve(RectangleIndex):
    """A sorted directory of buckets on a Z-curve."""

    name = "z-curve"
    kernels = kernels_for(_find, _add, _take, _has_room, rectangle_covers)

    def load(self, store: ClauseStore) -> None:
        """Begin anew, with cells whose bounds are quantiles of the points that are there."""
        super().load(store)
        points = self.rectangles.corners.points[store.alive]
        dimensions = min(points.shape[1], KEY_BITS)
        self._bits = max(1, min(16, KEY_BITS // max(1, dimensions)))
        self._bounds = _quantiles(points[:, :dimensions], 1 << self._bits)
        self._laid_out_for = len(points)
        self.grow(1)

    def _empty(self, rows: int) -> None:
        self._bits, self._bounds = 1, np.empty((0, 1))
        self._pool = BucketPool(2 * len(self.rectangles.axes))
        self._used = np.zeros(1, np.int64)
        self._arrays = GrowingArrays(
            keys=np.empty(0, np.uint64), least=np.empty(0, np.uint64), directory=np.empty(0, np.int32)
        )
        self._reach(rows)

    def _reach(self, rows: int) -> None:
        self._arrays.reach("keys", rows, 0)
        self._pool.make_room(rows, 1)
        self.grow(1)

    def grow(self, points: int) -> None:
        """Make room."""
        need = int(self._used[0]) + points + 1
        self._arrays.make_room("least", need)
        self._arrays.make_room("directory", need)
        self._pool.make_room(0, points)
        arrays = self._arrays
        self.arrays = _Curve(
            self._bounds,
            self._bits,
            arrays["keys"],
            arrays["least"],
            arrays["directory"],
            self._pool.view,
            self._used,
        )

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the curve: what is in use of it."""
        curve, used = self.arrays, int(self._used[0])
        return super().at_rest() | {
            "laid_out_for": np.array([self._laid_out_for]),
            "bounds": curve.bounds,
            "bits": np.array([curve.bits]),
            "keys": curve.keys,
            "least": curve.least[:used],
            "directory": curve.directory[:used],
            "used": curve.used,
            **nested(buckets=self._pool.at_rest()),
        }

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the curve."""
        super().restore(store, arrays)
        self._laid_out_for = int(arrays["laid_out_for"][0])
        self._bits, self._bounds = int(arrays["bits"][0]), arrays["bounds"]
        self._used = arrays["used"]
        self._arrays = GrowingArrays(**{name: arrays[name] for name in ("keys", "least", "directory")})
        self._pool.restore(part_of(arrays, "buckets"))
        self.grow(1)

    def outgrown(self) -> bool:
        """Tell whether the bounds of cells are those of far fewer rectangles."""
        rows = len(self.rectangles.corners.points)
        return rows >= config.COVERING_EDGES_FROM and rows > 8 * self._laid_out_for

    def scratch(self) -> Scratch:
        """Return room for a search."""
        return new_scratch(self._pool.width, 1, 2 * int(self._pool.view.used[LARGEST]))

    def stats(self) -> dict[str, Any]:
        """Return the bits of a coordinate, and the buckets."""
        return {"bits": self._bits, "buckets": int(self._used[0])}


def _quantiles(points: NDArray[np.float64], cells: int) -> NDArray[np.float64]:
    """Return where cells end on each axis, at quantiles of the points; without points, cells of a unit cube."""
    shares = np.arange(1, cells) / cells
    bounds = np.empty((points.shape[1], cells - 1))
    for d in range(points.shape[1]):
        finite = points[np.isfinite(points[:, d]), d]
        bounds[d] = np.quantile(finite, shares) if len(finite) else shares
    return bounds
