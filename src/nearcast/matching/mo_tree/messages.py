"""The MO-Tree as a store of valid messages: disjoint cells for values, and Algorithm 1 of its paper.

Values, unlike intervals, lie in one of disjoint cells of each layer (section 4.3.1), cut in equal shares. The two
layers of the directory have as many cells as the number of messages asks for; each further one has the 126 cells and
the null cell of a sketch's byte. A message that is an area, and spans more than one cell of an axis, goes to a last
cell of that axis that every subscription looks into; where an attribute is of the directory, the last cell is the
null cell, which only those without a test of it look into.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.growable import GrowableArray
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.verify import Clauses, Stored, keep_satisfying, keep_valid
from nearcast.matching.message_store import MessageStore
from nearcast.matching.mo_tree.buckets import Buckets, Entries, Pool
from nearcast.matching.mo_tree.choice import DIRECTORY
from nearcast.matching.scale import X, Y, clause_ends, position, scale_of
from nearcast.matching.sketch import FIELDS, GROUPS, Sketch, passes, sketch_clauses, sketch_stored, tests_of

__all__ = ["MOTreeStore"]


class MOTreeStore(MessageStore):
    """Messages in disjoint cells of place and values; a subscription looks into those that it intersects.

    The directory is that of the place unless a sample of subscriptions, given as ``subscriptions=``, shows attributes
    that tell messages apart better (section 4.2).
    """

    name: ClassVar[str] = "mo-tree"
    _layouts = 0
    _preferred: tuple[NDArray[np.int32], NDArray[np.int32]] | None = (
        None  # directory and bytes, by the sample
    )

    def _build(self) -> None:
        rows, stored = np.flatnonzero(self.rows.alive), self.rows.stored
        self._tell("choosing attributes", 0.0)
        if self._sample is not None:
            self._preferred = _by_sample(self._sample.clauses)
        directory, fields = self._preferred or (np.array([X, Y], np.int32), _by_presence(stored))
        sample = rows[:: max(len(rows) // config.MO_TREE_SAMPLE, 1)]
        self._directory = Sketch(directory, _scales(stored, sample, directory))
        self._sketch = Sketch(fields, _scales(stored, sample, fields))
        self._cells = min(max(int(np.sqrt(len(rows)) / config.MO_STORE_STEM), 1), config.MO_TREE_CELLS)
        self._homes = GrowableArray(np.full((self.rows.rows, 2), -1, np.int32), borrowed=False)
        self._buckets = Buckets((self._cells + 1) ** DIRECTORY, GROUPS - 1)
        self._laid_for = len(rows)
        self._layouts += 1
        self._tell("filling buckets", 0.5)
        self._buckets.build(self._homes.values, stored.boxes, rows, self._entries(rows))

    def _entries(self, rows: NDArray[np.int64]) -> Entries:
        targets, words = np.empty(len(rows), np.int32), np.empty((len(rows), GROUPS), np.uint64)
        _assign(self._directory, self._cells, self.rows.stored, rows, targets)
        sketch_stored(self._sketch, self.rows.stored, rows, words)
        return Entries(targets, np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1:]))

    def _add(self, probe_rows: NDArray[np.int64]) -> None:
        more = self.rows.rows - len(self._homes.values)
        if more > 0:
            self._homes.fill(more, -1)
        if self._buckets.entries + len(probe_rows) > max(
            config.MO_TREE_GROWTH * self._laid_for, config.MO_TREE_FIRST
        ):
            self._build()
        else:
            entries = self._entries(probe_rows)
            self._buckets.add(self._homes.values, self.rows.stored.boxes, probe_rows, entries)

    def _drop(self, probe_rows: NDArray[np.int64]) -> None:
        self._buckets.remove(self._homes.values, probe_rows)

    def _search(
        self,
        clauses: Clauses,
        start: int,
        stop: int,
        now: int,
        counts: NDArray[np.int64],
        out: NDArray[np.int32],
        filled: int,
        expired: NDArray[np.int32],
    ) -> tuple[int, int]:
        firsts_and_lasts = np.empty((stop - start, 2 * GROUPS), np.uint64)
        sketch_clauses(self._sketch, clauses, np.arange(start, stop), firsts_and_lasts)
        done: tuple[int, int] = _search(
            self.rows.stored,
            self._directory,
            self._cells,
            self._buckets.pool,
            clauses,
            firsts_and_lasts,
            start,
            stop,
            now,
            counts,
            out,
            filled,
            expired,
        )
        return done

    def stats(self) -> dict[str, Any]:
        """Return the figures of every store, the attributes of the directory and of the codes, and the buckets."""
        heads = self._buckets.pool.heads
        sizes = heads[heads[:, 1] > 0, 1]
        return super().stats() | {
            "directory": [self._name_of(int(source)) for source in self._directory.sources],
            "codes": [self._name_of(int(source)) for source in self._sketch.sources],
            "cells": self._cells,
            "lists": len(heads),
            "lists_in_use": len(sizes),
            "longest_list": int(sizes.max(initial=0)),
            "layouts": self._layouts,
        }

    def _name_of(self, source: int) -> str:
        if source in (X, Y):
            return "x" if source == X else "y"
        names = self.rows.attributes
        return str(source) if names is None else list(names)[source][0]

    def _bytes(self) -> int:
        return sum(array.nbytes for array in (*self._buckets.pool, self._homes, *self._sketch))

    def _check(self) -> list[str]:
        found = []
        alive = np.flatnonzero(self.rows.alive)
        heads, codes, next_codes, boxes, rows = self._buckets.pool
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
            and np.array_equal(next_codes[at], expected.sketches)
        ):
            found.append("a probe row is in another bucket than its cells say")
        elif not np.array_equal(boxes[at], self.rows.stored.boxes[alive].astype(np.float32)):
            found.append("an entry has another box than its probe row")
        return found


def _by_sample(clauses: Clauses) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the directory's sources and the attributes with a byte, by what a sample of subscriptions spares.

    A source spares a subscription the messages outside its interval: on the average, the share of the subscriptions
    that test it, times how narrow their intervals are on the scale of their own ends.
    """
    n = max(len(clauses.boxes), 1)
    tests = tests_of(clauses, np.arange(len(clauses.boxes)))
    counts = np.bincount(clauses.test_attributes[tests]) if len(tests) else np.zeros(0, np.int64)
    popular = np.argsort(-counts, kind="stable")[: config.MO_TREE_CANDIDATES]
    spared = []
    for source in [X, Y, *popular[counts[popular] > 0].tolist()]:
        if source < 0:
            lows, highs = clauses.boxes[:, source - X], clauses.boxes[:, source - X + 2]
        else:
            own = tests[(clauses.test_attributes[tests] == source) & (clauses.test_flags[tests] & 4 == 0)]
            lows, highs = clauses.test_lows[own], clauses.test_highs[own]
        ends = np.sort(np.concatenate([lows, highs])[np.isfinite(np.concatenate([lows, highs]))])
        widths = np.searchsorted(ends, highs, "right") - np.searchsorted(ends, lows, "left")
        spared.append((float(np.sum(1 - widths / max(len(ends), 1))) / n, source))
    best = [source for _, source in sorted(spared, key=lambda pair: -pair[0])]
    directory = best[:DIRECTORY]
    fields = [source for source in best if source >= 0 and source not in directory][: GROUPS * FIELDS]
    return np.array(directory, np.int32), np.array(fields, np.int32)


