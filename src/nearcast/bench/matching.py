"""``nearcast bench matching``: build, match, insert and remove, in comparison with the scan and the floor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.bench.measure import Progress, affordable, best_of, each, resident_bytes, timed
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.kernels import kernel
from nearcast.kernels.verify import Clauses, Probes, keep_satisfied
from nearcast.matching import Index, build_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.workloads import Workload

__all__ = ["run", "touch"]

_SHOWN_MISMATCHES = 5

Build = Callable[[str, SubscriptionTable], Index]


def run(
    workload: Workload,
    indexes: Sequence[str],
    *,
    threads: int = 1,
    repeat: int = config.BENCH_REPEAT,
    scan_seconds: float = config.BENCH_SCAN_SECONDS,
    singles: int = config.BENCH_SINGLES,
    progress: Progress | None = None,
    build: Build = build_index,
) -> dict[str, Any]:
    """Measure the *indexes* by name, and always ``scan`` and the floor; return the body of the report.

    The scan matches as many messages as it can in *scan_seconds*, and every index must agree with it on these. Indexes
    must also agree with each other on all messages, and the floor verifies each match. ``mismatches`` says where they
    do not.
    """
    names = ["scan", *(name for name in dict.fromkeys(indexes) if name != "scan")]
    tell = progress or (lambda _text, _share: None)
    _warm_up(workload, names, threads, build)

    results: list[dict[str, Any]] = []
    mismatches: list[str] = []
    truth: Matches | None = None  # the scan's answers on the first messages
    answers: Matches | None = None  # the answers of the first index that matched the most messages
    answerer = "scan"
    for number, name in enumerate(names):

        def step(what: str, share: float, name: str = name, number: int = number) -> None:
            tell(f"{name}: {what}", (number + share) / (len(names) + 1))

        step("build", 0.0)
        before = resident_bytes()
        build_seconds, index = timed(lambda name=name: build(name, workload.subscriptions))  # type: ignore[misc]
        after = resident_bytes()
        batch = workload.messages
        if name == "scan":
            batch = affordable(index, batch, threads, scan_seconds)
        step(f"match {len(batch):,} messages", 0.3)
        runs = 1 if name == "scan" else repeat
        seconds, found = best_of(runs, lambda index=index, batch=batch: index.match(batch, threads=threads))  # type: ignore[misc]
        alone = None
        if threads > 1 and name != "scan":  # in turns, so that other load on the machine favours neither
            alone = np.inf
            for _ in range(runs):
                alone = min(alone, timed(lambda index=index, batch=batch: index.match(batch))[0])  # type: ignore[misc]
                seconds = min(
                    seconds,
                    timed(lambda index=index, batch=batch: index.match(batch, threads=threads))[0],  # type: ignore[misc]
                )
        found = found.sorted()
        if truth is None or answers is None:
            truth = answers = found
        else:
            mismatches += [f"{name} against scan: {text}" for text in _differences(found, truth)]
            if len(answers) < len(found):
                answers, answerer = found, name
            elif answerer != "scan":
                mismatches += [f"{name} against {answerer}: {text}" for text in _differences(found, answers)]
        step("match one by one", 0.7)
        latency = _latency(index, batch, singles)
        stats = index.stats()
        step("insert and remove", 0.9)
        insert, remove = _changes(index, workload.newcomers)
        results.append(
            {
                "index": name,
                "build_seconds": build_seconds,
                "bytes_per_subscription": stats["bytes"] / len(workload.subscriptions),
                "resident_bytes_per_subscription": (
                    (after - before) / len(workload.subscriptions) if before and after else None
                ),
                "messages_matched": len(batch),
                "microseconds_per_message": seconds / len(batch) * 1e6,
                "messages_per_second": len(batch) / seconds,
                "speedup_over_one_thread": alone / seconds if alone else None,
                "single_message_microseconds": latency,
                "insert_microseconds": insert,
                "remove_microseconds": remove,
                "stats": _plain(stats),
            }
        )
        del index

    assert truth is not None
    assert answers is not None
    tell("floor", len(names) / (len(names) + 1))
    floor, refused = _floor(workload, answers, threads, repeat)
    if refused:
        mismatches.append(f"{refused:,} of {len(answers.rows):,} matches do not satisfy their subscription")
    _add_ratios(results, floor)
    tell("done", 1.0)
    pairs = len(workload.subscriptions) * len(answers)
    return {
        "workload": {
            "name": workload.name,
            "seed": workload.seed,
            "description": workload.description,
            "facts": workload.facts,
        },
        "sizes": {"subscriptions": len(workload.subscriptions), "messages": len(workload.messages)},
        "threads": threads,
        "repeat": repeat,
        "selectivity": len(answers.rows) / pairs,
        "matches_per_message": len(answers.rows) / len(answers),
        "checked_messages": len(truth),
        "results": results,
        "floor": floor,
        "mismatches": mismatches,
    }


@kernel
def touch(
    clauses: Clauses,
    probes: Probes,
    offsets: NDArray[np.int64],
    rows: NDArray[Any],
    start: int,
    stop: int,
    out: NDArray[np.int32],
) -> int:
    """Verify the known matches of the messages from *start* to *stop* and write them; return how many hold.

    This is the floor of matching: every index must at least check and write its answers. It works for a table and a
    batch in which each owner has one row, as in all workloads.
    """
    written = offsets[start]
    for p in range(start, stop):
        first = written
        for i in range(offsets[p], offsets[p + 1]):
            out[written] = rows[i]
            written += 1
        written = keep_satisfied(clauses, probes, p, out, first, written)
    return int(written - offsets[start])


def _floor(workload: Workload, found: Matches, threads: int, repeat: int) -> tuple[dict[str, Any], int]:
    """Return the figures of the floor, and the number of matches that it refused."""
    clauses, probes = workload.subscriptions.clauses, workload.messages.probes
    out = np.empty_like(found.rows)
    edges = np.linspace(0, len(found), threads + 1).astype(np.int64)
    with ThreadPoolExecutor(threads) as pool:

        def call() -> int:
            parts = [
                pool.submit(touch, clauses, probes, found.offsets, found.rows, start, stop, out)
                for start, stop in itertools.pairwise(edges)
            ]
            return sum(part.result() for part in parts)

        call()  # the first call compiles
        seconds, held = best_of(repeat, call)
    return {"microseconds_per_message": seconds / len(found) * 1e6}, len(found.rows) - held


def _warm_up(workload: Workload, names: Sequence[str], threads: int, build: Build) -> None:
    """Compile everything that will be timed, on a few rows."""
    few = workload.subscriptions.take(np.arange(min(config.BENCH_WARM_UP, len(workload.subscriptions))))
    more = workload.newcomers.take(np.arange(min(10, len(workload.newcomers))))
    batch = workload.messages.take(np.arange(min(10, len(workload.messages))))
    for name in names:
        index = build(name, few)
        index.match(batch, threads=threads)
        index.remove(index.insert(more))


def _latency(index: Index, batch: MessageBatch, count: int) -> dict[str, float]:
    """Return percentiles of the time of the public call for one message, in microseconds."""
    ones = [batch.take([row]) for row in range(min(count, len(batch)))]
    times = each([lambda one=one: index.match(one) for one in ones]) * 1e6  # type: ignore[misc]
    p50, p99 = np.percentile(times, [50, 99])
    return {"p50": float(p50), "p99": float(p99), "messages": len(ones)}


def _changes(index: Index, newcomers: SubscriptionTable) -> tuple[float | None, float | None]:
    """Return the microseconds per subscription of inserting the newcomers and of removing them, in batches."""
    if not len(newcomers):
        return None, None
    starts = range(0, len(newcomers), config.BENCH_BATCH)
    batches = [
        newcomers.take(np.arange(start, min(start + config.BENCH_BATCH, len(newcomers)))) for start in starts
    ]
    inserting, rows = timed(lambda: [index.insert(batch) for batch in batches])

    def remove() -> None:
        for batch in rows:
            index.remove(batch)

    removing, _ = timed(remove)
    return inserting / len(newcomers) * 1e6, removing / len(newcomers) * 1e6


def _differences(found: Matches, expected: Matches) -> list[str]:
    """Describe on which messages two sorted sets of matches differ, among those that both have matched."""
    texts = []
    for message in range(min(len(found), len(expected))):
        if not np.array_equal(found[message], expected[message]):
            extra = np.setdiff1d(found[message], expected[message])
            missing = np.setdiff1d(expected[message], found[message])
            texts.append(f"message {message} has {extra.size} rows too many and lacks {missing.size}")
            if len(texts) == _SHOWN_MISMATCHES:
                return [*texts, "and so on"]
    return texts


def _add_ratios(results: list[dict[str, Any]], floor: dict[str, Any]) -> None:
    """Add to each result, and to the floor, its ratios to the others of the run."""
    for result in [*results, floor]:
        own = result["microseconds_per_message"]
        result["speedup_over"] = {
            other["index"]: other["microseconds_per_message"] / own for other in results
        }
    for result in results:
        result["over_floor"] = result["microseconds_per_message"] / floor["microseconds_per_message"]


def _plain(stats: dict[str, Any]) -> dict[str, Any]:
    """Return *stats* as values that JSON has."""
    return {key: value.item() if isinstance(value, np.generic) else value for key, value in stats.items()}
