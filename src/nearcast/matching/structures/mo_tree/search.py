"""Match messages, and assign clauses to buckets.

Matching is Algorithm 2 of Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for
Spatiotemporal-aware Pub/Sub Systems" (2021); section 4.6 describes how clauses are stored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.structure import Answers
from nearcast.matching.structures.mo_tree.buckets import Entries, Pool
from nearcast.matching.structures.mo_tree.cells import Layers, cell_of, cells_touched
from nearcast.matching.structures.mo_tree.choice import DIRECTORY
from nearcast.matching.structures.scale import (
    ABSENT,
    Scales,
    box_positions,
    clause_positions,
    probe_positions,
)
from nearcast.matching.structures.sketch import (
    GROUPS,
    RUN_GUARDS,
    interval_words,
    passes,
    run_code,
    value_code,
    value_word,
)

__all__ = ["SearchArrays", "assign", "search", "shift"]


class SearchArrays(NamedTuple):
    """The arrays that a search reads."""

    clauses: Clauses
    layers: Layers
    scales: Scales
    coded: NDArray[np.int32]
    sketched: NDArray[np.int32]
    pool: Pool


@kernel
def assign(
    layers: Layers,
    scales: Scales,
    coded: NDArray[np.int32],
    sketched: NDArray[np.int32],
    clauses: Clauses,
    rows: NDArray[np.int64],
    entries: Entries,
) -> None:
    """Write the list, the code and the sketch of clause *rows*: a cell in each layer (sections 4.3.2 and 4.4)."""
    _, firsts, counts, steps, rates, widths, untested = layers
    _, knots, slopes, numbers = scales
    boxes, test_runs = clauses.boxes, clauses.test_runs
    attributes, lows, highs, flags = clauses[6:]
    targets, codes, sketches = entries
    ends = np.empty((knots.shape[0], 2))
    for i in range(rows.size):
        clause_positions(
            knots, slopes, numbers, rows[i], boxes, test_runs, attributes, lows, highs, flags, ends
        )
        target = 0
        for layer in range(DIRECTORY):
            cell = untested[layer]
            if ends[layer, 0] != ABSENT:
                cell = cell_of(counts, firsts, steps, rates, widths, layer, ends[layer, 0], ends[layer, 1])
            target = target * (untested[layer] + 1) + cell
        targets[i] = target
        codes[i] = run_code(coded, ends)
        for group in range(GROUPS):
            sketches[i, 2 * group], sketches[i, 2 * group + 1] = interval_words(sketched, ends, group)


@kernel
def shift(
    layers: Layers,
    scales: Scales,
    coded: NDArray[np.int32],
    pool: Pool,
    homes: NDArray[np.int32],
    clause_boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    changed: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Overwrite the boxes of clause *rows* in their entries; return the numbers of the rows that need more than that.

    Those are the *changed* rows, whose tests may differ, and the rows that leave their list. For the others, only the
    cells of the axes are computed again; the sketch has none. All memory is prefetched before any of it is written.
    """
    sources, firsts, counts, steps, rates, widths, untested = layers
    scale_sources, knots, slopes, numbers = scales
    heads, codes, details, boxes, _, _ = pool
    across = untested[1] + 1
    ends = np.full((knots.shape[0], 2), ABSENT)
    of_axes = np.uint64(0)  # the bytes of a code that are cells of an axis
    for field in range(coded.size):
        if scale_sources[coded[field]] < 0:
            of_axes |= np.uint64(0xFF) << np.uint64(8 * field)
    rest, places = np.empty(rows.size, np.int64), np.empty(rows.size, np.int64)
    count = 0
    for i in range(rows.size):
        prefetch(homes, rows[i])
    for i in range(rows.size):
        prefetch(heads, homes[rows[i], 0])
    for i in range(rows.size):
        places[i] = heads[homes[rows[i], 0], 0] + homes[rows[i], 1]
        prefetch(details, places[i])
        if of_axes:
            prefetch(codes, places[i])
    for i in range(rows.size):
        stays = not changed[i]
        if stays:
            box_positions(knots, slopes, numbers, rows[i], clause_boxes, ends)
            old, target = homes[rows[i], 0], 0
            for layer in range(DIRECTORY):
                if sources[layer] < 0:
                    low, high = ends[layer, 0], ends[layer, 1]
                    cell = cell_of(counts, firsts, steps, rates, widths, layer, low, high)
                else:
                    cell = old // across if layer == 0 else old % across
                target = target * across + cell
            stays = target == old
        if stays:
            at = places[i]
            for side in range(4):
                boxes[at, side] = np.float32(clause_boxes[rows[i], side])
            if of_axes:
                codes[at] = codes[at] & ~of_axes | run_code(coded, ends)
        else:
            rest[count] = i
            count += 1
    return rest[:count]


