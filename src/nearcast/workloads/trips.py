"""Vehicles that travel on roads, in the manner of Brinkhoff's generator.

The generator is described in Brinkhoff, "A Framework for Generating Network-Based Moving Objects" (2002). A vehicle
starts at a random node and takes the fastest path to a random destination; there it starts the next trip. On each road
it is as fast as the road and the vehicle allow. Unlike there, destinations are a few hundred nodes that all trips
share, so that each needs one tree of shortest paths; paths are those for a vehicle that is as fast as the roads allow;
vehicles do not hinder each other; and none leaves the map.

Classes of roads and of vehicles are invented (:mod:`.roads`, ``MOVING_ROAD_SPEEDS``, ``MOVING_VEHICLE_SPEEDS``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel
from nearcast.workloads.roads import Arcs

if TYPE_CHECKING:
    from nearcast.workloads.roads import RoadNetwork

__all__ = ["Movement", "Trips", "Vehicles"]


class Movement(Protocol):
    """Objects that move in steps; each call continues where the last one stopped."""

    @property
    def points(self) -> NDArray[np.float64]:
        """The places of all objects now, in the unit square."""

    @property
    def facts(self) -> dict[str, Any]:
        """The numbers that define the movement, for a report."""

    def move(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Let one step pass, in which the objects in *rows* move; return their new places."""

    def again(self) -> Movement:
        """Return the same movement from its beginning."""


class Vehicles(NamedTuple):
    """The vehicles as columns."""

    arc: NDArray[np.int32]  # the road on which each is, and its direction
    done: NDArray[np.float64]  # how far it has come on it
    destination: NDArray[np.int32]  # a row of the trees
    top_speed: NDArray[np.float64]  # in widths of the map per step

    def copy(self) -> Vehicles:
        """Return a copy that can travel by itself."""
        return Vehicles(self.arc.copy(), self.done.copy(), self.destination.copy(), self.top_speed)


class _Map(NamedTuple):
    """What the kernels know about the roads."""

    nodes: NDArray[np.float64]
    arcs: Arcs
    lengths: NDArray[np.float64]
    limits: NDArray[np.float64]
    trees: NDArray[np.int32]


class Trips:
    """Vehicles on a road network; *speed* multiplies all speeds, of roads and of vehicles.

    At the beginning each has been under way for a while, up to ``MOVING_UNDER_WAY`` steps.
    """

    def __init__(self, roads: RoadNetwork, count: int, seed: int = 0, speed: float = 1.0) -> None:
        self.roads, self.speed = roads, speed
        self._seed = seed
        self._map = _Map(roads.nodes, roads.arcs, roads.lengths, roads.limits * speed, roads.ways)
        rng = np.random.default_rng([seed, 4])
        top = rng.choice(config.MOVING_VEHICLE_SPEEDS, count) * speed
        self.vehicles = Vehicles(
            np.empty(count, np.int32), np.zeros(count), np.zeros(count, np.int32), top.astype(np.float64)
        )
        _depart(rng, self._map, self.vehicles, rng.integers(len(roads.nodes), size=count))
        everyone = np.arange(count)
        _advance(rng, self._map, self.vehicles, everyone, rng.uniform(0, config.MOVING_UNDER_WAY, count))
        self._first = self.vehicles.copy()
        self._rng = np.random.default_rng([seed, 3])

    @property
    def points(self) -> NDArray[np.float64]:
        """The places of all vehicles now, in the unit square."""
        return _places(self._map, self.vehicles, np.arange(len(self.vehicles.arc)))

    @property
    def facts(self) -> dict[str, Any]:
        """The numbers that define the movement."""
        return {
            "roads": self.roads.name,
            "nodes": len(self.roads.nodes),
            "road_speeds": list(config.MOVING_ROAD_SPEEDS),
            "road_shares": np.bincount(
                self.roads.classes,
                self.roads.lengths / self.roads.lengths.sum(),
                len(config.MOVING_ROAD_SPEEDS),
            )
            .round(3)
            .tolist(),
            "vehicle_speeds": list(config.MOVING_VEHICLE_SPEEDS),
            "speed": self.speed,
            "destinations": len(self._map.trees),
        }

    def move(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Let the vehicles in *rows* travel for one step; return their new places."""
        _advance(self._rng, self._map, self.vehicles, rows, np.ones(len(rows)))
        return _places(self._map, self.vehicles, rows)

    def again(self) -> Trips:
        """Return the same trips from the beginning; the map and its trees are shared."""
        other = object.__new__(Trips)
        other.__dict__.update(self.__dict__)
        other.vehicles = self._first.copy()
        other._rng = np.random.default_rng([self._seed, 3])
        return other


@kernel
def _next_trip(rng: np.random.Generator, roads: _Map, vehicles: Vehicles, row: int, node: int) -> None:
    """Choose a destination other than *node*, and the first road on the way."""
    arc = -1
    while arc < 0:
        vehicles.destination[row] = int(rng.random() * len(roads.trees))
        arc = roads.trees[vehicles.destination[row], node]
    vehicles.arc[row] = arc


@kernel
def _depart(rng: np.random.Generator, roads: _Map, vehicles: Vehicles, nodes: NDArray[np.int64]) -> None:
    """Begin the first trip of each vehicle, at the given nodes."""
    for row in range(nodes.size):
        _next_trip(rng, roads, vehicles, row, nodes[row])


@kernel
def _advance(
    rng: np.random.Generator,
    roads: _Map,
    vehicles: Vehicles,
    rows: NDArray[np.int64],
    steps: NDArray[np.float64],
) -> None:
    """Let each of the vehicles in *rows* travel for its number of steps."""
    for i in range(rows.size):
        row, left = rows[i], steps[i]
        while True:
            arc = vehicles.arc[row]
            road = roads.arcs.road[arc]
            speed = min(roads.limits[road], vehicles.top_speed[row])
            ahead = roads.lengths[road] - vehicles.done[row]
            if ahead > left * speed:
                vehicles.done[row] += left * speed
                break
            left -= ahead / speed
            vehicles.done[row] = 0.0
            node = roads.arcs.end[arc]
            following = roads.trees[vehicles.destination[row], node]
            if following >= 0:
                vehicles.arc[row] = following
            else:
                _next_trip(rng, roads, vehicles, row, node)


@kernel
def _places(roads: _Map, vehicles: Vehicles, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the places of the vehicles in *rows*."""
    out = np.empty((rows.size, 2))
    for i in range(rows.size):
        arc = vehicles.arc[rows[i]]
        length = roads.lengths[roads.arcs.road[arc]]
        share = vehicles.done[rows[i]] / length if length > 0 else 0.0
        for axis in range(2):
            begin, end = roads.nodes[roads.arcs.start[arc], axis], roads.nodes[roads.arcs.end[arc], axis]
            out[i, axis] = begin + share * (end - begin)
    return out
