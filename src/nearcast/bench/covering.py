"""``nearcast bench covering``: which subscriptions need not be forwarded, by index; and the loop of its figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.bench.covering_workloads import CommandLog, FullSubscriptions
from nearcast.bench.experiments import Cell, Experiment, Setting, body, place
from nearcast.bench.measure import Progress, timed
from nearcast.covering import RelationGraph

if TYPE_CHECKING:
    from nearcast.bench.covering_workloads import CoveringScene
    from nearcast.covering import LogOutcome

__all__ = ["FULL", "NAIVE", "RECTANGLES", "CoveringCell", "compare", "run"]

NAIVE = "scan"
RECTANGLES = ("kd-tree", "z-curve", NAIVE)  # indexes of rectangles
FULL = ("forest", "clause-scan")  # indexes of all subscriptions


@dataclass(frozen=True)
class CoveringCell(Cell):
    """One point of a plot: an index with the reporting mode k. With *of*, only one of its figures."""

    k: int = 1
    of: str | None = None  # reported as "figure"

    @property
    def system(self) -> str:
        """What is measured; points that differ only in x or line are measured once."""
        return f"{self.index} {self.k}"


class _Trial:
    """One index over one log of commands."""

    def __init__(self, commands: CommandLog, cell: CoveringCell) -> None:
        self.cell = cell
        self.figures: dict[str, Any] = {}
        self.replay: LogOutcome | None = None
        self._commands = commands

    def turn(self) -> None:
        """Execute the log; the best time of all turns counts. A slow index has only one turn."""
        if self.figures.get("total_seconds", 0.0) > config.COVERING_SECONDS:
            return
        graph = RelationGraph(self.cell.index or NAIVE, self.cell.k)
        took, self.replay = timed(partial(graph.replay, *self._commands))
        best = min(took, self.figures.get("total_seconds", math.inf))
        self.figures = _figures(graph.stats(), best, len(self._commands.log))


def _figures(stats: dict[str, Any], seconds: float, commands: int) -> dict[str, Any]:
    figures = {
        name: stats[name]
        for name in (
            "subscriptions",
            "forwarded",
            "queries_subscribe",
            "queries_unsubscribe",
            "nodes_subscribe",
            "nodes_unsubscribe",
            "comparisons_subscribe",
            "comparisons_unsubscribe",
        )
    }
    nodes = stats["nodes_subscribe"] + stats["nodes_unsubscribe"]
    comparisons = stats["comparisons_subscribe"] + stats["comparisons_unsubscribe"]
    return {
        **figures,
        "commands": commands,
        "total_seconds": seconds,
        "microseconds": seconds / commands * 1e6,
        "nodes": nodes,
        "nodes_per_command": nodes / commands,
        "comparisons": comparisons,
        "comparisons_per_command": comparisons / commands,
        "forwarded_share": stats["forwarded"] / max(1, stats["subscriptions"]),
        "index_megabytes": stats["memory"]["index"] / 1e6,
        "megabytes": sum(stats["memory"].values()) / 1e6,
    }


def _replayed(
    commands: CommandLog, cells: Sequence[CoveringCell], repeat: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Let cells execute a log in turns; return their figures, and where their answers differ."""
    few = commands.first(config.BENCH_WARM_UP)
    for name in dict.fromkeys(cell.index or NAIVE for cell in cells):  # compile what is going to be timed
        RelationGraph(name).replay(*few)
    trials = [_Trial(commands, cell) for cell in cells]
    for _ in range(repeat):
        for trial in trials:
            trial.turn()
    return [trial.figures for trial in trials], _differences(trials)


def _differences(trials: Sequence[_Trial]) -> list[str]:
    """Describe where indexes forward or expose different subscriptions; k makes no difference to either."""
    problems = []
    first = trials[0]
    assert first.replay
    for other in trials[1:]:
        assert other.replay
        if not np.array_equal(first.replay.forward, other.replay.forward):
            at = int(np.flatnonzero(first.replay.forward != other.replay.forward)[0])
            problems.append(f"{other.cell.where}: command {at} is answered differently by {first.cell.where}")
        elif not np.array_equal(np.sort(first.replay.exposed), np.sort(other.replay.exposed)):
            problems.append(f"{other.cell.where}: {first.cell.where} exposes different subscriptions")
    return problems


