"""The messages in the tree: m-lists (sections 4.2.2 and 4.2.4).

The sections are those of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware
Publish/Subscribe" (2015). A message is attached to the lists of the leaves that it visits when it is matched. If these
are more than a limit, it goes down level by level as far as the limit allows, and is attached to the nodes that it has
reached: a node on the way to a leaf may have a list, too.

A list is *complete* for the messages since it was *born*: all of them that visit its node are in it, or in a list
further up. A node that is new, or gets words that messages were not sent down for, has no list; it gets one, born now,
when the next message or question comes. The lists of a node that is rebuilt are lost.

An entry has the message's place (NaN for an area, which is decided on its box), a signature of its words, its row, and
its number in the sequence of all messages. When the message is removed, its entries stay behind; a row that was given
to another message has another number. They are left out by searches, and dropped when a list needs room (the lazy
deletion of Algorithm 5, line 9).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.rows.messages import MessageRows
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.slabs import END, allot, empty_slabs, release, size_class
from nearcast.kernels.verify import Probes
from nearcast.matching.messages.cells import add_word
from nearcast.matching.moving.ap_plus_tree.frontier import frontier
from nearcast.matching.structures.ap_tree.layout import FREE, KIND, LIST, WIDTH, Tree
from nearcast.matching.structures.ap_tree.search import Visits
from nearcast.matching.structures.postings import longer

__all__ = [
    "BORN",
    "NEXT",
    "NUMBER",
    "ROW",
    "SIZE",
    "START",
    "Lists",
    "MessageLists",
    "X",
    "Y",
    "attach",
    "give_list",
]

START, SIZE, ROOM, BORN = 0, 1, 2, 3  # fields of a list
X, Y, LOW, HIGH, ROW, NUMBER, ENTRY = range(7)  # fields of an entry; LOW and HIGH are its signature
# Counters: numbers of lists that were given out, the first one that is free again, the number of the next message,
LISTS, FREE_LIST, NEXT = 0, 1, 2
COPIES, ATTACHED, LIMITED = 3, 4, 5  # and figures: entries made, messages, those that met the limit

_LEAST = config.POSTING_START
_LARGEST = 30
_LAST = 2**30  # the sequence of messages begins again after this number


class Lists(NamedTuple):
    """The arrays of all lists, each with room to grow."""

    heads: NDArray[np.int32]  # [n, 4], by list; list 0 is none
    owners: NDArray[np.int32]  # by list: its node
    entries: NDArray[np.int32]  # [m, 6]; in a free room, ROW is the link to the next one
    places: NDArray[np.float32]  # a view of the entries,
    signs: NDArray[np.int64]  # and another one, [m, 3], in which a signature is one number
    slabs: NDArray[np.int64]
    state: NDArray[np.int64]
    sequence: NDArray[np.int32]  # by probe row: the number of its message
    living: NDArray[np.bool_]  # by probe row: whether there is a message


class MessageLists:
    """The m-lists of a tree."""

    def __init__(self, stored: MessageRows, copies: int) -> None:
        self.stored, self.copies = stored, copies
        self._sequence = GrowableArray(np.zeros(0, np.int32), borrowed=False)
        # The oldest message, and the number of the next one when it was looked for.
        self._oldest = self._looked = 0
        self._kept = 0  # the messages that there were then
        self._state = np.zeros(LIMITED + 1, np.int64)
        self._state[NEXT] = 1
        self.clear()

    def clear(self) -> None:
        """Begin without any list."""
        self._state[LISTS], self._state[FREE_LIST] = 1, 0
        entries = np.empty((0, ENTRY), np.int32)
        self._lists = Lists(
            np.zeros((1, 4), np.int32),
            np.zeros(1, np.int32),
            entries,
            entries.view(np.float32),
            entries.view(np.int64),
            empty_slabs(_LARGEST),
            self._state,
            self._sequence.values,
            self.stored.alive,
        )

    @property
    def arrays(self) -> Lists:
        """The arrays, for kernels."""
        return self._lists._replace(sequence=self._sequence.values, living=self.stored.alive)

    @property
    def nbytes(self) -> int:
        """Memory of what is in use."""
        lists = self._lists
        heads = int(self._state[LISTS]) * (lists.heads.itemsize * 4 + lists.owners.itemsize)
        return heads + int(lists.slabs[END]) * ENTRY * lists.entries.itemsize + self._sequence.nbytes

    # --- Messages --------------------------------------------------------------------------------------------------

    def number(self, probe_rows: NDArray[np.int64]) -> bool:
        """Give messages their numbers; tell whether the sequence begins again, and with it all lists."""
        again = int(self._state[NEXT]) + len(probe_rows) > _LAST
        if again:
            self._sequence.values[:] = 0
            self._state[NEXT] = 1
            self.clear()
        first = int(self._state[NEXT])
        grown = self.stored.rows - len(self._sequence.values)
        if grown > 0:
            self._sequence.fill(grown, 0)
        self._sequence.values[probe_rows] = np.arange(first, first + len(probe_rows))
        self._state[NEXT] = first + len(probe_rows)
        return again

    def attach(
        self,
        tree: Tree,
        ranks: NDArray[np.int32],
        probes: Probes,
        probe_rows: NDArray[np.int32],
        start: int,
        stop: int,
        visits: Visits,
    ) -> None:
        """Attach the messages of a batch, from *start* to *stop*, to the lists of the leaves that they visited."""
        at = start
        while at < stop:
            at = attach(tree, self.arrays, ranks, probes, probe_rows, start, at, stop, visits)
            if at < stop:
                self._grow(lists=self.copies + 1, entries=len(self._lists.entries) // 2 + 1024)

    def _grow(self, lists: int, entries: int) -> None:
        """Make room for more lists, and for more entries."""
        old = self._lists
        pool = longer(old.entries, int(old.slabs[END]) + entries)
        self._lists = old._replace(
            heads=longer(old.heads, int(self._state[LISTS]) + lists),
            owners=longer(old.owners, int(self._state[LISTS]) + lists),
            entries=pool,
            places=pool.view(np.float32),
            signs=pool.view(np.int64),
        )

    def reserve(self, count: int) -> None:
        """Make room for this many more lists."""
        self._grow(lists=count, entries=0)

    def adopt(self, tree: Tree, nodes: NDArray[Any], born: int | None = None) -> None:
        """Give lists to those of the nodes that have none."""
        self.reserve(len(nodes))
        _adopt(tree, self.arrays, nodes.astype(np.int32), int(self._state[NEXT]) if born is None else born)

    def collect(self, tree: Tree, nodes: int) -> None:
        """Give back the lists of nodes that are gone, when there are many more lists than nodes."""
        if self._state[LISTS] > 2 * nodes + config.COMPACT_MIN_DEAD:
            held = _collect(tree, self.arrays)
            if self._state[LISTS] > 2 * held + config.COMPACT_MIN_DEAD:
                self._renumber(tree)

    def _renumber(self, tree: Tree) -> None:
        """Leave the numbers of free lists behind."""
        lists = self._lists
        kept = np.flatnonzero(lists.owners[: self._state[LISTS]] >= 0)
        kept = kept[kept > 0]
        tree.nodes[lists.owners[kept], LIST] = np.arange(1, len(kept) + 1)
        heads, owners = np.zeros((len(kept) + 1, 4), np.int32), np.zeros(len(kept) + 1, np.int32)
        heads[1:], owners[1:] = lists.heads[kept], lists.owners[kept]
        self._lists = lists._replace(heads=heads, owners=owners)
        self._state[LISTS], self._state[FREE_LIST] = len(kept) + 1, 0

    def oldest(self) -> int:
        """Return a lower bound of the numbers of all messages, close to that of the oldest one."""
        following, kept = int(self._state[NEXT]), len(self.stored)
        share = max(kept, self._kept) // config.AP_PLUS_OLDEST
        if following - self._looked > share or self._kept - kept > share or not kept:
            numbers = self._sequence.values[self.stored.alive[: len(self._sequence.values)]]
            self._oldest = int(numbers.min(initial=following))
            self._looked, self._kept = following, kept
        return self._oldest

    # --- Figures ---------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return how many messages were attached, and how often."""
        attached, lists = max(int(self._state[ATTACHED]), 1), self._lists
        return {
            "lists": int(self._state[LISTS]) - 1,
            "entries": int(lists.heads[1 : self._state[LISTS], SIZE].sum()),
            "copies_per_message": round(int(self._state[COPIES]) / attached, 2),
            "messages_above_the_limit": int(self._state[LIMITED]),
        }


