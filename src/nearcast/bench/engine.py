"""``nearcast bench engine``: the engine, which users call, and the bare index in the same run.

It publishes tables and reads tables of deliveries, publishes one message object, and a table of one row. It subscribes
tables of keywords, tables of distinct expressions, and one subscription at a time. Ids are strings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nearcast import config
from nearcast.bench.measure import Progress, best_of, timed
from nearcast.columns import MessageBatch
from nearcast.columns.clauses import keyword_offsets
from nearcast.engine import Engine
from nearcast.geometry import Box, Planar, Point, Space
from nearcast.model import Message, Subscription

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.workloads import Workload

__all__ = ["box_columns", "message_table", "run", "word_lists"]

_BATCH = 1000


def run(
    workload: Workload, *, repeat: int = config.BENCH_REPEAT, progress: Progress | None = None
) -> dict[str, Any]:
    """Measure an engine over the subscriptions of *workload*; return the body of the report."""
    tell = progress or (lambda _text, _share: None)
    space = workload.subscriptions.space
    tell("writing tables", 0.05)
    subscriptions, expressions = _subscription_tables(workload)
    messages = message_table(workload.messages)
    results: list[dict[str, Any]] = []

    def add(name: str, **figures: float) -> None:
        results.append({"index": name, **figures})

    tell("subscribing expressions", 0.1)
    seconds, _ = timed(lambda: Engine(space=space).subscribe(expressions))
    add("subscribe a table of expressions", seconds=seconds)
    tell("subscribing keywords", 0.3)
    engine = Engine(space=space)
    seconds, _ = timed(lambda: engine.subscribe(subscriptions))
    add("subscribe a table of keywords", seconds=seconds)

    # The engine's own index: another one would lie elsewhere in memory, and take as much again.
    index = engine._index
    tell("matching tables", 0.5)
    seconds, batch = best_of(repeat, lambda: MessageBatch.from_arrow(messages, like=engine))
    add("MessageBatch.from_arrow", messages_per_second=batch.size / seconds)
    starts = range(0, batch.size, _BATCH)
    batches = [batch.take(np.arange(start, min(start + _BATCH, batch.size))) for start in starts]
    tables = [messages.slice(start, _BATCH) for start in starts]
    bare, found = best_of(repeat, lambda: [index.match(part) for part in batches])
    full, deliveries = best_of(repeat, lambda: [engine.publish(part).to_arrow() for part in tables])
    matches = sum(len(part.rows) for part in found)
    add("the index: batches of 1,000", microseconds=bare / batch.size * 1e6)
    add("publish tables of 1,000", microseconds=full / batch.size * 1e6, over_index=full / bare)

    tell("one at a time", 0.8)
    singles = [batch.take([row]) for row in range(min(batch.size, config.BENCH_ENGINE_SINGLES))]
    objects = _message_objects(workload, len(singles))
    rows = [messages.slice(row, 1) for row in range(len(singles))]
    for name, call, arguments in (
        ("the index: one message", index.match, singles),
        ("publish one Message", engine.publish, objects),
        ("publish a table of one row", engine.publish, rows),
    ):
        add(name, **_best([_latency(call, arguments) for _ in range(repeat)]))
    came, went = [], []
    for turn in range(repeat):  # newcomers have ids that never were there before
        newcomers = _subscription_objects(workload, len(singles), turn)
        came.append(_latency(engine.subscribe, newcomers))
        went.append(_latency(engine.unsubscribe, [sub.id for sub in newcomers]))
    add("subscribe one Subscription", **_best(came))
    add("unsubscribe one", **_best(went))
    wrong = (
        []
        if sum(len(part) for part in deliveries) == matches
        else ["the engine and the index differ in their deliveries"]
    )
    return {
        "workload": {"name": workload.name, "seed": workload.seed, "facts": workload.facts},
        "repeat": repeat,
        "sizes": {"subscriptions": workload.subscriptions.size, "messages": batch.size},
        "matches_per_message": matches / batch.size,
        "results": results,
        "mismatches": wrong,
    }


def _latency(call: Callable[[Any], Any], arguments: Iterable[Any]) -> dict[str, float]:
    """Return percentiles of single calls in microseconds; garbage is collected."""
    clock, seconds = time.perf_counter, []
    for argument in arguments:
        start = clock()
        call(argument)
        seconds.append(clock() - start)
    found = np.percentile(seconds, [50, 99, 100]) * 1e6
    return dict(zip(("p50_microseconds", "p99_microseconds", "longest_microseconds"), found.tolist()))


def _best(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the figures of the round with the shortest median."""
    return min(rounds, key=lambda figures: figures["p50_microseconds"])


