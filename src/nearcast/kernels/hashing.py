"""Turns strings into codes, with an open-addressing hash table over Arrow's string buffers.

A word is a run of UTF-8 bytes. Its first eight and its last eight bytes are read as one number each; they overlap in a
word of fewer than sixteen. A slot of the table is 16 bytes, so that a look-up reads one cache line: the tag (24 bits of
the hash, the length up to 255, the code plus one; 0 is empty) and the first eight bytes. That is enough for words of up
to eight bytes; longer ones are compared with the stored word. Look-ups go in blocks: first all hashes of a block, then
its slots, then the words that they name, in loops almost without branches, so that the processor overlaps the misses;
the loop that decides then finds everything in its cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core import config as numba_config
from numba.extending import intrinsic
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel

__all__ = ["NO_CODE", "Words", "encode", "hash_integers", "hash_strings", "insert", "rehash"]

NO_CODE = -1  # the code of a word that the vocabulary does not hold
_BLOCK = config.HASH_BLOCK
_LONGEST_TAGGED = 255
_SEED = np.uint64(0xCBF29CE484222325)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_STIR = np.uint64(0xD6E8FEB86659FD93)
_HASH_BITS = np.uint64(0xFFFFFF0000000000)
_CODE_BITS = np.uint64(0xFFFFFFFF)
_U32 = np.uint64(32)
_U3 = np.uint64(3)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
# The low bytes of a number that belong to a word of 0, 1, … 8 bytes.
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


class Words(NamedTuple):
    """The words of a vocabulary, by code, and the table that finds them."""

    slots: NDArray[np.uint64]  # [2^b, 2]: tag, first eight bytes
    offsets: NDArray[np.int64]  # word c is bytes[offsets[c]:offsets[c + 1]]
    bytes: NDArray[np.uint8]
    counts: NDArray[np.int64]  # how often each word was added


@intrinsic
def _load(typing_context: Any, data: Any, at: Any) -> Any:
    """Read the bytes data[at:at+8] as one little-endian number; the caller makes sure that they are there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = cgutils.pointer_add(builder, array.data, arguments[1], ir.IntType(64).as_pointer())
        value = builder.load(pointer)
        value.align = 1
        return value

    return types.uint64(data, types.int64), generate


def _load_plainly(data: NDArray[np.uint8], at: int) -> Any:
    """Do the same where kernels are not compiled."""
    return data[at : at + 8].view(np.uint64)[0]


if getattr(numba_config, "DISABLE_JIT", False):
    _load = _load_plainly


@kernel
def _head(data: NDArray[np.uint8], start: int, stop: int) -> Any:
    """Return the first eight bytes of data[start:stop] as a number, zeros after the end of a shorter word."""
    if start + 8 <= data.size:
        return _load(data, np.int64(start)) & _MASKS[min(stop - start, 8)]
    value = _ZERO  # at the end of the buffer, where eight bytes cannot be read
    for i in range(min(stop - start, 8)):
        value |= np.uint64(data[start + i]) << (np.uint64(i) << _U3)
    return value


@kernel
def _tail(data: NDArray[np.uint8], head: np.uint64, start: int, stop: int) -> Any:
    """Return the last eight bytes of data[start:stop] as a number; all bytes of a shorter word."""
    return _load(data, np.int64(stop - 8)) if stop - start > 8 else head


@kernel
def _hash(data: NDArray[np.uint8], head: np.uint64, tail: np.uint64, start: int, stop: int) -> Any:
    """Mix the head, the tail, the length, and the bytes between. Slots use the low bits, tags the high ones.

    Saved indexes contain slots, so another hash needs another ``FORMAT`` in ``storage/manifest.py``.
    """
    h = (head ^ _SEED) * _MIX
    h = (h ^ (h >> _U32) ^ tail ^ np.uint64(stop - start)) * _STIR
    for at in range(start + 8, stop - 8, 8):
        h = (h ^ (h >> _U32) ^ _load(data, np.int64(at))) * _MIX
    return h ^ (h >> _U32)


@kernel
def _tag(h: np.uint64, length: int) -> Any:
    """Return the tag of a word without its code: bits of the hash, and the length."""
    return ((h * _MIX) & _HASH_BITS) | np.uint64(min(length, _LONGEST_TAGGED)) << _U32


@kernel
def _find(
    slots: NDArray[np.uint64],
    word_offsets: NDArray[np.int64],
    word_bytes: NDArray[np.uint8],
    h: np.uint64,
    head: np.uint64,
    tail: np.uint64,
    data: NDArray[np.uint8],
    start: int,
    stop: int,
) -> Any:
    """Return the code of the word data[start:stop], or ``~slot`` of the empty slot where it would go."""
    mask = np.uint64(slots.shape[0] - 1)
    length = stop - start
    tag = _tag(h, length)
    at = h & mask
    while True:
        slot = slots[at, 0]
        if slot == _ZERO:
            return ~np.int64(at)
        if (slot & ~_CODE_BITS) == tag and slots[at, 1] == head:
            code = np.int64((slot & _CODE_BITS) - _ONE)
            if length <= 8:
                return code
            first = word_offsets[np.uint64(code)]
            last = word_offsets[np.uint64(code + 1)]
            if last - first == length and _load(word_bytes, np.int64(last - 8)) == tail:
                i = np.int64(8)
                while i < length - 8 and _load(word_bytes, np.int64(first + i)) == _load(
                    data, np.int64(start + i)
                ):
                    i += 8
                if i >= length - 8:
                    return code
        at = (at + _ONE) & mask


