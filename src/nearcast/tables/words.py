"""The word columns of a table, to codes: no Python loop touches a keyword in ASCII."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast import config, text
from nearcast.errors import ColumnError
from nearcast.kernels.tokens import split_ascii
from nearcast.ragged import offsets_of
from nearcast.vocabulary import Vocabulary, string_buffers

__all__ = ["text_codes", "word_lists"]


def word_lists(column: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return (offsets, words) of a column of lists, normalised; a null is an empty list."""
    n = len(column)
    if pa.types.is_null(column.type):
        return np.zeros(n + 1, np.int64), pa.array([], pa.string())
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise ColumnError(
            f"keywords must be a column of lists of strings, not of {column.type}; a text is 'text'"
        )
    offsets = offsets_of(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False))
    words = column.flatten()  # leaves nulls out
    if pa.types.is_null(words.type):
        words = words.cast(pa.string())
    if not pa.types.is_string(words.type) and not pa.types.is_large_string(words.type):
        raise ColumnError(f"keywords must be lists of strings, not of {words.type}")
    distinct = words.dictionary_encode()
    known = distinct.dictionary
    if words.null_count == 0 and pc.all(pc.match_substring_regex(known, "^[0-9a-z]+$")).as_py() in (
        True,
        None,
    ):
        return offsets, words
    tokens = pa.array([text.tokens(word) for word in known.to_pylist()], pa.list_(pa.string()))
    each = tokens.take(distinct.indices)
    sizes = pc.fill_null(pc.list_value_length(each), 0).to_numpy(zero_copy_only=False)
    return offsets_of(sizes)[offsets], each.flatten()


def text_codes(column: pa.Array, vocabulary: Vocabulary) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return (offsets, codes) of the words of each text: ASCII texts by a kernel, the others one by one."""
    if (
        pa.types.is_dictionary(column.type)
        or pa.types.is_string_view(column.type)
        or pa.types.is_null(column.type)
    ):
        column = column.cast(pa.large_string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ColumnError(f"text must be a column of strings, not of {column.type}")
    if column.null_count:
        column = column.fill_null("")
    data, offsets, _ = string_buffers(column)
    m, size = len(column), int(offsets[-1] - offsets[0])
    words, ends = np.empty(size, np.uint8), np.empty(size // 2 + m + 2, np.int64)
    text_offsets, foreign = np.empty(m + 1, np.int64), np.zeros(m, np.bool_)
    count = split_ascii(data, offsets, config.MAX_KEYWORD_CHARS, words, ends, text_offsets, foreign)
    array = pa.LargeStringArray.from_buffers(count, pa.py_buffer(ends[: count + 1]), pa.py_buffer(words))
    codes = vocabulary.encode(array)
    rows = np.flatnonzero(foreign)
    if not len(rows):
        return text_offsets, codes
    found = [text.tokens(column[int(row)].as_py()) for row in rows]
    counts = np.diff(text_offsets)  # 0 for the foreign ones so far
    counts[rows] = [len(tokens) for tokens in found]
    merged = np.empty(counts.sum(), np.int32)
    ours = np.repeat(foreign, counts)
    merged[ours] = vocabulary.encode([word for tokens in found for word in tokens])
    merged[~ours] = codes
    return offsets_of(counts), merged
