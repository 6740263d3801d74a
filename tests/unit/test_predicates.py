"""Expressions, intervals and the normal form."""

from __future__ import annotations

import math
import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast import config
from nearcast.errors import ExpressionError
from nearcast.predicates import (
    ANYTHING,
    AllOf,
    AnyOf,
    Clause,
    Interval,
    Not,
    Test,
    Word,
    attribute,
    phrase,
    word,
)
from values import attributes, expressions, intervals, numbers, values, words

price, brand = attribute("price"), attribute("brand")
a, b, c, d = (word(letter) for letter in "abcd")


# --- Intervals -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("interval", "holding", "failing", "unknown"),
    [
        (Interval(1, 3), [1, 2, 3], [0.999, 3.001], [None, "2"]),
        (Interval(1, 3, low_open=True, high_open=True), [2], [1, 3], [None]),
        (Interval(-math.inf, 3, high_open=True), [-1e300, 2.9], [3, 4], [None]),
        (Interval(1, 3, negated=True), [0, 4], [1, 2, 3], [None, "x"]),
        (Interval("x", "x"), ["x"], ["y", "X", ""], [None, 5]),
        (Interval("x", "x", negated=True), ["y", ""], ["x"], [None, 5]),
    ],
)
def test_holds(interval, holding, failing, unknown):
    assert [interval.holds(value) for value in holding] == [True] * len(holding)
    assert [interval.holds(value) for value in failing] == [False] * len(failing)
    assert [interval.holds(value) for value in unknown] == [None] * len(unknown)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Interval(256, 100), "low end 256.0 is above its high end 100.0; swap"),
        (lambda: Interval(math.nan, 1), "nan cannot be compared"),
        (lambda: Interval("a", "b"), "strings have no order here"),
        (lambda: Interval("a", 1), "strings have no order here"),
        (lambda: Interval(1, 1, low_open=True), "no number lies between 1.0 and 1.0"),
        (lambda: Interval(math.inf, math.inf), "no number lies between"),
        (lambda: Interval(None, 1), "None is neither a number nor a string"),
        (lambda: Interval(10**400, 10**401), "too large for a number"),
        (lambda: price < "3", "'price' cannot be above or below '3'"),
        (lambda: price.between(5, 1), "low end 5.0 is above"),
        (lambda: price.one_of(), "give at least one"),
        (lambda: attribute(""), "'' is not the name of an attribute"),
        (lambda: attribute("x" * 300), "is not the name of an attribute"),
        (lambda: word("happy hour"), "2 words"),
        (lambda: word(""), "no letter"),
        (lambda: phrase("!"), "no letter"),
        (lambda: AllOf((a,)), "at least two"),
        (lambda: AnyOf(()), "at least two"),
        (lambda: AllOf((a, "b")), "'b' is not an expression"),
        (lambda: Not("b"), "'b' is not an expression"),
        (lambda: Test("price", 3), "3 is not an Interval"),
        (lambda: bool(a), "combine expressions with &"),
        (lambda: 1 < price < 3, "between"),
        (lambda: a and b, "combine expressions with &"),
    ],
)
def test_bad_values_are_named(make, says):
    with pytest.raises(ExpressionError, match=says):
        make()


def test_an_expression_is_only_combined_with_another():
    with pytest.raises(TypeError):
        a & "b"
    with pytest.raises(TypeError):
        a | 3


# --- Building ------------------------------------------------------------------------------------------------
def test_builders():
    assert word("Coffee") == Word("coffee")
    assert phrase("Happy hour") == AllOf((Word("happy"), Word("hour")))
    assert phrase("Coffee") == Word("coffee")
    assert (price < 3) == Test("price", Interval(-math.inf, 3, high_open=True))
    assert (price >= 3) == Test("price", Interval(3, math.inf))
    assert (price == 3) == Test("price", Interval(3, 3))
    assert (brand != "x") == Test("brand", Interval("x", "x", negated=True))
    assert ~(price < 3) == Test("price", Interval(-math.inf, 3, high_open=True, negated=True))
    assert brand.one_of("x", "y", "x") == (brand == "x") | (brand == "y")
    assert price.one_of(4) == (price == 4)
    assert a & (b & c) == (a & b) & c == AllOf((a, b, c))
    assert a | (b | c) == AnyOf((a, b, c))


