"""Figures 10 to 18 of the AP-Tree paper as experiments.

The paper is Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015),
section 5.1. The datasets are those of :mod:`nearcast.bench.datasets`. Where the number of subscriptions grows, it grows
in multiples of the scene's number, as the paper's 1 to 20 million are multiples of its default of 5 million.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nearcast import config
from nearcast.bench.experiments import Cell, Experiment
from nearcast.workloads import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearcast.bench.datasets import DatasetSetting, Scene

__all__ = ["FIGURES"]

OPTIMAL_SHARE = 0.1  # of the subscriptions, in comparisons with the optimal partition
MAINTENANCE_SHARE = 0.25  # of the subscriptions, in figures where most of them are inserted
SMALL_AREA = (0.000_005, 0.000_015)  # Fig. 11: 0.001% of the space on average
GROWTH = (0.2, 0.5, 1.0, 2.0, 4.0)  # Figs. 15 and 18: 1 to 20 million, by default 5

TIMES = ("microseconds_per_message", "build_seconds")
MAINTENANCE_NOTE = (
    f"{MAINTENANCE_SHARE:.0%} of the subscriptions, because reconstruction is slow; inserts "
    f"{config.BENCH_BATCH:,} at a time; later subscriptions lie further east"
)
RIVALS = ("ap-tree", "rq-tree", "iq-tree", "auto")


def fanout(scene: Scene) -> Experiment:
    """Figure 10a: matching time by the fan-out f of a node."""
    return Experiment(
        "10a",
        "AP-Tree: effect of the fan-out f",
        "fan-out f",
        [
            Cell(f, dataset.name, scene.setting(dataset), "ap-tree", {"fanout": f})
            for dataset in scene.datasets
            for f in (50, 100, 200, 400, 800)
        ],
        logarithmic=True,
    )


def leaf(scene: Scene) -> Experiment:
    """Figure 10b: matching time by the partition threshold θ_p, the most subscriptions of a leaf."""
    return Experiment(
        "10b",
        "AP-Tree: effect of the partition threshold θp",
        "threshold θp",
        [
            Cell(size, dataset.name, scene.setting(dataset), "ap-tree", {"leaf": size})
            for dataset in scene.datasets
            for size in (5, 10, 20, 40, 100, 200, 400)
        ],
        logarithmic=True,
    )


def variants(scene: Scene) -> Experiment:
    """Figure 11: optimal and heuristic keyword partition, and trees that prefer keywords or space."""
    lines = {
        "DP": {"partition": "optimal"},
        "HR": {"partition": "heuristic"},
        "KPriority": {"priority": "keywords"},
        "SPriority": {"priority": "space"},
    }
    recipe = Recipe(area=SMALL_AREA)
    return Experiment(
        "11",
        "Variants of the AP-Tree",
        "dataset",
        [
            Cell(
                dataset.name,
                line,
                scene.setting(dataset, recipe, times=OPTIMAL_SHARE),
                "ap-tree",
                parameters,
            )
            for dataset in scene.datasets
            for line, parameters in lines.items()
        ],
        measures=TIMES,
        baseline="HR",
        note=f"{OPTIMAL_SHARE:.0%} of the subscriptions, because the dynamic programme (DP) is slow; "
        "areas around 0.001% of the space",
    )


def datasets(scene: Scene) -> Experiment:
    """Figure 12: matching time, building time and size on all datasets."""
    lines = ("ap-tree", "rq-tree", "iq-tree", "rt-tree", "ranked-list", "auto")
    return Experiment(
        "12",
        "Indexes on different datasets",
        "dataset",
        [
            Cell(dataset.name, index, scene.setting(dataset), index)
            for dataset in scene.datasets
            for index in lines
        ],
        measures=(*TIMES, "bytes_per_subscription"),
        baseline="ap-tree",
    )


def keywords(scene: Scene) -> Experiment:
    """Figure 13: matching time by the number of keywords of a subscription."""
    return Experiment(
        "13",
        "Effect of the number of subscription keywords",
        "keywords of a subscription",
        [
            Cell(n, index, scene.setting(dataset, Recipe(keywords=(n, n))), index, panel=dataset.name)
            for dataset in (scene.tweets, scene.places)
            for n in (1, 2, 3, 4, 5)
            for index in RIVALS
        ],
        baseline="ap-tree",
    )


def areas(scene: Scene) -> Experiment:
    """Figure 14: matching time by the size of a subscription's region."""
    return Experiment(
        "14",
        "Effect of the size of a region",
        "% of the space",
        [
            Cell(
                percent,
                index,
                scene.setting(dataset, Recipe(area=(percent / 100, percent / 100))),
                index,
                panel=dataset.name,
            )
            for dataset in (scene.tweets, scene.places)
            for percent in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
            for index in RIVALS
        ],
        baseline="ap-tree",
        logarithmic=True,
    )


