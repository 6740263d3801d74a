"""Which messages are ranked: the last so many, or those of the last so many seconds (section 6.3).

The window takes messages in the order in which they arrive, and they leave in this order. A message that is *late* (it
says that it was published before one that is already there) counts as published with the newest one: nothing leaves
the window before what arrived earlier, and the rank of a tie is the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast import config
from nearcast.columns.growable import GrowableArray
from nearcast.errors import InputError, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CountWindow", "Messages", "TimeWindow", "Window"]


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
            or not 0 < self.seconds < 1e12
        ):
            raise InputError(f"a window lasts a positive number of seconds, not {shown(self.seconds)}")

    @property
    def microseconds(self) -> int:
        """How long it lasts."""
        return round(self.seconds * 1_000_000)


Window = CountWindow | TimeWindow


#: What is known of a message but its words: one cache line.
_RECORD = np.dtype(
    {
        "names": ["places", "lengths", "starts", "stops", "times"],
        "formats": [(np.float64, 3), np.float64, np.int64, np.int64, np.int64],
        "itemsize": config.CACHE_LINE,
    }
)


class Stored(NamedTuple):
    """The messages in memory, as kernels see them; row 0 is message number ``base``."""

    places: NDArray[np.float64]  # [rows, 3]
    lengths: NDArray[np.float64]  # of the vectors of weights
    starts: NDArray[np.int64]  # into the words
    stops: NDArray[np.int64]
    words: NDArray[np.int32]
    base: int


class Messages:
    """The messages of a window, numbered from 0 in the order of their arrival.

    ``first`` is the number of the oldest that is in the window, ``end`` that of the next to come.
    """

    def __init__(self) -> None:
        self.first = self.end = 0
        self._ids = GrowableArray(np.empty(0, np.int64), borrowed=False)
        self._base = 0
        self._table = GrowableArray(np.empty(0, _RECORD), borrowed=False)
        self._words = GrowableArray(np.empty(0, np.int32), borrowed=False)

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def nbytes(self) -> int:
        """Memory."""
        return self._table.nbytes + self._words.nbytes + self._ids.nbytes

    @property
    def stored(self) -> Stored:
        """The arrays, for kernels."""
        places, lengths, starts, stops, _ = self._table.columns()
        return Stored(places, lengths, starts, stops, self._words.values, self._base)

    @property
    def lengths(self) -> NDArray[np.float64]:
        """The lengths of the vectors of those that are in the window."""
        lengths: NDArray[np.float64] = self._table.values["lengths"][self.first - self._base :]
        return lengths

    @property
    def newest(self) -> int:
        """The time of the newest message."""
        table = self._table.values
        return int(table["times"][-1]) if len(table) else -(2**63)

    def append(
        self,
        places: NDArray[np.float64],
        lengths: NDArray[np.float64],
        offsets: NDArray[np.int64],
        words: NDArray[np.int32],
        times: NDArray[np.int64],
        ids: NDArray[Any],
    ) -> None:
        """Take messages; their words are ``words[offsets[i]:offsets[i + 1]]``, ascending."""
        if ids.dtype != self._ids.values.dtype:  # names after numbers, or the reverse: all are names
            if self._ids.values.dtype == np.int64:
                self._ids = GrowableArray(_names(self._ids.values), borrowed=False)
            ids = _names(ids)
        self._ids.extend(ids)
        new = np.zeros(len(places), _RECORD)
        new["places"], new["lengths"] = places, lengths
        new["starts"] = offsets[:-1] - offsets[0] + len(self._words.values)
        new["stops"] = offsets[1:] - offsets[0] + len(self._words.values)
        new["times"] = np.maximum.accumulate(np.maximum(times, self.newest))
        self._table.extend(new)
        self._words.extend(words[offsets[0] : offsets[-1]])
        self.end += len(places)

    def before(self, time: int) -> int:
        """Return the number of the first message that was published at *time* or later."""
        return self._base + int(np.searchsorted(self._table.values["times"], time))

    @property
    def kind(self) -> pa.DataType:
        """What ids are: numbers, while nothing else has come, or names."""
        return pa.int64() if self._ids.values.dtype == np.int64 else pa.string()

    def named(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Return the ids of messages that were there since the last :meth:`tidy`."""
        ids: NDArray[Any] = self._ids.values[numbers - self._base]
        return ids

    def tidy(self) -> None:
        """Free the memory of messages that have left, when they are more than the others."""
        gone = self.first - self._base
        if gone > len(self) + 1024:
            table = self._table.values[gone:].copy()
            cut = int(table["starts"][0]) if len(table) else len(self._words.values)
            table["starts"] -= cut
            table["stops"] -= cut
            for name, values in (
                ("_table", table),
                ("_words", self._words.values[cut:].copy()),
                ("_ids", self._ids.values[gone:].copy()),
            ):
                setattr(self, name, GrowableArray(values, borrowed=False))
            self._base = self.first


def _names(ids: NDArray[Any]) -> NDArray[Any]:
    return ids.astype(str).astype(object)


def in_order(times: NDArray[np.int64] | None, ids: Any) -> NDArray[np.int64] | None:
    """Return the order in which the messages of a batch arrive; None: as they are.

    By the time of publication; of messages that were published at the same time the smaller id (without ids, the
    earlier row, whose number is smaller) counts as newer, so that it wins a tie.
    """
    if times is None or len(times) < 2:
        return None
    if ids is None:
        key: Any = np.arange(len(times))
    else:
        _, key = np.unique(ids.to_numpy(zero_copy_only=False), return_inverse=True)
    order: NDArray[np.int64] = np.lexsort((-key, times))
    return None if np.array_equal(order, np.arange(len(times))) else order
