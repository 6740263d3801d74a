"""Figures 4 to 12 and Table 5 of the MO-Tree paper as experiments.

The paper is Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for Spatiotemporal-aware
Pub/Sub Systems" (2021), section 6. Its events are our messages. Where numbers grow, they grow in multiples of the
scene's numbers, as the paper's 1 to 5 million are multiples of a million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nearcast import config
from nearcast.bench.attributes import INDEXES, STORES, AttributeSetting
from nearcast.bench.experiments import Cell, Experiment

__all__ = ["FIGURES", "AttributeScene"]

GROWTH = (1, 2, 3, 4, 5)  # Table 4: 1 to 5 million
PREDICATES_TRIED = (4, 6, 8, 10)  # Figs. 5 and 7
EXPONENTS_TRIED = (1.0, 0.75, 0.5, 0.25, 0.0)  # Table 5

PAIRS = {  # Figure 12: an index and a store, which together correspond to one MO-Tree in the paper
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


@dataclass(frozen=True)
class AttributeScene:
    """The sizes that the experiments of one run share: N_s, N_e, and the number of queries of either kind."""

    subscriptions: int
    messages: int
    queries: int

    def index(
        self,
        times: int = 1,
        predicates: int = config.MO_PREDICATES,
        exponent: float = config.MO_EXPONENT,
    ) -> AttributeSetting:
        """Return the setting with an index of subscriptions, queried by messages."""
        return AttributeSetting(self.subscriptions * times, 0, self.queries, predicates, exponent)

    def store(
        self,
        times: int = 1,
        predicates: int = config.MO_PREDICATES,
        exponent: float = config.MO_EXPONENT,
    ) -> AttributeSetting:
        """Return the setting with a store of messages, queried by subscriptions."""
        return AttributeSetting(0, self.messages * times, self.queries, predicates, exponent)


def messages_by_subscriptions(scene: AttributeScene) -> Experiment:
    """Figure 4: event matching time by N_s."""
    settings = {setting.subscriptions: setting for setting in map(scene.index, GROWTH)}
    return Experiment(
        "4",
        "Matching messages: effect of the number of subscriptions",
        "subscriptions",
        list(_indexes(settings.items())),
        baseline=BASE,
    )


def messages_by_predicates(scene: AttributeScene) -> Experiment:
    """Figure 5: event matching time by K_s."""
    settings = [(count, scene.index(predicates=count)) for count in PREDICATES_TRIED]
    return Experiment(
        "5",
        "Matching messages: effect of the number of predicates",
        PREDICATES,
        list(_indexes(settings)),
        baseline=BASE,
    )


def subscriptions_by_messages(scene: AttributeScene) -> Experiment:
    """Figure 6: subscription matching time by N_e."""
    settings = {setting.messages: setting for setting in map(scene.store, GROWTH)}
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
    settings = [(count, scene.store(predicates=count)) for count in PREDICATES_TRIED]
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
    settings = [(exponent, scene.index(exponent=exponent)) for exponent in EXPONENTS_TRIED]
    return Experiment(
        "table5a",
        "Matching messages: effect of the popularity of attributes",
        EXPONENT,
        list(_indexes(settings)),
        baseline=BASE,
    )


def subscriptions_by_exponent(scene: AttributeScene) -> Experiment:
    """Table 5, subscription matching: by α."""
    settings = [(exponent, scene.store(exponent=exponent)) for exponent in EXPONENTS_TRIED]
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
    settings = {setting.messages: setting for setting in map(scene.store, GROWTH)}
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
    """Figures 10 and 11: subscription insertion and deletion time by N_s; also updates (section 6.2.5)."""
    settings = {setting.subscriptions: setting for setting in map(scene.index, GROWTH)}
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
        for times in GROWTH
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
        note="libspatialindex does not report its memory: for r-star-tree the boxes and numbers of its entries are "
        "counted, which is the least that it takes",
    )


def _indexes(settings: Iterable[tuple[float, AttributeSetting]], changes: bool = False) -> Iterable[Cell]:
    for x, setting in settings:
        for name in INDEXES:
            yield Cell(x, name, setting, name, changes=changes)


def _stores(settings: Iterable[tuple[float, AttributeSetting]], changes: bool = False) -> Iterable[Cell]:
    for x, setting in settings:
        for name in STORES:
            yield Cell(x, name, setting, None, store=name, changes=changes)


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
