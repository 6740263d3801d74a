"""The segments of the message index: how they are built, and merged little by little.

A segment is built from messages or from smaller segments. Its postings are sorted by word, and those of a word along a
Z-curve, so that neighbours fall into the same block. The curve is the same in all segments: to merge them is to merge
sorted lists. A large merge takes seconds, so it is done word by word, a few words at a time. Until it is done, the
segments that it merges still answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel
from nearcast.ranking.curve import z_order
from nearcast.ranking.segments import BLOCK, Segment, mark_of, slot_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.ranking.curve import Cube
    from nearcast.ranking.windows import MessageTable

__all__ = ["Merge", "segment_of"]


class _Postings(NamedTuple):
    """Words of messages."""

    words: NDArray[np.int32]
    numbers: NDArray[np.int32]  # message numbers, counted from the begin of the segment
    places: NDArray[np.float32]  # [3, postings]
    weights: NDArray[np.float32]
    marks: NDArray[np.uint64]


class _Draft:
    """A segment that is being written, word by word in ascending order."""

    def __init__(self, words: int, blocks: int, postings: int) -> None:
        """Make room for this many words, blocks and postings; memory that nothing is written to costs nothing."""
        self._words, self._lists = np.empty(words, np.int32), np.zeros(words + 1, np.int64)
        self._boxes, self._heaviest = np.empty((6, blocks), np.float32), np.empty(blocks, np.float32)
        self._starts = np.zeros(blocks + 1, np.int64)
        self._numbers = np.empty(postings, np.int32)
        self._places, self._weights = np.empty((3, postings), np.float32), np.empty(postings, np.float32)
        self._marks = np.empty(postings, np.uint64)
        self._used = 0, 0, 0  # words, blocks, postings

    def write(self, new: _Postings, order: NDArray[np.int64]) -> None:
        """Append all postings of some words, in this order."""
        words = new.words[order]
        firsts = np.flatnonzero(np.diff(words, prepend=-1))
        cuts = np.append(firsts, len(words))
        blocks = -(-np.diff(cuts) // BLOCK)
        lists = offsets_of(blocks)
        word, block, posting = self._used
        ends = word + len(firsts), block + int(lists[-1]), posting + len(words)
        self._words[word : ends[0]] = words[firsts]
        self._lists[word + 1 : ends[0] + 1] = block + lists[1:]
        self._starts[block + 1 : ends[1] + 1] = posting + _block_starts(cuts, blocks, lists)[1:]
        self._numbers[posting : ends[2]] = new.numbers[order]
        for mine, places in zip(self._places, new.places):
            mine[posting : ends[2]] = places[order]
        self._weights[posting : ends[2]] = new.weights[order]
        self._marks[posting : ends[2]] = new.marks[order]
        _summarize(self._starts, self._places, self._weights, block, ends[1], self._boxes, self._heaviest)
        self._used = ends

    def finished(self, begin: int, end: int) -> Segment:
        """Return the segment, of the messages *begin* to *end*."""
        words, blocks, _ = self._used
        names = self._words[:words].copy()
        slots = np.full(1 << max(4, (2 * words).bit_length()), -1, np.int32)
        _hash_words(slots, names)
        return Segment(
            begin,
            end,
            slots,
            names,
            self._lists[: words + 1].copy(),
            self._boxes[:, :blocks].copy(),
            self._heaviest[:blocks].copy(),
            self._starts[: blocks + 1].copy(),
            self._numbers,
            self._places,
            self._weights,
            self._marks,
        )


def segment_of(table: MessageTable, begin: int, end: int, scale: float, cube: Cube) -> Segment:
    """Build the segment of the messages *begin* to *end*; *scale* makes the largest distance 1, *cube* is scaled."""
    rows = np.arange(begin - table.base, end - table.base)
    counts = table.stops[rows] - table.starts[rows]
    owners = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
    offsets = offsets_of(counts)
    words = table.words[np.arange(offsets[-1]) + np.repeat(table.starts[rows] - offsets[:-1], counts)]
    places = np.ascontiguousarray((table.places[rows] * scale).T, np.float32)
    weights = (1.0 / table.lengths[rows]).astype(np.float32)
    marks = np.zeros(len(rows), np.uint64)
    _mark(owners, words, marks)
    draft = _Draft(len(words), len(words), len(words))
    order = np.lexsort((z_order(places.T.astype(np.float64, "C"), cube)[owners], words))
    draft.write(_Postings(words, owners, places[:, owners], weights[owners], marks[owners]), order)
    return draft.finished(begin, end)


class Merge:
    """The merge of consecutive segments into one, in steps."""

    def __init__(self, parts: Sequence[Segment], cube: Cube) -> None:
        self.begin, self.end = parts[0].begin, parts[-1].end
        self._cube = cube
        self._parts = tuple(parts)
        self._cuts = [part.starts[part.lists] for part in parts]  # where the lists of each part begin
        self._done = [0] * len(parts)  # how many lists of each part are merged
        self._draft = _Draft(
            sum(len(part.words) for part in parts),
            sum(len(part.heaviest) for part in parts),
            sum(len(part.numbers) for part in parts),
        )

    @property
    def nbytes(self) -> int:
        """Memory in bytes that the merged words take up so far, about."""
        return sum(
            int(cuts[done]) * part.nbytes // max(1, len(part.numbers))
            for part, cuts, done in zip(self._parts, self._cuts, self._done)
        )

    def covers(self, segment: Segment) -> bool:
        """Return whether a segment is one of those that are merged."""
        return self.begin <= segment.begin and segment.end <= self.end

    def step(self, postings: int) -> Segment | None:
        """Merge the next words, with about this many *postings*, or one with more; return the segment in the end."""
        share = max(1, postings // len(self._parts))
        limits = []
        for part, cuts, done in zip(self._parts, self._cuts, self._done):
            if done < len(part.words):
                stop = max(done + 1, int(np.searchsorted(cuts, cuts[done] + share, "right")) - 1)
                limits.append(int(part.words[stop]) if stop < len(part.words) else np.iinfo(np.int64).max)
        if not limits:
            return self._draft.finished(self.begin, self.end)
        new, runs = self._before(min(limits))
        codes = z_order(new.places.T.astype(np.float64, "C"), self._cube)
        self._draft.write(new, _merged_order(new.words, codes, runs))
        return None

    def _before(self, limit: int) -> tuple[_Postings, NDArray[np.int64]]:
        """Return the unmerged postings of the words before *limit*, part by part, and where parts begin."""
        found = []
        for i, (part, cuts) in enumerate(zip(self._parts, self._cuts)):
            done, self._done[i] = self._done[i], int(np.searchsorted(part.words, limit))
            lists, postings = slice(done, self._done[i]), slice(cuts[done], cuts[self._done[i]])
            words = np.repeat(part.words[lists], np.diff(cuts[done : self._done[i] + 1]))
            numbers = part.numbers[postings] + np.int32(part.begin - self.begin)
            columns = part.places[:, postings], part.weights[postings], part.marks[postings]
            found.append((words, numbers, *columns))
        runs = offsets_of(np.array([len(part[0]) for part in found]))
        return _Postings(*(np.concatenate(columns, axis=-1) for columns in zip(*found))), runs


@kernel
def _mark(owners: NDArray[np.int32], words: NDArray[np.int32], marks: NDArray[np.uint64]) -> None:
    """Add the marks of words to those of the messages that have them."""
    for i in range(len(words)):
        marks[owners[i]] |= mark_of(words[i])


@kernel
def _merged_order(words: NDArray[np.int32], codes: NDArray[np.uint64], runs: NDArray[np.int64]) -> Any:
    """Return the order by word and code of postings that are in order from each of *runs* to the next."""
    order, other = np.arange(len(words)), np.empty(len(words), np.int64)
    wide = 1  # how many of the given runs are one run now
    while wide < len(runs) - 1:
        for first in range(0, len(runs) - 1, 2 * wide):
            i, middle = runs[first], runs[min(first + wide, len(runs) - 1)]
            j, end = middle, runs[min(first + 2 * wide, len(runs) - 1)]
            for at in range(i, end):
                take = j == end
                if i < middle and not take:
                    a, b = order[i], order[j]
                    take = words[a] < words[b] or (words[a] == words[b] and codes[a] <= codes[b])
                if take:
                    other[at] = order[i]
                    i += 1
                else:
                    other[at] = order[j]
                    j += 1
        order, other = other, order
        wide *= 2
    return order


@kernel
def _block_starts(cuts: NDArray[np.int64], blocks: NDArray[np.int64], lists: NDArray[np.int64]) -> Any:
    """Return where blocks begin; those of one list are of about the same size."""
    starts = np.empty(lists[-1] + 1, np.int64)
    for i in range(len(blocks)):
        count = cuts[i + 1] - cuts[i]
        for block in range(blocks[i]):
            starts[lists[i] + block] = cuts[i] + block * count // blocks[i]
    starts[lists[-1]] = cuts[-1]
    return starts


@kernel
def _summarize(
    starts: NDArray[np.int64],
    places: NDArray[np.float32],
    weights: NDArray[np.float32],
    first: int,
    last: int,
    boxes: NDArray[np.float32],
    heaviest: NDArray[np.float32],
) -> None:
    """Compute the boxes and the largest weights of the blocks *first* to *last*."""
    for block in range(first, last):
        most = np.float32(0.0)
        for axis in range(3):
            low, high = np.float32(3e38), np.float32(-3e38)
            for i in range(starts[block], starts[block + 1]):
                low, high = min(low, places[axis, i]), max(high, places[axis, i])
            boxes[axis, block], boxes[axis + 3, block] = low, high
        for i in range(starts[block], starts[block + 1]):
            most = max(most, weights[i])
        heaviest[block] = most


@kernel
def _hash_words(slots: NDArray[np.int32], words: NDArray[np.int32]) -> None:
    """Write the list of each word to a hash table."""
    mask = len(slots) - 1
    for i in range(len(words)):
        at = slot_of(words[i], mask)
        while slots[at] >= 0:
            at = (at + 1) & mask
        slots[at] = i
