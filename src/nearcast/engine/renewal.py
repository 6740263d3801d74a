"""The forgetting of words that nothing uses any more, without any call that has to wait for it.

A census notes the codes that clauses and messages have, some rows with each call. If most words turn out to be unused,
the others are copied to a new coding, some with each call, and **each keeps its code**. So no clause, no message and no
structure changes: when all words are there, the rows get the new coding by one assignment. It gives the codes that
nothing used to new words. For a structure, that is as if a word had come back.

Only a batch of messages that was made before may have a code that now means something else. It is refused, since it
has the old coding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import MessageBatch
from nearcast.columns.attributes import AttributeNames
from nearcast.columns.clauses import take_clauses
from nearcast.columns.coding import Coding
from nearcast.columns.growable import GrowableArray
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.columns.rows.messages import MessageRows
from nearcast.columns.vocabulary import Vocabulary
from nearcast.kernels.verify import Clauses

__all__ = ["Renewal", "count_codes"]


def count_codes(coding: Coding) -> int:
    """Return how many words, strings and attributes have codes."""
    vocabulary, attributes = coding.words()
    return len(vocabulary) + len(attributes.strings) + len(attributes)


class Renewal:
    """The way of rows from one coding to another that has only the words, strings and attributes in use.

    What is added to the rows meanwhile must be shown to :meth:`note_clauses` or :meth:`note_messages`.
    """

    def __init__(self, clauses: ClauseStore, messages: Sequence[MessageRows]) -> None:
        self._rows: list[ClauseStore | MessageRows] = [clauses, *messages]
        self._old = clauses.coding
        vocabulary, attributes = self._old.words()
        self._words, self._strings = _Codes(vocabulary), _Codes(attributes.strings)
        self._attributes = _Codes(attributes)
        self._seen = 0  # how many of the stores the census is done with
        self._at = 0  # its next row in the next one, and then the next slot to be cleared
        self._new: Coding | None = None  # once the census is over
        self._cleared = False  # whether the memory of its tables is

    def note_clauses(self, clauses: Clauses) -> None:
        """Note the codes of clauses."""
        ends = clauses.test_lows, clauses.test_highs
        self._note((clauses.keywords, clauses.forbidden), clauses.test_attributes, ends)

    def note_messages(self, batch: MessageBatch) -> None:
        """Note the codes of messages."""
        self._note((batch.probes.keywords,), batch.probes.value_attributes, (batch.probes.values,))

    def step(self, count: int) -> bool:
        """Look at *count* rows, or copy the words of more codes; tell whether there is nothing left to do."""
        if self._seen < len(self._rows):
            self._look(self._rows[self._seen], count)
            return self._seen == len(self._rows) and not self._begin_copying()
        assert self._new is not None
        if not self._cleared:
            self._cleared = self._clear(self._new)
            return False
        if not all(
            codes.copy(config.ENGINE_COPIED_SHARE * count)
            for codes in (self._words, self._strings, self._attributes)
        ):
            return False
        for rows in self._rows:
            rows.coding = self._new
        return True

    def _look(self, rows: ClauseStore | MessageRows, count: int) -> None:
        """Note the codes of the next rows."""
        stop = self._at + count
        if isinstance(rows, ClauseStore):
            size, living = rows.rows, np.flatnonzero(rows.alive[self._at : stop])
            self.note_clauses(take_clauses(rows.clauses, self._at + living))
        else:
            size, living = rows.size, np.flatnonzero(rows.present[self._at : stop])
            self.note_messages(rows.batch(self._at + living))
        self._at = stop
        if stop >= size:
            self._seen, self._at = self._seen + 1, 0

    def _note(
        self,
        words: Sequence[NDArray[np.int32]],
        attributes: NDArray[np.int32],
        values: Sequence[NDArray[Any]],
    ) -> None:
        for codes in words:
            self._words.use(codes)
        if len(attributes):
            self._attributes.use(attributes)
            texts = self._old.words()[1].textual[attributes]
            for column in values:
                strings = column[texts].astype(np.int64)
                self._strings.use(strings[strings >= 0])  # a string that was not learnt has no code

    def _begin_copying(self) -> bool:
        """Begin with a new coding; tell whether it is worth the work, because most words are unused."""
        words, strings = self._words.count(), self._strings.count()
        if 2 * (words + strings + self._attributes.count()) >= count_codes(self._old):
            return False
        # With twice the room, the tables need not grow while they are filled.
        vocabulary, names = Vocabulary(room=2 * words), AttributeNames(strings=Vocabulary(room=2 * strings))
        self._new = replace(self._old, vocabulary=vocabulary, attributes=names)
        self._words.target, self._strings.target, self._attributes.target = vocabulary, names.strings, names
        return True

    def _clear(self, coding: Coding) -> bool:
        """Have the memory of more slots cleared; tell whether all of it is."""
        vocabulary, attributes = coding.words()
        begin, self._at = self._at, self._at + config.ENGINE_CENSUS_SLOTS
        cleared = [words.touch(begin, self._at) for words in (vocabulary, attributes.strings)]
        return all(cleared)


class _Codes:
    """The codes of words or attributes: which are in use, and how far they have been copied."""

    def __init__(self, source: Any) -> None:
        """Begin with a vocabulary, or attributes: both have ``span``, ``take`` and ``put``."""
        self._source = source
        self.target: Any = None
        self._used = GrowableArray(np.zeros(source.span, np.bool_), borrowed=False, spare=1.0)
        self._copied = 0  # the codes before this one have been copied if they are in use

    def count(self) -> int:
        """Return how many codes are in use."""
        return int(np.count_nonzero(self._used.values))

    def use(self, codes: NDArray[Any]) -> None:
        """Note that codes are in use."""
        self._used.fill(max(self._source.span - len(self._used.values), 0), False)
        used = self._used.values
        if self._copied:
            late = codes[codes < self._copied]
            self._put(np.unique(late[~used[late]]))
        used[codes] = True

    def copy(self, count: int) -> bool:
        """Copy the next codes that are in use; tell whether they were the last."""
        begin, self._copied = self._copied, min(self._copied + count, self._source.span)
        self._put(begin + np.flatnonzero(self._used.values[begin : self._copied]))
        return bool(self._copied == self._source.span)

    def _put(self, codes: NDArray[np.int64]) -> None:
        self.target.put(self._source.take(codes), codes, self._copied)