@kernel
def give_list(nodes: NDArray[np.int32], lists: Lists, node: int, born: int) -> Any:
    """Return the list of a node; if it has none, an empty one, for which there must be room."""
    number = nodes[node, LIST]
    if number == 0:
        heads, state = lists.heads, lists.state
        number = state[FREE_LIST]
        if number > 0:
            state[FREE_LIST] = heads[number, START]
        else:
            number = state[LISTS]
            state[LISTS] = number + 1
        heads[number, START] = heads[number, SIZE] = heads[number, ROOM] = 0
        heads[number, BORN] = born
        lists.owners[number] = node
        nodes[node, LIST] = number
    return number


@kernel
def _adopt(tree: Tree, lists: Lists, nodes: NDArray[np.int32], born: int) -> None:
    for node in nodes:
        give_list(tree.nodes, lists, node, born)


@kernel
def attach(
    tree: Tree,
    lists: Lists,
    ranks: NDArray[np.int32],
    probes: Probes,
    probe_rows: NDArray[np.int32],
    start: int,
    first: int,
    stop: int,
    visits: Visits,
) -> int:
    """Attach the probes from *first* to *stop* that have rows; return the next one, for which an array has no room.

    The visits begin with those of probe *start*.
    """
    nodes, heads, entries, places = tree.nodes, lists.heads, lists.entries, lists.places
    state, sequence = lists.state, lists.sequence
    visit_ends, visited, limit = visits
    boxes, keyword_offsets, keywords = probes.boxes, probes.keyword_offsets, probes.keywords
    reached = np.empty(limit + 1, np.int32)
    for p in range(first, stop):
        # What is read next is prefetched: nodes of a probe further ahead, lists of a nearer one, and so on.
        _ask_ahead(nodes, heads, entries, visit_ends, visited, p, stop)
        row = probe_rows[p]
        if row < 0:
            continue
        begin = visit_ends[p - 1] if p > start else 0
        count = visit_ends[p] - begin
        limited = count > limit
        if limited:
            count = frontier(tree, ranks, probes, p, limit, reached)
        else:
            for i in range(count):
                reached[i] = visited[begin + i]
        need = lists.slabs[END]
        for i in range(count):
            number = nodes[reached[i], LIST]
            if heads[number, SIZE] == heads[number, ROOM]:  # also if there is no list
                need += max(2 * heads[number, SIZE], _LEAST)
        if state[LISTS] + count > len(heads) or need > len(entries):
            return p
        low = high = 0
        for k in range(keyword_offsets[p], keyword_offsets[p + 1]):
            low, high = add_word(keywords[k], low, high)
        x, y = np.float32(boxes[p, 0]), np.float32(boxes[p, 1])
        if boxes[p, 0] != boxes[p, 2] or boxes[p, 1] != boxes[p, 3]:
            x = y = np.float32(np.nan)
        number = sequence[row]
        for i in range(count):
            list_ = nodes[reached[i], LIST]
            if list_ == 0:
                list_ = give_list(nodes, lists, reached[i], number)
            if heads[list_, SIZE] == heads[list_, ROOM]:
                _make_room(lists, list_)
            at = heads[list_, START] + heads[list_, SIZE]
            heads[list_, SIZE] += 1
            places[at, X], places[at, Y] = x, y
            entries[at, LOW], entries[at, HIGH] = low, high
            entries[at, ROW], entries[at, NUMBER] = row, number
        state[COPIES] += count
        state[ATTACHED] += 1
        state[LIMITED] += limited
    return stop


