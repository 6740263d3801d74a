"""The MO-Tree as a store of valid messages: disjoint cells for values, and Algorithm 1.

It is described in Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for
Spatiotemporal-aware Pub/Sub Systems" (2021). Unlike intervals, values lie in disjoint cells (section 4.3.1), which
have equal shares of them. The number of cells in the two layers of the directory depends on the number of messages;
each further layer has the 126 cells and the null cell of a byte in a sketch.

Each layer of the directory has one last cell. On an axis it takes the areas that span several cells, and every
subscription looks into it. For an attribute it is the null cell, and only subscriptions that do not test the attribute
look into it.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ragged import runs_take
from nearcast.columns.rows.messages import MessageRows
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.verify import NEGATED, Clauses, StoredProbes, keep_satisfying, keep_valid
from nearcast.matching.structure import Answers, MessageStructure, Moment, Progress, View, silent
from nearcast.matching.structures.mo_tree.buckets import Buckets, Entries, Pool, homes_for
from nearcast.matching.structures.mo_tree.choice import DIRECTORY
from nearcast.matching.structures.scale import (
    ABSENT,
    Scales,
    X,
    Y,
    clause_positions,
    knots_of,
    most_tested,
    probe_positions,
    scales_of,
    source_name,
    tests_of,
)
from nearcast.matching.structures.sketch import FIELDS, GROUPS, interval_words, passes, value_word

__all__ = ["MessageMOTree"]

_WORDS = (1, 0)  # words of a message's sketch; its cells in the first group are the code
_BLOCK = 32  # entries that are compared together; in most blocks none passes


class MessageMOTree(MessageStructure):
    """Messages in disjoint cells of place and values; a subscription looks into those that it intersects.

    Entries are inserted and removed in place, and the room of a list that moves is given to others at once. A reader of
    an older view might miss an entry or read one twice, so nobody may read while the tree changes.

    The directory has the two axes of the place, unless a sample of subscriptions, given as ``subscriptions=``, shows
    attributes that tell messages apart better (section 4.2).
    """

    name: ClassVar[str] = "mo-tree"

    def __init__(self, store: MessageRows) -> None:
        super().__init__(store)
        self._layouts = 0
        # Chosen by a sample, for the directory and the codes.
        self._preferred: tuple[list[int], list[int]] | None = None

    def build(self, sample: Clauses | None = None, tell: Progress = silent) -> None:
        """Choose the attributes of the directory and the codes, and fill the buckets."""
        rows = self.members()
        tell("choosing attributes", 0.0)
        if sample is not None:
            self._preferred = _by_sample(sample)
        self._lay_out(rows, config.MO_TREE_SAMPLE)
        tell("filling buckets", 0.5)
        self._buckets.build(self._homes.values, self.store.stored.boxes, rows, self._entries(rows))

    def _lay_out(self, rows: NDArray[np.int64], sampled: int) -> None:
        """Choose the cells for messages like *rows*, by about *sampled* of them, and make empty buckets."""
        some = _Sample.of(self.store.stored, rows[:: max(len(rows) // sampled, 1)])
        directory, coded = self._preferred or ([X, Y], _by_presence(some))
        sources = [*directory, *coded]
        self._scales = scales_of(sources, _knots(some, sources))
        self._fields = np.arange(DIRECTORY, len(sources), dtype=np.int32)
        self._cells = min(max(int(np.sqrt(len(rows)) / config.MO_STORE_STEM), 1), config.MO_TREE_CELLS)
        self._homes = homes_for(self.store.rows)
        self._buckets = Buckets((self._cells + 1) ** DIRECTORY, _WORDS)
        self._laid_for = len(rows)
        self._layouts += 1

    def _entries(self, rows: NDArray[np.int64]) -> Entries:
        entries = Entries.room(len(rows), sum(_WORDS))
        _assign(self._scales, self._fields, self._cells, self.store.stored, rows, entries)
        return entries

    def add(self, rows: NDArray[np.int64]) -> None:
        """Put messages into their buckets."""
        more = self.store.rows - len(self._homes.values)
        if more > 0:
            self._homes.fill(more, -1)
        self._buckets.add(self._homes.values, self.store.stored.boxes, rows, self._entries(rows))

    def outgrown(self, more: int) -> bool:
        """Tell whether there are so many messages that it is time to choose the cells again."""
        enough = max(config.MO_TREE_GROWTH * self._laid_for, config.MO_TREE_FIRST)
        return self._buckets.entries + more > enough

    def successor(self) -> MessageMOTree:
        """Return an empty MO-Tree with cells chosen by a small sample of the messages here."""
        fresh = MessageMOTree(self.store)
        fresh._preferred, fresh._layouts = self._preferred, self._layouts
        fresh._lay_out(np.flatnonzero(self._homes.values[:, 0] >= 0), config.MO_TREE_QUICK_SAMPLE)
        return fresh

    def drop(self, rows: NDArray[np.int64]) -> None:
        """Remove messages from their buckets."""
        self._buckets.remove(self._homes.values, rows)

    def view(self) -> View:
        """Return the scales and the buckets."""
        return View(
            _search,
            _SearchArrays(self.store.stored, self._scales, self._fields, self._cells, self._buckets.pool),
        )

    def stats(self) -> dict[str, Any]:
        """Return the attributes of the directory and of the codes, and the buckets."""
        heads = self._buckets.pool.heads
        names = [source_name(int(source), self.store.attributes) for source in self._scales.sources]
        sizes = heads[heads[:, 1] > 0, 1]
        return {
            "directory": names[:DIRECTORY],
            "codes": names[DIRECTORY:],
            "cells": self._cells,
            "lists": len(heads),
            "lists_in_use": len(sizes),
            "longest_list": int(sizes.max(initial=0)),
            "layouts": self._layouts,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the scales and the buckets."""
        directory, coded = self._preferred or ([], [])
        return {
            "homes": self._homes.values,
            "laid": np.array([self._cells, self._laid_for, self._layouts]),
            "preferred": np.array([*directory, *coded], np.int64),
            **{f"scale_{name}": array for name, array in self._scales._asdict().items()},
            "fields": self._fields,
            **self._buckets.arrays(),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the scales and the buckets."""
        self._cells, self._laid_for, self._layouts = arrays["laid"].tolist()
        preferred = arrays["preferred"].tolist()
        self._preferred = (preferred[:DIRECTORY], preferred[DIRECTORY:]) if preferred else None
        self._scales = Scales(**{name: arrays[f"scale_{name}"] for name in Scales._fields})
        self._fields = arrays["fields"]
        self._homes = GrowableArray(arrays["homes"], borrowed=False)
        self._buckets = Buckets.restored(arrays)

    def check(self) -> list[str]:
        """Compare the buckets with the messages; return what is wrong."""
        found = self._buckets.check()
        alive = np.flatnonzero(self.store.alive)
        heads, codes, details, boxes, _, rows = self._buckets.pool
        if not self._buckets.entries == int(heads[:, 1].sum()) == len(alive):
            found.append(f"{self._buckets.entries} entries for {len(alive)} probe rows")
        target, place = self._homes.values[alive].T
        if (target < 0).any():
            return [*found, "a probe row is in no bucket"]
        at = heads[target, 0] + place
        expected = self._entries(alive)
        if (place >= heads[target, 1]).any() or not np.array_equal(rows[at], alive):
            found.append("an entry is not where its probe row says")
        elif not (
            np.array_equal(target, expected.targets)
            and np.array_equal(codes[at], expected.codes)
            and np.array_equal(details[at, 2:], expected.sketches)
        ):
            found.append("a probe row is in another bucket than its cells say")
        elif not np.array_equal(boxes[at, :4], self.store.stored.boxes[alive].astype(np.float32)):
            found.append("an entry has another box than its probe row")
        return found


def _by_sample(clauses: Clauses) -> tuple[list[int], list[int]]:
    """Return the sources of the directory and the attributes in the codes, chosen by a sample of subscriptions.

    A source spares a subscription the messages outside its interval. The mean share of messages spared is the share of
    subscriptions that test the source, times how narrow their intervals are on the scale of their own ends.
    """
    rows = np.arange(len(clauses.boxes))
    tests = tests_of(clauses, rows)
    spared = {}
    for source in [X, Y, *most_tested(clauses, rows, config.MO_TREE_CANDIDATES)]:
        if source < 0:
            lows, highs = clauses.boxes[:, source - X], clauses.boxes[:, source - X + 2]
        else:
            own = tests[
                (clauses.test_attributes[tests] == source) & (clauses.test_flags[tests] & NEGATED == 0)
            ]
            lows, highs = clauses.test_lows[own], clauses.test_highs[own]
        both = np.concatenate([lows, highs])
        ends = np.sort(both[np.isfinite(both)])
        widths = np.searchsorted(ends, highs, "right") - np.searchsorted(ends, lows, "left")
        spared[source] = float(np.sum(1 - widths / max(len(ends), 1)))
    best = sorted(spared, key=lambda source: -spared[source])
    coded = [source for source in best[DIRECTORY:] if source >= 0]
    return best[:DIRECTORY], coded[: GROUPS * FIELDS]


class _Sample(NamedTuple):
    """The places and values of some messages."""

    boxes: NDArray[np.float64]
    attributes: NDArray[np.int32]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, stored: StoredProbes, rows: NDArray[np.int64]) -> _Sample:
        """Return the sample of the given probe rows."""
        _, attributes = runs_take(stored.value_runs, stored.value_attributes, rows)
        _, values = runs_take(stored.value_runs, stored.values, rows)
        return cls(stored.boxes[rows], attributes, values)


def _by_presence(some: _Sample) -> list[int]:
    """Return the attributes that most messages have."""
    counts = np.bincount(some.attributes, minlength=1)
    order = np.argsort(-counts, kind="stable")[: GROUPS * FIELDS]
    popular: list[int] = order[counts[order] > 0].tolist()
    return popular


def _knots(some: _Sample, sources: list[int]) -> list[NDArray[np.float64]]:
    """Return the knots of each source's scale."""
    return [
        knots_of(some.boxes[:, source - X] if source < 0 else some.values[some.attributes == source])
        for source in sources
    ]


@kernel
def _cell(place: float, cells: int) -> int:
    return min(int(place * cells), cells - 1)


@kernel
def _assign(
    scales: Scales,
    fields: NDArray[np.int32],
    cells: int,
    stored: StoredProbes,
    rows: NDArray[np.int64],
    entries: Entries,
) -> None:
    """Write the list and the cells of stored probe rows: a cell in each layer (section 4.3.1)."""
    _, knots, slopes, numbers = scales
    boxes, _, _, runs, attributes, values, _ = stored
    targets, codes, next_codes = entries
    places = np.empty((knots.shape[0], 2))
    for i in range(rows.size):
        begin, end = runs[rows[i], 0], runs[rows[i], 1]
        probe_positions(knots, slopes, numbers, rows[i], boxes, begin, end, attributes, values, places)
        target = 0
        for layer in range(DIRECTORY):
            cell = cells
            if places[layer, 0] != ABSENT:
                low, high = _cell(places[layer, 0], cells), _cell(places[layer, 1], cells)
                if low == high:
                    cell = low
            target = target * (cells + 1) + cell
        targets[i] = target
        codes[i] = value_word(fields, places, 0)
        next_codes[i, 0] = value_word(fields, places, 1)


class _SearchArrays(NamedTuple):
    stored: StoredProbes
    scales: Scales
    fields: NDArray[np.int32]  # the scales whose cells are in the codes
    cells: int  # in a layer of the directory
    pool: Pool


@kernel
def _search(
    arrays: _SearchArrays,
    clauses: Clauses,
    moment: Moment,
    start: int,
    stop: int,
    answers: Answers,
    filled: int,
) -> int:
    """Match the clauses from *start* to *stop*; see :class:`~nearcast.matching.structure.View`.

    This is Algorithm 1: lines 2 to 10 find the lists that the clause intersects, and the rest verifies their entries.
    Expired messages are noted for removal.
    """
    stored, scales, fields, cells, pool = arrays
    answer_ends, out = answers
    sources, knots, slopes, numbers = scales
    heads, codes, details, boxes, _, rows = pool
    clause_boxes, test_runs = clauses.boxes, clauses.test_runs
    attributes, lows, highs, flags = clauses[6:]
    stored_boxes, _, _, value_runs, value_attributes, stored_values, expires = stored
    touched = np.empty((DIRECTORY, cells + 1), np.int32)
    found = np.zeros(DIRECTORY, np.int64)
    ends = np.empty((knots.shape[0], 2))
    for c in range(start, stop):
        clause_positions(
            knots, slopes, numbers, c, clause_boxes, test_runs, attributes, lows, highs, flags, ends
        )
        for layer in range(DIRECTORY):
            tested = ends[layer, 0] != ABSENT
            low, high = (ends[layer, 0], ends[layer, 1]) if tested else (0.0, 1.0)
            count = 0
            for cell in range(_cell(low, cells), _cell(high, cells) + 1):
                touched[layer, count] = cell
                count += 1
            if sources[layer] < 0 or not tested:
                touched[layer, count] = cells
                count += 1
            found[layer] = count
        first_cells, last_cells = interval_words(fields, ends, 0)
        next_first, next_last = interval_words(fields, ends, 1)
        xmin, ymin = np.float32(clause_boxes[c, 0]), np.float32(clause_boxes[c, 1])
        xmax, ymax = np.float32(clause_boxes[c, 2]), np.float32(clause_boxes[c, 3])
        last = filled
        for i in range(found[0]):
            row = touched[0, i] * (cells + 1)
            for j in range(found[1]):
                prefetch(codes, heads[row + touched[1, j], 0])
            for j in range(found[1]):
                begin, size = heads[row + touched[1, j], 0], heads[row + touched[1, j], 1]
                if last + size > out.size:
                    return c
                at, end = begin, begin + size
                while at < end:
                    # In most blocks nothing passes. This is found out for many entries in one instruction.
                    block = min(at + _BLOCK, end)
                    some = block - at < _BLOCK
                    if not some:
                        for k in range(_BLOCK):
                            some |= passes(codes[at + k], first_cells, last_cells)
                    if some:
                        before = last
                        for k in range(at, block):
                            out[last] = k
                            last += passes(codes[k], first_cells, last_cells)
                        for k in range(before, last):
                            prefetch(details, out[k])
                    at = block
        kept = filled
        for k in range(filled, last):
            at = out[k]
            out[kept] = at
            kept += (
                (boxes[at, 0] <= xmax)
                & (boxes[at, 2] >= xmin)
                & (boxes[at, 1] <= ymax)
                & (boxes[at, 3] >= ymin)
                & passes(details[at, 2], next_first, next_last)
            )
        for k in range(filled, kept):
            prefetch(rows, out[k])
        for k in range(filled, kept):
            out[k] = rows[out[k]]
            prefetch(expires, out[k])
            prefetch(value_runs, out[k])
            prefetch(stored_boxes, out[k])
        for k in range(filled, kept):
            prefetch(value_attributes, value_runs[out[k], 0])
            prefetch(stored_values, value_runs[out[k], 0])
            prefetch(stored_values, value_runs[out[k], 0] + 8)
        kept = keep_valid(expires, moment.now, out, filled, kept, moment.expired)
        filled = keep_satisfying(stored, clauses, c, out, filled, kept)
        answer_ends[c] = filled
    return stop
