"""The keywords of a text.

A keyword is a run of letters and digits, normalised: NFKC, then casefold. Combining marks stay with the letter that
they follow, so that words in Hindi, Thai or Arabic are not split. Soft hyphens and joiners, which are invisible, are
dropped. Everything else separates words. The normal form is stable: a keyword is its own keyword.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterable
from typing import Final

from nearcast import config
from nearcast.errors import ExpressionError, shown

__all__ = ["asked_words", "keyword", "keywords", "letter_folds", "tokens"]

_ASCII_WORD: Final = re.compile("[0-9a-z]+")
_INVISIBLE: Final = dict.fromkeys(map(ord, "\u00ad\u200c\u200d"))  # soft hyphen, zero-width (non-)joiner


def tokens(text: str) -> list[str]:
    """Return the normalised words of *text*, in order.

    A run of more than ``config.MAX_KEYWORD_CHARS`` characters is left out: nobody can ask for it.

    >>> tokens("Café: HALF-PRICE until 10 o'clock!")
    ['café', 'half', 'price', 'until', '10', 'o', 'clock']
    """
    return [word for word in _words(text) if len(word) <= config.MAX_KEYWORD_CHARS]


def asked_words(text: str) -> list[str]:
    """Return the words of a subscriber's *text*; here a run that is too long is an error."""
    words = _words(text)
    for word in words:
        if len(word) > config.MAX_KEYWORD_CHARS:
            raise ExpressionError(
                f"keyword {shown(word)} is over the limit of {config.MAX_KEYWORD_CHARS} characters "
                "(config.MAX_KEYWORD_CHARS); leave it out"
            )
    return words


def keywords(text_or_words: str | Iterable[str]) -> frozenset[str]:
    """Return the set of keywords of one text, or of several.

    >>> sorted(keywords("Half price coffee, coffee!"))
    ['coffee', 'half', 'price']
    >>> sorted(keywords(["Coffee", "happy hour"]))
    ['coffee', 'happy', 'hour']
    """
    if isinstance(text_or_words, str):
        return frozenset(tokens(text_or_words))
    if not isinstance(text_or_words, Iterable):
        raise ExpressionError(
            f"{shown(text_or_words)} is neither a text nor words; give a string or several strings"
        )
    return frozenset(token for word in text_or_words for token in tokens(word))


def keyword(word: str) -> str:
    """Return *word* as a keyword; it must be exactly one.

    >>> keyword("Coffee")
    'coffee'
    """
    found = asked_words(word)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ExpressionError(
            f"{shown(word)} has no letter and no digit, so it is not a keyword; give a word"
        )
    raise ExpressionError(
        f"{shown(word)} is {len(found)} words, not one keyword; use a phrase, which asks for all of them"
    )


def letter_folds() -> array[int]:
    """Return the character that each character up to U+FFFF becomes in a keyword, 0 where it has no such fold.

    A word whose letters all have a fold is normalised letter by letter. A character has none if it is not a letter,
    becomes several letters (``ß``), combines with the letter before it, or becomes ASCII without being ASCII (a dotless
    i).

    >>> folds = letter_folds()
    >>> chr(folds[ord("É")]), folds[ord("ß")], folds[ord("-")]
    ('é', 0, 0)
    """
    folds = array("H", bytes(2 * 0x10000))
    combining = set(map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))))  # in Hangul
    for char in map(chr, range(0x10000)):
        parts = unicodedata.decomposition(char).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            combining.add(chr(int(parts[1], 16)))
    for code, char in enumerate(map(chr, range(0x10000))):
        if char.isascii():
            folds[code] = ord(char.lower()) if char.isalnum() else 0
        elif char.isalpha() and not char.upper().isascii():
            normal, first = _normal(char), unicodedata.normalize("NFKD", char)[0]
            alone = first not in combining and not unicodedata.combining(first)
            if alone and len(normal) == 1 and normal.isalpha() and ord(normal) < 0x10000:
                folds[code] = ord(normal)
    return folds


def _words(text: str) -> list[str]:
    if not isinstance(text, str):
        raise ExpressionError(f"{shown(text)} is not a text; keywords are strings")
    return _ASCII_WORD.findall(text.lower()) if text.isascii() else _unicode_words(text)


def _unicode_words(text: str) -> list[str]:
    words: list[str] = []
    start = -1
    text = _normal(text.translate(_INVISIBLE))
    for at, char in enumerate(text):
        if char.isalnum():
            if start < 0:
                start = at
        elif start >= 0 and not unicodedata.category(char).startswith("M"):
            words.append(text[start:at])
            start = -1
    if start >= 0:
        words.append(text[start:])
    return words


def _normal(text: str) -> str:
    """Return *text* in NFKC and casefolded. Either step can undo the other, so they alternate until both hold."""
    while True:
        normal = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        if normal == text:
            return text
        text = normal
