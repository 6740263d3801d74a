"""The engine: its verbs, one object or many, whole or not at all."""

import numpy as np
import pandas
import pyarrow as pa
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
from nearcast.errors import (
    ColumnError,
    DuplicateError,
    GeometryError,
    InputError,
    ModelError,
    UnknownError,
)
from nearcast.matching import INDEXES

HERE = Point(lon=-73.99, lat=40.73)
ANNA = Subscription(
    "anna", 'coffee AND (discount OR "happy hour") NOT decaf', Circle(lon=-73.99, lat=40.73, radius=800)
)
BEN = Subscription("ben", "storm", Box(-75, 40, -73, 42))


@pytest.fixture(params=sorted(INDEXES))
def engine(request):
    engine = Engine(request.param)
    engine.subscribe([ANNA, BEN])
    return engine


def who(deliveries):
    return [delivery.subscription_id for delivery in deliveries]


def test_publish_one(engine):
    told = engine.publish(Message("m1", "Coffee discount until noon", HERE))
    assert list(told) == [Delivery("anna", "m1")]
    assert told[0].change == "+"
    assert told[0].reason == "publish"
    assert len(engine.publish(Message("m2", "decaf coffee discount", HERE))) == 0


def test_publish_many(engine):
    told = engine.publish(
        [Message(1, "storm", HERE), Message(2, "sun", HERE), Message(3, "coffee happy hour storm", HERE)]
    )
    assert [(d.message_id, d.subscription_id) for d in told] == [(1, "ben"), (3, "anna"), (3, "ben")]
    assert [d.message_id for d in told[1:]] == [3, 3]


def test_publish_a_table(engine):
    columns = {"id": ["a", "b"], "text": ["Storm!", "calm"], "lon": [-74.0, -74.0], "lat": [41.0, 41.0]}
    for table in (columns, pa.table(columns), pandas.DataFrame(columns), pa.RecordBatch.from_pydict(columns)):
        assert who(engine.publish(table)) == ["ben"]


def test_subscribe_a_table():
    engine = Engine()
    engine.subscribe({"id": [7, 8], "expression": ["tea", "milk"]})
    assert list(engine) == [7, 8]
    assert engine.match(Message(1, "tea milk", HERE)) == [7, 8]
    table = engine.publish(Message(1, "tea milk", HERE)).to_arrow()
    assert table["subscription_id"].to_pylist() == [7, 8]
    assert table["message_id"].to_pylist() == [1, 1]
    assert table["change"].to_pylist() == ["+"] * 2
    assert table["reason"].to_pylist() == ["publish"] * 2


def test_ids_of_two_types_do_not_mix():
    engine = Engine()
    engine.subscribe(Subscription(1, "tea"))
    with pytest.raises(ColumnError, match="ids of subscriptions are integers here, and '1' is not one"):
        engine.subscribe(Subscription("1", "tea"))
    assert "1" not in engine
    assert 1 in engine
    engine.publish(Message("a", "tea", HERE))
    for wrong in (Message(1, "tea", HERE), {"id": [1], "text": ["tea"], "lon": [0.0], "lat": [0.0]}):
        with pytest.raises(ColumnError, match="ids of messages are strings here, and 1 is not one"):
            engine.publish(wrong)
    with pytest.raises(ColumnError, match="str or int, not 'text'"):
        Engine(subscription_ids="text")
    typed = Engine(subscription_ids=int, message_ids=int)
    assert typed.subscribe([]).to_arrow().schema.field("subscription_id").type == pa.int64()
    with pytest.raises(ColumnError, match="integers here"):
        typed.subscribe(Subscription("one", "tea"))


def test_an_empty_id_is_refused_in_tables_as_in_objects():
    engine = Engine()
    with pytest.raises(ColumnError, match="id is empty in row 1"):
        engine.subscribe({"id": ["a", ""], "expression": ["tea", "tea"]})
    with pytest.raises(ColumnError, match="id is empty in row 0"):
        engine.publish({"id": [""], "text": ["tea"], "lon": [0.0], "lat": [0.0]})


def test_deliveries_stay_as_they_were():
    """Ids that come and go later do not change what was told before."""
    engine = Engine("scan")
    engine.subscribe([Subscription(f"s{i}", "tea") for i in range(3)])
    told = engine.publish(Message("m", "tea", HERE))
    for i in range(6000):
        engine.subscribe(Subscription(f"t{i}", "milk"))
        engine.unsubscribe(f"t{i}")
    engine.unsubscribe("s1")
    assert [d.subscription_id for d in told] == ["s0", "s1", "s2"]
    assert told.to_arrow()["subscription_id"].to_pylist() == ["s0", "s1", "s2"]
    assert who(engine.publish(Message("m", "tea", HERE))) == ["s0", "s2"]
    assert told.to_pandas()["subscription_id"].tolist() == ["s0", "s1", "s2"]
    assert pa.table(told).num_rows == 3


