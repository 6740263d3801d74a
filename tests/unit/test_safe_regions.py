"""Safe regions: their radii, what breaks a promise, what is decided by the report, and what is refused."""

import numpy as np
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
    config,
)
from nearcast.errors import GeometryError, UnknownError

PLANE = Planar(-1000, -1000, 1000, 1000)
SOON = "2026-11-18T09:00:00Z"


def at(x, y=0.0):
    return Point(x=x, y=y, space=PLANE)


def around(x, radius=10.0):
    return Circle(x=x, y=0, radius=radius, space=PLANE)


def kept(key, x, text="coffee", ends=SOON):
    place = at(x) if isinstance(x, int | float) else x
    return Message(key, text, place, expires_at=ends)


def told(deliveries):
    return [(d.subscription_id, d.change, d.message_id, d.reason) for d in deliveries]


@pytest.fixture
def clock():
    return ManualClock("2026-11-18T08:00:00Z")


@pytest.fixture
def engine(clock):
    """Anna's circle is at 0 and has the radius 10; she holds m1, 4 away, and not m2, 18 away."""
    engine = Engine(space=PLANE, clock=clock)
    engine.subscribe(Subscription("anna", "coffee", around(0)))
    engine.subscribe(Subscription("ben", "coffee", Box(0, 0, 1, 1, PLANE)))
    engine.publish([kept("m1", 4), kept("m2", 18), kept("m3", 11, "tea")])
    return engine


def test_the_nearest_outside_and_the_farthest_inside(engine):
    region = engine.safe_region("anna")
    assert (region.x, region.y, region.space) == (0, 0, PLANE)
    assert region.radius == pytest.approx(6)
    engine.publish(kept("m4", 12))  # it is in the ring: anna must report
    engine.move("anna", at(0))
    assert engine.safe_region("anna").radius == pytest.approx(2)
    assert engine.safe_region("anna").radius < 2


def test_nothing_near(engine, clock):
    clock.advance(seconds=3600)
    assert engine.safe_region("anna").radius == pytest.approx((config.SAFE_REACHES[-1] - 1) * 10)
    engine.move("anna", at(0))
    assert engine.safe_region("anna", at_most=3.5).radius == pytest.approx(3.5)


def test_a_message_on_the_rim(engine):
    engine.publish(kept("m4", 10))
    assert engine.safe_region("anna").radius == 0
    assert engine.stats()["promises"] == 0


def test_several_and_tables(engine):
    engine.subscribe([Subscription(f"s{x}", "coffee", around(x)) for x in range(40, 60)])
    regions = engine.safe_region(["s45", "anna", "s45"])
    assert [key for key, _ in regions] == ["s45", "anna", "s45"]
    assert regions.to_arrow().column_names == ["subscription_id", "lon", "lat", "radius_m"]
    np.testing.assert_allclose(regions.to_arrow()["radius_m"], [17, 6, 17])
    np.testing.assert_allclose(regions.circles[:, 0], [45, 0, 45])
    assert engine.stats()["promises"] == 2
    assert repr(regions) == "<SafeRegions: 3>"
    assert len(engine.safe_region([])) == 0


def test_in_reach_from_everywhere_or_from_nowhere(engine):
    assert engine.safe_region("anna").radius == pytest.approx(6)
    deliveries = engine.publish([kept("in", 3), kept("out", 17), Message("now", "coffee", at(-3))])
    assert told(deliveries) == [("anna", "+", "in", "publish"), ("anna", "+", "now", "publish")]
    assert deliveries.to_report == []
    assert told(engine.move("anna", at(-5))) == []


