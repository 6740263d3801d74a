"""What a call changed in the results, as ``+`` and ``-``.

A message that enters or leaves a buffer moves at most one message into the results and one out of them. That is an
*event*, and it is logged while the buffer is at hand. The events of a row in one call form a chain. Most chains have
one event, which is the change to report. In a longer chain, a message that came and went again cancels out. The earlier
results then follow from the current ones: remove what came, and put back what went. So the earlier rank of a message
can be computed although nobody kept a copy.

The reason of a change follows from the net changes as well. So it does not depend on how a call was cut into pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast import config
from nearcast.columns.deliveries import CHANGES, REASONS
from nearcast.kernels import kernel
from nearcast.kernels.memory import prefetch
from nearcast.ranking.buffers import AHEAD, SHIFT, BufferTable, prefetch_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nearcast.ranking.windows import Messages

__all__ = ["NONE", "Changes", "Events", "Log", "chained"]

NONE = -1  # no message, or no earlier event
SETTLED = -2  # no earlier event, and the ranks are not known yet
FEW = 64  # up to this many changes of a row are sorted by insertion
_COMES, _GOES = map(CHANGES.index, ("+", "-"))
_PUBLISH, _REPLACE, _EXPIRE = map(REASONS.index, ("publish", "replace", "expire"))


class Changes(NamedTuple):
    """Changes, subscription by subscription: first the messages that go, then those that come, each best first."""

    rows: NDArray[np.int32]
    messages: NDArray[np.int64]
    changes: NDArray[np.int8]  # positions in CHANGES
    scores: NDArray[np.float64]
    # From 1: the current rank of a message that comes, the earlier one of a message that goes.
    ranks: NDArray[np.int32]

    @classmethod
    def joined(cls, parts: Sequence[Changes]) -> Changes:
        """Return the changes of all threads."""
        return parts[0] if len(parts) == 1 else cls._make(map(np.concatenate, zip(*parts)))

    def reasons(self, messages: Messages, arrived: int) -> NDArray[np.int8]:
        """Return the reason of each change; the messages from number *arrived* on came in this call.

        A message that goes was replaced, has expired or, if it is still in the window, was displaced by better ones. A
        message that comes was published in this call or moved up: because another one expired or, if none did, because
        one was replaced.
        """
        going = self.changes == _GOES
        replaced = going & messages.is_withdrawn(self.messages)
        expired = going & (self.messages < messages.first) & ~replaced
        moved_up = ~going & (self.messages < arrived)
        reasons = np.full(len(self.rows), _PUBLISH, np.int8)
        reasons[expired | moved_up] = _EXPIRE
        reasons[replaced] = _REPLACE
        if replaced.any():
            row = np.cumsum(np.diff(self.rows, prepend=self.rows[:1]) != 0)
            lost = np.bincount(row, expired) > 0
            reasons[moved_up & ~lost[row]] = _REPLACE
        return reasons


#: One event, less than a cache line; events are written one after the other.
_EVENT = np.dtype(
    [
        ("rows", np.int32),
        ("earlier", np.int32),
        ("lost", np.int64),
        ("lost_scores", np.float64),
        ("gained", np.int64),
        ("gained_scores", np.float64),
        ("lost_ranks", np.int32),
        ("gained_ranks", np.int32),
    ]
)


class Events(NamedTuple):
    """Events of one call, as kernels see them."""

    rows: NDArray[np.int32]  # -1 if the row has a later event
    earlier: NDArray[np.int32]  # the previous event of the same row
    lost: NDArray[np.int64]  # the message that left the results, or NONE
    lost_scores: NDArray[np.float64]
    gained: NDArray[np.int64]  # the message that entered them, or NONE
    gained_scores: NDArray[np.float64]
    lost_ranks: NDArray[np.int32]  # from 1
    gained_ranks: NDArray[np.int32]
    used: NDArray[np.int64]  # [1]: how many events there are


class Log:
    """The events of one thread in one call."""

    def __init__(self) -> None:
        self._table = np.empty(max(2, config.RANKING_EVENTS // 16), _EVENT)
        self._used = np.zeros(1, np.int64)

    @property
    def events(self) -> Events:
        """The arrays, for kernels."""
        return Events(**{name: self._table[name] for name in _EVENT.names or ()}, used=self._used)

    def clear(self) -> None:
        """Begin another call; keep the room unless it is very large."""
        if len(self._table) > config.RANKING_EVENTS:
            self._table = self._table[: config.RANKING_EVENTS].copy()
        self._used[0] = 0

    def make_room(self, needed: int, buffers: BufferTable) -> None:
        """Make room for more events; if there are many already, replace the chain of each row by its net changes."""
        if len(self._table) - self._used[0] >= needed:
            return
        if len(self._table) >= config.RANKING_EVENTS:
            old = self.events
            self._table, self._used = np.empty_like(self._table), np.zeros(1, np.int64)
            _settle(old, buffers, self.events)
        if len(self._table) - self._used[0] < max(needed, len(self._table) // 2):
            more = np.empty(len(self._table) + needed, _EVENT)
            self._table = np.concatenate([self._table, more])

    def changes(self, buffers: BufferTable) -> Changes:
        """Return the net changes of all rows."""
        room = 2 * int(self._used[0])
        out = Changes(
            np.empty(room, np.int32),
            np.empty(room, np.int64),
            np.empty(room, np.int8),
            np.empty(room),
            np.empty(room, np.int32),
        )
        made = _tell(self.events, buffers, out)
        return Changes._make(column[:made] for column in out)


@kernel
def chained(
    rows: NDArray[np.int32],
    earlier: NDArray[np.int32],
    used: NDArray[np.int64],
    last_call: NDArray[np.int32],
    last_event: NDArray[np.int32],
    call: int,
    row: int,
) -> Any:
    """Add an event to the chain of a row; return it."""
    event = used[0]
    used[0] += 1
    rows[event], earlier[event] = row, NONE
    if last_call[row] == call:
        earlier[event] = last_event[row]
        rows[last_event[row]] = NONE
    last_call[row], last_event[row] = call, event
    return event


# These take plain arrays instead of Events: unpacking them for each of many rows would cost more than the work.


@kernel
def _length(earlier: NDArray[np.int32], head: int) -> Any:
    """Return the most changes that the chain which ends with *head* can have."""
    length, event = 0, np.int64(head)
    while event >= 0:
        length += 2
        event = np.int64(earlier[event])
    return length


@kernel
def _net(
    earlier: NDArray[np.int32],
    lost: NDArray[np.int64],
    lost_scores: NDArray[np.float64],
    gained: NDArray[np.int64],
    gained_scores: NDArray[np.float64],
    head: int,
    scores: NDArray[np.float64],
    messages: NDArray[np.int64],
    changes: NDArray[np.int8],
) -> Any:
    """Write the net changes of the chain that ends with *head*, in order of rank; return how many there are."""
    n, event = 0, np.int64(head)
    while event >= 0:
        if lost[event] >= 0:
            scores[n], messages[n], changes[n] = lost_scores[event], lost[event], -1
            n += 1
        if gained[event] >= 0:
            scores[n], messages[n], changes[n] = gained_scores[event], gained[event], 1
            n += 1
        event = np.int64(earlier[event])
    _by_rank(scores, messages, changes, n)
    kept, i = 0, 0
    while i < n:
        message, score, change = messages[i], scores[i], changes[i]
        i += 1
        while i < n and messages[i] == message:
            change += changes[i]
            i += 1
        if change != 0:
            messages[kept], scores[kept], changes[kept] = message, score, change
            kept += 1
    return kept


@kernel
def _by_rank(
    scores: NDArray[np.float64], messages: NDArray[np.int64], changes: NDArray[np.int8], n: int
) -> None:
    """Sort the first *n* changes by rank: by score, and of equal scores the newer message first."""
    if n > FEW:
        order = np.argsort(-messages[:n], kind="mergesort")
        order = order[np.argsort(-scores[:n][order], kind="mergesort")]
        scores[:n], messages[:n], changes[:n] = scores[:n][order], messages[:n][order], changes[:n][order]
        return
    for i in range(1, n):
        score, message, change = scores[i], messages[i], changes[i]
        j = i
        while j > 0 and (scores[j - 1] < score or (scores[j - 1] == score and messages[j - 1] < message)):
            scores[j], messages[j], changes[j] = scores[j - 1], messages[j - 1], changes[j - 1]
            j -= 1
        scores[j], messages[j], changes[j] = score, message, change


@kernel
def _settle(events: Events, buffers: BufferTable, out: Events) -> None:
    """Replace the chain of each row by its net changes; rows without any have no events any more."""
    old_rows, old_earlier, old_lost, old_lost_scores, old_won, old_won_scores, _, _, count = events
    rows, earlier, lost, lost_scores, gained, gained_scores, _, _, used = out
    last_call, last_event = buffers.last_call, buffers.last_event
    scores, messages, changes = np.empty(FEW), np.empty(FEW, np.int64), np.empty(FEW, np.int8)
    for head in range(count[0]):
        row = old_rows[head]
        if row < 0:
            continue
        length = _length(old_earlier, head)
        if length > len(scores):
            scores, messages, changes = (
                np.empty(length),
                np.empty(length, np.int64),
                np.empty(length, np.int8),
            )
        n = _net(
            old_earlier, old_lost, old_lost_scores, old_won, old_won_scores, head, scores, messages, changes
        )
        begin, losses, wins = used[0], 0, 0
        for i in range(n):  # the i-th message that goes shares an event with the i-th that comes
            event = begin + (losses if changes[i] < 0 else wins)
            if event == used[0]:
                rows[event], earlier[event] = NONE, event - 1 if event > begin else SETTLED
                lost[event], gained[event] = NONE, NONE
                used[0] += 1
            if changes[i] < 0:
                lost[event], lost_scores[event] = messages[i], scores[i]
                losses += 1
            else:
                gained[event], gained_scores[event] = messages[i], scores[i]
                wins += 1
        if n > 0:
            rows[used[0] - 1], last_event[row] = row, used[0] - 1
        else:
            last_call[row] = 0


@kernel
def _tell(events: Events, buffers: BufferTable, out: Changes) -> Any:
    """Write the net changes of all rows; return how many there are."""
    rows, earlier, lost, lost_scores, gained, gained_scores, lost_ranks, gained_ranks, used = events
    out_rows, out_messages, out_changes, out_scores, out_ranks = out
    starts, counts, sizes, now_scores, keys = (
        buffers.starts,
        buffers.counts,
        buffers.sizes,
        buffers.scores,
        buffers.keys,
    )
    scores, messages, changes = np.empty(FEW), np.empty(FEW, np.int64), np.empty(FEW, np.int8)
    count = 0
    for event in range(used[0]):
        ahead = event + 2 * AHEAD
        if ahead < used[0] and rows[ahead] >= 0 and earlier[ahead] != NONE:
            prefetch(starts, rows[ahead])
        ahead = event + AHEAD
        if ahead < used[0] and rows[ahead] >= 0 and earlier[ahead] != NONE:
            prefetch_entries(now_scores, starts[rows[ahead]], counts[rows[ahead]])
        row = rows[event]
        if row < 0:
            continue
        if earlier[event] == NONE:
            if lost[event] >= 0:
                out_rows[count], out_messages[count], out_changes[count] = row, lost[event], _GOES
                out_scores[count], out_ranks[count] = lost_scores[event], lost_ranks[event]
                count += 1
            if gained[event] >= 0:
                out_rows[count], out_messages[count], out_changes[count] = row, gained[event], _COMES
                out_scores[count], out_ranks[count] = gained_scores[event], gained_ranks[event]
                count += 1
            continue
        length = _length(earlier, event)
        if length > len(scores):
            scores, messages, changes = (
                np.empty(length),
                np.empty(length, np.int64),
                np.empty(length, np.int8),
            )
        n = _net(earlier, lost, lost_scores, gained, gained_scores, event, scores, messages, changes)
        end = count + n
        out_rows[count:end] = row
        start = starts[row]
        _rank(
            scores[:n],
            messages[:n],
            changes[:n],
            now_scores,
            keys,
            start,
            start + min(counts[row], sizes[row]),
            out_messages[count:end],
            out_changes[count:end],
            out_scores[count:end],
            out_ranks[count:end],
        )
        count = end
    return count


@kernel
def _rank(
    scores: NDArray[np.float64],
    messages: NDArray[np.int64],
    changes: NDArray[np.int8],
    now_scores: NDArray[np.float64],
    keys: NDArray[np.int64],
    start: int,
    stop: int,
    out_messages: NDArray[np.int64],
    out_changes: NDArray[np.int8],
    out_scores: NDArray[np.float64],
    out_ranks: NDArray[np.int32],
) -> None:
    """Write the changes of a row, first those that go; merging them with the results gives the ranks."""
    going, coming = 0, int(np.count_nonzero(changes < 0))
    j, before = start, 0  # the position in the current results, and the rank in the earlier ones
    for i in range(len(scores)):
        while j < stop and (
            now_scores[j] > scores[i] or (now_scores[j] == scores[i] and keys[j] >> SHIFT > messages[i])
        ):
            j += 1
            before += 1
        if changes[i] < 0:
            before += 1
            at, rank, change = going, before, _GOES
            going += 1
        else:
            j += 1
            at, rank, change = coming, j - start, _COMES
            coming += 1
        out_messages[at], out_changes[at] = messages[i], change
        out_scores[at], out_ranks[at] = scores[i], rank
