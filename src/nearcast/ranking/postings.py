"""Posting lists in blocks, and the header of each block: what :mod:`~nearcast.ranking.blocks` searches.

A posting is a word of a subscription. The postings of a word are divided into *blocks* of at most
``config.RANKING_BLOCK`` that lie close together. The headers of a word's blocks are side by side, field by field, so
that a search reads them in order. Both headers and postings are pools of :mod:`~nearcast.kernels.slabs`.

Theorems are those of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding Window"
(2017).
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
    "PostingLists",
    "X",
    "Y",
    "Z",
    "change_threshold",
    "empty_lists",
    "find_posting",
    "grown_lists",
    "insert",
    "list_arrays",
    "remove",
    "summarize",
    "summarize_groups",
    "take_headers",
    "take_postings",
]

BLOCK = config.RANKING_BLOCK
LEVELS = config.RANKING_LEVELS
GROUP = config.RANKING_GROUP
LARGEST = 24  # a word has up to 2^LARGEST headers
BLOCK_CLASS, GROUP_CLASS = BLOCK.bit_length() - 1, GROUP.bit_length() - 1  # both are powers of 2
#: The fields of a posting, float32: the place in units of the largest distance; α; (1 - α) / length of the
#: subscription's vector; the sum of the squared weights of its words from this one on, rarest first; θ.
X, Y, Z, ALPHA, SHARE, TAIL, THRESHOLD = range(7)
FIELDS = 7


class PostingLists(NamedTuple):
    """The posting lists of all words, in flat arrays."""

    # of each word
    first: NDArray[np.int64]  # its first header
    blocks: NDArray[np.int32]  # how many blocks it has
    room: NDArray[np.int32]  # how many headers it has room for
    # the header of each block
    boxes: NDArray[np.float32]  # [6, headers]: lowest x, y, z, highest x, y, z
    reach: NDArray[np.float32]  # [LEVELS, headers]: how far away a message may be, by its weight
    at: NDArray[np.int64]  # its first posting
    capacity: NDArray[np.int32]
    size: NDArray[np.int32]
    # of each group of GROUP headers, for words with room for at least one group
    group_boxes: NDArray[np.float32]
    group_reach: NDArray[np.float32]
    # of each posting
    owners: NDArray[np.int32]
    fields: NDArray[np.float32]  # block by block, in a block field by field
    # allocators
    header_slabs: NDArray[np.int64]  # free rooms are linked by `at`
    posting_slabs: NDArray[np.int64]  # free rooms are linked by `owners`
    # of all blocks
    knots: NDArray[np.float64]  # [LEVELS]: values of 1 / length of a message's vector, ascending from 0


def empty_lists(words: int, headers: int, postings: int, knots: NDArray[np.float64]) -> PostingLists:
    """Return empty lists with room for this many words, headers and postings.

    Long ones get so many addresses that they are hardly ever copied: see :func:`~nearcast.columns.growable.roomy`.
    """
    if config.ADDRESSES_ARE_FREE and 4 * LEVELS * headers >= config.RESERVE_FROM_BYTES:
        words = max(2 * words, config.RESERVED_BYTES // 8)
        # Rows of headers that are a power of two apart would compete for the same lines of the caches.
        headers = max(2 * headers, config.RESERVED_BYTES // (4 * LEVELS)) + GROUP * 81
        postings = max(2 * postings, config.RESERVED_BYTES // (4 * FIELDS))
    return PostingLists(
        np.zeros(words, np.int64),
        np.zeros(words, np.int32),
        np.zeros(words, np.int32),
        np.empty((6, headers), np.float32),
        np.empty((LEVELS, headers), np.float32),
        np.empty(headers, np.int64),
        np.empty(headers, np.int32),
        np.zeros(headers, np.int32),  # zeros, since their sum bounds the number of postings
        np.empty((6, headers // GROUP + 1), np.float32),
        np.empty((LEVELS, headers // GROUP + 1), np.float32),
        np.empty(postings, np.int32),
        np.empty(FIELDS * postings, np.float32),
        empty_slabs(LARGEST),
        empty_slabs(BLOCK_CLASS),
        knots,
    )


def grown_lists(lists: PostingLists, words: int, headers: int, postings: int) -> PostingLists:
    """Return the same lists with more room."""
    new = empty_lists(
        max(words, len(lists.first)),
        max(headers, len(lists.at)),
        max(postings, len(lists.owners)),
        lists.knots,
    )
    for name in ("first", "blocks", "room", "at", "capacity", "size", "owners", "fields"):
        old = getattr(lists, name)
        getattr(new, name)[: len(old)] = old
    for name in ("boxes", "reach", "group_boxes", "group_reach"):
        old = getattr(lists, name)
        getattr(new, name)[:, : old.shape[1]] = old
    for name in ("header_slabs", "posting_slabs"):
        getattr(new, name)[:] = getattr(lists, name)
    return new


def list_arrays(lists: PostingLists, words: int) -> dict[str, NDArray[Any]]:
    """Return the part of each array that is in use for this many words."""
    headers, postings = int(lists.header_slabs[END]), int(lists.posting_slabs[END])
    lengths = dict.fromkeys(("first", "blocks", "room"), words)
    lengths |= dict.fromkeys(("boxes", "reach", "at", "capacity", "size"), headers)
    lengths |= dict.fromkeys(("group_boxes", "group_reach"), headers // GROUP + 1)
    lengths |= {"owners": postings, "fields": FIELDS * postings}
    return {name: array[..., : lengths.get(name)] for name, array in lists._asdict().items()}


@kernel
def take_headers(lists: PostingLists, count: int) -> Any:
    """Return the first of *count* headers side by side; groups do not cross lists."""
    return allot(lists.header_slabs, lists.at, size_class(count), GROUP_CLASS)


@kernel
def _give_headers(lists: PostingLists, first: int, room: int) -> None:
    release(lists.header_slabs, lists.at, first, room, GROUP_CLASS)


@kernel
def take_postings(lists: PostingLists, capacity: int) -> Any:
    """Return where a block of this many postings begins."""
    return allot(lists.posting_slabs, lists.owners, size_class(capacity), BLOCK_CLASS)


@kernel
def _give_postings(lists: PostingLists, at: int, capacity: int) -> None:
    release(lists.posting_slabs, lists.owners, at, capacity, BLOCK_CLASS)


@kernel
def summarize(lists: PostingLists, word: int, header: int) -> None:
    """Compute the header of a block, and that of its group."""
    _summarize_block(lists, header)
    _summarize_group(lists, word, header // GROUP)


@kernel
def _summarize_group(lists: PostingLists, word: int, group: int) -> None:
    """Compute the box and the reach of a group: those that contain all of its blocks."""
    if lists.room[word] < GROUP:
        return
    begin = group * GROUP
    end = min(begin + GROUP, lists.first[word] + lists.blocks[word])
    for axis in range(3):
        low, high = np.float32(3e38), np.float32(-3e38)
        for header in range(begin, end):
            low, high = min(low, lists.boxes[axis, header]), max(high, lists.boxes[axis + 3, header])
        lists.group_boxes[axis, group], lists.group_boxes[axis + 3, group] = low, high
    for level in range(LEVELS):
        farthest = np.float32(-3e38)
        for header in range(begin, end):
            farthest = max(farthest, lists.reach[level, header])
        lists.group_reach[level, group] = farthest


@kernel
def summarize_groups(lists: PostingLists, word: int) -> None:
    """Compute the headers of all groups of a word."""
    first, blocks = lists.first[word], lists.blocks[word]
    for group in range(first // GROUP, (first + blocks + GROUP - 1) // GROUP):
        _summarize_group(lists, word, group)


@kernel
def _summarize_block(lists: PostingLists, header: int) -> None:
    """Compute the box of a block, and for each knot its reach.

    A message at distance d can reach the threshold of a posting only if α (1 - d) + (1 - α) T >= θ, where T is the most
    that the words from this one on can contribute to TSim (Theorem 1). The reach of a block is the largest such d of
    any of its postings. Theorem 3 takes the extremes of α*, kScore* and maxwt one by one; this bound is tighter, since
    the posting with the smallest θ is rarely the one with the largest α.
    """
    fields, boxes = lists.fields, lists.boxes
    capacity, size = lists.capacity[header], lists.size[header]
    base = lists.at[header] * FIELDS
    for axis in range(3):
        low, high = np.float32(3e38), np.float32(-3e38)
        for i in range(base + axis * capacity, base + axis * capacity + size):
            low, high = min(low, fields[i]), max(high, fields[i])
        boxes[axis, header], boxes[axis + 3, header] = low, high
    _summarize_reach(lists, header)


@kernel
def _summarize_reach(lists: PostingLists, header: int) -> None:
    reach, knots = lists.reach, lists.knots
    for level in range(LEVELS):
        reach[level, header] = np.float32(-1e9)
    for i in range(lists.size[header]):
        flat, steep = _reach_of(lists, header, i)
        for level in range(LEVELS):
            reach[level, header] = max(reach[level, header], np.float32(flat + steep * knots[level]))


@kernel
def _reach_of(lists: PostingLists, header: int, i: int) -> Any:
    """Return the reach of a posting as a linear function of the message's weight: its value at 0, and its slope."""
    fields, capacity = lists.fields, lists.capacity[header]
    at = lists.at[header] * FIELDS + i
    alpha = max(fields[at + ALPHA * capacity], config.RANKING_LEAST_ALPHA)
    flat = 1.0 - fields[at + THRESHOLD * capacity] / alpha
    return flat, fields[at + SHARE * capacity] * fields[at + TAIL * capacity] / alpha


