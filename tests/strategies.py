"""Random subscriptions and messages for hypothesis: small worlds, where everything meets everything on its boundary."""

import numpy as np
from hypothesis import strategies as st

from nearcast import (
    Box,
    Circle,
    Message,
    MessageBatch,
    Planar,
    Point,
    Polygon,
    Subscription,
    SubscriptionTable,
)
from nearcast.geometry import EVERYWHERE, WGS84
from nearcast.predicates import ANYTHING, attribute, word

# Few coordinates, some of which float32 cannot hold: points fall on edges and corners all the time.
GRID = st.sampled_from([-1.0, -0.3, 0.0, 0.1, 0.2, 1 / 3, 0.5, 0.7, 0.9, 1.0, 2.0])
CODES = st.integers(0, 6)
PLANE = Planar(-1000, -1000, 1000, 1000)
WORDS = st.sampled_from(["coffee", "tea", "milk", "storm", "flood", "über"])


@st.composite
def boxes(draw):
    x, y = sorted([draw(GRID), draw(GRID)]), sorted([draw(GRID), draw(GRID)])
    if draw(st.integers(0, 9)) == 0:
        return [-np.inf, -np.inf, np.inf, np.inf]
    return [x[0], y[0], x[1], y[1]]


def ragged(rows, kind=np.int32):
    return np.cumsum([0] + [len(row) for row in rows]), np.array([v for row in rows for v in row], kind)


INTERVAL = st.tuples(st.integers(0, 2), GRID, GRID, st.integers(0, 7))


@st.composite
def tables(draw, max_size=12):
    """A SubscriptionTable of bare codes: boxes, words, forbidden words, intervals, several clauses each."""
    n = draw(st.integers(0, max_size))
    rows = [
        draw(st.tuples(boxes(), st.lists(CODES, max_size=3), st.lists(CODES, max_size=1))) for _ in range(n)
    ]
    tests = [draw(st.lists(INTERVAL, max_size=2)) for _ in range(n)]
    flat = [test for row in tests for test in row]
    intervals = (
        np.cumsum([0] + [len(row) for row in tests]),
        np.array([t[0] for t in flat], np.int32),
        np.array([min(t[1], t[2]) for t in flat]),
        np.array([max(t[1], t[2]) for t in flat]),
        np.array([t[3] for t in flat], np.uint8),
    )
    steps = [draw(st.integers(0, 1)) for _ in range(n)]
    owners = np.cumsum([0, *steps[1:]])[:n] if n else []
    return SubscriptionTable.from_arrays(
        np.array([row[0] for row in rows]).reshape(-1, 4),
        *ragged([row[1] for row in rows]),
        intervals,
        forbidden=ragged([row[2] for row in rows]),
        owners=np.array(owners, np.int32),
    )


@st.composite
def batches(draw, max_size=6):
    """A MessageBatch of bare codes: points or areas."""
    m = draw(st.integers(0, max_size))
    words = ragged([draw(st.lists(CODES, max_size=6)) for _ in range(m)])
    value = st.one_of(st.just(np.nan), GRID)
    attributes = np.array([[draw(value) for _ in range(3)] for _ in range(m)]).reshape(m, 3)
    if draw(st.booleans()):
        points = np.array([[draw(GRID), draw(GRID)] for _ in range(m)]).reshape(m, 2)
        return MessageBatch.from_arrays(points, *words, attributes)
    areas = [sorted_box(draw) for _ in range(m)]
    return MessageBatch.from_arrays(None, *words, attributes, boxes=np.array(areas).reshape(m, 4))


def sorted_box(draw):
    x, y = sorted([draw(GRID), draw(GRID)]), sorted([draw(GRID), draw(GRID)])
    return [x[0], y[0], x[1], y[1]]


# --- Objects ---------------------------------------------------------------------------------------------------------

LON = st.sampled_from([-180.0, -179.5, -100.0, -0.5, 0.0, 0.25, 1.0, 100.0, 179.0, 180.0])
LAT = st.sampled_from([-90.0, -60.0, -0.5, 0.0, 0.1, 1.0, 60.0, 89.5, 90.0])
PRICE = st.sampled_from([0.0, 1.0, 2.5, 3.0])
BRAND = st.sampled_from(["a", "b", "Huawei"])


@st.composite
def areas(draw, space=WGS84):
    """A Box (on WGS84 also across the antimeridian), Circle or Polygon."""
    globe = space == WGS84
    kind = draw(st.sampled_from(["box", "box", "circle", "polygon"]))
    x, y, x2, y2 = (draw(axis) for axis in (LON, LAT) * 2) if globe else (draw(GRID) for _ in range(4))
    if kind == "box":
        left, right = (x, x2) if globe else (min(x, x2), max(x, x2))
        return Box(left, min(y, y2), right, max(y, y2), space)
    if kind == "circle":
        radii = [0.0, 1_000.0, 60_000.0, 5_000_000.0] if globe else [0.0, 0.1, 0.5, 3.0]
        return Circle(x=x, y=y, radius=draw(st.sampled_from(radii)), space=space)
    x, x2, y, y2 = min(x, x2), max(x, x2), min(y, y2), max(y, y2)
    if x == x2 or y == y2:
        return Circle(x=x, y=y, radius=10_000 if globe else 0.2, space=space)
    return Polygon({"type": "Polygon", "coordinates": [[[x, y], [x2, y], [x2, y2], [x, y]]]}, space)


def points(space=WGS84):
    return st.builds(
        lambda x, y: Point(x=x, y=y, space=space), *((LON, LAT) if space == WGS84 else (GRID, GRID))
    )


POINTS = points()

LEAVES = st.one_of(
    WORDS.map(word),
    st.builds(
        lambda op, v: getattr(attribute("price"), op)(v),
        st.sampled_from(["__lt__", "__ge__", "__ne__"]),
        PRICE,
    ),
    st.builds(lambda v: attribute("price").one_of(v, 2.5), PRICE),
    st.builds(lambda op, v: getattr(attribute("brand"), op)(v), st.sampled_from(["__eq__", "__ne__"]), BRAND),
)
EXPRESSIONS = st.one_of(
    st.just(ANYTHING),
    st.recursive(
        LEAVES,
        lambda part: st.one_of(
            st.builds(lambda a, b: a & b, part, part),
            st.builds(lambda a, b: a | b, part, part),
            part.map(lambda a: ~a),
        ),
        max_leaves=5,
    ),
)


def _possible(expression):
    try:
        expression.clauses()
    except ValueError:  # it can never match
        return False
    return True


@st.composite
def subscriptions(draw, id=0, space=WGS84):
    expression = draw(EXPRESSIONS.filter(_possible))
    return Subscription(id, expression, draw(st.one_of(st.just(EVERYWHERE), areas(space))))


@st.composite
def messages(draw, id=0, space=WGS84):
    attributes = draw(st.fixed_dictionaries({}, optional={"price": PRICE, "brand": st.one_of(BRAND, PRICE)}))
    place = draw(st.one_of(points(space), points(space), areas(space)))
    return Message(id, draw(st.sets(WORDS)), place, attributes)
