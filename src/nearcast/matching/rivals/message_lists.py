"""Messages in lists by cell and word: the common part of the rival stores for subscriptions that move.

Each message is in the lists of all its keywords, in the cells where it is, and in one list more for each of these
cells, that of all its messages, for subscriptions without keywords. A subscription that moves reads lists in the cells
that it touches, and of these takes the messages that are in one of its regions, before or after, but not surely in
both. One that is new moves in from nowhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.postings import FULL
from nearcast.kernels.verify import Clauses, StoredProbes, keep_satisfying, keep_valid
from nearcast.matching.rivals.by_word import WordLists, all_words, keys_of
from nearcast.matching.rivals.directory import NO_LIST, expect, find, key_of
from nearcast.matching.rivals.ranking import NO_WORD
from nearcast.matching.structure import MessageStructure, Moment

__all__ = ["MessageLists", "keep_wanted", "nowhere", "read_moved", "rounded", "shortest"]


class MessageLists(MessageStructure):
    """Lists by cell and word, with tickets. Postings come and go in place, so nobody may read while they change."""

    _lists: WordLists
    _laid_for: int

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Take messages out of all their lists."""
        self._lists.lists.remove_all(rows)

    def outgrown(self, more: int) -> bool:
        """Tell whether there are many times the messages that the cells were made for, or many lists are empty."""
        return self.store.living > config.GRID_GROWTH * max(self._laid_for, 1) or self._lists.wasteful

    def _sample(self) -> NDArray[np.int64]:
        """Return some of the messages, by which cells are laid out."""
        rows = self.members()
        return rows[:: max(len(rows) // config.GRID_SAMPLE, 1)]

    def _words(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return NO_WORD and the words of each message, as (offsets, words)."""
        stored = self.store.stored
        runs = stored.keyword_runs[rows]
        offsets = offsets_of(runs[:, 1] - runs[:, 0] + 1)
        words = np.empty(offsets[-1], np.int32)
        all_words(stored.keyword_runs, stored.keywords, rows, offsets, words)
        return offsets, words

    def _keys(
        self, rows: NDArray[np.int64], offsets: NDArray[np.int64], cells: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the message and the key of every posting, given the cells of each message."""
        word_offsets, words = self._words(rows)
        total = int((np.diff(offsets) * np.diff(word_offsets)).sum())
        owners, keys = np.empty(total, np.int64), np.empty(total, np.int64)
        keys_of(offsets, cells, word_offsets, words, owners, keys)
        return rows[owners], keys

    def stats(self) -> dict[str, Any]:
        """Return the lengths of lists."""
        found = self._lists.stats()
        copies = round(found["postings"] / max(self.store.living, 1), 1)
        return found | {"postings_per_message": copies, "laid_for": self._laid_for}


@kernel
def rounded(boxes: NDArray[np.float64], i: int) -> Any:
    """Return the sides of a box as float32, which keeps their order."""
    return (
        np.float32(boxes[i, 0]),
        np.float32(boxes[i, 1]),
        np.float32(boxes[i, 2]),
        np.float32(boxes[i, 3]),
    )


@kernel
def nowhere(stop: int) -> Any:
    """Return boxes that contain nothing."""
    boxes = np.empty((stop, 4))
    for i in range(stop):
        boxes[i, 0] = boxes[i, 1] = np.inf
        boxes[i, 2] = boxes[i, 3] = -np.inf
    return boxes


@kernel
def shortest(
    slots: NDArray[np.int64],
    slot_lists: NDArray[np.int32],
    sizes: NDArray[np.int32],
    cell: int,
    words: NDArray[np.int32],
    first: int,
    end: int,
) -> Any:
    """Return the shortest list that words[first:end] have in a cell, and the place of its word.

    Without words, it is the list of all messages of the cell. It is NO_LIST if a word has none, or an empty one.
    """
    if first == end:
        return find(slots, slot_lists, key_of(cell, NO_WORD)), first
    for k in range(first, end):
        expect(slots, slot_lists, key_of(cell, words[k]))
    best, chosen = NO_LIST, first
    for k in range(first, end):
        found = find(slots, slot_lists, key_of(cell, words[k]))
        if found == NO_LIST or sizes[found] == 0:
            return NO_LIST, first
        if best == NO_LIST or sizes[found] < sizes[best]:
            best, chosen = found, k
    return best, chosen


@kernel
def read_moved(
    starts: NDArray[np.int64],
    sizes: NDArray[np.int32],
    boxes: NDArray[np.float32],
    rows: NDArray[np.int32],
    target: int,
    before: Any,
    after: Any,
    kept: Any,
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Write the messages of one list that may be in the region before or after, but not surely in both.

    Returns the new end, or FULL if there is no room. No branch depends on the data. Rounding may make sides equal, but
    never swaps them, so what lies inside the kept box strictly is inside for sure.
    """
    start, size = starts[target], sizes[target]
    if filled + size > out.size:
        return FULL
    for at in range(start, start + size):
        left, low, right, high = boxes[at, 0], boxes[at, 1], boxes[at, 2], boxes[at, 3]
        out[filled] = rows[at]
        told = (left <= before[2]) & (right >= before[0]) & (low <= before[3]) & (high >= before[1])
        holds = (left <= after[2]) & (right >= after[0]) & (low <= after[3]) & (high >= after[1])
        stays = (left > kept[0]) & (right < kept[2]) & (low > kept[1]) & (high < kept[3])
        filled += (told | holds) & (not stays)
    return filled


@kernel
def keep_wanted(
    stored: StoredProbes,
    clauses: Clauses,
    c: int,
    moment: Moment,
    out: NDArray[np.int32],
    first: int,
    last: int,
) -> Any:
    """Keep of the candidates out[first:last] those that are valid and satisfy the clause; return the new end."""
    boxes, runs, keywords, expires = stored.boxes, stored.keyword_runs, stored.keywords, stored.expires
    for i in range(first, last):
        prefetch(expires, out[i])
        prefetch(runs, out[i])
        prefetch(boxes, out[i])
    for i in range(first, last):
        prefetch(keywords, runs[out[i], 0])
    last = keep_valid(expires, moment.now, out, first, last, moment.expired)
    return keep_satisfying(stored, clauses, c, out, first, last)