def _by_presence(stored: Stored) -> NDArray[np.int32]:
    """Return the attributes that most messages have."""
    counts = np.bincount(stored.value_attributes) if len(stored.values) else np.zeros(0, np.int64)
    popular = np.argsort(-counts, kind="stable")[: GROUPS * FIELDS]
    return popular[counts[popular] > 0].astype(np.int32)


def _scales(stored: Stored, sample: NDArray[np.int64], sources: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return a scale for each source, by the values of sampled probe rows."""
    knots = np.empty((len(sources), config.SCALE_KNOTS + 1))
    for row, source in enumerate(sources.tolist()):
        if source < 0:
            values = stored.boxes[sample, source - X]
        else:
            of_source = np.flatnonzero(stored.value_attributes == source)
            values = stored.values[of_source[:: max(len(of_source) // config.MO_TREE_SAMPLE, 1)]]
        knots[row] = scale_of(values)
    return knots


@kernel
def _cell(knots: NDArray[np.float64], layer: int, value: float, cells: int) -> int:
    return min(int(position(knots, layer, value) * cells), cells - 1)


@kernel
def _assign(
    directory: Sketch, cells: int, stored: Stored, rows: NDArray[np.int64], targets: NDArray[np.int32]
) -> None:
    """Write the list of stored probe rows: one cell of each layer of the directory."""
    sources, knots = directory
    boxes, _, _, offsets, attributes, values, _ = stored
    for i in range(rows.size):
        target = 0
        for layer in range(sources.size):
            source, cell = sources[layer], cells
            if source < 0:
                low = _cell(knots, layer, boxes[rows[i], source - X], cells)
                high = _cell(knots, layer, boxes[rows[i], source - X + 2], cells)
                if low == high:
                    cell = low
            else:
                for at in range(offsets[rows[i]], offsets[rows[i] + 1]):
                    if attributes[at] == source:
                        cell = _cell(knots, layer, values[at], cells)
            target = target * (cells + 1) + cell
        targets[i] = target


@kernel
def _search(
    stored: Stored,
    directory: Sketch,
    cells: int,
    pool: Pool,
    clauses: Clauses,
    sketches: NDArray[np.uint64],
    start: int,
    stop: int,
    now: int,
    counts: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
    expired: NDArray[np.int32],
) -> Any:
    """Match the clauses from *start* to *stop*; see ``MessageStore._search``.

    Algorithm 1: lines 2 to 10 find the lists that the clause intersects, the rest verifies their entries; what has
    expired is noted for removal.
    """
    sources, knots = directory
    heads, codes, next_codes, boxes, rows = pool
    clause_boxes, test_offsets = clauses.boxes, clauses.test_offsets
    attributes, lows, highs, flags = clauses[6:]
    expires = stored.expires
    touched = np.empty((DIRECTORY, cells + 1), np.int32)
    found = np.zeros(DIRECTORY, np.int64)
    for c in range(start, stop):
        for layer in range(DIRECTORY):
            source = sources[layer]
            tested, low, high = clause_ends(
                source, c, clause_boxes, test_offsets, attributes, lows, highs, flags
            )
            count = 0
            for cell in range(_cell(knots, layer, low, cells), _cell(knots, layer, high, cells) + 1):
                touched[layer, count] = cell
                count += 1
            if source < 0 or not tested:
                touched[layer, count] = cells
                count += 1
            found[layer] = count
        first_cells, last_cells = sketches[c - start, 0], sketches[c - start, 1]
        next_first, next_last = sketches[c - start, 2], sketches[c - start, 3]
        xmin, ymin = np.float32(clause_boxes[c, 0]), np.float32(clause_boxes[c, 1])
        xmax, ymax = np.float32(clause_boxes[c, 2]), np.float32(clause_boxes[c, 3])
        last = filled
        for i in range(found[0]):
            row = touched[0, i] * (cells + 1)
            for j in range(found[1]):
                prefetch(codes, heads[row + touched[1, j], 0])
            for j in range(found[1]):
                number = row + touched[1, j]
                begin, size = heads[number, 0], heads[number, 1]
                if last + size > out.size:
                    return c, filled
                for at in range(begin, begin + size):
                    out[last] = at
                    last += passes(codes[at], first_cells, last_cells)
        kept = filled
        for k in range(filled, last):
            at = out[k]
            out[kept] = rows[at]
            kept += (
                (boxes[at, 0] <= xmax)
                & (boxes[at, 2] >= xmin)
                & (boxes[at, 1] <= ymax)
                & (boxes[at, 3] >= ymin)
                & passes(next_codes[at, 0], next_first, next_last)
            )
        kept = keep_valid(expires, now, out, filled, kept, expired)
        kept = keep_satisfying(stored, clauses, c, out, filled, kept)
        counts[c - start] = kept - filled
        filled = kept
    return stop, filled
