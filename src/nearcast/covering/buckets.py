"""Buckets of points, for dominance: which of them dominate a query? The leaves of every index here.

A bucket keeps its points dimension by dimension, in single precision, so that one instruction compares several points;
rounding keeps the order, so what dominates is among the survivors, and the caller decides exactly. Its *top* is the
corner that dominates all of them: a query that it does not dominate has nothing to look for. Buckets have room for 4
points, then 8, up to the limit, and beyond it only where points are alike; freed room is used again by its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays

__all__ = [
    "LEAST",
    "LIMIT",
    "Buckets",
    "below_top",
    "bucket_arrays",
    "buckets_from_arrays",
    "empty_buckets",
    "free_bucket",
    "grown_buckets",
    "has_room",
    "new_bucket",
    "padded",
    "pour",
    "put",
    "survivors",
    "take_out",
]

LEAST = 4  # places of the smallest bucket
LIMIT = config.COVERING_BUCKET
_STEP = 4  # dimensions that are compared together
_KINDS = 30  # sizes of buckets: powers of two
# Entries of ``used``.
NUMBERS, PLACES, FREE_NUMBER, LARGEST = range(4)

_RECORD = np.dtype([("at", np.int32), ("size", np.int32), ("capacity", np.int32), ("node", np.int32)])


class Buckets(NamedTuple):
    """All buckets, as kernels see them. The places of bucket b are those from at[b] on, capacity[b] of them."""

    at: NDArray[np.int32]
    size: NDArray[np.int32]
    capacity: NDArray[np.int32]
    node: NDArray[np.int32]  # what the bucket hangs on; the next free number of a bucket that is free
    tops: NDArray[np.float32]  # [buckets, dimensions]
    rows: NDArray[np.int32]  # by place; the next free place of the same size, where a bucket is free
    signs: NDArray[np.uint64]  # by place: bits that a query must have
    coordinates: NDArray[np.float32]  # by place: those of a bucket are [dimensions, capacity]
    homes: NDArray[np.int32]  # of each row its bucket, -1 for none
    free: NDArray[np.int32]  # by size: the first free place, -1 for none
    used: NDArray[np.int64]


def padded(dimensions: int) -> int:
    """Return how many dimensions are kept for so many: compared in steps."""
    return -(-dimensions // _STEP) * _STEP


def empty_buckets(dimensions: int) -> Buckets:
    """Return no buckets yet."""
    records: Any = np.zeros(0, _RECORD)
    return Buckets(
        records["at"],
        records["size"],
        records["capacity"],
        records["node"],
        np.empty((0, padded(dimensions)), np.float32),
        np.empty(0, np.int32),
        np.empty(0, np.uint64),
        np.empty(0, np.float32),
        np.empty(0, np.int32),
        np.full(_KINDS, -1, np.int32),
        np.array([0, 0, -1, LEAST]),
    )


def grown_buckets(old: Buckets, rows: int, points: int) -> Buckets:
    """Return the buckets with room for the given rows, and for so many more points."""
    numbers = int(old.used[NUMBERS]) + 2 * points
    places = int(old.used[PLACES]) + _needed(old.used, points)
    if numbers > len(old.at):
        numbers += numbers // 2
        records = np.zeros(numbers, _RECORD)
        for name in _RECORD.names or ():
            records[name][: len(old.at)] = getattr(old, name)
        tops = np.empty((numbers, old.tops.shape[1]), np.float32)
        tops[: len(old.tops)] = old.tops
        old = old._replace(**{name: records[name] for name in _RECORD.names or ()}, tops=tops)
    if places > len(old.rows):
        places += places // 2
        old = old._replace(
            rows=_longer(old.rows, places),
            signs=_longer(old.signs, places),
            coordinates=_longer(old.coordinates, places * old.tops.shape[1]),
        )
    if rows > len(old.homes):
        homes = np.full(rows + rows // 2, -1, np.int32)
        homes[: len(old.homes)] = old.homes
        old = old._replace(homes=homes)
    return old


def bucket_arrays(buckets: Buckets) -> dict[str, NDArray[Any]]:
    """Return the flat arrays that :func:`buckets_from_arrays` takes: what is in use."""
    numbers, places = int(buckets.used[NUMBERS]), int(buckets.used[PLACES])
    lengths = dict.fromkeys((*(_RECORD.names or ()), "tops"), numbers)
    lengths |= {"rows": places, "signs": places, "coordinates": places * buckets.tops.shape[1]}
    return {name: array[: lengths.get(name)] for name, array in buckets._asdict().items()}


def buckets_from_arrays(arrays: Arrays) -> Buckets:
    """Return the buckets that these arrays came from; there is room for one more point."""
    return grown_buckets(Buckets(**{name: arrays[name] for name in Buckets._fields}), 0, 1)


def _longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.empty(length, array.dtype)
    longer[: len(array)] = array
    return longer


@kernel
def _needed(used: NDArray[np.int64], points: int) -> Any:
    """Return how many places so many more points need at the most: each may split a bucket, or double the largest."""
    return points * (LIMIT + 2 * used[LARGEST])


@kernel
def has_room(buckets: Buckets, points: int) -> Any:
    """Tell whether so many more points find a place, whatever has to be split or to grow for them."""
    used = buckets.used
    return (
        used[NUMBERS] + 2 * points <= buckets.at.size
        and used[PLACES] + _needed(used, points) <= buckets.rows.size
    )


@kernel
def _kind(capacity: int) -> Any:
    kind = 0
    while LEAST << kind < capacity:
        kind += 1
    return kind


@kernel
def _take_places(buckets: Buckets, capacity: int) -> Any:
    free, rows, used = buckets.free, buckets.rows, buckets.used
    kind = _kind(capacity)
    at = free[kind]
    if at >= 0:
        free[kind] = rows[at]
        return at
    at = np.int32(used[PLACES])
    used[PLACES] += capacity
    return at


@kernel
def _give_places(buckets: Buckets, at: Any, capacity: int) -> None:
    kind = _kind(capacity)
    buckets.rows[at] = buckets.free[kind]
    buckets.free[kind] = at


@kernel
def new_bucket(buckets: Buckets, capacity: int, node: int) -> Any:
    """Return the number of a new bucket with so many places, a power of two."""
    used = buckets.used
    number = used[FREE_NUMBER]
    if number >= 0:
        used[FREE_NUMBER] = buckets.node[number]
    else:
        number = used[NUMBERS]
        used[NUMBERS] += 1
    buckets.at[number] = _take_places(buckets, capacity)
    buckets.size[number], buckets.capacity[number], buckets.node[number] = 0, capacity, node
    buckets.tops[number, :] = -np.inf
    used[LARGEST] = max(used[LARGEST], capacity)
    return number


@kernel
def free_bucket(buckets: Buckets, number: int) -> None:
    """Give the places and the number of a bucket back."""
    _give_places(buckets, buckets.at[number], buckets.capacity[number])
    buckets.node[number] = buckets.used[FREE_NUMBER]
    buckets.used[FREE_NUMBER] = number


@kernel
def put(buckets: Buckets, number: int, row: int, sign: int, point: NDArray[np.float32]) -> None:
    """Put a point into a bucket; one that is full gets twice the places."""
    size, capacity, width = buckets.size[number], buckets.capacity[number], buckets.tops.shape[1]
    rows, signs, coordinates = buckets.rows, buckets.signs, buckets.coordinates
    at = np.int64(buckets.at[number])
    if size == capacity:
        wide = np.int64(_take_places(buckets, 2 * capacity))
        for i in range(size):
            rows[wide + i], signs[wide + i] = rows[at + i], signs[at + i]
        for d in range(width):
            for i in range(size):
                coordinates[wide * width + d * 2 * capacity + i] = coordinates[at * width + d * capacity + i]
        _give_places(buckets, at, capacity)
        at, capacity = wide, 2 * capacity
        buckets.at[number], buckets.capacity[number] = at, capacity
        buckets.used[LARGEST] = max(buckets.used[LARGEST], capacity)
    rows[at + size], signs[at + size] = row, sign
    for d in range(width):
        coordinates[at * width + d * capacity + size] = point[d]
        buckets.tops[number, d] = max(buckets.tops[number, d], point[d])
    buckets.size[number] = size + 1
    buckets.homes[row] = number


@kernel
def take_out(buckets: Buckets, row: int) -> Any:
    """Take the point of a row out of its bucket, whose number is returned; its top stays where it is."""
    number = buckets.homes[row]
    at, last = np.int64(buckets.at[number]), buckets.size[number] - 1
    i = 0
    while buckets.rows[at + i] != row:
        i += 1
    _move(buckets, at, buckets.capacity[number], last, i)
    buckets.size[number] = last
    buckets.homes[row] = -1
    return number


@kernel
def _move(buckets: Buckets, at: Any, capacity: int, source: int, target: int) -> None:
    """Write a point of a bucket over another one of it."""
    width, coordinates = buckets.tops.shape[1], buckets.coordinates
    buckets.rows[at + target] = buckets.rows[at + source]
    buckets.signs[at + target] = buckets.signs[at + source]
    for d in range(width):
        first = at * width + d * capacity
        coordinates[first + target] = coordinates[first + source]


@kernel
def pour(
    buckets: Buckets, number: int, into: int, chosen: NDArray[np.bool_], point: NDArray[np.float32]
) -> None:
    """Move the chosen points of a bucket into another one; the top of the first is lowered to what is left.

    *point* is room for one point.
    """
    width, coordinates = buckets.tops.shape[1], buckets.coordinates
    at, size, capacity = np.int64(buckets.at[number]), buckets.size[number], buckets.capacity[number]
    kept = 0
    for i in range(size):
        if chosen[i]:
            for d in range(width):
                point[d] = coordinates[at * width + d * capacity + i]
            put(buckets, into, buckets.rows[at + i], buckets.signs[at + i], point)
        else:
            _move(buckets, at, capacity, i, kept)
            kept += 1
    buckets.size[number] = kept
    for d in range(width):
        first, top = at * width + d * capacity, np.float32(-np.inf)
        for i in range(kept):
            top = max(top, coordinates[first + i])
        buckets.tops[number, d] = top


@kernel
def survivors(
    at: Any,
    size: Any,
    capacity: Any,
    coordinates: NDArray[np.float32],
    rows: NDArray[np.int32],
    signs: NDArray[np.uint64],
    query: NDArray[np.float32],
    missing: np.uint64,
    alive: NDArray[np.int32],
    out: NDArray[np.int32],
) -> Any:
    """Write the rows of a bucket that may dominate a query to *out*; return how many.

    *missing* are the bits that the query lacks, *alive* and *out* have room for the largest bucket. It takes plain
    arrays: to unpack :class:`Buckets` for each bucket would cost more than the work.
    """
    width = query.size
    for i in range(size):
        alive[i] = 1
    for d in range(0, width, _STEP):
        first = at * width + d * capacity
        a, b, c, e = query[d], query[d + 1], query[d + 2], query[d + 3]
        p = coordinates[first : first + size]
        q = coordinates[first + capacity : first + capacity + size]
        r = coordinates[first + 2 * capacity : first + 2 * capacity + size]
        s = coordinates[first + 3 * capacity : first + 3 * capacity + size]
        left = np.int32(0)
        for i in range(size):
            good = np.int32((p[i] >= a) & (q[i] >= b) & (r[i] >= c) & (s[i] >= e)) & alive[i]
            alive[i] = good
            left += good
        if left == 0:
            return 0
    count = 0
    for i in range(size):
        out[count] = rows[at + i]
        count += alive[i] != 0 and signs[at + i] & missing == 0
    return count


@kernel
def below_top(tops: NDArray[np.float32], number: int, query: NDArray[np.float32]) -> Any:
    """Tell whether the top of a bucket dominates a query."""
    d = 0
    while d < query.size and tops[number, d] >= query[d]:
        d += 1
    return d == query.size
