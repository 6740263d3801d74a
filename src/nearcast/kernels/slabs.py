"""Rooms of 1, 2, 4 … slots in a pool of slots. Freed rooms are chained by size and given out again.

A pool is any set of parallel arrays that a caller grows. Its allocator is one small integer array, *slabs*: entry
``END`` is the number of slots handed out so far, and entry ``FREE + k`` is the first slot of the first free room of
2^k slots, or -1. The chain of free rooms runs through *links*, an integer array of the pool with one entry per slot:
a free room needs no other memory, so a column that is idle while a room is free will do.

Kernels never grow a pool. Before it calls :func:`allot`, a caller makes sure that the slots behind ``slabs[END]``
would be enough even if no room were free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel

__all__ = ["END", "FREE", "allot", "empty_slabs", "idle", "release", "size_class"]

END, FREE = 0, 1  # entries of an allocator


def empty_slabs(largest: int) -> NDArray[np.int64]:
    """Return the allocator of an empty pool, whose rooms have up to 2^largest slots."""
    slabs = np.full(FREE + largest + 1, -1, np.int64)
    slabs[END] = 0
    return slabs


@kernel
def size_class(size: int) -> Any:
    """Return the least k such that a room of 2^k slots holds *size* of them."""
    k = 0
    while 1 << k < size:
        k += 1
    return k


@kernel
def allot(slabs: NDArray[np.int64], links: NDArray[Any], k: int, chunk: int) -> Any:
    """Return the first slot of a room of 2^k slots.

    It is a free room, or the front of a larger free one, or lies at the end of the pool. The end moves by 2^chunk slots
    or more, so rooms of up to that size are aligned to their own size, and larger ones to 2^chunk.
    """
    found = k
    while FREE + found < slabs.size and slabs[FREE + found] < 0:
        found += 1
    if FREE + found < slabs.size:
        at = slabs[FREE + found]
        slabs[FREE + found] = links[at]
    else:
        found = max(k, chunk)
        at = slabs[END]
        slabs[END] += 1 << found
    while found > k:  # the upper halves are not needed
        found -= 1
        links[at + (1 << found)] = slabs[FREE + found]
        slabs[FREE + found] = at + (1 << found)
    return at


@kernel
def release(slabs: NDArray[np.int64], links: NDArray[Any], at: Any, size: Any, chunk: int) -> None:
    """Free a run of slots of any length, as rooms with the same alignment as those of :func:`allot`."""
    largest = slabs.size - FREE - 1
    while size > 0:
        k = 0
        while k < largest and 2 << k <= size and (k >= chunk or at & ((2 << k) - 1) == 0):
            k += 1
        links[at] = slabs[FREE + k]
        slabs[FREE + k] = at
        at += 1 << k
        size -= 1 << k


@kernel
def idle(slabs: NDArray[np.int64], links: NDArray[Any]) -> Any:
    """Return how many slots are in free rooms."""
    total = 0
    for k in range(slabs.size - FREE):
        at = slabs[FREE + k]
        while at >= 0:
            total += 1 << k
            at = links[at]
    return total
