"""What the movement of clauses costs (section 4.3.1): a price that an s-node pays, and a k-node does not.

The section is that of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe"
(2015). A *timestamp* is the time in which every clause moves once, so the paper's T_upd is 1, and r_m is the number of
messages in that time. Costs here are those of one message, as everywhere in the tree: what the paper adds up for a
timestamp (equations 14 and 15) is divided by r_m. Two departures:

- *What a grid causes is what it pays for.* The velocity weight ζ counts the cells of the grid that a clause passes, not
  the regions of the node: a clause that leaves the node's region moves because of the s-nodes above, whatever this node
  is. With the region of the node the root would pay nothing, because nobody leaves the plane.
- *Algorithm 8 doubles its steps.* It looks at timestamps 1, 2, 4 … and at a sample of the clauses, so it takes
  O(log T_max) looks instead of T_Δ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.kernels import kernel
from nearcast.matching.structures.ap_tree.layout import Motion

__all__ = ["STILL", "Travels", "movement_cost", "rounded", "time_to_rebuild"]

STILL = Motion(np.empty((0, 2), np.float32), 0.0, np.inf)

_HORIZON = config.AP_PLUS_HORIZON
_SAMPLE = config.AP_PLUS_SAMPLE
_STEP = config.AP_PLUS_STEP


class Travels:
    """Where clauses stand in the tree, and how they move: by row, a box and a velocity."""

    def __init__(self, store: ClauseStore, divergence: float) -> None:
        self._store = store
        self._divergence = divergence
        self._boxes = GrowableArray(np.empty((0, 4), np.float32), borrowed=False)
        self._velocities = GrowableArray(np.empty((0, 2), np.float32), borrowed=False)
        self._moves = self._messages = 0.0

    @property
    def nbytes(self) -> int:
        """Memory."""
        return self._boxes.nbytes + self._velocities.nbytes

    @property
    def moves(self) -> float:
        """The moves of a clause for each message, as far as is known: T_upd = 1, so this is 1 / r_m."""
        return self._moves / max(self._messages, 1.0) / max(self._store.living, 1)

    @property
    def speed(self) -> float:
        """How far a clause goes with a move, on average."""
        living = np.flatnonzero(self._store.alive[: len(self._velocities.values)])
        return float(np.hypot(*self._velocities.values[living].T).mean()) if len(living) else 0.0

    def boxes(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the boxes under which clauses stand in the tree."""
        return self._boxes.values[rows]

    def of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], Motion]:
        """Return where clauses are, and how they move."""
        return self.boxes(rows), Motion(self._velocities.values[rows], self.moves, self._divergence)

    def place(self, rows: NDArray[np.int64]) -> None:
        """Take the boxes of clauses that come, and do not move yet."""
        self._boxes.reach(self._store.rows)[rows] = rounded(self._store.clauses.boxes[rows])
        self._velocities.reach(self._store.rows)[rows] = 0.0

    def refresh(self, rows: NDArray[np.int64]) -> None:
        """Take the boxes of clauses, some of which may be new."""
        known = len(self._velocities.values)
        self._velocities.reach(self._store.rows)[known:] = 0.0
        self._boxes.reach(self._store.rows)[rows] = rounded(self._store.clauses.boxes[rows])

    def move(self, rows: NDArray[np.int64], boxes: NDArray[np.float32]) -> None:
        """Take the new boxes of clauses that have moved; their velocities are running means."""
        with np.errstate(invalid="ignore", over="ignore"):
            shift = boxes - self._boxes.values[rows]
            shift = (shift[:, :2] + shift[:, 2:]) / 2
        shift[~np.isfinite(shift)] = 0.0
        velocities = self._velocities.values[rows]
        self._velocities.values[rows] = velocities + config.AP_PLUS_VELOCITY * (shift - velocities)
        self._boxes.values[rows] = boxes
        self._moves += len(rows)

    def meet(self, messages: int) -> None:
        """Count messages. What is long ago counts for less and less."""
        self._messages += messages
        if self._messages > 2 * max(self._store.living, config.AP_TREE_AT_ONCE):
            self._messages, self._moves = self._messages / 2, self._moves / 2


