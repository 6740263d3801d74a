"""The experiments of the papers as data, and the loop that runs them.

An :class:`Experiment` is a list of cells. A cell is one index or store with its parameters (a *line* of the plot) over
one workload at one x of one panel. Cells over the same workload must give the same answers, whatever their structure
or parameters, and on the first queries those of the scan; ``mismatches`` says where they do not. Times can be compared
only within one run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from nearcast import config
from nearcast.bench import changes
from nearcast.bench.measure import Progress, Structure, affordable, resident_bytes, timed
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.matching import build_index, build_store
from nearcast.report.plots import label

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.bench.covering_workloads import CommandLog, FullSubscriptions
    from nearcast.bench.topk_workloads import Stream
    from nearcast.workloads.moving import MovingWorkload

__all__ = [
    "MEASURES",
    "Case",
    "Cell",
    "Digest",
    "Experiment",
    "Setting",
    "Side",
    "body",
    "difference",
    "place",
    "run",
    "summed",
]

# The measures that can be plotted, with the names of their axes.
MEASURES = {
    "microseconds_per_message": "µs a message",
    "microseconds_per_subscription": "µs a subscription",
    "build_seconds": "seconds to build",
    "bytes_per_subscription": "bytes a subscription",
    "insert_microseconds": "µs an insert",
    "remove_microseconds": "µs a removal",
    "update_microseconds": "µs an update",
    "megabytes": "MB in all",
    "megabytes_of_structure": "MB over the data",
    "amp_microseconds": "µs an arriving message",
    "emp_microseconds": "µs an expired message",
    "processing_microseconds": "µs an arriving and an expired message",
    "average_buffer": "messages in a buffer",
    "re_evaluations_per_message": "re-evaluations a message",
    "index_megabytes": "MB of the subscription index",
    "total_seconds": "seconds in all",
    "queries_unsubscribe": "queries by unsubscriptions",
    "figure": "thousands",
    "forwarded_share": "share that is forwarded",
    "imm_microseconds": "µs a message (IMM)",
    "msp_microseconds": "µs a move (MSP)",
    "msp_step_milliseconds": "ms for the moves of a step",
    "mi_microseconds": "µs to insert a message (MI)",
    "slu_microseconds": "µs to update a location (SLU)",
}
# Figures that are added up for an index and a store.
_ADDED = ("build_seconds", "megabytes", "megabytes_of_structure", "resident_megabytes")


class Side(NamedTuple):
    """What one structure is measured with: messages query an index of subscriptions; a store is the reverse."""

    stored: SubscriptionTable | MessageBatch
    sample: SubscriptionTable | MessageBatch  # queries before the measured ones, for cost models
    queries: SubscriptionTable | MessageBatch
    newcomers: SubscriptionTable | MessageBatch | None = None  # to be inserted, where changes are measured

    @property
    def nouns(self) -> tuple[str, str]:
        """The nouns for what is stored and for the queries."""
        index = isinstance(self.stored, SubscriptionTable)
        return ("subscription", "message") if index else ("message", "subscription")

    @property
    def checked(self) -> SubscriptionTable | MessageBatch:
        """The first queries, on which every structure must agree with the scan."""
        return self.queries.take(np.arange(min(config.EXPERIMENT_CHECKED, len(self.queries))))

    def built(
        self, name: str, stored: SubscriptionTable | MessageBatch | None = None, **parameters: Any
    ) -> Structure:
        """Return the index or store of this name, built over what is stored or over *stored* instead."""
        held = self.stored if stored is None else stored
        if isinstance(held, SubscriptionTable):
            return build_index(name, held, messages=self.sample, **parameters)  # type: ignore[arg-type]
        return build_store(name, held, subscriptions=self.sample, **parameters)  # type: ignore[arg-type]

    def first(self, rows: int) -> Side:
        """Return the same with at most *rows* rows of each kind."""
        return Side(*(None if part is None else part.take(np.arange(min(rows, len(part)))) for part in self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Case:
    """A workload as cells use it; *facts* are the numbers that define it."""

    facts: dict[str, Any]
    index: Side | None = None
    store: Side | None = None
    ranking: Stream | None = None
    covering: CommandLog | FullSubscriptions | None = None
    moving: MovingWorkload | None = None


class Setting(Protocol):
    """Everything that determines a workload except the seed. Settings are hashable; equal ones share a workload."""

    @property
    def name(self) -> str:
        """The name of the data."""

    def make(self, seed: int) -> Case:
        """Return the workload."""


@dataclass(frozen=True)
class Cell:
    """One point of a plot: an index of the subscriptions of a workload, a store of its messages, or both.

    The structure is built over the share *built* of what is stored; the rest is inserted before matching begins. With
    *changes*, newcomers are inserted afterwards, and others updated and removed.
    """

    x: float | str
    line: str
    setting: Setting
    index: str | None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    panel: str = ""
    built: float = 1.0
    store: str | None = None
    changes: bool = False

    @property
    def where(self) -> str:
        """The position of the point, in words."""
        return f"{self.panel} {self.line} at {label(self.x)}".strip()


@dataclass(frozen=True)
class Experiment:
    """A figure of a paper: its cells, the measures that are shown, and how."""

    figure: str
    title: str
    x_axis: str
    cells: Sequence[Cell]
    measures: tuple[str, ...] = ("microseconds_per_message",)
    baseline: str | None = None  # the line that tables compare the others with
    logarithmic: bool = False  # the x axis
    note: str = ""  # what differs from the paper


class Digest(NamedTuple):
    """A digest of answers: for each query, their number and a sum over them."""

    counts: NDArray[np.int64]
    sums: NDArray[np.uint64]


def digest(found: Matches) -> Digest:
    """Return the digest of answers; their order does not matter."""
    return summed(found.offsets, found.rows.astype(np.uint64))


def summed(offsets: NDArray[np.int64], values: NDArray[np.uint64]) -> Digest:
    """Return the digest of values; those of query i are ``values[offsets[i]:offsets[i + 1]]``."""
    mixed = (values + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed * mixed, dtype=np.uint64)])
    return Digest(np.diff(offsets), total[offsets[1:]] - total[offsets[:-1]])


class Answers:
    """The answers to one workload, by kind of query: those of the scan, then of a structure that answered more."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[str, Digest]]] = {}

    def compared(self, where: str, side: Side, found: Digest) -> list[str | None]:
        """Return how the answers given at *where* differ from each set of known answers."""
        asking = side.nouns[1]
        if asking not in self._known:
            self._known[asking] = [("scan", digest(side.built("scan").match(side.checked)))]
        known = self._known[asking]
        differences = [difference(asking, found, *other) for other in known]
        if len(found.counts) > len(known[-1][1].counts):
            known.append((where, found))
        return differences


