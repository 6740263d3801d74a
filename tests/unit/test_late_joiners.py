"""Messages that are kept while they are valid, and those who subscribe meanwhile."""

import datetime

import pytest

from nearcast import (
    Box,
    Circle,
    Delivery,
    Engine,
    ManualClock,
    Message,
    MessageBatch,
    Planar,
    Point,
    Subscription,
    SubscriptionTable,
)
from nearcast.errors import ColumnError, DuplicateError, ModelError, UnknownError
from nearcast.matching import INDEXES, STORES

HERE = Point(lon=-73.99, lat=40.73)
HERE_TOO = {"lon": [-73.99], "lat": [40.73]}
NOON = "2026-01-01T12:00:00Z"
ONE, TWO = "2026-01-01T13:00:00Z", "2026-01-01T14:00:00Z"


@pytest.fixture
def clock():
    return ManualClock(NOON)


@pytest.fixture(params=sorted(STORES))
def engine(request, clock):
    return Engine(store=request.param, clock=clock)


def told(deliveries):
    return [(delivery.subscription_id, delivery.message_id) for delivery in deliveries]


def test_who_comes_late_receives_what_is_valid(engine, clock):
    engine.publish(
        [
            Message("m1", "Coffee discount", HERE, {"price": 2.5}, expires_at=ONE),
            Message("m2", "Coffee discount", HERE, {"price": 9.5}, expires_at=ONE),
            Message("m3", "Coffee discount", Point(lon=0, lat=0), expires_at=TWO),
            Message("m4", "Coffee discount", HERE, {"price": 1}, expires_at=TWO),
            Message("m5", "Coffee discount", HERE, {"price": 1}),  # for the moment
        ]
    )
    near = Circle(lon=-73.99, lat=40.73, radius=800)
    first = engine.subscribe(Subscription("anna", "coffee AND price < 3", near))
    assert list(first) == [
        Delivery("anna", "m1", "+", "subscribe"),
        Delivery("anna", "m4", "+", "subscribe"),
    ]
    clock.advance(seconds=3600 - 1e-6)
    assert told(engine.subscribe(Subscription("ben", "coffee AND price < 3", near))) == [
        ("ben", "m1"),
        ("ben", "m4"),
    ]
    clock.advance(seconds=1e-6)  # at the very instant it is no longer valid
    assert told(engine.subscribe(Subscription("cleo", "coffee AND price < 3", near))) == [("cleo", "m4")]
    assert told(engine.subscribe([Subscription("dora", "coffee"), Subscription("emil", "tea")])) == [
        ("dora", "m3"),
        ("dora", "m4"),
    ]
    assert engine.stats()["delivered"] == 7


@pytest.mark.parametrize("index", sorted(INDEXES))
def test_every_index_takes_late_joiners(index, clock):
    engine = Engine(index, clock=clock)
    engine.publish(Message(1, "new words", HERE, {"kind": "x"}, expires_at=ONE))
    assert told(engine.subscribe(Subscription("a", 'new AND kind = "x"'))) == [("a", 1)]
    assert told(engine.publish(Message(2, "new", HERE, {"kind": "x"}))) == [("a", 2)]


def test_words_that_nobody_had_asked_for(engine):
    """Words, attributes, strings, and the same name as a number and as a string."""
    engine.publish(Message(1, "größe xyzzy", HERE, {"brand": "Huawei", "size": 5}, expires_at=ONE))
    engine.publish(Message(2, "xyzzy", HERE, {"brand": "Nokia", "size": "5"}, expires_at=ONE))
    wanted = {
        "größe": [1],
        "xyzzy": [1, 2],
        "plugh": [],
        'brand = "Huawei"': [1],
        'brand != "Huawei"': [2],
        'brand = "Sony"': [],
        "size = 5": [1],
        'size = "5"': [2],
        "brand = 5": [],
        "xyzzy NOT größe": [2],
    }
    subs = [Subscription(key, key) for key in wanted]
    assert told(engine.subscribe(subs)) == [(key, id) for key, ids in wanted.items() for id in ids]


