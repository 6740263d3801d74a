"""Turns the word columns of a table into words and codes; Python looks only at what is not plain ASCII.

Keywords of ASCII letters and digits, in any case, are read in bulk; each distinct other keyword goes through
:mod:`nearcast.text` once. Texts in ASCII are split by a kernel; each other text goes through :mod:`nearcast.text`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast import config, text
from nearcast.columns.from_arrow.source import Source, is_list, is_text
from nearcast.columns.ragged import offsets_of
from nearcast.columns.vocabulary import string_buffers
from nearcast.errors import ColumnError, ExpressionError, shown
from nearcast.kernels.tokens import lower_ascii, split_ascii

__all__ = ["message_words", "subscription_words", "text_codes"]


def subscription_words(source: Source) -> tuple[NDArray[np.int64], pa.Array]:
    """Return (offsets, words) of the keywords of subscriptions; ``*`` is a keyword without words.

    A list that is null or empty is refused: who asks for every message says so. Each keyword must contain a word:
    without it the subscription would ask for less than it says.
    """
    offsets, words = _lists(source)
    for empty in np.flatnonzero(offsets[1:] == offsets[:-1]):
        missing = ColumnError(f"{source.name_of(empty)} has no keywords; write * for every message")
        source.refuse("keywords", empty, missing)
    for at in np.flatnonzero(words.is_null()) if words.null_count else ():
        row = _row_of(offsets, at)
        problem = "has a null among its keywords; leave it out"
        source.refuse("keywords", row, ColumnError(f"{source.name_of(row)} {problem}"))
    return _normalise(source, offsets, words, _split_keyword)


def message_words(source: Source) -> tuple[NDArray[np.int64], pa.Array]:
    """Return (offsets, words) of the keywords of messages; whatever is not a word is left out."""
    offsets, words = _lists(source)
    return _normalise(source, offsets, words, text.tokens)


def _split_keyword(keyword: str) -> list[str]:
    if keyword == "*":
        return []
    words = text.asked_words(keyword)
    if not words:
        raise ExpressionError(
            f"keyword {shown(keyword)} has no letter and no digit, so it asks for nothing; leave it out"
        )
    return words


def _lists(source: Source) -> tuple[NDArray[np.int64], pa.Array]:
    """Return (offsets, strings) of the keywords as they are; a null list counts as an empty one."""
    column = source["keywords"]
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column) + 1, np.int64), pa.array([], pa.large_string())
    if not is_list(kind):
        hint = "a text goes into 'text'" if source.what == "message" else "give lists, or write an expression"
        raise ColumnError(f"keywords must be a column of lists of strings, not of {kind}; {hint}")
    if not is_text(kind.value_type) and not pa.types.is_null(kind.value_type):
        raise ColumnError(f"keywords must be lists of strings, not of {kind.value_type}")
    if not column.null_count and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        strings = column.values
        if offsets[0] or offsets[-1] < len(strings):  # a part of a longer column
            strings = strings.slice(offsets[0], offsets[-1] - offsets[0])
            offsets -= offsets[0]
        return offsets, _strings(strings)
    offsets = offsets_of(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False))
    return offsets, _strings(column.flatten())


def _normalise(
    source: Source, offsets: NDArray[np.int64], words: pa.Array, split: Callable[[str], list[str]]
) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the lists with each keyword replaced by its words, into which *split* splits it."""
    n = len(words)
    lower, odd, count = _lower(words)
    if words.null_count:
        odd |= ~words.is_valid().to_numpy(zero_copy_only=False)
    elif not count:
        return offsets, lower
    others = np.flatnonzero(odd)
    distinct = words.take(pa.array(others)).dictionary_encode(null_encoding="encode")
    numbers = distinct.indices.to_numpy(zero_copy_only=False)

    def rows(number: int) -> NDArray[np.int64]:
        positions: NDArray[np.int64] = others[numbers == number]
        return np.searchsorted(offsets, positions, side="right") - 1

    found = [
        [] if keyword is None else source.at("keywords", partial(rows, number), split, keyword) or []
        for number, keyword in enumerate(distinct.dictionary.to_pylist())
    ]
    # The new words come after the old ones; each keyword picks one of the old or some of the new.
    widths = np.array([len(tokens) for tokens in found], np.int64)
    begins, counts = np.arange(n), np.ones(n, np.int64)
    begins[others], counts[others] = n + offsets_of(widths)[:-1][numbers], widths[numbers]
    ends = offsets_of(counts)
    picks = np.repeat(begins - ends[:-1], counts) + np.arange(ends[-1])
    new = pa.array([token for tokens in found for token in tokens], pa.large_string())
    return ends[offsets], pa.concat_arrays([lower, new]).take(pa.array(picks))


def _strings(column: pa.Array) -> pa.Array:
    """Return strings of any layout as an array of bytes and offsets."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column
    return column.cast(pa.large_string())


def _lower(words: pa.Array) -> tuple[pa.Array, NDArray[np.bool_], int]:
    """Return strings with ASCII letters in lower case, which of them are not plain words, and how many those are.

    A null becomes any string.
    """
    data, offsets, _ = string_buffers(words)
    small, ends = np.empty(offsets[-1] - offsets[0], np.uint8), np.empty(len(offsets), np.int64)
    odd = np.empty(len(words), np.bool_)
    count = lower_ascii(data, offsets, config.MAX_KEYWORD_CHARS, small, ends, odd)
    array = pa.LargeStringArray.from_buffers(len(words), pa.py_buffer(ends), pa.py_buffer(small))
    return array, odd, count


def _row_of(offsets: NDArray[np.int64], word: np.int64) -> int:
    return int(np.searchsorted(offsets, word, side="right")) - 1


def text_codes(
    column: pa.Array, code: Callable[[Any], NDArray[np.int32]]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return (offsets, codes) of the words of each text: a kernel splits ASCII texts, the others go one by one.

    *code* turns words into codes: the ``encode`` of a vocabulary, or its ``add``.
    """
    if not is_text(column.type) and not pa.types.is_null(column.type):
        raise ColumnError(f"text must be a column of strings, not of {column.type}")
    column = _strings(column)
    if column.null_count:
        column = column.fill_null("")
    data, offsets, _ = string_buffers(column)
    m, size = len(column), int(offsets[-1] - offsets[0])
    words, ends = np.empty(size, np.uint8), np.empty(size // 2 + m + 2, np.int64)
    text_offsets, foreign = np.empty(m + 1, np.int64), np.zeros(m, np.bool_)
    count = split_ascii(data, offsets, config.MAX_KEYWORD_CHARS, words, ends, text_offsets, foreign)
    array = pa.LargeStringArray.from_buffers(count, pa.py_buffer(ends[: count + 1]), pa.py_buffer(words))
    codes = code(array)
    rows = np.flatnonzero(foreign)
    if not len(rows):
        return text_offsets, codes
    found = [text.tokens(column[int(row)].as_py()) for row in rows]
    counts = np.diff(text_offsets)  # still 0 for the foreign ones
    counts[rows] = [len(tokens) for tokens in found]
    merged = np.empty(counts.sum(), np.int32)
    ours = np.repeat(foreign, counts)
    merged[ours] = code([word for tokens in found for word in tokens])
    merged[~ours] = codes
    return offsets_of(counts), merged
