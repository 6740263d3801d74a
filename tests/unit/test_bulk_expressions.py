"""Tables of expressions: what kernels read in bulk is what the parser reads, and errors are the parser's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast import SubscriptionTable, config, language, text
from nearcast.columns.coding import Coding
from nearcast.columns.from_arrow import subscriptions_from_arrow
from nearcast.columns.from_arrow.bulk import read_in_bulk
from nearcast.errors import ColumnError, ExpressionError
from nearcast.kernels.expressions.program import TEXT
from nearcast.kernels.verify import HIGH_OPEN, LOW_OPEN, NEGATED
from nearcast.language import format_expression
from nearcast.predicates import Clause, Interval, Test
from values import expressions


# --- Both ways -------------------------------------------------------------------------------------------------------
def in_bulk(texts):
    """Return the clauses of each expression as the kernels read it; none where they leave it to the parser."""
    found, counts = read_in_bulk(pa.array(texts, pa.large_string()))

    def strings(sizes, data):
        ends = np.cumsum(sizes)
        return iter([data[end - size : end].tobytes().decode() for size, end in zip(sizes, ends)])

    def several(source, count):
        return [next(source) for _ in range(count)]

    keywords = strings(found.keyword_sizes, found.keyword_bytes)
    forbidden = strings(found.forbidden_sizes, found.forbidden_bytes)
    names = strings(found.name_sizes, found.name_bytes)
    values = strings(found.string_sizes, found.string_bytes)

    def test_of(low, high, flags):
        if flags & TEXT:
            low = high = next(values)
        opened = bool(flags & LOW_OPEN), bool(flags & HIGH_OPEN)
        interval = Interval(low, high, *opened, negated=bool(flags & NEGATED))
        assert (interval.low_open, interval.high_open) == opened
        return Test(next(names), interval)

    tests = map(
        test_of, found.test_lows.tolist(), found.test_highs.tolist(), found.test_flags.astype(int).tolist()
    )
    clauses = iter(
        [
            Clause(
                frozenset(several(keywords, k)), frozenset(several(forbidden, f)), tuple(several(tests, t))
            )
            for k, f, t in zip(found.keyword_counts, found.forbidden_counts, found.test_counts)
        ]
    )
    return [tuple(several(clauses, count)) for count in counts]


def parsed(expression):
    try:
        return language.parse(expression).clauses()
    except ExpressionError:
        return None


def agree(texts):
    for expression, clauses in zip(texts, in_bulk(texts), strict=True):
        assert not clauses or clauses == parsed(expression), expression


WORDS = [
    *"abc",
    "Tea",
    "half-price",
    "x_y",
    "#tag",
    "24h",
    "3.5",
    "R&D",
    "größe",
    "straße",
    "ИЯ",
    "日本",
    "नमस्ते",
    "ın",
]
NUMBERS = [
    "1",
    "2",
    "3",
    "2.5",
    "-1",
    "+3",
    "-0",
    ".5",
    "5.",
    "1e3",
    "999999999999999",
    "9999999999999999",
    "inf",
]
STRINGS = ['"x"', '"y"', '""', '"é b"', r'"a\"b"', '"a\tb"']
words = st.sampled_from(WORDS)
phrases = st.lists(words, min_size=1, max_size=3).map(lambda some: f'"{" ".join(some)}"')
names = st.sampled_from(["p", "q", "a.b", "größe", "`half price`", "in"])
values = st.sampled_from(NUMBERS + STRINGS)
signs = st.sampled_from(["<", "<=", ">", ">=", "=", "==", "!=", "<>", "≤"])
tests = st.one_of(
    st.builds("{}{}{}".format, names, signs, values),
    st.builds("{} {} {}".format, values, signs, names),
    st.builds("{} {} {} {} {}".format, values, signs, names, signs, values),
    st.builds(
        lambda name, verb, some: f"{name} {verb} ({', '.join(some)})",
        names,
        st.sampled_from(["IN", "not in"]),
        st.lists(values, min_size=1, max_size=4),
    ),
)
joints = st.sampled_from([" AND ", " OR ", " ", "\nor\t", " NOT "])


def _inner(part):
    several = st.lists(part, min_size=2, max_size=3)
    return st.one_of(
        st.builds(lambda joint, some: joint.join(some), joints, several),
        part.map("({})".format),
        part.map("NOT {}".format),
        part.map("not({})".format),
    )


written = st.recursive(st.one_of(words, phrases, tests, st.just("*")), _inner, max_leaves=12)


@st.composite
def damaged(draw):
    """An expression with some characters left out, put in or exchanged."""
    chars = list(draw(written))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(chars)))
        chars[at : at + draw(st.integers(0, 1))] = draw(
            st.sampled_from([*'()"<>=!,*`~-.+_#@:\\ \t\x1c\x00', "é", ""])
        )
    return "".join(chars)


@given(st.lists(written | expressions.map(format_expression), min_size=1, max_size=20))
def test_what_is_read_in_bulk_is_what_the_parser_reads(texts):
    agree(texts)


@given(st.lists(damaged() | st.text(max_size=20), min_size=1, max_size=20))
def test_what_is_damaged_is_left_to_the_parser_or_means_the_same(texts):
    agree(texts)


@given(st.text(alphabet=' ()"<>=!,*`-.+_#@é\\1eNOTANDORIN', max_size=12))
def test_any_run_of_characters_means_the_same(expression):
    agree([expression])


@given(
    st.lists(st.lists(st.integers(0, 99).map("w{}".format), min_size=1, max_size=40), min_size=1, max_size=9)
)
def test_large_expressions_mean_the_same(groups):
    agree([" AND ".join(f"({' OR '.join(group)})" for group in groups)])
    agree([" OR ".join(f"({' '.join(group)})" for group in groups)])
    agree([" ".join(f"NOT ({' '.join(group)})" for group in groups)])


@given(st.from_regex(r"[-+]?[0-9]{1,17}(\.[0-9]{0,17})?", fullmatch=True))
def test_numbers_are_what_float_reads(number):
    clauses = in_bulk([f"price = {number}"])[0]
    digits = sum(char.isdigit() for char in number)
    assert bool(clauses) == (digits <= 15)
    assert not clauses or repr(clauses[0].tests[0].interval.low) == repr(float(number) + 0.0)


# --- What is left to the parser --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "expression",
    [
        'coffee AND (discount OR "happy hour") NOT decaf',
        "storm AND flood",
        'price < 12 AND category = "food" AND coffee',
        "a OR b",
        "*",
        "NOT NOT a",
        "half-price #tea don't R&D",
        "100 <= capacity <= 256",
        "256 >= capacity > 100 AND capacity != 200",
        'rating IN (4, 5, "x") NOT brand NOT IN ("a", "b")',
        "(((((((((((((((a)))))))))))))))",
        "café OR Öl OR ИЯ OR 日本",
        'brand = "Blue Bottle — the café"',
        "price < 2.50 OR price > 1000000",
        "(a OR b) (c OR d) (e OR f) (g OR h) (i OR j) (k OR l)",
        "a or (a b) or (price < 3 price < 5 a)",
    ],
)
def test_what_most_people_write_is_read_in_bulk(expression):
    assert in_bulk([expression])[0] == parsed(expression) != ()


@pytest.mark.parametrize(
    "expression",
    [
        "price < 1e3",
        "price < inf",
        "price < 1234567890123456",
        r'brand = "a \" b"',
        "`half price` < 3",
        '"Huawei" = brand',
        "straße",
        "नमस्ते",
        "(" * 17 + "a" + ")" * 17,
        " ".join(f"w{i}" for i in range(61)),
        " ".join(f"p{i} = 1" for i in range(17)),
        "a" * 200 + " b" * 413,
    ],
)
def test_what_is_unusual_or_large_is_left_to_the_parser(expression):
    assert in_bulk([expression]) == [()]
    assert parsed(expression)


@pytest.mark.parametrize(
    "expression",
    ["", " ", "a AND", "(a", "a)", "a NOT a", "a &", "price < x", 'p < "x"', "3 < p < 2", "a" * 300],
)
def test_errors_are_left_to_the_parser(expression):
    assert in_bulk([expression]) == [()]


def test_more_than_a_block_is_read():
    texts = [f"word{i} AND (tea OR milk{i % 7}) price < {i} NOT w{i % 5}" for i in range(9_000)]
    assert in_bulk(texts) == [parsed(expression) for expression in texts]


def test_letters_fold_one_by_one():
    folds = text.letter_folds()
    letters = [chr(code) for code, fold in enumerate(folds) if fold]
    assert len(letters) > 40_000
    rng = np.random.default_rng(1)
    for size in rng.integers(1, 6, 5_000):
        word = "".join(letters[i] for i in rng.integers(0, len(letters), size))
        assert text.tokens(word) == ["".join(chr(folds[ord(letter)]) for letter in word)]


# --- Tables ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def always_in_bulk(monkeypatch):
    monkeypatch.setattr(config, "EXPRESSIONS_IN_BULK", 0)


TEXTS = [
    "tea",
    'brand = "x" OR price < 3',
    "straße AND price < 1e3",
    "tea",
    "Tea NOT milk",
    'brand = "ß" NOT milk price >= 2',
    "*",
    "tea OR (brand = 5 AND brand != 6)",
]


def test_a_table_is_the_same_either_way(monkeypatch):
    table = {"id": [f"s{i}" for i in range(len(TEXTS))], "expression": TEXTS}
    one_by_one = SubscriptionTable.from_arrow(table)
    monkeypatch.setattr(config, "EXPRESSIONS_IN_BULK", 0)
    bulk = SubscriptionTable.from_arrow(table)
    assert bulk.to_subscriptions() == one_by_one.to_subscriptions()
    for coding in ("vocabulary", "attributes"):
        words, others = getattr(bulk, coding), getattr(one_by_one, coding)
        words, others = getattr(words, "strings", words), getattr(others, "strings", others)
        assert dict(zip(words, words.counts.tolist())) == dict(zip(others, others.counts.tolist()))
    assert set(bulk.attributes) == set(one_by_one.attributes)


@pytest.mark.usefixtures("always_in_bulk")
def test_an_error_names_the_first_row_and_nothing_gets_a_code():
    coding = Coding.new()
    table = {"id": ["a", "b", "c"], "expression": ["tea", "milk AND", "tea)"]}
    with pytest.raises(ExpressionError, match=r"(?s)subscription row 1 \(id 'b'\): something is missing.*\^"):
        SubscriptionTable.from_arrow(table, like=coding)
    assert len(coding.vocabulary) == 0
    with pytest.raises(ColumnError, match=r"row 1 \(id 'b'\) has no expression"):
        SubscriptionTable.from_arrow(table | {"expression": ["tea", None, "milk"]})


def test_refusals_are_the_same_either_way(monkeypatch):
    table = {"expression": ["tea", "milk AND", None, "tea", "milk AND", "a NOT a", "straße"]}
    one_by_one, bulk = {}, {}
    first = subscriptions_from_arrow(table, refusals=one_by_one)
    monkeypatch.setattr(config, "EXPRESSIONS_IN_BULK", 0)
    second = subscriptions_from_arrow(table, refusals=bulk)
    assert bulk == one_by_one
    assert sorted(bulk) == [1, 2, 4, 5]
    good = [0, 3, 6]
    assert second.take(good).to_subscriptions() == first.take(good).to_subscriptions()


@pytest.mark.parametrize("from_rows", [0, 10])
def test_bytes_that_are_no_text_are_refused(monkeypatch, from_rows):
    monkeypatch.setattr(config, "EXPRESSIONS_IN_BULK", from_rows)
    data = b'tea brand = "\xff"'
    offsets = np.array([0, len(data)], np.int32)
    column = pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(data))
    with pytest.raises(ColumnError, match="expression must be text in UTF-8"):
        SubscriptionTable.from_arrow({"expression": column})
