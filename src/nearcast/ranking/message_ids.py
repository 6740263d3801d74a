"""The ids of messages, and what happens when an id is published again.

The same content (place, words and published_at) under the same id changes nothing. Other content replaces the earlier
message: that one is withdrawn, and the new one arrives like any other, unless it has expired. The time of publication
counts because it decides the order and when a message leaves the window. Once a message has left the window, its id is
free.

Ids are forgotten by the generation. Those of new messages are in the *young* generation, and those of earlier ones may
be in the *old* one. When all messages of the old one have left the window, it is dropped as a whole, the young one
grows old, and another one begins: no id is ever moved.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast import config
from nearcast.columns import NEVER, NOT_GIVEN
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ids import IdColumn, TypedIds, id_words, kind_named
from nearcast.columns.parts import nested, part_of
from nearcast.columns.vocabulary import Vocabulary
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


class _Generation:
    """The ids of messages from number *begin* on, until the next generation begins."""

    def __init__(self, begin: int, codes: Vocabulary, numbers: NDArray[np.int64]) -> None:
        self.begin, self.codes = begin, codes
        # By the code of an id: the number of the last message that had it, -1 for none.
        self.numbers = GrowableArray(numbers, borrowed=False)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self.codes.nbytes + self.numbers.nbytes

    def add(self, words: Any) -> NDArray[np.int32]:
        """Return the codes of ids; new ones have no message yet."""
        codes = self.codes.add(words)
        self.numbers.fill(len(self.codes) - len(self.numbers.values), -1)
        return codes

    def renumber(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Renumber messages: old number *first* + i becomes ``numbers[i]``."""
        mine = self.numbers.values
        there = mine >= first
        mine[~there] = -1
        mine[there] = numbers[mine[there] - first]
        # The last message keeps its number, and there are no gaps before it.
        self.begin = first + len(numbers) - int(np.count_nonzero(numbers[max(0, self.begin - first) :] >= 0))

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        own = {"begin": np.array([self.begin]), "numbers": self.numbers.values}
        return own | nested(codes=self.codes.arrays())

    @classmethod
    def restored(cls, arrays: Arrays) -> _Generation:
        """Return the generation that these arrays were taken from."""
        codes = Vocabulary.from_arrays(part_of(arrays, "codes"))
        return cls(int(arrays["begin"][0]), codes, arrays["numbers"])


def _no_ids(begin: int) -> _Generation:
    return _Generation(begin, Vocabulary(), np.empty(0, np.int64))


class MessageIds(TypedIds):
    """Which message of the window has which id. Messages that came without ids are not in it."""

    def __init__(self, kind: pa.DataType | None = None) -> None:
        super().__init__("message", kind)
        self._old, self._young = _no_ids(0), _no_ids(0)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._old.nbytes + self._young.nbytes

    @property
    def are_integers(self) -> bool:
        """Whether ids are integers, not strings."""
        return bool(self.kind == pa.int64())

    def arriving(
        self, new: Arrivals, messages: Messages, window: Window
    ) -> tuple[Arrivals, NDArray[np.int64]]:
        """Return the *new* messages that arrive, and the numbers of the messages in the window that they replace.

        The window ends up as if they had come one by one. A new message that another new one replaces is left out.
        """
        codes, numbers = new.codes, self._young.numbers.values
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
            new.expired,
            numbers,
            arriving,
            replaced,
        )
        if not arriving.all():
            rows = np.flatnonzero(arriving)
            new, codes = new.take(rows), codes[rows]
        numbers[codes] = np.arange(messages.end, messages.end + len(new))
        return new, replaced[:count]

    def tidy(self, messages: Messages) -> None:
        """Forget the old generation when all its messages have left the window; a young one that is large grows old."""
        young = self._young
        if young.begin > messages.first:
            return
        if len(young.codes) > config.RANKING_GAPS:
            self._old, self._young = young, _no_ids(messages.end)
        elif len(self._old.codes):
            self._old = _no_ids(young.begin)

    def renumber(self, first: int, numbers: NDArray[np.int64]) -> None:
        """Renumber messages: old number *first* + i becomes ``numbers[i]``."""
        self._old.renumber(first, numbers)
        self._young.renumber(first, numbers)

    def at_rest(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restore` takes."""
        return nested(old=self._old.at_rest(), young=self._young.at_rest())

    def restore(self, kind: str | None, arrays: Arrays) -> None:
        """Restore the ids, which are of this :attr:`kind_name`, from these arrays."""
        self._kind = kind_named(kind)
        self._old, self._young = (_Generation.restored(part_of(arrays, name)) for name in ("old", "young"))

    def column(self, numbers: NDArray[np.int64], ids: NDArray[np.int64]) -> IdColumn:
        """Return the *ids* of messages with these *numbers* as a column; strings are given by their codes."""
        if self.are_integers:
            return IdColumn(np.arange(len(ids)), ids)
        old, young = self._old.codes.words, self._young.codes.words
        earlier = numbers < self._young.begin
        if not earlier.any():
            return IdColumn(ids, young)
        if earlier.all():
            return IdColumn(ids, old)
        words = pa.concat_arrays([old.take(pa.array(ids[earlier])), young.take(pa.array(ids[~earlier]))])
        named = words.dictionary_encode()
        codes = np.empty_like(ids)
        codes[np.argsort(~earlier, kind="stable")] = named.indices.to_numpy()
        return IdColumn(codes, named.dictionary)

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
        words, known = id_words(batch.ids), len(self._young.codes)
        codes = self._young.add(words)
        if len(self._old.codes) and (codes >= known).any():
            earlier = self._old.codes.encode(words)
            there = (codes >= known) & (earlier >= 0)
            self._young.numbers.values[codes[there]] = self._old.numbers.values[earlier[there]]
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
    expired: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    arriving: NDArray[np.bool_],
    replaced: NDArray[np.int64],
) -> Any:
    """Play the arrival of *new* messages one by one, and see which of them replace others.

    The window has at most *size* messages and lasts *lasting* microseconds, or for ever if that is -1. Mark the
    messages that are *arriving* and are not replaced by another new one, set the *times* at which they count as
    published, and write the numbers of the messages in the window that they have *replaced*. Return how many these are.
    One that has *expired* replaces the others under its id and does not arrive.
    """
    base, first, end, there, newest = span
    gone = 0
    for row in range(len(codes)):
        at = numbers[codes[row]]
        if at >= end:
            if at >= first:
                if not expired[row] and _same(new, at - end, new, row):
                    continue
                arriving[at - end] = False
                there -= 1
        elif at >= first:
            if not expired[row] and _same(old, at - base, new, row):
                continue
            withdrawn[at - base] = True
            replaced[gone] = at
            gone += 1
            there -= 1
        if expired[row]:
            numbers[codes[row]] = -1
            continue
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