@pytest.mark.parametrize(("place", "found"), [(3, True), (-3, False)])
@pytest.mark.parametrize("ends", [SOON, None])
@pytest.mark.parametrize("verb", ["move", "update"])
def test_the_position_decides(engine, place, found, ends, verb):
    engine.safe_region("anna")
    deliveries = engine.publish(kept("m", 11, ends=ends))
    assert told(deliveries) == []
    assert deliveries.to_report == ["anna"]
    assert repr(deliveries) == "<Deliveries: 0, 1 to report>"
    assert engine.publish(kept("n", 11.5, ends=ends)).to_report == []  # once
    assert engine.safe_region("anna").radius == 0
    assert engine.stats()["waiting"] == 2
    if verb == "move":
        deliveries = engine.move("anna", at(place))
    else:
        deliveries = engine.update(Subscription("anna", "coffee", around(place)))
    assert told(deliveries) == ([("anna", "+", "m", verb), ("anna", "+", "n", verb)] if found else [])
    assert engine.stats()["waiting"] == engine.stats()["promises"] == 0
    assert told(engine.move("anna", at(place))) == []


def test_what_was_in_reach_and_waited_is_not_taken_back(engine):
    engine.safe_region("anna")
    assert engine.publish(kept("m", 9)).to_report == ["anna"]
    assert told(engine.move("anna", at(-3))) == []


def test_a_replacement_waits(clock):
    engine = Engine(space=PLANE, clock=clock, withdrawals=True)
    engine.subscribe(Subscription("anna", "coffee", around(0)))
    engine.publish(kept("m", 4))
    engine.safe_region("anna")
    deliveries = engine.publish(kept("m", 12))  # the earlier one counts no longer, wherever anna is
    assert told(deliveries) == [("anna", "-", "m", "replace")]
    assert deliveries.to_report == ["anna"]
    assert told(engine.publish(kept("m", 13))) == []  # nothing to take back
    assert told(engine.move("anna", at(5))) == [("anna", "+", "m", "move")]


def test_what_waited_and_was_replaced(engine):
    engine.safe_region("anna")
    engine.publish(kept("m", 11))
    assert told(engine.publish(kept("m", 2))) == [("anna", "+", "m", "publish")]
    assert engine.stats()["waiting"] == 0
    assert told(engine.move("anna", at(1))) == []
    engine.safe_region("anna")
    engine.publish(Message("now", "coffee", at(11)))
    engine.publish(Message("now", "coffee", at(500)))
    assert told(engine.move("anna", at(3))) == []


def test_what_waited_and_expired(clock):
    engine = Engine(space=PLANE, clock=clock, withdrawals=True)
    engine.subscribe(Subscription("anna", "coffee", around(0)))
    engine.safe_region("anna", at_most=5)
    engine.publish(kept("m", 9, ends=clock.now() + 1_000_000))
    clock.advance(seconds=1)
    assert told(engine.expire()) == []
    assert told(engine.move("anna", at(2))) == []


def test_what_expired_is_told_after_a_safe_region(clock):
    engine = Engine(space=PLANE, clock=clock, withdrawals=True)
    engine.subscribe(Subscription("anna", "coffee", around(0)))
    engine.publish(kept("m", 9, ends=clock.now() + 1_000_000))
    clock.advance(seconds=1)
    assert engine.safe_region("anna").radius == pytest.approx(70)
    assert told(engine.expire()) == [("anna", "-", "m", "expire")]


def test_leaving_while_a_message_waits(clock):
    engine = Engine(space=PLANE, clock=clock, withdrawals=True)
    engine.subscribe(Subscription("anna", "coffee", around(0)))
    engine.publish(kept("m1", 4))
    engine.safe_region("anna")
    engine.publish(kept("m2", 9))
    assert told(engine.unsubscribe("anna")) == [("anna", "-", "m1", "unsubscribe")]
    assert engine.stats()["promises"] == engine.stats()["waiting"] == 0


def test_held_back_messages_break_promises_when_they_are_due(engine, clock):
    engine.publish(Message("later", "coffee", at(11), published_at=clock.now() + 5_000_000))
    engine.safe_region("anna")
    clock.advance(seconds=5)
    deliveries = engine.move("ben", Box(0, 0, 2, 2, PLANE))
    assert deliveries.to_report == ["anna"]
    assert told(engine.move("anna", at(2))) == [("anna", "+", "later", "move")]


