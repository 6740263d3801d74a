"""Snapshots of an engine: it goes on where it was."""

import pytest

from nearcast import (
    Box,
    Circle,
    ColumnError,
    Engine,
    IndexFileError,
    ManualClock,
    Message,
    Planar,
    Point,
    Polygon,
    Subscription,
    open_index,
)

HOUR = 3_600_000_000


def pairs(told):
    return [(d.subscription_id, d.message_id, d.change, d.reason) for d in told]


@pytest.fixture
def clock():
    return ManualClock(1_000 * HOUR)


@pytest.fixture
def engine(clock):
    engine = Engine(clock=clock, withdrawals=True)
    engine.subscribe(
        [
            Subscription("anna", "tea OR milk", Circle(lon=0, lat=0, radius=10_000)),
            Subscription("ben", 'brand = "x"', Polygon("POLYGON ((-1 -1, 1 -1, 0 1, -1 -1))")),
            Subscription("carl", "gone"),
            Subscription("dora"),
        ]
    )
    engine.unsubscribe("carl")
    now = clock.now()
    engine.publish(
        [
            Message("kept", "milk unasked", Point(lon=0, lat=0), expires_at=now + 5 * HOUR),
            Message("moment", "tea", Point(lon=0, lat=0)),
            Message("later", "tea", Point(lon=0, lat=0), {"brand": "x"}, published_at=now + HOUR),
            Message("last", "late", Box(0, 0, 1, 1), published_at=now + 2 * HOUR, expires_at=now + 3 * HOUR),
        ]
    )
    return engine


def test_it_goes_on_where_it_was(engine, clock, tmp_path):
    opened = Engine.open(engine.save(tmp_path / "engine"), clock=clock, verify=True)
    assert list(opened) == list(engine) == ["anna", "ben", "dora"]
    assert opened["anna"] == engine["anna"]
    assert repr(opened) == repr(engine)
    figures = ("subscriptions", "published", "delivered", "kept", "coming", "expired")
    assert [opened.stats()[name] for name in figures] == [engine.stats()[name] for name in figures]
    for hours in (1, 1, 1):
        clock.advance(seconds=3600 * hours)
        newcomer = Subscription(f"new {clock.now()}", "unasked OR late")
        for verb, given in (
            (
                Engine.publish,
                Message("kept", "milk other", Point(lon=0, lat=0), expires_at=clock.now() + HOUR),
            ),
            (Engine.subscribe, newcomer),
            (Engine.publish, Message("news", "tea other", Point(lon=0, lat=0))),
        ):
            told = pairs(verb(engine, given))
            assert pairs(verb(opened, given)) == told
    assert opened.stats()["delivered"] == engine.stats()["delivered"] > 8


def test_what_comes_due_after_a_rest_is_delivered(engine, tmp_path):
    later = ManualClock(1_000 * HOUR + 10 * HOUR)
    opened = Engine.open(engine.save(tmp_path / "engine"), clock=later)
    told = pairs(opened.expire())
    expected = {(who, "later", "+", "publish") for who in ("anna", "ben", "dora")}
    assert set(told) == expected | {(who, "kept", "-", "expire") for who in ("anna", "dora")}
    assert (opened.stats()["kept"], opened.stats()["coming"]) == (0, 0)


def test_a_snapshot_does_not_change(engine, clock, tmp_path):
    saved = engine.save(tmp_path / "engine")
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    opened = Engine.open(saved, clock=clock)
    opened.unsubscribe("anna")
    opened.publish(Message("kept", "other", Point(lon=0, lat=0), expires_at=clock.now() + HOUR))
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert "anna" in Engine.open(saved)
    with pytest.raises(IndexFileError, match="exists already"):
        opened.save(saved)


def test_the_type_of_ids_is_kept(tmp_path):
    engine = Engine(subscription_ids=int, space=Planar(0, 0, 9, 9))
    opened = Engine.open(engine.save(tmp_path / "empty"))
    assert len(opened) == 0
    with pytest.raises(ColumnError, match="integers"):
        opened.subscribe({"id": ["a"], "expression": ["tea"]})
    opened.subscribe([Subscription(7, "tea", Box(1, 1, 2, 2, Planar(0, 0, 9, 9)))])
    again = Engine.open(opened.save(tmp_path / "one"))
    assert list(again) == [7]
    assert again.coding.space == Planar(0, 0, 9, 9)


def test_a_directory_of_another_kind(engine, tmp_path):
    with pytest.raises(IndexFileError, match="'engine', not 'index'"):
        open_index(engine.save(tmp_path / "engine"))
    with pytest.raises(IndexFileError, match="no manifest"):
        Engine.open(tmp_path)
