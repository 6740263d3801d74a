"""Choose the attributes that an MO-Tree indexes, and their cells.

These are sections 4.2 and 5 of Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for
Spatiotemporal-aware Pub/Sub Systems" (2021). One figure measures the three guidelines (popularity, selectivity,
uniformity) together: the mean share of clauses whose cell a message touches. It is large for an attribute that few
clauses test, whose intervals are wide, or whose intervals crowd in few cells. The two layers with the smallest shares
become the directory, with cells as fine as their intervals and as wide as section 5 says. The next layers become runs
of equal cells in a code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes
from nearcast.matching.structures.mo_tree.cells import Layers, cell_of
from nearcast.matching.structures.mo_tree.widths import Law, even_targets, level_counts, optimal_widths
from nearcast.matching.structures.scale import (
    ABSENT,
    Scales,
    X,
    Y,
    clause_positions,
    knots_of,
    most_tested,
    position,
    scales_of,
    tests_of,
)
from nearcast.matching.structures.sketch import FIELDS, GROUPS, RUN_CELLS

__all__ = ["DIRECTORY", "QUICK", "THOROUGH", "Choice", "Effort", "Figures", "choose_layers"]

DIRECTORY = 2  # layers whose cells number the lists of clauses


class Figures(NamedTuple):
    """The measures of a layer in section 4.2, for ``stats()``."""

    source: int
    cells: int
    popularity: float  # the share of clauses that test it
    selectivity: float  # the share of these that a message need not read
    uniformity: float  # the entropy of their cells, relative to that of equally full cells


class _Candidate(NamedTuple):
    source: int
    knots: NDArray[np.float64]
    tested: NDArray[np.bool_]  # for each sampled clause
    lows: NDArray[np.float64]  # positions of the intervals of those that test it
    highs: NDArray[np.float64]
    values: NDArray[np.float64] | None  # positions of the values in a sample of messages, if there is one
    present: float  # the share of messages that have it


class _Layer(NamedTuple):
    source: int
    counts: NDArray[np.int64]
    widths: NDArray[np.float64]
    left: float  # the mean share of clauses whose cell a message touches
    figures: Figures


class Choice(NamedTuple):
    """The layers and scales of an MO-Tree."""

    layers: Layers  # those of the directory
    scales: Scales  # those of the directory first, then those of the code and the sketch
    coded: NDArray[np.int32]  # the numbers of the scales in the code
    sketched: NDArray[np.int32]  # the numbers of the scales in the sketch
    figures: list[Figures]  # those of the directory's layers, then those of the code's


class Effort(NamedTuple):
    """How much is examined to make a choice."""

    sample: int  # clauses
    attributes: int  # the most tested ones
    fine: int  # attributes and axes that may form the directory: those that do best with equal cells


# Everything, for a structure that is built.
THOROUGH = Effort(config.MO_TREE_SAMPLE, config.MO_TREE_CANDIDATES, config.MO_TREE_CANDIDATES + 2)
# A few milliseconds, for a structure that others wait for.
QUICK = Effort(config.MO_TREE_QUICK_SAMPLE, GROUPS * FIELDS, config.MO_TREE_QUICK_FINE)


def choose_layers(
    clauses: Clauses,
    rows: NDArray[np.int64],
    messages: Probes | None,
    layers: int,
    levels: int,
    threshold: float,
    effort: Effort = THOROUGH,
) -> Choice:
    """Choose at most *layers* (H) for clause *rows* and a sample of messages; the directory's have *levels* (L)."""
    rng = np.random.default_rng(0)
    sample = rows if len(rows) <= effort.sample else np.sort(rng.choice(rows, effort.sample))
    tested = most_tested(clauses, sample, effort.attributes)
    candidates = _candidates(clauses, sample, [X, Y, *tested], messages)
    finest = min(max(levels, int(np.sqrt(len(rows)) / config.MO_TREE_STEM)), config.MO_TREE_CELLS)
    runs = level_counts(RUN_CELLS), np.arange(1, RUN_CELLS + 1) / RUN_CELLS
    coarse = [_measured(candidate, *runs) for candidate in candidates]
    order = sorted(range(len(coarse)), key=lambda i: (coarse[i].left, i))
    fine = {i: _layer(candidates[i], levels, threshold, finest) for i in order[: effort.fine]}
    best = sorted(fine, key=lambda i: (fine[i].left, i))[:DIRECTORY]
    directory = [fine[i] for i in best]
    further = [coarse[i] for i in order if i not in best]
    code = [
        layer for layer in further[: min(FIELDS, layers - DIRECTORY)] if layer.left < config.MO_TREE_USEFUL
    ]
    sketch = tested[: GROUPS * FIELDS]
    sources = list(dict.fromkeys([*(layer.source for layer in directory + code), *sketch]))
    knots = {candidate.source: candidate.knots for candidate in candidates}
    return Choice(
        _laid_out(directory),
        scales_of(sources, [knots[source] for source in sources]),
        np.array([sources.index(layer.source) for layer in code], np.int32),
        np.array([sources.index(source) for source in sketch], np.int32),
        [layer.figures for layer in directory + code],
    )