@pytest.mark.parametrize("verb", ["move", "update", "unsubscribe"])
def test_nobody_is_asked_for_the_report_of_the_same_call(engine, clock, verb):
    engine.publish(Message("later", "coffee", at(11), published_at=clock.now() + 5_000_000))
    engine.subscribe(Subscription("carl", "coffee", around(0)))
    engine.safe_region(["anna", "carl"])
    clock.advance(seconds=5)
    given = {"move": ("anna", at(2)), "update": (Subscription("anna", "coffee", around(2)),)}
    deliveries = getattr(engine, verb)(*given.get(verb, ("anna",)))
    assert deliveries.to_report == ["carl"]
    assert told(deliveries) == ([] if verb == "unsubscribe" else [("anna", "+", "later", verb)])


def test_the_promise_is_renewed_but_never_smaller(engine, clock):
    engine.publish(kept("short", 12, ends=clock.now() + 1_000_000))
    assert engine.safe_region("anna").radius == pytest.approx(2)
    clock.advance(seconds=1)
    assert engine.safe_region("anna").radius == pytest.approx(6)
    assert engine.safe_region("anna", at_most=1).radius == pytest.approx(6)
    assert engine.stats()["promises"] == 1


@pytest.mark.parametrize(
    ("place", "radius"),
    [
        (Box(15, -1, 16, 1, PLANE), 5),
        (Box(-1, -1, 1, 1, PLANE), 10),
        (Circle(x=20, y=0, radius=3, space=PLANE), 7),
        (Circle(x=4, y=0, radius=3, space=PLANE), 9),
        (Polygon("POLYGON ((12 0, 20 -9, 20 9, 12 0))", PLANE), 2),
    ],
)
def test_areas(clock, place, radius):
    engine = Engine(space=PLANE, clock=clock)
    engine.subscribe(Subscription("anna", "coffee", around(0)))
    engine.publish(kept("m", place))
    assert engine.safe_region("anna").radius == pytest.approx(radius)


def test_an_area_waits(engine):
    for place in (Box(11, -1, 12, 1, PLANE), Polygon("POLYGON ((11 0, 20 -9, 20 9, 11 0))", PLANE)):
        engine.safe_region("anna")
        assert engine.publish(Message("now", "coffee", place)).to_report == ["anna"]
        assert told(engine.move("anna", at(2))) == [("anna", "+", "now", "move")]
        engine.move("anna", at(0))


def test_polygons_on_the_globe_are_safe_by_metres(clock):
    engine = Engine(clock=clock)
    engine.subscribe(Subscription("anna", "coffee", Circle(lon=10, lat=50, radius=1_000)))
    corner = Polygon("POLYGON ((10.05 49.9, 10.3 49.9, 10.3 50.1, 10.05 50.1, 10.05 49.9))")
    box = Box(10.05, 49.9, 10.3, 50.1)
    engine.publish(kept("m", box))
    by_box = engine.safe_region("anna").radius
    engine.publish(kept("m", corner))
    engine.move("anna", Point(lon=10, lat=50))
    assert 0 < by_box - engine.safe_region("anna").radius < 2 * config.OUTLINE_DOUBT_M


@pytest.mark.parametrize("lon", [0.0, 179.99, -180.0])
def test_on_the_globe(clock, lon):
    engine = Engine(clock=clock)
    engine.subscribe(Subscription("anna", "coffee", Circle(lon=lon, lat=50, radius=1_000)))
    engine.publish(kept("m", Point(lon=(lon + 0.1 + 180) % 360 - 180, lat=50)))
    assert engine.safe_region("anna").radius == pytest.approx(6147, abs=1)
    assert engine.publish(Message("n", "coffee", Point(lon=lon, lat=50.05))).to_report == ["anna"]


def test_a_huge_circle_gets_no_promise(clock):
    engine = Engine(clock=clock)
    engine.subscribe(Subscription("anna", "coffee", Circle(lon=0, lat=0, radius=6_000_000)))
    engine.subscribe(Subscription("dot", "coffee", Circle(lon=0, lat=0, radius=0)))
    assert [circle.radius for _, circle in engine.safe_region(["anna", "dot"])] == [0, 0]
    assert engine.stats()["promises"] == 0