def subscriptions(scene: Scene) -> Experiment:
    """Figure 15: matching time by the number of subscriptions."""
    settings = [
        scene.setting(dataset, times=times) for dataset in (scene.tweets, scene.places) for times in GROWTH
    ]
    return Experiment(
        "15",
        "Effect of the number of subscriptions",
        "subscriptions",
        [
            Cell(setting.subscriptions, index, setting, index, panel=setting.dataset.name)
            for setting in settings
            for index in RIVALS
        ],
        baseline="ap-tree",
        logarithmic=True,
    )


def divergence(scene: Scene) -> Experiment:
    """Figure 16: matching and maintenance by the KL divergence θ_KL at which a node is rebuilt."""
    return Experiment(
        "16",
        "AP-Tree: effect of the KL-divergence threshold θKL",
        "threshold θKL",
        [
            Cell(
                threshold,
                "ap-tree",
                _arriving(scene),
                "ap-tree",
                {"divergence": threshold},
                built=0.2,
            )
            for threshold in (0.0001, 0.001, 0.01, 0.1, 0.5)
        ],
        measures=("microseconds_per_message", "insert_microseconds"),
        logarithmic=True,
        note=f"built over the first 20%; {MAINTENANCE_NOTE}",
    )


def maintenance(scene: Scene) -> Experiment:
    """Figure 17: matching and insertion by the share δ that the index was first built over."""
    lines: dict[str, tuple[str, dict[str, float]]] = {
        "ap-tree": ("ap-tree", {}),
        "ap-tree-NR": ("ap-tree", {"divergence": math.inf}),
        **{index: (index, {}) for index in RIVALS[1:]},
    }
    return Experiment(
        "17",
        "Maintenance, with and without reconstruction (NR)",
        "δ, % built at first",
        [
            Cell(
                percent,
                line,
                _arriving(scene),
                index,
                parameters,
                built=percent / 100,
            )
            for percent in (10, 30, 50, 70, 90)
            for line, (index, parameters) in lines.items()
        ],
        measures=("microseconds_per_message", "insert_microseconds"),
        baseline="ap-tree",
        note=MAINTENANCE_NOTE,
    )


def boolean_keywords(scene: Scene) -> Experiment:
    """Figure 18a: subscriptions with AND and OR, by their number of keywords."""
    return Experiment(
        "18a",
        "Boolean subscriptions: effect of the number of keywords",
        "keywords of a subscription",
        [
            Cell(n, index, scene.setting(scene.tweets, _expressions(n)), index)
            for n in (3, 4, 5, 6, 7)
            for index in RIVALS
        ],
        baseline="ap-tree",
    )


def boolean_subscriptions(scene: Scene) -> Experiment:
    """Figure 18b: subscriptions with AND and OR over five keywords, by their number."""
    settings = [scene.setting(scene.tweets, _expressions(5), times=times) for times in GROWTH]
    return Experiment(
        "18b",
        "Boolean subscriptions: effect of their number",
        "subscriptions",
        [Cell(setting.subscriptions, index, setting, index) for setting in settings for index in RIVALS],
        baseline="ap-tree",
        logarithmic=True,
    )


def _arriving(scene: Scene) -> DatasetSetting:
    return scene.setting(scene.tweets, Recipe(drifting=True), times=MAINTENANCE_SHARE)


def _expressions(keywords: int) -> Recipe:
    return Recipe(keywords=(keywords, keywords), boolean=True)


FIGURES: dict[str, Callable[[Scene], Experiment]] = {
    "10a": fanout,
    "10b": leaf,
    "11": variants,
    "12": datasets,
    "13": keywords,
    "14": areas,
    "15": subscriptions,
    "16": divergence,
    "17": maintenance,
    "18a": boolean_keywords,
    "18b": boolean_subscriptions,
}
