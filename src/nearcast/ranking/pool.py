"""The posting lists of all words: blocks of postings that lie near each other, and what is known of each block.

A posting is a word of a subscription. The postings of a word are divided into *blocks* of at most
``config.RANKING_BLOCK``, neighbours in space together; the headers of a word's blocks are side by side, field by field,
so that a search runs over them without a miss. Headers and postings are pools of :mod:`~nearcast.kernels.slabs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.slabs import END, allot, empty_slabs, release, size_class

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ALPHA",
    "BLOCK",
    "FIELDS",
    "GROUP",
    "LEVELS",
    "SHARE",
    "TAIL",
    "THRESHOLD",
    "Pool",
    "X",
    "Y",
    "Z",
    "empty_pool",
    "find_posting",
    "grown_pool",
    "insert",
    "pool_arrays",
    "remove",
    "summarize",
    "summarize_groups",
    "take_headers",
    "take_postings",
]

BLOCK = config.RANKING_BLOCK
LEVELS = config.RANKING_LEVELS
GROUP = config.RANKING_GROUP
LARGEST = 24  # a word has room for up to 2^LARGEST headers
BLOCK_CLASS, GROUP_CLASS = BLOCK.bit_length() - 1, GROUP.bit_length() - 1  # both are powers of 2
#: Fields of a posting, float32: the place in units of the farthest distance; α; (1 - α) / length of the subscription's
#: vector; the sum of the squared weights of its words from this one on, in order of frequency; θ.
X, Y, Z, ALPHA, SHARE, TAIL, THRESHOLD = range(7)
FIELDS = 7


class Pool(NamedTuple):
    """Posting lists in flat arrays."""

    # of each word
    first: NDArray[np.int64]  # header
    blocks: NDArray[np.int32]
    room: NDArray[np.int32]  # for headers
    # of each block: its header
    boxes: NDArray[np.float32]  # [6, headers]: lowest x, y, z, highest x, y, z
    reach: NDArray[np.float32]  # [LEVELS, headers]: the distance that a message may have, by its weight
    at: NDArray[np.int64]  # its postings begin at this place
    capacity: NDArray[np.int32]
    size: NDArray[np.int32]
    # of each group of GROUP headers, where a word has room for at least one
    group_boxes: NDArray[np.float32]
    group_reach: NDArray[np.float32]
    # of each posting
    owners: NDArray[np.int32]
    fields: NDArray[np.float32]  # block by block, in a block field by field
    # bookkeeping
    header_slabs: NDArray[np.int64]  # the allocator of headers; free rooms are linked by `at`
    posting_slabs: NDArray[np.int64]  # that of postings; free rooms are linked by `owners`
    knots: NDArray[np.float64]  # [LEVELS]: 1 / length of a message's vector, ascending, from 0 to the most


def empty_pool(words: int, headers: int, postings: int, knots: NDArray[np.float64]) -> Pool:
    """Return a pool without postings, with room for so many words, headers and postings."""
    return Pool(
        np.zeros(words, np.int64),
        np.zeros(words, np.int32),
        np.zeros(words, np.int32),
        np.empty((6, headers), np.float32),
        np.empty((LEVELS, headers), np.float32),
        np.empty(headers, np.int64),
        np.empty(headers, np.int32),
        np.zeros(headers, np.int32),  # their sum bounds the number of postings
        np.empty((6, headers // GROUP + 1), np.float32),
        np.empty((LEVELS, headers // GROUP + 1), np.float32),
        np.empty(postings, np.int32),
        np.empty(FIELDS * postings, np.float32),
        empty_slabs(LARGEST),
        empty_slabs(BLOCK_CLASS),
        knots,
    )


def grown_pool(pool: Pool, words: int, headers: int, postings: int) -> Pool:
    """Return the same lists with more room."""
    new = empty_pool(
        max(words, len(pool.first)), max(headers, len(pool.at)), max(postings, len(pool.owners)), pool.knots
    )
    for name in ("first", "blocks", "room", "at", "capacity", "size", "owners", "fields"):
        old = getattr(pool, name)
        getattr(new, name)[: len(old)] = old
    for name in ("boxes", "reach", "group_boxes", "group_reach"):
        old = getattr(pool, name)
        getattr(new, name)[:, : old.shape[1]] = old
    for name in ("header_slabs", "posting_slabs"):
        getattr(new, name)[:] = getattr(pool, name)
    return new


def pool_arrays(pool: Pool) -> dict[str, NDArray[Any]]:
    """Return the part of each array that is in use."""
    headers, postings = int(pool.header_slabs[END]), int(pool.posting_slabs[END])
    lengths = dict.fromkeys(("boxes", "reach", "at", "capacity", "size"), headers)
    lengths |= dict.fromkeys(("group_boxes", "group_reach"), headers // GROUP + 1)
    lengths |= {"owners": postings, "fields": FIELDS * postings}
    return {name: array[..., : lengths.get(name)] for name, array in pool._asdict().items()}


@kernel
def take_headers(pool: Pool, count: int) -> Any:
    """Return the first of *count* headers side by side; groups do not cross lists."""
    return allot(pool.header_slabs, pool.at, size_class(count), GROUP_CLASS)


@kernel
def _give_headers(pool: Pool, first: int, room: int) -> None:
    release(pool.header_slabs, pool.at, first, room, GROUP_CLASS)


@kernel
def take_postings(pool: Pool, capacity: int) -> Any:
    """Return where a block of so many postings begins."""
    return allot(pool.posting_slabs, pool.owners, size_class(capacity), BLOCK_CLASS)


@kernel
def _give_postings(pool: Pool, at: int, capacity: int) -> None:
    release(pool.posting_slabs, pool.owners, at, capacity, BLOCK_CLASS)


@kernel
def summarize(pool: Pool, word: int, header: int) -> None:
    """Compute what is known of a block of a word, and of the group that it is in."""
    _summarize_block(pool, header)
    _summarize_group(pool, word, header // GROUP)


@kernel
def _summarize_group(pool: Pool, word: int, group: int) -> None:
    """Compute the box and the reach that hold those of a group of blocks."""
    if pool.room[word] < GROUP:
        return
    begin = group * GROUP
    end = min(begin + GROUP, pool.first[word] + pool.blocks[word])
    for axis in range(3):
        low, high = np.float32(3e38), np.float32(-3e38)
        for header in range(begin, end):
            low, high = min(low, pool.boxes[axis, header]), max(high, pool.boxes[axis + 3, header])
        pool.group_boxes[axis, group], pool.group_boxes[axis + 3, group] = low, high
    for level in range(LEVELS):
        farthest = np.float32(-3e38)
        for header in range(begin, end):
            farthest = max(farthest, pool.reach[level, header])
        pool.group_reach[level, group] = farthest


@kernel
def summarize_groups(pool: Pool, word: int) -> None:
    """Compute what is known of all groups of a word."""
    first, blocks = pool.first[word], pool.blocks[word]
    for group in range(first // GROUP, (first + blocks + GROUP - 1) // GROUP):
        _summarize_group(pool, word, group)


@kernel
def _summarize_block(pool: Pool, header: int) -> None:
    """Compute what is known of a block (Theorem 3): its box, and for each level how far away a message may be.

    A posting can be satisfied by a message at distance d only if α (1 - d) + (1 - α) T >= θ, where T is the most that
    the words from this one on can contribute (Theorem 1). The largest d of any posting in the block is its reach:
    tighter than the extremes of α and θ one by one, since the posting with the smallest θ is rarely the one with the
    largest α.
    """
    fields, reach, boxes = pool.fields, pool.reach, pool.boxes
    capacity, size = pool.capacity[header], pool.size[header]
    base = pool.at[header] * FIELDS
    for axis in range(3):
        low, high = np.float32(3e38), np.float32(-3e38)
        for i in range(base + axis * capacity, base + axis * capacity + size):
            low, high = min(low, fields[i]), max(high, fields[i])
        boxes[axis, header], boxes[axis + 3, header] = low, high
    for level in range(LEVELS):
        weight, farthest = pool.knots[level], -1e9
        for i in range(size):
            alpha = max(fields[base + ALPHA * capacity + i], config.RANKING_LEAST_ALPHA)
            words = fields[base + SHARE * capacity + i] * fields[base + TAIL * capacity + i] * weight
            farthest = max(farthest, 1.0 - (fields[base + THRESHOLD * capacity + i] - words) / alpha)
        reach[level, header] = farthest


@kernel
def _copy_posting(pool: Pool, source: int, i: int, target: int, j: int) -> None:
    """Copy posting *i* of the block with header *source* to *j* of *target*."""
    a, b = pool.at[source], pool.at[target]
    pool.owners[b + j] = pool.owners[a + i]
    for field in range(FIELDS):
        pool.fields[b * FIELDS + field * pool.capacity[target] + j] = pool.fields[
            a * FIELDS + field * pool.capacity[source] + i
        ]


@kernel
def _new_header(pool: Pool, word: int) -> Any:
    """Return the header of another block of a word; the headers move where their room is full."""
    count, room = pool.blocks[word], pool.room[word]
    if count == room:
        wider = max(1, 2 * room)
        old, new = pool.first[word], take_headers(pool, wider)
        for i in range(count):
            pool.at[new + i] = pool.at[old + i]
            pool.capacity[new + i] = pool.capacity[old + i]
            pool.size[new + i] = pool.size[old + i]
            for axis in range(6):
                pool.boxes[axis, new + i] = pool.boxes[axis, old + i]
            for level in range(LEVELS):
                pool.reach[level, new + i] = pool.reach[level, old + i]
        _give_headers(pool, old, room)
        pool.first[word], pool.room[word] = new, wider
        summarize_groups(pool, word)
    pool.blocks[word] += np.int32(1)
    return pool.first[word] + count


@kernel
def _open(pool: Pool, header: int, capacity: int) -> None:
    """Give a header an empty block."""
    pool.capacity[header] = capacity
    pool.size[header] = 0
    pool.at[header] = take_postings(pool, capacity)


@kernel
def _growth(pool: Pool, header: int, x: float, y: float, z: float) -> Any:
    """Return by how much a place lies outside the box of a block; of those that hold it, the smallest box wins."""
    boxes = pool.boxes
    outside, extent = 0.0, 0.0
    outside += max(0.0, boxes[0, header] - x, x - boxes[3, header])
    outside += max(0.0, boxes[1, header] - y, y - boxes[4, header])
    outside += max(0.0, boxes[2, header] - z, z - boxes[5, header])
    for axis in range(3):
        extent += boxes[axis + 3, header] - boxes[axis, header]
    return outside + 1e-4 * extent


@kernel
def _home(pool: Pool, word: int, x: float, y: float, z: float) -> Any:
    """Return the header of the block whose box grows least by a place."""
    best, least = pool.first[word], np.inf
    for header in range(pool.first[word], pool.first[word] + pool.blocks[word]):
        growth = _growth(pool, header, x, y, z)
        if growth < least:
            best, least = header, growth
    return best


@kernel
def _split(pool: Pool, word: int, header: int) -> Any:
    """Divide a full block at the median of its longest axis; return the headers of the two."""
    axis, longest = 0, -1.0
    for k in range(3):
        extent = pool.boxes[k + 3, header] - pool.boxes[k, header]
        if extent > longest:
            axis, longest = k, extent
    place = header - pool.first[word]
    other = _new_header(pool, word)
    header = pool.first[word] + place  # the headers may have moved
    at, capacity, size = pool.at[header], pool.capacity[header], pool.size[header]
    base = at * FIELDS + axis * capacity
    order = np.argsort(pool.fields[base : base + size])
    half = size // 2
    _open(pool, other, capacity)
    _refill(pool, at, capacity, order[half:], other)
    _open(pool, header, capacity)
    _refill(pool, at, capacity, order[:half], header)
    _give_postings(pool, at, capacity)
    summarize(pool, word, header)
    summarize(pool, word, other)
    return header, other


@kernel
def _refill(pool: Pool, at: int, capacity: int, picks: NDArray[np.int64], header: int) -> None:
    """Put postings of a block that begins at *at* into the empty block of *header*."""
    new, wide = pool.at[header], pool.capacity[header]
    for i in range(len(picks)):
        pool.owners[new + i] = pool.owners[at + picks[i]]
        for field in range(FIELDS):
            pool.fields[new * FIELDS + field * wide + i] = pool.fields[
                at * FIELDS + field * capacity + picks[i]
            ]
    pool.size[header] = len(picks)


@kernel
def insert(pool: Pool, word: int, owner: int, posting: NDArray[np.float32]) -> None:
    """Add a posting; there must be room in the pool for two blocks and for twice the headers of the word."""
    x, y, z = posting[X], posting[Y], posting[Z]
    if pool.blocks[word] == 0:
        header = _new_header(pool, word)
        _open(pool, header, 4)
    else:
        header = _home(pool, word, x, y, z)
    if pool.size[header] == pool.capacity[header]:
        at, capacity, size = pool.at[header], pool.capacity[header], pool.size[header]
        if capacity < BLOCK:
            _open(pool, header, 2 * capacity)
            _refill(pool, at, capacity, np.arange(size), header)
            _give_postings(pool, at, capacity)
        else:
            header, other = _split(pool, word, header)
            if _growth(pool, other, x, y, z) < _growth(pool, header, x, y, z):
                header = other
    i = pool.size[header]
    at, capacity = pool.at[header], pool.capacity[header]
    pool.owners[at + i] = owner
    for field in range(FIELDS):
        pool.fields[at * FIELDS + field * capacity + i] = posting[field]
    pool.size[header] += np.int32(1)
    summarize(pool, word, header)


@kernel
def find_posting(pool: Pool, word: int, owner: int, x: float, y: float, z: float) -> Any:
    """Return the header, and the place in the block, of the posting of *owner* at a known place; -1, -1 for none."""
    boxes = pool.boxes
    for header in range(pool.first[word], pool.first[word] + pool.blocks[word]):
        if (
            boxes[0, header] <= x <= boxes[3, header]
            and boxes[1, header] <= y <= boxes[4, header]
            and boxes[2, header] <= z <= boxes[5, header]
        ):
            at = pool.at[header]
            for i in range(pool.size[header]):
                if pool.owners[at + i] == owner:
                    return header, np.int64(i)
    return np.int64(-1), np.int64(-1)


@kernel
def remove(pool: Pool, word: int, owner: int, x: float, y: float, z: float) -> Any:
    """Take the posting of *owner* away; say whether it was there. A block that is empty goes."""
    header, i = find_posting(pool, word, owner, x, y, z)
    if header < 0:
        return False
    last = pool.size[header] - 1
    _copy_posting(pool, header, last, header, i)
    pool.size[header] = last
    if last > 0:
        summarize(pool, word, header)
        return True
    _give_postings(pool, pool.at[header], pool.capacity[header])
    end = pool.first[word] + pool.blocks[word] - 1
    pool.at[header], pool.capacity[header], pool.size[header] = (
        pool.at[end],
        pool.capacity[end],
        pool.size[end],
    )
    for axis in range(6):
        pool.boxes[axis, header] = pool.boxes[axis, end]
    for level in range(LEVELS):
        pool.reach[level, header] = pool.reach[level, end]
    pool.blocks[word] -= np.int32(1)
    if pool.blocks[word] == 0:
        _give_headers(pool, pool.first[word], pool.room[word])
        pool.room[word] = 0
        return True
    _summarize_group(pool, word, header // GROUP)
    _summarize_group(pool, word, end // GROUP)
    return True
