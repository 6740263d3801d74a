"""Translates tables and batches into another coding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.ragged import code_sets, offsets_of
from nearcast.columns.values import Values
from nearcast.errors import ColumnError
from nearcast.kernels.verify import Probes

if TYPE_CHECKING:
    from nearcast.columns.attributes import AttributeNames
    from nearcast.columns.coding import Coding
    from nearcast.columns.messages import MessageBatch
    from nearcast.columns.subscriptions import SubscriptionTable
    from nearcast.columns.vocabulary import Vocabulary

__all__ = ["recoded", "recoded_messages"]


def recoded(table: SubscriptionTable, coding: Coding) -> SubscriptionTable:
    """Return *table* in another coding, to which the words and attributes that it lacks are added."""
    if table.coding.fits(coding):
        return table
    vocabulary, attributes = coding.vocabulary, coding.attributes
    if vocabulary is None or attributes is None or table.vocabulary is None or table.attributes is None:
        raise ColumnError(
            "one of the tables has words, the other was built from bare codes; "
            "build both the same way, the second with like= the first"
        )
    clauses, n = table.clauses, len(table.owners)
    words = _translate(table.vocabulary, vocabulary, clauses.keywords, clauses.forbidden)
    columns, textual = _translate_names(table.attributes, attributes, clauses.test_attributes)
    texts = textual[clauses.test_attributes]
    lows, highs = clauses.test_lows.copy(), clauses.test_highs.copy()
    codes = lows[texts].astype(np.int64), highs[texts].astype(np.int64)
    strings = _translate(table.attributes.strings, attributes.strings, *codes)
    lows[texts], highs[texts] = strings[codes[0]], strings[codes[1]]

    def offsets(runs: NDArray[np.int32]) -> NDArray[np.int64]:
        return offsets_of(runs[:, 1] - runs[:, 0])

    recoded_clauses = clauses._replace(
        keywords=code_sets(offsets(clauses.keyword_runs), words[clauses.keywords], n, "keyword")[1],
        forbidden=code_sets(offsets(clauses.forbidden_runs), words[clauses.forbidden], n, "forbidden")[1],
        test_attributes=columns[clauses.test_attributes],
        test_lows=lows,
        test_highs=highs,
    )
    return replace(table, clauses=recoded_clauses, coding=coding)


def recoded_messages(batch: MessageBatch, coding: Coding) -> MessageBatch:
    """Return *batch*, which has words, in another coding, to which those that it lacks are added."""
    vocabulary, attributes = coding.words()
    before, names = batch.coding.words()
    probes, n = batch.probes, len(batch.owners)
    words = _translate(before, vocabulary, probes.keywords)
    columns, textual = _translate_names(names, attributes, probes.value_attributes)
    texts = textual[probes.value_attributes]
    values = probes.values.copy()
    codes = values[texts].astype(np.int64)
    values[texts] = _translate(names.strings, attributes.strings, codes)[codes]
    owners = np.repeat(np.arange(n), np.diff(probes.value_offsets))
    renamed = Values.from_cells(n, owners, columns[probes.value_attributes], values)
    offsets, keywords = code_sets(probes.keyword_offsets, words[probes.keywords], n, "keyword")
    return replace(batch, probes=Probes(probes.boxes, offsets, keywords, *renamed), coding=coding)


def _translate_names(
    source: AttributeNames, target: AttributeNames, used: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the columns of *target* by those of *source*, and which hold strings; only the *used* ones are added."""
    columns = np.zeros(source.span, np.int32)
    numbers = np.unique(used).tolist()
    for number, (name, text) in zip(numbers, source.take(numbers), strict=True):
        columns[number] = target.add(name, text=text)
    return columns, source.textual


def _translate(source: Vocabulary, target: Vocabulary, *codes: NDArray[Any]) -> NDArray[np.int32]:
    """Return the codes of *target* by those of *source*; only the words that occur in *codes* are added.

    The last entry is that of ``NO_CODE``, which stays as it is.
    """
    used = np.unique(np.concatenate(codes))
    translation = np.zeros(source.span + 1, np.int32)
    translation[used] = target.add(source.take(used))
    return translation
