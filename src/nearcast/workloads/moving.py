"""Workloads of subscriptions that move, and of messages that come and expire: a stream of steps.

They follow section 5.2.1 of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware
Publish/Subscribe" (2015). The centre of a subscription's region is a vehicle on a road network (:mod:`.trips`), or a
taxi (:mod:`.taxis`); its keywords are some of those of a random message. In each step, of 30 seconds, a share of the
subscriptions moves and new messages arrive. A message lives for an exponentially distributed time of ten steps on
average. So those that are valid at the beginning live as long from then on, and about as many remain valid.

Messages and roads share the unit square: both are stretched to it. The paper's TWEETS-ODB, TWEETS-SAN, GN-ODB and
GN-SAN are the messages ``tweets`` and ``places`` with the roads ``oldenburg`` and ``san-joaquin``; without their data,
``tweets-like`` and ``gn-like`` with ``town`` and ``county``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.errors import InputError, UnknownError, shown
from nearcast.geometry import Planar
from nearcast.workloads import sampling
from nearcast.workloads.files import CONTIGUOUS_US, TEXT_FILES, texts
from nearcast.workloads.roads import ROADS, RoadNetwork, road_map
from nearcast.workloads.sampling import Extent, Ragged
from nearcast.workloads.taxis import taxis
from nearcast.workloads.trips import Movement, Trips

__all__ = ["MESSAGES", "MOVEMENTS", "MovingWorkload", "Source", "Step", "make_moving", "message_source"]

UNIT_SQUARE = Extent(0.0, 0.0, 1.0, 1.0)
#: Sources of messages by name: invented ones, and real data.
MESSAGES = ("tweets-like", "gn-like", *TEXT_FILES)
#: What carries subscriptions: vehicles on roads, or taxis.
MOVEMENTS = (*ROADS, "taxis")

Rows = tuple[NDArray[np.float64], Ragged]  # places in the unit square, and words


class Step(NamedTuple):
    """What happens in one step: some subscriptions move, then messages arrive, all at the same time."""

    rows: NDArray[np.int64]  # the subscriptions that move, in random order
    boxes: NDArray[np.float64]  # their new regions
    messages: MessageBatch  # with expires_at
    now: int  # in microseconds


class Source(NamedTuple):
    """Where messages come from; those from which subscriptions take their words are others."""

    messages: Callable[[np.random.Generator, int], Rows]
    others: Callable[[np.random.Generator, int], Rows]
    facts: dict[str, Any]


@dataclass(frozen=True)
class MovingWorkload:
    """Subscriptions, the messages that are valid at time 0, and what happens from then on."""

    name: str
    seed: int
    description: str
    subscriptions: SubscriptionTable
    messages: MessageBatch
    arrivals: int  # messages that arrive in a step
    mobility: float  # the share of the subscriptions that move in a step
    half: float  # half the width of a region
    step_seconds: int
    movement: Movement
    source: Source
    facts: dict[str, Any] = field(default_factory=dict)

    def steps(self, count: int) -> Iterator[Step]:
        """Yield the first *count* steps; each call yields the same ones. A step is made when it is asked for."""
        size = len(self.subscriptions)
        moving = max(1, round(size * self.mobility))
        movement = self.movement.again()
        for number in range(1, count + 1):
            rng = np.random.default_rng([self.seed, 7, number])
            rows = rng.choice(size, moving, replace=False)
            now = number * self.step_seconds * 1_000_000
            rng = np.random.default_rng([self.seed, 8, number])
            arrived = _messages(rng, self.source, self.arrivals, now, self.step_seconds)
            yield Step(rows, _boxes(movement.move(rows), self.half), arrived, now)


def make_moving(
    messages: str = "tweets-like",
    roads: str = "town",
    *,
    subscriptions: int = config.MOVING_SUBSCRIPTIONS,
    valid: int = config.MOVING_MESSAGES,
    arrivals: int | None = None,
    mobility: float = config.MOVING_MOBILITY,
    speed: float = 1.0,
    area: float = config.MOVING_AREA,
    seed: int = 0,
    data: Path | None = None,
) -> MovingWorkload:
    """Return a workload of moving subscriptions.

    Parameters
    ----------
    messages, roads
        One of :data:`MESSAGES` and one of :data:`MOVEMENTS`.
    subscriptions, valid
        The number of subscriptions, and of messages that are valid at the beginning.
    arrivals
        The messages that arrive in a step; by default as many as expire, a tenth of *valid*.
    mobility
        The share of the subscriptions that move in a step. The others stay where they are.
    speed
        Multiplies all speeds; 1 is what the paper calls medium. The taxis have their own.
    area
        The area of a region as a share of the data space.
    seed
        The same seed gives the same workload.
    data
        The directory of the real data, where that is asked for.
    """
    for what, number in (("subscriptions", subscriptions), ("valid messages", valid)):
        if number < 1:
            raise InputError(f"a workload cannot have {number} {what}; give at least 1")
    for what, share in (("mobility", mobility), ("area", area)):
        if not 0 < share <= 1:
            raise InputError(f"{what} is a share above 0 and up to 1, not {share}")
    if not 0 < speed < np.inf:
        raise InputError(f"the speed is a number above 0, not {speed}")
    source = message_source(messages, seed, data)
    movement: Movement
    if roads == "taxis":
        movement, seconds = taxis(_given(data, "taxis"), subscriptions, seed), config.TAXI_STEP_S
    elif roads in MOVEMENTS:
        movement, seconds = (
            Trips(_road_map(roads, seed, data), subscriptions, seed, speed),
            config.MOVING_STEP_S,
        )
    else:
        raise UnknownError(f"no roads {shown(roads)}; there are {', '.join(MOVEMENTS)}")
    arriving = max(1, valid // config.MOVING_LIFE_STEPS) if arrivals is None else arrivals
    rng = np.random.default_rng([seed, 5])
    return MovingWorkload(
        name=f"{messages}-{roads}",
        seed=seed,
        description=f"{messages} messages; subscriptions move: {roads}",
        subscriptions=_subscriptions(rng, source, movement.points, area),
        messages=_messages(np.random.default_rng([seed, 6]), source, valid, 0, seconds),
        arrivals=arriving,
        mobility=mobility,
        half=float(np.sqrt(area)) / 2,
        step_seconds=seconds,
        movement=movement,
        source=source,
        facts={
            **source.facts,
            **movement.facts,
            "keywords_per_subscription": list(config.AP_KEYWORDS),
            "area_share": area,
            "mobility": mobility,
            "arrivals": arriving,
            "mean_life_steps": config.MOVING_LIFE_STEPS,
            "step_seconds": seconds,
        },
    )


def message_source(name: str, seed: int = 0, data: Path | None = None) -> Source:
    """Return the source of messages *name*, one of :data:`MESSAGES`."""
    if name not in MESSAGES:
        raise UnknownError(f"no messages {shown(name)}; there are {', '.join(MESSAGES)}")
    world = np.random.default_rng([seed, 9])
    if name in TEXT_FILES:
        return _real(world, name, _given(data, name))
    vocabulary, keywords, cities, spread, background = config.AP_DATASETS[name.removesuffix("-like")]
    law = sampling.zipf(vocabulary, config.AP_EXPONENT)
    clusters = sampling.clustered(world, UNIT_SQUARE, cities, spread, background)

    def drawn(rng: np.random.Generator, count: int) -> Rows:
        return sampling.places(rng, clusters, count), sampling.distinct_words(rng, law, count, keywords)

    facts = {"vocabulary": vocabulary, "zipf_exponent": config.AP_EXPONENT, "keywords_per_message": keywords}
    return Source(drawn, drawn, facts)


def _real(world: np.random.Generator, name: str, data: Path) -> Source:
    """Return real texts, drawn with repetition: a random half are messages, the others lend words to subscriptions."""
    points, rows, vocabulary = texts(name, data)
    unit = (points - CONTIGUOUS_US.low) / CONTIGUOUS_US.size
    halves = np.array_split(world.permutation(len(points)), 2)

    def draw(half: NDArray[np.int64]) -> Callable[[np.random.Generator, int], Rows]:
        def drawn(rng: np.random.Generator, count: int) -> Rows:
            chosen = rng.choice(half, count)
            return unit[chosen], sampling.take(rows, chosen)

        return drawn

    facts = {
        "rows": len(points),
        "vocabulary": len(vocabulary),
        "keywords_per_message": round(rows.words.size / len(points), 2),
    }
    return Source(draw(halves[0]), draw(halves[1]), facts)


def _subscriptions(
    rng: np.random.Generator, source: Source, centres: NDArray[np.float64], area: float
) -> SubscriptionTable:
    """Return subscriptions around the centres, with words of messages; made in pieces, which bounds the memory."""
    pieces = []
    for part in np.split(centres, np.cumsum(sampling.in_chunks(len(centres)))[:-1]):
        _, words = source.others(rng, len(part))
        pieces.append(
            sampling.regions_from(
                rng, part, words, UNIT_SQUARE, keywords=config.AP_KEYWORDS, area=(area, area)
            )
        )
    boxes, words = sampling.joined(pieces)
    return SubscriptionTable.from_arrays(boxes, *words, space=Planar(*UNIT_SQUARE))


def _messages(
    rng: np.random.Generator, source: Source, count: int, now: int, step_seconds: int
) -> MessageBatch:
    """Return messages that are published now, each with its own life."""
    points, words = source.messages(rng, count)
    life = rng.exponential(config.MOVING_LIFE_STEPS * step_seconds * 1e6, count).astype(np.int64) + 1
    return MessageBatch.from_arrays(
        points,
        *words,
        published_at=np.full(count, now),
        expires_at=now + life,
        space=Planar(*UNIT_SQUARE),
    )


def _boxes(centres: NDArray[np.float64], half: float) -> NDArray[np.float64]:
    return np.hstack([centres - half, centres + half])


def _given(data: Path | None, name: str) -> Path:
    if data is None:
        raise InputError(f"{name!r} are real data; give their directory with --data DIR")
    return data


@lru_cache(maxsize=len(ROADS))  # the experiments make many workloads on one map
def _road_map(name: str, seed: int, data: Path | None) -> RoadNetwork:
    return road_map(name, seed, data)
