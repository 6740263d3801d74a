"""Boxes of places: a few around many, and the cells of a curve along which near places are stored together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast import config

__all__ = ["bounding_boxes", "cells", "touching"]


def bounding_boxes(boxes: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Return at most *most* boxes that contain the given ones: columns of similar longitude, cut by latitude.

    >>> bounding_boxes(np.array([[0.0, 0, 1, 1], [50, 0, 51, 1], [0, 2, 1, 3]]), 2).tolist()
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
    filled = [boxes[group] for group in groups if len(group)]
    return np.array([[*group[:, :2].min(axis=0), *group[:, 2:].max(axis=0)] for group in filled])


def touching(boxes: NDArray[np.float64], box: tuple[float, ...]) -> NDArray[np.bool_]:
    """Return which of the boxes touch *box*."""
    xmin, ymin, xmax, ymax = box
    return (boxes[:, 0] <= xmax) & (boxes[:, 2] >= xmin) & (boxes[:, 1] <= ymax) & (boxes[:, 3] >= ymin)


def cells(boxes: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the cell of the middle of each box in degrees: its number on a Z-curve, which keeps near cells close."""
    bits = config.LIVE_VALID_CELL_BITS
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    positions = np.clip((middles / [360, 180] + 0.5) * (1 << bits), 0, (1 << bits) - 1).astype(np.int32)
    numbers = np.zeros(len(boxes), np.int32)
    for bit in range(bits):
        for axis in (0, 1):
            numbers |= (positions[:, axis] >> bit & 1) << (2 * bit + axis)
    return numbers
