"""Workloads for covering: commands on random rectangles, and full subscriptions.

The commands are those of Shen, Tirthapura and Aluru, "Indexing for Subscription Covering in Publish-Subscribe Systems"
(2005), section V.A. A rectangle has a random segment of the unit interval for each attribute. A command subscribes a
new rectangle or, with probability p, unsubscribes a random one of those that are subscribed. Full subscriptions are
those of a dataset, with a box and 1 to 5 words, and tests on 0 to 3 attributes: half of the tests have two bounds,
half have one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast import config
from nearcast.bench.datasets import scene
from nearcast.bench.experiments import Case
from nearcast.columns import SubscriptionTable
from nearcast.columns.clauses import keyword_offsets
from nearcast.columns.ragged import offsets_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.bench.datasets import Dataset

__all__ = [
    "CommandLog",
    "CoveringScene",
    "FullSetting",
    "FullSubscriptions",
    "RectangleSetting",
    "covering_scene",
]


class CommandLog(NamedTuple):
    """Subscriptions, and a log of which arrive and which leave (see ``RelationGraph.replay``)."""

    subscriptions: SubscriptionTable
    log: NDArray[np.int64]

    def first(self, commands: int) -> CommandLog:
        """Return the first *commands* commands."""
        log = self.log[:commands]
        return CommandLog(self.subscriptions.take(np.arange(int(log.max(initial=-1)) + 1)), log)


class FullSubscriptions(NamedTuple):
    """Full subscriptions: existing ones, and newcomers."""

    subscriptions: SubscriptionTable
    newcomers: SubscriptionTable


@dataclass(frozen=True)
class RectangleSetting:
    """Random commands on rectangles with a given number of attributes."""

    attributes: int
    commands: int
    leaving: float  # p, the share of unsubscriptions
    name: str = "rectangles"

    def make(self, seed: int) -> Case:
        """Return the workload."""
        rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
        log = _log(rng, self.commands, self.leaving)
        count, each = int(log.max(initial=-1)) + 1, self.attributes
        ends = np.sort(rng.random((count * each, 2)), axis=1)
        table = SubscriptionTable.from_arrays(
            np.tile([-np.inf, -np.inf, np.inf, np.inf], (count, 1)),
            np.zeros(count + 1, np.int64),
            [],
            (
                np.arange(count + 1, dtype=np.int64) * each,
                np.tile(np.arange(each, dtype=np.int32), count),
                ends[:, 0].copy(),
                ends[:, 1].copy(),
            ),
        )
        facts = {"attributes": each, "commands": self.commands, "leaving": self.leaving}
        return Case(facts, covering=CommandLog(table, log))


def _log(rng: np.random.Generator, commands: int, leaving: float) -> NDArray[np.int64]:
    """Return a log of commands; a subscription that leaves is drawn from those that are subscribed."""
    log, arrived = np.empty(commands, np.int64), 0
    present: list[int] = []
    leaves, draws = (rng.random(commands) < leaving).tolist(), rng.random(commands).tolist()
    for number in range(commands):
        if leaves[number] and present:
            chosen = int(draws[number] * len(present))
            present[chosen], present[-1] = present[-1], present[chosen]
            log[number] = ~present.pop()
        else:
            log[number] = arrived
            present.append(arrived)
            arrived += 1
    return log


@dataclass(frozen=True)
class FullSetting:
    """Full subscriptions of a dataset, with or without tests on attributes."""

    dataset: Dataset
    subscriptions: int
    newcomers: int
    tests: bool = True

    @property
    def name(self) -> str:
        """What the data is called."""
        return self.dataset.name

    def make(self, seed: int) -> Case:
        """Return the workload."""
        total = self.subscriptions + self.newcomers
        made = self.dataset.make(total, 1, seed=seed)
        table = made.subscriptions
        if self.tests:
            # The data uses the other four streams.
            rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(5)[4])
            clauses = table.clauses
            table = SubscriptionTable.from_arrays(
                clauses.boxes,
                keyword_offsets(clauses),
                clauses.keywords,
                _tests(rng, total),
                space=table.space,
            )
        rows = np.arange(total)
        return Case(
            {**made.facts, "attributes": config.COVERING_ATTRIBUTES if self.tests else 0},
            covering=FullSubscriptions(
                table.take(rows[: self.subscriptions]), table.take(rows[self.subscriptions :])
            ),
        )


def _tests(
    rng: np.random.Generator, rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Return tests on 0 to 3 distinct attributes for each row."""
    low, high = config.COVERING_TESTS
    counts = rng.integers(low, high + 1, rows)
    drawn = np.argsort(rng.random((rows, config.COVERING_ATTRIBUTES)), axis=1)[:, :high].astype(np.int32)
    attributes = drawn[np.arange(high) < counts[:, None]]
    ends = np.sort(rng.random((len(attributes), 2)), axis=1)
    one_sided = rng.random(len(attributes)) < 0.5
    return offsets_of(counts), attributes, np.where(one_sided, -np.inf, ends[:, 0]), ends[:, 1].copy()


@dataclass(frozen=True)
class CoveringScene:
    """The sizes and datasets that the experiments of one run share."""

    datasets: tuple[Dataset, ...]
    commands: int
    subscriptions: int

    def rectangles(self, attributes: int, *, share: float = 1.0, leaving: float) -> RectangleSetting:
        """Return a share of the commands on rectangles."""
        return RectangleSetting(attributes, max(1, round(self.commands * share)), leaving)

    def full(self, dataset: Dataset, *, share: float = 1.0, tests: bool = True) -> FullSetting:
        """Return a share of the full subscriptions."""
        size = max(1, round(self.subscriptions * share))
        return FullSetting(dataset, size, min(config.COVERING_NEWCOMERS, size), tests)


def covering_scene(commands: int, subscriptions: int, data: Path | None = None) -> CoveringScene:
    """Return the scene, with tweets and places if there is real data, else with the synthetic datasets like these."""
    world = scene(subscriptions, 1, data)
    return CoveringScene((world.tweets, world.places), commands, subscriptions)
