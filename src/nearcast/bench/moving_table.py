"""The table of ``nearcast bench moving``: moving indexes, what does not move, and the engine, in one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast import config
from nearcast.bench.engine import box_columns, message_table, word_lists
from nearcast.bench.experiments import Experiment
from nearcast.bench.measure import Progress, timed
from nearcast.bench.moving import MovingCell, batches, chunks, per_row, run
from nearcast.clock import ManualClock
from nearcast.columns.clauses import keyword_offsets
from nearcast.engine import Engine
from nearcast.matching import build_index, build_store
from nearcast.matching.moving import MovingIndex

if TYPE_CHECKING:
    from nearcast.bench.moving_workloads import MovingSetting
    from nearcast.columns import MessageBatch
    from nearcast.workloads.moving import MovingWorkload

__all__ = ["compare"]

#: Remove, insert and match again: what a move costs without a moving index, in the default's own structures, and with
#: messages that are found by place alone.
SCRATCH = ("scratch", "mo-tree-scratch")
#: The competitors of the paper, and its own variants; ``auto`` is compared with the best of them.
RIVALS = ("ss-index", "kk-index", "iq-plus-tree", "rq-plus-tree", "ap-plus-k-tree", "ap-plus-s-tree")
#: What publishing is compared with: matching by a stationary index, and the store that keeps messages beside it.
STATIONARY = {"auto": ("match: auto", "insert: store"), "ap-plus-tree": ("match: ap-tree",)}

_Calls = list[tuple[float, int]]


def compare(
    setting: MovingSetting,
    indexes: Sequence[str],
    *,
    seed: int = 0,
    moves: int = config.MOVING_CALL,
    repeat: int = 1,
    seconds: float = config.MOVING_SECONDS,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure the moving *indexes*, and always those from scratch; return the body of the report."""
    tell = progress or (lambda _text, _share: None)
    names = list(dict.fromkeys([*indexes, *SCRATCH]))
    cells = [MovingCell("", name, setting, name, moves=moves, parts=True) for name in names]
    measured = run(
        Experiment("", "", "", cells, measures=("msp_microseconds", "imm_microseconds")),
        seed=seed,
        repeat=repeat,
        seconds=seconds,
        progress=lambda text, share: tell(text, 0.8 * share),
    )
    tell("what does not move", 0.8)
    work = setting.make(seed).moving
    assert work is not None
    stationary = _stationary(work)
    results = [
        _compared({"side": "moving", "name": point["line"], **point}, measured["points"], stationary)
        for point in measured["points"]
    ]
    results += [
        {"side": "stationary", "name": name, "index": name, **figures} for name, figures in stationary.items()
    ]
    tell("the engine", 0.9)
    results += _engine(work, moves)
    tell("done", 1.0)
    return {
        "workload": {"name": work.name, "seed": seed, "facts": work.facts},
        "sizes": {"subscriptions": setting.subscriptions, "messages": setting.valid, "steps": setting.steps},
        "moves": moves,
        "threads": 1,
        "repeat": repeat,
        "results": results,
        "mismatches": measured["mismatches"],
    }


