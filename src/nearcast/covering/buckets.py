"""Buckets of points: which of them dominate a query (Definition 3)? Every index keeps its points in these.

A bucket stores its points dimension by dimension, in single precision, so that one instruction compares several of
them. Rounding keeps the order, so whatever dominates the query survives the comparison, and the caller decides exactly.
The *top* of a bucket is the corner that dominates all its points: if it does not dominate the query, no point does.

A bucket has room for 4 points, then 8, up to the overflow limit. It grows beyond that only where its points are all
alike, so that nothing can split it. The rooms come from :mod:`nearcast.kernels.slabs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.covering.growing import GrowingArrays
from nearcast.kernels import kernel
from nearcast.kernels.slabs import END, allot, empty_slabs, release, size_class

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays

__all__ = [
    "LARGEST",
    "LEAST",
    "LIMIT",
    "NUMBERS",
    "BucketPool",
    "Buckets",
    "below_top",
    "free_bucket",
    "has_room",
    "new_bucket",
    "padded",
    "pour",
    "put",
    "survivors",
    "take_out",
]

LEAST = 4  # points that the smallest bucket has room for
LIMIT = config.COVERING_BUCKET  # points of a full bucket: the paper's overflow limit
_STEP = 4  # dimensions that are compared together
_CHUNK = (LIMIT - 1).bit_length()  # the pool grows by rooms for 2^_CHUNK points, or larger ones
_LARGEST_CLASS = 30  # of the rooms of buckets
# Entries of ``used``: buckets numbered so far, the first free number (-1 for none), the room of the largest bucket.
NUMBERS, FREE_NUMBER, LARGEST = range(3)

_RECORD = np.dtype([("at", np.int32), ("size", np.int32), ("capacity", np.int32), ("node", np.int32)])
_FIELDS = ("at", "size", "capacity", "node")
_BY_PLACE = ("rows", "signs", "coordinates")


class Buckets(NamedTuple):
    """All buckets, as kernels see them. Bucket b has the places from at[b] on, capacity[b] of them."""

    at: NDArray[np.int32]
    size: NDArray[np.int32]
    capacity: NDArray[np.int32]
    # The tree node that the bucket belongs to; of a free bucket, the next free number.
    node: NDArray[np.int32]
    tops: NDArray[np.float32]  # [buckets, dimensions]
    rows: NDArray[np.int32]  # by place: the clause row of the point; free rooms are chained through it
    signs: NDArray[np.uint64]  # by place: bits that a query must have
    coordinates: NDArray[np.float32]  # by place: those of a bucket are [dimensions, capacity]
    homes: NDArray[np.int32]  # by clause row: its bucket, -1 for none
    slabs: NDArray[np.int64]  # the allocator of places
    used: NDArray[np.int64]


def padded(dimensions: int) -> int:
    """Return how many dimensions are stored for this many, since they are compared in steps."""
    return -(-dimensions // _STEP) * _STEP


class BucketPool:
    """The arrays of buckets, which grow; kernels see :attr:`view`."""

    def __init__(self, dimensions: int) -> None:
        width = padded(dimensions)
        self.restore(
            {
                **{name: np.empty(0, np.int32) for name in _FIELDS},
                "tops": np.empty((0, width), np.float32),
                "rows": np.empty(0, np.int32),
                "signs": np.empty(0, np.uint64),
                "coordinates": np.empty(0, np.float32),
                "homes": np.empty(0, np.int32),
                "slabs": empty_slabs(_LARGEST_CLASS),
                "used": np.array([0, -1, LEAST]),
            }
        )

    @property
    def width(self) -> int:
        """How many dimensions are stored."""
        return int(self._arrays["tops"].shape[1])

    def make_room(self, rows: int, points: int) -> None:
        """Make room for clause rows up to *rows*, and for this many more points wherever they go."""
        self.reserve(rows, 2 * points, int(_needed(self.view.used, points)))

    def reserve(self, rows: int, numbers: int, places: int) -> None:
        """Make room for clause rows up to *rows*, and for this many more buckets and places."""
        arrays, view = self._arrays, self.view
        numbers += int(view.used[NUMBERS])
        places += int(view.slabs[END])
        arrays.make_room("records", numbers)
        arrays.make_room("tops", numbers)
        arrays.make_room("homes", rows, -1)
        arrays.make_room("rows", places)
        arrays.make_room("signs", places)
        arrays.make_room("coordinates", places * self.width)
        self._see(view.slabs, view.used)

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes: the part of each that is in use."""
        view = self.view
        numbers, places = int(view.used[NUMBERS]), int(view.slabs[END])
        lengths = dict.fromkeys((*_FIELDS, "tops"), numbers)
        lengths |= {"rows": places, "signs": places, "coordinates": places * self.width}
        return {name: array[: lengths.get(name)] for name, array in view._asdict().items()}

    def restore(self, arrays: Arrays) -> None:
        """Take the buckets from their arrays."""
        records = np.empty(len(arrays["at"]), _RECORD)
        for name in _FIELDS:
            records[name] = arrays[name]
        self._arrays = GrowingArrays(
            records=records, **{name: arrays[name] for name in ("tops", "homes", *_BY_PLACE)}
        )
        self._see(arrays["slabs"], arrays["used"])
        self.make_room(0, 1)

    def _see(self, slabs: NDArray[np.int64], used: NDArray[np.int64]) -> None:
        arrays = self._arrays
        columns = [arrays["records"][name] for name in _FIELDS]
        by_place = [arrays[name] for name in _BY_PLACE]
        self.view = Buckets._make([*columns, arrays["tops"], *by_place, arrays["homes"], slabs, used])