def test_match_publishes_nothing(engine):
    assert engine.match(Message("m", "storm", HERE)) == ["ben"]
    found = engine.match([Message("m", "storm", HERE), Message("n", "storm", HERE)])
    assert found.to_pydict() == {"message_id": ["m", "n"], "subscription_id": ["ben", "ben"]}
    assert engine.stats()["published"] == 0


def test_unsubscribe(engine):
    engine.unsubscribe("ben")
    assert "ben" not in engine
    assert len(engine) == 1
    assert who(engine.publish(Message(1, "storm", HERE))) == []
    engine.subscribe(BEN)
    assert who(engine.publish(Message(1, "storm", HERE))) == ["ben"]
    engine.unsubscribe(["anna", "ben"])
    assert len(engine) == 0


def test_an_unknown_id(engine):
    for call in (
        lambda: engine.unsubscribe("zoe"),
        lambda: engine["zoe"],
        lambda: engine.explain(Message(1, "", HERE), "zoe"),
    ):
        with pytest.raises(UnknownError, match="'zoe'"):
            call()
    with pytest.raises(UnknownError, match="'zoe'"):
        engine.unsubscribe(["anna", "zoe"])
    assert "anna" in engine
    with pytest.raises(ColumnError, match="twice"):
        engine.unsubscribe(["anna", "anna"])
    assert "anna" in engine


def test_a_duplicate_id_changes_nothing(engine):
    with pytest.raises(DuplicateError, match="'anna' exists already"):
        engine.subscribe([Subscription("new", "tea"), ANNA])
    with pytest.raises(DuplicateError, match="'new' is given twice in one call"):
        engine.subscribe([Subscription("new", "tea"), Subscription("new", "milk")])
    with pytest.raises(DuplicateError, match="'x' is given twice in one call"):
        engine.subscribe({"id": ["w", "x", "x"], "expression": ["tea"] * 3})
    assert "new" not in engine
    assert len(engine) == 2


def test_expired_messages_reach_nobody():
    clock = ManualClock("2026-01-01T00:00:00Z")
    engine = Engine(clock=clock)
    engine.subscribe(Subscription("a", "tea"))
    message = Message(1, "tea", HERE, expires_at="2026-01-01T00:01:00Z")
    assert who(engine.publish(message)) == ["a"]
    clock.advance(seconds=60)
    assert who(engine.publish([message, Message(2, "tea", HERE)])) == ["a"]
    assert engine.stats()["expired_before_publication"] == 1
    assert engine.stats()["delivered"] == 2


def test_a_subscription_comes_back(engine):
    assert engine["ben"] == BEN
    assert engine["anna"].region == ANNA.region
    assert set(engine["anna"].clauses) == set(ANNA.clauses)


def test_explain(engine):
    why = engine.explain(Message("m", "decaf coffee discount", Point(lon=-73.9, lat=40.73)), "anna")
    assert not why
    text = str(why)
    assert "message 'm' does not match subscription 'anna'" in text
    assert "✗ within CIRCLE (-73.99 40.73, 800 m): 7,5" in text
    assert "✓ coffee" in text
    assert "✗ NOT decaf: it is among the keywords" in text
    assert why.to_dict()["matches"] is False
    assert engine.explain(Message("m", "storm", HERE), "ben")


def test_explain_takes_a_message(engine):
    with pytest.raises(ModelError, match="a Message and the id of a subscription, not 'm1'"):
        engine.explain("m1", "anna")


def test_explain_agrees_with_match(engine):
    engine.subscribe(Subscription("c", 'tea AND price < 3 AND brand != "x"'))
    for attributes in (
        {},
        {"price": 2},
        {"price": 2, "brand": "y"},
        {"price": "2", "brand": "y"},
        {"price": 3, "brand": "y"},
    ):
        message = Message("m", "tea", HERE, attributes)
        assert bool(engine.explain(message, "c")) == ("c" in engine.match(message)), attributes


def test_columns_pass_through():
    engine = Engine()
    table = SubscriptionTable.from_subscriptions([Subscription("a", "tea")])
    engine.subscribe(table)
    engine.subscribe(Subscription("b", "tea"))
    batch = MessageBatch.from_messages([Message("m", "tea", HERE)], like=engine)
    assert who(engine.publish(batch)) == ["a", "b"]


def test_codes_of_another_vocabulary_are_refused():
    engine = Engine()
    engine.subscribe(Subscription("z", "milk"))
    table = SubscriptionTable.from_subscriptions([Subscription("a", "tea")])
    engine.subscribe(table)  # translated
    with pytest.raises(ColumnError, match="like=engine"):
        engine.publish(MessageBatch.from_messages([Message(1, "tea", HERE)], like=table))
    assert engine.stats()["published"] == 0
    assert who(engine.publish(Message(1, "tea", HERE))) == ["a"]


