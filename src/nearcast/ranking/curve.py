"""The Z-curve: places that are close on it are close in space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cube", "cube_of", "z_order"]


class Cube(NamedTuple):
    """A cube that contains places: its lowest corner and the length of its edges."""

    low: NDArray[np.float64]
    extent: float


def cube_of(places: NDArray[np.float64]) -> Cube:
    """Return the smallest cube at the lowest corner of three-dimensional places that contains them all."""
    low = places.min(axis=0, initial=np.inf)
    return Cube(low, max(float((places.max(axis=0, initial=-np.inf) - low).max(initial=0.0)), 1e-300))


def z_order(places: NDArray[np.float64], cube: Cube | None = None) -> NDArray[np.uint64]:
    """Return the positions of three-dimensional places on a Z-curve through a cube, by default that of the places."""
    low, extent = cube or cube_of(places)
    out = np.empty(len(places), np.uint64)
    _curve(places, low, (2**20 - 1) / extent, out)
    return out


@kernel
def _spread(value: int) -> Any:
    """Return the lowest 20 bits of a number, with two zeros between neighbouring bits."""
    x = np.uint64(value)
    x = (x | (x << np.uint64(32))) & np.uint64(0x1F00000000FFFF)
    x = (x | (x << np.uint64(16))) & np.uint64(0x1F0000FF0000FF)
    x = (x | (x << np.uint64(8))) & np.uint64(0x100F00F00F00F00F)
    x = (x | (x << np.uint64(4))) & np.uint64(0x10C30C30C30C30C3)
    return (x | (x << np.uint64(2))) & np.uint64(0x1249249249249249)


@kernel
def _curve(
    places: NDArray[np.float64], low: NDArray[np.float64], scale: float, out: NDArray[np.uint64]
) -> None:
    for i in range(len(places)):
        x = _spread(int((places[i, 0] - low[0]) * scale))
        y = _spread(int((places[i, 1] - low[1]) * scale))
        z = _spread(int((places[i, 2] - low[2]) * scale))
        out[i] = x | (y << np.uint64(1)) | (z << np.uint64(2))
