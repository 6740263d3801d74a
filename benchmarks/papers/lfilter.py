"""Figures 7 to 11 of the LFILTER paper as experiments.

The paper is Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015), section 6.
There are four groups of messages: short (6 to 20 words) and long (100 to 1,000), points and ranges. The words of a
message are drawn by frequency, so that any length is possible; subscriptions are made as in the AP-Tree paper. Tweets
stand in for the Twitter dataset, places for the USA dataset (see :mod:`nearcast.bench.datasets`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from nearcast.bench.experiments import Cell, Experiment
from nearcast.workloads import PLAIN, Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nearcast.bench.datasets import Dataset, DatasetSetting, Scene

__all__ = ["FIGURES"]

LONG_SHARE = 0.1  # of the messages, in groups of long ones
GROWTH = (0.2, 0.4, 0.6, 0.8, 1.0)  # Fig. 11: 2 to 10 million, by default 10
PLACES_KEYWORDS = (1, 6)  # Table 1: keywords of a subscription in the USA dataset
AREA = (0.0001, 0.01)  # of a range message, as a share of the space; a guess
SHORT = (6, 10, 15, 20)  # words of a message
LONG = (100, 400, 700, 1_000)

LENGTH = "words of a message"
NOTE = f"long messages: {LONG_SHARE:.0%} as many"


class Group(NamedTuple):
    """One of the four groups of messages."""

    name: str
    lengths: tuple[int, ...]
    usual: int  # the length where something else varies
    area: tuple[float, float] | None
    share: float  # of the messages

    def setting(
        self, scene: Scene, dataset: Dataset, length: int, recipe: Recipe = PLAIN, times: float = 1.0
    ) -> DatasetSetting:
        """Return the setting with messages of this group and *length*."""
        asked = replace(recipe, message_keywords=length, message_area=self.area)
        return scene.setting(dataset, asked, times=times, message_share=self.share)


GROUPS = (
    Group("short points", SHORT, 10, None, 1.0),
    Group("long points", LONG, 600, None, LONG_SHARE),
    Group("short ranges", SHORT, 10, AREA, 1.0),
    Group("long ranges", LONG, 600, AREA, LONG_SHARE),
)


def by_length(
    scene: Scene, dataset: Dataset, lines: dict[str, tuple[str, dict[str, str]]], recipe: Recipe = PLAIN
) -> Iterator[Cell]:
    """Yield the cells of a figure with a panel for each group and the length of a message as x."""
    for group in GROUPS:
        for length in group.lengths:
            setting = group.setting(scene, dataset, length, recipe)
            for line, (index, parameters) in lines.items():
                yield Cell(length, line, setting, index, parameters, panel=group.name)


def probing(scene: Scene) -> Experiment:
    """Figure 7: the ways to probe an MBRTrie."""
    lines = {
        "CostBasedProbe": ("mbr-trie", {"probing": "cost"}),
        "ProbeTokenSet": ("mbr-trie", {"probing": "token-set"}),
        "ProbeTrie": ("mbr-trie", {"probing": "trie"}),
    }
    return Experiment(
        "7",
        "MBRTrie: strategies of probing",
        LENGTH,
        list(by_length(scene, scene.tweets, lines)),
        baseline="CostBasedProbe",
        note=NOTE,
    )


def filters(scene: Scene) -> Experiment:
    """Figure 8: MBRTrie, PT-Quadtree, and LFILTER, which chooses between them."""
    lines: dict[str, tuple[str, dict[str, str]]] = {
        index: (index, {}) for index in ("lfilter", "mbr-trie", "pt-quadtree")
    }
    return Experiment(
        "8",
        "MBRTrie, PT-Quadtree, LFILTER",
        LENGTH,
        list(by_length(scene, scene.tweets, lines)),
        baseline="lfilter",
        note=NOTE,
    )


def rivals(figure: str, scene: Scene, dataset: Dataset, recipe: Recipe) -> Experiment:
    """Return Figure 9 or 10: LFILTER against the R^t++-Tree, and against later indexes."""
    lines: dict[str, tuple[str, dict[str, str]]] = {
        index: (index, {}) for index in ("lfilter", "rt-tree", "ap-tree", "auto")
    }
    return Experiment(
        figure,
        f"LFILTER and others, {dataset.name}",
        LENGTH,
        list(by_length(scene, dataset, lines, recipe)),
        baseline="lfilter",
        note=NOTE,
    )


def twitter(scene: Scene) -> Experiment:
    """Figure 9: on Twitter."""
    return rivals("9", scene, scene.tweets, PLAIN)


def usa(scene: Scene) -> Experiment:
    """Figure 10: on the USA dataset."""
    return rivals("10", scene, scene.places, Recipe(keywords=PLACES_KEYWORDS))


def subscriptions(scene: Scene) -> Experiment:
    """Figure 11: matching time by the number of subscriptions."""
    settings = [
        (group, group.setting(scene, scene.tweets, group.usual, times=times))
        for group in GROUPS
        for times in GROWTH
    ]
    return Experiment(
        "11",
        "LFILTER: effect of the number of subscriptions",
        "subscriptions",
        [
            Cell(setting.subscriptions, index, setting, index, panel=group.name)
            for group, setting in settings
            for index in ("lfilter", "auto")
        ],
        baseline="lfilter",
        note=f"messages of {GROUPS[0].usual} and {GROUPS[1].usual} words; {NOTE}",
    )


FIGURES: dict[str, Callable[[Scene], Experiment]] = {
    "7": probing,
    "8": filters,
    "9": twitter,
    "10": usa,
    "11": subscriptions,
}
