"""The packed list: ranked lists whose long ones are packed by place, and postings that decide by themselves.

Each clause has one posting, in the list of its rarest keyword (those without keywords share a list). What the papers do
by partitioning, with copies of a subscription in many cells, is done here by order: the postings of a long list lie in
blocks of neighbours, so that a message reads only blocks that it touches, and a posting holds enough (box, the next two
keywords) to decide without its clause in nearly all cases. See ``layout`` for the arrays, ``build`` and ``pack`` for
the order, ``search`` for matching, ``change`` and ``nodes`` for maintenance, which is local: a list is packed as a
whole only when it is built.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.kernels import kernel
from nearcast.kernels.threads import CORES, side_by_side
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.structure import ClauseStructure, Progress, View, silent
from nearcast.matching.structures.packed_list import change
from nearcast.matching.structures.packed_list.build import filled, pack_all, ranges
from nearcast.matching.structures.packed_list.cost import Cost, expected
from nearcast.matching.structures.packed_list.layout import (
    BLOCK_BITS,
    LISTS,
    POSTINGS,
    Lists,
    grown,
    used,
)
from nearcast.matching.structures.packed_list.search import SearchArrays, search

__all__ = ["PackedList"]


class PackedList(ClauseStructure):
    """Posting lists by rarest keyword, long ones packed by place.

    Postings come and go in place, and a list that moves leaves a room that serves the next one at once: a reader of an
    older view may miss a posting or read one twice, so nobody may read while the lists change.
    """

    name: ClassVar[str] = "packed-list"
    shifts = True

    def build(self, sample: Probes | None = None, tell: Progress = silent) -> None:
        """Count words, choose the list of each clause, fill the lists and pack the long ones."""
        tell("counting words", 0.0)
        clauses, living = self.store.clauses, np.flatnonzero(self.store.alive)
        words = _count(clauses, living, 1, np.empty(0, np.int32))  # nothing is known, so nothing is counted
        frequency = np.zeros(words, np.int32)
        _count(clauses, living, 1, frequency)
        del living
        self._frequency = GrowableArray(frequency, borrowed=False)
        self._word_lists = GrowableArray(np.full(words, -1, np.int32), borrowed=False)
        self._homes = GrowableArray(np.empty((0, 2), np.int32))
        self._homes.fill(self.store.rows, -1)
        self._lists = self._filled(tell)
        tell("packing lists", 0.6)
        pack_all(self._lists, self._homes.values)

    def _filled(self, tell: Progress) -> Lists:
        """Choose the list of each clause, and return all lists with what is in them."""
        clauses, rows = self.store.clauses, self.members()
        tell("choosing lists", 0.1)
        targets, extras = np.empty(len(rows), np.int32), np.empty((len(rows), 2), np.int32)

        def describe(start: int) -> None:
            stop = min(start + config.PACKED_SHARE, len(rows))
            _describe(clauses, self._frequency.values, rows, start, stop, targets, extras)

        side_by_side(describe, range(0, len(rows), config.PACKED_SHARE), CORES)
        lists = _number(self._word_lists.values, 1, targets)
        tell("filling lists", 0.4)
        return filled(clauses.boxes, rows, targets, extras, self._homes.values, lists)

    def add(self, rows: NDArray[np.int64]) -> None:
        """Post clauses to the lists of their rarest keywords."""
        clauses = self.store.clauses
        before = int(self._lists.state[LISTS])
        targets, extras = np.empty(len(rows), np.int32), np.empty((len(rows), 2), np.int32)
        while True:
            words, lists = _enlist(
                clauses, self._frequency.values, self._word_lists.values, rows, before, targets, extras
            )
            if words == 0:
                break
            self.expect(words)  # some are new, so nothing was counted
        more = self.store.rows - len(self._homes.values)
        if more > 0:
            self._homes.fill(more, -1)
        if lists > len(self._lists.heads):
            self._lists = grown(self._lists, numbers=lists)
        self._lists.heads[before:lists] = 0
        self._lists.state[LISTS] = lists
        done = 0
        while True:
            done = change.post(self._lists, self._homes.values, clauses.boxes, rows, targets, extras, done)
            if done == len(rows):
                break
            self._make_room(int(targets[done]))

    def expect(self, words: int) -> None:
        """Make room for the frequencies and lists of words."""
        more = words - len(self._frequency.values)
        if more > 0:
            self._frequency.fill(more, 0)
            self._word_lists.fill(more, -1)

    def _make_room(self, number: int) -> None:
        """Grow the pools so far that any posting to a list finds room."""
        slots, supers = change.needs(self._lists, number)
        self._lists = grown(self._lists, slots=slots, supers=supers)

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Take the postings of clauses out."""
        _count(self.store.clauses, rows, -1, self._frequency.values)
        change.unpost(self._lists, self._homes.values, rows)

    def shift(self, rows: NDArray[np.int64]) -> None:
        """Overwrite the boxes of postings, and take those that left their blocks to others."""
        boxes, homes = self.store.clauses.boxes, self._homes.values
        done = 0
        while True:
            done = change.shift(self._lists, homes, boxes, rows, done)
            if done == len(rows):
                break
            self._make_room(int(homes[rows[done], 0]))

    def view(self) -> View:
        """Return the lists and where those of each word are."""
        return View(search, SearchArrays(self.store.clauses, self._lists, self._word_lists.values))

    def expected(self, probes: Probes) -> Cost:
        """Return what matching such *probes* is expected to cost."""
        return expected(self._lists, self._word_lists.values, probes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the pools, as far as they are used."""
        return {
            "frequency": self._frequency.values,
            "word_lists": self._word_lists.values,
            "homes": self._homes.values,
            **used(self._lists)._asdict(),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the pools."""
        self._frequency = GrowableArray(arrays["frequency"], borrowed=False)
        self._word_lists = GrowableArray(arrays["word_lists"], borrowed=False)
        self._homes = GrowableArray(arrays["homes"], borrowed=False)
        self._lists = Lists(**{name: arrays[name] for name in Lists._fields})

    def stats(self) -> dict[str, Any]:
        """Return how the lists are laid out."""
        lists = used(self._lists)
        packed = lists.heads[:, 2] < 0
        sizes = lists.heads[:, 1]
        supers = _supers(lists)
        return {
            "flat_lists": int(np.count_nonzero(~packed & (sizes > 0))),
            "packed_lists": int(np.count_nonzero(packed)),
            "packed_postings": int(sizes[packed].sum()),
            "longest_list": int(sizes.max(initial=0)),
            "blocks": int(lists.super_counts[supers].sum()),
            "super_blocks": len(supers),
        }

    def check(self) -> list[str]:
        """Compare postings with their clauses, and boxes of blocks with what is in them."""
        found = []
        lists, homes = used(self._lists), self._homes.values
        alive = self.members()
        sizes = lists.heads[:, 1]
        if not sizes.sum() == lists.state[POSTINGS] == len(alive):
            found.append(f"{int(sizes.sum())} postings for {len(alive)} clauses")
        slots = homes[alive, 1]
        rows = lists.rows[slots]
        if (homes[alive, 0] < 0).any() or not np.array_equal(np.where(rows < 0, ~rows, rows), alive):
            return [*found, "a posting is not where its clause says"]
        if not np.array_equal(lists.boxes[slots], self.store.clauses.boxes[alive].astype(np.float32)):
            found.append("a posting has another box than its clause")
        supers = _supers(lists)
        blocks = ranges(supers << BLOCK_BITS, lists.super_counts[supers])
        if (lists.super_counts[supers] < 1).any() or (lists.blocks[blocks, 1] < 1).any():
            found.append("a block or super-block is empty")
        if not np.array_equal(lists.chunk_blocks[lists.blocks[blocks, 0]], blocks):
            found.append("a chunk names another block than its own")
        packed = lists.heads[homes[alive, 0], 2] < 0
        inner = lists.boxes[slots[packed]]
        block = lists.chunk_blocks[slots[packed] >> BLOCK_BITS]
        counts = np.bincount(block, minlength=len(lists.blocks))
        if not np.array_equal(counts[blocks], lists.blocks[blocks, 1]):
            found.append("the postings of a block do not add up")
        for what, around in (
            ("block", lists.block_boxes[block]),
            ("super-block", lists.super_boxes[block >> BLOCK_BITS]),
        ):
            if (around[:, :2] > inner[:, :2]).any() or (around[:, 2:] < inner[:, 2:]).any():
                found.append(f"a posting lies outside its {what}")
        return found


def _supers(lists: Lists) -> NDArray[np.int64]:
    """Return the super-blocks of all packed lists."""
    heads = lists.heads[lists.heads[:, 2] < 0]
    return ranges(heads[:, 0], heads[:, 3])


@kernel
def _count(clauses: Clauses, rows: NDArray[np.int64], change: int, frequency: NDArray[np.int32]) -> int:
    """Change the frequency of each keyword of clause rows.

    Returns 0, or, with nothing changed, how many words there are where *frequency* does not know them all.
    """
    runs, keywords = clauses.keyword_runs, clauses.keywords
    known = frequency.size
    for row in rows:
        for k in range(runs[row, 0], runs[row, 1]):
            known = max(known, keywords[k] + 1)
    if known > frequency.size:
        return known
    for row in rows:
        for k in range(runs[row, 0], runs[row, 1]):
            frequency[keywords[k]] += change
    return 0


@kernel
def _describe(
    clauses: Clauses,
    frequency: NDArray[np.int32],
    rows: NDArray[np.int64],
    start: int,
    stop: int,
    words: NDArray[np.int32],
    extras: NDArray[np.int32],
) -> None:
    """Write the rarest keyword of clause rows (-1: none), and what else they need; see ``layout``."""
    _, keyword_runs, keywords, forbidden_runs, _, test_runs = clauses[:6]
    any_forbidden, any_tests = clauses.forbidden.size > 0, clauses.test_attributes.size > 0
    for i in range(start, stop):
        c = rows[i]
        first, second, third = -1, -1, -1  # the rarest keywords, rarest first
        for k in range(keyword_runs[c, 0], keyword_runs[c, 1]):
            word = keywords[k]
            if first < 0 or frequency[word] < frequency[first]:
                first, second, third = word, first, second
            elif second < 0 or frequency[word] < frequency[second]:
                second, third = word, second
            elif third < 0 or frequency[word] < frequency[third]:
                third = word
        more = (
            keyword_runs[c, 1] - keyword_runs[c, 0] > 3
            or (any_forbidden and forbidden_runs[c, 1] > forbidden_runs[c, 0])
            or (any_tests and test_runs[c, 1] > test_runs[c, 0])
        )
        words[i] = first
        extras[i, 0] = second
        extras[i, 1] = -3 - third if more else third


@kernel
def _number(word_lists: NDArray[np.int32], lists: int, targets: NDArray[np.int32]) -> int:
    """Turn words into the numbers of their lists; a word's first list gets the next number, -1 is list 0."""
    for i in range(targets.size):
        word = targets[i]
        if word < 0:
            targets[i] = 0
        else:
            if word_lists[word] < 0:
                word_lists[word] = lists
                lists += 1
            targets[i] = word_lists[word]
    return lists


@kernel
def _enlist(
    clauses: Clauses,
    frequency: NDArray[np.int32],
    word_lists: NDArray[np.int32],
    rows: NDArray[np.int64],
    lists: int,
    targets: NDArray[np.int32],
    extras: NDArray[np.int32],
) -> Any:
    """Count the words of clause rows, describe the rows, and number their lists; return (0, the number of lists).

    All in one call: for a single clause, handing the arrays over takes longer than the work. If there are words that
    *frequency* does not know, nothing is done, and the first number is how many words there are.
    """
    words = _count(clauses, rows, 1, frequency)
    if words > 0:
        return words, lists
    _describe(clauses, frequency, rows, 0, rows.size, targets, extras)
    return 0, _number(word_lists, lists, targets)
