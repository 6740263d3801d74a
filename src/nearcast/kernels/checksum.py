"""A checksum of memory: XXH64 (Yann Collet, https://github.com/Cyan4973/xxHash, ``doc/xxhash_spec.md``).

It detects damage, not tampering. It runs at the speed of memory, three times as fast as ``zlib.crc32``, which matters
because it is computed over every byte that is opened.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel

__all__ = ["checksum"]

_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_P3, _P4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_WORD = 8  # bytes
_LANES = 4


def checksum(array: NDArray[Any]) -> int:
    """Return XXH64 of the bytes of an array, with the seed 0.

    >>> hex(checksum(np.frombuffer(b"Nobody inspects the spammish repetition", np.uint8)))
    '0xfbcea83c8a378bf1'
    """
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if not data.flags.writeable or data.ctypes.data % _WORD:
        data = data.copy()  # the compiler expects a writable array that is aligned to words
    whole = data.size - data.size % _WORD
    with np.errstate(over="ignore"):  # products wrap around, of which NumPy warns if kernels are not compiled
        return int(_xxh64(data[:whole].view(np.uint64), data[whole:]))


@kernel
def _xxh64(words: NDArray[np.uint64], rest: NDArray[np.uint8]) -> Any:
    """Hash all whole words of eight bytes, then the *rest*, which is shorter than a word."""
    zero = np.uint64(0)
    striped = words.size - words.size % _LANES
    if striped:
        a, b, c, d = _P1 + _P2, _P2, zero, zero - _P1
        for i in range(0, striped, _LANES):
            a = _round(a, words[i])
            b = _round(b, words[i + 1])
            c = _round(c, words[i + 2])
            d = _round(d, words[i + 3])
        h = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        for lane in (a, b, c, d):
            h = (h ^ _round(zero, lane)) * _P1 + _P4
    else:
        h = _P5
    h += np.uint64(words.size * _WORD + rest.size)
    for i in range(striped, words.size):
        h = _rotate(h ^ _round(zero, words[i]), 27) * _P1 + _P4
    at = 0
    if rest.size >= _WORD // 2:
        half = zero
        for at in range(_WORD // 2):
            half |= np.uint64(rest[at]) << np.uint64(8 * at)
        h = _rotate(h ^ half * _P1, 23) * _P2 + _P3
        at = _WORD // 2
    while at < rest.size:
        h = _rotate(h ^ np.uint64(rest[at]) * _P5, 11) * _P1
        at += 1
    h = (h ^ h >> np.uint64(33)) * _P2
    h = (h ^ h >> np.uint64(29)) * _P3
    return h ^ h >> np.uint64(32)


@kernel
def _round(lane: np.uint64, word: np.uint64) -> Any:
    return _rotate(lane + word * _P2, 31) * _P1


@kernel
def _rotate(value: np.uint64, bits: int) -> Any:
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)
