"""Where the papers' experiments take place: datasets, and the sizes of a run.

Four synthetic datasets stand for those of the AP-Tree paper (its Table 2): as many words, as many of them in a message;
where the places lie is guessed. With a directory of real data, tweets stand for TWEETS, names of places for GN and for
the USA dataset of the LFILTER paper, and the synthetic ones are there besides.
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

__all__ = ["Dataset", "Scene", "Setting", "scene"]


@dataclass(frozen=True)
class Dataset:
    """Where messages come from: ``make(subscriptions, messages, seed=…, recipe=…)`` draws a workload of it."""

    name: str
    make: Callable[..., Workload]
    message_keywords: int  # about as many as a message has


@dataclass(frozen=True)
class Setting:
    """All that decides a workload but the seed. Equal settings share one."""

    dataset: Dataset
    subscriptions: int
    messages: int
    recipe: Recipe = PLAIN

    @property
    def name(self) -> str:
        """What the data is called."""
        return self.dataset.name

    def make(self, seed: int) -> Case:
        """Return the workload: subscriptions, the measured messages, and messages before these.

        Cost models learn from the earlier ones, which are as many however few are measured: the papers' streams are
        long.
        """
        length = self.recipe.message_keywords or self.dataset.message_keywords
        before = max(1, config.EXPERIMENT_HISTORY_WORDS // length)
        made = self.dataset.make(self.subscriptions, before + self.messages, seed=seed, recipe=self.recipe)
        rows = np.arange(before + self.messages)
        earlier, measured = made.messages.take(rows[:before]), made.messages.take(rows[before:])
        return Case(made.facts, index=Side(made.subscriptions, earlier, measured))


class Scene(NamedTuple):
    """What the experiments of one run share: the sizes and the datasets."""

    subscriptions: int
    messages: int
    tweets: Dataset
    places: Dataset
    others: tuple[Dataset, ...]

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """All of them."""
        return self.tweets, self.places, *self.others

    def setting(
        self, dataset: Dataset, recipe: Recipe = PLAIN, *, times: float = 1.0, message_share: float = 1.0
    ) -> Setting:
        """Return the setting with the scene's sizes, or *times* the subscriptions and a share of the messages."""
        return Setting(
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
