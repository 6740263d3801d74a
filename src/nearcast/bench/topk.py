"""``nearcast bench topk``: top-k over a window, by index and by kind of buffer; and the loop of its figures.

Filling a window and finding the first results takes far longer than the measurement itself, and is the same for every
index. So it is done once for each workload and kind of buffer, and every index continues from a copy.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from nearcast import config
from nearcast.bench.experiments import Cell, Experiment, Setting, body, place
from nearcast.bench.measure import Progress, resident_bytes, timed
from nearcast.bench.topk_answers import RankedAnswers
from nearcast.errors import UnknownError, shown
from nearcast.ranking import TopK
from nearcast.ranking.choices import FINDERS, POLICIES
from nearcast.ranking.igpt import PRUNINGS

if TYPE_CHECKING:
    import pyarrow as pa

    from nearcast import MessageBatch
    from nearcast.bench.topk_workloads import RankingScene, Stream

__all__ = ["BUFFER", "INDEX", "INDIVIDUAL", "RankingCell", "compare", "run"]

INDEX, BUFFER = "blocks", "cost-based"  # the defaults of TopK
#: IPT is IGPT without group pruning (Theorems 3 and 4 and Lemma 6 of the Skype paper).
INDIVIDUAL = {"prunings": tuple(name for name in PRUNINGS if name not in ("group", "early", "cell"))}
_TIMES = (  # figures whose minimum over all turns counts
    "amp_microseconds",
    "emp_microseconds",
    "processing_microseconds",
    "publish_seconds",
    "build_seconds",
    "initialisation_microseconds",
)


@dataclass(frozen=True)
class RankingCell(Cell):
    """One point of a plot: an index, and its kind of buffers.

    Points over the same workload that differ only in x or line are measured once.
    """

    buffer: str = BUFFER
    buffer_parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def policy(self) -> str:
        """The kind of buffers; cells with the same kind continue from the same state."""
        return f"{self.buffer} {dict(self.buffer_parameters)}"

    @property
    def system(self) -> str:
        """What is measured."""
        return f"{self.index} {dict(self.parameters)} {self.policy}"


class Start:
    """A full window, and subscriptions with their first results, but no index yet."""

    def __init__(self, stream: Stream, cell: RankingCell, threads: int) -> None:
        before = resident_bytes()
        self.top = TopK(
            stream.window,
            space=stream.messages.space,
            max_distance=stream.max_distance,
            document_frequency=stream.frequencies,
            threads=threads,
            index="scan",
            buffer=POLICIES[cell.buffer](**cell.buffer_parameters),
        )
        for rows in stream.batches(0, stream.size):
            self.top.publish(stream.messages.take(rows))
        points, words, alphas = stream.wishes
        for begin in range(0, len(points), config.TOPK_SUBSCRIBED):
            end = min(len(points), begin + config.TOPK_SUBSCRIBED)
            offsets = words.offsets[begin : end + 1]
            self.top.subscribe(
                points[begin:end],
                offsets - offsets[0],
                words.words[offsets[0] : offsets[-1]],
                alpha=alphas[begin:end],
                k=stream.k,
            )
        self.evaluating_microseconds = self.top.stats()["initialisation_microseconds"]
        after = resident_bytes()
        self.resident = after - before if before and after else 0


class RankingTrial:
    """One index with one kind of buffers over one stream; it takes turns with the others."""

    def __init__(self, stream: Stream, cell: RankingCell, start: Start, seconds: float) -> None:
        self.cell = cell
        self.figures: dict[str, Any] = {}  # the best times of all turns; the counts are always the same
        self._stream, self._start, self._seconds = stream, start, seconds
        self._arrivals = stream.batches(stream.size, len(stream.messages))

    def turn(self, top: TopK, answers: RankedAnswers | None) -> list[str]:
        """Publish the arriving messages to *top*, which is in the start state; with *answers* return what was wrong.

        The number of batches that fit into the time is estimated from the first batch of the first turn.
        """
        problems: list[str] = []
        index = partial(FINDERS[self.cell.index or INDEX], **self.cell.parameters)
        building, _ = timed(lambda: top.use_index(index))
        publishing, published = 0.0, 0
        while published < len(self._arrivals):
            batch = self._stream.messages.take(self._arrivals[published])
            took, _ = timed(partial(_published, top, batch))
            publishing, published = publishing + took, published + 1
            if published == 1 and not self.figures:
                self._arrivals = self._arrivals[
                    : int(max(1.0, min(len(self._arrivals), self._seconds / took)))
                ]
            if answers and published in (1, len(self._arrivals)):
                problems += answers.compared(self.cell.where, top, top.stats()["messages"])
        self._note(top.stats(), building, publishing)
        return problems

    def _note(self, stats: Mapping[str, Any], building: float, publishing: float) -> None:
        messages, memory = stats["messages"], stats["memory"]
        figures = {
            "subscriptions": stats["subscriptions"],
            "window": stats["window"],
            "messages": messages,
            "amp_microseconds": stats["amp_microseconds"],
            "emp_microseconds": stats["emp_microseconds"],
            "processing_microseconds": stats["amp_microseconds"] + stats["emp_microseconds"],
            "publish_seconds": publishing,
            "average_buffer": stats["average_buffer"],
            "average_buffer_in_k": stats["average_buffer"] / self._stream.k,
            **{
                f"{name}_per_message": stats[name] / messages
                for name in ("re_evaluations", "candidates", "entered")
            },
            "index_megabytes": memory["index"] / 1e6,
            "megabytes": sum(memory.values()) / 1e6,
            "resident_megabytes": self._start.resident / 1e6,
            "build_seconds": building,
            "initialisation_microseconds": self._start.evaluating_microseconds
            + building / stats["subscriptions"] * 1e6,
        }
        figures |= {name: min(figures[name], self.figures.get(name, math.inf)) for name in _TIMES}
        figures["messages_per_second"] = messages / figures["publish_seconds"]
        self.figures = figures


def _published(top: TopK, batch: MessageBatch) -> pa.Table:
    """Publish a batch and return the deliveries as a table."""
    return top.publish(batch).to_arrow()


class Runner:
    """The state that the trials of one run share."""

    def __init__(self, repeat: int, seconds: float, threads: int, tell: Progress) -> None:
        self.mismatches: list[str] = []
        self._repeat, self._seconds, self._threads, self._tell = repeat, seconds, threads, tell
        self._warm: set[tuple[str | None, str]] = set()

    def measured(
        self, stream: Stream, cells: Sequence[RankingCell], answers: RankedAnswers, done: float, share: float
    ) -> list[dict[str, Any]]:
        """Measure cells with the same kind of buffers, in turns, each from the same state; return their figures.

        The share *done* of the run is over before, and *share* more afterwards.
        """
        few = stream.first(config.BENCH_WARM_UP)
        for cell in cells:
            if (kind := (cell.index, cell.buffer)) not in self._warm:  # compile what is going to be timed
                start = Start(few, cell, self._threads)
                RankingTrial(few, cell, start, math.inf).turn(start.top, None)
                self._warm.add(kind)
        self._tell(f"fill the window, then {cells[0].buffer} buffers", done)
        start = Start(stream, cells[0], self._threads)
        trials = [RankingTrial(stream, cell, start, self._seconds) for cell in cells]
        turns = [(turn, trial) for turn in range(self._repeat) for trial in trials]
        for number, (turn, trial) in enumerate(turns, 1):
            self._tell(f"{trial.cell.where}, turn {turn + 1} of {self._repeat}", done)
            # The last trial may change the start itself: with a million rows there may be no memory for a copy.
            top = start.top if number == len(turns) else copy.deepcopy(start.top)
            self.mismatches += trial.turn(top, answers if turn == 0 else None)
            done += share / len(turns)
        return [trial.figures for trial in trials]


def run(
    experiment: Experiment,
    *,
    seed: int = 0,
    repeat: int = config.BENCH_REPEAT,
    seconds: float = config.TOPK_SECONDS,
    threads: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure every cell of *experiment*, each a :class:`RankingCell`; return the body of its report.

    A slow index publishes as many batches as it can in *seconds*. ``mismatches`` says which results differ from those
    of others that published the same messages, or from naive ones.
    """
    tell = progress or (lambda _text, _share: None)
    runner = Runner(repeat, seconds, threads, tell)
    points: dict[int, dict[str, Any]] = {}
    for setting in dict.fromkeys(cell.setting for cell in experiment.cells):
        tell(f"make the workload, {setting.name}", len(points) / len(experiment.cells))
        case = setting.make(seed)
        assert case.ranking is not None, f"{setting} has no stream"
        answers = RankedAnswers(case.ranking)
        for systems in _by_policy(experiment, setting):
            share = len(points) / len(experiment.cells), sum(map(len, systems)) / len(experiment.cells)
            cells = [same[0][1] for same in systems]
            for same, figures in zip(systems, runner.measured(case.ranking, cells, answers, *share)):
                for number, cell in same:
                    points[number] = {
                        **place(cell, seed, case.facts),
                        "buffer": cell.buffer,
                        "buffer_parameters": dict(cell.buffer_parameters),
                        **figures,
                    }
    tell("done", 1.0)
    return body(experiment, "ranked", points, runner.mismatches, seed=seed, repeat=repeat, threads=threads)


