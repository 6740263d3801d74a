"""``nearcast bench moving``: subscriptions that move, by index; and the loop of its figures.

The names of the times are those of section 5.2 of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support
Location-Aware Publish/Subscribe" (2015). All of them are microseconds for one row of a call with many.

=====  ================================================================================================================
MSP    moving subscription processing: a move, with the messages that come into reach and go out of it
IMM    incoming message matching: publishing a message that is kept, with its insertion
MI     message insertion, and the removal of an expired one: IMM without matching, which is measured by publishing
       other messages that are not kept
SLU    subscriber location update: a move while there are no messages
=====  ================================================================================================================

Each index replays the stream alone, so that its memory can be observed.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nearcast import config
from nearcast.bench.experiments import Cell, Experiment, body, place
from nearcast.bench.measure import Columns, Progress, resident_bytes, timed
from nearcast.bench.moving_answers import MovingAnswers, Serials, StepAnswers
from nearcast.matching.moving import MovingIndex

if TYPE_CHECKING:
    from nearcast.bench.moving_workloads import MovingSetting
    from nearcast.columns import MessageBatch
    from nearcast.workloads.moving import MovingWorkload

__all__ = ["MovingCell", "chunks", "per_row", "run"]

_T = TypeVar("_T", bound=Columns)


@dataclass(frozen=True)
class MovingCell(Cell):
    """One point of a plot: a moving index. With *parts*, MI and SLU are measured, too."""

    moves: int = config.MOVING_CALL  # in one call
    parts: bool = False


class MovingTrial:
    """One index that replays one workload; its best times over all turns count."""

    def __init__(
        self,
        cell: MovingCell,
        workload: MovingWorkload,
        steps: int,
        seconds: float,
        collect: Callable[[int], StepAnswers],
    ) -> None:
        self.cell, self.workload = cell, workload
        self._collect = collect  # makes what collects the answers of a step
        self.figures: dict[str, Any] = {}
        self._steps, self._seconds = steps, seconds

    def turn(self) -> list[StepAnswers]:
        """Replay the workload; return the answers of each step."""
        found = self._replay()
        if self.cell.parts:
            self._note({"slu_microseconds": per_row(self._moves_alone())})
        return found

    def _replay(self) -> list[StepAnswers]:
        work, moves = self.workload, self.cell.moves
        gc.collect()
        building, live = timed(lambda: self._index(work.messages))
        serials, found = Serials(len(work.messages)), []
        times: dict[str, list[tuple[float, int]]] = {"move": [], "publish": [], "match": []}
        settled = None
        for number, step in enumerate(work.steps(self._steps), 1):
            answers, now = self._collect(number), step.now
            for part in chunks(len(step.rows), moves):
                rows, boxes = step.rows[part], step.boxes[part]
                seconds, changes = timed(partial(live.move, rows, boxes, now))
                times["move"].append((seconds, len(rows)))
                answers.add("came", serials.of(changes.came))
                answers.add("went", serials.of(changes.went))
            for batch in batches(step.messages, config.BENCH_BATCH):
                seconds, matches = timed(partial(live.publish, batch, now))
                times["publish"].append((seconds, len(batch)))
                serials.arrived(live.published)
                answers.add("matches", matches)
            if self.cell.parts:
                batch = _not_kept(work, number)
                seconds, _ = timed(partial(live.publish, batch))  # without a time, nothing expires either
                times["match"].append((seconds, len(batch)))
            found.append(answers)
            if number == config.MOVING_SETTLED:
                settled = live.stats()["bytes"], resident_bytes()
            if sum(seconds for calls in times.values() for seconds, _ in calls) > self._seconds:
                break
        # Otherwise a later turn could stop after fewer steps, and the turns would have different answers.
        self._steps, self._seconds = len(found), math.inf
        self._note_times(times, building)
        self._note_memory(live, settled)
        self._note_answers(found, times)
        return found

    def _index(self, messages: MessageBatch | None) -> MovingIndex:
        name = self.cell.index
        assert name is not None, "a cell without an index"
        return MovingIndex(name, self.workload.subscriptions, messages, **self.cell.parameters)

    def _moves_alone(self) -> Iterator[tuple[float, int]]:
        """Move while there are no messages: only the side of the subscriptions has work to do."""
        live = self._index(None)
        for step in self.workload.steps(min(self._steps, config.MOVING_PART_STEPS)):
            for part in chunks(len(step.rows), self.cell.moves):
                rows, boxes = step.rows[part], step.boxes[part]
                seconds, _ = timed(partial(live.move, rows, boxes, step.now))
                yield seconds, len(rows)

    # --- Figures ---------------------------------------------------------------------------------------------------

    def _note(self, times: dict[str, float]) -> None:
        """Keep the best of each time."""
        self.figures |= {
            name: min(seconds, self.figures.get(name, math.inf)) for name, seconds in times.items()
        }

    def _note_times(self, times: dict[str, list[tuple[float, int]]], building: float) -> None:
        self._note(
            {
                "build_seconds": building,
                "msp_microseconds": per_row(times["move"], mean=True),
                "msp_median_microseconds": per_row(times["move"]),
                "imm_microseconds": per_row(times["publish"], mean=True),
                "imm_median_microseconds": per_row(times["publish"]),
            }
        )
        moved = sum(rows for _, rows in times["move"]) / self._steps
        self.figures["msp_step_milliseconds"] = self.figures["msp_microseconds"] * moved / 1e3
        if times["match"]:
            self._note({"match_microseconds": per_row(times["match"])})
            imm, match = self.figures["imm_median_microseconds"], self.figures["match_microseconds"]
            self.figures["mi_microseconds"] = imm - match

    def _note_memory(self, live: MovingIndex, settled: tuple[int, int | None] | None) -> None:
        stats, resident = live.stats(), resident_bytes()
        self.figures |= {"megabytes": stats["bytes"] / 1e6, "bytes_growth": None, "resident_growth": None}
        if settled and self._steps > config.MOVING_SETTLED:
            before, resident_before = settled
            self.figures["bytes_growth"] = stats["bytes"] / before
            if resident and resident_before:  # as a share of what the index holds
                self.figures["resident_growth"] = (resident - resident_before) / before

    def _note_answers(self, found: Sequence[StepAnswers], times: dict[str, list[tuple[float, int]]]) -> None:
        moved, published = (sum(rows for _, rows in times[kind]) for kind in ("move", "publish"))
        total = {kind: sum(answers.counts[kind] for answers in found) for kind in ("matches", "came", "went")}
        self.figures |= {
            "subscriptions": len(self.workload.subscriptions),
            "valid_messages": len(self.workload.messages),
            "steps": len(found),
            "moves": moved,
            "messages": published,
            "matches_per_message": total["matches"] / published,
            "came_per_move": total["came"] / moved,
            "went_per_move": total["went"] / moved,
        }


def run(
    experiment: Experiment,
    *,
    seed: int = 0,
    repeat: int = 1,
    seconds: float = config.MOVING_SECONDS,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure every cell of *experiment*, each a :class:`MovingCell`; return the body of its report.

    A slow index replays as many steps as it can in *seconds*. ``mismatches`` says which answers differ from naive ones,
    or from those of another index.
    """
    tell = progress or (lambda _text, _share: None)
    points: dict[int, dict[str, Any]] = {}
    mismatches: list[str] = []
    warm: set[str] = set()
    for setting in dict.fromkeys(cell.setting for cell in experiment.cells):
        tell(f"make the workload, {setting.name}", len(points) / len(experiment.cells))
        case = setting.make(seed)
        assert case.moving is not None, f"{setting} does not move"
        steps = setting.steps  # type: ignore[attr-defined]
        answers = MovingAnswers(case.moving, steps)
        trials: dict[int, MovingTrial] = {}
        for number, cell in enumerate(experiment.cells):
            if cell.setting == setting:
                assert isinstance(cell, MovingCell), f"{cell} does not move"
                trials[number] = MovingTrial(cell, case.moving, steps, seconds, answers.of_step)
                if (kind := f"{cell.index} {cell.parameters}") not in warm:
                    _warm_up(cell, setting, seed)  # type: ignore[arg-type]
                    warm.add(kind)
        # In turns, so that other load on the machine does not favour one of them.
        for turn in range(repeat):
            for done, trial in enumerate(trials.values()):
                share = (turn + done / len(trials)) / repeat * len(trials)
                tell(f"{trial.cell.where}, turn {turn + 1}", (len(points) + share) / len(experiment.cells))
                found = trial.turn()
                if turn == 0:
                    mismatches += answers.compared(trial.cell.where, found)
        points |= {
            number: {**place(trial.cell, seed, case.facts), **trial.figures}
            for number, trial in trials.items()
        }
    tell("done", 1.0)
    return body(experiment, "moving", points, mismatches, seed=seed, repeat=repeat)