@given(expressions)
def test_expressions_are_hashable_and_survive_pickle(expression):
    again = pickle.loads(pickle.dumps(expression))
    assert again == expression
    assert hash(again) == hash(expression)


def test_depth_is_limited_when_the_expression_is_made():
    expression = a
    for _ in range(config.MAX_EXPRESSION_DEPTH - 1):
        expression = Not(expression)
    with pytest.raises(ExpressionError, match=f"nested more than {config.MAX_EXPRESSION_DEPTH} levels"):
        Not(expression)
    flat = a
    for index in range(1000):
        flat = flat & word(f"w{index}")
    assert flat.depth == 2


# --- Meaning -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expression", "keywords", "values_of", "expected"),
    [
        (a & ~b, {"a"}, {}, True),
        (a & ~b, {"a", "b"}, {}, False),
        (price < 3, set(), {"price": 2.0}, True),
        (price < 3, set(), {}, False),
        (~(price < 3), set(), {}, False),
        (~(price < 3), set(), {"price": "cheap"}, False),
        (Not(Not(price < 3)), set(), {"price": 2.0}, True),
        (a | (price < 3), {"a"}, {}, True),
        (~(a & (price < 3)), set(), {}, True),  # a is missing, so the price does not matter
        (~(a & (price < 3)), {"a"}, {}, False),
        (~(a | (price < 3)), set(), {}, False),
        (price != 3, set(), {"price": 4.0}, True),
        (price != 3, set(), {}, False),
        (ANYTHING, set(), {}, True),
        (~ANYTHING | a, {"a"}, {}, True),
    ],
)
def test_matches(expression, keywords, values_of, expected):
    assert expression.matches(keywords, values_of) is expected
    assert any(clause.matches(keywords, values_of) for clause in expression.clauses()) is expected


def clauses_of(expression):
    """Return the normal form; nothing for an expression that can never match."""
    try:
        return expression.clauses()
    except ExpressionError:
        return ()


@given(expressions, st.lists(st.tuples(st.frozensets(words), attributes), min_size=1, max_size=8))
def test_the_normal_form_means_the_same(expression, messages):
    clauses = clauses_of(expression)
    for keywords, values_of in messages:
        expected = expression.matches(keywords, values_of)
        assert any(clause.matches(keywords, values_of) for clause in clauses) == expected


@given(expressions)
def test_the_normal_form_is_deterministic_and_has_nothing_superfluous(expression):
    clauses = clauses_of(expression)
    assert clauses_of(expression) == clauses
    assert len(set(clauses)) == len(clauses)
    for clause in clauses:
        assert clause.keywords.isdisjoint(clause.forbidden)
        positive = [test.attribute for test in clause.tests if not test.interval.negated]
        assert len(positive) == len(set(positive))
        assert clause.expression().clauses() == (clause,)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (ANYTHING, [Clause()]),
        (a & (b | c), [Clause(frozenset("ab")), Clause(frozenset("ac"))]),
        ((a | b) & (a | b), [Clause(frozenset("a")), Clause(frozenset("b"))]),
        (a | (a & b), [Clause(frozenset("a"))]),
        ((a & b) | a, [Clause(frozenset("a"))]),
        (a | ANYTHING, [Clause()]),
        ((a & ~a) | b, [Clause(frozenset("b"))]),
        (~(a | b), [Clause(forbidden=frozenset("ab"))]),
        ((price > 1) & (price <= 3), [Clause(tests=(Test("price", Interval(1, 3, low_open=True)),))]),
        (~(price < 3), [Clause(tests=(price >= 3,))]),
        (~(price > 3) & (price >= 3), [Clause(tests=(price == 3,))]),
        ((price != 3) & (price < 2), [Clause(tests=(price < 2,))]),
        ((price < 5) | (price < 3), [Clause(tests=(price < 5,))]),
        ((price < 5) | (price == 3), [Clause(tests=(price < 5,))]),
        ((price != 3) | (price == 4), [Clause(tests=(price != 3,))]),
        (price.one_of(1, 2) & price.one_of(2, 3), [Clause(tests=(price == 2,))]),
        ((brand != "x") & (brand == "y"), [Clause(tests=(brand == "y",))]),
        (~price.between(1, 3), [Clause(tests=(Test("price", Interval(1, 3, negated=True)),))]),
    ],
)
def test_clauses(expression, expected):
    assert list(expression.clauses()) == expected


