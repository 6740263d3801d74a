"""Splits ASCII texts into words: the compiled twin of :func:`nearcast.text.tokens`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel

__all__ = ["lower_ascii", "split_ascii"]


@kernel
def split_ascii(
    data: NDArray[np.uint8],
    offsets: NDArray[Any],
    longest: int,
    words: NDArray[np.uint8],
    word_offsets: NDArray[np.int64],
    text_offsets: NDArray[np.int64],
    foreign: NDArray[np.bool_],
) -> Any:
    """Write the lower-cased runs of letters and digits of each text, one after the other; return how many there are.

    Word k is ``words[word_offsets[k]:word_offsets[k + 1]]``, text i has the words ``text_offsets[i]`` to
    ``text_offsets[i + 1]``. A text with a byte over 127 gets no words and is marked *foreign*. Runs of more than
    *longest* characters cannot be keywords, and are left out.
    """
    count = 0
    filled = 0
    word_offsets[0] = 0
    text_offsets[0] = 0
    for text in range(offsets.size - 1):
        first, begin, start = count, filled, filled
        for i in range(offsets[text], offsets[text + 1]):
            byte = data[i]
            if byte > 127:
                foreign[text] = True
                break
            if 65 <= byte <= 90:
                byte += 32
            if 97 <= byte <= 122 or 48 <= byte <= 57:
                words[filled] = byte
                filled += 1
            elif filled > start:
                if filled - start > longest:
                    filled = start
                else:
                    count += 1
                    word_offsets[count] = filled
                    start = filled
        if foreign[text]:
            count, filled = first, begin
        elif filled - start > longest:
            filled = start
        elif filled > start:
            count += 1
            word_offsets[count] = filled
        text_offsets[text + 1] = count
    return count


@kernel
def lower_ascii(
    data: NDArray[np.uint8],
    offsets: NDArray[Any],
    longest: int,
    small: NDArray[np.uint8],
    ends: NDArray[np.int64],
    odd: NDArray[np.bool_],
) -> Any:
    """Write strings with ASCII letters in lower case, one after the other, and their ends; return how many are odd.

    A string is odd unless it is one run of ASCII letters and digits, of one to *longest* bytes.
    """
    count, first = 0, offsets[0]
    ends[0] = 0
    for word in range(offsets.size - 1):
        start, stop = offsets[word], offsets[word + 1]
        plain = start < stop <= start + longest
        for i in range(start, stop):
            byte = data[i]
            if 65 <= byte <= 90:
                byte += 32
            small[i - first] = byte
            plain &= 97 <= byte <= 122 or 48 <= byte <= 57
        ends[word + 1] = stop - first
        odd[word] = not plain
        count += not plain
    return count
