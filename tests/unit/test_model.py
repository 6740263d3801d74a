"""Messages, subscriptions and deliveries."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime

import numpy as np
import pytest
import shapely
from hypothesis import given

from nearcast.errors import ExpressionError, GeometryError, ModelError
from nearcast.geometry import EVERYWHERE, Box, Circle, Point, touches
from nearcast.model import Delivery, Message, Subscription
from nearcast.predicates import ANYTHING, attribute, word
from values import messages, subscriptions

HERE = Point(lon=-73.99, lat=40.73)


def test_a_message_is_normalised():
    message = Message(
        7,
        "Half-price COFFEE!",
        shapely.Point(-73.99, 40.73),
        {"price": 2, "open": True, "brand": "Blue Bottle", "size": np.float32(0.5)},
        published_at=datetime(2026, 11, 15, 8, tzinfo=UTC),
        expires_at="2026-11-15T10:00:00+01:00",
    )
    assert message.keywords == {"half", "price", "coffee"}
    assert message.place == HERE
    assert message.attributes == {"price": 2.0, "open": 1.0, "brand": "Blue Bottle", "size": 0.5}
    assert all(type(value) in (float, str) for value in message.attributes.values())
    assert message.expires_at - message.published_at == 3_600_000_000
    assert Message(7, ["coffee"], HERE).keywords == {"coffee"}
    assert Message(7, [], HERE).keywords == frozenset()


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Message("", "a", HERE), ModelError, "the id is empty"),
        (lambda: Message(True, "a", HERE), ModelError, "id True is neither"),
        (lambda: Message(None, "a", HERE), ModelError, "id None is neither"),
        (lambda: Message(1.5, "a", HERE), ModelError, "id 1.5 is neither"),
        (lambda: Message(2**63, "a", HERE), ModelError, "64 bits; give it as a string"),
        (lambda: Message(1, 5, HERE), ExpressionError, "5 is neither a text nor words"),
        (lambda: Message(1, "a", None), GeometryError, "None is not a place"),
        (lambda: Message(1, "a", EVERYWHERE), GeometryError, "is not a place"),
        (lambda: Message(1, "a", (1, 2)), GeometryError, "four numbers"),
        (lambda: Message(1, "a", HERE, {"price": float("nan")}), ModelError, "attribute 'price' is nan"),
        (lambda: Message(1, "a", HERE, {"price": float("inf")}), ModelError, "attribute 'price' is inf"),
        (lambda: Message(1, "a", HERE, {"price": 10**400}), ModelError, "attribute 'price' is inf"),
        (lambda: Message(1, "a", HERE, {"price": None}), ModelError, "'price' is None.*leave it out"),
        (lambda: Message(1, "a", HERE, {"": 1}), ModelError, "'' is not the name"),
        (lambda: Message(1, "a", HERE, {5: 1}), ModelError, "5 is not the name"),
        (lambda: Message(1, "a", HERE, [("price", 1)]), ModelError, "not a mapping"),
        (
            lambda: Message(
                "m", "a", HERE, published_at="2026-01-02T00:00:00Z", expires_at="2026-01-01T00:00:00Z"
            ),
            ModelError,
            "'m' expires at 2026-01-01T00:00:00Z, not after its publication at 2026-01-02T00:00:00Z; give a later",
        ),
        (
            lambda: Message(1, "a", HERE, published_at=5, expires_at=5),
            ModelError,
            "not after its publication",
        ),
        (lambda: Message(1, "a", HERE, published_at=datetime(2026, 1, 1)), ModelError, "no time zone"),
        (lambda: Message(1, "a", HERE, expires_at="soon"), ModelError, "expires_at 'soon' is not a time"),
        (lambda: Subscription("", "a"), ModelError, "the id is empty"),
        (
            lambda: Subscription(1, ""),
            ExpressionError,
            r"the expression is empty; write \* for every message",
        ),
        (lambda: Subscription(1, "  "), ExpressionError, "the expression is empty"),
        (lambda: Subscription(1, 5), ModelError, "5 is not an expression"),
        (lambda: Subscription(1, "a", HERE), GeometryError, "is a point, not a region"),
        (lambda: Subscription(1, "a NOT a"), ExpressionError, "can never match"),
        (lambda: Subscription(1, "a", (40, -100, 41, -99)), GeometryError, "swapped"),
        (
            lambda: Message("a\ud800", "a", HERE),
            ModelError,
            r"id 'a\\ud800' has a lone surrogate at position 1",
        ),
        (
            lambda: Message(1, "a", HERE, {"b": "\udfff"}),
            ModelError,
            r"attribute 'b': the value '\\udfff' has",
        ),
        (lambda: Message(1, "a", HERE, {"\ud800": 1}), ModelError, r"the attribute '\\ud800' has a lone"),
        (lambda: Subscription("\ud800", "a"), ModelError, r"id '\\ud800' has a lone surrogate"),
        (lambda: Subscription(1, r'b = "\ud800"'), ModelError, r"attribute 'b': the value '\\ud800' has"),
        (lambda: Subscription(1, 'a OR (a NOT (c OR b = "\ud800"))'), ModelError, "lone surrogate"),
        (lambda: Subscription(1, attribute("\ud800") < 1), ModelError, "the attribute .* lone surrogate"),
    ],
)
def test_bad_fields_are_named(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_a_lone_surrogate_in_a_text_separates_words():
    message = Message.from_json(
        r'{"id": "é", "text": "hot\ud800soup", "place": {"type": "Point", "coordinates": [1, 2]}}'
    )
    assert message.keywords == {"hot", "soup"}


def test_a_subscription_takes_every_form():
    expression = word("coffee") & (attribute("price") < 3)
    assert Subscription(1, expression) == Subscription(1, "coffee AND price < 3")
    assert Subscription(1).expression == ANYTHING
    assert Subscription(1, None, None).region is EVERYWHERE
    assert Subscription(1, "*", [0, 1, 2, 3]).region == Box(0, 1, 2, 3)
    assert Subscription(1, "*", "CIRCLE (0 1, 5 m)").region == Circle(lon=0, lat=1, radius=5)


@given(subscriptions(), messages())
def test_a_match_is_words_values_and_place(subscription, message):
    expected = subscription.expression.matches(message.keywords, message.attributes) and touches(
        subscription.region, message.place
    )
    assert subscription.matches(message) == expected


@given(messages(), subscriptions())
def test_values_survive_pickle_and_copy(message, subscription):
    for value in (message, subscription):
        for again in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
            assert again == value
            assert hash(again) == hash(value)
    assert pickle.loads(pickle.dumps(subscription)).clauses == subscription.clauses


def test_values_do_not_change():
    source = {"price": 1.0}
    message = Message(1, "a", HERE, source)
    source["price"] = 2.0
    assert message.attributes["price"] == 1.0
    with pytest.raises(TypeError):
        message.attributes["price"] = 3.0
    with pytest.raises(AttributeError):
        message.id = 2
    with pytest.raises(AttributeError):
        Subscription(1).id = 2


def test_repr_reads_well():
    message = Message(1, "b a", HERE, {"price": 1}, published_at=0)
    assert repr(message) == (
        "Message(1, 'a b', Point(lon=-73.99, lat=40.73), {'price': 1.0}, published_at='1970-01-01T00:00:00Z')"
    )
    assert eval(repr(message)) == message
    subscription = Subscription("anna", "coffee price<3", Box(0, 0, 1, 1))
    assert repr(subscription) == "Subscription('anna', 'coffee AND price < 3', Box(0.0, 0.0, 1.0, 1.0))"
    assert eval(repr(subscription)) == subscription


def test_a_delivery():
    assert Delivery("anna", "m1") == Delivery("anna", "m1", "+", "publish", None, None)
    assert hash(Delivery("anna", 1)) == hash(Delivery("anna", 1))