@pytest.mark.parametrize("ends", [SOON, None])
@pytest.mark.parametrize("verb", ["move", "update"])
def test_the_order_is_that_of_the_call_and_then_of_publication(engine, ends, verb):
    engine.subscribe([Subscription(key, "coffee", around(0)) for key in ("carl", "dora")])
    engine.safe_region(["carl", "anna"], at_most=6)
    engine.publish([kept("w1", 11, ends=ends), kept("n1", 19), kept("w2", 12, ends=ends), kept("n2", 20)])
    engine.compact()
    keys = ["dora", "carl", "anna"]
    if verb == "update":
        deliveries = engine.update([Subscription(key, "coffee", around(12)) for key in keys])
    else:
        deliveries = engine.move(keys, [at(12)] * 3)
    messages = {key: ["m2", "w1", "n1", "w2", "n2"] for key in keys}
    if ends is None:
        messages["dora"] = ["m2", "n1", "n2"]  # momentary ones are told to those who promised to report
    expected = [(key, "+", name, verb) for key in keys for name in messages[key]]
    assert [row for row in told(deliveries) if row[1] == "+"] == expected


def test_codes_change(engine):
    engine.subscribe(Subscription("carl", "gone AND soon", around(0)))
    engine.unsubscribe("carl")
    engine.safe_region("anna")
    engine.publish([kept("m", 11), Message("now", "coffee", at(12))])
    engine.compact()
    assert engine.stats()["promises"] == 1
    assert told(engine.move("anna", at(3))) == [("anna", "+", "m", "move"), ("anna", "+", "now", "move")]


def test_promises_outlast_the_process(engine, clock, tmp_path):
    engine.subscribe([Subscription(name, "coffee", around(0)) for name in ("carl", "dora")])
    engine.safe_region(["anna", "carl"])
    places = [at(12), Box(11, 0, 12, 1, PLANE), Circle(x=13, y=0, radius=1, space=PLANE)]
    places.append(Polygon("POLYGON ((11 0, 12 0, 12 1, 11 1, 11 0))", PLANE))
    messages = [Message(f"now{i}", "coffee", place) for i, place in enumerate(places)]
    assert set(engine.publish([kept("m", 11), *messages]).to_report) == {"anna", "carl"}
    opened = Engine.open(engine.save(tmp_path / "engine"), clock=clock)
    assert opened.stats()["promises"] == 2
    assert opened.publish(kept("n", 12)).to_report == []
    expected = [("anna", "+", name, "move") for name in ("m", "now0", "now1", "now2", "now3", "n")]
    assert told(opened.move("anna", at(5))) == expected
    assert told(engine.move("carl", at(-5))) == []
    assert opened.safe_region("carl").radius == 0
    assert opened.safe_region("dora").radius > 0


def test_expired_messages_do_not_pile_up(engine, clock):
    engine.safe_region("anna")
    engine.publish([kept(f"long{number}", 11) for number in range(5)])
    for number in range(100):
        engine.publish(kept(f"x{number}", 11, ends=clock.now() + 1_000_000))
        clock.advance(seconds=1)
    assert engine.stats()["waiting"] <= 11


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda e: e.safe_region("ben"),
            GeometryError,
            "safe_region takes circles; the region of subscription 'ben' is a Box",
        ),
        (lambda e: e.safe_region(["anna", "ben"]), GeometryError, "subscription 'ben' is a Box"),
        (lambda e: e.safe_region("triangle"), GeometryError, "subscription 'triangle' is a Polygon"),
        (lambda e: e.safe_region("all"), GeometryError, "subscription 'all' is everywhere"),
        (lambda e: e.safe_region("zoe"), UnknownError, "no subscription 'zoe'"),
        (lambda e: e.safe_region("anna", at_most=-1), GeometryError, "at_most is -1"),
        (lambda e: e.safe_region("anna", at_most="far"), GeometryError, "at_most 'far' is not a number"),
    ],
)
def test_mistakes(engine, call, error, words):
    triangle = Polygon("POLYGON ((0 0, 4 0, 0 3, 0 0))", PLANE)
    engine.subscribe(
        [Subscription("triangle", "coffee", triangle), Subscription("all", "coffee", EVERYWHERE)]
    )
    with pytest.raises(error, match=words):
        call(engine)
    assert engine.stats()["promises"] == 0