@pytest.mark.parametrize(
    "expression",
    [
        a & ~a,
        ~ANYTHING,
        (price < 3) & (price > 3),
        (price == 3) & (price != 3),
        (price == 3) & (price == "3"),
        (brand == "x") & (brand == "y"),
        (brand == "x") & (brand != "x"),
        ~(price < 3) & ~(price >= 3),
        ~Test("price", Interval(-math.inf, math.inf)),
    ],
)
def test_what_can_never_match_is_refused(expression):
    with pytest.raises(ExpressionError, match="can never match"):
        expression.clauses()


# --- Limits --------------------------------------------------------------------------------------------------
def test_too_many_clauses_are_refused_early():
    pairs = [word(f"x{n}") | word(f"y{n}") for n in range(1000)]
    began = time.thread_time()
    with pytest.raises(ExpressionError, match=r"over the limit of 64 .*split it into several subscriptions"):
        AllOf(tuple(pairs)).clauses()
    with pytest.raises(ExpressionError, match="over the limit"):
        AnyOf(tuple(word(f"x{n}") for n in range(10_000))).clauses()
    assert time.thread_time() - began < 10  # too late would be never


def test_the_limit_is_the_last_number_that_is_allowed():
    six = AllOf(tuple(word(f"x{n}") | word(f"y{n}") for n in range(6)))
    assert len(six.clauses()) == 64
    with pytest.raises(ExpressionError, match="over the limit of 63"):
        six.clauses(limit=63)


def test_hostile_expressions_end_soon():
    began = time.thread_time()
    many = AnyOf(tuple(word(f"x{n}") for n in range(64)))
    shifted = [AnyOf((*many.parts[n:], *many.parts[:n])) for n in range(1, 64)]
    with pytest.raises(ExpressionError, match="over the limit"):
        AllOf((many, *shifted)).clauses()
    tests = AllOf(tuple(attribute(f"t{n}") < n for n in range(8000)))
    assert len((tests & ((price < 1) | (brand == "x"))).clauses()) == 2
    holes = AllOf(tuple(price != n for n in range(8000)))
    assert len((holes & (a | b)).clauses()) == 2
    values = AnyOf(tuple(attribute(f"y{n}") < 1 for n in range(30)))
    assert len((tests & values).clauses()) == 30
    with pytest.raises(ExpressionError, match="over the limit"):
        AllOf((tests, *[AnyOf((a, b, word(f"c{n}"))) for n in range(2000)])).clauses()
    assert time.thread_time() - began < 30


# --- Clauses -------------------------------------------------------------------------------------------------
def test_a_clause_is_an_expression_again():
    clause = Clause(frozenset({"b", "a"}), frozenset({"z"}), (price < 3,))
    assert clause.expression() == AllOf((a, b, price < 3, Not(word("z"))))
    assert Clause().expression() == ANYTHING
    assert Clause(frozenset("a")).expression() == a


@given(intervals(), intervals(), st.lists(numbers | values, min_size=1, max_size=10))
def test_the_merged_tests_of_one_attribute_hold_for_the_same_values(one, other, samples):
    clauses = clauses_of(Test("x", one) & Test("x", other))
    for value in samples:
        expected = one.holds(value) is True and other.holds(value) is True
        assert any(clause.matches(frozenset(), {"x": value}) for clause in clauses) == expected
