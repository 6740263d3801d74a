"""Figures 19 to 25 of the AP-Tree paper as experiments: subscriptions that move.

The paper is Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015),
section 5.2; :mod:`nearcast.bench.moving` explains its abbreviations. The workloads are those of
:mod:`nearcast.workloads.moving`. ``auto`` stands beside the indexes of the paper. An index that is not in ``MOVING`` is
left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nearcast.bench.experiments import Experiment
from nearcast.bench.moving import MovingCell
from nearcast.bench.moving_workloads import MovingScene, MovingSetting
from nearcast.matching.moving import MOVING

__all__ = ["FIGURES"]

TREE = "ap-plus-tree"
INDEXES = (TREE, "iq-plus-tree", "rq-plus-tree", "ss-index", "kk-index", "auto")
VARIANTS = (TREE, "ap-plus-k-tree", "ap-plus-s-tree", "auto")

MOBILITY_TRIED = (10, 20, 40, 60, 80)  # Fig. 22, in percent
SPEED_TRIED = (0.5, 1.0, 2.0, 3.0, 4.0)  # Fig. 23, in units of medium
AREA_TRIED = (1e-6, 1e-4, 1e-2, 1.0, 10.0)  # Fig. 24, in percent of the space
GROWTH = (0.5, 1.0, 1.5, 2.0, 2.5)  # Fig. 25: 0.5 to 2.5 million

DATASET = "dataset"


def parts(scene: MovingScene) -> Experiment:
    """Figure 19: message insertion, and location update, by index."""
    return _figure(
        "19",
        "Message insertion (MI) and location update (SLU)",
        DATASET,
        [(setting.name, "", setting) for setting in [scene.setting()]],
        ("mi_microseconds", "slu_microseconds"),
        parts=True,
        note="medians of calls; SLU: a move while there are no messages; MI: publishing without matching, "
        "and with the removal of an expired message",
    )


def variants(scene: MovingScene) -> Experiment:
    """Figure 20: the tree of both, and trees with separate indexes of messages."""
    return _figure(
        "20",
        "Variants of the AP⁺-Tree",
        DATASET,
        [(setting.name, "", setting) for setting in [scene.setting()]],
        ("imm_microseconds", "msp_microseconds"),
        indexes=VARIANTS,
    )


def datasets(scene: MovingScene) -> Experiment:
    """Figure 21: all combinations of messages and roads."""
    return _figure(
        "21",
        "Moving subscriptions on different datasets",
        DATASET,
        [(setting.name, "", setting) for setting in scene.datasets],
        ("imm_microseconds", "msp_microseconds", "megabytes"),
    )


def mobility(scene: MovingScene) -> Experiment:
    """Figure 22: the share of the subscriptions that move in a step; times are those of all moves of a step."""
    return _figure(
        "22",
        "Effect of mobility",
        "% that move in a step",
        [
            (percent, setting.name, scene.setting(setting.messages, setting.roads, mobility=percent / 100))
            for setting in scene.datasets
            for percent in MOBILITY_TRIED
        ],
        ("msp_step_milliseconds",),
    )


def velocity(scene: MovingScene) -> Experiment:
    """Figure 23: the speed of subscriptions."""
    return _figure(
        "23",
        "Effect of velocity",
        "times medium",
        [
            (speed, setting.name, scene.setting(setting.messages, setting.roads, speed=speed))
            for setting in _on_the_first_map(scene)
            for speed in SPEED_TRIED
        ],
        ("msp_microseconds",),
    )


def areas(scene: MovingScene) -> Experiment:
    """Figure 24: the size of a region."""
    return _figure(
        "24",
        "Effect of the size of a region",
        "% of the space",
        [
            (percent, setting.name, scene.setting(setting.messages, setting.roads, area=percent / 100))
            for setting in _on_the_first_map(scene)
            for percent in AREA_TRIED
        ],
        ("msp_microseconds",),
        logarithmic=True,
    )


def sizes(scene: MovingScene) -> Experiment:
    """Figure 25: the number of subscriptions, of messages, and of arrivals, which grow together."""
    settings = [
        (setting.name, scene.setting(setting.messages, setting.roads, times=times))
        for setting in _on_the_first_map(scene)
        for times in GROWTH
    ]
    return _figure(
        "25",
        "Effect of the number of subscriptions and messages",
        "subscriptions",
        [(setting.subscriptions, panel, setting) for panel, setting in settings],
        ("msp_microseconds",),
    )


def _on_the_first_map(scene: MovingScene) -> list[MovingSetting]:
    return [scene.setting(source) for source in scene.sources]


def _figure(
    figure: str,
    title: str,
    axis: str,
    places: Iterable[tuple[float | str, str, MovingSetting]],
    measures: tuple[str, ...],
    *,
    indexes: tuple[str, ...] = INDEXES,
    parts: bool = False,
    logarithmic: bool = False,
    note: str = "",
) -> Experiment:
    """Return a figure with a line for each index; *places* are x, panel and setting of its points."""
    lines = [name for name in indexes if name in MOVING]
    return Experiment(
        figure,
        title,
        axis,
        [
            MovingCell(x, line, setting, line, panel=panel, parts=parts)
            for x, panel, setting in places
            for line in lines
        ],
        measures=measures,
        baseline=TREE if TREE in lines else None,
        logarithmic=logarithmic,
        note=note,
    )


# Figures 26 and 27 of the paper are about safe regions: nearcast bench safe-regions repeats them in another form.
FIGURES: dict[str, Callable[[MovingScene], Experiment]] = {
    "19": parts,
    "20": variants,
    "21": datasets,
    "22": mobility,
    "23": velocity,
    "24": areas,
    "25": sizes,
}