def run(
    experiment: Experiment,
    *,
    seed: int = 0,
    repeat: int = config.BENCH_REPEAT,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure every cell of *experiment*, each a :class:`CoveringCell`; return the body of its report."""
    tell = progress or (lambda _text, _share: None)
    points: dict[int, dict[str, Any]] = {}
    mismatches: list[str] = []
    for setting in dict.fromkeys(cell.setting for cell in experiment.cells):
        tell(f"{setting.name}, a workload", len(points) / len(experiment.cells))
        case = setting.make(seed)
        systems = _systems(experiment, setting)
        if isinstance(case.covering, CommandLog):
            measured, problems = _replayed(case.covering, [same[0][1] for same in systems], repeat)
            mismatches += problems
        else:
            assert case.covering is not None, f"{setting} has no subscriptions"
            measured = [_subscribed(case.covering, same[0][1]) for same in systems]
        for same, figures in zip(systems, measured):
            for number, cell in same:
                points[number] = {**place(cell, seed, case.facts), "k": cell.k, **figures}
                if cell.of:
                    points[number]["figure"] = figures[cell.of] / 1000
    tell("done", 1.0)
    return body(experiment, "covered", points, mismatches, seed=seed, repeat=repeat)


def _systems(experiment: Experiment, setting: Setting) -> list[list[tuple[int, CoveringCell]]]:
    """Return the cells of a workload with their numbers, grouped by what is measured."""
    systems: dict[str, list[tuple[int, CoveringCell]]] = {}
    for number, cell in enumerate(experiment.cells):
        assert isinstance(cell, CoveringCell), f"{cell} covers nothing"
        if cell.setting == setting:
            systems.setdefault(cell.system, []).append((number, cell))
    return list(systems.values())


def _subscribed(full: FullSubscriptions, cell: CoveringCell) -> dict[str, Any]:
    graph = RelationGraph(cell.index or FULL[0], cell.k)
    took, _ = timed(partial(graph.subscribe, full.subscriptions))
    return _figures(graph.stats(), took, len(full.subscriptions))


def compare(
    scene: CoveringScene,
    *,
    seed: int = 0,
    repeat: int = config.BENCH_REPEAT,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure the indexes of rectangles on the paper's commands, and those of full subscriptions; return the report.

    ``speedup_over`` compares all indexes that ran on the same workload.
    """
    tell = progress or (lambda _text, _share: None)
    results: list[dict[str, Any]] = []
    mismatches: list[str] = []
    for number, attributes in enumerate(config.COVERING_TRIED):
        tell(f"rectangles of {attributes} attributes", number / (len(config.COVERING_TRIED) + 1))
        setting = scene.rectangles(attributes, leaving=config.COVERING_LEAVING)
        case = setting.make(seed)
        assert isinstance(case.covering, CommandLog)
        cells = [CoveringCell(2 * attributes, index, setting, index) for index in RECTANGLES]
        measured, problems = _replayed(case.covering, cells, repeat)
        mismatches += problems
        results += [
            {
                "side": "rectangles",
                "workload": f"{2 * attributes} dimensions",
                "name": f"{cell.index}, {2 * attributes} dim.",
                "index": cell.index,
                **figures,
                "speedup_over": {
                    str(other.index): theirs["total_seconds"] / figures["total_seconds"]
                    for other, theirs in zip(cells, measured)
                },
            }
            for cell, figures in zip(cells, measured)
        ]
    tell("full subscriptions", len(config.COVERING_TRIED) / (len(config.COVERING_TRIED) + 1))
    for dataset in scene.datasets:
        case = scene.full(dataset).make(seed)
        assert isinstance(case.covering, FullSubscriptions)
        rows, problems = _full(case.covering, dataset.name, seed, repeat)
        results += rows
        mismatches += problems
    tell("done", 1.0)
    return {
        "workload": {"name": "covering", "seed": seed},
        "sizes": {"operations": scene.commands, "subscriptions": scene.subscriptions},
        "leaving": config.COVERING_LEAVING,
        "repeat": repeat,
        "results": results,
        "mismatches": mismatches,
    }


def _full(
    full: FullSubscriptions, name: str, seed: int, repeat: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Subscribe all, query covers, and let newcomers come and go. The scan, which is slow, only queries."""
    newcomers = full.newcomers
    count = len(newcomers)
    for index in FULL:
        small = RelationGraph(index)
        small.unsubscribe(small.subscribe(newcomers.take(np.arange(min(count, 64)))).rows[:8])
        small.covering(newcomers.take(np.arange(min(count, 8))))
    graph = RelationGraph()
    building, _ = timed(partial(graph.subscribe, full.subscriptions))
    figures = _figures(graph.stats(), building, len(full.subscriptions))
    asking, found = min(
        (timed(partial(graph.covering, newcomers)) for _ in range(repeat)), key=lambda one: one[0]
    )
    single = newcomers.take([0])
    coming, made = timed(partial(graph.subscribe, newcomers))
    leaving, _ = timed(partial(graph.unsubscribe, made.rows))
    gone = np.random.default_rng(seed).permutation(len(full.subscriptions))[:count]
    leaving_others, _ = timed(partial(graph.unsubscribe, gone))
    one_at_a_time = [timed(partial(graph.subscribe, single))[0] for _ in range(config.COVERING_SINGLE)]
    fast = {
        "side": "full",
        "workload": name,
        "name": f"forest, {name}",
        "index": "forest",
        **figures,
        "subscribe_microseconds": building / len(full.subscriptions) * 1e6,
        "microseconds": asking / count * 1e6,
        "insert_microseconds": coming / count * 1e6,
        "remove_microseconds": max(leaving, leaving_others) / count * 1e6,
        "single_microseconds": float(np.median(one_at_a_time)) * 1e6,
        "covered_share": float(np.count_nonzero(np.diff(found.offsets)) / count),
    }
    graph.use_index("clause-scan")
    asked = newcomers.take(np.arange(min(count, config.COVERING_SCANNED)))
    scanning, expected = timed(partial(graph.covering, asked))
    graph.use_index("forest")
    again = graph.covering(asked)
    problems = [
        f"forest, {name}: newcomer {row} has {here} covers, not {there}"
        for row, (here, there) in enumerate(zip(np.diff(again.offsets), np.diff(expected.offsets)))
        if here != there
    ]
    slow = {
        "side": "full",
        "workload": name,
        "name": f"clause-scan, {name}",
        "index": "clause-scan",
        "subscriptions": figures["subscriptions"],
        "microseconds": scanning / len(asked) * 1e6,
    }
    for row in (fast, slow):
        row["speedup_over"] = {
            other["index"]: other["microseconds"] / row["microseconds"] for other in (fast, slow)
        }
    return [fast, slow], problems[:1]
