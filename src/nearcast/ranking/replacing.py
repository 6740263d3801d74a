"""A message under an id that is there already.

The same content (place, words, and the time of publication that it gives) under the same id is no news: nothing
happens. Other content replaces it: what was there is withdrawn, and the message arrives like any other. An id whose
message has left the window is free.
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

__all__ = ["Bearers"]


class _Content(NamedTuple):
    """What messages say."""

    places: NDArray[np.float64]  # [messages, 3]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    words: NDArray[np.int32]
    said: NDArray[np.int64]


class Bearers(TypedIds):
    """Which message of the window bears an id. Messages that came without an id bear none."""

    def __init__(self, kind: pa.DataType | None = None) -> None:
        super().__init__("message", kind)
        self._codes = Vocabulary()
        self._numbers = GrowableArray(
            np.empty(0, np.int64), borrowed=False
        )  # by code: the last to bear the id

    @property
    def nbytes(self) -> int:
        """Memory."""
        return self._codes.nbytes + self._numbers.nbytes

    def arriving(
        self, new: Arrivals, messages: Messages, window: Window
    ) -> tuple[Arrivals, NDArray[np.int64]]:
        """Return which of *new* messages are to arrive, and the numbers of those in the window that they replace.

        What the window holds afterwards is what it would hold if they came one by one. A new message that another one
        of them replaces is left out.
        """
        codes = new.codes
        assert codes is not None, "messages without ids replace nothing"
        stored, new = messages.stored, replace(new, times=new.times.copy())
        arriving, replaced = np.zeros(len(new), np.bool_), np.empty(len(new), np.int64)
        count = _settle(
            _Content(stored.places, stored.starts, stored.stops, stored.words, messages.said),
            messages.times,
            messages.withdrawn,
            _Span(stored.base, messages.first, messages.end, len(messages), messages.newest),
            window.size if isinstance(window, CountWindow) else NEVER,
            -1 if isinstance(window, CountWindow) else window.microseconds,
            _Content(new.places, new.offsets[:-1], new.offsets[1:], new.words, new.said),
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
        """Forget the ids of messages that have left, when they are more than the others."""
        if len(self._codes) > 2 * len(messages) + config.RANKING_GAPS:
            there = np.flatnonzero(self._numbers.values >= messages.first)
            if self.words is not None:
                codes = np.full(len(self._codes), NO_CODE, np.int64)
                codes[there] = np.arange(len(there))
                messages.recode(codes)
            self._codes = Vocabulary(self._codes.words.take(pa.array(there)))
            self._numbers = GrowableArray(self._numbers.values[there], borrowed=False)

    def renumber(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Learn the new *numbers* of messages by the old ones, counted from *first*."""
        there = self._numbers.values >= first
        self._numbers.values[~there] = -1
        self._numbers.values[there] = numbers[self._numbers.values[there] - first]

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        return {"numbers": self._numbers.values, **nested(codes=self._codes.arrays())}

    def restore(self, kind: str | None, arrays: Arrays) -> None:
        """Take the ids that these arrays came from, of this :attr:`kind_name`."""
        self._kind = kind_named(kind)
        self._codes = Vocabulary.from_arrays(part_of(arrays, "codes"))
        self._numbers = GrowableArray(arrays["numbers"], borrowed=False)

    @property
    def words(self) -> pa.Array | None:
        """The names by code; None where ids are integers."""
        return None if self.kind == pa.int64() else self._codes.words

    def coded(self, batch: MessageBatch) -> NDArray[np.int32] | None:
        """Return a code for the id of each message, with a place among the numbers; None for messages without ids.

        Raise where ids are of another type than those before them; what has no id is called by an integer.
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
    """Which messages are in the window."""

    base: int  # the first in memory
    first: int
    end: int
    there: int  # how many
    newest: int


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
    """Let *new* messages come one by one into a window of so many messages, lasting so many microseconds (-1: ever).

    Mark those that are *arriving* and not replaced by another one, with the *times* that they count as published at,
    and write the numbers of those in the window that they have *replaced*; return how many these are.
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
    """Say whether a message and another one have the same content."""
    if one.said[i] != other.said[j] or one.stops[i] - one.starts[i] != other.stops[j] - other.starts[j]:
        return False
    for axis in range(3):
        if one.places[i, axis] != other.places[j, axis]:
            return False
    for k in range(one.stops[i] - one.starts[i]):
        if one.words[one.starts[i] + k] != other.words[other.starts[j] + k]:
            return False
    return True
