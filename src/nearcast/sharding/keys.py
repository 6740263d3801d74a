"""Finding rows by id: a sorted array of *keys*, each the half of a hash of an id, and the row of that id.

Eight bytes for each row, whatever the ids are. Ids with the same half of a hash are found together, so whoever asks
compares the ids themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.columns.vocabulary import string_array, string_buffers
from nearcast.kernels.hashing import hash_integers, hash_strings

__all__ = ["Found", "find_keys", "half_hashes", "sorted_keys"]

_ROW = np.uint64(2**32 - 1)  # the bits of a key that are the row


class Found(NamedTuple):
    """Rows that may have some of the ids that were looked for."""

    ids: NDArray[np.int64]  # the position of each in what was looked for
    rows: NDArray[np.int64]


def half_hashes(ids: pa.Array) -> NDArray[np.uint64]:
    """Return half of a hash of each id, in the upper bits; the same in every process."""
    out = np.empty(len(ids), np.uint64)
    if pa.types.is_integer(ids.type):
        hash_integers(ids.to_numpy(zero_copy_only=False).astype(np.int64), out)
    else:
        data, offsets, _ = string_buffers(string_array(ids))
        hash_strings(data, offsets, out)
    return out & ~_ROW


def sorted_keys(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the keys of rows, given the half hash of the id of each."""
    keys = hashes | np.arange(len(hashes), dtype=np.uint64)
    keys.sort()
    return keys


def find_keys(keys: NDArray[np.uint64], ids: pa.Array) -> Found:
    """Return the rows that may have one of these ids."""
    hashes = half_hashes(ids)
    first, last = np.searchsorted(keys, hashes), np.searchsorted(keys, hashes | _ROW, side="right")
    counts = last - first
    ends = np.cumsum(counts)
    at = np.arange(counts.sum()) + np.repeat(first - (ends - counts), counts)
    return Found(np.repeat(np.arange(len(ids)), counts), (keys[at] & _ROW).astype(np.int64))
