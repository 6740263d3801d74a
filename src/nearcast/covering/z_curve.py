"""Rectangles on a Z-curve (section IV.D).

The key of a point interleaves the bits of its cell's coordinates, behind a leading 1, so that cells of every size have
keys: a cell is an interval of keys, and its points are a segment of the curve. A query is answered from the dominating
corner down: a cell is divided into halves, the larger coordinates first; a half that the query rules out is left, one
that lies wholly in the query's range is taken whole, and one whose segment lies in a single bucket is looked through.

The order is kept in a directory of buckets: the least key of each, sorted. Inserting and removing touches one bucket,
and the directory only when a bucket is split or merged. Cells are not equal in size: on each axis their bounds are
quantiles of the data. Any bounds are right, as long as they keep the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.parts import nested, part_of
from nearcast.covering.buckets import (
    LARGEST,
    LIMIT,
    Buckets,
    below_top,
    bucket_arrays,
    buckets_from_arrays,
    empty_buckets,
    free_bucket,
    grown_buckets,
    has_room,
    new_bucket,
    pour,
    put,
    survivors,
    take_out,
)
from nearcast.covering.index import RectangleIndex
from nearcast.covering.operations import (
    Operations,
    Rows,
    Scratch,
    enough_scratch,
    first_clause,
    new_scratch,
    register,
)
from nearcast.covering.rectangles import covers_rightly, rectangle_covers, rounded
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
    """The curve, and the points that decide, as kernels see them."""

    points: NDArray[np.float64]
    signs: NDArray[np.uint64]
    bounds: NDArray[np.float64]  # [dimensions in keys, cells - 1]: ascending
    bits: int  # of each coordinate in a key
    keys: NDArray[np.uint64]  # of each clause row
    least: NDArray[np.uint64]  # of each bucket in the directory: keys from here on
    directory: NDArray[np.int32]  # the buckets, in the order of keys
    buckets: Buckets
    used: NDArray[np.int64]  # entries of the directory


class ZCurve(RectangleIndex):
    """An ordered directory of buckets on a Z-curve."""

    name = "z-curve"

    def _emptied(self) -> None:
        points, signs = self.rectangles.points, self.rectangles.signs
        dimensions = min(points.shape[1], KEY_BITS)
        bits = max(1, min(16, KEY_BITS // max(1, dimensions)))
        self._made_for = len(points)
        self._arrays = _Curve(
            points,
            signs,
            _bounds(points[:, :dimensions], 1 << bits),
            bits,
            np.empty(0, np.uint64),
            np.empty(0, np.uint64),
            np.empty(0, np.int32),
            empty_buckets(points.shape[1]),
            np.zeros(1, np.int64),
        )

    def grow(self, points: int) -> None:
        """Make room."""
        old, rows = self._arrays, len(self.rectangles.points)
        keys, least, directory = old.keys, old.least, old.directory
        if rows > len(keys):
            keys = np.empty(rows + rows // 2, np.uint64)
            keys[: len(old.keys)] = old.keys
        need = int(old.used[0]) + points + 1
        if need > len(least):
            least = np.empty(need + need // 2, np.uint64)
            least[: len(old.least)] = old.least
            directory = np.empty(len(least), np.int32)
            directory[: len(old.directory)] = old.directory
        self._arrays = old._replace(
            points=self.rectangles.points,
            signs=self.rectangles.signs,
            keys=keys,
            least=least,
            directory=directory,
            buckets=grown_buckets(old.buckets, rows, points),
        )

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the curve, what is in use of it."""
        curve, used = self._arrays, int(self._arrays.used[0])
        return super().at_rest() | {
            "made_for": np.array([self._made_for]),
            "bounds": curve.bounds,
            "bits": np.array([curve.bits]),
            "keys": curve.keys,
            "least": curve.least[:used],
            "directory": curve.directory[:used],
            "used": curve.used,
            **nested(buckets=bucket_arrays(curve.buckets)),
        }

    def restore(self, store: ClauseStore, arrays: Arrays) -> None:
        """Take the curve."""
        super().restore(store, arrays)
        self._made_for = int(arrays["made_for"][0])
        self._arrays = self._arrays._replace(
            **{name: arrays[name] for name in ("bounds", "keys", "least", "directory", "used")},
            bits=int(arrays["bits"][0]),
            buckets=buckets_from_arrays(part_of(arrays, "buckets")),
        )

    def degenerate(self) -> bool:
        """Tell whether the bounds of cells are those of far fewer rectangles."""
        rows = len(self.rectangles.points)
        return rows >= config.COVERING_EDGES_FROM and rows > 8 * self._made_for

    def scratch(self) -> Scratch:
        """Return room for a search."""
        buckets = self._arrays.buckets
        return new_scratch(buckets.tops.shape[1], 1, 2 * int(buckets.used[LARGEST]))

    def stats(self) -> dict[str, Any]:
        """Bits of a coordinate, and buckets."""
        return {"bits": self._arrays.bits, "buckets": int(self._arrays.used[0])}