@kernel
def encode(words: Words, data: NDArray[np.uint8], offsets: NDArray[Any], out: NDArray[np.int32]) -> Any:
    """Write the code of each string data[offsets[i]:offsets[i+1]] to *out*; NO_CODE for an unknown word.

    The vocabulary must hold at least one byte. The number returned has no meaning: it keeps the compiler from dropping
    the loads that only warm the cache.
    """
    slots, word_offsets, word_bytes, _ = words
    mask = np.uint64(slots.shape[0] - 1)
    hashes, heads, tails = (
        np.empty(_BLOCK, np.uint64),
        np.empty(_BLOCK, np.uint64),
        np.empty(_BLOCK, np.uint64),
    )
    likely = np.empty(_BLOCK, np.int64)
    touched = np.int64(0)
    final = word_bytes.size - 1
    n = out.size
    for block in range(0, n, _BLOCK):
        size = min(_BLOCK, n - block)
        for i in range(size):
            start, stop = np.int64(offsets[block + i]), np.int64(offsets[block + i + 1])
            heads[i] = _head(data, start, stop)
            tails[i] = _tail(data, heads[i], start, stop)
            hashes[i] = _hash(data, heads[i], tails[i], start, stop)
        long = 0
        for i in range(size):
            slot = slots[hashes[i] & mask, 0]
            likely[long] = max(np.int64(slot & _CODE_BITS), 1) - 1
            long += offsets[block + i + 1] - offsets[block + i] > 8
        for i in range(long):
            likely[i] = word_offsets[np.uint64(likely[i])]
        for i in range(long):
            touched += word_bytes[np.uint64(min(likely[i], final))]
        for i in range(size):
            start, stop = np.int64(offsets[block + i]), np.int64(offsets[block + i + 1])
            code = _find(slots, word_offsets, word_bytes, hashes[i], heads[i], tails[i], data, start, stop)
            out[block + i] = max(code, NO_CODE)
    return touched


@kernel
def insert(
    words: Words,
    size: int,
    limit: int,
    data: NDArray[np.uint8],
    offsets: NDArray[Any],
    begin: int,
    out: NDArray[np.int32],
) -> Any:
    """Encode strings from string *begin* on, adding and counting words, until all are done or there is no room.

    Returns (next string, number of words): the caller makes room and calls again. *limit* is the largest number of
    words that the slots may hold; the lengths of the other arrays of *words* are limits too.
    """
    slots, word_offsets, word_bytes, counts = words
    for i in range(begin, out.size):
        start, stop = np.int64(offsets[i]), np.int64(offsets[i + 1])
        head = _head(data, start, stop)
        tail = _tail(data, head, start, stop)
        h = _hash(data, head, tail, start, stop)
        code = _find(slots, word_offsets, word_bytes, h, head, tail, data, start, stop)
        if code < 0:
            first = word_offsets[size]
            if size >= limit or size >= counts.size or first + stop - start > word_bytes.size:
                return i, size
            for k in range(stop - start):
                word_bytes[first + k] = data[start + k]
            word_offsets[size + 1] = first + stop - start
            counts[size] = 0
            slots[~code, 0] = _tag(h, stop - start) | np.uint64(size + 1)
            slots[~code, 1] = head
            code = size
            size += 1
        counts[code] += 1
        out[i] = code
    return out.size, size


@kernel
def rehash(words: Words, begin: int, end: int) -> None:
    """Put the words from code *begin* to code *end* into the slots, which do not have them yet."""
    slots, word_offsets, word_bytes, _ = words
    mask = np.uint64(slots.shape[0] - 1)
    for code in range(begin, end):
        start, stop = word_offsets[code], word_offsets[code + 1]
        head = _head(word_bytes, start, stop)
        h = _hash(word_bytes, head, _tail(word_bytes, head, start, stop), start, stop)
        at = h & mask
        while slots[at, 0] != _ZERO:
            at = (at + _ONE) & mask
        slots[at, 0] = _tag(h, stop - start) | np.uint64(code + 1)
        slots[at, 1] = head


@kernel
def hash_strings(data: NDArray[np.uint8], offsets: NDArray[Any], out: NDArray[np.uint64]) -> None:
    """Write a hash of each string."""
    for i in range(out.size):
        start, stop = np.int64(offsets[i]), np.int64(offsets[i + 1])
        head = _head(data, start, stop)
        out[i] = _hash(data, head, _tail(data, head, start, stop), start, stop)


@kernel
def hash_integers(values: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    """Write a hash of each number."""
    for i in range(out.size):
        h = (np.uint64(values[i]) ^ _SEED) * _MIX
        h = (h ^ (h >> _U32)) * _STIR
        out[i] = h ^ (h >> _U32)
