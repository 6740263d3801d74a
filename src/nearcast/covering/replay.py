"""The G_k algorithm (section III.C): commands, one after the other.

A command is a subscription row that arrives, or the complement (``~row``) of one that leaves. What a step cannot decide
or has no room for is left to the caller, who comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.covering.edges import Edges, link, unlink
from nearcast.covering.operations import (
    Rows,
    Scratch,
    add,
    covers,
    find,
    first_clause,
    next_clause,
    room,
    take,
)
from nearcast.covering.relation import YES
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "COMMAND",
    "DONE",
    "EXPOSED",
    "NEED",
    "NO_ROOM",
    "PENDING",
    "SURE",
    "WAITING",
    "WITHDRAWN",
    "Told",
    "add_all",
    "search",
    "step",
]

#: What :func:`step` returns: all is done; a decision is pending; there is no room in the index or in what is told.
DONE, PENDING, NO_ROOM = 0, 1, 2
# Entries of the state: the next command, the first row that waits for a new cover (-1: none), how much was told,
# how many sure covers the subject has whose decision is pending, and for how many clauses there is no room.
COMMAND, WAITING, EXPOSED, WITHDRAWN, SURE, NEED = range(6)


class Told(NamedTuple):
    """What the commands led to."""

    forward: NDArray[np.bool_]  # by command: it travels, the subscription or the unsubscription
    exposed: NDArray[np.int32]  # rows that must be forwarded now
    exposed_by: NDArray[np.int64]  # the command
    withdrawn: NDArray[np.int32]  # rows that need not be forwarded any more, taken over by a new one
    withdrawn_by: NDArray[np.int64]
    queries: NDArray[np.int64]  # [2]: calls of cov_k by subscriptions, by unsubscriptions
    # [2, 2]: nodes visited and points compared, by subscriptions, by unsubscriptions
    counters: NDArray[np.int64]


@kernel
def _clauses(rows: Rows, subject: int) -> Any:
    count, clause = 0, first_clause(rows, subject)
    while clause >= 0:
        count += 1
        clause = next_clause(rows, clause)
    return count


@kernel
def step(
    index: Any,
    rows: Rows,
    edges: Edges,
    k: int,
    take_over: bool,
    commands: NDArray[np.int64],
    state: NDArray[np.int64],
    known: int,
    out: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: Scratch,
    told: Told,
) -> Any:
    """Go on with commands, until all is done or the caller has to do something.

    After PENDING the caller decides on ``pending[1 : 1 + pending[0]]``, adds to the sure ones in *out*, and comes back
    with their number as *known* (otherwise -1); then the decision is used before anything else.
    """
    nexts = edges.nexts
    while True:
        subject, again = state[WAITING], 1
        if subject < 0:
            again = 0
            if state[COMMAND] == commands.size:
                return DONE
            subject = commands[state[COMMAND]]
            if subject < 0:
                state[NEED] = 1  # buckets that are merged may need another place
                if not room(index, state[NEED]):
                    return NO_ROOM
                subject = ~subject
                told.forward[state[COMMAND]] = edges.degrees[subject] == 0
                take(index, rows, subject, scratch)
                state[WAITING] = unlink(edges, subject, k)
                state[COMMAND] += 1
                continue
            state[NEED] = _clauses(rows, subject)
            if not room(index, state[NEED]):
                return NO_ROOM
        if state[EXPOSED] == told.exposed.size or (
            take_over and told.withdrawn.size - state[WITHDRAWN] < edges.degrees.size
        ):
            return NO_ROOM
        count = known
        if count < 0:
            told.queries[again] += 1
            count = find(index, rows, subject, k, out, pending, scratch, told.counters[again])
            if count < k and pending[0] > 0:
                state[SURE] = count
                return PENDING
        known = -1
        if again == 1:
            state[WAITING] = nexts[subject * k]
            link(edges, subject, k, out, count)
            if count == 0:
                told.exposed[state[EXPOSED]], told.exposed_by[state[EXPOSED]] = subject, state[COMMAND] - 1
                state[EXPOSED] += 1
            continue
        link(edges, subject, k, out, count)
        told.forward[state[COMMAND]] = count == 0
        if take_over and count == 0:
            _take_over(index, rows, edges, k, subject, state, out, told)
        add(index, rows, subject, scratch)
        state[COMMAND] += 1


@kernel
def _take_over(
    index: Any,
    rows: Rows,
    edges: Edges,
    k: int,
    subject: int,
    state: NDArray[np.int64],
    out: NDArray[np.int32],
    told: Told,
) -> None:
    """Put those that were forwarded, and that a new subscription covers, below it."""
    for row in range(edges.degrees.size):
        if edges.degrees[row] == 0 and row != subject and covers(index, rows, subject, row) == YES:
            out[0] = subject
            link(edges, row, k, out, 1)
            told.withdrawn[state[WITHDRAWN]], told.withdrawn_by[state[WITHDRAWN]] = row, state[COMMAND]
            state[WITHDRAWN] += 1


@kernel
def add_all(
    index: Any, rows: Rows, subjects: NDArray[np.int64], state: NDArray[np.int64], scratch: Scratch
) -> None:
    """Put subscriptions into an index, from number ``state[COMMAND]`` on; stop before one that there is no room for."""
    for i in range(state[COMMAND], subjects.size):
        state[COMMAND], state[NEED] = i, _clauses(rows, subjects[i])
        if not room(index, state[NEED]):
            return
        add(index, rows, subjects[i], scratch)
    state[COMMAND] = subjects.size


@kernel
def search(
    index: Any,
    rows: Rows,
    subjects: NDArray[np.int64],
    k: int,
    begin: int,
    found: NDArray[np.int32],
    counts: NDArray[np.int64],
    pending: NDArray[np.int32],
    scratch: Scratch,
    counters: NDArray[np.int64],
) -> Any:
    """Write up to *k* subscriptions that cover each subject, from *begin* on; stop where a decision is pending."""
    for i in range(begin, subjects.size):
        counts[i] = find(index, rows, subjects[i], k, found[i], pending, scratch, counters)
        if counts[i] < k and pending[0] > 0:
            return i
    return subjects.size
