"""``nearcast bench turnover``: the cost of inserts and removals, and whether matching is as fast after many of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.bench.measure import Progress, best_of, timed
from nearcast.matching import build_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import SubscriptionTable
    from nearcast.matching import Index
    from nearcast.workloads import Workload

__all__ = ["run"]


def run(
    workload: Workload,
    indexes: Sequence[str],
    *,
    repeat: int = config.BENCH_REPEAT,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Insert the newcomers of *workload* in batches, and remove as many at random; return the body of the report.

    Inserts and removals alternate, so that the number of subscriptions stays the same. At the end the index is compared
    with a newly built one over the same subscriptions, in answers and in speed.
    """
    tell = progress or (lambda _text, _share: None)
    results, mismatches = [], []
    for number, name in enumerate(indexes):

        def step(what: str, share: float, name: str = name, number: int = number) -> None:
            tell(f"{name}: {what}", (number + share) / len(indexes))

        result, same = _turned(name, workload, repeat, step)
        results.append(result)
        if not same:
            mismatches.append(f"{name} differs from a fresh build after the changes")
    return {
        "workload": {"name": workload.name, "seed": workload.seed, "description": workload.description},
        "sizes": {
            "subscriptions": len(workload.subscriptions),
            "messages": len(workload.messages),
            "operations": 2 * len(workload.newcomers),
        },
        "repeat": repeat,
        "results": results,
        "mismatches": mismatches,
    }


def _turned(name: str, workload: Workload, repeat: int, step: Progress) -> tuple[dict[str, Any], bool]:
    """Return the figures of one index, and whether its answers are right at the end."""
    _warm_up(name, workload)
    step("build", 0.0)
    index = build_index(name, workload.subscriptions)
    before, _ = best_of(repeat, lambda: index.match(workload.messages))
    rng = np.random.default_rng(workload.seed)
    present = np.arange(len(workload.subscriptions), dtype=np.int64)
    inserting, removing, longest = 0.0, 0.0, 0.0
    starts = range(0, len(workload.newcomers), config.BENCH_BATCH)
    for done, start in enumerate(starts):
        step(f"batch {done + 1:,} of {len(starts):,}", 0.1 + 0.7 * done / len(starts))
        batch = _batch(workload.newcomers, start)
        seconds, rows = timed(lambda batch=batch: index.insert(batch))  # type: ignore[misc]
        inserting, longest = inserting + seconds, max(longest, seconds)
        leaving = rng.choice(len(present), len(rows), replace=False)
        gone = present[leaving]
        seconds, _ = timed(lambda gone=gone: index.remove(gone))  # type: ignore[misc]
        removing, longest = removing + seconds, max(longest, seconds)
        present[leaving] = rows
    step("match", 0.8)
    after, found = best_of(repeat, lambda: index.match(workload.messages))
    stats = index.stats()
    step("build anew", 0.9)
    fresh = build_index(name, index.table.take(present))
    fresh_seconds, expected = best_of(repeat, lambda: fresh.match(workload.messages))
    # Measure both in turns, so that other load on the machine favours neither.
    for _ in range(repeat):
        after = min(after, timed(lambda: index.match(workload.messages))[0])
        fresh_seconds = min(fresh_seconds, timed(lambda: fresh.match(workload.messages))[0])
    count, messages = len(workload.newcomers), len(workload.messages)
    figures = {
        "index": name,
        "insert_microseconds": inserting / count * 1e6,
        "remove_microseconds": removing / count * 1e6,
        "longest_call_milliseconds": longest * 1e3,
        "microseconds_before": before / messages * 1e6,
        "microseconds_after": after / messages * 1e6,
        "microseconds_fresh": fresh_seconds / messages * 1e6,
        "after_over_fresh": after / fresh_seconds,
        "bytes_per_subscription": stats["bytes_per_subscription"],
    }
    same = np.array_equal(found.offsets, expected.offsets)
    same = same and np.array_equal(found.sorted().rows, _renumbered(present, expected.rows, expected.offsets))
    return figures, bool(same)


def _renumbered(
    present: NDArray[np.int64], rows: NDArray[np.int32], offsets: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return the rows of a fresh build renumbered as those of the index, sorted in each group."""
    from nearcast.columns import Matches

    return Matches(offsets, present[rows].astype(np.int32)).sorted().rows


def _batch(table: SubscriptionTable, start: int) -> SubscriptionTable:
    return table.take(np.arange(start, min(start + config.BENCH_BATCH, len(table))))


def _warm_up(name: str, workload: Workload) -> None:
    """Compile what will be timed, with all kinds of changes on a few rows."""
    few = np.arange(min(config.BENCH_WARM_UP, len(workload.subscriptions)))
    index: Index = build_index(name, workload.subscriptions.take(few))
    index.insert(_batch(workload.newcomers, 0))
    # These are too few to be folded in.
    index.insert(workload.newcomers.take(np.arange(min(10, len(workload.newcomers)))))
    index.match(workload.messages.take(np.arange(min(10, len(workload.messages)))))
    index.remove(few)
