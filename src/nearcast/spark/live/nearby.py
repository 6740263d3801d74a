"""What is near: a few boxes for many, and cells along a curve, so that files hold what lies together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast import config

__all__ = ["cells", "packed", "touching"]


def packed(boxes: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Return boxes that contain the given ones, at most so many: columns of like longitude, cut by latitude.

    >>> packed(np.array([[0.0, 0, 1, 1], [50, 0, 51, 1], [0, 2, 1, 3]]), 2).tolist()
    [[0.0, 0.0, 1.0, 3.0], [50.0, 0.0, 51.0, 1.0]]
    """
    if len(boxes) <= most:
        return boxes
    finite = np.clip(boxes, -360, 360)
    middles = finite[:, :2] + finite[:, 2:]
    columns = int(np.ceil(np.sqrt(most)))
    groups = []
    for column in np.array_split(np.argsort(middles[:, 0], kind="stable"), columns):
        groups += np.array_split(column[np.argsort(middles[column, 1], kind="stable")], most // columns)
    around = [boxes[group] for group in groups if len(group)]
    return np.array([[*group[:, :2].min(axis=0), *group[:, 2:].max(axis=0)] for group in around])


def touching(boxes: NDArray[np.float64], box: tuple[float, ...]) -> NDArray[np.bool_]:
    """Tell which of the boxes touch *box*."""
    xmin, ymin, xmax, ymax = box
    return (boxes[:, 0] <= xmax) & (boxes[:, 2] >= xmin) & (boxes[:, 1] <= ymax) & (boxes[:, 3] >= ymin)


def cells(boxes: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the cells of the middles of boxes in degrees, numbered along a Z-curve: most neighbours are close."""
    bits = config.LIVE_VALID_CELL_BITS
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    at = np.clip((middles / [360, 180] + 0.5) * (1 << bits), 0, (1 << bits) - 1).astype(np.int32)
    found = np.zeros(len(boxes), np.int32)
    for bit in range(bits):
        for axis in (0, 1):
            found |= (at[:, axis] >> bit & 1) << (2 * bit + axis)
    return found
