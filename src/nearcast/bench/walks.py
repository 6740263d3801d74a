"""Where subscribers are, second by second: taxis shifted in time, or random walks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.workloads.taxis import taxi_traces

__all__ = ["Walks", "taxi_walks", "walks"]

_KM_DEG = 180 / (np.pi * config.EARTH_RADIUS_M / 1000)  # degrees of latitude in a kilometre


class Walks(NamedTuple):
    """Subscribers that walk: where each begins, and every position that it measures afterwards, in order of time."""

    name: str
    begin: NDArray[np.float64]  # lon, lat
    offsets: NDArray[np.int64]  # the positions measured in second s are offsets[s] to offsets[s + 1]
    who: NDArray[np.int64]
    where: NDArray[np.float64]  # lon, lat
    spots: NDArray[np.float64]  # where messages may be: lon, lat


def walks(count: int, seconds: int, seed: int, data: Path | None) -> Walks:
    """Return the walks of *count* subscribers: those of taxis, if there is data."""
    return random_walks(count, seconds, seed) if data is None else taxi_walks(data, count, seconds, seed)


def taxi_walks(data: Path, count: int, seconds: int, seed: int) -> Walks:
    """Return taxis that begin at random times of their traces; each trace is used by many subscribers."""
    cab, ts, points = taxi_traces(data)
    starts = np.flatnonzero(np.r_[True, cab[1:] != cab[:-1]])
    ends = np.r_[starts[1:], len(cab)]
    rng = np.random.default_rng([seed, 1])
    begin, times, who, where = [], [], [], []
    for number in range(count):
        which = number % len(starts)
        own = slice(starts[which], ends[which])
        first, last = ts[own][0], max(ts[own][-1] - seconds, ts[own][0] + 1)
        begun = int(rng.integers(first, last))
        low, high = np.searchsorted(ts[own], [begun, begun + seconds], side="right")
        begin.append(points[own][max(low - 1, 0)])
        times.append(ts[own][low:high] - begun - 1)
        who.append(np.full(high - low, number))
        where.append(points[own][low:high])
    spots = points[rng.integers(0, len(points), config.WALK_SPOTS)]
    return _sorted("taxis", np.array(begin), times, who, where, spots, seconds)


def random_walks(count: int, seconds: int, seed: int) -> Walks:
    """Return subscribers who walk straight on for a while, in a city of 20 km; they measure every minute."""
    rng = np.random.default_rng([seed, 1])
    side = config.WALK_CITY_KM * _KM_DEG
    here = rng.uniform(-side / 2, side / 2, (count, 2))
    steps = seconds // config.WALK_STEP_S
    phase = rng.integers(0, config.WALK_STEP_S, count)
    angle = rng.uniform(0, 2 * np.pi, count)
    pace = rng.uniform(0, config.WALK_STEP_KM * _KM_DEG, count)
    begin, times, who, where = here.copy(), [], [], []
    for step in range(steps):
        turning = rng.random(count) < config.WALK_TURNS
        angle[turning] = rng.uniform(0, 2 * np.pi, int(turning.sum()))
        here = here + np.column_stack([np.cos(angle), np.sin(angle)]) * pace[:, None]
        here = np.clip(here, -side / 2, side / 2)
        times.append(phase + step * config.WALK_STEP_S)
        who.append(np.arange(count))
        where.append(here)
    spots = rng.uniform(-side / 2, side / 2, (config.WALK_SPOTS, 2))
    return _sorted("random walks", begin, times, who, where, spots, seconds)


def _sorted(
    name: str,
    begin: NDArray[np.float64],
    times: list[NDArray[np.int64]],
    who: list[NDArray[np.int64]],
    where: list[NDArray[np.float64]],
    spots: NDArray[np.float64],
    seconds: int,
) -> Walks:
    """Return walks with their positions in the order of time; of several in the same second, the last one counts."""
    at, whose = np.concatenate(times).astype(np.int64), np.concatenate(who)
    order = np.lexsort((whose, at))
    at, whose, places = at[order], whose[order], np.concatenate(where)[order]
    last = np.r_[(at[1:] != at[:-1]) | (whose[1:] != whose[:-1]), len(at) > 0]
    at, whose, places = at[last], whose[last], places[last]
    return Walks(name, begin, np.searchsorted(at, np.arange(seconds + 1)), whose, places, spots)
