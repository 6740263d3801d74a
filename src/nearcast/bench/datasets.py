"""The datasets of the papers' experiments, and the sizes of a run.

Four synthetic datasets stand in for those of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support
Location-Aware Publish/Subscribe" (2015), Table 2: they have as many words, and as many words in a message; the
positions of the places are guessed. With a directory of real data, tweets also stand in for TWEETS, and the names of
places for GN and for the USA dataset of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe
Services" (2015).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast import config, workloads
from nearcast.bench.experiments import Case, Side
from nearcast.workloads import PLAIN, Recipe, Workload

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Dataset", "DatasetSetting", "Scene", "scene"]


@dataclass(frozen=True)
class Dataset:
    """A source of messages: ``make(subscriptions, messages, seed=…, recipe=…)`` draws a workload from it."""

    name: str
    make: Callable[..., Workload]
    message_keywords: int  # about the number in a message


@dataclass(frozen=True)
class DatasetSetting:
    """Everything that determines a workload except the seed; equal settings share a workload."""

    dataset: Dataset
    subscriptions: int
    messages: int
    recipe: Recipe = PLAIN

    @property
    def name(self) -> str:
        """The name of the data."""
        return self.dataset.name

    def make(self, seed: int) -> Case:
        """Return the workload: subscriptions, the measured messages, and messages before these.

        Cost models learn from the earlier messages. Their number does not depend on how few are measured, since the
        papers' streams are long.
        """
        length = self.recipe.message_keywords or self.dataset.message_keywords
        before = max(1, config.EXPERIMENT_HISTORY_WORDS // length)
        made = self.dataset.make(self.subscriptions, before + self.messages, seed=seed, recipe=self.recipe)
        rows = np.arange(before + self.messages)
        earlier, measured = made.messages.take(rows[:before]), made.messages.take(rows[before:])
        return Case(made.facts, index=Side(made.subscriptions, earlier, measured))


class Scene(NamedTuple):
    """The sizes and datasets that the experiments of one run share."""

    subscriptions: int
    messages: int
    tweets: Dataset
    places: Dataset
    others: tuple[Dataset, ...]

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """All datasets."""
        return self.tweets, self.places, *self.others

    def setting(
        self, dataset: Dataset, recipe: Recipe = PLAIN, *, times: float = 1.0, message_share: float = 1.0
    ) -> DatasetSetting:
        """Return the setting with the scene's sizes, or with *times* the subscriptions and a share of the messages."""
        return DatasetSetting(
            dataset,
            max(1, round(self.subscriptions * times)),
            max(1, round(self.messages * message_share)),
            recipe,
        )


def scene(subscriptions: int, messages: int, data: Path | None = None) -> Scene:
    """Return the scene with these sizes; *data* is the directory of the real data, if there is one."""
    tweets, places, *others = (_synthetic(name) for name in config.AP_DATASETS)
    if data is None:
        return Scene(subscriptions, messages, tweets, places, tuple(others))
    workloads.check_data(data)
    real_tweets, real_places = (
        Dataset(name, partial(workloads.real, name, data), like.message_keywords)
        for name, like in (("tweets", tweets), ("places", places))
    )
    return Scene(subscriptions, messages, real_tweets, real_places, (tweets, places, *others))


def _synthetic(name: str) -> Dataset:
    vocabulary, keywords, cities, spread, background = config.AP_DATASETS[name]
    world = partial(
        workloads.ap_tree,
        vocabulary=vocabulary,
        message_keywords=keywords,
        cities=cities,
        city_spread=spread,
        background=background,
    )
    return Dataset(f"{name}-like", world, keywords)