def rounded(boxes: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return boxes as float32."""
    with np.errstate(over="ignore"):
        return boxes.astype(np.float32)


@kernel
def movement_cost(
    motion: Motion,
    boxes: NDArray[np.float32],
    members: NDArray[np.int32],
    region: NDArray[np.float32],
    columns: NDArray[np.float32],
    rows: NDArray[np.float32],
    depth: int,
    words: int,
    fanout: int,
    leaf: float,
) -> Any:
    """Return what a grid costs because clauses move: C_slu (equation 9) and C_irc (equation 13), for one message."""
    velocities = motion.velocities
    width = (region[2] - region[0]) / (columns.size + 1)
    height = (region[3] - region[1]) / (rows.size + 1)
    if not (width > 0.0 and height > 0.0):
        return 0.0
    passed = 0.0
    for c in members:
        passed += min(1.0, abs(velocities[c, 0]) / width + abs(velocities[c, 1]) / height)  # min(1, ζ)
    if passed == 0.0:
        return 0.0
    steps = np.log2(fanout)
    update = 2.0 * passed * (depth + 1) * steps
    size = members.size
    levels = max(np.log(size / leaf) / np.log(fanout), 0.0) + 1.0  # equation 11
    rebuild = (size * steps + size * np.sqrt(fanout) + fanout * words) * levels  # equation 12
    rebuild /= time_to_rebuild(motion, boxes, members, columns, rows)
    return motion.moves * _STEP * (update + rebuild)


@kernel
def time_to_rebuild(
    motion: Motion,
    boxes: NDArray[np.float32],
    members: NDArray[np.int32],
    columns: NDArray[np.float32],
    rows: NDArray[np.float32],
) -> Any:
    """Return T_Δ: after how many timestamps the weights of the cells diverge too far (Algorithm 8)."""
    velocities = motion.velocities
    step = max(members.size // _SAMPLE, 1)
    n = (members.size + step - 1) // step
    parts = (columns.size + 1) * (rows.size + 1)
    old, now = np.zeros(parts), np.zeros(parts)
    homes = np.empty(n, np.int64)
    for i in range(n):  # line 2
        c = members[i * step]
        homes[i] = _cell(boxes, velocities, c, 0.0, columns, rows)
        old[homes[i]] += 1.0
    free = parts - 1
    time = 1
    while time < _HORIZON:  # lines 3 to 9
        now[:] = 0.0
        changes = 0
        for i in range(n):  # line 5
            cell = _cell(boxes, velocities, members[i * step], time, columns, rows)
            now[cell] += 1.0
            changes += 2 * (cell != homes[i])
        total = n + 0.5 * parts
        found = 0.0
        for part in range(parts):
            share = (old[part] + 0.5) / total
            found += share * np.log(share * total / (now[part] + 0.5))
        # What chance explains does not count, as in ``maintain.divergence``.
        chance = (2.0 * free + 3.0 * np.sqrt(2.0 * free)) / 2 * changes / (total * total)
        if found - chance > motion.divergence:  # lines 6 and 7
            return time
        time *= 2
    return _HORIZON


@kernel
def _cell(
    boxes: NDArray[np.float32],
    velocities: NDArray[np.float32],
    c: int,
    time: float,
    columns: NDArray[np.float32],
    rows: NDArray[np.float32],
) -> Any:
    """Return the cell of a clause's centre after this many timestamps."""
    x = (boxes[c, 0] + boxes[c, 2]) / 2 + time * velocities[c, 0]
    y = (boxes[c, 1] + boxes[c, 3]) / 2 + time * velocities[c, 1]
    return np.searchsorted(rows, y, "right") * (columns.size + 1) + np.searchsorted(columns, x, "right")
