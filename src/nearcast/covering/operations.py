"""What an index can do, for kernels: one name for each operation, whatever the index.

An index is a named tuple of arrays. Its module registers the kernels that work on it; a kernel that calls
``find(index, ...)`` is compiled with those of the index that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba.extending import overload

from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Operations",
    "Rows",
    "Scratch",
    "add",
    "covers",
    "enough_scratch",
    "find",
    "first_clause",
    "new_scratch",
    "next_clause",
    "register",
    "room",
    "take",
]


class Rows(NamedTuple):
    """Which clause rows make which subscription row; *first* is empty where both have the same numbers."""

    owners: NDArray[np.int32]
    first: NDArray[np.int32]
    after: NDArray[np.int32]


class Scratch(NamedTuple):
    """Room that kernels work in."""

    point: NDArray[np.float32]
    spare: NDArray[np.float32]
    stack: NDArray[np.int32]
    alive: NDArray[np.int32]
    hits: NDArray[np.int32]


class Operations(NamedTuple):
    """The kernels of an index."""

    #: (index, rows, subject, k, out, pending, scratch, counters): write up to k subscriptions that cover *subject* to
    #: *out*; return how many. Where that is fewer than k, those that only polygons can decide are in *pending*, which
    #: begins with their number. Of subscriptions that cover each other the older one covers: no two wait for each
    #: other. Counters: nodes visited, points compared.
    find: Callable[..., Any]
    add: Callable[..., Any]  # (index, rows, subject, scratch): put a subscription in
    take: Callable[..., Any]  # (index, rows, subject, scratch): take it out
    room: Callable[..., Any]  # (index, clauses): is there room for so many more?
    covers: Callable[..., Any]  # (index, rows, a, b): does a cover b? YES, NO or UNDECIDED


_INDEXES = ("scan", "kd_tree", "z_curve", "clause_scan", "clause_forest")  # the modules that register one
_REGISTERED: dict[type, Operations] = {}


def register(index: type, operations: Operations) -> None:
    """Let kernels know what to do with an index."""
    _REGISTERED[index] = operations


def _operation(name: str) -> Callable[..., Any]:
    """Return what calls the kernel of that name for the index that comes first."""

    def call(index: Any, *arguments: Any) -> Any:
        return getattr(_REGISTERED[type(index)], name)(index, *arguments)

    @overload(call)
    def choose(index: Any, *arguments: Any) -> Any:
        chosen = getattr(_REGISTERED[index.instance_class], name)

        def compiled(index: Any, *arguments: Any) -> Any:
            return chosen(index, *arguments)

        return compiled

    call.depends = _kernels_of_indexes  # type: ignore[attr-defined]
    return call


def _kernels_of_indexes() -> list[Callable[..., Any]]:
    """Return the kernels that may be chosen: what calls one of them is compiled with it, so it depends on it."""
    for module in _INDEXES:
        import_module(f"nearcast.covering.{module}")
    return [kernel for _, operations in sorted(_REGISTERED.items(), key=str) for kernel in operations]


find, add, take, room, covers = map(_operation, Operations._fields)


def new_scratch(width: int, depth: int, bucket: int) -> Scratch:
    """Return room for points of so many dimensions, trees of this depth and buckets of this size."""
    return Scratch(
        np.empty(width, np.float32),
        np.empty(width, np.float32),
        np.empty(depth, np.int32),
        np.empty(bucket, np.int32),
        np.empty(bucket, np.int32),
    )


@kernel
def enough_scratch(scratch: Scratch, depth: int, largest: int) -> Any:
    """Return room for the nodes of a path, and for the largest bucket, twice."""
    stack, alive, hits = scratch.stack, scratch.alive, scratch.hits
    if stack.size <= depth:
        stack = np.empty(2 * depth, np.int32)
    if hits.size < largest:
        alive, hits = np.empty(largest, np.int32), np.empty(largest, np.int32)
    return stack, alive, hits


@kernel
def first_clause(rows: Rows, subject: int) -> Any:
    """Return the first clause row of a subscription, -1 where it has none."""
    if rows.first.size > 0:
        return np.int64(rows.first[subject])
    return np.int64(subject) if subject < rows.owners.size else np.int64(-1)


@kernel
def next_clause(rows: Rows, clause: int) -> Any:
    """Return the clause row of the same subscription that follows, -1 after the last one."""
    return np.int64(-1) if rows.first.size == 0 else np.int64(rows.after[clause])
