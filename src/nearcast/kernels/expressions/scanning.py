"""Finds the tokens of an expression byte by byte, as ``TOKEN`` of :mod:`nearcast.language.grammar` does.

A letter that is not ASCII is looked up in a table of folds: ``folds[character]`` is what the letter becomes in a
keyword, or 0 if a word that contains it cannot be folded letter by letter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.kernels import kernel

__all__ = [
    "AND",
    "CLOSE",
    "COMMA",
    "END",
    "EQUAL",
    "GREATER",
    "GREATER_EQUAL",
    "IN",
    "LESS",
    "LESS_EQUAL",
    "NAME",
    "NOT",
    "NUMBER",
    "OPEN",
    "OR",
    "STAR",
    "STRING",
    "UNEQUAL",
    "UNKNOWN",
    "WORD",
    "folded",
    "next_token",
    "number_value",
]

# The kinds of tokens. The signs of comparisons come first; ``sign ^ 1`` is the mirror image of one of the first four.
LESS, GREATER, LESS_EQUAL, GREATER_EQUAL, EQUAL, UNEQUAL = range(6)
END, AND, OR, NOT, IN, OPEN, CLOSE, COMMA, STAR, WORD, NAME, NUMBER, STRING = range(6, 19)
UNKNOWN = 19  # left to Python
# A NAME is a word that can name an attribute; a NUMBER that begins with a digit can be a word.

_SPACES, _LETTERS, _DIGITS, _INSIDE, _AFTER_NUMBERS, _OTHERS = 1, 2, 3, 4, 5, 6
_CLASSES = np.full(256, _OTHERS, np.uint8)
for _chars, _class in (
    ("\t\n\v\f\r\x1c\x1d\x1e\x1f ", _SPACES),
    ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", _LETTERS),
    ("0123456789", _DIGITS),
    ("-'.&/", _INSIDE),  # one of them may join two parts of a word
    ('()<>=!,"`*', _AFTER_NUMBERS),
):
    _CLASSES[np.frombuffer(_chars.encode(), np.uint8)] = _class
_ALONE = np.full(256, UNKNOWN, np.int64)  # by character: the token that it is on its own
_ALONE[np.frombuffer(b"(),*<=>", np.uint8)] = OPEN, CLOSE, COMMA, STAR, LESS, EQUAL, GREATER
_BEFORE_EQUAL = np.full(256, UNKNOWN, np.int64)  # by character: the token that it is before an equals sign
_BEFORE_EQUAL[np.frombuffer(b"<=>!", np.uint8)] = LESS_EQUAL, EQUAL, GREATER_EQUAL, UNEQUAL
_BELOW, _SAME, _ABOVE, _QUOTE, _BACKSLASH, _UNDERSCORE, _DOT, _PLUS, _MINUS, _HASH, _AT = b'<=>"\\_.+-#@'
_OR, _IN, _AND, _NOT, _WITHIN = (int.from_bytes(word) for word in (b"or", b"in", b"and", b"not", b"within"))
# A whole number of up to this many digits is exact as a float64, and so is this power of ten.
_EXACT_DIGITS = 15
_POWERS = 10.0 ** np.arange(_EXACT_DIGITS + 1)


@kernel
def next_token(data: NDArray[np.uint8], at: int, stop: int, folds: NDArray[np.uint16]) -> Any:
    """Return (kind, begin, end) of the first token at or after *at* in data[:stop]."""
    while at < stop and _CLASSES[data[at]] == _SPACES:
        at += 1
    if at == stop:
        return END, at, at
    first = data[at]
    second = data[at + 1] if at + 1 < stop else np.uint8(0)
    if second == _SAME and _BEFORE_EQUAL[first] != UNKNOWN:
        return _BEFORE_EQUAL[first], at, at + 2
    if first == _BELOW and second == _ABOVE:
        return UNEQUAL, at, at + 2
    if _ALONE[first] != UNKNOWN:
        return _ALONE[first], at, at + 1
    if first == _QUOTE:
        end = at + 1
        while end < stop and data[end] != _QUOTE and data[end] != _BACKSLASH:
            end += 1
        if end < stop and data[end] == _QUOTE:
            return STRING, at, end + 1
        return UNKNOWN, at, end  # Python reads escapes
    if _CLASSES[first] == _DIGITS or first in (_PLUS, _MINUS, _DOT):
        end = _number_end(data, at, stop)
        if end > at:
            return NUMBER, at, end
    return _word(data, at, stop, folds)


@kernel
def _number_end(data: NDArray[np.uint8], at: int, stop: int) -> Any:
    """Return where the number at *at* ends; *at* itself if there is none."""
    end = at + 1 if data[at] == _PLUS or data[at] == _MINUS else at
    digits = 0
    while end < stop and _CLASSES[data[end]] == _DIGITS:
        end, digits = end + 1, digits + 1
    if end < stop and data[end] == _DOT:
        end += 1
        while end < stop and _CLASSES[data[end]] == _DIGITS:
            end, digits = end + 1, digits + 1
    if digits == 0:
        return at
    if end < stop and data[end] | 32 == 101:  # e
        power = end + 1
        if power < stop and (data[power] == _PLUS or data[power] == _MINUS):
            power += 1
        if power < stop and _CLASSES[data[power]] == _DIGITS:
            end = power
            while end < stop and _CLASSES[data[end]] == _DIGITS:
                end += 1
    if end < stop and _CLASSES[data[end]] != _SPACES and _CLASSES[data[end]] != _AFTER_NUMBERS:
        return at
    return end


@kernel
def number_value(data: NDArray[np.uint8], begin: int, end: int) -> Any:
    """Return the value of a number token, or NaN if one exact division is not enough to compute it.

    A whole number below 10^15 divided by a power of ten up to 10^15 is rounded once, so ``float`` gives the same value.
    """
    mantissa: Any = 0
    digits, decimals, after_dot = 0, 0, False
    for at in range(begin, end):
        if _CLASSES[data[at]] == _DIGITS:
            mantissa = 10 * mantissa + np.int64(data[at]) - 48
            digits += 1
            decimals += after_dot
            if digits > _EXACT_DIGITS:
                return np.nan
        elif data[at] == _DOT:
            after_dot = True
        elif at > begin:  # an exponent
            return np.nan
    value = mantissa / _POWERS[decimals]
    return 0.0 - value if data[begin] == _MINUS else value


@kernel
def _word(data: NDArray[np.uint8], at: int, stop: int, folds: NDArray[np.uint16]) -> Any:
    """Return the word, name or operator at *at*; UNKNOWN if none begins there."""
    begin = at
    if data[at] == _HASH or data[at] == _AT:
        at += 1
    named = at == begin  # no mark in front, no digit first, nothing but dots inside
    inside = False  # whether a part of the word has been read
    while at < stop:
        joint = at
        if inside and _CLASSES[data[at]] == _INSIDE:
            joint = at + 1
            if joint == stop:
                break
        part = _CLASSES[data[joint]]
        size = 1
        if data[joint] > 127:
            fold, size = folded(data, joint, stop, folds)
            if fold == 0:
                return UNKNOWN, begin, at
        elif part == _DIGITS:
            named &= inside
        elif part != _LETTERS and not (inside and data[joint] == _UNDERSCORE):
            break
        named &= joint == at or data[at] == _DOT
        inside = True
        at = joint + size
    if not inside:
        return UNKNOWN, begin, at
    operator = _operator(data, begin, at)
    return (operator if operator != WORD else NAME if named else WORD), begin, at


@kernel
def _operator(data: NDArray[np.uint8], begin: int, end: int) -> Any:
    """Return which operator the word is, in upper or lower case; WORD if it is none, UNKNOWN for WITHIN."""
    size = end - begin
    if size != 2 and size != 3 and size != 6:
        return WORD
    small: Any = 0
    for at in range(begin, end):
        small = small << 8 | np.int64(data[at]) | 32
    if small == _OR:
        return OR
    if small == _IN:
        return IN
    if small == _AND:
        return AND
    if small == _NOT:
        return NOT
    return UNKNOWN if small == _WITHIN else WORD


@kernel
def folded(data: NDArray[np.uint8], at: int, stop: int, folds: NDArray[np.uint16]) -> Any:
    """Return (fold, size): what the character at *at* becomes in a keyword, or 0, and how many bytes it has.

    The bytes are UTF-8, like those of Arrow.
    """
    first = np.int64(data[at])
    if first < 0x80:
        return np.int64(folds[first]), 1
    if first < 0xE0 and at + 1 < stop:
        return np.int64(folds[(first & 0x1F) << 6 | _low_bits(data[at + 1])]), 2
    if first < 0xF0 and at + 2 < stop:
        char = (first & 0x0F) << 12 | _low_bits(data[at + 1]) << 6 | _low_bits(data[at + 2])
        return np.int64(folds[char]), 3
    return np.int64(0), 1


@kernel
def _low_bits(byte: int) -> Any:
    return np.int64(byte) & 0x3F