@kernel
def _needed(used: NDArray[np.int64], points: int) -> Any:
    """Return how many places this many more points need at most: each may split a bucket, or double the largest."""
    return points * (LIMIT + 2 * used[LARGEST])


@kernel
def has_room(buckets: Buckets, points: int) -> Any:
    """Tell whether there is room for this many more points, whatever has to be split or to grow for them."""
    used = buckets.used
    return (
        used[NUMBERS] + 2 * points <= buckets.at.size
        and buckets.slabs[END] + _needed(used, points) <= buckets.rows.size
    )


@kernel
def new_bucket(buckets: Buckets, capacity: int, node: int) -> Any:
    """Return the number of a new bucket with room for this many points, a power of two."""
    used = buckets.used
    number = used[FREE_NUMBER]
    if number >= 0:
        used[FREE_NUMBER] = buckets.node[number]
    else:
        number = used[NUMBERS]
        used[NUMBERS] += 1
    buckets.at[number] = allot(buckets.slabs, buckets.rows, size_class(capacity), _CHUNK)
    buckets.size[number], buckets.capacity[number], buckets.node[number] = 0, capacity, node
    buckets.tops[number, :] = -np.inf
    used[LARGEST] = max(used[LARGEST], capacity)
    return number


@kernel
def free_bucket(buckets: Buckets, number: int) -> None:
    """Give the places and the number of a bucket back."""
    release(buckets.slabs, buckets.rows, buckets.at[number], buckets.capacity[number], _CHUNK)
    buckets.node[number] = buckets.used[FREE_NUMBER]
    buckets.used[FREE_NUMBER] = number


@kernel
def put(buckets: Buckets, number: int, row: int, sign: int, point: NDArray[np.float32]) -> None:
    """Put a point into a bucket; a full bucket gets twice the room."""
    size, capacity, width = buckets.size[number], buckets.capacity[number], buckets.tops.shape[1]
    rows, signs, coordinates = buckets.rows, buckets.signs, buckets.coordinates
    at: Any = np.int64(buckets.at[number])
    if size == capacity:
        wide = np.int64(allot(buckets.slabs, rows, size_class(2 * capacity), _CHUNK))
        for i in range(size):
            rows[wide + i], signs[wide + i] = rows[at + i], signs[at + i]
        for d in range(width):
            for i in range(size):
                coordinates[wide * width + d * 2 * capacity + i] = coordinates[at * width + d * capacity + i]
        release(buckets.slabs, rows, at, capacity, _CHUNK)
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
    """Take the point of a clause row out of its bucket, and return the bucket; its top stays as high as it was."""
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
    """Copy a point of a bucket over another one in it."""
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
    """Move the chosen points of a bucket into another one, and lower the top of the first to the points that stay.

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
    """Write the clause rows of a bucket that may dominate a query to *out*; return how many there are.

    *missing* has the bits that the query lacks; *alive* and *out* have room for the largest bucket. The arguments are
    plain arrays, because unpacking :class:`Buckets` for each bucket would cost more than the work itself.
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