def test_a_table_of_messages(engine):
    one = datetime.datetime(2026, 1, 1, 13, tzinfo=datetime.UTC)
    columns = {
        "id": ["a", "b", "c"],
        "text": ["Storm über town", "Storm", "Storm"],
        "lon": [-74.0, -74.0, 10.0],
        "lat": [41.0] * 3,
        "severity": [3, 9, None],
        "source": ["radio", None, "press"],
        "expires_at": [one, None, one],
    }
    engine.publish(columns)
    assert told(engine.subscribe(Subscription(1, "über AND severity >= 3", Box(-75, 40, -73, 42)))) == [
        (1, "a")
    ]
    assert told(engine.subscribe(Subscription(2, 'source != "radio"'))) == [(2, "c")]
    assert told(engine.subscribe({"id": [3, 4], "expression": ["storm", "calm"]})) == [(3, "a"), (3, "c")]
    keywords = {**columns, "keywords": [["hail"], ["Hail"], ["hail"]], "id": ["d", "e", "f"]}
    del keywords["text"]
    engine.publish(keywords)
    assert told(engine.subscribe(Subscription(5, "hail"))) == [(5, "d"), (5, "f")]


def test_a_message_takes_the_place_of_the_earlier_one(engine, clock):
    engine.publish(Message("m", "tea", HERE, expires_at=TWO))
    engine.publish(Message("n", "tea", HERE, expires_at=TWO))
    engine.publish(Message("m", "milk", HERE, expires_at=ONE))
    assert told(engine.subscribe(Subscription(1, "tea OR milk"))) == [(1, "n"), (1, "m")]
    assert told(engine.subscribe(Subscription(2, "tea"))) == [(2, "n")]
    engine.publish(Message("m", "rum", HERE))  # for the moment: nothing is kept under the id any more
    engine.publish(Message("n", "rum", HERE, expires_at=NOON))  # expired already: likewise
    assert told(engine.subscribe(Subscription(3, "*"))) == []
    assert engine.stats()["kept"] == 0


def test_an_id_twice_in_one_call(engine):
    engine.subscribe(Subscription("a", "tea"))
    both = [Message(1, "tea one", HERE, expires_at=ONE), Message(1, "tea two", HERE, expires_at=ONE)]
    assert told(engine.publish(both)) == [("a", 1)]  # the second one is no news to a
    assert told(engine.subscribe([Subscription("b", "one"), Subscription("c", "two")])) == [("c", 1)]
    engine.publish([*both, Message(1, "tea", HERE)])
    assert engine.stats()["kept"] == 0


def test_ids_of_both_kinds_do_not_mix(engine):
    with pytest.raises(ColumnError, match="1 and '1' do not mix"):
        engine.publish(
            [Message(1, "tea", HERE, expires_at=ONE), Message("1", "tea", HERE, expires_at=ONE)],
        )
    assert engine.stats()["kept"] == 0


def test_the_same_content_again_is_no_news(engine):
    engine.subscribe([Subscription("a", "tea"), Subscription("b", "milk"), Subscription("c", "tea OR milk")])
    first = Message(1, "tea", HERE, {"price": 3}, expires_at=TWO)
    assert told(engine.publish(first)) == [("a", 1), ("c", 1)]
    assert told(engine.publish(first)) == []
    table = {"id": [1], "text": ["tea"], "lon": [-73.99], "lat": [40.73], "price": [3.0]}
    assert told(engine.publish(table | {"expires_at": [first.expires_at]})) == []
    assert told(engine.publish(Message(1, "milk", HERE, expires_at=TWO))) == [("b", 1)]
    assert engine.stats()["kept"] == 1
    assert told(engine.subscribe(Subscription("d", "milk"))) == [("d", 1)]
    moved = Message(1, "milk", Point(lon=0, lat=0), expires_at=TWO)
    assert told(engine.publish(moved)) == []  # all who want it know it


