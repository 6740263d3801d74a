"""Event matching: Algorithm 2 of the MO-Tree paper, and where clauses are stored (section 4.6)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching.mo_tree.buckets import Entries, Pool
from nearcast.matching.mo_tree.cells import Layers, cell_of, cells_touched, mask_of
from nearcast.matching.mo_tree.choice import DIRECTORY
from nearcast.matching.scale import ABSENT, Scales, clause_positions, probe_positions
from nearcast.matching.sketch import interval_words, passes, value_word

__all__ = ["assign", "search"]


@kernel
def assign(
    layers: Layers,
    scales: Scales,
    fields: NDArray[np.int32],
    clauses: Clauses,
    rows: NDArray[np.int64],
    entries: Entries,
) -> None:
    """Write the list, the code and the sketch of clause *rows*: one cell of each layer (sections 4.3.2 and 4.4)."""
    sources, firsts, counts, steps, rates, widths, untested, shifts = layers
    _, knots, slopes, numbers = scales
    boxes, test_offsets = clauses.boxes, clauses.test_offsets
    attributes, lows, highs, flags = clauses[6:]
    targets, codes, sketches, details = entries
    ends = np.empty((knots.shape[0], 2))
    for i in range(rows.size):
        clause_positions(
            knots, slopes, numbers, rows[i], boxes, test_offsets, attributes, lows, highs, flags, ends
        )
        target, code = 0, np.uint64(0)
        for layer in range(sources.size):
            cell = untested[layer]
            if ends[layer, 0] != ABSENT:
                cell = cell_of(counts, firsts, steps, rates, widths, layer, ends[layer, 0], ends[layer, 1])
            if layer < DIRECTORY:
                target = target * (untested[layer] + 1) + cell
            else:
                code |= np.uint64(1) << np.uint64(shifts[layer] + cell)
        targets[i], codes[i] = target, code
        sketches[i, 0], sketches[i, 1] = interval_words(fields, ends, 0)
        details[i, 0], details[i, 1] = interval_words(fields, ends, 1)


@kernel
def search(
    clauses: Clauses,
    layers: Layers,
    scales: Scales,
    fields: NDArray[np.int32],
    pool: Pool,
    probes: Probes,
    start: int,
    stop: int,
    counts: NDArray[np.int64],
    out: NDArray[np.int32],
    filled: int,
) -> Any:
    """Match the probes from *start* to *stop*; see ``Matcher._search``.

    Filtering: the cells that the message touches in the two layers of the directory give the lists, those in the
    further layers the mask for the codes in them. Verification: sketch and box of the entries that are left, then the
    clause itself.
    """
    sources, firsts, level_counts, steps, rates, widths, untested, shifts = layers
    scale_sources, knots, slopes, _ = scales
    heads, codes, sketches, details, boxes, rows = pool
    clause_boxes, keyword_offsets, _, _, _, test_offsets = clauses[:6]
    attributes, lows, highs, flags = clauses[6:]
    probe_boxes, _, _, values = probes
    most = untested.max() + 2
    cells = np.empty((DIRECTORY, most), np.int32)
    touched = np.zeros(DIRECTORY, np.int64)
    room = np.empty(most, np.int32)
    lists = np.empty(most * most, np.int32)
    ends = np.empty((knots.shape[0], 2))
    for p in range(start, stop):
        probe_positions(scale_sources, knots, slopes, p, probe_boxes, values, ends)
        mask = np.uint64(0)
        for layer in range(sources.size):
            low, high = ends[layer, 0], ends[layer, 1]
            present = low != ABSENT
            if layer < DIRECTORY:
                found = 0
                if present:
                    found = cells_touched(
                        level_counts, firsts, steps, rates, widths, layer, low, high, cells[layer]
                    )
                if sources[layer] >= 0:
                    cells[layer, found] = untested[layer]
                    found += 1
                touched[layer] = found
            else:
                bits = np.uint64(1) << np.uint64(untested[layer])
                if present:
                    bits |= mask_of(level_counts, firsts, steps, rates, widths, layer, low, high, room)
                mask |= bits << np.uint64(shifts[layer])
        # The lists, their memory asked for before the first of them is read.
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
            return p, filled
        outside = ~mask
        last = filled
        for k in range(count):
            first = heads[lists[k], 0]
            for at in range(first, first + heads[lists[k], 1]):
                out[last] = at
                last += codes[at] & outside == np.uint64(0)
        word, next_word = value_word(fields, ends, 0), value_word(fields, ends, 1)
        xmin, ymin = np.float32(probe_boxes[p, 0]), np.float32(probe_boxes[p, 1])
        xmax, ymax = np.float32(probe_boxes[p, 2]), np.float32(probe_boxes[p, 3])
        kept = filled
        for k in range(filled, last):
            at = out[k]
            out[kept] = at
            kept += passes(word, sketches[at, 0], sketches[at, 1])
        last = kept
        for k in range(filled, last):
            prefetch(details, out[k])
        kept = filled
        for k in range(filled, last):
            at = out[k]
            out[kept] = at
            kept += (
                (boxes[at, 0] <= xmax)
                & (boxes[at, 2] >= xmin)
                & (boxes[at, 1] <= ymax)
                & (boxes[at, 3] >= ymin)
                & passes(next_word, details[at, 2], details[at, 3])
            )
        for k in range(filled, kept):
            prefetch(rows, out[k])
        for k in range(filled, kept):
            out[k] = rows[out[k]]
            prefetch(clause_boxes, out[k])
            prefetch(keyword_offsets, out[k])
            prefetch(test_offsets, out[k])
        if attributes.size > 0:
            for k in range(filled, kept):
                first_test = test_offsets[out[k]]
                prefetch(attributes, first_test)
                prefetch(lows, first_test)
                prefetch(highs, first_test)
                prefetch(flags, first_test)
        kept = keep_satisfied(clauses, probes, p, out, filled, kept)
        counts[p - start] = kept - filled
        filled = kept
    return stop, filled
