"""Road networks: invented ones, real ones from a data directory, and the shortest paths on them.

Nodes lie in the unit square, and roads are straight between them. The data do not say which roads are fast, so classes
are invented: the shortest paths between a few random pairs of nodes are main roads, those between even fewer are fast
roads, and all others are side roads. So fast roads are continuous, as on a real map. The speed limit of each class is
in ``MOVING_ROAD_SPEEDS``.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast import config
from nearcast.errors import InputError, UnknownError, shown
from nearcast.kernels import kernel
from nearcast.workloads.files import data_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MAPS", "ROADS", "Arcs", "RoadNetwork", "invented", "network", "road_map"]

#: Real maps: name, and name in the data.
MAPS = {"oldenburg": "oldenburg", "san-joaquin": "san_joaquin"}
#: All road networks by name.
ROADS = (*config.MOVING_GRIDS, *MAPS)


class Arcs(NamedTuple):
    """Roads by direction: those that begin at node n are ``first[n]`` to ``first[n + 1]``."""

    first: NDArray[np.int64]
    start: NDArray[np.int32]
    end: NDArray[np.int32]
    road: NDArray[np.int32]


@dataclass(frozen=True)
class RoadNetwork:
    """Nodes in the unit square, the roads between them, which may be used in both directions, and their classes."""

    name: str
    nodes: NDArray[np.float64]
    lengths: NDArray[np.float64]  # of the roads
    classes: NDArray[np.int8]
    arcs: Arcs
    seed: int = 0

    @property
    def limits(self) -> NDArray[np.float64]:
        """The speed limit of each road, in widths of the map per step."""
        return np.array(config.MOVING_ROAD_SPEEDS)[self.classes]

    @cached_property
    def ways(self) -> NDArray[np.int32]:
        """The trees of fastest paths to ``MOVING_DESTINATIONS`` random nodes, or to all nodes if there are fewer."""
        rng, size = np.random.default_rng([self.seed, 2]), len(self.nodes)
        targets = rng.choice(size, min(config.MOVING_DESTINATIONS, size), replace=False)
        return self.trees(targets, self.lengths / self.limits)

    def trees(self, targets: NDArray[np.int64], costs: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return for each target and each node the arc with which the cheapest path to the target begins.

        It is -1 at the target itself. *costs* are those of the roads.
        """
        found = np.empty((len(targets), len(self.nodes)), np.int32)
        for row, target in zip(found, targets):
            _tree(self.arcs, costs, target, row)
        return found


@kernel
def _tree(arcs: Arcs, costs: NDArray[np.float64], target: int, out: NDArray[np.int32]) -> None:
    """Dijkstra's algorithm from the target outwards: the way back along an arc is the arc in the other direction."""
    first, ends, starts, roads = arcs.first, arcs.end, arcs.start, arcs.road
    distance = np.full(out.size, np.inf)
    out[:] = -1
    distance[target] = 0.0
    heap = [(0.0, np.int64(target))]
    while len(heap):
        far, node = heapq.heappop(heap)
        if far > distance[node]:
            continue  # a shorter path was found since
        for arc in range(first[node], first[node + 1]):
            other, total = ends[arc], far + costs[roads[arc]]
            if total < distance[other]:
                distance[other] = total
                heapq.heappush(heap, (total, np.int64(other)))
                for back in range(first[other], first[other + 1]):
                    if roads[back] == roads[arc] and ends[back] == starts[arc]:
                        out[other] = back


def road_map(name: str, seed: int = 0, data: Path | None = None) -> RoadNetwork:
    """Return the road network *name*; *data* is the directory of the real maps. Classes depend on the seed."""
    if name not in ROADS:
        raise UnknownError(f"no roads {shown(name)}; there are {', '.join(ROADS)}")
    if name in config.MOVING_GRIDS:
        return invented(config.MOVING_GRIDS[name], seed, name)
    if data is None:
        raise InputError(f"the roads {name!r} are real data; give its directory with --data DIR")
    columns: dict[str, NDArray[Any]] = {}
    for file, wanted in (
        ("road_nodes.parquet", ("node_id", "x", "y")),
        ("road_edges.parquet", ("from_node", "to_node")),
    ):
        table = pq.read_table(data_file(file, data), columns=["network", *wanted])
        table = table.filter(pc.equal(table["network"], MAPS[name]))
        columns |= {column: table[column].to_numpy() for column in wanted}
    order = np.argsort(columns["node_id"])
    nodes = np.column_stack([columns["x"], columns["y"]])[order]
    nodes = (nodes - nodes.min(axis=0)) / np.ptp(nodes, axis=0).max()
    ends = np.column_stack([columns["from_node"], columns["to_node"]])
    return network(name, nodes, np.searchsorted(columns["node_id"][order], ends), seed)


def invented(side: int, seed: int = 0, name: str = "grid") -> RoadNetwork:
    """Return a grid of *side* × *side* nodes, each of them moved a little at random.

    >>> invented(3).lengths.size
    12
    """
    if side < 2:
        raise InputError(f"a grid of {side} × {side} nodes has no roads; give at least 2")
    rng = np.random.default_rng([seed, 0])
    number = np.arange(side * side).reshape(side, side)
    places = np.stack(np.divmod(number.ravel(), side), axis=1)
    nodes = (places + 0.5 + rng.uniform(-1, 1, places.shape) * config.MOVING_GRID_JITTER) / side
    across = np.column_stack([number[:, :-1].ravel(), number[:, 1:].ravel()])
    along = np.column_stack([number[:-1].ravel(), number[1:].ravel()])
    return network(name, nodes, np.concatenate([across, along]), seed)


def network(name: str, nodes: NDArray[np.float64], ends: NDArray[np.int64], seed: int = 0) -> RoadNetwork:
    """Return the network with the roads between these *ends*, and invent the classes of the roads."""
    count = len(ends)
    start, end = np.concatenate([ends, ends[:, ::-1]]).T
    order = np.argsort(start, kind="stable")
    arcs = Arcs(
        np.searchsorted(start[order], np.arange(len(nodes) + 1)),
        start[order].astype(np.int32),
        end[order].astype(np.int32),
        (order % count).astype(np.int32),
    )
    lengths = np.hypot(*(nodes[ends[:, 0]] - nodes[ends[:, 1]]).T)
    made = RoadNetwork(name, nodes, lengths, np.zeros(count, np.int8), arcs, seed)
    if (made.trees(np.zeros(1, np.int64), lengths)[0, 1:] < 0).any():
        raise InputError(f"the roads {name!r} are not connected; every node must be reached from every other")
    rng = np.random.default_rng([seed, 1])
    for level, paths in enumerate(config.MOVING_ROAD_PATHS, 1):
        pairs = rng.integers(len(nodes), size=(paths, 2))
        for tree, node in zip(made.trees(pairs[:, 0], lengths), pairs[:, 1]):
            while (arc := tree[node]) >= 0:
                made.classes[arcs.road[arc]] = level
                node = arcs.end[arc]
    return made
