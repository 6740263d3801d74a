"""What changes when a message replaces a valid one with the same id.

The content is what decides who receives a message and for how long: place, words, values and ``expires_at``. Once it is
valid, ``published_at`` decides nothing any more, and is not compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import NEVER, Matches, MessageBatch
from nearcast.columns.ids import IdColumn
from nearcast.columns.ragged import offsets_of
from nearcast.columns.rows.messages import MessageRows
from nearcast.matching import Index

__all__ = ["Replacement"]

_ROW_BITS = 32


class Replacement:
    """Messages of a batch, compared with the valid messages that they replace.

    A message with the same id and the same content is not news. If the content differs, subscribers who received the
    earlier message are not told again, and those who no longer match may be told that it no longer counts.
    """

    def __init__(
        self, index: Index, stored: MessageRows, batch: MessageBatch, rows: NDArray[np.int32]
    ) -> None:
        """Compare *batch* with the valid messages that have the same ids, in the given *rows*; -1 for none."""
        again = np.flatnonzero(rows >= 0)
        before = stored.batch(rows[again])
        same = _same(before, batch.take(again))
        #: The rows of *batch* that are news.
        self.news: NDArray[np.int64] = np.delete(np.arange(batch.size), again[same])
        changed = np.searchsorted(self.news, again[~same])  # the positions of changed messages among the news
        found = index.match(before.take(np.flatnonzero(~same)))
        self._before = _keys(changed[found.messages], found.rows)
        self._positions = np.arange(len(self.news))  # among the news, of the messages to be matched

    def restrict(self, valid: NDArray[np.int64]) -> None:
        """Match only the news at the given positions; the rest have expired."""
        self._positions = valid

    def leave_out(self, waits: Callable[[NDArray[np.int64], IdColumn], NDArray[np.bool_]], ids: Any) -> None:
        """Do not count those as told for whom an earlier message still *waits*; *ids* are those of the news."""
        messages, rows = self._before >> _ROW_BITS, self._before & (1 << _ROW_BITS) - 1
        self._before = self._before[~waits(rows, IdColumn(messages, ids))]

    def compare(self, found: Matches) -> tuple[Matches, Matches]:
        """Return the matches of *found* that are new, and those that ended, by position among the news."""
        now = _keys(self._positions[found.messages], found.rows)
        new = ~np.isin(now, self._before)
        counts = np.bincount(found.messages[new], minlength=len(found))
        ended = np.sort(self._before[~np.isin(self._before, now)])
        messages, rows = ended >> _ROW_BITS, (ended & (1 << _ROW_BITS) - 1).astype(np.int32)
        return (
            Matches(offsets_of(counts), found.rows[new]),
            Matches(offsets_of(np.bincount(messages, minlength=len(self.news))), rows),
        )


def _keys(messages: NDArray[Any], rows: NDArray[np.int32]) -> NDArray[np.int64]:
    return (messages.astype(np.int64) << _ROW_BITS) | rows


def _same(before: MessageBatch, after: MessageBatch) -> NDArray[np.bool_]:
    """Tell which messages of two batches have the same place, words, values and time of expiry."""
    same: NDArray[np.bool_] = _ends(before) == _ends(after)
    starts = before.probe_offsets, after.probe_offsets
    same &= np.diff(starts[0]) == np.diff(starts[1])
    for row in np.flatnonzero(same):
        one, two = (slice(start[row], start[row + 1]) for start in starts)
        same[row] = _content(before, one) == _content(after, two)
    return same


def _ends(batch: MessageBatch) -> NDArray[np.int64]:
    return np.full(batch.size, NEVER) if batch.expires_at is None else batch.expires_at


def _content(batch: MessageBatch, rows: slice) -> tuple[Any, ...]:
    """Return the content of a message: its boxes and shape, and the words and values of its first probe."""
    probes, first = batch.probes, rows.start
    words = probes.keywords[probes.keyword_offsets[first] : probes.keyword_offsets[first + 1]]
    given = slice(probes.value_offsets[first], probes.value_offsets[first + 1])
    shape = batch.shapes.region(first, batch.space)
    return (
        probes.boxes[rows].tobytes(),
        shape,
        words.tobytes(),
        probes.value_attributes[given].tobytes(),
        probes.values[given].tobytes(),
    )