@kernel
def _ask_ahead(
    nodes: NDArray[np.int32],
    heads: NDArray[np.int32],
    entries: NDArray[np.int32],
    ends: NDArray[np.int64],
    visited: NDArray[np.int32],
    p: int,
    stop: int,
) -> None:
    """Begin to load what attaching the next probes will read."""
    if p + 6 < stop:
        for i in range(ends[p + 5], ends[p + 6]):
            prefetch(nodes.reshape(-1), visited[i] * WIDTH + LIST)
    if p + 4 < stop:
        for i in range(ends[p + 3], ends[p + 4]):
            prefetch(heads, nodes[visited[i], LIST])
    if p + 2 < stop:
        for i in range(ends[p + 1], ends[p + 2]):
            number = nodes[visited[i], LIST]
            prefetch(entries, heads[number, START] + heads[number, SIZE])


@kernel
def _make_room(lists: Lists, number: int) -> None:
    """Drop the entries of messages that are gone, and move the list to a room that suits it."""
    heads, entries, slabs = lists.heads, lists.entries, lists.slabs
    sequence, living = lists.sequence, lists.living
    start, size, room = heads[number, START], heads[number, SIZE], heads[number, ROOM]
    for i in range(start, start + size):
        prefetch(living, entries[i, ROW])
        prefetch(sequence, entries[i, ROW])
    kept = start
    for i in range(start, start + size):
        row = entries[i, ROW]
        if living[row] and sequence[row] == entries[i, NUMBER]:
            for k in range(ENTRY):
                entries[kept, k] = entries[i, k]
            kept += 1
    size = kept - start
    heads[number, SIZE] = size
    wanted = size_class(max(size + (size >> 2) + 1, _LEAST))
    if 1 << wanted == room:
        return
    at = allot(slabs, entries[:, ROW], wanted, 0)
    for i in range(size):
        for k in range(ENTRY):
            entries[at + i, k] = entries[start + i, k]
    if room > 0:
        release(slabs, entries[:, ROW], start, room, 0)
    heads[number, START], heads[number, ROOM] = at, 1 << wanted


@kernel
def _collect(tree: Tree, lists: Lists) -> Any:
    """Free the lists whose nodes have gone or have others; return how many remain."""
    nodes, heads, owners, state = tree.nodes, lists.heads, lists.owners, lists.state
    held = 0
    for number in range(1, state[LISTS]):
        node = owners[number]
        if node < 0:
            continue
        if node < len(nodes) and nodes[node, KIND] != FREE and nodes[node, LIST] == number:
            held += 1
            continue
        if heads[number, ROOM] > 0:
            release(lists.slabs, lists.entries[:, ROW], heads[number, START], heads[number, ROOM], 0)
        owners[number] = -1
        heads[number, SIZE] = heads[number, ROOM] = 0
        heads[number, START] = state[FREE_LIST]
        state[FREE_LIST] = number
    return held