class Trial:
    """One structure of a cell: it is built, queried in turns with the others over the same workload, and changed."""

    def __init__(self, cell: Cell, name: str, side: Side, seconds: float) -> None:
        self.cell, self.side = cell, side
        size = len(side.stored)
        first = max(1, round(size * cell.built))
        late = [
            side.stored.take(np.arange(start, min(start + config.BENCH_BATCH, size)))
            for start in range(first, size, config.BENCH_BATCH)
        ]
        early = side.stored.take(np.arange(first)) if late else side.stored
        before = resident_bytes()
        self._building, self._structure = timed(lambda: side.built(name, early, **cell.parameters))
        after = resident_bytes()
        self._resident = after - before if before and after else 0
        inserting, _ = timed(lambda: [self._structure.insert(batch) for batch in late])
        self._insert_microseconds = inserting / (size - first) * 1e6 if late else None
        # Otherwise the estimate would include the cost of a first call.
        self._structure.match(side.queries.take(np.arange(min(8, len(side.queries)))))
        self._queries = affordable(self._structure, side.queries, 1, seconds)
        self._matching = math.inf

    def ask(self) -> None:
        """Run all queries once more; the best time counts."""
        seconds, found = timed(lambda: self._structure.match(self._queries))
        self._matching, self._found = min(self._matching, seconds), found

    def finish(self) -> tuple[dict[str, Any], Digest, list[str | None]]:
        """Return the figures, the digest of the answers, and what was wrong after changes."""
        stored, asking = self.side.nouns
        stats, asked = self._structure.stats(), len(self._queries)
        figures = {
            **_sizes(self.side, asked),
            f"matches_per_{asking}": len(self._found.rows) / asked,
            f"microseconds_per_{asking}": self._matching / asked * 1e6,
            "build_seconds": self._building,
            f"bytes_per_{stored}": stats["bytes"] / len(self.side.stored),
            "megabytes": stats["bytes"] / 1e6,
            "megabytes_of_structure": stats["bytes_of_structure"] / 1e6,
            "resident_megabytes": self._resident / 1e6,
            "insert_microseconds": self._insert_microseconds,
        }
        problems: list[str | None] = []
        if self.cell.changes:
            times, problem = _changed(self._structure, self.side)
            figures |= times
            problems = [problem]
        return figures, digest(self._found), problems


