"""Texts to words, for texts in ASCII: the compiled twin of :func:`nearcast.text.tokens`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel

__all__ = ["split_ascii"]


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
    *longest* characters are no keywords and are left out.
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
