"""The written forms: expressions as text; messages and subscriptions as text and JSON."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast import config
from nearcast.errors import ExpressionError, GeometryError, ModelError
from nearcast.geometry import EVERYWHERE, Box, Circle, Point
from nearcast.language import format_expression, parse
from nearcast.model import Message, Subscription
from nearcast.predicates import ANYTHING, Interval, Not, Test, attribute, phrase, word
from values import PLANE, expressions, messages, subscriptions

price, brand, rating, capacity = (attribute(name) for name in ("price", "brand", "rating", "capacity"))
coffee, tea, decaf, discount = (word(name) for name in ("coffee", "tea", "decaf", "discount"))


# --- Expressions ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("coffee", coffee),
        ("  Coffee\n", coffee),
        ("*", ANYTHING),
        ("coffee tea", coffee & tea),
        ("coffee AND tea", coffee & tea),
        ("coffee OR tea decaf", coffee | (tea & decaf)),
        ("(coffee OR tea) decaf", (coffee | tea) & decaf),
        ("coffee NOT decaf", coffee & ~decaf),
        ("NOT coffee OR tea", ~coffee | tea),
        ("NOT (coffee OR tea)", ~(coffee | tea)),
        ("NOT NOT coffee", Not(Not(coffee))),
        (
            'coffee AND (discount OR "happy hour") NOT decaf',
            coffee & (discount | phrase("happy hour")) & ~decaf,
        ),
        ("coffee or tea", coffee | tea),
        ("coffee and not decaf", coffee & ~decaf),
        ('"or"', word("or")),
        ("half-price", phrase("half price")),
        ("#coffee", coffee),
        ("don't", phrase("don t")),
        ("24", word("24")),
        ("24h 5g", word("24h") & word("5g")),
        ("नमस्ते", word("नमस्ते")),
        ("price < 3300", price < 3300),
        ("price<3", price < 3),
        ("price>-3.5e2", price > -350),
        ("price ≤ 3", price <= 3),
        ("price == 3", price == 3),
        ("price <> 3", price != 3),
        ("3 > price", price < 3),
        ("100 <= capacity <= 256", capacity.between(100, 256)),
        ("256 >= capacity > 100", Test("capacity", Interval(100, 256, low_open=True))),
        ('brand = "Huawei"', brand == "Huawei"),
        ('"Huawei" = brand', brand == "Huawei"),
        (r'brand != "a \"b\" \\"', brand != 'a "b" \\'),
        ("rating IN (4, 5)", rating.one_of(4, 5)),
        ('rating in (4, "x")', rating.one_of(4, "x")),
        ("rating NOT IN (1, 2)", ~rating.one_of(1, 2)),
        ("NOT price < 3", ~(price < 3)),
        ("NOT 1 <= price <= 3", ~price.between(1, 3)),
        ("price <= inf", Test("price", Interval(float("-inf"), float("inf")))),
        ("`half price` < 3", attribute("half price") < 3),
        ("`a``b` = 1", attribute("a`b") == 1),
        ("`in` = 1", attribute("in") == 1),
        ("screen.size_cm >= 6", attribute("screen.size_cm") >= 6),
        ("coffee price < 3 rating IN (4, 5) tea", coffee & (price < 3) & rating.one_of(4, 5) & tea),
        ("coffee\nOR\ttea", coffee | tea),
    ],
)
def test_parse(text, expected):
    assert parse(text) == expected
    assert parse(format_expression(expected)) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"the expression is empty; write \*"),
        (" \n ", "the expression is empty"),
        ("()", r"\) stands where a word"),
        ("(coffee", r"never closed; add a \) \(line 1, column 1\)"),
        ("coffee)", r"never opened.*column 7"),
        ("((coffee) tea", r"never closed.*column 1"),
        ("coffee AND", "missing at the end"),
        ("coffee OR OR tea", 'OR stands where a word.*quote it: "or"'),
        ("AND coffee", "AND stands where a word"),
        ("NOT", "missing at the end"),
        ("price ~ 3", "unknown operator '~': comparisons are < <="),
        ("coffee & tea", "unknown operator '&': write AND"),
        ("coffee | tea", "write OR"),
        ("coffee -decaf", "unknown operator '-': write NOT"),
        ("!coffee", "write NOT"),
        ("“happy hour”", '^quote with ", not with “'),
        ("'happy hour'", "^quote with \", not with '"),
        ('"happy hour', "^this quote is never closed"),
        ('"', "^this quote is never closed"),
        ("`price < 3", "^this backtick is never closed"),
        ("`price`", "needs a comparison"),
        ('"!"', "has no letter and no digit"),
        ("price <", "a number or a string in double quotes should stand here"),
        ("price < cheap", 'a string is quoted: "cheap"'),
        ("price < nan", 'a string is quoted: "nan"'),
        ("price < 1e999", "too large"),
        ("brand = Huawei", 'a string is quoted: "Huawei"'),
        ('brand < "Huawei"', "strings have no order here; use =, != or IN"),
        ("< 3", "needs the name of an attribute before it"),
        ("256 <= capacity <= 100", "low end 256.0 is above its high end 100.0; swap them.*column 1"),
        ("1 < capacity > 3", "both signs in one direction"),
        ("1 = capacity = 3", "both signs in one direction"),
        ("capacity < 3 < 5", "with the name in the middle"),
        ("3 < 5", "the name of an attribute should stand here"),
        ("half-price < 3", "in backticks"),
        ("-5", "a number without a comparison"),
        ("coffee in paris", 'IN is followed by values.*quote it: "in"'),
        ("rating IN ()", "a number or a string"),
        ("rating IN (4 5)", "separated by commas"),
        ("rating IN (4", r"closed by a \)"),
        ("coffee within walking distance", 'WITHIN begins a region.*quote the word: "within"'),
        ("coffee, tea", "',' was not expected here"),
        ("price : 3", "compare with ="),
        (r'brand = "\x"', "wrong escape"),
        ("a" * 300, "over the limit of 256 characters"),
        ("coffee\nAND tea ~", r"line 2, column 9"),
    ],
)
def test_what_cannot_be_read_says_why_and_where(text, says):
    with pytest.raises(ExpressionError, match=f"(?s){says}"):
        parse(text)


def test_an_error_points_at_the_place():
    with pytest.raises(ExpressionError) as caught:
        parse("coffee\nprice ~ 3 tea")
    assert str(caught.value).splitlines()[1:] == ["    price ~ 3 tea", "          ^"]


@pytest.mark.parametrize("value", [None, 5, b"coffee"])
def test_what_is_no_text_is_refused(value):
    with pytest.raises(ExpressionError, match="is not a text"):
        parse(value)


@pytest.mark.parametrize("text", ["(" * 5000 + "a" + ")" * 5000, "NOT " * 5000 + "a", "NOT (" * 5000])
def test_deep_nesting_is_refused(text):
    with pytest.raises(ExpressionError, match=f"nested more than {config.MAX_EXPRESSION_DEPTH} levels"):
        parse(text)


def test_nesting_up_to_the_limit_is_read():
    depth = config.MAX_EXPRESSION_DEPTH
    assert parse("(" * depth + "coffee" + ")" * depth) == coffee


@pytest.mark.parametrize("unit", ["a ", "(", '"', "`", "a OR ", "1 ", "-", "é", "NOT "])
def test_ten_megabytes_are_refused_at_once(unit):
    text = unit * (10_000_000 // len(unit))
    began = time.thread_time()
    with pytest.raises(ExpressionError, match="over the limit of 65536"):
        parse(text)
    with pytest.raises(ModelError, match="over the limit of"):
        Subscription.from_text("anna: " + text)
    with pytest.raises(ModelError, match="over the limit of"):
        Message.from_text("m1: " + text)
    with pytest.raises(ModelError, match="over the limit of"):
        Message.from_json(text)
    assert time.thread_time() - began < 2  # a collection of garbage included


def test_a_long_expression_before_a_region_is_refused():
    with pytest.raises(ExpressionError, match="over the limit of 65536"):
        Subscription.from_text("anna: " + "a " * 1_000_000 + "WITHIN BOX (0 0, 1 1)")


@given(expressions)
def test_expressions_round_trip(expression):
    assert parse(format_expression(expression)) == expression


@given(st.text())
def test_any_text_gives_an_expression_or_an_expression_error(text):
    try:
        expression = parse(text)
    except ExpressionError:
        return
    assert parse(format_expression(expression)) == expression


PIECES = [
    *'()",*<>=!`~:;\\',
    "<=",
    "AND",
    "or",
    "NOT",
    "IN",
    "WITHIN",
    "coffee",
    "price",
    "3",
    "-2.5",
    "1e5",
    "inf",
    '"a b"',
    "`x y`",
    " ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=15).map(" ".join))
def test_any_sequence_of_tokens_gives_an_expression_or_an_expression_error(text):
    try:
        expression = parse(text)
    except ExpressionError:
        return
    assert parse(format_expression(expression)) == expression


# --- Subscriptions and messages as text ----------------------------------------------------------------------
@given(subscriptions())
def test_subscriptions_round_trip_as_text(subscription):
    assert Subscription.from_text(subscription.to_text()) == subscription
    assert len(subscription.to_text().splitlines()) == 1


BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
awkward = st.text(
    alphabet=st.sampled_from(BREAKS + '`\\"nu ') | st.characters(codec="utf-8"), min_size=1, max_size=8
)


@given(awkward, awkward, awkward)
def test_names_values_and_ids_with_breaks_stay_on_one_line(name, value, id):
    subscription = Subscription(id, Test(name, Interval(value, value)))
    message = Message(id, "tea", Point(lon=1, lat=2), {name: value})
    for written, read in ((subscription, Subscription.from_text), (message, Message.from_text)):
        assert len(written.to_text().splitlines()) == 1
        assert read(written.to_text()) == written


@given(messages())
def test_messages_round_trip_as_text(message):
    assert Message.from_text(message.to_text()) == message
    assert len(message.to_text().splitlines()) == 1


@given(messages(PLANE), subscriptions(PLANE))
def test_planar_values_round_trip(message, subscription):
    assert Message.from_text(message.to_text(), space=PLANE) == message
    assert Message.from_json(message.to_json(), space=PLANE) == message
    assert Subscription.from_text(subscription.to_text(), space=PLANE) == subscription
    assert Subscription.from_json(subscription.to_json(), space=PLANE) == subscription


def test_a_subscription_line():
    line = 'anna: coffee AND "happy hour" NOT decaf WITHIN CIRCLE (-73.99 40.73, 800 m)'
    anna = Subscription.from_text(line)
    assert anna == Subscription(
        "anna", "coffee happy hour NOT decaf", Circle(lon=-73.99, lat=40.73, radius=800)
    )
    assert (
        anna.to_text() == "anna: coffee AND happy AND hour AND NOT decaf WITHIN CIRCLE (-73.99 40.73, 800 m)"
    )
    assert Subscription.from_text("17: *") == Subscription(17)
    assert Subscription.from_text('"17": *') == Subscription("17")
    assert Subscription.from_text("coffee within box(0 0, 1 1)", id="b") == Subscription(
        "b", "coffee", Box(0, 0, 1, 1)
    )
    assert Subscription.from_text("a: coffee WITHIN EVERYWHERE").region is EVERYWHERE


@pytest.mark.parametrize(
    "id", [-(2**63), 2**63 - 1, str(2**63), "9" * 19, "9" * 30, "-0", "007", "a b", "é:", '"', "x:y", "—"]
)
def test_every_id_is_read_back(id):
    assert Subscription.from_text(Subscription(id).to_text()).id == id
    assert Subscription.from_json(Subscription(id).to_json()).id == id


def test_a_message_line():
    line = (
        'm1: Half price coffee, at noon! WITH price = 2.5, brand = "Blue AT POINT (9 9)" AT POINT (-73.99 40.73) '
        "FROM 2026-11-15T08:00:00Z UNTIL 2026-11-15T10:00:00Z"
    )
    message = Message.from_text(line)
    assert message == Message(
        "m1",
        "half price coffee at noon",
        Point(lon=-73.99, lat=40.73),
        {"price": 2.5, "brand": "Blue AT POINT (9 9)"},
        published_at="2026-11-15T08:00:00Z",
        expires_at="2026-11-15T10:00:00Z",
    )
    assert message.to_text() == line.replace("Half price coffee, at noon!", "at coffee half noon price")
    assert Message.from_text("coffee WITH milk AT BOX (0 0, 1 1)", id=1) == Message(
        1, "coffee with milk", Box(0, 0, 1, 1)
    )
    assert Message.from_text('1: 12" pizza AT POINT (0 0)').keywords == {"12", "pizza"}
    assert Message.from_text("1: AT POINT (0 0) UNTIL 5").expires_at == 5


@pytest.mark.parametrize(
    ("read", "error", "says"),
    [
        (
            lambda: Subscription.from_text("coffee"),
            ModelError,
            "'coffee' has no id; begin it with one and a colon",
        ),
        (lambda: Subscription.from_text("anna:"), ExpressionError, "the expression is empty"),
        (
            lambda: Subscription.from_text("anna: WITHIN BOX (0 0, 1 1)"),
            ExpressionError,
            "WITHIN stands where",
        ),
        (lambda: Subscription.from_text("anna: coffee WITHIN"), GeometryError, "'' is not a place"),
        (lambda: Subscription.from_text("anna: coffee WITHIN town"), GeometryError, "'town' is not a place"),
        (lambda: Subscription.from_text("anna: coffee WITHIN POINT (0 0)"), GeometryError, "not a region"),
        (lambda: Subscription.from_text("anna: (coffee"), ExpressionError, "never closed"),
        (lambda: Subscription.from_text(5), ModelError, "5 is not a text"),
        (lambda: Message.from_text("m1: coffee"), ModelError, "has no place; end it with one"),
        (lambda: Message.from_text("m1: coffee AT EVERYWHERE"), ModelError, "has no place"),
        (
            lambda: Message.from_text("m1: a AT POINT (0 0) UNTIL"),
            ModelError,
            "cannot be read; after the place",
        ),
        (
            lambda: Message.from_text(
                "m1: a AT POINT (0 0) UNTIL 2026-01-01T00:00:00Z FROM 2025-01-01T00:00:00Z"
            ),
            ModelError,
            "in this order",
        ),
        (
            lambda: Message.from_text("m1: a AT POINT (0 0) FROM noon"),
            ModelError,
            "published_at 'noon' is not a time",
        ),
        (lambda: Message.from_text("m1: a AT POINT (0 0) UNTIL 5 FROM 3"), ModelError, "in this order"),
        (
            lambda: Message.from_text("m1: a AT POINT (0 0) FROM 5 UNTIL 3"),
            ModelError,
            "not after its publication",
        ),
        (lambda: Message.from_text("m1: a AT POINT (40 -140)"), GeometryError, "swapped"),
        (lambda: Message.from_text("m1: a WITH price = AT POINT (0 0)"), ExpressionError, 'quoted: "AT"'),
        (
            lambda: Message.from_text("m1: a WITH price = 3 b = 4 AT POINT (0 0)"),
            ExpressionError,
            "write a comma",
        ),
        (lambda: Message.from_text("m1: a WITH b = 3, b = 4 AT POINT (0 0)"), ExpressionError, "two values"),
        (
            lambda: Message.from_text("m1: a WITH b = 3, c < 4 AT POINT (0 0)"),
            ExpressionError,
            "as c = ",
        ),
        (lambda: Message.from_text("m1: a WITH b = 3"), ExpressionError, "AT and the place"),
        (lambda: Message.from_text('"\\x": a AT POINT (0 0)'), ModelError, "wrong escape"),
        (lambda: Message.from_text('"": a AT POINT (0 0)'), ModelError, "the id is empty"),
    ],
)
def test_lines_that_cannot_be_read(read, error, says):
    with pytest.raises(error, match=says):
        read()


LINE_PIECES = [
    *PIECES,
    "anna:",
    "WITH",
    "AT",
    "FROM",
    "UNTIL",
    "POINT (0 0)",
    "BOX (0 0, 1 1)",
    "2026-01-01T00:00:00Z",
    "x = 3",
]


@given(st.lists(st.sampled_from(LINE_PIECES), max_size=12).map(" ".join) | st.text())
def test_any_line_gives_a_value_or_an_input_error(text):
    for read in (Message.from_text, Subscription.from_text, Message.from_json, Subscription.from_json):
        with suppress(ExpressionError, ModelError, GeometryError):
            read(text)


# --- JSON ----------------------------------------------------------------------------------------------------
@given(messages())
def test_messages_round_trip_as_json(message):
    written = message.to_json()
    assert Message.from_json(written) == message
    assert Message.from_json(written.encode()) == message
    assert Message.from_json(json.loads(written)) == message


@given(subscriptions())
def test_subscriptions_round_trip_as_json(subscription):
    written = subscription.to_json()
    assert Subscription.from_json(written) == subscription
    assert Subscription.from_json(json.loads(written)) == subscription


def test_the_fields_of_a_message():
    message = Message(
        "m1", "hot soup", Point(lon=1, lat=2), {"price": 3}, published_at=0, expires_at="2026-01-01T00:00:00Z"
    )
    assert json.loads(message.to_json()) == {
        "id": "m1",
        "keywords": ["hot", "soup"],
        "place": {"type": "Point", "coordinates": [1, 2]},
        "attributes": {"price": 3},
        "published_at": "1970-01-01T00:00:00Z",
        "expires_at": "2026-01-01T00:00:00Z",
    }
    assert list(json.loads(Message(1, "", Point(lon=1, lat=2)).to_json())) == ["id", "keywords", "place"]


def test_features_are_read():
    place = {"type": "Point", "coordinates": [1, 2]}
    feature = {"type": "Feature", "id": 7, "geometry": place, "properties": {"text": "Hot soup!"}}
    assert Message.from_json(feature) == Message(7, "hot soup", Point(lon=1, lat=2))
    region = {
        "type": "Feature",
        "geometry": {**place, "radius": 5},
        "properties": {"id": "anna", "expression": "soup"},
    }
    assert Subscription.from_json(json.dumps(region)) == Subscription(
        "anna", "soup", Circle(lon=1, lat=2, radius=5)
    )
    everywhere = {"type": "Feature", "id": 1, "geometry": None, "properties": None}
    assert Subscription.from_json(everywhere) == Subscription(1)


HERE = '"place": {"type": "Point", "coordinates": [1, 2]}'


@pytest.mark.parametrize(
    ("document", "error", "says"),
    [
        ("", ModelError, "not JSON: Expecting value"),
        ('{"id": 1,\n  oops}', ModelError, r"not JSON: .* \(line 2, column 3\)"),
        ("[]", ModelError, r"\[\] is not a message; give a JSON object"),
        ("5", ModelError, "5 is not a message; give a JSON object"),
        (5, ModelError, "5 is not JSON"),
        (b"\xff\xfe{", ModelError, "not JSON"),
        ("[" * 100_000, ModelError, "nested too deeply|not JSON"),
        ("9" * 10_000, ModelError, "too long"),
        ('{"id": NaN}', ModelError, "NaN is not a number in JSON"),
        ('{"id": -Infinity}', ModelError, "-Infinity is not a number in JSON"),
        (
            f'{{"id": 1, {HERE}, "keyword": []}}',
            ModelError,
            r"no field 'keyword'; did you mean keywords\? its fields are id, keywords, text",
        ),
        (f"{{{HERE}}}", ModelError, "no 'id'"),
        ('{"id": 1}', ModelError, "no 'place'"),
        (f'{{"id": 1, {HERE}, "text": "a", "keywords": []}}', ModelError, "both 'text' and 'keywords'"),
        (f'{{"id": 1, {HERE}, "text": ["a"]}}', ModelError, r"'text' is \['a'\], not a string"),
        (f'{{"id": 1, {HERE}, "keywords": [1]}}', ExpressionError, "1 is not a text"),
        (f'{{"id": 1, {HERE}, "keywords": null}}', ExpressionError, "None is neither a text nor words"),
        (f'{{"id": true, {HERE}}}', ModelError, "id True"),
        (f'{{"id": 1, {HERE}, "attributes": [1]}}', ModelError, "not a mapping"),
        (f'{{"id": 1, {HERE}, "attributes": {{"a": null}}}}', ModelError, "attribute 'a' is None"),
        (f'{{"id": 1, {HERE}, "attributes": {{"a": 1e999}}}}', ModelError, "attribute 'a' is inf"),
        (f'{{"id": 1, {HERE}, "expires_at": "soon"}}', ModelError, "expires_at 'soon' is not a time"),
        ('{"id": 1, "place": {"type": "Point", "coordinates": [40, -140]}}', GeometryError, "swapped"),
        ('{"type": "FeatureCollection", "features": []}', ModelError, "no field 'type'"),
        ('{"type": "Feature", "properties": 5, "geometry": null}', ModelError, "properties of a Feature"),
        (
            '{"type": "Feature", "id": 1, "properties": {"id": 2}, "geometry": null}',
            ModelError,
            "'id' is given twice",
        ),
    ],
    ids=range(26),
)
def test_documents_that_are_no_message(document, error, says):
    with pytest.raises(error, match=f"(?s){says}"):
        Message.from_json(document)


@pytest.mark.parametrize(
    ("document", "error", "says"),
    [
        ('{"expression": "a"}', ModelError, "no 'id'"),
        ('{"id": 1, "expression": ["a"]}', ModelError, r"'expression' is \['a'\], not a string"),
        ('{"id": 1, "expression": ""}', ExpressionError, "is empty"),
        ('{"id": 1, "expression": "(a"}', ExpressionError, "never closed"),
        ('{"id": 1, "region": {"type": "Point", "coordinates": [1, 2]}}', GeometryError, "not a region"),
        ('{"id": 1, "place": null}', ModelError, "no field 'place'; its fields are id, expression, region"),
    ],
)
def test_documents_that_are_no_subscription(document, error, says):
    with pytest.raises(error, match=says):
        Subscription.from_json(document)
