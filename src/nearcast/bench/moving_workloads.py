"""The workloads of moving subscriptions as the experiments use them; see :mod:`nearcast.workloads.moving`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from nearcast import config
from nearcast.bench.experiments import Case
from nearcast.workloads.files import check_data
from nearcast.workloads.moving import make_moving

__all__ = ["MovingScene", "MovingSetting", "moving_scene"]


@dataclass(frozen=True)
class MovingSetting:
    """Everything that determines a workload except the seed."""

    messages: str  # the source of the messages
    roads: str
    subscriptions: int
    valid: int  # messages at the beginning
    steps: int
    arrivals: int | None = None
    mobility: float = config.MOVING_MOBILITY
    speed: float = 1.0
    area: float = config.MOVING_AREA
    data: Path | None = None

    @property
    def name(self) -> str:
        """The name of the data."""
        return f"{self.messages}-{self.roads}"

    def make(self, seed: int) -> Case:
        """Return the workload."""
        made = make_moving(
            self.messages,
            self.roads,
            subscriptions=self.subscriptions,
            valid=self.valid,
            arrivals=self.arrivals,
            mobility=self.mobility,
            speed=self.speed,
            area=self.area,
            seed=seed,
            data=self.data,
        )
        return Case(made.facts, moving=made)

    def first(self, rows: int) -> MovingSetting:
        """Return the same with at most *rows* subscriptions and messages, and few steps."""
        return replace(
            self,
            subscriptions=min(self.subscriptions, rows),
            valid=min(self.valid, rows),
            arrivals=None if self.arrivals is None else min(self.arrivals, rows),
            steps=min(self.steps, 2),
        )


@dataclass(frozen=True)
class MovingScene:
    """The sizes and data that the experiments of one run share."""

    subscriptions: int
    messages: int
    steps: int
    sources: tuple[str, str]  # of messages: the paper's TWEETS and GN
    maps: tuple[str, str]  # the paper's ODB and SAN
    data: Path | None = None

    def setting(
        self, source: str | None = None, roads: str | None = None, *, times: float = 1.0, **changes: float
    ) -> MovingSetting:
        """Return the setting with the sizes of the scene, or *times* as many subscriptions and messages."""
        made = MovingSetting(
            source or self.sources[0],
            roads or self.maps[0],
            max(1, round(self.subscriptions * times)),
            max(1, round(self.messages * times)),
            self.steps,
            data=self.data,
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    @property
    def datasets(self) -> list[MovingSetting]:
        """All four combinations of messages and roads."""
        return [self.setting(source, roads) for source in self.sources for roads in self.maps]


def moving_scene(
    subscriptions: int, messages: int, steps: int = config.MOVING_FIGURE_STEPS, data: Path | None = None
) -> MovingScene:
    """Return the scene with real messages and maps from the directory *data*, or with invented ones."""
    if data is None:
        sources, maps = ("tweets-like", "gn-like"), ("town", "county")
    else:
        check_data(data)
        sources, maps = ("tweets", "places"), ("oldenburg", "san-joaquin")
    return MovingScene(subscriptions, messages, steps, sources, maps, data)