def test_what_was_replaced_is_withdrawn_from_who_asks_for_that(clock):
    engine = Engine(clock=clock, withdrawals=True)
    engine.subscribe([Subscription("a", "tea"), Subscription("b", "milk"), Subscription("c", "tea OR milk")])
    engine.publish(Message(1, "tea", HERE, expires_at=TWO))
    assert list(engine.publish(Message(1, "milk", HERE, expires_at=TWO))) == [
        Delivery("b", 1, "+", "publish"),
        Delivery("a", 1, "-", "replace"),
    ]
    assert list(engine.publish(Message(1, "milk", HERE, expires_at="2026-01-01T00:00:00Z"))) == [
        Delivery("b", 1, "-", "replace"),
        Delivery("c", 1, "-", "replace"),
    ]


def test_a_message_that_starts_later_is_delivered_when_its_time_comes(engine, clock):
    engine.subscribe(Subscription("a", "tea"))
    engine.publish(
        [
            Message("m2", "tea", HERE, published_at=TWO),
            Message("m1", "tea", HERE, published_at=ONE, expires_at=TWO),
            Message("m0", "tea", HERE, published_at=NOON),
        ]
    )
    assert engine.stats()["coming"] == 2
    assert told(engine.subscribe(Subscription("b", "tea"))) == []
    clock.advance(seconds=3600)
    assert told(engine.subscribe(Subscription("c", "tea"))) == [("a", "m1"), ("b", "m1"), ("c", "m1")]
    clock.advance(seconds=3600)
    assert told(engine.expire()) == [("a", "m2"), ("b", "m2"), ("c", "m2")]
    assert engine.stats()["coming"] == engine.stats()["kept"] == 0
    engine.publish({"id": ["m3"], "text": ["tea"], "lon": [0.0], "lat": [0.0], "published_at": [2**52]})
    assert engine.stats()["coming"] == 1
    assert told(engine.publish(Message("m3", "milk", HERE))) == []
    assert engine.stats()["coming"] == 0


def test_reasons_in_columns(engine):
    engine.publish([Message(i, "tea", HERE, expires_at=ONE) for i in range(3)])
    late = engine.subscribe(Subscription(7, "tea"))
    assert late.to_arrow().to_pydict() == {
        "subscription_id": [7, 7, 7],
        "message_id": [0, 1, 2],
        "change": ["+"] * 3,
        "reason": ["subscribe"] * 3,
        "score": [None] * 3,
        "rank": [None] * 3,
    }
    assert late[1].reason == late[1:][0].reason == "subscribe"
    assert late.to_arrow().schema == engine.subscribe(Subscription(8, "milk")).to_arrow().schema
    assert engine.publish(Message(4, "tea", HERE)).to_arrow()["reason"].to_pylist() == ["publish"]


def test_expire(engine, clock):
    engine.publish([Message(i, "tea", HERE, expires_at=ONE if i < 3 else TWO) for i in range(5)])
    engine.expire()
    assert engine.stats()["kept"] == 5
    clock.advance(seconds=3600)
    assert len(engine.expire()) == 0
    assert engine.stats()["kept"] == 2
    assert engine.stats()["expired"] == 3
    assert told(engine.subscribe(Subscription("a", "tea"))) == [("a", 3), ("a", 4)]


def test_memory_does_not_depend_on_subscribers(engine, clock):
    """A message a second, each valid for ten: a handful is kept, and no more is known about the others."""
    for number in range(500):
        engine.publish(Message(number, "tea", HERE, expires_at=clock.now() + 10_000_000))
        clock.advance(seconds=1)
    assert engine.stats()["kept"] <= 15
    assert len(engine._valid.ids) <= 15
    assert told(engine.subscribe(Subscription("a", "tea"))) == [("a", number) for number in range(491, 500)]


def test_columns_pass_through(engine):
    """A batch is kept as it is; with learn=True it has the words that nobody has asked for yet."""
    message = Message("m", "tea xyzzy", HERE, expires_at=ONE)
    engine.publish(MessageBatch.from_messages([message], like=engine))
    assert told(engine.subscribe(Subscription(1, "xyzzy"))) == []
    engine.publish(MessageBatch.from_messages([message], like=engine, learn=True))
    other = SubscriptionTable.from_subscriptions([Subscription(2, "sun AND tea"), Subscription(3, "tea")])
    assert told(engine.subscribe(other)) == [(3, "m")]  # translated to the engine's words


