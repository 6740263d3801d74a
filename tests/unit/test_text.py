"""From a text to its keywords."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast import config
from nearcast.errors import ExpressionError
from nearcast.predicates import phrase
from nearcast.text import keyword, keywords, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("!?", []),
        ("Half-price COFFEE, 24h", ["half", "price", "coffee", "24h"]),
        ("snake_case o'clock", ["snake", "case", "o", "clock"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("Café Cafe\u0301", ["café", "café"]),
        ("ﬁne ℍ ２４ ½", ["fine", "h", "24", "1", "2"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("กาแฟร้อน", ["กาแฟร้อน"]),
        ("می\u200cخواهم", ["میخواهم"]),
        ("cof\u00adfee", ["coffee"]),
        ("a\u200bb", ["a", "b"]),
        ("ΣΊΣΥΦΟΣ", ["σίσυφοσ"]),
        ("☕ coffee 🎉", ["coffee"]),
        ("\u0301 a", ["a"]),
        ("hot\ud800soup \udfff", ["hot", "soup"]),  # a lone surrogate is no letter
        ("日本語 テスト", ["日本語", "テスト"]),
    ],
)
def test_tokens(text, expected):
    assert tokens(text) == expected


@given(st.text())
def test_a_keyword_is_its_own_keyword(text):
    for token in tokens(text):
        assert tokens(token) == [token]


@given(st.text(alphabet="aßİıΐͅ\u0345\u0301\u0308ſǰŉ𝔸Ⅷ½²ﬁ\u00ad\u200d_- "))
def test_a_keyword_of_difficult_letters_is_its_own_keyword(text):
    for token in tokens(text):
        assert tokens(token) == [token]


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_the_ascii_path_equals_the_other(text):
    assert tokens(text) == [token for token in tokens(text + " é") if token != "é"]


@given(st.text(), st.text())
def test_a_text_of_two_has_the_words_of_both(one, other):
    assert keywords([one, other]) == keywords(one) | keywords(other) == keywords(f"{one} . {other}")


def test_keyword():
    assert keyword(" Coffee! ") == "coffee"
    with pytest.raises(ExpressionError, match="'happy hour' is 2 words, not one keyword; use a phrase"):
        keyword("happy hour")
    with pytest.raises(ExpressionError, match="has no letter and no digit"):
        keyword("!")


@pytest.mark.parametrize("value", [None, 5, b"coffee", [b"coffee"], ["coffee", None]])
def test_what_is_no_text_is_refused(value):
    with pytest.raises(ExpressionError, match=r"is not a text|neither a text nor words"):
        keywords(value)


@pytest.mark.parametrize("letter", ["a", "é"])
def test_a_keyword_has_a_limit(letter):
    """Nobody can ask for a longer run; in the text of a message it is left out, and the rest of the text counts."""
    longest = letter * config.MAX_KEYWORD_CHARS
    assert tokens(f"fine {longest}") == ["fine", longest]
    assert tokens(f"fine {longest}{letter} day") == ["fine", "day"]
    assert keyword(longest) == longest
    for ask in (keyword, phrase):
        with pytest.raises(ExpressionError, match=f"over the limit of {config.MAX_KEYWORD_CHARS} characters"):
            ask(longest + letter)


def test_the_limit_counts_after_normalisation():
    with pytest.raises(ExpressionError, match="over the limit"):
        keyword("㋿" * 200)  # two letters each, after NFKC
