"""A table in the codes of another vocabulary."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearcast.errors import ColumnError
from nearcast.ragged import code_sets

if TYPE_CHECKING:
    from nearcast.attributes import AttributeNames
    from nearcast.columns import SubscriptionTable
    from nearcast.vocabulary import Vocabulary

__all__ = ["recoded"]


def recoded(
    table: SubscriptionTable, vocabulary: Vocabulary | None, attributes: AttributeNames | None
) -> SubscriptionTable:
    """Return *table* with the codes of the given vocabulary and attributes, which take in what they do not have."""
    if table.vocabulary is vocabulary and table.attributes is attributes:
        return table
    if vocabulary is None or attributes is None or table.vocabulary is None or table.attributes is None:
        raise ColumnError(
            "one of the tables speaks in words, the other in bare codes; "
            "build both the same way, the second with like= the first"
        )
    words = vocabulary.add(table.vocabulary.words)
    columns = np.array([attributes.add(name, text=text) for name, text in table.attributes], np.int32)
    strings = attributes.strings.add(table.attributes.strings.words).astype(np.float64)
    clauses, n = table.clauses, len(table.owners)
    textual = np.array([text for _, text in table.attributes], bool)[clauses.test_attributes]

    def ends(values: NDArray[np.float64]) -> NDArray[np.float64]:
        values = values.copy()
        values[textual] = strings[values[textual].astype(np.int64)]
        return values

    recoded_clauses = clauses._replace(
        keywords=code_sets(clauses.keyword_offsets, words[clauses.keywords], n, "keyword")[1],
        forbidden=code_sets(clauses.forbidden_offsets, words[clauses.forbidden], n, "forbidden")[1],
        test_attributes=columns[clauses.test_attributes],
        test_lows=ends(clauses.test_lows),
        test_highs=ends(clauses.test_highs),
    )
    return replace(table, clauses=recoded_clauses, vocabulary=vocabulary, attributes=attributes)
