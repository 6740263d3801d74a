"""What the kernels of every index are given: sets of subscriptions, and room to work in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "YOUNGEST",
    "Scratch",
    "Subscriptions",
    "enough_scratch",
    "first_clause",
    "new_scratch",
    "next_clause",
]

YOUNGEST: Final = 2**63 - 1  # the age of a question: every subscription of the graph is older


class Subscriptions(NamedTuple):
    """A set of subscriptions: those of the graph (*held*), or those that a question is about (*asked*).

    A search takes both sets and the row of a subject in the second. The graph looks for covers of its own
    subscriptions by giving the same set twice.
    """

    content: Any  # by clause row: what an index compares, ``relation.Content`` or ``rectangles.Corners``
    owners: NDArray[np.int32]  # by clause row: its subscription row
    # By subscription row: its first clause row; empty where both have the same numbers.
    first: NDArray[np.int32]
    after: NDArray[np.int32]  # by clause row: the next one of the same subscription, -1 after the last one
    # By subscription row: the number of its arrival, so that the older one has the smaller number.
    ages: NDArray[np.int64]


class Scratch(NamedTuple):
    """Room that kernels work in."""

    point: NDArray[np.float32]
    spare: NDArray[np.float32]
    stack: NDArray[np.int32]
    alive: NDArray[np.int32]
    hits: NDArray[np.int32]


def new_scratch(width: int, depth: int, bucket: int) -> Scratch:
    """Return room for points of *width* dimensions, trees of this depth and buckets of this size."""
    return Scratch(
        np.empty(width, np.float32),
        np.empty(width, np.float32),
        np.empty(depth, np.int32),
        np.empty(bucket, np.int32),
        np.empty(bucket, np.int32),
    )


@kernel
def enough_scratch(scratch: Scratch, depth: int, largest: int) -> Any:
    """Return room for the nodes of a path, and twice for the rows of the largest bucket."""
    stack, alive, hits = scratch.stack, scratch.alive, scratch.hits
    if stack.size <= depth:
        stack = np.empty(2 * depth, np.int32)
    if hits.size < largest:
        alive, hits = np.empty(largest, np.int32), np.empty(largest, np.int32)
    return stack, alive, hits


@kernel
def first_clause(subscriptions: Subscriptions, row: int) -> Any:
    """Return the first clause row of a subscription row, -1 where it has none."""
    if subscriptions.first.size > 0:
        return np.int64(subscriptions.first[row])
    return np.int64(row) if row < subscriptions.owners.size else np.int64(-1)


@kernel
def next_clause(subscriptions: Subscriptions, clause: int) -> Any:
    """Return the next clause row of the same subscription, -1 after the last one."""
    return np.int64(-1) if subscriptions.first.size == 0 else np.int64(subscriptions.after[clause])
