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
from nearcast.matching.scale import X, clause_ends, position
from nearcast.matching.sketch import Sketch, passes, sketch_values

__all__ = ["assign", "search"]


@kernel
def assign(layers: Layers, clauses: Clauses, rows: NDArray[np.int64], entries: Entries) -> None:
    """Write the list and the code of clause *rows*: one cell of each layer (sections 4.3.2 and 4.4)."""
    sources, knots, firsts, counts, steps, widths, untested, shifts = layers
    boxes, test_offsets = clauses.boxes, clauses.test_offsets
    attributes, lows, highs, flags = clauses[6:]
    targets, codes, _ = entries
    for i in range(rows.size):
        target, code = 0, np.uint64(0)
        for layer in range(sources.size):
            tested, low, high = clause_ends(
                sources[layer], rows[i], boxes, test_offsets, attributes, lows, highs, flags
            )
            cell = untested[layer]
            if tested:
                low, high = position(knots, layer, low), position(knots, layer, high)
                cell = cell_of(counts, firsts, steps, widths, layer, low, high)
            if layer < DIRECTORY:
                target = target * (untested[layer] + 1) + cell
            else:
                code |= np.uint64(1) << np.uint64(shifts[layer] + cell)
        targets[i], codes[i] = target, code


@kernel
def _ends(source: int, boxes: NDArray[np.float64], values: NDArray[np.float64], p: int) -> Any:
    """Return (present, low, high) of a message on an axis or attribute."""
    if source < 0:
        return True, boxes[p, source - X], boxes[p, source - X + 2]
    if source >= values.shape[1] or np.isnan(values[p, source]):
        return False, 0.0, 0.0
    return True, values[p, source], values[p, source]


@kernel
def search(
    clauses: Clauses,
    layers: Layers,
    sketch: Sketch,
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
    sources, knots, firsts, level_counts, steps, widths, untested, shifts = layers
    heads, codes, sketches, boxes, rows = pool
    sketch_sources, sketch_knots = sketch
    probe_boxes, _, _, values = probes
    most = untested.max() + 2
    cells = np.empty((DIRECTORY, most), np.int32)
    touched = np.zeros(DIRECTORY, np.int64)
    room = np.empty(most, np.int32)
    lists = np.empty(most * most, np.int32)
    for p in range(start, stop):
        mask = np.uint64(0)
        for layer in range(sources.size):
            present, low, high = _ends(sources[layer], probe_boxes, values, p)
            low, high = position(knots, layer, low), position(knots, layer, high)
            if layer < DIRECTORY:
                found = 0
                if present:
                    found = cells_touched(level_counts, firsts, steps, widths, layer, low, high, cells[layer])
                if sources[layer] >= 0:
                    cells[layer, found] = untested[layer]
                    found += 1
                touched[layer] = found
            else:
                bits = np.uint64(1) << np.uint64(untested[layer])
                if present:
                    bits |= mask_of(level_counts, firsts, steps, widths, layer, low, high, room)
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
        word = sketch_values(sketch_sources, sketch_knots, values, p, 0)
        next_word = sketch_values(sketch_sources, sketch_knots, values, p, 1)
        xmin, ymin = np.float32(probe_boxes[p, 0]), np.float32(probe_boxes[p, 1])
        xmax, ymax = np.float32(probe_boxes[p, 2]), np.float32(probe_boxes[p, 3])
        kept = filled
        for k in range(filled, last):
            at = out[k]
            out[kept] = at
            kept += passes(word, sketches[at, 0], sketches[at, 1])
        last = kept
        kept = filled
        for k in range(filled, last):
            at = out[k]
            out[kept] = rows[at]
            kept += (
                (boxes[at, 0] <= xmax)
                & (boxes[at, 2] >= xmin)
                & (boxes[at, 1] <= ymax)
                & (boxes[at, 3] >= ymin)
                & passes(next_word, sketches[at, 2], sketches[at, 3])
            )
        kept = keep_satisfied(clauses, probes, p, out, filled, kept)
        counts[p - start] = kept - filled
        filled = kept
    return stop, filled
