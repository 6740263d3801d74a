"""Taxis of San Francisco: recorded positions, replayed.

There are a few hundred cabs and four days. Each subscriber follows one of the cabs with a shift in time of up to two
days, so that many thousand subscribers are on the way at different places. Positions are interpolated between reports
and given once a minute. Where a receiver jumped, the position follows at ``TAXI_MAX_KMH``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast import config
from nearcast.errors import InputError
from nearcast.kernels import kernel
from nearcast.workloads.files import data_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Taxis", "Traces", "taxi_traces", "taxis"]


class Traces(NamedTuple):
    """Recorded positions of cabs, cab by cab, and those of a cab in order of time."""

    cabs: NDArray[np.int64]
    times: NDArray[np.int64]  # seconds
    points: NDArray[np.float64]  # lon, lat


class Taxis:
    """Subscribers in cabs. ``metres`` is the width of the unit square in which they are.

    >>> track = np.array([[[0.0, 0.0], [0.1, 0.1], [0.2, 0.2], [0.3, 0.3]]])  # one cab, four minutes
    >>> cabs = Taxis(track, np.array([0, 0]), np.array([0, 1]), metres=1000.0)
    >>> cabs.points[:, 0], cabs.move(np.array([1]))[:, 0]
    (array([0. , 0.1]), array([0.2]))
    """

    def __init__(
        self,
        tracks: NDArray[np.float64],
        cabs: NDArray[np.int64],
        shifts: NDArray[np.int64],
        metres: float,
    ) -> None:
        self.tracks, self.cabs, self.shifts = tracks, cabs, shifts
        self.metres = metres
        self.steps = tracks.shape[1] - 1 - int(shifts.max())  # that can be replayed
        self._now = 0

    @property
    def points(self) -> NDArray[np.float64]:
        """The places of all subscribers now, in the unit square."""
        return self.tracks[self.cabs, self.shifts + self._now]

    @property
    def facts(self) -> dict[str, Any]:
        """The numbers that define the movement."""
        return {
            "roads": "taxis",
            "cabs": len(self.tracks),
            "step_seconds": config.TAXI_STEP_S,
            "max_kmh": config.TAXI_MAX_KMH,
            "metres": round(self.metres),
        }

    def move(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Let one step pass; return where the subscribers in *rows* are now."""
        if self._now >= self.steps:
            raise InputError(f"the traces of the taxis end after {self.steps:,} steps; ask for fewer")
        self._now += 1
        return self.tracks[self.cabs[rows], self.shifts[rows] + self._now]

    def again(self) -> Taxis:
        """Return the same movement from its beginning."""
        return Taxis(self.tracks, self.cabs, self.shifts, self.metres)


def taxi_traces(data: Path) -> Traces:
    """Return the traces of taxis in the directory *data*."""
    table = pq.read_table(data_file("traces.parquet", data), columns=["object_id", "ts", "lon", "lat"])
    cabs, times, lon, lat = (column.to_numpy() for column in table.columns)
    order = np.lexsort((times, cabs))
    return Traces(cabs[order], times[order], np.column_stack([lon, lat])[order])


def taxis(data: Path, subscribers: int = config.TAXI_SUBSCRIBERS, seed: int = 0) -> Taxis:
    """Return *subscribers* in the cabs of the traces in the directory *data*."""
    cab, time, points = taxi_traces(data)
    lon, lat = points.T
    # On an area this small, degrees become metres by a factor for each axis.
    metre = np.radians(1.0) * config.EARTH_RADIUS_M
    x = (lon - lon.min()) * metre * np.cos(np.radians((lat.min() + lat.max()) / 2))
    y = (lat - lat.min()) * metre
    width = float(max(x.max(), y.max()))
    minutes = np.arange(time.min(), time.max() + 1, config.TAXI_STEP_S)
    bounds = np.searchsorted(cab, np.append(np.unique(cab), cab[-1] + 1))
    tracks = np.empty((len(bounds) - 1, len(minutes), 2))
    for track, begin, end in zip(tracks, bounds, bounds[1:]):
        own = slice(begin, end)
        for axis, values in enumerate((x, y)):
            track[:, axis] = np.interp(minutes, time[own], values[own]) / width
    farthest = config.TAXI_MAX_KMH / 3.6 * config.TAXI_STEP_S
    _limit(tracks, farthest / width)
    rng = np.random.default_rng([seed, 10])
    return Taxis(
        tracks,
        rng.integers(len(tracks), size=subscribers),
        rng.integers(len(minutes) // 2, size=subscribers),
        width,
    )


@kernel
def _limit(tracks: NDArray[np.float64], farthest: float) -> None:
    """Let no track come farther than this in one step: it follows a jump at the highest speed."""
    for cab in range(tracks.shape[0]):
        for i in range(1, tracks.shape[1]):
            x, y = tracks[cab, i - 1]
            dx, dy = tracks[cab, i, 0] - x, tracks[cab, i, 1] - y
            way = np.hypot(dx, dy)
            if way > farthest:
                tracks[cab, i, 0] = x + dx / way * farthest
                tracks[cab, i, 1] = y + dy / way * farthest