def word_lists(offsets: NDArray[np.int64], codes: NDArray[np.int32]) -> pa.Array:
    """Return rows of words, made from their codes."""
    distinct, which = np.unique(codes, return_inverse=True)
    words = pa.array([f"w{code}" for code in distinct.tolist()], pa.string()).take(pa.array(which))
    return pa.LargeListArray.from_arrays(pa.array(offsets), words)


def box_columns(boxes: NDArray[np.float64], space: Space) -> dict[str, NDArray[np.float64]]:
    """Return the columns of boxes, clipped to the space."""
    return dict(zip(("xmin", "ymin", "xmax", "ymax"), _clipped(boxes, space).T))


def _clipped(boxes: NDArray[np.float64], space: Space) -> NDArray[np.float64]:
    if not isinstance(space, Planar):
        return boxes
    low, high = (space.xmin, space.ymin), (space.xmax, space.ymax)
    return np.hstack([np.clip(boxes[:, :2], low, high), np.clip(boxes[:, 2:], low, high)])


def _subscription_tables(workload: Workload) -> tuple[pa.Table, pa.Table]:
    """Return the subscriptions with keywords, and with an expression that is unique to each."""
    table = workload.subscriptions
    boxes = box_columns(table.clauses.boxes, table.space)
    ids = pa.array([f"sub-{row}" for row in range(table.size)])
    lists = word_lists(keyword_offsets(table.clauses), table.clauses.keywords)
    written = [
        f"{' AND '.join(row)} OR (extra{number} AND NOT {row[0]})"
        for number, row in enumerate(lists.to_pylist())
    ]
    return pa.table({"id": ids, "keywords": lists, **boxes}), pa.table(
        {"id": ids, "expression": written, **boxes}
    )


def message_table(batch: MessageBatch) -> pa.Table:
    """Return the messages as a table with string ids, words and points."""
    probes = batch.probes
    lists = word_lists(probes.keyword_offsets, probes.keywords)
    ids = pa.array([f"msg-{row}" for row in range(batch.size)])
    return pa.table({"id": ids, "keywords": lists, "lon": probes.boxes[:, 0], "lat": probes.boxes[:, 1]})


def _message_objects(workload: Workload, count: int) -> list[Message]:
    batch = workload.messages
    probes, made = batch.probes, []
    for row in range(count):
        codes = probes.keywords[probes.keyword_offsets[row] : probes.keyword_offsets[row + 1]]
        x, y = probes.boxes[row, :2].tolist()
        words = [f"w{code}" for code in codes.tolist()]
        made.append(Message(f"msg-{row}", words, Point(x=x, y=y, space=batch.space)))
    return made


def _subscription_objects(workload: Workload, count: int, turn: int) -> list[Subscription]:
    """Return further subscriptions, with the regions of the first ones and two words each; *turn* is in their ids."""
    clauses, space = workload.subscriptions.clauses, workload.subscriptions.space
    words = clauses.keywords[: 2 * count].tolist()
    made = []
    for row, (xmin, ymin, xmax, ymax) in enumerate(_clipped(clauses.boxes[:count], space).tolist()):
        expression = f"w{words[2 * row]} AND w{words[2 * row + 1]}"
        made.append(Subscription(f"new-{turn}-{row}", expression, Box(xmin, ymin, xmax, ymax, space)))
    return made
