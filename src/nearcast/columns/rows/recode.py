"""A table in the codes of another vocabulary."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.columns.ragged import code_sets
from nearcast.errors import ColumnError

if TYPE_CHECKING:
    from nearcast.columns.coding import Coding
    from nearcast.columns.subscriptions import SubscriptionTable
    from nearcast.columns.vocabulary import Vocabulary

__all__ = ["recoded"]


def recoded(table: SubscriptionTable, coding: Coding) -> SubscriptionTable:
    """Return *table* in another coding, which takes in what it does not have."""
    if table.coding.fits(coding):
        return table
    vocabulary, attributes = coding.vocabulary, coding.attributes
    if vocabulary is None or attributes is None or table.vocabulary is None or table.attributes is None:
        raise ColumnError(
            "one of the tables speaks in words, the other in bare codes; "
            "build both the same way, the second with like= the first"
        )
    clauses, n = table.clauses, len(table.owners)
    words = _translated(table.vocabulary, vocabulary, clauses.keywords, clauses.forbidden)
    names = list(table.attributes)
    columns, textual = np.zeros(len(names), np.int32), np.zeros(len(names), bool)
    for number in np.unique(clauses.test_attributes):
        name, text = names[number]
        columns[number], textual[number] = attributes.add(name, text=text), text
    texts = textual[clauses.test_attributes]
    lows, highs = clauses.test_lows.copy(), clauses.test_highs.copy()
    codes = lows[texts].astype(np.int64), highs[texts].astype(np.int64)
    strings = _translated(table.attributes.strings, attributes.strings, *codes)
    lows[texts], highs[texts] = strings[codes[0]], strings[codes[1]]
    recoded_clauses = clauses._replace(
        keywords=code_sets(clauses.keyword_offsets, words[clauses.keywords], n, "keyword")[1],
        forbidden=code_sets(clauses.forbidden_offsets, words[clauses.forbidden], n, "forbidden")[1],
        test_attributes=columns[clauses.test_attributes],
        test_lows=lows,
        test_highs=highs,
    )
    return replace(table, clauses=recoded_clauses, coding=coding)


def _translated(source: Vocabulary, target: Vocabulary, *codes: NDArray[Any]) -> NDArray[np.int32]:
    """Return the codes of *target* by those of *source*; only the words that *codes* name are taken in."""
    used = np.unique(np.concatenate(codes))
    translation = np.zeros(len(source), np.int32)
    translation[used] = target.add(source.words.take(pa.array(used)))
    return translation
