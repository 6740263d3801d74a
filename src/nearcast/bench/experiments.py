"""Experiments of the papers as data, and the one loop that runs them.

An :class:`Experiment` is a list of cells: one index with its parameters (a *line* of the picture) over one workload at
one x of one panel. Cells over the same workload must give the same answers, whatever their index or parameters, and
those of the scan on the first messages; ``mismatches`` tells where they do not. Times compare within one run only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.bench.matching import affordable
from nearcast.bench.measure import Progress, best_of, timed
from nearcast.bench.report import label
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.matching import Matcher, build_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.bench.scenes import Setting

__all__ = ["MEASURES", "Cell", "Experiment", "run"]

# what can be plotted, with the name of its axis
MEASURES = {
    "microseconds_per_message": "µs a message",
    "build_seconds": "seconds to build",
    "bytes_per_subscription": "bytes a subscription",
    "insert_microseconds": "µs an insert",
}

Build = Callable[..., Matcher]


@dataclass(frozen=True)
class Cell:
    """One point of the picture: an index over a workload.

    The index is built over the first *built* of the subscriptions; the others are inserted before matching begins.
    """

    x: float | str
    line: str
    setting: Setting
    index: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    panel: str = ""
    built: float = 1.0


@dataclass(frozen=True)
class Experiment:
    """A figure of a paper: its cells, what is shown of them, and how."""

    figure: str
    title: str
    x_axis: str
    cells: Sequence[Cell]
    measures: tuple[str, ...] = ("microseconds_per_message",)
    baseline: str | None = None  # the line that tables compare the others with
    logarithmic: bool = False  # the x axis
    note: str = ""  # what differs from the paper


class Digest(NamedTuple):
    """What is kept of the answers: how many each message has, and a sum over them that no order changes."""

    counts: NDArray[np.int64]
    sums: NDArray[np.uint64]


def digest(found: Matches) -> Digest:
    """Return the digest of answers."""
    mixed = (found.rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed * mixed, dtype=np.uint64)])
    return Digest(found.counts, total[found.offsets[1:]] - total[found.offsets[:-1]])


def run(
    experiment: Experiment,
    *,
    seed: int = 0,
    repeat: int = config.BENCH_REPEAT,
    seconds: float = config.EXPERIMENT_SECONDS,
    progress: Progress | None = None,
    build: Build = build_index,
) -> dict[str, Any]:
    """Measure every cell of *experiment*; return the body of its report."""
    tell = progress or (lambda _text, _share: None)
    points: dict[int, dict[str, Any]] = {}
    mismatches: list[str] = []
    warm: set[tuple[str, str]] = set()
    for setting in dict.fromkeys(cell.setting for cell in experiment.cells):
        tell(
            f"making {setting.subscriptions:,} subscriptions, {setting.dataset.name}",
            _share(points, experiment),
        )
        workload, history, messages = setting.make(seed)
        few = messages.take(np.arange(min(config.EXPERIMENT_CHECKED, len(messages))))
        answers = [("scan", digest(build("scan", workload.subscriptions).match(few)))]
        for number, cell in enumerate(experiment.cells):
            if cell.setting != setting:
                continue
            tell(f"{cell.line}, {experiment.x_axis} {label(cell.x)}", _share(points, experiment))
            if (cell.index, str(cell.parameters)) not in warm:
                _warm_up(cell, workload.subscriptions, history, build)
                warm.add((cell.index, str(cell.parameters)))
            points[number], found = _measure(
                cell, workload.subscriptions, history, messages, repeat, seconds, build
            )
            points[number] |= {"seed": seed, "facts": workload.facts}
            where = f"{cell.panel} {cell.line} at {label(cell.x)}".strip()
            mismatches += [text for known in answers if (text := _difference(where, found, *known))]
            if len(found.counts) > len(answers[-1][1].counts):
                answers.append((where, found))
    tell("done", 1.0)
    return {
        "figure": experiment.figure,
        "title": experiment.title,
        "note": experiment.note,
        "x": {"axis": experiment.x_axis, "logarithmic": experiment.logarithmic},
        "measures": {name: MEASURES[name] for name in experiment.measures},
        "baseline": experiment.baseline,
        "seed": seed,
        "repeat": repeat,
        "points": [points[number] for number in range(len(points))],
        "mismatches": mismatches,
    }


def _share(points: Mapping[int, Any], experiment: Experiment) -> float:
    return len(points) / len(experiment.cells)


def _warm_up(cell: Cell, table: SubscriptionTable, history: MessageBatch, build: Build) -> None:
    """Compile everything that is going to be timed, on a few rows."""
    rows = np.arange(min(config.EXPERIMENT_WARM_UP, len(table)))
    sample = history.take(np.arange(min(10, len(history))))
    index = build(cell.index, table.take(rows), messages=sample, **cell.parameters)
    if cell.built < 1:
        index.insert(table.take(rows))
    index.match(sample)


def _measure(
    cell: Cell,
    table: SubscriptionTable,
    history: MessageBatch,
    messages: MessageBatch,
    repeat: int,
    seconds: float,
    build: Build,
) -> tuple[dict[str, Any], Digest]:
    """Return the figures of one cell, and the digest of its answers."""
    size = len(table)
    first = max(1, round(size * cell.built))
    late = [
        table.take(np.arange(start, min(start + config.BENCH_BATCH, size)))
        for start in range(first, size, config.BENCH_BATCH)
    ]
    early = table.take(np.arange(first)) if late else table
    building, index = timed(lambda: build(cell.index, early, messages=history, **cell.parameters))
    inserting, _ = timed(lambda: [index.insert(batch) for batch in late])
    index.match(
        messages.take(np.arange(min(8, len(messages))))
    )  # or the guess would count what a first call costs
    batch = affordable(index, messages, 1, seconds)
    matching, found = best_of(repeat, lambda: index.match(batch))
    figures = {
        "panel": cell.panel,
        "x": cell.x,
        "line": cell.line,
        "index": cell.index,
        "parameters": {k: "inf" if v == math.inf else v for k, v in cell.parameters.items()},
        "dataset": cell.setting.dataset.name,
        "subscriptions": size,
        "clauses": len(table.owners),
        "built_share": cell.built,
        "messages": len(batch),
        "matches_per_message": len(found.rows) / len(batch),
        "microseconds_per_message": matching / len(batch) * 1e6,
        "build_seconds": building,
        "bytes_per_subscription": index.stats()["bytes"] / size,
        "insert_microseconds": inserting / (size - first) * 1e6 if late else None,
    }
    return figures, digest(found)


def _difference(where: str, found: Digest, other: str, expected: Digest) -> str | None:
    """Say on which of the messages that both matched the answers differ first, if they do."""
    both = min(len(found.counts), len(expected.counts))
    differ = (found.counts[:both] != expected.counts[:both]) | (found.sums[:both] != expected.sums[:both])
    if not differ.any():
        return None
    message = int(differ.argmax())
    return (
        f"{where}: {int(differ.sum()):,} of {both:,} messages differ from {other}; "
        f"message {message} has {found.counts[message]} matches, not {expected.counts[message]}"
        + (" (others of the same number)" if found.counts[message] == expected.counts[message] else "")
    )
