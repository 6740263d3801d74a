"""Windows: which messages are ranked, the last n or those of the last seconds.

Definition 3 and section 6.3 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over
Sliding Window" (2017).

Messages leave the window in the order in which they arrived. A *late* message, whose published_at is earlier than that
of a message which has already arrived, counts as published at the time of the newest one. So nothing leaves before what
arrived earlier, and ties are ranked by order of arrival. Only a message that is replaced under its id is *withdrawn*
before its turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import NOT_GIVEN
from nearcast.columns.ragged import offsets_of
from nearcast.columns.sliding import SlidingArray
from nearcast.errors import InputError, shown, whole_number
from nearcast.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.ranking.arrivals import Arrivals

__all__ = ["CountWindow", "MessageTable", "Messages", "TimeWindow", "Window"]


@dataclass(frozen=True)
class CountWindow:
    """The last *size* messages."""

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", whole_number("the size of a window", self.size, 1, 2**30 - 1))


@dataclass(frozen=True)
class TimeWindow:
    """The messages of the last *seconds*: one published at t is in the window until just before t + *seconds*."""

    seconds: float

    def __post_init__(self) -> None:
        if (
            isinstance(self.seconds, bool)
            or not isinstance(self.seconds, int | float)
            or not 1e-6 <= self.seconds < 1e12
        ):
            raise InputError(
                f"a window must last a number of seconds from a millionth to 10¹², not {shown(self.seconds)}"
            )

    @property
    def microseconds(self) -> int:
        """How long the window lasts, in microseconds."""
        return round(self.seconds * 1_000_000)


Window = CountWindow | TimeWindow


#: A message without its words: one cache line.
_RECORD = np.dtype(
    [
        ("places", np.float64, 3),
        ("lengths", np.float64),
        ("starts", np.int64),
        ("stops", np.int64),
        ("times", np.int64),
        ("given_times", np.int64),
    ]
)


class MessageTable(NamedTuple):
    """The messages in memory, as kernels see them; row 0 is message number ``base``.

    A message that was withdrawn stops where it starts: it has no words, so it shares none with any subscription.
    """

    places: NDArray[np.float64]  # [rows, 3]
    lengths: NDArray[np.float64]  # of the vectors of word weights
    starts: NDArray[np.int64]  # into the words
    stops: NDArray[np.int64]
    words: NDArray[np.int32]
    base: int


class Messages:
    """The messages of a window, numbered from 0 in the order of their arrival.

    ``first`` is the number of the oldest message in the window, ``end`` that of the next one to arrive, and ``newest``
    the latest time of any message that has arrived.
    """

    def __init__(self) -> None:
        self.first = self.end = 0
        self.newest = int(NOT_GIVEN)
        self.gaps = 0  # how many messages from first to end were withdrawn
        self._hold(
            np.empty(0, _RECORD), np.empty(0, np.int32), np.empty(0, np.bool_), np.empty(0, np.int64), 0
        )

    def __len__(self) -> int:
        return self.end - self.first - self.gaps

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(part.nbytes for part in (self._table, self._withdrawn, self._words, self._ids))

    @property
    def table(self) -> MessageTable:
        """The arrays, for kernels."""
        places, lengths, starts, stops, _, _ = self._table.columns()
        return MessageTable(places, lengths, starts, stops, self._words.values, self._base)

    @property
    def times(self) -> NDArray[np.int64]:
        """When each message of :attr:`table` counts as published, ascending."""
        times: NDArray[np.int64] = self._table.columns()[4]
        return times

    @property
    def given_times(self) -> NDArray[np.int64]:
        """The published_at of each message of :attr:`table`, or NOT_GIVEN."""
        given_times: NDArray[np.int64] = self._table.columns()[5]
        return given_times

    @property
    def withdrawn(self) -> NDArray[np.bool_]:
        """Which messages of :attr:`table` were withdrawn."""
        return self._withdrawn.values

    @property
    def lengths(self) -> NDArray[np.float64]:
        """The lengths of the vectors of the messages in the window."""
        lengths: NDArray[np.float64] = self._table.values["lengths"][self.first - self._base :]
        return lengths

    def append(self, new: Arrivals, lengths: NDArray[np.float64], part: slice) -> None:
        """Append a part of *new* messages, whose vectors have these *lengths*."""
        ids = new.ids[part]
        self._ids.extend(ids)
        offsets = new.offsets[part.start : part.stop + 1]
        table = np.empty(len(ids), _RECORD)
        table["places"], table["lengths"] = new.places[part], lengths[part]
        table["starts"] = offsets[:-1] - offsets[0] + len(self._words.values)
        table["stops"] = offsets[1:] - offsets[0] + len(self._words.values)
        table["times"] = np.maximum.accumulate(np.maximum(new.times[part], self.newest))
        table["given_times"] = new.given_times[part]
        self._table.extend(table)
        self._withdrawn.fill(len(ids), value=False)
        self._words.extend(new.words[offsets[0] : offsets[-1]])
        self.end += len(ids)
        self.newest = int(table["times"][-1])

    def withdraw(self, numbers: NDArray[np.int64]) -> None:
        """Remove messages from the window before their turn."""
        rows = numbers - self._base
        self._withdrawn.values[rows] = True
        self._table.values["stops"][rows] = self._table.values["starts"][rows]
        self.gaps += len(numbers)

    def leave(self, number: int) -> int:
        """Let the messages before *number* leave the window; return how many did."""
        before = len(self)
        self.gaps -= int(
            np.count_nonzero(self._withdrawn.values[self.first - self._base : number - self._base])
        )
        self.first = number
        return before - len(self)

    def before(self, time: int) -> int:
        """Return the number of the first message of the window that was published at *time* or later."""
        times = self._table.values["times"][self.first - self._base :]
        return self.first + int(np.searchsorted(times, max(time, int(NOT_GIVEN))))

    def last(self, count: int) -> int:
        """Return the number of the oldest of the last *count* messages of the window, or of all if it has fewer."""
        if self.gaps == 0:
            return max(self.first, self.end - count)
        return self.first + int(_passed(self._withdrawn.values[self.first - self._base :], len(self) - count))

    def ids(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids, or the codes of ids, of messages that were in the window since the last :meth:`tidy`."""
        ids: NDArray[np.int64] = self._ids.values[numbers - self._base]
        return ids

    def is_withdrawn(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which messages were withdrawn; they must have been in the window since the last :meth:`tidy`."""
        withdrawn: NDArray[np.bool_] = self._withdrawn.values[numbers - self._base]
        return withdrawn

    def tidy(self) -> None:
        """Free the memory of messages that have left the window; copy the others only if these are fewer."""
        gone = self.first - self._base
        parts = (self._table, gone), (self._withdrawn, gone), (self._ids, gone), (self._words, self._cut)
        freed = [part.forget(count) for part, count in parts]
        if not all(freed) and gone > self.end - self.first + 1024:
            self._pack()

    @property
    def _cut(self) -> int:
        """Where the words of the window begin."""
        gone = self.first - self._base
        table = self._table.values
        return int(table["starts"][gone]) if gone < len(table) else len(self._words.values)

    def _pack(self) -> None:
        """Copy the messages of the window, and leave the others behind."""
        gone, cut = self.first - self._base, self._cut
        table = self._table.values[gone:].copy()
        table["starts"] -= cut
        table["stops"] -= cut
        withdrawn, ids = self._withdrawn.values[gone:].copy(), self._ids.values[gone:].copy()
        self._hold(table, self._words.values[cut:].copy(), withdrawn, ids, self.first)

    def close_gaps(self) -> NDArray[np.int64]:
        """Renumber the messages of the window so that no numbers are missing; the last message keeps its number.

        Return the new numbers: old number ``first`` + i becomes entry i, which is -1 if the message was withdrawn.
        """
        gone = self.first - self._base
        there = np.flatnonzero(~self._withdrawn.values[gone:])
        numbers = np.full(self.end - self.first, -1)
        numbers[there] = np.arange(self.end - len(there), self.end)
        self.first, self.gaps = self.end - len(there), 0
        table = self._table.values[gone + there]
        counts = table["stops"] - table["starts"]
        offsets = offsets_of(counts)
        words = self._words.values[np.arange(offsets[-1]) + np.repeat(table["starts"] - offsets[:-1], counts)]
        table["starts"], table["stops"] = offsets[:-1], offsets[1:]
        withdrawn, ids = np.zeros(len(there), np.bool_), self._ids.values[gone + there]
        self._hold(table, words, withdrawn, ids, self.first)
        return numbers

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        self._pack()
        return {
            "table": self._table.values,
            "withdrawn": self._withdrawn.values,
            "words": self._words.values,
            "span": np.array([self.first, self.end, self.newest, self._base]),
            "ids": self._ids.values,
        }

    def restore(self, arrays: Arrays) -> None:
        """Restore the messages from these arrays."""
        self.first, self.end, self.newest, base = arrays["span"].tolist()
        table = arrays["table"].view(_RECORD)
        self._hold(table, arrays["words"], arrays["withdrawn"], arrays["ids"], base)
        self.gaps = int(np.count_nonzero(arrays["withdrawn"][self.first - base :]))

    def _hold(
        self,
        table: NDArray[Any],
        words: NDArray[np.int32],
        withdrawn: NDArray[np.bool_],
        ids: NDArray[Any],
        base: int,
    ) -> None:
        """Hold these messages in memory; the first one has number *base*."""
        self._table, self._words = SlidingArray(table), SlidingArray(words)
        self._withdrawn, self._ids = SlidingArray(withdrawn), SlidingArray(ids)
        self._base = base


@kernel
def _passed(withdrawn: NDArray[np.bool_], count: int) -> Any:
    """Return how many of the oldest messages contain *count* that were not withdrawn."""
    at = 0
    while count > 0:
        count -= not withdrawn[at]
        at += 1
    return at