def _warm_up(cell: MovingCell, setting: MovingSetting, seed: int) -> None:
    """Compile what is going to be timed."""
    few = setting.first(config.BENCH_WARM_UP)
    made = few.make(seed).moving
    assert made is not None
    MovingTrial(replace(cell, parts=True), made, few.steps, math.inf, lambda _: StepAnswers()).turn()


def _not_kept(workload: MovingWorkload, number: int) -> MessageBatch:
    """Return other messages than those of the step, without an end: they are matched and not kept."""
    rng = np.random.default_rng([workload.seed, 11, number])
    points, words = workload.source.messages(rng, min(config.BENCH_BATCH, workload.arrivals))
    return type(workload.messages).from_arrays(points, *words, space=workload.messages.space)


def batches(rows: _T, size: int) -> Iterator[_T]:
    """Yield the rows in calls of *size*."""
    for part in chunks(len(rows), size):
        yield rows.take(np.arange(part.start, part.stop))


def chunks(count: int, size: int) -> Iterator[slice]:
    """Yield the parts of *count* rows that one call takes.

    >>> [(part.start, part.stop) for part in chunks(5, 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def per_row(calls: Iterable[tuple[float, int]], *, mean: bool = False) -> float:
    """Return the microseconds for a row: the median over the calls, or the mean.

    The first call does not count if there are others: a structure then copies the arrays that it has borrowed.

    >>> per_row([(9.0, 1), (1e-6, 1), (4e-6, 2), (9e-6, 1)]), per_row([(9.0, 1), (1e-6, 1), (4e-6, 4)], mean=True)
    (2.0, 1.0)
    """
    seconds, rows = np.array(list(calls)).T
    if len(rows) > 1:
        seconds, rows = seconds[1:], rows[1:]
    return float(seconds.sum() / rows.sum() if mean else np.median(seconds / rows)) * 1e6
