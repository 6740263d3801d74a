"""The ids of messages, and what happens when an id is published again.

The same content (place, words and published_at) under the same id changes nothing. Other content replaces the earlier
message: that one is withdrawn, and the new one arrives like any other. Once a message has left the window, its id is
free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast import config
from nearcast.columns import NEVER, NOT_GIVEN
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ids import TypedIds, id_words, kind_named
from nearcast.columns.parts import nested, part_of
from nearcast.columns.vocabulary import NO_CODE, Vocabulary
from nearcast.errors import ColumnError
from nearcast.kernels import kernel
from nearcast.ranking.windows import CountWindow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import MessageBatch
    from nearcast.columns.parts import Arrays
    from nearcast.ranking.arrivals import Arrivals
    from nearcast.ranking.windows import Messages, Window

__all__ = ["MessageIds"]


class _Content(NamedTuple):
    """The content of messages."""

    places: NDArray[np.float64]  # [messages, 3]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    words: NDArray[np.int32]
    given_times: NDArray[np.int64]


class MessageIds(TypedIds):
    """Which message of the window has which id. Messages that came without ids are not in it."""

    def __init__(self, kind: pa.DataType | None = None) -> None:
        super().__init__("message", kind)
        self._codes = Vocabulary()
        # By the code of an id: the number of the last message that had it.
        self._numbers = GrowableArray(np.empty(0, np.int64), borrowed=False)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._codes.nbytes + self._numbers.nbytes

    def arriving(
        self, new: Arrivals, messages: Messages, window: Window
    ) -> tuple[Arrivals, NDArray[np.int64]]:
        """Return the *new* messages that arrive, and the numbers of the messages in the window that they replace.

        The window ends up as if they had come one by one. A new message that another new one replaces is left out.
        """
        codes = new.codes
        assert codes is not None, "messages without ids replace nothing"
        table, new = messages.table, replace(new, times=new.times.copy())
        arriving, replaced = np.zeros(len(new), np.bool_), np.empty(len(new), np.int64)
        count = _settle(
            _Content(table.places, table.starts, table.stops, table.words, messages.given_times),
            messages.times,
            messages.withdrawn,
            _Span(table.base, messages.first, messages.end, len(messages), messages.newest),
            window.size if isinstance(window, CountWindow) else NEVER,
            -1 if isinstance(window, CountWindow) else window.microseconds,
            _Content(new.places, new.offsets[:-1], new.offsets[1:], new.words, new.given_times),
            new.times,
            codes,
            self._numbers.values,
            arriving,
            replaced,
        )
        if not arriving.all():
            rows = np.flatnonzero(arriving)
            new, codes = new.take(rows), codes[rows]
        self._numbers.values[codes] = np.arange(messages.end, messages.end + len(new))
        return new, replaced[:count]

    def tidy(self, messages: Messages) -> None:
        """Forget the ids of messages that have left the window, once they outnumber the others."""
        if len(self._codes) > 2 * len(messages) + config.RANKING_GAPS:
            there = np.flatnonzero(self._numbers.values >= messages.first)
            if self.words is not None:
                codes = np.full(len(self._codes), NO_CODE, np.int64)
                codes[there] = np.arange(len(there))
                messages.recode(codes)
            self._codes = Vocabulary(self._codes.words.take(pa.array(there)))
            self._numbers = GrowableArray(self._numbers.values[there], borrowed=False)

    def renumber(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Renumber messages: old number *first* + i becomes ``numbers[i]``."""
        there = self._numbers.values >= first
        self._numbers.values[~there] = -1
        self._numbers.values[there] = numbers[self._numbers.values[there] - first]

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        return {"numbers": self._numbers.values, **nested(codes=self._codes.arrays())}

    def restore(self, kind: str | None, arrays: Arrays) -> None:
        """Become the ids that these arrays were taken from, of this :attr:`kind_name`."""
        self._kind = kind_named(kind)
        self._codes = Vocabulary.from_arrays(part_of(arrays, "codes"))
        self._numbers = GrowableArray(arrays["numbers"], borrowed=False)

    @property
    def words(self) -> pa.Array | None:
        """The strings by code; None where ids are integers."""
        return None if self.kind == pa.int64() else self._codes.words

    def coded(self, batch: MessageBatch) -> NDArray[np.int32] | None:
        """Return a code for the id of each message, or None for messages without ids.

        Raise if the ids are of another type than earlier ones. Messages without ids are called by integers.
        """
        if batch.ids is None:
            if len(batch) and self.kind == pa.large_string():
                raise ColumnError(
                    "the ids of messages are strings here, and these messages have none; give them ids"
                )
            self.settle([0][: len(batch)])
            return None
        self.settle(batch.ids)
        codes = self._codes.add(id_words(batch.ids))
        self._numbers.fill(len(self._codes) - len(self._numbers.values), -1)
        return codes


class _Span(NamedTuple):
    """Which messages are in memory and in the window."""

    base: int  # the first message in memory
    first: int  # the first message in the window
    end: int  # the number of the next message
    there: int  # how many messages the window has
    newest: int  # the latest time


@kernel
def _settle(
    old: _Content,
    old_times: NDArray[np.int64],
    withdrawn: NDArray[np.bool_],
    span: _Span,
    size: int,
    lasting: int,
    new: _Content,
    times: NDArray[np.int64],
    codes: NDArray[np.int32],
    numbers: NDArray[np.int64],
    arriving: NDArray[np.bool_],
    replaced: NDArray[np.int64],
) -> Any:
    """Play the arrival of *new* messages one by one, and see which of them replace others.

    The window has at most *size* messages and lasts *lasting* microseconds, or for ever if that is -1. Mark the
    messages that are *arriving* and are not replaced by another new one, set the *times* at which they count as
    published, and write the numbers of the messages in the window that they have *replaced*. Return how many these are.
    """
    base, first, end, there, newest = span
    gone = 0
    for row in range(len(codes)):
        at = numbers[codes[row]]
        if at >= end:
            if at >= first:
                if _same(new, at - end, new, row):
                    continue
                arriving[at - end] = False
                there -= 1
        elif at >= first:
            if _same(old, at - base, new, row):
                continue
            withdrawn[at - base] = True
            replaced[gone] = at
            gone += 1
            there -= 1
        numbers[codes[row]], arriving[row] = end + row, True
        there += 1
        newest = times[row] = max(newest, times[row])
        since = newest - lasting + 1 if lasting >= 0 and newest > NOT_GIVEN + lasting else NOT_GIVEN
        while True:
            if first < end:
                counts, time = not withdrawn[first - base], old_times[first - base]
            else:
                counts, time = arriving[first - end], times[first - end]
            if counts and there <= size and time >= since:
                break
            there -= counts
            first += 1
    return gone


@kernel
def _same(one: _Content, i: int, other: _Content, j: int) -> Any:
    """Return whether two messages have the same content."""
    if (
        one.given_times[i] != other.given_times[j]
        or one.stops[i] - one.starts[i] != other.stops[j] - other.starts[j]
    ):
        return False
    for axis in range(3):
        if one.places[i, axis] != other.places[j, axis]:
            return False
    for k in range(one.stops[i] - one.starts[i]):
        if one.words[one.starts[i] + k] != other.words[other.starts[j] + k]:
            return False
    return True
