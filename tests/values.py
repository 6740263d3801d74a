"""Hypothesis strategies for the value types: places, expressions, messages, subscriptions."""

from __future__ import annotations

import string

import shapely
from hypothesis import strategies as st

from nearcast.geometry import EVERYWHERE, WGS84, Box, Circle, Planar, Point, Polygon
from nearcast.model import Message, Subscription
from nearcast.predicates import ANYTHING, AllOf, AnyOf, Interval, Test, Word

PLANE = Planar(-100, -100, 100, 100)

# Round numbers and edges are where things meet; free floats are where rounding happens.
longitudes = st.sampled_from([-180.0, -179.5, -90.0, 0.0, 0.5, 90.0, 179.5, 180.0]) | st.floats(-180, 180)
latitudes = st.sampled_from([-90.0, -89.5, -45.0, 0.0, 0.5, 45.0, 89.5, 90.0]) | st.floats(-90, 90)
radii = st.sampled_from([0.0, 1.0, 111_195.0, 1e6, 1e7, 2e7, 3e7]) | st.floats(0, 2.1e7)
coordinates = st.sampled_from([-100.0, -1.0, 0.0, 1.0, 100.0]) | st.floats(-100, 100)


@st.composite
def boxes(draw, space=WGS84):
    xs = longitudes if space is WGS84 else coordinates
    ys = latitudes if space is WGS84 else coordinates
    x, y = [draw(xs), draw(xs)], sorted([draw(ys), draw(ys)])
    if space is not WGS84:
        x.sort()
    return Box(x[0], y[0], x[1], y[1], space)


@st.composite
def polygons(draw, space=WGS84):
    """Triangles, with now and then a second one elsewhere."""
    low, high = ((-180, -90), (180, 90)) if space is WGS84 else ((-100, -100), (100, 100))
    xs, ys = st.integers(low[0], high[0]), st.integers(low[1], high[1])
    corners = st.lists(st.tuples(xs, ys), min_size=3, max_size=3, unique=True)
    one = shapely.Polygon(draw(corners))
    two = shapely.Polygon(draw(corners)) if draw(st.booleans()) else None
    shape = one if two is None or one.intersects(two) else shapely.MultiPolygon([one, two])
    if not shape.is_valid or shape.area == 0:
        shape = shapely.Polygon([(0, 0), (7, 3), (2, 8)])
    return Polygon(shape, space)


def points(space=WGS84):
    if space is WGS84:
        return st.builds(Point, lon=longitudes, lat=latitudes)
    return st.builds(Point, x=coordinates, y=coordinates, space=st.just(space))


def circles(space=WGS84):
    if space is WGS84:
        return st.builds(Circle, lon=longitudes, lat=latitudes, radius=radii)
    return st.builds(Circle, x=coordinates, y=coordinates, radius=st.floats(0, 300), space=st.just(space))


def places(space=WGS84):
    return points(space) | boxes(space) | circles(space) | polygons(space)


def regions(space=WGS84):
    return boxes(space) | circles(space) | polygons(space) | st.just(EVERYWHERE)


# Few words and values, so that random messages and expressions have something to do with each other.
WORDS = ["coffee", "tea", "or", "within", "24", "größe", "नमस्ते"]
NAMES = ["price", "brand", "in", "half price", "a`b"]
words = st.sampled_from(WORDS)
names = st.sampled_from(NAMES)
numbers = st.sampled_from([-1.0, 0.0, 1.0, 2.0, 2.5, 3.0, 1e22])
strings = st.sampled_from(["", "Blue Bottle", 'a "b" \\ c', "AT POINT (1 2)", "line\nbreak"])
values = numbers | strings
attributes = st.dictionaries(names, values, max_size=4)


@st.composite
def intervals(draw):
    if draw(st.booleans()):
        text = draw(strings)
        return Interval(text, text, negated=draw(st.booleans()))
    ends = numbers | st.sampled_from([float("-inf"), float("inf")])
    low, high = sorted([draw(ends), draw(ends)])
    if low == high:
        return (
            Interval(0, 0, negated=draw(st.booleans()))
            if low in (float("-inf"), float("inf"))
            else Interval(low, low)
        )
    return Interval(low, high, draw(st.booleans()), draw(st.booleans()), draw(st.booleans()))


tests = st.builds(Test, names, intervals())
leaves = st.builds(Word, words) | tests | st.just(ANYTHING)


def _inner(children):
    several = st.lists(children, min_size=2, max_size=3).map(tuple)
    return st.builds(AllOf, several) | st.builds(AnyOf, several) | children.map(lambda part: ~part)


expressions = st.recursive(leaves, _inner, max_leaves=8)

free_text = st.text(max_size=12)
ids = (
    st.integers(-(2**63), 2**63 - 1)
    | st.text(min_size=1, max_size=8)
    | st.sampled_from(["17", "-0", "007", "a b", "é:"])
)


@st.composite
def messages(draw, space=WGS84):
    start = draw(st.none() | st.integers(-(2**62), 2**62))
    end = draw(st.none() | st.integers(-(2**62), 2**62))
    if start is not None and end is not None and end <= start:
        end = start + 1
    return Message(
        draw(ids),
        draw(st.lists(words | st.text(alphabet=string.ascii_letters + "üßéक्", max_size=5), max_size=4)),
        draw(places(space)),
        draw(
            attributes
            | st.dictionaries(
                st.text(min_size=1, max_size=5), st.floats(-1e300, 1e300) | free_text, max_size=3
            )
        ),
        published_at=start,
        expires_at=end,
    )


@st.composite
def subscriptions(draw, space=WGS84):
    from hypothesis import assume

    from nearcast.errors import ExpressionError

    try:
        return Subscription(draw(ids), draw(expressions), draw(regions(space)))
    except ExpressionError:  # an expression that contradicts itself
        assume(False)
