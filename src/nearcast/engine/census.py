"""A census of the words in use, taken a few rows at a time so that no call waits for all of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import runs_take
from nearcast.columns.rows.base import Rows
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.columns.rows.messages import MessageRows

__all__ = ["WordCensus"]


class WordCensus:
    """Marks the words that the clauses and the kept messages of an engine have.

    Rows that change while the census is under way may be missed or counted though they left: it is an estimate.
    """

    def __init__(self, clauses: ClauseStore, messages: MessageRows, words: int) -> None:
        self._clauses, self._messages = clauses, messages
        self._marks = np.zeros(words, np.bool_)
        self._at = 0  # the next row: those of clauses come first, then those of messages

    @property
    def used(self) -> int:
        """How many words were found in use so far."""
        return int(np.count_nonzero(self._marks))

    def step(self) -> bool:
        """Look at the next rows; tell whether they were the last."""
        clauses, messages = self._clauses, self._messages
        first = self._at - clauses.rows
        if first < 0:
            rows = _living(clauses, self._at)
            self._mark(clauses.clauses.keyword_runs, clauses.clauses.keywords, rows)
            self._mark(clauses.clauses.forbidden_runs, clauses.clauses.forbidden, rows)
        else:
            rows = _living(messages, first)
            self._mark(messages.stored.keyword_runs, messages.stored.keywords, rows)
        self._at += config.ENGINE_CENSUS_ROWS
        return self._at >= clauses.rows + messages.rows

    def _mark(self, runs: NDArray[np.int32], words: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        if len(runs):
            found = runs_take(runs, words, rows)[1]
            self._marks[found[found < len(self._marks)]] = True


def _living(store: Rows, begin: int) -> NDArray[np.int64]:
    """Return the rows that count among the next ones from *begin* on."""
    return begin + np.flatnonzero(store.alive[begin : begin + config.ENGINE_CENSUS_ROWS])
