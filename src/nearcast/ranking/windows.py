"""Which messages are ranked: the last so many, or those of the last so many seconds (section 6.3).

The window takes messages in the order in which they arrive, and they leave in this order. A message that is *late* (it
says that it was published before one that has already come) counts as published with the newest one: nothing leaves
the window before what arrived earlier, and the rank of a tie is the order of arrival. Only a message that another one
under the same id replaces is *withdrawn* before its turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.columns import NOT_GIVEN
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ids import IdColumn
from nearcast.columns.ragged import offsets_of
from nearcast.errors import InputError, shown
from nearcast.kernels import kernel

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from nearcast.columns.parts import Arrays
    from nearcast.ranking.arrivals import Arrivals

__all__ = ["CountWindow", "Messages", "Stored", "TimeWindow", "Window"]


@dataclass(frozen=True)
class CountWindow:
    """The last *size* messages."""

    size: int

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or not 1 <= self.size < 2**30:
            raise InputError(
                f"a window holds a whole number of messages from 1 to {2**30 - 1:,}, not {shown(self.size)}"
            )


@dataclass(frozen=True)
class TimeWindow:
    """The messages of the last *seconds*: one that was published at t is there until t + *seconds*, exclusive."""

    seconds: float

    def __post_init__(self) -> None:
        if (
            isinstance(self.seconds, bool)
            or not isinstance(self.seconds, int | float)
            or not 1e-6 <= self.seconds < 1e12
        ):
            raise InputError(
                f"a window lasts a number of seconds from a millionth to 10¹², not {shown(self.seconds)}"
            )

    @property
    def microseconds(self) -> int:
        """How long it lasts."""
        return round(self.seconds * 1_000_000)


Window = CountWindow | TimeWindow


#: What is known of a message but its words: one cache line.
_RECORD = np.dtype(
    [
        ("places", np.float64, 3),
        ("lengths", np.float64),
        ("starts", np.int64),
        ("stops", np.int64),
        ("times", np.int64),
        ("said", np.int64),
    ]
)


class Stored(NamedTuple):
    """The messages in memory, as kernels see them; row 0 is message number ``base``."""

    places: NDArray[np.float64]  # [rows, 3]
    lengths: NDArray[np.float64]  # of the vectors of weights
    starts: NDArray[np.int64]  # into the words
    stops: NDArray[
        np.int64
    ]  # the same as the start, once the message is withdrawn: it shares no word with anybody
    words: NDArray[np.int32]
    base: int


class Messages:
    """The messages of a window, numbered from 0 in the order of their arrival.

    ``first`` is the number of the oldest that is in the window, ``end`` that of the next to come, ``newest`` the latest
    time of any that has come.
    """

    def __init__(self) -> None:
        self.first = self.end = 0
        self.newest = int(NOT_GIVEN)
        self.gaps = 0  # messages from first to end that were withdrawn
        self._ids = GrowableArray(np.empty(0, np.int64), borrowed=False)
        self._base = 0
        self._table = GrowableArray(np.empty(0, _RECORD), borrowed=False)
        self._withdrawn = GrowableArray(np.empty(0, np.bool_), borrowed=False)
        self._words = GrowableArray(np.empty(0, np.int32), borrowed=False)

    def __len__(self) -> int:
        return self.end - self.first - self.gaps

    @property
    def nbytes(self) -> int:
        """Memory."""
        return sum(part.nbytes for part in (self._table, self._withdrawn, self._words, self._ids))

    @property
    def stored(self) -> Stored:
        """The arrays, for kernels."""
        places, lengths, starts, stops, _, _ = self._table.columns()
        return Stored(places, lengths, starts, stops, self._words.values, self._base)

    @property
    def times(self) -> NDArray[np.int64]:
        """When each of :attr:`stored` counts as published: ascending."""
        times: NDArray[np.int64] = self._table.columns()[4]
        return times

    @property
    def said(self) -> NDArray[np.int64]:
        """When each of :attr:`stored` says that it was published; NOT_GIVEN where it does not."""
        said: NDArray[np.int64] = self._table.columns()[5]
        return said

    @property
    def withdrawn(self) -> NDArray[np.bool_]:
        """Which of :attr:`stored` were withdrawn."""
        return self._withdrawn.values

    @property
    def lengths(self) -> NDArray[np.float64]:
        """The lengths of the vectors of those that are in the window."""
        lengths: NDArray[np.float64] = self._table.values["lengths"][self.first - self._base :]
        return lengths

    def append(self, new: Arrivals, lengths: NDArray[np.float64], part: slice) -> None:
        """Take a part of *new* messages, whose vectors have these *lengths*."""
        ids = new.ids[part]
        self._ids.extend(ids)
        offsets = new.offsets[part.start : part.stop + 1]
        table = np.empty(len(ids), _RECORD)
        table["places"], table["lengths"] = new.places[part], lengths[part]
        table["starts"] = offsets[:-1] - offsets[0] + len(self._words.values)
        table["stops"] = offsets[1:] - offsets[0] + len(self._words.values)
        table["times"] = np.maximum.accumulate(np.maximum(new.times[part], self.newest))
        table["said"] = new.said[part]
        self._table.extend(table)
        self._withdrawn.fill(len(ids), value=False)
        self._words.extend(new.words[offsets[0] : offsets[-1]])
        self.end += len(ids)
        self.newest = int(table["times"][-1])

    def withdraw(self, numbers: NDArray[np.int64]) -> None:
        """Take messages of the window out of it before their turn."""
        rows = numbers - self._base
        self._withdrawn.values[rows] = True
        self._table.values["stops"][rows] = self._table.values["starts"][rows]
        self.gaps += len(numbers)

    def leave(self, number: int) -> int:
        """Let the messages before *number* leave; return how many these are."""
        before = len(self)
        self.gaps -= int(
            np.count_nonzero(self._withdrawn.values[self.first - self._base : number - self._base])
        )
        self.first = number
        return before - len(self)

    def before(self, time: int) -> int:
        """Return the number of the first message that was published at *time* or later."""
        return self._base + int(np.searchsorted(self._table.values["times"], max(time, int(NOT_GIVEN))))

    def last(self, count: int) -> int:
        """Return the number from which on the window has *count* messages, or that of the oldest where it has fewer."""
        if self.gaps == 0:
            return max(self.first, self.end - count)
        return self.first + int(_passed(self._withdrawn.values[self.first - self._base :], len(self) - count))

    def ids(self, numbers: NDArray[np.int64], words: pa.Array | None) -> IdColumn:
        """Return the ids of messages that were there since the last :meth:`tidy`.

        *words* are the names by code, None where ids are integers.
        """
        rows = numbers - self._base
        return IdColumn(rows, self._ids.values) if words is None else IdColumn(self._ids.values[rows], words)

    def is_withdrawn(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which messages were withdrawn, of those that were there since the last :meth:`tidy`."""
        withdrawn: NDArray[np.bool_] = self._withdrawn.values[numbers - self._base]
        return withdrawn

    def recode(self, codes: NDArray[np.int64]) -> None:
        """Learn the new *codes* of names by the old ones."""
        self._ids = GrowableArray(codes[self._ids.values], borrowed=False)

    def tidy(self) -> None:
        """Free the memory of messages that have left, when they are more than the others."""
        gone = self.first - self._base
        if gone > self.end - self.first + 1024:
            table = self._table.values[gone:].copy()
            cut = int(table["starts"][0]) if len(table) else len(self._words.values)
            table["starts"] -= cut
            table["stops"] -= cut
            withdrawn, ids = self._withdrawn.values[gone:].copy(), self._ids.values[gone:].copy()
            self._hold(table, self._words.values[cut:].copy(), withdrawn, ids, self.first)

    def close_gaps(self) -> NDArray[np.int64]:
        """Give the messages of the window other numbers, with none missing between them; the last keeps its own.

        Return the new numbers by the old ones, counted from ``first``; -1 for those that were withdrawn.
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
        return {
            "table": self._table.values,
            "withdrawn": self._withdrawn.values,
            "words": self._words.values,
            "span": np.array([self.first, self.end, self.newest, self._base]),
            "ids": self._ids.values,
        }

    def restore(self, arrays: Arrays) -> None:
        """Take the messages that these arrays came from."""
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
        """Have these messages in memory; the first of them is number *base*."""
        self._table = GrowableArray(table, borrowed=False)
        self._words = GrowableArray(words, borrowed=False)
        self._withdrawn = GrowableArray(withdrawn, borrowed=False)
        self._ids = GrowableArray(ids, borrowed=False)
        self._base = base


@kernel
def _passed(withdrawn: NDArray[np.bool_], count: int) -> Any:
    """Return how many messages one passes, the oldest first, until *count* that were not withdrawn are behind."""
    at = 0
    while count > 0:
        count -= not withdrawn[at]
        at += 1
    return at