def _bounds(points: NDArray[np.float64], cells: int) -> NDArray[np.float64]:
    """Return where cells end, on each axis: quantiles of the points; without any, cells of a unit cube."""
    shares = np.arange(1, cells) / cells
    bounds = np.empty((points.shape[1], cells - 1))
    for d in range(points.shape[1]):
        finite = points[np.isfinite(points[:, d]), d]
        bounds[d] = np.quantile(finite, shares) if len(finite) else shares
    return bounds


@kernel
def _key(index: _Curve, row: int) -> Any:
    """Return the key of a point, without the leading 1: the highest bits of all coordinates first."""
    points, bounds, bits = index.points, index.bounds, index.bits
    key = np.uint64(0)
    dimensions = bounds.shape[0]
    for d in range(dimensions):
        cell = np.uint64(np.searchsorted(bounds[d], points[row, d], side="right"))
        for bit in range(bits):
            if cell >> np.uint64(bits - 1 - bit) & ONE:
                key |= ONE << np.uint64(dimensions * bits - 1 - (bit * dimensions + d))
    return key


@kernel
def _place(least: NDArray[np.uint64], low: int, high: int, key: np.uint64) -> Any:
    """Return the last place of the directory in [low, high) whose keys begin at *key* or before; low - 1 for none."""
    while low < high:
        middle = (low + high) >> 1
        if least[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel
def _add(index: _Curve, rows: Rows, subject: int, scratch: Scratch) -> None:
    least, directory, buckets, used, keys = (
        index.least,
        index.directory,
        index.buckets,
        index.used,
        index.keys,
    )
    clause = first_clause(rows, subject)
    keys[clause] = key = _key(index, clause)
    rounded(index.points, clause, scratch.point)
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
        while i < size and ordered[i] == ordered[0]:  # the upper part begins at a key of its own
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
    put(buckets, number, clause, index.signs[clause], scratch.point)


@kernel
def _take(index: _Curve, rows: Rows, subject: int, scratch: Scratch) -> None:
    least, directory, buckets, used = index.least, index.directory, index.buckets, index.used
    clause = first_clause(rows, subject)
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
    rows: Rows,
    subject: int,
    k: int,
    out: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: Scratch,
    counters: NDArray[np.int64],
) -> Any:
    points, signs, bounds, bits = index.points, index.signs, index.bounds, index.bits
    least, directory, buckets, owners = index.least, index.directory, index.buckets, rows.owners
    at, size, capacity, _, tops, bucket_rows, bucket_signs, coordinates, _, _, _ = buckets
    mine = first_clause(rows, subject)
    query = scratch.point
    rounded(points, mine, query)
    _, alive, hits = enough_scratch(scratch, 0, buckets.used[LARGEST])
    dimensions = bounds.shape[0]
    total = dimensions * bits
    wanted = _key(index, mine)
    # Cells that are left to visit: their first key, their level, the dimensions in which they still equal the query's
    # cell, and the places of the directory that they may lie in.
    firsts, levels, equal = (
        np.empty(total + 1, np.uint64),
        np.empty(total + 1, np.int64),
        np.empty(total + 1, np.uint64),
    )
    lows, highs = np.empty(total + 1, np.int64), np.empty(total + 1, np.int64)
    depth, found = 1, 0
    firsts[0], levels[0], lows[0], highs[0] = 0, 0, 0, index.used[0]
    equal[0] = (ONE << np.uint64(dimensions)) - ONE
    seen = index.used[0]  # places from here on were looked through
    while depth > 0:
        depth -= 1
        first, level, tied = firsts[depth], levels[depth], equal[depth]
        low, high = lows[depth], min(highs[depth], seen)
        counters[0] += 1
        while high - low > 1 and level < total and tied != 0:
            half = ONE << np.uint64(total - 1 - level)
            axis = ONE << np.uint64(level % dimensions)
            upper = first | half
            # The place where the upper half begins may hold keys of the lower half, too.
            begin = _place(least, low, high, upper)
            cut = begin + 1 if least[begin] < upper else begin
            if tied & axis == 0 or wanted & half == 0:
                firsts[depth], levels[depth], equal[depth] = first, level + 1, tied
                lows[depth], highs[depth] = low, cut
                depth += 1
                if wanted & half == 0:
                    tied &= ~axis
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
                ~signs[mine],
                alive,
                hits,
            )
            for i in range(count):
                other = hits[i]
                if covers_rightly(points, signs, owners, other, mine):
                    out[found] = owners[other]
                    found += 1
                    if found == k:
                        return found
    return found


@kernel
def _room(index: _Curve, count: int) -> Any:
    return index.used[0] + count < index.least.size and has_room(index.buckets, count)


register(_Curve, Operations(_find, _add, _take, _room, rectangle_covers))
