"""Figures 8 to 12 and Tables I and II of the covering paper as experiments, and one experiment of our own.

The paper is Shen, Tirthapura and Aluru, "Indexing for Subscription Covering in Publish-Subscribe Systems" (2005),
section V. Where the number of commands grows, it grows in shares of the scene's number; the paper has 60,000 and
100,000.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from nearcast import config
from nearcast.bench.covering import NAIVE, RECTANGLES, CoveringCell
from nearcast.bench.covering_workloads import CoveringScene, RectangleSetting
from nearcast.bench.experiments import Experiment

__all__ = ["FIGURES"]

LOADS = (0.05, 0.4)  # p, Figs. 8 and 9, Tables I and II
MODES = (1, 2, 3, 4, 5, 6)  # k
MODE_ATTRIBUTES = 5
GROWTH = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)

INDEXED = RECTANGLES[:2]
MODE = "reporting mode k"
# Columns of the tables: nodes visited and point comparisons, in all, by subscriptions, by unsubscriptions.
SHORT = {
    "nv": "nodes",
    "nv_s": "nodes_subscribe",
    "nv_u": "nodes_unsubscribe",
    "pc": "comparisons",
    "pc_s": "comparisons_subscribe",
    "pc_u": "comparisons_unsubscribe",
}


def _load(leaving: float) -> str:
    return f"p = {leaving:.0%}"


def reporting(scene: CoveringScene) -> Experiment:
    """Figure 8: run time by the number of covers that are remembered, under a heavy and a light load."""
    return Experiment(
        "8",
        "Run time and reporting mode",
        MODE,
        [
            CoveringCell(k, index, _modes(scene, leaving), index, panel=_load(leaving), k=k)
            for leaving in LOADS
            for k in MODES
            for index in INDEXED
        ],
        measures=("total_seconds",),
        note="10 dimensions; the paper has 60,000 commands",
    )


def queries(scene: CoveringScene) -> Experiment:
    """Figure 9: the number of queries caused by unsubscriptions."""
    return Experiment(
        "9",
        "Queries by unsubscriptions",
        MODE,
        [
            CoveringCell(k, _load(leaving), _modes(scene, leaving), "kd-tree", k=k)
            for k in MODES
            for leaving in LOADS
        ],
        measures=("queries_unsubscribe",),
        note="10 dimensions; every subscription also makes one query, whatever k",
    )


def statistics(leaving: float, figure: str, title: str, scene: CoveringScene) -> Experiment:
    """Tables I and II: nodes and points that a k-d tree visits."""
    return Experiment(
        figure,
        title,
        "k",
        [
            CoveringCell(k, name, _modes(scene, leaving), "kd-tree", k=k, of=of)
            for k in MODES
            for name, of in SHORT.items()
        ],
        measures=("figure",),
        note="nv: nodes visited, pc: point comparisons; s, u: by subscriptions, by unsubscriptions",
    )


def _modes(scene: CoveringScene, leaving: float) -> RectangleSetting:
    return scene.rectangles(MODE_ATTRIBUTES, share=0.6, leaving=leaving)


def indexes(attributes: int, figure: str, scene: CoveringScene) -> Experiment:
    """Figures 10 to 12: the two indexes and the naive one."""
    return Experiment(
        figure,
        f"Total run time, dimension = {2 * attributes}",
        "commands",
        [
            CoveringCell(
                max(1, round(scene.commands * share)),
                "naive" if index == NAIVE else index,
                scene.rectangles(attributes, share=share, leaving=config.COVERING_LEAVING),
                index,
            )
            for share in GROWTH
            for index in RECTANGLES
        ],
        measures=("total_seconds",),
        baseline="kd-tree",
        note=f"p = {config.COVERING_LEAVING:.0%}",
    )


def forwarded(scene: CoveringScene) -> Experiment:
    """Our own: the share of full subscriptions that must be forwarded, which covering is meant to reduce."""
    return Experiment(
        "forwarded",
        "Subscriptions that must be forwarded",
        "subscriptions",
        [
            CoveringCell(
                max(1, round(scene.subscriptions * share)),
                dataset.name,
                scene.full(dataset, share=share, tests=tests),
                "forest",
                panel="box, words, tests" if tests else "box and words",
            )
            for tests in (False, True)
            for share in GROWTH
            for dataset in scene.datasets
        ],
        measures=("forwarded_share",),
        note="as many as there are distinct interests; 1 to 5 words, boxes of 0.01 % to 1 % of the space",
    )


FIGURES: Mapping[str, Callable[[CoveringScene], Experiment]] = {
    "8": reporting,
    "9": queries,
    "table1": partial(statistics, LOADS[0], "table1", "k-d tree under a heavy load"),
    "table2": partial(statistics, LOADS[1], "table2", "k-d tree under a light load"),
    **{
        str(10 + number): partial(indexes, attributes, str(10 + number))
        for number, attributes in enumerate(config.COVERING_TRIED)
    },
    "forwarded": forwarded,
}