def _by_policy(experiment: Experiment, setting: Setting) -> list[list[list[tuple[int, RankingCell]]]]:
    """Return the cells of a workload with their numbers, grouped by their buffers, then by what is measured."""
    policies: dict[str, dict[str, list[tuple[int, RankingCell]]]] = {}
    for number, cell in enumerate(experiment.cells):
        assert isinstance(cell, RankingCell), f"{cell} has no buffers"
        if cell.setting == setting:
            policies.setdefault(cell.policy, {}).setdefault(cell.system, []).append((number, cell))
    return [list(systems.values()) for systems in policies.values()]


def compare(
    scene: RankingScene,
    *,
    seed: int = 0,
    repeat: int = config.BENCH_REPEAT,
    threads: int = 1,
    seconds: float = config.TOPK_SECONDS,
    only: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure every index with cost-based buffers, and every kind of buffer with the default index; or *only* some.

    Return the body of the report. ``amp_speedup_over`` and ``emp_speedup_over`` compare all with all.
    """
    setting = scene.setting()
    cells = [
        RankingCell("index", INDEX, setting, INDEX),
        RankingCell("index", "igpt", setting, "igpt"),
        RankingCell("index", "ipt", setting, "igpt", INDIVIDUAL),
        RankingCell("index", "ciq", setting, "ciq"),
        RankingCell("buffer", BUFFER, setting, INDEX),
        RankingCell("buffer", "kmax", setting, INDEX, buffer="kmax"),
        RankingCell("buffer", "skyband", setting, INDEX, buffer="skyband"),
    ]
    if only:
        names = [name.strip() for name in only.split(",")]
        lines = [cell.line for cell in cells]
        for name in names:
            if name not in lines:
                raise UnknownError(f"no index or buffer {shown(name)}; there are {', '.join(lines)}")
        cells = [cell for cell in cells if cell.line in names]
    experiment = Experiment("", "", "side", cells)
    measured = run(experiment, seed=seed, repeat=repeat, seconds=seconds, threads=threads, progress=progress)
    points = measured["points"]
    speedups = {f"{kind}_speedup_over": f"{kind}_microseconds" for kind in ("amp", "emp")}
    results = [
        {
            **point,
            "side": point["x"],
            "name": point["line"],
            "index": point["line"],  # the name by which floors find it
            **{
                name: {other["line"]: other[time] / point[time] for other in points}
                for name, time in speedups.items()
            },
        }
        for point in points
    ]
    return {
        "workload": {"name": setting.name, "seed": seed, "facts": points[0]["facts"]},
        "sizes": {
            "subscriptions": scene.subscriptions,
            "window": scene.window,
            "messages": scene.messages,
        },
        "k": scene.k,
        "index": INDEX,
        "buffer": BUFFER,
        "threads": threads,
        "repeat": repeat,
        "results": results,
        "mismatches": measured["mismatches"],
    }