@kernel
def search(arrays: SearchArrays, probes: Probes, start: int, stop: int, answers: Answers, filled: int) -> int:
    """Match the probes from *start* to *stop*; see :class:`~nearcast.matching.structure.View`.

    This is Algorithm 2. It filters: the cells that the message touches in the two layers of the directory give the
    lists, and its cells in the further layers are compared with the codes of their entries. Then it verifies: by the
    box and the sketch of the remaining entries, then by the clause itself. Each step prefetches what the next reads.
    """
    clauses, layers, scales, coded, sketched, pool = arrays
    answer_ends, out = answers
    sources, firsts, level_counts, steps, rates, widths, untested = layers
    _, knots, slopes, numbers = scales
    heads, codes, details, boxes, more, rows = pool
    clause_boxes, keyword_runs, _, _, _, test_runs = clauses[:6]
    attributes, lows, highs, flags = clauses[6:]
    probe_boxes, _, _, value_offsets, value_attributes, values = probes
    most = untested.max() + 2
    cells = np.empty((DIRECTORY, most), np.int32)
    touched = np.zeros(DIRECTORY, np.int64)
    lists = np.empty(most * most, np.int32)
    ends = np.empty((knots.shape[0], 2))
    for p in range(start, stop):
        begin, end = value_offsets[p], value_offsets[p + 1]
        probe_positions(knots, slopes, numbers, p, probe_boxes, begin, end, value_attributes, values, ends)
        for layer in range(DIRECTORY):
            low, high = ends[layer, 0], ends[layer, 1]
            found = 0
            if low != ABSENT:  # lines 2 to 4: the cells that the value stabs
                found = cells_touched(
                    level_counts, firsts, steps, rates, widths, layer, low, high, cells[layer]
                )
            # Lines 5 to 7: the last cell, which here holds only clauses without a test.
            if sources[layer] >= 0:
                cells[layer, found] = untested[layer]
                found += 1
            touched[layer] = found
        # Line 8: find the lists, and prefetch them all before the first one is read.
        count, candidates = 0, 0
        for i in range(touched[0]):
            for j in range(touched[1]):
                number = cells[0, i] * (untested[1] + 1) + cells[1, j]
                size = heads[number, 1]
                if size > 0:
                    lists[count] = number
                    count += 1
                    candidates += size
                    prefetch(codes, heads[number, 0])
        if filled + candidates > out.size:
            return p
        # Lines 9 to 12: read the lists, and verify their entries step by step.
        cell_code = value_code(coded, ends)
        last = filled
        for k in range(count):
            first, before = heads[lists[k], 0], last
            for at in range(first, first + heads[lists[k], 1]):
                out[last] = at
                last += (cell_code - codes[at]) & RUN_GUARDS == RUN_GUARDS
            for i in range(before, last):
                prefetch(details, out[i])
        word, next_word = value_word(sketched, ends, 0), value_word(sketched, ends, 1)
        xmin, ymin = np.float32(probe_boxes[p, 0]), np.float32(probe_boxes[p, 1])
        xmax, ymax = np.float32(probe_boxes[p, 2]), np.float32(probe_boxes[p, 3])
        kept = filled
        for k in range(filled, last):
            at = out[k]
            out[kept] = at
            kept += (
                (boxes[at, 0] <= xmax)
                & (boxes[at, 2] >= xmin)
                & (boxes[at, 1] <= ymax)
                & (boxes[at, 3] >= ymin)
                & passes(word, details[at, 2], details[at, 3])
            )
        last, kept = kept, filled
        for k in range(filled, last):
            prefetch(more, out[k])
        for k in range(filled, last):
            at = out[k]
            out[kept] = at
            kept += passes(next_word, more[at, 0], more[at, 1])
        for k in range(filled, kept):
            prefetch(rows, out[k])
        for k in range(filled, kept):
            out[k] = rows[out[k]]
            prefetch(clause_boxes, out[k])
            prefetch(keyword_runs, out[k])
            prefetch(test_runs, out[k])
        if attributes.size > 0:
            for k in range(filled, kept):
                first_test = test_runs[out[k], 0]
                prefetch(attributes, first_test)
                prefetch(lows, first_test)
                prefetch(highs, first_test)
                prefetch(flags, first_test)
        filled = keep_satisfied(clauses, probes, p, out, filled, kept)
        answer_ends[p] = filled
    return stop
