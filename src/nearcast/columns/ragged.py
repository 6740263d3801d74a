"""Checks arrays of boxes, codes and intervals, and works with ragged columns (as offsets or as runs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.errors import ColumnError, UnknownError, shown
from nearcast.kernels import sets
from nearcast.kernels.verify import HIGH_OPEN, LOW_OPEN, NEGATED

__all__ = [
    "box_rows",
    "check_positions",
    "checked_offsets",
    "code_sets",
    "integers",
    "interval_rows",
    "matrix",
    "offsets_of",
    "ragged_take",
    "row_numbers",
    "runs_of",
    "runs_take",
]

_MAX_VALUES = 2**31 - 1  # runs are int32


def offsets_of(counts: NDArray[Any]) -> NDArray[np.int64]:
    """Return where rows of the given lengths begin: int64[n + 1].

    >>> offsets_of(np.array([2, 0, 1]))
    array([0, 2, 2, 3])
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def ragged_take(
    offsets: NDArray[np.int64], values: NDArray[Any], rows: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return (offsets, values) of the given rows of a CSR column."""
    taken = offsets_of(offsets[rows + 1] - offsets[rows])
    out = np.empty(taken[-1], values.dtype)
    if len(out):
        sets.gather_rows(offsets, values, rows, taken, out)
    return taken, out


def runs_of(offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return where the rows of a CSR column begin and end: int32[n, 2].

    >>> runs_of(np.array([0, 2, 2, 3])).tolist()
    [[0, 2], [2, 2], [2, 3]]
    """
    if offsets[-1] > _MAX_VALUES:
        raise ColumnError(
            f"{offsets[-1]:,} values in one column; a table holds at most {_MAX_VALUES:,}, so split it"
        )
    runs = np.empty((len(offsets) - 1, 2), np.int32)
    runs[:, 0], runs[:, 1] = offsets[:-1], offsets[1:]
    return runs


def runs_take(
    runs: NDArray[np.int32], values: NDArray[Any], rows: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return (offsets, values) of the given rows of a column that is given as runs."""
    taken = offsets_of(runs[rows, 1] - runs[rows, 0])
    out = np.empty(taken[-1], values.dtype)
    if len(out):
        sets.gather_runs(runs, values, rows, taken, out)
    return taken, out


def checked_offsets(offsets: Any, n: int, k: int, name: str) -> NDArray[np.int64]:
    """Return *offsets* as int64; raise unless they cut *k* values into *n* rows."""
    array = integers(offsets, np.int64, f"{name} offsets")
    if len(array) != n + 1 or array[0] != 0 or array[-1] != k or (array[1:] < array[:-1]).any():
        raise ColumnError(
            f"{name} offsets must be {n + 1} ascending integers from 0 to {k}, not {shown(array[:10].tolist())}"
        )
    return array


def check_positions(positions: NDArray[Any], size: int, name: str, *, none: bool = False) -> None:
    """Raise unless all *positions* are from 0 to *size* - 1; with *none*, -1 is allowed too, for no position."""
    if len(positions) and not -int(none) <= positions.min() <= positions.max() < size:
        raise ColumnError(
            f"{name} run from {positions.min()} to {positions.max()}, but there are only {size:,} positions"
        )


def row_numbers(rows: Any, size: int, what: str) -> NDArray[np.int64]:
    """Return *rows* as int64; raise unless they are whole numbers from 0 to *size* - 1."""
    picks = integers(rows, np.int64, f"{what} rows")
    outside = picks[(picks < 0) | (picks >= size)]
    if len(outside):
        raise UnknownError(f"{what} row {outside[0]} is not among the {size:,} rows")
    return picks


def matrix(values: Any, name: str, width: int | None) -> NDArray[np.float64]:
    """Return *values* as float64 with two axes, the second one of length *width* if that is given."""
    try:
        array = np.ascontiguousarray(values, np.float64)
    except (TypeError, ValueError):
        raise ColumnError(f"{name} must be numbers, not {shown(values)}") from None
    if array.size == 0 and array.ndim < 2:
        array = array.reshape(0, width or 0)
    if array.ndim != 2 or (width is not None and array.shape[1] != width):
        raise ColumnError(f"{name} must have the shape (rows, {width or 'columns'}), not {array.shape}")
    return _as_writable(array)


def box_rows(boxes: Any, name: str) -> NDArray[np.float64]:
    """Return *boxes* as float64[n, 4]; raise unless low <= high on both axes, without NaN."""
    array = matrix(boxes, name, 4)
    good = (array[:, 0] <= array[:, 2]) & (array[:, 1] <= array[:, 3])  # False for NaN
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        box = array[row].tolist()
        if np.isnan(array[row]).any():
            raise ColumnError(f"box {row} is {box}; NaN is not a coordinate")
        raise ColumnError(
            f"box {row} is {box}; give xmin, ymin, xmax, ymax with low <= high. "
            "A box across the antimeridian is two rows with one owner (Box does that for you)"
        )
    return array


def code_sets(
    offsets: Any, codes: Any, n: int, name: str, *, drop_negative: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return checked (offsets, codes) with every row sorted and free of duplicates; no copy if all rows already are."""
    if offsets is None and codes is None:
        return np.zeros(n + 1, np.int64), np.empty(0, np.int32)
    code_array = integers(codes, np.int32, f"{name} codes")
    offset_array = checked_offsets(offsets, n, len(code_array), name)
    if not drop_negative and code_array.size and code_array.min() < 0:
        row = int(np.searchsorted(offset_array, int(code_array.argmin()), side="right")) - 1
        raise ColumnError(f"row {row} has the {name} code {code_array.min()}; codes start at 0")
    if sets.are_sets(offset_array, code_array):
        return offset_array, code_array
    out_offsets, out = np.empty_like(offset_array), np.empty_like(code_array)
    filled = sets.to_sets(offset_array, code_array, out_offsets, out)
    return out_offsets, out[:filled]


def interval_rows(
    intervals: Sequence[Any] | None, n: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64], NDArray[np.uint8]]:
    """Return checked (offsets, attribute, low, high, flags)."""
    if intervals is None:
        return (
            np.zeros(n + 1, np.int64),
            np.empty(0, np.int32),
            np.empty(0),
            np.empty(0),
            np.empty(0, np.uint8),
        )
    if len(intervals) not in (4, 5):
        raise ColumnError(
            f"intervals are (offsets, attribute, low, high[, flags]), not {len(intervals)} arrays"
        )
    attributes = integers(intervals[1], np.int32, "interval attributes")
    k = len(attributes)
    offsets = checked_offsets(intervals[0], n, k, "interval")
    low, high = (_floats(intervals[i], k, name) for i, name in ((2, "low"), (3, "high")))
    flags = (
        integers(intervals[4], np.uint8, "interval flags") if len(intervals) == 5 else np.zeros(k, np.uint8)
    )
    if len(flags) != k:
        raise ColumnError(f"{len(flags)} interval flags for {k} intervals")
    if k and attributes.min() < 0:
        raise ColumnError(
            f"interval {int(attributes.argmin())} names attribute {attributes.min()}; attributes start at 0"
        )
    if k and flags.max() > LOW_OPEN | HIGH_OPEN | NEGATED:
        raise ColumnError(
            f"interval {int(flags.argmax())} has the flags {flags.max()}; only 1, 2 and 4 may be set"
        )
    good = low <= high  # False for NaN
    if not good.all():
        i = int(np.flatnonzero(~good)[0])
        raise ColumnError(f"interval {i} runs from {low[i]} to {high[i]}; give low <= high")
    return offsets, attributes, low, high, flags


def integers(values: Any, kind: Any, name: str) -> NDArray[Any]:
    """Return *values* as one row of integers of the given kind; floats and booleans are refused."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise ColumnError(f"{name} must be one row of integers, not {shown(values)}") from None
    if array.size == 0:
        return np.empty(0, kind)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ColumnError(f"{name} must be one row of integers, not {array.dtype} of shape {array.shape}")
    if array.dtype != kind:
        limits = np.iinfo(kind)
        if array.min() < limits.min or array.max() > limits.max:
            raise ColumnError(
                f"{name} run from {array.min()} to {array.max()}; they must fit {np.dtype(kind)}"
            )
    return _as_writable(np.ascontiguousarray(array, kind))


def _floats(values: Any, k: int, name: str) -> NDArray[np.float64]:
    try:
        array = np.ascontiguousarray(values, np.float64)
    except (TypeError, ValueError):
        raise ColumnError(f"interval ends ({name}) must be numbers, not {shown(values)}") from None
    array = _as_writable(array)
    if array.shape != (k,):
        raise ColumnError(f"interval ends ({name}) have the shape {array.shape} for {k} intervals")
    return array


class _Alias:
    """The memory of a read-only array, presented as writable; it keeps the array alive."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def _as_writable(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a writable alias of a read-only one.

    To Numba a read-only array (every array that comes from Arrow) is another type, for which it compiles every kernel
    again. No kernel writes to its input, so such memory is presented as writable, without a copy.
    """
    return array if array.flags.writeable else np.asarray(_Alias(array))