def run(
    experiment: Experiment,
    *,
    seed: int = 0,
    repeat: int = config.BENCH_REPEAT,
    seconds: float = config.EXPERIMENT_SECONDS,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure every cell of *experiment*; return the body of its report.

    All structures over one workload are built first and then queried in turns, so that other load on the machine does
    not favour one of them.
    """
    tell = progress or (lambda _text, _share: None)
    points: dict[int, dict[str, Any]] = {}
    mismatches: list[str] = []
    warm: set[tuple[str, str, str, bool]] = set()
    done, steps = 0, len(experiment.cells) * (1 + repeat)
    for setting in dict.fromkeys(cell.setting for cell in experiment.cells):
        tell(f"making the workload, {setting.name}", done / steps)
        case = setting.make(seed)
        answers = Answers()
        trials: list[tuple[int, Trial]] = []
        cells = [(number, cell) for number, cell in enumerate(experiment.cells) if cell.setting == setting]
        for number, cell in cells:
            tell(f"build {cell.line}, {experiment.x_axis} {label(cell.x)}", done / steps)
            for name, side in ((cell.index, case.index), (cell.store, case.store)):
                if name is None:
                    continue
                assert side is not None, f"{setting} has nothing for {name}"
                kind = (side.nouns[0], name, str(cell.parameters), cell.changes)
                if kind not in warm:  # compile what is going to be timed
                    few = Trial(cell, name, side.first(config.BENCH_WARM_UP), 0.0)
                    few.ask()
                    few.finish()
                    warm.add(kind)
                trials.append((number, Trial(cell, name, side, seconds)))
            points[number] = {
                **place(cell, seed, case.facts),
                "store": cell.store,
                "built_share": cell.built,
            }
            done += 1
        for turn in range(repeat):
            tell(f"match, turn {turn + 1} of {repeat}", done / steps)
            for _, trial in trials:
                trial.ask()
            done += len(cells)
        for number, trial in trials:
            cell, point = trial.cell, points[number]
            figures, found, problems = trial.finish()
            for key, value in figures.items():
                point[key] = point[key] + value if key in _ADDED and key in point else value
            where = cell.where
            problems += answers.compared(where, trial.side, found)
            mismatches += [f"{where}: {text}" for text in problems if text]
    tell("done", 1.0)
    stored = "subscriptions" if any(cell.index for cell in experiment.cells) else "messages"
    return body(experiment, stored, points, mismatches, seed=seed, repeat=repeat)


def place(cell: Cell, seed: int, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a point that precedes its figures in a report."""
    return {
        "panel": cell.panel,
        "x": cell.x,
        "line": cell.line,
        "index": cell.index,
        "parameters": {k: "inf" if v == math.inf else v for k, v in cell.parameters.items()},
        "dataset": cell.setting.name,
        "seed": seed,
        "facts": facts,
    }


def body(
    experiment: Experiment,
    stored: str,
    points: Mapping[int, dict[str, Any]],
    mismatches: list[str],
    *,
    seed: int,
    repeat: int,
    threads: int = 1,
) -> dict[str, Any]:
    """Return the body of an experiment's report; *points* maps the number of a cell to its point."""
    return {
        "figure": experiment.figure,
        "title": experiment.title,
        "note": experiment.note,
        "x": {"axis": experiment.x_axis, "logarithmic": experiment.logarithmic},
        "measures": {name: MEASURES[name] for name in experiment.measures},
        "baseline": experiment.baseline,
        "stored": stored,
        "seed": seed,
        "repeat": repeat,
        "threads": threads,
        "points": [points[number] for number in range(len(points))],
        "mismatches": mismatches,
    }


def _changed(structure: Structure, side: Side) -> tuple[dict[str, float | None], str | None]:
    """Return the cost of changes, and where the answers then differ from those of a scan with the same changes."""
    assert side.newcomers is not None, "no newcomers to insert"
    made = changes.make(side.stored, side.newcomers)
    times, done = changes.apply(structure, made, config.EXPERIMENT_CHANGE_SECONDS)
    scan = side.built("scan")
    changes.apply(scan, {kind: calls[: done[kind]] for kind, calls in made.items()}, math.inf)
    found, expected = digest(structure.match(side.checked)), digest(scan.match(side.checked))
    return times, difference(side.nouns[1], found, "the scan after the same changes", expected)


def _sizes(side: Side, asked: int) -> dict[str, int]:
    if isinstance(side.stored, SubscriptionTable):
        return {"subscriptions": len(side.stored), "clauses": len(side.stored.owners), "messages": asked}
    return {"stored_messages": len(side.stored), "asking_subscriptions": asked}


def difference(asking: str, found: Digest, other: str, expected: Digest) -> str | None:
    """Describe the first query that both answered differently, if there is one."""
    both = min(len(found.counts), len(expected.counts))
    differ = (found.counts[:both] != expected.counts[:both]) | (found.sums[:both] != expected.sums[:both])
    if not differ.any():
        return None
    query = int(differ.argmax())
    return (
        f"{int(differ.sum()):,} of {both:,} {asking}s differ from {other}; "
        f"{asking} {query} has {found.counts[query]} matches, not {expected.counts[query]}"
        + (" (equally many, but different ones)" if found.counts[query] == expected.counts[query] else "")
    )