def test_nothing_is_learnt_that_is_not_kept(engine):
    engine.publish(Message(1, "tea", HERE, {"brand": "x"}))
    engine.publish({"id": [1], "text": ["tea"], "lon": [0.0], "lat": [0.0], "brand": ["x"]})
    engine.match(Message(1, "tea", HERE, {"brand": "x"}, expires_at=ONE))
    assert len(engine.coding.vocabulary) == 0
    assert len(engine.coding.attributes) == 0


def test_a_refused_call_changes_nothing(engine):
    engine.publish(Message("m", "tea", HERE, expires_at=ONE))
    plane = Planar(0, 0, 9, 9)
    with pytest.raises(ColumnError, match="Planar"):
        engine.publish([Message("m", "new", Point(x=1, y=1, space=plane), expires_at=ONE)])
    with pytest.raises(ModelError, match="not a Message"):
        engine.publish([Message("m", "new", HERE, expires_at=ONE), "tea"])
    with pytest.raises(ColumnError, match="not after its publication"):
        engine.publish({"text": ["new"], **HERE_TOO, "id": ["m"], "published_at": [5], "expires_at": [5]})
    with pytest.raises(ColumnError, match="give a finite number"):
        engine.publish(
            {
                "id": ["m"],
                "text": ["new"],
                **HERE_TOO,
                "brand": ["new"],
                "price": [float("inf")],
                "expires_at": [2**60],
            }
        )
    table = {"id": [1], "text": ["new"], **HERE_TOO, "expires_at": [2**60]}
    for numbered in (table, Message(1, "new", HERE, expires_at=ONE)):
        with pytest.raises(ColumnError, match="do not mix"):
            engine.publish(numbered)
    assert len(engine.coding.attributes) == 0
    assert list(engine.coding.vocabulary) == ["tea"]
    engine.subscribe(Subscription("a", "tea"))
    with pytest.raises(DuplicateError):
        engine.subscribe([Subscription("b", "tea"), Subscription("a", "tea")])
    assert engine.stats()["delivered"] == 1
    assert told(engine.subscribe(Subscription("b", "tea"))) == [("b", "m")]


def test_an_unknown_store():
    with pytest.raises(UnknownError, match="there is no store 'quantum'"):
        Engine(store="quantum")


def test_the_first_subscription_meets_a_message_that_is_due(clock):
    """Its integer id decides the type of ids after the message has been published."""
    engine = Engine(clock=clock)
    engine.publish(Message("m", "tea", HERE, published_at=clock.now() + 1, expires_at=TWO))
    clock.advance(seconds=1)
    assert told(engine.subscribe(Subscription(2, "tea"))) == [(2, "m")]


def test_what_was_published_again_and_again_leaves_nothing_behind(clock):
    """Neither under one time nor under ever other ones; what counts still comes in the order of time."""
    engine, now = Engine(clock=clock, withdrawals=True), clock.now()
    engine.subscribe(Subscription("a", "tea"))
    for turn in range(1_000):
        for at in (10**12, 10**12 + turn * 10**7):
            engine.publish(Message("m", f"tea {turn}", HERE, published_at=now + at))
            engine.publish(Message("k", f"tea {turn}", HERE, expires_at=now + at))
    for at in (3, 1, 2):
        engine.publish(Message(f"m{at}", "tea", HERE, published_at=now + at * 10**6, expires_at=now + 10**9))
        engine.publish(Message(f"k{at}", "tea", HERE, expires_at=now + (at + 3) * 10**6))
    assert len(engine._coming) == 4
    assert len(engine._coming._queue) < 200
    assert len(engine._valid._expiries) == 4
    assert len(engine._valid._expiries._order) < 200
    clock.advance(seconds=10)
    happened = [(d.change, d.message_id) for d in engine.expire()]
    assert happened == [("-", "k3"), ("-", "k1"), ("-", "k2"), ("+", "m1"), ("+", "m2"), ("+", "m3")]
    clock.advance(seconds=990)
    assert {(d.change, d.message_id) for d in engine.expire()} == {("-", "m1"), ("-", "m2"), ("-", "m3")}
    clock.advance(seconds=2 * 10**6)
    assert [(d.change, d.message_id) for d in engine.expire()] == [("-", "k"), ("+", "m")]
