"""The G_k algorithm: how the relation graph follows subscriptions and unsubscriptions.

Section III.C of Shen, Tirthapura and Aluru, "Indexing for Subscription Covering in Publish-Subscribe Systems" (2005).
The comments in :func:`kernels_for` number the steps as the paper does.

A command is a subscription row that arrives, or the complement (``~row``) of one that leaves. Kernels cannot grow
arrays, and they cannot compare polygons. Where they need either, :attr:`Kernels.step` returns to Python and goes on
from its *state* when it is called again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.covering.edges import Edges, link, unlink
from nearcast.covering.relation import YES
from nearcast.covering.subscriptions import Scratch, Subscriptions, first_clause, next_clause
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
    "Kernels",
    "Outcome",
    "kernels_for",
    "new_state",
]

#: What ``step`` returns: all commands are done; polygons must decide; the index or the outcome has no room.
DONE, PENDING, NO_ROOM = 0, 1, 2

# The state: six integers that ``step`` leaves for its caller and for its next call. The caller resets EXPOSED and
# WITHDRAWN to 0 when it has copied those rows. Everything else is written by the kernel alone.
COMMAND = 0  # the next command
WAITING = 1  # the first row of T that has not been looked at yet, -1 for none
EXPOSED = 2  # how many rows of the outcome are exposed,
WITHDRAWN = 3  # and how many withdrawn
SURE = 4  # after PENDING: how many covers of the subject are certain
NEED = 5  # after NO_ROOM: for how many points the index needs room


def new_state() -> NDArray[np.int64]:
    """Return the state before the first command."""
    state = np.zeros(6, np.int64)
    state[WAITING] = -1
    return state


class Outcome(NamedTuple):
    """What commands led to."""

    forward: NDArray[np.bool_]  # by command: whether the subscription, or the unsubscription, is forwarded
    exposed: NDArray[np.int32]  # rows that must be forwarded now,
    exposed_by: NDArray[np.int64]  # and the command of each
    withdrawn: NDArray[np.int32]  # rows that need not be forwarded any more, since a new one covers them,
    withdrawn_by: NDArray[np.int64]  # and the command of each
    queries: NDArray[np.int64]  # [2]: calls of cov_k by subscriptions (q_s) and by unsubscriptions (q_u)
    # [2, 2]: nodes visited and points compared, by subscriptions and by unsubscriptions.
    counters: NDArray[np.int64]


class Kernels(NamedTuple):
    """What is compiled for an index."""

    step: Callable[..., Any]  # follow commands
    add_all: Callable[..., Any]  # put subscriptions into an empty index
    search: Callable[..., Any]  # answer questions


def kernels_for(
    find: Callable[..., Any],
    add: Callable[..., Any],
    take: Callable[..., Any],
    has_room: Callable[..., Any],
    covers: Callable[..., Any],
) -> Kernels:
    """Return the G_k algorithm on the operations of one index, each of which is a kernel.

    Parameters
    ----------
    find
        (index, held, asked, subject, k, out, pending, scratch, counters): cov_k. Write up to k rows of *held* that
        cover row *subject* of *asked* to *out*, and return how many there are. Where that is fewer than k, *pending*
        has the rows that only polygons can decide on, after their number. Of subscriptions that cover each other only
        the older one covers. Counters: nodes visited, points compared.
    add
        (index, held, subject, scratch): put a subscription into the index.
    take
        (index, held, subject, scratch): take a subscription out of the index.
    has_room
        (index, points): tell whether there is room for this many more points.
    covers
        (held, a, b): tell whether subscription a covers subscription b: YES, NO or UNDECIDED.
    """

    @kernel
    def step(
        index: Any,
        held: Subscriptions,
        edges: Edges,
        k: int,
        take_over: bool,
        commands: NDArray[np.int64],
        state: NDArray[np.int64],
        known: int,
        out: NDArray[np.int32],
        pending: NDArray[np.int32],
        scratch: Scratch,
        outcome: Outcome,
    ) -> Any:
        """Follow commands until all are done, or until the caller has to do something.

        After PENDING the caller decides on ``pending[1 : 1 + pending[0]]``, adds the rows that cover the subject to the
        certain ones in *out*, and calls again with the number of all as *known*; that is -1 otherwise.
        """
        while True:
            t = state[WAITING]
            if t >= 0:
                # Unsubscription, step 3: for each t in T
                if state[EXPOSED] == outcome.exposed.size:
                    return NO_ROOM
                count = known
                if count < 0:
                    # a) C_t <- cov_k(S, t)
                    outcome.queries[1] += 1
                    count = find(index, held, held, t, k, out, pending, scratch, outcome.counters[1])
                    if count < k and pending[0] > 0:
                        state[SURE] = count
                        return PENDING
                known = -1
                # b) add edges from every row of C_t to t
                state[WAITING] = edges.nexts[t * k]
                link(edges, t, k, out, count)
                # c) if C_t is empty, forward t now
                if count == 0:
                    outcome.exposed[state[EXPOSED]] = t
                    outcome.exposed_by[state[EXPOSED]] = state[COMMAND] - 1
                    state[EXPOSED] += 1
                continue
            if state[COMMAND] == commands.size:
                return DONE
            s = commands[state[COMMAND]]
            if s < 0:
                # Unsubscription of s
                s = ~s
                state[NEED] = 1  # merging two buckets may take a larger one
                if not has_room(index, state[NEED]):
                    return NO_ROOM
                # Step 4: the unsubscription is forwarded if s was
                outcome.forward[state[COMMAND]] = edges.degrees[s] == 0
                # Step 1: delete s from S and from G_k; step 2: T has those that lost their last edge
                take(index, held, s, scratch)
                state[WAITING] = unlink(edges, s, k)
                state[COMMAND] += 1
                continue
            # Subscription s; its node is its row (step 1)
            state[NEED] = _clause_count(held, s)
            if not has_room(index, state[NEED]):
                return NO_ROOM
            if take_over and outcome.withdrawn.size - state[WITHDRAWN] < edges.degrees.size:
                return NO_ROOM
            count = known
            if count < 0:
                # Step 2: C <- cov_k(S, s)
                outcome.queries[0] += 1
                count = find(index, held, held, s, k, out, pending, scratch, outcome.counters[0])
                if count < k and pending[0] > 0:
                    state[SURE] = count
                    return PENDING
            known = -1
            # Step 3: add edges from every row of C to s
            link(edges, s, k, out, count)
            # Step 4: if C is empty, forward s
            outcome.forward[state[COMMAND]] = count == 0
            if take_over and count == 0:
                withdraw(held, edges, k, s, state, out, outcome)
            add(index, held, s, scratch)
            state[COMMAND] += 1

    @kernel
    def withdraw(
        held: Subscriptions,
        edges: Edges,
        k: int,
        s: int,
        state: NDArray[np.int64],
        out: NDArray[np.int32],
        outcome: Outcome,
    ) -> None:
        """Let *s* cover those that were forwarded; not part of the paper's algorithm, which leaves them forwarded."""
        for row in range(edges.degrees.size):
            if edges.degrees[row] == 0 and row != s and covers(held, s, row) == YES:
                out[0] = s
                link(edges, row, k, out, 1)
                outcome.withdrawn[state[WITHDRAWN]] = row
                outcome.withdrawn_by[state[WITHDRAWN]] = state[COMMAND]
                state[WITHDRAWN] += 1

    @kernel
    def add_all(
        index: Any,
        held: Subscriptions,
        subjects: NDArray[np.int64],
        state: NDArray[np.int64],
        scratch: Scratch,
    ) -> None:
        """Put subscriptions into an index, from ``state[COMMAND]`` on; stop where there is no room for the next."""
        for i in range(state[COMMAND], subjects.size):
            state[COMMAND], state[NEED] = i, _clause_count(held, subjects[i])
            if not has_room(index, state[NEED]):
                return
            add(index, held, subjects[i], scratch)
        state[COMMAND] = subjects.size

    @kernel
    def search(
        index: Any,
        held: Subscriptions,
        asked: Subscriptions,
        k: int,
        begin: int,
        found: NDArray[np.int32],
        counts: NDArray[np.int64],
        pending: NDArray[np.int32],
        scratch: Scratch,
        counters: NDArray[np.int64],
    ) -> Any:
        """Write cov_k of each row of *asked* from *begin* on; return the row that polygons must decide, or the end."""
        for i in range(begin, counts.size):
            counts[i] = find(index, held, asked, i, k, found[i], pending, scratch, counters)
            if counts[i] < k and pending[0] > 0:
                return i
        return counts.size

    return Kernels(step, add_all, search)


@kernel
def _clause_count(subscriptions: Subscriptions, row: int) -> Any:
    count, clause = 0, first_clause(subscriptions, row)
    while clause >= 0:
        count += 1
        clause = next_clause(subscriptions, clause)
    return count
