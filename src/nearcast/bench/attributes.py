"""``nearcast bench attributes``: the MO-Tree and its rivals side by side, as an index and as a store of messages."""

from __future__ import annotations

from typing import Any

from nearcast import config
from nearcast.bench import experiments
from nearcast.bench.experiments import Cell, Experiment
from nearcast.bench.measure import Progress
from nearcast.bench.mo_tree_figures import INDEXES, STORES, AttributeSetting

__all__ = ["run"]

CHANGED = (
    "mo-tree",
    "auto",
)  # of which inserts, updates and removals are measured; the figures have the others

INSERTED = "r-star-tree-inserted"


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
    """Measure every index, which messages ask, and every store, which subscriptions ask; return the report's body.

    A slow one answers as many of the first queries as it can in *seconds*. ``speedup_over`` compares within a side.
    With *inserted* the R*-Trees are also built by inserts, as the paper does.
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
        "index": point["line"],  # floors find it by this
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