def test_a_refused_call_leaves_no_trace():
    engine = Engine()
    engine.subscribe(Subscription("a", "tea"))
    with pytest.raises(DuplicateError):
        engine.subscribe([Subscription("b", 'milk AND price < 3 AND brand = "x"'), Subscription("a", "tea")])
    with pytest.raises(DuplicateError):
        engine.subscribe({"id": ["c", "a"], "expression": ["milk", "tea"]})
    assert list(engine.coding.vocabulary) == ["tea"]
    assert engine.coding.vocabulary.counts.tolist() == [1]
    assert len(engine.coding.attributes) == 0


@pytest.mark.parametrize(("refused", "accepted"), [("a", 7), (255, "b")])
def test_a_refused_first_subscription_decides_nothing(refused, accepted):
    engine = Engine()
    elsewhere = Box(0, 0, 5, 5, Planar(0, 0, 10, 10))
    with pytest.raises(ColumnError):
        engine.subscribe(Subscription(refused, "milk", elsewhere))
    engine.subscribe(Subscription(accepted, "tea"))
    deliveries = engine.publish(Message(1, "tea", HERE))
    assert deliveries.to_arrow()["subscription_id"].to_pylist() == [accepted]
    assert list(engine) == [accepted]
    assert engine.stats()["words"] == 1
    engine.compact()
    assert who(engine.publish(Message(2, "tea", HERE))) == [accepted]


def test_refused_subscriptions_take_no_memory():
    engine = Engine()
    elsewhere = Box(0, 0, 5, 5, Planar(0, 0, 10, 10))
    before = engine._ids.nbytes
    for number in range(100):
        with pytest.raises(ColumnError):
            engine.subscribe(Subscription(f"s{number}", "tea", elsewhere))
    assert engine._ids.nbytes == before


def test_a_schema_that_stays():
    engine = Engine()
    engine.subscribe({"id": [1, 2], "expression": ["tea", "milk"]})
    some, none = (engine.publish([Message(1, text, HERE)]).to_arrow() for text in ("tea", "rum"))
    assert some.schema == none.schema
    assert pa.concat_tables([some, none])["subscription_id"].to_pylist() == [1]
    engine.unsubscribe(np.int64(2))
    assert 2 not in engine
    assert engine.match([Message(9, "rum", HERE)]).schema == engine.match([Message(9, "tea", HERE)]).schema


def test_planar_engine():
    plane = Planar(0, 0, 10, 10)
    engine = Engine(space=plane)
    engine.subscribe(Subscription("a", "tea", Circle(x=5, y=5, radius=1, space=plane)))
    assert who(engine.publish(Message(1, "tea", Point(x=5.5, y=5.5, space=plane)))) == ["a"]
    with pytest.raises(ColumnError, match="Planar"):
        engine.publish(Message(1, "tea", HERE))


def test_an_empty_engine():
    engine = Engine()
    assert who(engine.publish(Message(1, "tea", HERE))) == []
    assert who(engine.publish([])) == []
    assert len(engine.subscribe([])) == 0
    assert engine.match([]).num_rows == 0
    assert repr(engine) == "<Engine: 0 subscriptions, index 'auto'>"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"clock": 5}, InputError, "clock must have a method now"),
        ({"space": "WGS84"}, GeometryError, "'WGS84' is not a space"),
        ({"space": None}, GeometryError, "None is not a space"),
    ],
)
def test_options_are_checked_at_once(options, error, words):
    with pytest.raises(error, match=words):
        Engine(**options)


def test_match_reads_no_times(engine):
    for times in ({"expires_at": 1}, {"published_at": 2**60}):
        assert engine.match(Message(1, "storm", HERE, **times)) == ["ben"]


def test_no_empty_table_is_built_for_a_publish(engine, monkeypatch):
    """Messages come in the coding of the engine, whatever they come as and whatever becomes of them."""
    columns = {"id": ["t1", "t2"], "text": ["storm", "calm"], "lon": [-74.0, -74.0], "lat": [41.0, 41.0]}
    batch = MessageBatch.from_messages([Message("b", "storm", HERE)], like=engine)

    def refuse(*arguments):
        raise AssertionError("an empty table was built")

    for kind in (SubscriptionTable, MessageBatch):
        monkeypatch.setattr(kind, "empty", refuse)
        with pytest.raises(AssertionError, match="empty table"):
            kind.empty()
    later = {"expires_at": 2**61}
    for messages, heard in (
        (Message("m1", "storm", HERE), 1),
        ([Message("m2", "storm", HERE), Message("m3", "sun", HERE)], 1),
        (columns, 1),
        (pa.table(columns).slice(1), 0),
        (batch, 1),
        (Message("kept", "storm", HERE, **later), 1),
        (Message("kept", "storm and rain", HERE, **later), 0),
        (Message("held", "storm", HERE, published_at=2**60), 0),
        (columns | {"expires_at": [2**61, 1]}, 1),
    ):
        assert len(engine.publish(messages)) == heard
