"""Subscriptions that somebody asks about, in the codes of the graph. The graph learns no words from them.

What the graph has never seen cannot be part of anything that covers a question. So unknown words, and tests on unknown
attributes, are left out of it. An unknown string that a test compares with gets a code that no known string has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.columns.ragged import code_sets, offsets_of, runs_of
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.columns.vocabulary import NO_CODE
from nearcast.errors import ColumnError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.columns import SubscriptionTable
    from nearcast.columns.vocabulary import Vocabulary

__all__ = ["question_store"]


def question_store(table: SubscriptionTable, held: ClauseStore) -> ClauseStore:
    """Return a store of the questions alone, in the codes of *held*, which stays as it is."""
    if table.size and table.space != held.space:
        raise ColumnError(
            f"the subscriptions here are in {held.space!r}, those of the question in {table.space!r}"
        )
    if table.coding.fits(held.coding):
        return ClauseStore(replace(table, ids=None))
    return ClauseStore(_translated(table, held))


def _translated(table: SubscriptionTable, held: ClauseStore) -> SubscriptionTable:
    """Return a table in the codes of *held*, without what these have no code for."""
    coding, clauses, n = held.coding, table.clauses, len(table.owners)
    vocabulary, names = table.vocabulary, table.attributes
    if vocabulary is None or names is None or coding.vocabulary is None or coding.attributes is None:
        raise ColumnError(
            "the graph has words and the question bare codes, or the other way round; "
            "build both the same way, the question with like= the first table"
        )
    words = _codes(vocabulary, coding.vocabulary, clauses.keywords, clauses.forbidden)
    columns = np.full(names.span, NO_CODE, np.int32)
    for number, attribute in enumerate(names.columns):
        column = None if attribute is None else coding.attributes.find(attribute[0], text=attribute[1])
        columns[number] = NO_CODE if column is None else column
    lows, highs = clauses.test_lows.copy(), clauses.test_highs.copy()
    texts = names.textual[clauses.test_attributes]
    codes = lows[texts].astype(np.int64), highs[texts].astype(np.int64)
    strings = _codes(names.strings, coding.attributes.strings, *codes)
    lows[texts], highs[texts] = strings[codes[0]], strings[codes[1]]

    def word_sets(runs: NDArray[np.int32], values: NDArray[np.int32], name: str) -> tuple[Any, Any]:
        offsets, kept = code_sets(_offsets(runs, n), words[values], n, name, drop_negative=True)
        return runs_of(offsets), kept

    keyword_runs, keywords = word_sets(clauses.keyword_runs, clauses.keywords, "keyword")
    forbidden_runs, forbidden = word_sets(clauses.forbidden_runs, clauses.forbidden, "forbidden")
    attributes = columns[clauses.test_attributes]
    known = attributes != NO_CODE
    offsets = offsets_of(known)[_offsets(clauses.test_runs, n)]
    translated = clauses._replace(
        keyword_runs=keyword_runs,
        keywords=keywords,
        forbidden_runs=forbidden_runs,
        forbidden=forbidden,
        test_runs=runs_of(offsets),
        test_attributes=attributes[known],
        test_lows=lows[known],
        test_highs=highs[known],
        test_flags=clauses.test_flags[known],
    )
    return replace(table, clauses=translated, ids=None, coding=coding)


def _offsets(runs: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    """Return where the values of each clause begin; a column that no clause has values in may have no runs."""
    return offsets_of(runs[:, 1] - runs[:, 0]) if len(runs) else np.zeros(n + 1, np.int64)


def _codes(source: Vocabulary, target: Vocabulary, *codes: NDArray[Any]) -> NDArray[np.int32]:
    """Return the codes of *target* by those of *source*, where *codes* name them; NO_CODE for unknown words."""
    used = np.unique(np.concatenate(codes))
    translation = np.full(source.span, NO_CODE, np.int32)
    translation[used] = target.encode(source.take(used))
    return translation
