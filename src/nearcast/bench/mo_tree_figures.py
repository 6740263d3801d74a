"""Section 6 of the MO-Tree paper as experiments: Figures 4 to 12 and Table 5.

The paper's events are messages here. Where numbers grow, they do so in steps of the scene's own, as the paper's 1 to 5
million are of its million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

import numpy as np

from nearcast import config, workloads
from nearcast.bench.experiments import Case, Cell, Experiment, Side
from nearcast.bench.measure import Columns

__all__ = ["FIGURES", "INDEXES", "STORES", "AttributeScene", "AttributeSetting"]

INDEXES = ("mo-tree", "auto", "tama", "op-index", "r-star-tree", "scan")
STORES = ("mo-tree", "beq-tree", "r-star-tree", "scan")
PAIRS = {  # Figure 12: an index and a store, which together are what one MO-Tree is in the paper
    "mo-tree": ("mo-tree", "mo-tree"),
    "tama + beq-tree": ("tama", "beq-tree"),
    "op-index + beq-tree": ("op-index", "beq-tree"),
    "r-star-tree": ("r-star-tree", "r-star-tree"),
}
BASE = "mo-tree"
PREDICATES = "predicates"
EXPONENT = "α"
CHANGES = (
    f"{config.EXPERIMENT_CHANGES:,} of each, at most {config.EXPERIMENT_CHANGE_SHARE:.0%} of what is stored, "
    f"{config.BENCH_BATCH:,} at a time; fewer where they take more than {config.EXPERIMENT_CHANGE_SECONDS:.0f} s"
)

_Part = TypeVar("_Part", bound=Columns)


@dataclass(frozen=True)
class AttributeSetting:
    """The workload of Table 4, with so many subscriptions in an index, and so many messages in a store (0: no such)."""

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
        """Return what asks, samples of it from before, what is stored, and newcomers, all drawn alike."""
        asking = (self.queries, config.MO_HISTORY)
        sizes = [
            (*asking, stored, changes(stored)) if stored else asking
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


@dataclass(frozen=True)
class AttributeScene:
    """The sizes that the experiments of one run share: N_s, N_e, and how many of either ask."""

    subscriptions: int
    messages: int
    queries: int

    def index(
        self,
        times: int = 1,
        predicates: int = config.MO_PREDICATES,
        exponent: float = config.MO_EXPONENT,
    ) -> AttributeSetting:
        """Return the setting with subscriptions that messages ask for."""
        return AttributeSetting(self.subscriptions * times, 0, self.queries, predicates, exponent)

    def store(
        self,
        times: int = 1,
        predicates: int = config.MO_PREDICATES,
        exponent: float = config.MO_EXPONENT,
    ) -> AttributeSetting:
        """Return the setting with messages that subscriptions ask for."""
        return AttributeSetting(0, self.messages * times, self.queries, predicates, exponent)


def messages_by_subscriptions(scene: AttributeScene) -> Experiment:
    """Figure 4: event matching time by N_s."""
    settings = {setting.subscriptions: setting for setting in map(scene.index, config.MO_GROWTH)}
    return Experiment(
        "4",
        "Matching messages: effect of the number of subscriptions",
        "subscriptions",
        list(_indexes(settings.items())),
        baseline=BASE,
    )


def messages_by_predicates(scene: AttributeScene) -> Experiment:
    """Figure 5: event matching time by K_s."""
    settings = [(count, scene.index(predicates=count)) for count in config.MO_PREDICATES_TRIED]
    return Experiment(
        "5",
        "Matching messages: effect of the number of predicates",
        PREDICATES,
        list(_indexes(settings)),
        baseline=BASE,
    )


def subscriptions_by_messages(scene: AttributeScene) -> Experiment:
    """Figure 6: subscription matching time by N_e."""
    settings = {setting.messages: setting for setting in map(scene.store, config.MO_GROWTH)}
    return Experiment(
        "6",
        "Matching subscriptions: effect of the number of messages",
        "messages",
        list(_stores(settings.items())),
        measures=("microseconds_per_subscription",),
        baseline=BASE,
    )


def subscriptions_by_predicates(scene: AttributeScene) -> Experiment:
    """Figure 7: subscription matching time by K_s."""
    settings = [(count, scene.store(predicates=count)) for count in config.MO_PREDICATES_TRIED]
    return Experiment(
        "7",
        "Matching subscriptions: effect of the number of predicates",
        PREDICATES,
        list(_stores(settings)),
        measures=("microseconds_per_subscription",),
        baseline=BASE,
    )


def messages_by_exponent(scene: AttributeScene) -> Experiment:
    """Table 5, event matching: by α."""
    settings = [(exponent, scene.index(exponent=exponent)) for exponent in config.MO_EXPONENTS_TRIED]
    return Experiment(
        "table5a",
        "Matching messages: effect of the popularity of attributes",
        EXPONENT,
        list(_indexes(settings)),
        baseline=BASE,
    )


def subscriptions_by_exponent(scene: AttributeScene) -> Experiment:
    """Table 5, subscription matching: by α."""
    settings = [(exponent, scene.store(exponent=exponent)) for exponent in config.MO_EXPONENTS_TRIED]
    return Experiment(
        "table5b",
        "Matching subscriptions: effect of the popularity of attributes",
        EXPONENT,
        list(_stores(settings)),
        measures=("microseconds_per_subscription",),
        baseline=BASE,
    )


def message_changes(scene: AttributeScene) -> Experiment:
    """Figures 8 and 9: event insertion and deletion time by N_e."""
    settings = {setting.messages: setting for setting in map(scene.store, config.MO_GROWTH)}
    return Experiment(
        "8-9",
        "Inserting and removing messages",
        "messages",
        list(_stores(settings.items(), changes=True)),
        measures=("insert_microseconds", "remove_microseconds"),
        baseline=BASE,
        note=CHANGES,
    )


def subscription_changes(scene: AttributeScene) -> Experiment:
    """Figures 10 and 11: subscription insertion and deletion time by N_s; besides, updates (section 6.2.5)."""
    settings = {setting.subscriptions: setting for setting in map(scene.index, config.MO_GROWTH)}
    return Experiment(
        "10-11",
        "Inserting, removing and updating subscriptions",
        "subscriptions",
        list(_indexes(settings.items(), changes=True)),
        measures=("insert_microseconds", "remove_microseconds", "update_microseconds"),
        baseline=BASE,
        note=f"{CHANGES}; an update moves the region by at most {config.EXPERIMENT_NUDGE:.0%} of its size",
    )


def memory(scene: AttributeScene) -> Experiment:
    """Figure 12: memory of an index and a store by N_s = N_e."""
    settings = [
        AttributeSetting(scene.subscriptions * times, scene.subscriptions * times, scene.queries)
        for times in config.MO_GROWTH
    ]
    return Experiment(
        "12",
        "Memory of subscriptions and messages",
        "of each",
        [
            Cell(setting.subscriptions, line, setting, index, store=store)
            for setting in settings
            for line, (index, store) in PAIRS.items()
        ],
        measures=("megabytes", "megabytes_of_structure"),
        baseline=BASE,
        note="libspatialindex does not tell its memory: for r-star-tree the boxes and numbers of its entries count, "
        "the least that it takes",
    )


def changes(stored: int) -> int:
    """Return how many newcomers there are for so many rows that are stored."""
    return min(config.EXPERIMENT_CHANGES, max(2, round(stored * config.EXPERIMENT_CHANGE_SHARE)))


def _indexes(settings: Iterable[tuple[float, AttributeSetting]], changes: bool = False) -> Iterable[Cell]:
    for x, setting in settings:
        for name in INDEXES:
            yield Cell(x, name, setting, name, changes=changes)


def _stores(settings: Iterable[tuple[float, AttributeSetting]], changes: bool = False) -> Iterable[Cell]:
    for x, setting in settings:
        for name in STORES:
            yield Cell(x, name, setting, None, store=name, changes=changes)


def _cut(columns: _Part, sizes: Sequence[int]) -> list[_Part]:
    """Return the first rows, those that follow, and so on."""
    return [
        columns.take(np.arange(end - size, end)) for size, end in zip(sizes, accumulate(sizes), strict=True)
    ]


FIGURES: dict[str, Callable[[AttributeScene], Experiment]] = {
    "4": messages_by_subscriptions,
    "5": messages_by_predicates,
    "6": subscriptions_by_messages,
    "7": subscriptions_by_predicates,
    "table5a": messages_by_exponent,
    "table5b": subscriptions_by_exponent,
    "8-9": message_changes,
    "10-11": subscription_changes,
    "12": memory,
}
