"""Sets of codes: sorted rows of a ragged array (CSR), and the tests that matching makes on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel

__all__ = ["are_sets", "find", "gather_rows", "gather_runs", "has", "includes", "meets", "to_sets"]

_BINARY_FROM = config.BINARY_SEARCH_FROM
_INSERTION_UP_TO = config.INSERTION_SORT_UP_TO


@kernel
def are_sets(offsets: NDArray[np.int64], codes: NDArray[np.int32]) -> bool:
    """Tell whether every row is strictly ascending and free of negative codes."""
    for row in range(offsets.size - 1):
        last = np.int32(-1)
        for i in range(offsets[row], offsets[row + 1]):
            if codes[i] <= last:
                return False
            last = codes[i]
    return True


@kernel
def to_sets(
    offsets: NDArray[np.int64],
    codes: NDArray[np.int32],
    out_offsets: NDArray[np.int64],
    out: NDArray[np.int32],
) -> Any:
    """Write each row sorted, without duplicates or negative codes; return how many codes were written."""
    filled = 0
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        first = filled
        for i in range(offsets[row], offsets[row + 1]):
            if codes[i] >= 0:
                out[filled] = codes[i]
                filled += 1
        if filled - first > _INSERTION_UP_TO:
            out[first:filled].sort()
        else:
            for i in range(first + 1, filled):
                code = out[i]
                j = i
                while j > first and out[j - 1] > code:
                    out[j] = out[j - 1]
                    j -= 1
                out[j] = code
        kept = first
        for i in range(first, filled):
            if i == first or out[i] != out[i - 1]:
                out[kept] = out[i]
                kept += 1
        filled = kept
        out_offsets[row + 1] = filled
    return filled


@kernel
def includes(
    have: NDArray[np.int32],
    start: int,
    stop: int,
    need: NDArray[np.int32],
    first: int,
    last: int,
) -> bool:
    """Tell whether the set have[start:stop] contains every code of the set need[first:last]."""
    if last - first > stop - start:
        return False
    at = start
    if stop - start <= _BINARY_FROM:
        for i in range(first, last):
            code = need[i]
            while at < stop and have[at] < code:
                at += 1
            if at == stop or have[at] != code:
                return False
            at += 1
        return True
    for i in range(first, last):
        code = need[i]
        high = stop
        while at < high:
            middle = (at + high) >> 1
            if have[middle] < code:
                at = middle + 1
            else:
                high = middle
        if at == stop or have[at] != code:
            return False
        at += 1
    return True


@kernel
def find(codes: NDArray[np.int32], start: int, stop: int, code: int) -> int:
    """Return the position of a code in the set codes[start:stop], or -1."""
    low, high = start, stop
    while low < high:
        middle = (low + high) >> 1
        if codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and codes[low] == code else -1


@kernel
def has(codes: NDArray[np.int32], start: int, stop: int, code: int) -> bool:
    """Tell whether the set codes[start:stop] contains a code."""
    return find(codes, start, stop, code) >= 0


@kernel
def meets(
    have: NDArray[np.int32],
    start: int,
    stop: int,
    other: NDArray[np.int32],
    first: int,
    last: int,
) -> bool:
    """Tell whether the sets have[start:stop] and other[first:last] share a code."""
    i, j = start, first
    while i < stop and j < last:
        if have[i] < other[j]:
            i += 1
        elif have[i] > other[j]:
            j += 1
        else:
            return True
    return False


@kernel
def gather_runs(
    runs: NDArray[np.int32],
    values: NDArray[Any],
    rows: NDArray[Any],
    out_offsets: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """Copy the values of the given rows of a column in runs, in their order; *out_offsets* is already filled."""
    for i in range(rows.size):
        first = runs[rows[i], 0]
        at = out_offsets[i]
        for k in range(out_offsets[i + 1] - at):
            out[at + k] = values[first + k]


@kernel
def gather_rows(
    offsets: NDArray[np.int64],
    values: NDArray[Any],
    rows: NDArray[Any],
    out_offsets: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """Copy the values of the given rows of a CSR column, in their order; *out_offsets* is already filled."""
    for i in range(rows.size):
        first = offsets[rows[i]]
        at = out_offsets[i]
        for k in range(out_offsets[i + 1] - at):
            out[at + k] = values[first + k]