def _candidates(
    clauses: Clauses, sample: NDArray[np.int64], sources: list[int], messages: Probes | None
) -> list[_Candidate]:
    """Return the sources with the positions of sampled clauses and messages."""
    tests = tests_of(clauses, sample)
    knots = []
    for source in sources:
        if source < 0:
            knots.append(knots_of(clauses.boxes[sample][:, source - X :: 2].ravel()))
        else:
            own = tests[clauses.test_attributes[tests] == source]
            knots.append(knots_of(np.concatenate([clauses.test_lows[own], clauses.test_highs[own]])))
    scales = scales_of(sources, knots)
    ends = np.empty((len(sample), len(sources), 2))
    _ends(scales, clauses, sample, ends)
    candidates = []
    for number, source in enumerate(sources):
        tested = ends[:, number, 0] != ABSENT
        lows, highs = ends[tested, number, 0], ends[tested, number, 1]
        values, present = None, 1.0
        if messages is not None and len(messages.boxes):
            if source < 0:
                there = messages.boxes[:, source - X]
            else:
                there = messages.values[messages.value_attributes == source]
            present = len(there) / len(messages.boxes)
            values = np.empty(min(len(there), config.MO_TREE_SAMPLE))
            _place_all(scales, number, np.ascontiguousarray(there), values)
        candidates.append(_Candidate(source, knots[number], tested, lows, highs, values, present))
    return candidates


def _layer(candidate: _Candidate, levels: int, threshold: float, finest: int) -> _Layer:
    """Return a layer with as many cells on a level as its intervals need: from the paper's number up to *finest*."""
    n = len(candidate.lows)
    points = np.linspace(0, n - 1, min(n, config.MO_TREE_POINTS)).astype(np.int64)
    values = None if candidate.values is None else candidate.values[: config.MO_TREE_POINTS]
    law = Law((candidate.highs - candidate.lows)[points], candidate.lows[points], values)
    if not n:
        law = Law(np.ones(1), None, values)
    counts = paper = level_counts(levels)
    targets = even_targets(counts, law.widths)
    for _ in range(2):  # the numbers of cells and the targets depend on each other
        wanted = np.ceil(config.MO_TREE_FINENESS / np.maximum(targets, 1e-6)).astype(np.int64)
        counts = np.maximum(paper, np.minimum(wanted, finest))
        counts[-1] = 1
        targets = even_targets(counts, law.widths)
    threshold *= config.MO_TREE_FINENESS
    return _measured(candidate, counts, optimal_widths(counts, targets, threshold, law, config.MO_TREE_STEPS))


def _measured(candidate: _Candidate, counts: NDArray[np.int64], widths: NDArray[np.float64]) -> _Layer:
    """Return the layer with its figures, measured on the sampled clauses."""
    steps = _steps(counts, widths)
    firsts = np.cumsum(counts) - counts
    cells = np.empty(len(candidate.lows), np.int64)
    _cells(
        counts[None].astype(np.int32),
        firsts[None].astype(np.int32),
        steps[None],
        _rates(steps)[None],
        widths[None],
        candidate.lows,
        candidate.highs,
        cells,
    )
    level = np.searchsorted(firsts, cells, side="right") - 1
    starts = steps[level] * (cells - firsts[level])
    if candidate.values is None:
        touched = widths[level]
    else:
        values = np.sort(candidate.values)
        inside = np.searchsorted(values, starts + widths[level], "right") - np.searchsorted(
            values, starts, "left"
        )
        touched = candidate.present * inside / max(len(values), 1)
    popularity = float(candidate.tested.mean()) if len(candidate.tested) else 0.0
    met = float(touched.mean()) if len(touched) else 1.0
    shares = np.bincount(cells, minlength=int(counts.sum())) / max(len(cells), 1)
    entropy = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    uniformity = entropy / float(np.log(len(shares))) if len(shares) > 1 else 0.0
    figures = Figures(
        candidate.source, int(counts.sum()), round(popularity, 4), round(1 - met, 4), round(uniformity, 4)
    )
    return _Layer(candidate.source, counts, widths, 1 - popularity * (1 - met), figures)


def _steps(counts: NDArray[np.int64], widths: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(counts > 1, (1 - widths) / np.maximum(counts - 1, 1), 0.0)


def _rates(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(1.0, steps, out=np.zeros_like(steps), where=steps > 0)


def _laid_out(chosen: list[_Layer]) -> Layers:
    counts = np.array([layer.counts for layer in chosen], np.int32)
    steps = np.array([_steps(layer.counts, layer.widths) for layer in chosen])
    return Layers(
        np.array([layer.source for layer in chosen], np.int32),
        (np.cumsum(counts, axis=1) - counts).astype(np.int32),
        counts,
        steps,
        _rates(steps),
        np.array([layer.widths for layer in chosen]),
        counts.sum(axis=1).astype(np.int32),
    )


@kernel
def _place_all(scales: Scales, scale: int, values: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    _, knots, slopes, _ = scales
    for i in range(out.size):
        out[i] = position(knots, slopes, scale, values[i])


@kernel
def _ends(scales: Scales, clauses: Clauses, rows: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    """Write the positions of each clause on all scales."""
    _, knots, slopes, numbers = scales
    boxes, test_runs = clauses.boxes, clauses.test_runs
    attributes, lows, highs, flags = clauses[6:]
    for i in range(rows.size):
        clause_positions(
            knots, slopes, numbers, rows[i], boxes, test_runs, attributes, lows, highs, flags, out[i]
        )


@kernel
def _cells(
    counts: NDArray[np.int32],
    firsts: NDArray[np.int32],
    steps: NDArray[np.float64],
    rates: NDArray[np.float64],
    widths: NDArray[np.float64],
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    out: NDArray[np.int64],
) -> None:
    for i in range(lows.size):
        out[i] = cell_of(counts, firsts, steps, rates, widths, 0, lows[i], highs[i])
