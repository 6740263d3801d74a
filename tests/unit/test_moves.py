"""Moving and updating subscriptions of an engine: what is read, what is told, and what is refused."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from nearcast import (
    EVERYWHERE,
    Box,
    Circle,
    Engine,
    ManualClock,
    Message,
    Planar,
    Point,
    Polygon,
    Subscription,
    SubscriptionTable,
    build_index,
)
from nearcast.errors import ColumnError, GeometryError, NearcastWarning, UnknownError

SOON = "2026-11-18T09:00:00Z"


def one_in_an_index():
    return build_index("scan", SubscriptionTable.from_subscriptions([Subscription("a", "tea")]))


def told(deliveries):
    return [(d.subscription_id, d.change, d.message_id, d.reason) for d in deliveries]


@pytest.fixture
def clock():
    return ManualClock("2026-11-18T08:00:00Z")


@pytest.fixture
def engine(clock):
    """Messages at 0, 1, …, 5 degrees east, published in this order; anna's circle and ben's box are at 0."""
    engine = Engine(clock=clock)
    engine.subscribe(
        [
            Subscription("anna", "coffee", Circle(lon=0, lat=0, radius=120_000)),
            Subscription("ben", "coffee OR tea", Box(-0.5, -0.5, 0.5, 0.5)),
        ]
    )
    for x in range(6):
        engine.publish(Message(f"m{x}", "coffee", Point(lon=x, lat=0), expires_at=SOON))
    return engine


def test_one(engine):
    changes = engine.move("anna", Circle(lon=2, lat=0, radius=120_000))
    assert told(changes) == [
        ("anna", change, m, "move") for m, change in (("m0", "-"), ("m2", "+"), ("m3", "+"))
    ]
    assert engine["anna"].region == Circle(lon=2, lat=0, radius=120_000)
    assert told(engine.move("anna", Circle(lon=2, lat=0, radius=120_000))) == []


def test_stats_tell_what_found_the_changes(engine):
    engine.move(["anna", "ben"], [EVERYWHERE, EVERYWHERE])
    stats = engine.stats()
    assert stats["moved"] == 2
    assert stats["moved_by"] == "auto and the difference in scan"


def test_a_position_keeps_the_radius(engine):
    assert told(engine.move("anna", Point(lon=5, lat=0))) == [
        ("anna", change, m, "move") for m, change in (("m0", "-"), ("m1", "-"), ("m4", "+"), ("m5", "+"))
    ]
    assert engine["anna"].region == Circle(lon=5, lat=0, radius=120_000)


def test_several_of_which_the_last_counts(engine):
    regions = [Box(3, -1, 4, 1), EVERYWHERE, Box(-0.5, -0.5, 1, 1)]
    assert told(engine.move(["ben", "anna", "ben"], regions)) == [
        *(("anna", "+", f"m{x}", "move") for x in range(2, 6)),
        ("ben", "+", "m1", "move"),
    ]


@pytest.mark.parametrize("form", [dict, pa.table, pd.DataFrame])
def test_a_table(engine, form):
    engine.subscribe(Subscription("carl", "coffee", Circle(lon=0, lat=0, radius=1_000)))
    table = form({"id": ["carl", "anna"], "lon": [5.0, 1.0], "lat": [0.0, 0.0]})
    assert told(engine.move(table)) == [
        ("carl", "-", "m0", "move"),
        ("carl", "+", "m5", "move"),
        ("anna", "+", "m2", "move"),
    ]


def test_a_table_of_regions(engine):
    table = pa.table(
        {
            "id": ["ben", "anna"],
            "xmin": [4.5, None],
            "ymin": [-1.0, None],
            "xmax": [6.0, None],
            "ymax": [1.0, None],
            "lon": pa.array([None, 3.0]),
            "lat": pa.array([None, 0.0]),
            "radius_m": pa.array([None, 1_000.0]),
        }
    )
    assert told(engine.move(table)) == [
        ("ben", "-", "m0", "move"),
        ("ben", "+", "m5", "move"),
        ("anna", "-", "m0", "move"),
        ("anna", "-", "m1", "move"),
        ("anna", "+", "m3", "move"),
    ]


def test_a_polygon_and_the_antimeridian(engine):
    engine.publish(Message("edge", "coffee", Point(lon=180, lat=0), expires_at=SOON))
    assert told(engine.move("ben", Box(179, -1, -179, 1))) == [
        ("ben", "-", "m0", "move"),
        ("ben", "+", "edge", "move"),
    ]
    triangle = Polygon("POLYGON ((-1 -1, 1.4 -1, 0 2, -1 -1))")
    assert told(engine.move("ben", triangle)) == [("ben", "+", "m0", "move"), ("ben", "-", "edge", "move")]


def test_only_what_is_valid_counts(engine, clock):
    clock.advance(seconds=3600)
    assert told(engine.move("anna", Point(lon=2, lat=0))) == []


def test_on_a_plane():
    plane = Planar(0, 0, 100, 100)
    engine = Engine(space=plane, clock=ManualClock("2026-11-18T08:00:00Z"))
    engine.subscribe(Subscription("anna", "coffee", Circle(x=10, y=10, radius=5, space=plane)))
    engine.publish(Message("m", "coffee", Point(x=20, y=10, space=plane), expires_at=SOON))
    assert told(engine.move({"id": ["anna"], "lon": [16], "lat": [10]})) == [("anna", "+", "m", "move")]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda e: e.move("zoe", Point(lon=0, lat=0)), UnknownError, "no subscription 'zoe'"),
        (lambda e: e.move("ben", Point(lon=0, lat=0)), GeometryError, "'ben' has no circle"),
        (lambda e: e.move("anna"), ColumnError, "no regions for 'anna'"),
        (lambda e: e.move(["anna"], []), ColumnError, "0 regions for 1 subscription;"),
        (
            lambda e: e.move(["anna"], [None]),
            GeometryError,
            "None is not a region; for everywhere, give EVERYWHERE",
        ),
        (
            lambda e: one_in_an_index().move(0, None),
            GeometryError,
            "None is not a region",
        ),
        (
            lambda e: one_in_an_index().move([0], [None]),
            GeometryError,
            "None is not a reg",
        ),
        (lambda e: e.move({"id": ["anna"], "region": ["EVERYWHERE"]}), ColumnError, "did you mean geometry"),
        (lambda e: e.move(["anna"], Point(lon=0, lat=0)), ColumnError, "give a list of them"),
        (
            lambda e: e.move({"ids": ["anna"], "lon": [0], "lat": [0]}),
            ColumnError,
            "moves need a column id; the columns are ids",
        ),
        (lambda e: e.move({"lon": [0], "lat": [0]}), ColumnError, "need a column id"),
        (lambda e: e.move({"id": ["anna"], "lon": [0], "latitude": [0]}), ColumnError, "did you mean lat"),
        (lambda e: e.move({"id": ["anna"], "lon": [0]}), ColumnError, "there is no lat"),
        (lambda e: e.move({"id": ["anna"]}), ColumnError, "has no region"),
        (lambda e: e.move({"id": ["anna"], "lon": [None], "lat": [None]}), ColumnError, "has no region"),
        (lambda e: e.move({"id": ["anna"], "lon": [200], "lat": [0]}), GeometryError, "200"),
        (lambda e: e.move({"id": [1], "lon": [0], "lat": [0]}), UnknownError, "no subscription 1"),
        (lambda e: e.move("anna", Point(x=1, y=1, space=Planar(0, 0, 9, 9))), ColumnError, "live in WGS84"),
        (lambda e: e.move(["ben"], [Box(1, 1, 2, 2, Planar(0, 0, 9, 9))]), ColumnError, "one space"),
        (lambda e: e.update(Subscription("zoe", "tea")), UnknownError, "no subscription 'zoe'"),
        (lambda e: e.update({"id": ["anna"], "query": ["tea"]}), ColumnError, "did you mean expression"),
    ],
)
def test_mistakes_change_nothing(engine, call, error, words):
    with pytest.raises(error, match=words):
        call(engine)
    assert engine["anna"].region == Circle(lon=0, lat=0, radius=120_000)
    assert told(engine.move("anna", Point(lon=0, lat=0))) == []


IDS = {
    "ids": lambda ids: ids,
    "dict": lambda ids: {"id": ids, "lon": [0.0] * len(ids)},
    "column": lambda ids: pa.table({"id": ids})["id"],
    "array": pa.array,
    "words": lambda ids: pa.array(ids).dictionary_encode(),
    "series": pd.Series,
    "frame": lambda ids: pd.DataFrame({"id": ids}, index=[5, 4]),
    "table": lambda ids: pa.table({"other": [1, 2], "id": ids}),
    "rows": lambda ids: pa.RecordBatch.from_pydict({"id": ids}),
    "numpy": lambda ids: np.array(ids, object),
}


@pytest.mark.parametrize("form", IDS)
def test_ids_in_columns(engine, form):
    ids = IDS[form](["anna", "ben"])
    if form != "dict":  # with lon alone, this is a table of moves
        assert told(engine.move(ids, [Circle(lon=1, lat=0, radius=10), Box(9, 9, 9, 9)])) == [
            ("anna", "-", "m0", "move"),
            ("ben", "-", "m0", "move"),
        ]
    engine.update(Subscription("ben", "tea", Circle(lon=1, lat=0, radius=10)))
    assert [key for key, _ in engine.safe_region(ids)] == ["anna", "ben"]
    engine.unsubscribe(ids)
    assert len(engine) == 0


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        (pa.chunked_array([["anna"], ["zoe"]]), UnknownError, "no subscription 'zoe'"),
        (pd.Series([1, 2]), UnknownError, "no subscription 1"),
        (
            pd.DataFrame({"ids": ["anna"]}),
            ColumnError,
            "a table of subscriptions needs a column id; the .* ids",
        ),
        ({"name": ["anna"]}, ColumnError, "needs a column id; the columns are name"),
        (pa.table({"id": [None]}), ColumnError, "every row needs an id"),
        (pd.Series([1.5]), ColumnError, "strings or integers"),
    ],
)
def test_ids_in_columns_that_name_nothing(engine, ids, error, words):
    for verb in (engine.unsubscribe, engine.safe_region):
        with pytest.raises(error, match=words):
            verb(ids)
    assert len(engine) == 2


def test_other_columns_are_left_out_and_told(engine):
    """Each time, as those of subscriptions are; Python shows a warning once for each line that causes it."""
    others = {"id": ["anna"], "lon": [0.0], "lat": [0.0], "speed": [3.0]}
    for _ in range(2):
        with pytest.warns(NearcastWarning, match="'speed'"):
            engine.move(others)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(3):
            engine.move(others)
    assert len(shown) == 1


def test_update_changes_words_and_region_together(engine):
    engine.publish(Message("tea", "tea", Point(lon=0.1, lat=0), expires_at=SOON))
    assert told(engine.update(Subscription("anna", "tea", Box(-1, -1, 1, 1)))) == [
        ("anna", "-", "m0", "update"),
        ("anna", "-", "m1", "update"),
        ("anna", "+", "tea", "update"),
    ]
    assert engine["anna"] == Subscription("anna", "tea", Box(-1, -1, 1, 1))
    table = {
        "id": ["ben", "ben"],
        "expression": ["tea", "coffee"],
        "xmin": [0, 4],
        "ymin": [0, 0],
        "xmax": [1, 6],
    }
    assert told(engine.update(table | {"ymax": [1, 1]})) == [
        ("ben", "-", "m0", "update"),
        ("ben", "+", "m4", "update"),
        ("ben", "+", "m5", "update"),
        ("ben", "-", "tea", "update"),
    ]


def test_withdrawals(clock):
    engine = Engine(clock=clock, withdrawals=True)
    engine.subscribe(Subscription("anna", "coffee", Box(-1, -1, 1, 1)))
    engine.subscribe(Subscription("ben", "coffee", Box(-1, -1, 1, 1)))
    for name, seconds in (("m1", 10), ("m2", 20), ("m3", 30)):
        engine.publish(
            Message(name, "coffee", Point(lon=0, lat=0), expires_at=clock.now() + seconds * 1_000_000)
        )
    clock.advance(seconds=10)
    assert told(engine.move("ben", Box(5, 5, 6, 6))) == [
        ("anna", "-", "m1", "expire"),
        ("ben", "-", "m1", "expire"),
        ("ben", "-", "m2", "move"),
        ("ben", "-", "m3", "move"),
    ]
    clock.advance(seconds=10)
    assert told(engine.expire()) == [("anna", "-", "m2", "expire")]
    assert told(engine.expire()) == []
    assert told(engine.unsubscribe("anna")) == [("anna", "-", "m3", "unsubscribe")]


def test_without_withdrawals_only_moves_take_away(clock):
    engine = Engine(clock=clock)
    engine.subscribe(Subscription("anna", "coffee", Box(-1, -1, 1, 1)))
    engine.publish(Message("m1", "coffee", Point(lon=0, lat=0), expires_at=SOON))
    engine.publish(Message("m2", "coffee", Point(lon=0, lat=0), expires_at="2026-11-18T08:00:05Z"))
    clock.advance(seconds=5)
    assert told(engine.expire()) == []
    assert told(engine.unsubscribe("anna")) == []


@pytest.mark.parametrize("verb", ["move", "update"])
def test_what_comes_due_and_goes_in_the_same_call_is_not_told(clock, verb):
    engine = Engine(clock=clock, withdrawals=True)
    here, there = Box(-1, -1, 1, 1), Box(4, 4, 6, 6)
    engine.subscribe([Subscription(name, "coffee", here) for name in ("anna", "ben")])
    soon = clock.now() + 5_000_000
    engine.publish(Message("m1", "coffee", Point(lon=0, lat=0), expires_at=SOON))
    engine.publish(Message("m2", "coffee", Point(lon=0, lat=0), published_at=soon, expires_at=SOON))
    engine.publish(Message("m3", "coffee", Point(lon=0, lat=0), published_at=soon))  # nothing takes it back
    clock.advance(seconds=5)
    new = Subscription("anna", "coffee", there)
    assert sorted(told(engine.move("anna", there) if verb == "move" else engine.update(new))) == [
        ("anna", "+", "m3", "publish"),
        ("anna", "-", "m1", verb),
        ("ben", "+", "m2", "publish"),
        ("ben", "+", "m3", "publish"),
    ]


def test_what_is_replaced_and_comes_again_in_the_same_call_is_not_told(clock):
    engine = Engine(clock=clock, withdrawals=True)
    engine.subscribe([Subscription(name, "coffee", Box(-1, -1, 1, 1)) for name in ("anna", "ben")])
    engine.publish(Message("m1", "coffee", Point(lon=0, lat=0), expires_at=SOON))
    later = Message(
        "m1", "coffee", Point(lon=5, lat=5), published_at=clock.now() + 5_000_000, expires_at=SOON
    )
    engine.publish(later)
    clock.advance(seconds=5)
    assert told(engine.move("anna", Box(4, 4, 6, 6))) == [("ben", "-", "m1", "replace")]


def test_what_comes_due_is_not_told_to_those_who_leave(clock):
    engine = Engine(clock=clock, withdrawals=True)
    engine.subscribe([Subscription(name, "coffee") for name in ("anna", "ben")])
    soon = clock.now() + 5_000_000
    engine.publish(Message("m1", "coffee", Point(lon=0, lat=0), published_at=soon, expires_at=SOON))
    clock.advance(seconds=5)
    assert told(engine.unsubscribe(["anna"])) == [("ben", "+", "m1", "publish")]
