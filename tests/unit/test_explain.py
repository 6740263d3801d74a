"""Explanations: what is said of each kind of test and each kind of place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from nearcast.engine.explain import explain
from nearcast.geometry import EVERYWHERE, Box, Circle, Planar, Point
from nearcast.model import Message, Subscription
from values import messages, subscriptions

HERE = Point(lon=0, lat=0)
PLANE = Planar(-1e7, -1e7, 1e7, 1e7)
TRIANGLE = "POLYGON ((1 1, 5 1, 1 5, 1 1))"


def checks(expression, keywords="", attributes=None):
    """Return what is said of each test of the only clause."""
    explanation = explain(Subscription("s", expression), Message("m", keywords, HERE, attributes or {}))
    ((_, found),) = explanation.clauses
    return [str(check) for check in found]


@pytest.mark.parametrize(
    ("expression", "keywords", "attributes", "said"),
    [
        ("tea", "tea", {}, "✓ tea"),
        ("tea", "milk", {}, "✗ tea: not among the keywords"),
        ('"or"', "or", {}, '✓ "or"'),
        ("NOT tea", "milk", {}, "✓ NOT tea"),
        ("NOT tea", "tea", {}, "✗ NOT tea: it is among the keywords"),
        ("price < 3", "", {"price": 2}, "✓ price < 3"),
        ("price < 3", "", {"price": 4}, "✗ price < 3: price is 4"),
        ("price < 3", "", {}, "✗ price < 3: the message has no price"),
        ("price < 3", "", {"price": "4"}, '✗ price < 3: price is a text, "4"'),
        ("price = 1234567", "", {"price": 1234568}, "✗ price = 1234567: price is 1234568"),
        ("price = 0.1", "", {"price": 0.1 + 2**-56}, "✗ price = 0.1: price is 0.10000000000000002"),
        ("price != 4", "", {"price": 4}, "✗ price != 4: price is 4"),
        ("price >= 4", "", {"price": -1e300}, "✗ price >= 4: price is -1e+300"),
        ("1 < price <= 2", "", {"price": 1}, "✗ 1 < price <= 2: price is 1"),
        ("NOT 1 < price <= 2", "", {"price": 1.5}, "✗ NOT 1 < price <= 2: price is 1.5"),
        ('brand = "x"', "", {"brand": "x"}, '✓ brand = "x"'),
        ('brand = "x"', "", {"brand": 'y "z"\n'}, r'✗ brand = "x": brand is "y \"z\"\n"'),
        ('brand != "x"', "", {"brand": "x"}, '✗ brand != "x": brand is "x"'),
        ('brand = "x"', "", {"brand": 5}, '✗ brand = "x": brand is a number, 5'),
        ("`floor area` < 3", "", {"floor area": 4}, "✗ `floor area` < 3: `floor area` is 4"),
        ("`floor area` < 3", "", {}, "✗ `floor area` < 3: the message has no `floor area`"),
    ],
)
def test_each_kind_of_test(expression, keywords, attributes, said):
    assert checks(expression, keywords, attributes) == [said]


@pytest.mark.parametrize(
    ("region", "place", "said"),
    [
        (EVERYWHERE, HERE, "✓ everywhere"),
        (Box(0, 0, 1, 1), HERE, "✓ within BOX (0 0, 1 1)"),
        (Box(1, 1, 2, 2), HERE, "✗ within BOX (1 1, 2 2): the message is at POINT (0 0)"),
        (Box(1, 1, 2, 2), Box(3, 3, 4, 4), "✗ within BOX (1 1, 2 2): the message is at BOX (3 3, 4 4)"),
        (
            Circle(lon=0, lat=0.5, radius=500),
            HERE,
            "✗ within CIRCLE (0 0.5, 500 m): 55,598 m from the centre",
        ),
        (
            Circle(lon=0, lat=0.5, radius=55597.5),  # half a decimetre too small
            HERE,
            "✗ within CIRCLE (0 0.5, 55597.5 m): 55,597.540117 m from the centre",
        ),
        (Circle(lon=0, lat=0, radius=5), Box(0, 0, 1, 1), "✓ within CIRCLE (0 0, 5 m)"),
        (
            Circle(lon=0, lat=1, radius=5),
            Box(3, 3, 4, 4),
            "✗ within CIRCLE (0 1, 5 m): the message is at BOX (3 3, 4 4)",
        ),
        (
            Circle(x=3e6, y=4e6, radius=5, space=PLANE),
            Point(x=0, y=0, space=PLANE),
            "✗ within CIRCLE (3000000 4000000, 5): 5000000 from the centre",
        ),
        (TRIANGLE, Point(lon=2, lat=2), "✓ within POLYGON"),
        (TRIANGLE, HERE, "✗ within POLYGON ((1 1, 1 5, 5 1, 1 1)): the message is at POINT (0 0)"),
    ],
)
def test_each_kind_of_place(region, place, said):
    explanation = explain(Subscription("s", None, region), Message("m", "", place))
    assert str(explanation.region).startswith(said)
    assert bool(explanation) == explanation.region.holds == said.startswith("✓")


def test_one_clause_that_holds_is_enough():
    explanation = explain(Subscription("anna", "tea OR milk NOT sugar"), Message(7, "milk", HERE))
    assert str(explanation).splitlines() == [
        "message 7 matches subscription 'anna'",
        "├─ ✓ everywhere",
        "├─ ✗ tea",
        "│  └─ ✗ tea: not among the keywords",
        "└─ ✓ milk AND NOT sugar",
        "   ├─ ✓ milk",
        "   └─ ✓ NOT sugar",
    ]


def test_plain_values():
    explanation = explain(Subscription("anna", "tea"), Message(7, "milk", HERE))
    assert json.loads(json.dumps(explanation.to_dict())) == {
        "subscription": "anna",
        "message": 7,
        "matches": False,
        "region": {"asked": "everywhere", "holds": True, "found": ""},
        "clauses": [
            {
                "asked": "tea",
                "holds": False,
                "found": "",
                "checks": [{"asked": "tea", "holds": False, "found": "not among the keywords"}],
            }
        ],
    }


@given(subscriptions(), messages())
def test_an_explanation_says_what_matching_says(subscription, message):
    explanation = explain(subscription, message)
    assert explanation.matches == subscription.matches(message)
    for clause, (check, tests) in zip(subscription.clauses, explanation.clauses, strict=True):
        assert check.holds == clause.matches(message.keywords, message.attributes)
        assert check.holds == all(test.holds for test in tests)
        assert all(test.holds or test.found for test in tests)
