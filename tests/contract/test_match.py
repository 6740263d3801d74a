"""What every index answers: exactly what the naive matcher answers."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from answers import answers, dense, offsets
from nearcast import (
    EVERYWHERE,
    WGS84,
    Box,
    Circle,
    Message,
    MessageBatch,
    Planar,
    Point,
    Polygon,
    Subscription,
    SubscriptionTable,
    build_index,
    config,
)
from nearcast.errors import ColumnError, UnknownError
from nearcast.geometry import great_circle
from nearcast.matching import INDEXES
from strategies import batches, messages, ragged, subscriptions, tables

ALL = sorted(INDEXES)


@pytest.mark.parametrize("name", ALL)
@given(table=tables(), batch=batches())
def test_equals_naive_on_columns(name, table, batch):
    index = build_index(name, table)
    assert answers(index, batch) == naive.match(table, batch)
    assert index.check() == []


@pytest.mark.parametrize("name", ALL)
@given(data=st.data())
def test_equals_naive_on_objects(name, data):
    """Circles, polygons and boxes across the antimeridian, with several clauses; the columns say what objects say."""
    subs = [data.draw(subscriptions(id=i)) for i in range(data.draw(st.integers(1, 5)))]
    msgs = [data.draw(messages(id=i)) for i in range(data.draw(st.integers(1, 4)))]
    table = SubscriptionTable.from_subscriptions(subs)
    batch = MessageBatch.from_messages(msgs, like=table)
    expected = [{i for i, sub in enumerate(subs) if naive.wants(sub, message)} for message in msgs]
    assert naive.match(table, batch) == expected
    assert answers(build_index(name, table), batch) == expected


@pytest.mark.parametrize("name", ALL)
@given(table=tables(), batch=batches(), seed=st.integers(0, 99))
def test_metamorphic(name, table, batch, seed):
    """Scaling space, renaming words, reordering subscriptions and splitting the batch change nothing."""
    rng = np.random.default_rng(seed)
    expected = answers(build_index(name, table), batch)
    new_code = rng.permutation(50).astype(np.int32)
    clauses, probes = table.clauses, batch.probes
    renamed = SubscriptionTable.from_arrays(
        clauses.boxes * 2,  # exact in binary
        offsets(clauses.keyword_runs),
        new_code[clauses.keywords],
        (
            offsets(clauses.test_runs),
            clauses.test_attributes,
            clauses.test_lows,
            clauses.test_highs,
            clauses.test_flags,
        ),
        forbidden=(offsets(clauses.forbidden_runs), new_code[clauses.forbidden]),
        owners=table.owners,
    )
    order = rng.permutation(table.size)
    index = build_index(name, renamed.take(order))
    scaled = MessageBatch.from_arrays(
        None, probes.keyword_offsets, new_code[probes.keywords], dense(batch), boxes=probes.boxes * 2
    )
    half = batch.size // 2
    parts = [scaled.take(np.arange(half)), scaled.take(np.arange(half, batch.size))]
    got = [{int(order[row]) for row in group} for part in parts for group in answers(index, part)]
    assert got == expected


def square(n=1, **columns):
    """n times the unit square, without keywords."""
    return SubscriptionTable.from_arrays([[0, 0, 1, 1]] * n, [0] * (n + 1), [], **columns)


@pytest.mark.parametrize(
    ("point", "inside"),
    [
        ([0, 0], True),  # corners belong to the region
        ([1, 1], True),
        ([0.5, 1], True),  # so do edges
        ([np.nextafter(1, 2), 0.5], False),  # the next double does not, though float32 cannot tell them apart
        ([0.5, np.nextafter(0, -1)], False),
        ([-0.0, 0.5], True),
    ],
)
@pytest.mark.parametrize("words", [[], [3]])
def test_boundaries(name, point, inside, words):
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, len(words)], words)
    batch = MessageBatch.from_arrays([point], [0, 2], [3, 4])
    assert answers(build_index(name, table), batch) == [{0} if inside else set()]


def test_boundary_that_float32_rounds(name):
    """0.1 as float32 is above 0.1, 0.7 below 0.7: pruning may round, the decision does not."""
    table = SubscriptionTable.from_arrays([[0.1, 0.1, 0.7, 0.7]] * 2, [0, 1, 1], [1])
    points = [[0.1, 0.1], [np.nextafter(0.1, 0), 0.3], [0.7, 0.7], [np.nextafter(0.7, 1), 0.3]]
    batch = MessageBatch.from_arrays(points, [0, 1, 2, 3, 4], [1, 1, 1, 1])
    assert answers(build_index(name, table), batch) == [{0, 1}, set(), {0, 1}, set()]


def test_range_messages_match_when_areas_touch(name):
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1], [2, 2, 3, 3], [0, 0, 9, 9]], [0, 0, 1, 1], [5])
    batch = MessageBatch.from_arrays(
        None, [0, 1, 1, 1], [5], boxes=[[1, 1, 2, 2], [1.5, 1.5, 1.6, 1.6], [-5, -5, 20, 20]]
    )
    assert answers(build_index(name, table), batch) == [{0, 1, 2}, {2}, {0, 2}]


def test_empty_tables_and_batches(name):
    empty = build_index(name, square(0))
    assert len(empty) == 0
    assert answers(empty, MessageBatch.from_arrays([[0, 0]], [0, 1], [1])) == [set()]
    assert answers(build_index(name, square(2)), MessageBatch.from_arrays(np.empty((0, 2)), [0], [])) == []
    assert empty.check() == []
    assert empty.insert(square(3)).tolist() == [0, 1, 2]
    assert answers(empty, MessageBatch.from_arrays([[0, 0]], [0, 0], [])) == [{0, 1, 2}]


def test_empty_keyword_sets(name):
    """A clause without keywords takes every message of its place; a message without keywords only such clauses."""
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]] * 2, [0, 0, 1], [7])
    batch = MessageBatch.from_arrays([[0, 0], [0, 0]], [0, 0, 1], [7])
    assert answers(build_index(name, table), batch) == [{0}, {0, 1}]


def test_words_that_no_subscription_has(name):
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]], [0, 1], [7])
    batch = MessageBatch.from_arrays([[0, 0]], [0, 4], [-1, 2**31 - 1, 7, 100])
    assert answers(build_index(name, table), batch) == [{0}]


def test_duplicates(name):
    """Equal subscriptions are different subscriptions; a word twice is a word once."""
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]] * 4, [0, 2, 4, 5, 6], [3, 3, 3, 3, 3, 3])
    batch = MessageBatch.from_arrays([[1, 1]] * 2, [0, 3, 6], [3, 3, 9, 9, 9, 3])
    assert answers(build_index(name, table), batch) == [{0, 1, 2, 3}] * 2


def test_one_delivery_for_several_clauses(name):
    table = SubscriptionTable.from_arrays(
        [[0, 0, 1, 1]] * 3, [0, 1, 2, 3], [1, 2, 1], owners=np.array([0, 0, 1], np.int32)
    )
    batch = MessageBatch.from_arrays([[0, 0]], [0, 2], [1, 2])
    assert answers(build_index(name, table), batch) == [{0, 1}]


@pytest.mark.parametrize("words", [0, 2])
@pytest.mark.parametrize("n", [50_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_many_at_one_point(name, n, words):
    """Subscriptions at the very same point, with and without keywords: found, removed, found again."""
    keywords = np.tile(np.arange(words, dtype=np.int32), n)
    table = SubscriptionTable.from_arrays(np.full((n, 4), 0.25), np.arange(n + 1) * words, keywords)
    index = build_index(name, table)
    batch = MessageBatch.from_arrays([[0.25, 0.25], [0.25, 0.26]], [0, 2, 4], [0, 1, 0, 1])
    assert index.match(batch).counts.tolist() == [n, 0]
    index.remove(np.arange(0, n, 2))
    found = index.match(batch)
    assert found.counts.tolist() == [n // 2, 0]
    assert set(np.unique(found.rows % 2)) == {1}
    assert index.check() == []


def test_threads_and_chunks_change_nothing(name, monkeypatch):
    rng = np.random.default_rng(5)
    n, m = 300, 500
    table = SubscriptionTable.from_arrays(
        np.sort(rng.random((n, 2, 2)), axis=1).reshape(n, 4), np.arange(n + 1), rng.integers(0, 4, n)
    )
    batch = MessageBatch.from_arrays(rng.random((m, 2)), np.arange(m + 1) * 3, rng.integers(0, 4, 3 * m))
    index = build_index(name, table)
    expected = naive.match(table, batch)
    assert answers(index, batch) == expected
    monkeypatch.setattr(config, "MATCH_CHUNK", 64)
    assert answers(index, batch) == expected
    assert answers(index, batch, threads=3) == expected


def test_more_matches_than_the_buffer_holds(name):
    n = 50_000
    index = build_index(name, square(n))
    batch = MessageBatch.from_arrays([[0, 0], [5, 5], [1, 1]], [0, 0, 0, 0], [])
    assert index.match(batch).counts.tolist() == [n, 0, n]


class TestShapes:
    """Circles, polygons and the antimeridian: what boxes only contain is decided exactly."""

    subs = (
        Subscription("fiji", "surf OR swim", Box(175, -20, -175, -15)),  # two clauses with two boxes each
        Subscription("circle", "surf", Circle(lon=179.9, lat=-17, radius=50_000)),
        Subscription("triangle", "surf", Polygon("POLYGON ((0 0, 10 0, 0 10, 0 0))")),
        Subscription("pole", "surf", Circle(lon=0, lat=89.9, radius=30_000)),
        Subscription("edge", "surf", Polygon("POLYGON ((170 0, 180 0, 180 10, 170 0))")),
        Subscription("all", "surf OR swim", EVERYWHERE),
    )

    @pytest.mark.parametrize(
        ("place", "who"),
        [
            (Point(lon=180, lat=-17), {"fiji", "circle"}),
            (Point(lon=-180, lat=-17), {"fiji", "circle"}),
            (Point(lon=-179.8, lat=-17), {"fiji", "circle"}),
            (Point(lon=-174.9, lat=-17), set()),
            (Point(lon=5, lat=5), {"triangle"}),  # on its edge
            (Point(lon=5.1, lat=5.1), set()),  # in its box only
            (Point(lon=170, lat=89.95), {"pole"}),  # beyond the pole
            (Box(-176, -16, -170, 0), {"fiji"}),
            (Box(170, -16, -170, 0), {"fiji", "edge"}),
            (Box(6, 6, 9, 9), set()),
            (Box(5, 5, 9, 9), {"triangle"}),
            (Circle(lon=-1, lat=1, radius=112_000), {"triangle"}),
            (Circle(lon=179, lat=-17, radius=1_000), {"fiji"}),
            (Circle(lon=180, lat=-17, radius=1_000), {"fiji", "circle"}),
            (Polygon("POLYGON ((-1 -1, 0 -1, 0 0, -1 -1))"), {"triangle"}),
            (Polygon("POLYGON ((-180 -17, -179.9 -17, -179.9 -16, -180 -17))"), {"fiji", "circle"}),
            (Point(lon=180, lat=5), {"edge"}),
            (Point(lon=-180, lat=5), {"edge"}),  # the other name of the antimeridian
            (Point(lon=-180, lat=11), set()),
            (Point(lon=171, lat=5), set()),  # in its box only
        ],
    )
    def test_places(self, name, place, who):
        table = SubscriptionTable.from_subscriptions(self.subs)
        index = build_index(name, table)
        batch = MessageBatch.from_messages([Message(1, "surf and swim", place)], like=table)
        assert {self.subs[row].id for row in answers(index, batch)[0]} == who | {"all"}
        assert naive.match(table, batch) == answers(index, batch)

    def test_an_area_of_two_boxes_is_one_message(self, name):
        """One clause a subscription, two boxes a message: what both boxes find is delivered once."""
        table = SubscriptionTable.from_subscriptions([Subscription("all", "surf")])
        batch = MessageBatch.from_messages([Message(1, "surf", Box(170, 0, -170, 1))], like=table)
        assert len(batch.owners) == 2
        assert build_index(name, table).match(batch).rows.tolist() == [0]

    @pytest.mark.parametrize("space", [WGS84, Planar(-1000, -1000, 1000, 1000)], ids=["wgs84", "planar"])
    def test_the_rim_of_a_circle_belongs_to_it(self, name, space):
        """Thousands of points at exactly the radius, and as many just outside: decided as ``touches`` decides."""
        draw = random.Random(1)
        subs, msgs = [], []
        for k in range(1_500):
            x, y = draw.uniform(-170, 170), draw.uniform(-80, 80)
            place = Point(x=x + draw.uniform(-1, 1), y=y + draw.uniform(-1, 1), space=space)
            rim = distance(x, y, place)
            for radius in (rim, math.nextafter(rim, 0)):
                subs.append(Subscription(len(subs), f"w{k}", Circle(x=x, y=y, radius=radius, space=space)))
            msgs.append(Message(k, f"w{k}", place))
        table = SubscriptionTable.from_subscriptions(subs)
        found = answers(build_index(name, table), MessageBatch.from_messages(msgs, like=table))
        expected = [
            {row for row in (2 * k, 2 * k + 1) if naive.wants(subs[row], msg)} for k, msg in enumerate(msgs)
        ]
        assert all(2 * k in rows for k, rows in enumerate(expected))
        assert found == expected

    def test_bulk_boxes_on_the_antimeridian(self, name):
        """Boxes that end on it meet points under either of its names."""
        columns = {
            "expression": ["*"] * 3,
            "xmin": [170.0, -180.0, 0.0],
            "xmax": [180.0, -170.0, 1.0],
            "ymin": [0.0] * 3,
            "ymax": [1.0] * 3,
        }
        table = SubscriptionTable.from_arrow(columns)
        batch = MessageBatch.from_arrow({"lon": [180.0, -180.0, 175.0], "lat": [0.5] * 3}, like=table)
        assert answers(build_index(name, table), batch) == [{0, 1}, {0, 1}, {0}]


def distance(x, y, place):
    if isinstance(place.space, Planar):  # not math.hypot, which rounds its own way
        return math.sqrt((place.x - x) * (place.x - x) + (place.y - y) * (place.y - y))
    return great_circle(x, y, place.x, place.y)


def test_messages_of_many_words(name):
    """A long row of codes is sorted and searched by halving, a short one from front to back."""
    rng = np.random.default_rng(4)
    n, m, vocabulary = 400, 60, 90
    wanted = [rng.choice(vocabulary, rng.integers(0, 5), replace=False) for _ in range(n)]
    unwanted = [rng.choice(vocabulary, rng.integers(0, 2)) for _ in range(n)]
    said = [rng.choice(vocabulary, 75) for _ in range(m)]
    assert min(len(set(row)) for row in said) > config.BINARY_SEARCH_FROM
    table = SubscriptionTable.from_arrays([[0, 0, 1, 1]] * n, *ragged(wanted), forbidden=ragged(unwanted))
    batch = MessageBatch.from_arrays([[0, 0]] * m, *ragged(said))
    expected = [
        {row for row in range(n) if set(wanted[row]) <= set(words) and not set(unwanted[row]) & set(words)}
        for words in said
    ]
    assert answers(build_index(name, table), batch) == expected


def test_spaces_do_not_mix(name):
    """A circle on a sphere cannot be compared with a point on a plane; boxes of bare codes can."""
    index = build_index(name, square())
    batch = MessageBatch.from_arrays([[0, 0]], [0, 0], [], space=Planar(0, 0, 9, 9))
    assert answers(index, batch) == [{0}]
    index.move(0, Circle(lon=0, lat=0, radius=9))
    with pytest.raises(ColumnError, match="Planar"):
        index.match(batch)


def test_wrong_arguments(name):
    index = build_index(name, square())
    with pytest.raises(ColumnError, match="MessageBatch"):
        index.match("coffee")
    with pytest.raises(ColumnError, match="threads must be a whole number from 1, not 0"):
        index.match(MessageBatch.from_arrays([[0, 0]], [0, 0], []), threads=0)
    with pytest.raises(UnknownError, match="scan, ranked-list"):
        build_index("quantum", square())