def _compared(
    result: dict[str, Any], points: Sequence[dict[str, Any]], stationary: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """Add the ratios to the others of the same run: of the medians of moves, and of memory."""
    over, memory = (
        {point["line"]: point[figure] / result[figure] for point in points}
        for figure in ("msp_median_microseconds", "megabytes")
    )
    rivals = [name for name in RIVALS if name in over and name != result["name"]]
    beside = STATIONARY.get(result["name"])
    still = sum(stationary[name]["median_microseconds"] for name in beside) if beside else None
    return {
        **result,
        "msp_speedup_over": over,
        "msp_speedup_over_rivals": min((over[name] for name in rivals), default=None),
        "memory_of": memory,  # of others, as a multiple of the own
        "memory_of_rivals": min((memory[name] for name in rivals), default=None),
        "imm_over_stationary": result["imm_median_microseconds"] / still if still else None,
    }


# --- What does not move ---------------------------------------------------------------------------------------------


def _stationary(work: MovingWorkload) -> dict[str, dict[str, float]]:
    """Measure matching by stationary indexes, and the store alone, on the messages that arrive.

    The default index and the store take turns, as they do in a pair; the AP-Tree has the caches for itself.
    """
    index, store = build_index("auto", work.subscriptions), build_store(work.messages)
    found = _replayed(
        work,
        {
            "match: auto": lambda batch, _: index.match(batch),
            "insert: store": lambda batch, _: store.insert(batch),
            "expire: store": lambda batch, now: store.sweep(now, config.SWEEP_ROWS * len(batch)),
        },
    )
    tree = build_index("ap-tree", work.subscriptions)
    return found | _replayed(work, {"match: ap-tree": lambda batch, _: tree.match(batch)})


def _replayed(
    work: MovingWorkload, calls: Mapping[str, Callable[[MessageBatch, int], object]]
) -> dict[str, dict[str, float]]:
    """Make the calls in turns for the messages that arrive in a few steps; return the times for a message."""
    times: dict[str, _Calls] = {name: [] for name in calls}
    for step in work.steps(config.MOVING_PART_STEPS):
        for batch in batches(step.messages, config.BENCH_BATCH):
            for name, call in calls.items():
                times[name].append((timed(partial(call, batch, step.now))[0], len(batch)))
    return {
        name: {"median_microseconds": per_row(made), "mean_microseconds": per_row(made, mean=True)}
        for name, made in times.items()
    }


# --- The engine -----------------------------------------------------------------------------------------------------


def _engine(work: MovingWorkload, moves: int) -> list[dict[str, Any]]:
    """Measure ``Engine.move`` with tables, and the bare structure on the same moves, call by call.

    No messages arrive meanwhile. Regions are clipped to the space, which an engine insists on.
    """
    space, clock = work.subscriptions.space, ManualClock(0)
    clauses = work.subscriptions.clauses
    engine = Engine(space=space, clock=clock)
    ids = pa.array([f"sub-{row}" for row in range(len(work.subscriptions))])
    words = word_lists(keyword_offsets(clauses), clauses.keywords)
    engine.subscribe(pa.table({"id": ids, "keywords": words, **box_columns(clauses.boxes, space)}))
    messages = message_table(work.messages).append_column("expires_at", pa.array(work.messages.expires_at))
    for part in chunks(len(messages), config.MOVING_ENGINE_BATCH):
        engine.publish(messages.slice(part.start, part.stop - part.start))
    bare = MovingIndex("auto", work.subscriptions, work.messages)
    times: dict[str, _Calls] = {"auto, bare": [], "Engine.move": []}
    for step in work.steps(config.MOVING_PART_STEPS):
        clock.advance(seconds=work.step_seconds)
        for part in chunks(len(step.rows), moves):
            rows = step.rows[part]
            columns = box_columns(step.boxes[part], space)
            boxes = np.column_stack(list(columns.values()))
            table = pa.table({"id": ids.take(pa.array(rows)), **columns})
            seconds, _ = timed(partial(bare.move, rows, boxes, step.now))
            times["auto, bare"].append((seconds, len(rows)))
            seconds, _ = timed(partial(_moved, engine, table))
            times["Engine.move"].append((seconds, len(rows)))
    medians = {name: per_row(calls) for name, calls in times.items()}
    return [
        {
            "side": "engine",
            "name": name,
            "index": name,
            "median_microseconds": median,
            "mean_microseconds": per_row(times[name], mean=True),
            "over_structure": median / medians["auto, bare"],
        }
        for name, median in medians.items()
    ]


def _moved(engine: Engine, table: pa.Table) -> pa.Table:
    """Move, and return the deliveries as a table."""
    return engine.move(table).to_arrow()
