"""Timing changes of an index or a store: batches of inserts, updates and removals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.bench.measure import Structure, timed
from nearcast.columns import MessageBatch, SubscriptionTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Call", "apply", "make", "nudged"]


class Call(NamedTuple):
    """One change of a structure, and the number of rows that it affects."""

    rows: int
    change: Callable[[Any], object]


def make(
    stored: SubscriptionTable | MessageBatch, newcomers: SubscriptionTable | MessageBatch
) -> dict[str, list[Call]]:
    """Return the changes by kind: newcomers are inserted, as many stored rows are updated, and as many others removed.

    The stored rows are drawn at random. Messages are not updated.
    """
    rng = np.random.default_rng(0)
    count = min(len(newcomers), len(stored) // 2)
    updated, removed = rng.permutation(len(stored))[: 2 * count].reshape(2, count)
    made = {"insert": [_insert(newcomers.take(part)) for part in _parts(len(newcomers))]}
    if isinstance(stored, SubscriptionTable):
        moved = nudged(stored.take(updated), rng)
        made["update"] = [_update(updated[part], moved.take(part)) for part in _parts(count)]
    made["remove"] = [_remove(removed[part]) for part in _parts(count)]
    return made


def apply(
    structure: Structure, made: Mapping[str, Sequence[Call]], seconds: float
) -> tuple[dict[str, float | None], dict[str, int]]:
    """Apply as many changes of each kind as there is time for; return the µs per row, and their number.

    The first change of a kind does not count, since a structure then copies the arrays that it has borrowed. At least
    one more is made.
    """
    times: dict[str, float | None] = {}
    done: dict[str, int] = {}
    for kind, calls in made.items():
        spent, rows, done[kind] = 0.0, 0, 0
        for number, (size, change) in enumerate(calls):
            took, _ = timed(lambda change=change: change(structure))  # type: ignore[misc]
            done[kind] += 1
            if number:
                spent, rows = spent + took, rows + size
            if spent > seconds:
                break
        times[f"{kind}_microseconds"] = spent / rows * 1e6 if rows else None
    return times, done


def nudged(table: SubscriptionTable, rng: np.random.Generator) -> SubscriptionTable:
    """Return the same subscriptions with boxes moved by a small share of their size: most stay in their bucket."""
    boxes = table.clauses.boxes
    sides = boxes[:, 2:] - boxes[:, :2]
    shift = sides * rng.uniform(-config.EXPERIMENT_NUDGE, config.EXPERIMENT_NUDGE, sides.shape)
    return replace(table, clauses=table.clauses._replace(boxes=boxes + np.hstack([shift, shift])))


def _parts(count: int) -> list[NDArray[np.int64]]:
    """Return the numbers below *count*: the first one alone, the others in batches."""
    return np.split(np.arange(count), np.arange(1, count, config.BENCH_BATCH))


def _insert(batch: SubscriptionTable | MessageBatch) -> Call:
    return Call(len(batch), lambda structure: structure.insert(batch))


def _update(rows: NDArray[np.int64], table: SubscriptionTable) -> Call:
    return Call(len(rows), lambda structure: structure.update(rows, table))


def _remove(rows: NDArray[np.int64]) -> Call:
    return Call(len(rows), lambda structure: structure.remove(rows))
