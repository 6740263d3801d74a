"""Cells of the plane with about as many messages each, signatures of their words, and which boxes a move concerns.

The columns of cells are between quantiles of x, and each is cut between quantiles of its own y. A message is in the
cell of its centre.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel
from nearcast.kernels.verify import StoredProbes
from nearcast.matching.structures.packed_list.pack import copy_box, enlarge, within

__all__ = [
    "Cells",
    "add_word",
    "choose_cells",
    "concerned",
    "describe",
    "inside",
    "nowhere",
    "rounded",
    "touches",
    "widen",
]

_FAR = 1e30


class Cells(NamedTuple):
    """The borders between columns, and those between the cells of each; there are as many columns as cells in each."""

    x_knots: NDArray[np.float64]
    y_knots: NDArray[np.float64]


def choose_cells(boxes: NDArray[np.float64], cells: int) -> Cells:
    """Return *cells* columns of as many cells for messages like these."""
    centres = np.clip(boxes[:, :2] + boxes[:, 2:], -_FAR, _FAR) if len(boxes) else np.zeros((1, 2))
    shares = np.arange(1, cells) / cells
    x_knots = np.quantile(centres[:, 0], shares)
    column = np.searchsorted(x_knots, centres[:, 0], "right")
    y_knots = np.zeros((cells, cells - 1))
    for number in range(cells):
        own = centres[column == number, 1]
        y_knots[number] = np.quantile(own if len(own) else centres[:, 1], shares)
    return Cells(x_knots, y_knots)


@kernel
def add_word(word: int, first: Any, second: Any) -> Any:
    """Return the two halves of a signature with the bits of one more word."""
    mixed = np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)
    for shift in (58, 52):
        bit = (mixed >> np.uint64(shift)) & np.uint64(63)
        half = np.int32(1) << np.int32(bit & np.uint64(31))
        if bit < np.uint64(32):
            first |= half
        else:
            second |= half
    return first, second


@kernel
def describe(
    stored: StoredProbes,
    cells: Cells,
    rows: NDArray[np.int64],
    targets: NDArray[np.int32],
    signatures: NDArray[np.int32],
) -> None:
    """Write the cell of each message's centre, and the signature of its words."""
    boxes, runs, keywords = stored.boxes, stored.keyword_runs, stored.keywords
    x_knots, y_knots = cells
    count = x_knots.size + 1
    for i in range(rows.size):
        row = rows[i]
        x = within(boxes[row, 0] + boxes[row, 2])
        y = within(boxes[row, 1] + boxes[row, 3])
        column = np.searchsorted(x_knots, x, "right")
        targets[i] = column * count + np.searchsorted(y_knots[column], y, "right")
        first = second = 0
        for k in range(runs[row, 0], runs[row, 1]):
            first, second = add_word(keywords[k], first, second)
        signatures[i, 0] = first
        signatures[i, 1] = second


@kernel
def widen(
    list_boxes: NDArray[np.float32],
    column_boxes: NDArray[np.float32],
    boxes: NDArray[np.float64],
    rows: NDArray[np.int64],
    targets: NDArray[np.int32],
) -> None:
    """Enlarge the boxes around lists that have got messages, and around their columns; a last list is in none."""
    box = np.empty((1, 4), np.float32)
    for i in range(rows.size):
        copy_box(boxes, rows[i], box, 0)
        enlarge(list_boxes, targets[i], box, 0)
        column = targets[i] // column_boxes.shape[0]
        if column < column_boxes.shape[0]:
            enlarge(column_boxes, column, box, 0)


@kernel
def rounded(boxes: NDArray[np.float64], i: int) -> Any:
    """Return the sides of a box as float32, which keeps their order."""
    return (
        np.float32(boxes[i, 0]),
        np.float32(boxes[i, 1]),
        np.float32(boxes[i, 2]),
        np.float32(boxes[i, 3]),
    )


@kernel
def touches(boxes: NDArray[np.float32], i: int, box: Any) -> Any:
    """Tell whether boxes[i] may touch a box."""
    return (
        (boxes[i, 0] <= box[2]) & (boxes[i, 2] >= box[0]) & (boxes[i, 1] <= box[3]) & (boxes[i, 3] >= box[1])
    )


@kernel
def inside(boxes: NDArray[np.float32], i: int, box: Any) -> Any:
    """Tell whether boxes[i] lies inside of a box for sure: rounding may make sides equal, but never swaps them."""
    return (boxes[i, 0] > box[0]) & (boxes[i, 2] < box[2]) & (boxes[i, 1] > box[1]) & (boxes[i, 3] < box[3])


@kernel
def concerned(boxes: NDArray[np.float32], i: int, around: Any, before: Any, after: Any, kept: Any) -> Any:
    """Tell whether something in boxes[i] may be in reach before or after a move, but not both."""
    return (
        touches(boxes, i, around)
        and (touches(boxes, i, before) or touches(boxes, i, after))
        and not inside(boxes, i, kept)
    )


@kernel
def nowhere(count: int) -> NDArray[np.float64]:
    """Return this many boxes that contain nothing."""
    boxes = np.empty((count, 4))
    boxes[:, :2] = np.inf
    boxes[:, 2:] = -np.inf
    return boxes
