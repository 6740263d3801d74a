"""Strings to codes: an open-addressing hash table over Arrow's string buffers.

A word is a run of UTF-8 bytes, read eight at a time. A slot of the table is 16 bytes, so that a look-up reads one
cache line: the tag (24 bits of the hash, the length up to 255, the code plus one; 0 is empty) and the first eight
bytes of the word. That decides words of up to eight bytes; only longer ones are compared with the word itself.
Look-ups go in blocks: all hashes of a block, then its slots, its words' offsets and their bytes, each in a loop
without branches, so that the processor overlaps the misses; the loop that decides then finds everything in its
cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from nearcast import config
from nearcast.kernels import kernel

__all__ = ["NO_CODE", "Words", "encode", "insert", "rehash"]

NO_CODE = -1  # the code of a word that the vocabulary does not hold
_BLOCK = config.HASH_BLOCK
_LONGEST_TAGGED = 255
_SEED = np.uint64(0xCBF29CE484222325)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_HASH_BITS = np.uint64(0xFFFFFF0000000000)
_CODE_BITS = np.uint64(0xFFFFFFFF)
_U64 = np.uint64(64)
_U32 = np.uint64(32)
_U3 = np.uint64(3)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


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


@kernel
def _eight(data: NDArray[np.uint8], at: int, stop: int) -> Any:
    """Return the next (up to) eight bytes of data[at:stop] as a number, zeros after the end."""
    if at >= stop:
        return _ZERO
    if at + 8 <= data.size:
        value = _load(data, np.int64(at))
        if stop - at < 8:
            value &= _ALL >> (_U64 - (np.uint64(stop - at) << _U3))
        return value
    value = _ZERO
    for i in range(stop - at):
        value |= np.uint64(data[at + i]) << (np.uint64(i) << _U3)
    return value


@kernel
def _hash(data: NDArray[np.uint8], start: int, stop: int) -> Any:
    """Multiply and fold, eight bytes a step. Slots use the low bits of the result, tags the high ones."""
    h = _SEED
    for at in range(start, stop, 8):
        h = (h ^ _eight(data, at, stop)) * _MIX
        h ^= h >> _U32
    return h * _MIX


@kernel
def _tag(h: np.uint64, length: int) -> Any:
    """Return what a slot shows of a word before its code: hash bits and length."""
    return (h & _HASH_BITS) | np.uint64(min(length, _LONGEST_TAGGED)) << _U32


@kernel
def _find(
    slots: NDArray[np.uint64],
    word_offsets: NDArray[np.int64],
    word_bytes: NDArray[np.uint8],
    h: np.uint64,
    data: NDArray[np.uint8],
    start: int,
    stop: int,
) -> Any:
    """Return the code of the word data[start:stop], or ``~slot`` of the empty slot where it would stand."""
    mask = np.uint64(slots.shape[0] - 1)
    tag = _tag(h, stop - start)
    head = _eight(data, start, stop)
    at = (h >> _U32) & mask
    while True:
        slot = slots[at, 0]
        if slot == _ZERO:
            return ~np.int64(at)
        if (slot & ~_CODE_BITS) == tag and slots[at, 1] == head:
            code = np.int64((slot & _CODE_BITS) - _ONE)
            if stop - start <= 8:
                return code
            first = word_offsets[np.uint64(code)]
            last = word_offsets[np.uint64(code + 1)]
            if last - first == stop - start:
                i = np.int64(8)
                while start + i < stop and _eight(word_bytes, first + i, last) == _eight(
                    data, start + i, stop
                ):
                    i += 8
                if start + i >= stop:
                    return code
        at = (at + _ONE) & mask


@kernel
def encode(words: Words, data: NDArray[np.uint8], offsets: NDArray[Any], out: NDArray[np.int32]) -> Any:
    """Write the code of each string data[offsets[i]:offsets[i+1]] to *out*; NO_CODE for a word that is not there.

    The vocabulary must hold at least one byte. Returns a number without meaning: it keeps the compiler from
    dropping the loads that only warm the cache.
    """
    slots, word_offsets, word_bytes, _ = words
    mask = np.uint64(slots.shape[0] - 1)
    hashes = np.empty(_BLOCK, np.uint64)
    likely = np.empty(_BLOCK, np.int64)
    touched = np.int64(0)
    last = word_bytes.size - 1
    n = out.size
    for block in range(0, n, _BLOCK):
        size = min(_BLOCK, n - block)
        for i in range(size):
            hashes[i] = _hash(data, np.int64(offsets[block + i]), np.int64(offsets[block + i + 1]))
        for i in range(size):
            slot = slots[(hashes[i] >> _U32) & mask, 0]
            likely[i] = max(np.int64(slot & _CODE_BITS), 1) - 1
        for i in range(size):
            likely[i] = word_offsets[np.uint64(likely[i])]
        for i in range(size):
            touched += word_bytes[np.uint64(min(likely[i], last))]
        for i in range(size):
            start, stop = np.int64(offsets[block + i]), np.int64(offsets[block + i + 1])
            out[block + i] = max(
                _find(slots, word_offsets, word_bytes, hashes[i], data, start, stop), NO_CODE
            )
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
    """Encode from string *begin* on, adding and counting words, until done or out of room.

    Returns (next string, words now): the caller makes room and calls again. *limit* is the most words that the
    slots may hold; the arrays of *words* bound the rest.
    """
    slots, word_offsets, word_bytes, counts = words
    for i in range(begin, out.size):
        start, stop = np.int64(offsets[i]), np.int64(offsets[i + 1])
        h = _hash(data, start, stop)
        code = _find(slots, word_offsets, word_bytes, h, data, start, stop)
        if code < 0:
            first = word_offsets[size]
            if size >= limit or size >= counts.size or first + stop - start > word_bytes.size:
                return i, size
            for k in range(stop - start):
                word_bytes[first + k] = data[start + k]
            word_offsets[size + 1] = first + stop - start
            counts[size] = 0
            slots[~code, 0] = _tag(h, stop - start) | np.uint64(size + 1)
            slots[~code, 1] = _eight(data, start, stop)
            code = size
            size += 1
        counts[code] += 1
        out[i] = code
    return out.size, size


@kernel
def rehash(words: Words, size: int) -> None:
    """Fill the empty *slots* with the first *size* words."""
    slots, word_offsets, word_bytes, _ = words
    mask = np.uint64(slots.shape[0] - 1)
    for code in range(size):
        start, stop = word_offsets[code], word_offsets[code + 1]
        h = _hash(word_bytes, start, stop)
        at = (h >> _U32) & mask
        while slots[at, 0] != _ZERO:
            at = (at + _ONE) & mask
        slots[at, 0] = _tag(h, stop - start) | np.uint64(code + 1)
        slots[at, 1] = _eight(word_bytes, start, stop)
