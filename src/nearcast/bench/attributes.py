"""``nearcast bench attributes``: the MO-Tree and its rivals side by side, as an index and as a store of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from nearcast import config, workloads
from nearcast.bench import experiments
from nearcast.bench.experiments import Case, Cell, Experiment, Side
from nearcast.bench.measure import Columns, Progress

__all__ = ["INDEXES", "STORES", "AttributeSetting", "run"]

INDEXES = ("mo-tree", "auto", "tama", "op-index", "r-star-tree", "scan")
STORES = ("mo-tree", "beq-tree", "r-star-tree", "scan")

# The structures whose inserts, updates and removals are measured here; the figures of the paper measure the others.
CHANGED = ("mo-tree", "auto")

INSERTED = "r-star-tree-inserted"


_Part = TypeVar("_Part", bound=Columns)


@dataclass(frozen=True)
class AttributeSetting:
    """The workload of the MO-Tree paper's Table 4, with subscriptions in an index and messages in a store (0: none)."""

    subscriptions: int
    messages: int
    queries: int
    predicates: int = config.MO_PREDICATES
    exponent: float = config.MO_EXPONENT

    @property
    def name(self) -> str:
        """What the data is called."""
        return "mo-tree"

    def make(self, seed: int) -> Case:
        """Return the queries, earlier samples of them, what is stored, and newcomers, all drawn alike."""
        asking = (self.queries, config.MO_HISTORY)
        sizes = [
            (*asking, stored, _changes(stored)) if stored else asking
            for stored in (self.subscriptions, self.messages)
        ]
        made = workloads.mo_tree(
            *(sum(parts) for parts in sizes), seed=seed, predicates=self.predicates, exponent=self.exponent
        )
        subs, messages = _cut(made.subscriptions, sizes[0]), _cut(made.messages, sizes[1])
        return Case(
            made.facts,
            index=Side(subs[2], messages[1], messages[0], subs[3]) if self.subscriptions else None,
            store=Side(messages[2], subs[1], subs[0], messages[3]) if self.messages else None,
        )


def run(
    subscriptions: int,
    messages: int,
    queries: int = config.MO_QUERIES,
    *,
    inserted: bool = False,
    seed: int = 0,
    repeat: int = config.BENCH_REPEAT,
    seconds: float = config.MO_SECONDS,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure every index, queried by messages, and every store, queried by subscriptions; return the report's body.

    A slow structure answers as many of the first queries as it can in *seconds*. ``speedup_over`` compares indexes with
    indexes and stores with stores. With *inserted* the R*-Trees are also built by inserts, as in the paper.
    """
    setting = AttributeSetting(subscriptions, messages, queries)
    cells = [Cell(1, name, setting, name, changes=name in CHANGED) for name in INDEXES]
    cells += [Cell(1, f"{name}-store", setting, None, store=name, changes=name in CHANGED) for name in STORES]
    if inserted:
        packed = {"packed": False}
        cells.append(Cell(1, INSERTED, setting, "r-star-tree", packed))
        cells.append(Cell(1, f"{INSERTED}-store", setting, None, packed, store="r-star-tree"))
    body = experiments.run(
        Experiment("", "", "side", cells), seed=seed, repeat=repeat, seconds=seconds, progress=progress
    )
    results = [_result(point) for point in body["points"]]
    for result in results:
        result["speedup_over"] = {
            other["name"]: other["microseconds"] / result["microseconds"]
            for other in results
            if other["side"] == result["side"]
        }
    return {
        "workload": {"name": setting.name, "seed": seed, "facts": body["points"][0]["facts"]},
        "sizes": {"subscriptions": subscriptions, "messages": messages},
        "threads": 1,
        "repeat": repeat,
        "results": results,
        "mismatches": body["mismatches"],
    }


def _result(point: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one structure under the same names for both sides."""
    side, asking, queries = (
        ("index", "message", "messages")
        if point["index"]
        else ("store", "subscription", "asking_subscriptions")
    )
    return {
        "index": point["line"],  # the name by which floors find it
        "side": side,
        "name": point["line"].removesuffix("-store"),
        "queries": point[queries],
        "matches_per_query": point[f"matches_per_{asking}"],
        "microseconds": point[f"microseconds_per_{asking}"],
        **{
            name: point.get(name)
            for name in (
                "build_seconds",
                "insert_microseconds",
                "remove_microseconds",
                "update_microseconds",
                "megabytes",
                "megabytes_of_structure",
                "resident_megabytes",
            )
        },
    }


def _changes(stored: int) -> int:
    """Return the number of newcomers for a given number of stored rows."""
    return min(config.EXPERIMENT_CHANGES, max(2, round(stored * config.EXPERIMENT_CHANGE_SHARE)))


def _cut(columns: _Part, sizes: Sequence[int]) -> list[_Part]:
    """Return the rows cut into consecutive parts of the given sizes."""
    return [
        columns.take(np.arange(end - size, end)) for size, end in zip(sizes, accumulate(sizes), strict=True)
    ]