@kernel
def change_threshold(lists: PostingLists, word: int, header: int, i: int, threshold: float) -> None:
    """Write the new θ of a posting. If it rises, the reach of the block changes only where this posting sets it."""
    at = lists.at[header] * FIELDS + THRESHOLD * lists.capacity[header] + i
    flat, steep = _reach_of(lists, header, i)
    changes = threshold < lists.fields[at]
    for level in range(LEVELS):
        changes |= np.float32(flat + steep * lists.knots[level]) >= lists.reach[level, header]
    lists.fields[at] = threshold
    if changes:
        _summarize_reach(lists, header)
        _summarize_group(lists, word, header // GROUP)


@kernel
def _copy_posting(lists: PostingLists, source: int, i: int, target: int, j: int) -> None:
    """Copy posting *i* of the block *source* to position *j* of the block *target*."""
    a, b = lists.at[source], lists.at[target]
    lists.owners[b + j] = lists.owners[a + i]
    for field in range(FIELDS):
        lists.fields[b * FIELDS + field * lists.capacity[target] + j] = lists.fields[
            a * FIELDS + field * lists.capacity[source] + i
        ]


@kernel
def _new_header(lists: PostingLists, word: int) -> Any:
    """Return the header of another block of a word. All headers of the word move if their room is full."""
    count, room = lists.blocks[word], lists.room[word]
    if count == room:
        wider = max(1, 2 * room)
        old, new = lists.first[word], take_headers(lists, wider)
        for i in range(count):
            lists.at[new + i] = lists.at[old + i]
            lists.capacity[new + i] = lists.capacity[old + i]
            lists.size[new + i] = lists.size[old + i]
            for axis in range(6):
                lists.boxes[axis, new + i] = lists.boxes[axis, old + i]
            for level in range(LEVELS):
                lists.reach[level, new + i] = lists.reach[level, old + i]
        _give_headers(lists, old, room)
        lists.first[word], lists.room[word] = new, wider
        summarize_groups(lists, word)
    lists.blocks[word] += np.int32(1)
    return lists.first[word] + count


@kernel
def _open(lists: PostingLists, header: int, capacity: int) -> None:
    """Give a header an empty block."""
    lists.capacity[header] = capacity
    lists.size[header] = 0
    lists.at[header] = take_postings(lists, capacity)


@kernel
def _growth(lists: PostingLists, header: int, x: float, y: float, z: float) -> Any:
    """Return how far outside the box of a block a place is. Among boxes that contain it, a smaller one is preferred."""
    boxes = lists.boxes
    outside, extent = 0.0, 0.0
    outside += max(0.0, boxes[0, header] - x, x - boxes[3, header])
    outside += max(0.0, boxes[1, header] - y, y - boxes[4, header])
    outside += max(0.0, boxes[2, header] - z, z - boxes[5, header])
    for axis in range(3):
        extent += boxes[axis + 3, header] - boxes[axis, header]
    return outside + 1e-4 * extent


@kernel
def _home(lists: PostingLists, word: int, x: float, y: float, z: float) -> Any:
    """Return the header of the block whose box grows least to take in a place."""
    best, least = lists.first[word], np.inf
    for header in range(lists.first[word], lists.first[word] + lists.blocks[word]):
        growth = _growth(lists, header, x, y, z)
        if growth < least:
            best, least = header, growth
    return best


@kernel
def _split(lists: PostingLists, word: int, header: int) -> Any:
    """Divide a full block at the median of its longest axis; return the headers of the two halves."""
    axis, longest = 0, -1.0
    for k in range(3):
        extent = lists.boxes[k + 3, header] - lists.boxes[k, header]
        if extent > longest:
            axis, longest = k, extent
    place = header - lists.first[word]
    other = _new_header(lists, word)
    header = lists.first[word] + place  # the headers may have moved
    at, capacity, size = lists.at[header], lists.capacity[header], lists.size[header]
    base = at * FIELDS + axis * capacity
    order = np.argsort(lists.fields[base : base + size])
    half = size // 2
    _open(lists, other, capacity)
    _refill(lists, at, capacity, order[half:], other)
    _open(lists, header, capacity)
    _refill(lists, at, capacity, order[:half], header)
    _give_postings(lists, at, capacity)
    summarize(lists, word, header)
    summarize(lists, word, other)
    return header, other


@kernel
def _refill(lists: PostingLists, at: int, capacity: int, picks: NDArray[np.int64], header: int) -> None:
    """Copy some postings of the block that begins at *at* into the empty block of *header*."""
    new, wide = lists.at[header], lists.capacity[header]
    for i in range(len(picks)):
        lists.owners[new + i] = lists.owners[at + picks[i]]
        for field in range(FIELDS):
            lists.fields[new * FIELDS + field * wide + i] = lists.fields[
                at * FIELDS + field * capacity + picks[i]
            ]
    lists.size[header] = len(picks)


@kernel
def insert(lists: PostingLists, word: int, owner: int, posting: NDArray[np.float32]) -> None:
    """Add a posting; there must be room for two more blocks and for twice the headers of the word."""
    x, y, z = posting[X], posting[Y], posting[Z]
    if lists.blocks[word] == 0:
        header = _new_header(lists, word)
        _open(lists, header, 4)
    else:
        header = _home(lists, word, x, y, z)
    if lists.size[header] == lists.capacity[header]:
        at, capacity, size = lists.at[header], lists.capacity[header], lists.size[header]
        if capacity < BLOCK:
            _open(lists, header, 2 * capacity)
            _refill(lists, at, capacity, np.arange(size), header)
            _give_postings(lists, at, capacity)
        else:
            header, other = _split(lists, word, header)
            if _growth(lists, other, x, y, z) < _growth(lists, header, x, y, z):
                header = other
    i = lists.size[header]
    at, capacity = lists.at[header], lists.capacity[header]
    lists.owners[at + i] = owner
    for field in range(FIELDS):
        lists.fields[at * FIELDS + field * capacity + i] = posting[field]
    lists.size[header] += np.int32(1)
    summarize(lists, word, header)


@kernel
def find_posting(lists: PostingLists, word: int, owner: int, x: float, y: float, z: float) -> Any:
    """Return the header and the position in its block of the posting of *owner*, which is at x, y, z; or -1, -1."""
    header, end = lists.first[word], lists.first[word] + lists.blocks[word]
    grouped = lists.room[word] >= GROUP
    while header < end:
        if grouped and header % GROUP == 0 and not _is_in(lists.group_boxes, header // GROUP, x, y, z):
            header += GROUP
            continue
        if _is_in(lists.boxes, header, x, y, z):
            at = lists.at[header]
            for i in range(lists.size[header]):
                if lists.owners[at + i] == owner:
                    return header, np.int64(i)
        header += 1
    return np.int64(-1), np.int64(-1)


@kernel
def _is_in(boxes: NDArray[np.float32], at: int, x: float, y: float, z: float) -> Any:
    """Return whether a place is in a box."""
    return (
        boxes[0, at] <= x <= boxes[3, at]
        and boxes[1, at] <= y <= boxes[4, at]
        and boxes[2, at] <= z <= boxes[5, at]
    )


@kernel
def remove(lists: PostingLists, word: int, owner: int, x: float, y: float, z: float) -> Any:
    """Remove the posting of *owner*, and its block if that is empty then; return whether it was there."""
    header, i = find_posting(lists, word, owner, x, y, z)
    if header < 0:
        return False
    last = lists.size[header] - 1
    _copy_posting(lists, header, last, header, i)
    lists.size[header] = last
    if last > 0:
        summarize(lists, word, header)
        return True
    _give_postings(lists, lists.at[header], lists.capacity[header])
    end = lists.first[word] + lists.blocks[word] - 1
    lists.at[header], lists.capacity[header], lists.size[header] = (
        lists.at[end],
        lists.capacity[end],
        lists.size[end],
    )
    for axis in range(6):
        lists.boxes[axis, header] = lists.boxes[axis, end]
    for level in range(LEVELS):
        lists.reach[level, header] = lists.reach[level, end]
    lists.blocks[word] -= np.int32(1)
    if lists.blocks[word] == 0:
        _give_headers(lists, lists.first[word], lists.room[word])
        lists.room[word] = 0
        return True
    _summarize_group(lists, word, header // GROUP)
    _summarize_group(lists, word, end // GROUP)
    return True
