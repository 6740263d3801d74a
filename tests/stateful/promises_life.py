"""Subscribers who walk and report only when they must, beside a model that knows where everybody is.

The model says what somebody would hold who reports every step. Whoever has not been asked to report must hold the same.
"""

import math
import tempfile
from pathlib import Path

import naive
from nearcast import Circle, Engine, ManualClock, Planar, Point, Subscription
from nearcast.geometry import WGS84, great_circle
from stateful.engine_life import START, content

PLANE = Planar(-1000, -1000, 1000, 1000)


class World:
    """Places on a small grid around a position; *unit* is the distance between neighbours."""

    def __init__(self, space, x, y, step, unit):
        self.space, self.x, self.y, self.step, self.unit = space, x, y, step, unit

    def point(self, i, j):
        x, y = self.x + i * self.step, self.y + j * self.step
        if self.space == WGS84:
            x, y = (x + 180) % 360 - 180, min(max(y, -90.0), 90.0)
        return Point(x=x, y=y, space=self.space)

    def distance(self, a, b):
        if self.space == WGS84:
            return great_circle(a.x, a.y, b.x, b.y)
        return math.sqrt((a.x - b.x) ** 2 + (a.y - b.y) ** 2)

    def angle(self, a, b):
        """Return the direction from *a* to *b*, as :meth:`away` takes it."""
        if self.space != WGS84:
            return math.atan2(b.y - a.y, b.x - a.x)
        turn, phi, other = math.radians(b.x - a.x), math.radians(a.y), math.radians(b.y)
        north = math.cos(phi) * math.sin(other) - math.sin(phi) * math.cos(other) * math.cos(turn)
        return math.atan2(math.sin(turn) * math.cos(other), north)

    def circle(self, centre, radius):
        return Circle(x=centre.x, y=centre.y, radius=radius, space=self.space)

    def away(self, centre, distance, angle):
        """Return the point at a distance from *centre*, in the direction of *angle*."""
        if self.space != WGS84:
            x, y = centre.x + distance * math.cos(angle), centre.y + distance * math.sin(angle)
            return Point(x=x, y=y, space=self.space)
        way, phi = distance / 6_371_008.8, math.radians(centre.y)
        sine = math.sin(phi) * math.cos(way) + math.cos(phi) * math.sin(way) * math.cos(angle)
        lat = math.asin(min(max(sine, -1.0), 1.0))
        turn = math.atan2(
            math.sin(angle) * math.sin(way) * math.cos(phi), math.cos(way) - math.sin(phi) * math.sin(lat)
        )
        return Point(lon=(centre.x + math.degrees(turn) + 180) % 360 - 180, lat=math.degrees(lat))


WORLDS = {
    "plane": World(PLANE, 0.1, 1 / 3, 0.5, 0.5),
    "equator": World(WGS84, 0.0, 0.0, 0.01, 1_111.95),
    "antimeridian": World(WGS84, 179.98, -40.0, 0.01, 1_111.95),
    "pole": World(WGS84, 100.0, 89.97, 0.01, 1_111.95),
}


class Walker:
    """A subscriber: what it wants, where it is, its safe region, whether it was asked to report, and what it holds."""

    def __init__(self, expression, radius, place):
        self.expression, self.radius, self.place = expression, radius, place
        self.region = None  # one that is not a circle around its place
        self.safe, self.asked = None, False
        self.held, self.momentary = set(), []  # ids of kept messages; ids of momentary ones, as they come


class PromisesLife:
    """An engine, walkers by id, kept messages by id and those to come."""

    world, withdrawals = "plane", True

    def __init__(self):
        super().__init__()
        self.map = WORLDS[self.world]
        self.clock = ManualClock(START)
        self.engine = Engine(space=self.map.space, clock=self.clock, withdrawals=self.withdrawals)
        self.walkers, self.kept, self.coming, self.order = {}, {}, {}, 0
        self.numbers, self.news, self.asked = (
            {},
            0,
            0,
        )  # by message: its number; how many there were; and reports
        self.momentary = set()  # the ids of all momentary messages
        self.expected = {}  # by walker: the momentary messages that it should receive
        self.stale = (
            set()
        )  # pairs of a walker and a message that was replaced: without withdrawals nobody says so

    # --- The model -------------------------------------------------------------------------------------------------

    def subscription(self, key, place=None):
        walker = self.walkers[key]
        region = walker.region or self.map.circle(place or walker.place, walker.radius)
        return Subscription(key, walker.expression, region)

    def wanting(self, message):
        return {key for key in self.walkers if naive.wants(self.subscription(key), message)}

    def valid(self):
        now = self.clock.now()
        return {key: message for key, message in self.kept.items() if message.expires_at > now}

    def published(self, message):
        """Note a message whose time has come."""
        now = self.clock.now()
        old = self.valid().get(message.id)
        if old is not None and content(old) == content(message):
            return
        self.kept.pop(message.id, None)
        self.news += 1
        self.numbers[message.id] = self.news
        if old is not None:
            self.stale |= {(key, message.id) for key in self.walkers}
        elif not self.withdrawals:  # everybody knows when a message expires
            for walker in self.walkers.values():
                walker.held.discard(message.id)
        if message.expires_at is None:
            self.momentary.add(message.id)
            for key in self.wanting(message):
                self.expected[key].append(message.id)
        elif message.expires_at > now:
            self.kept[message.id] = message

    def pass_time(self):
        now = self.clock.now()
        for key, (time, _, message) in sorted(self.coming.items(), key=lambda pair: pair[1][:2]):
            if time <= now:
                del self.coming[key]
                self.published(message)

    def hear(self, deliveries, gone=(), changed=()):
        """Let walkers hear what they are told; *changed* are those whom the call changes, in its order."""
        order = [
            (changed.index(d.subscription_id), self.numbers[d.message_id])
            for d in deliveries
            if d.reason in ("move", "update")
        ]
        assert order == sorted(order)
        assert not {*deliveries.to_report} & {*gone, *changed}
        for d in deliveries:
            if d.subscription_id in gone and d.reason == "unsubscribe":
                continue
            walker = self.walkers[d.subscription_id]
            if d.message_id in self.momentary:
                assert d.change == "+"
                walker.momentary.append(d.message_id)
            elif d.change == "+":
                if self.withdrawals:
                    assert d.message_id not in walker.held, d
                walker.held.add(d.message_id)
            else:
                if self.withdrawals:
                    assert d.message_id in walker.held, d
                walker.held.discard(d.message_id)
        for key in deliveries.to_report:
            walker = self.walkers[key]
            assert walker.safe is not None
            assert not walker.asked
            walker.asked = True
            self.asked += 1

    # --- What walkers do -------------------------------------------------------------------------------------------

    def report(self, key):
        """Tell the engine where somebody is."""
        walker = self.walkers[key]
        self.hear(self.engine.move(key, walker.region or walker.place), changed=[key])
        walker.safe, walker.asked = None, False

    def walk(self, key, place):
        """Go somewhere else, and report if that is outside of the safe region."""
        walker = self.walkers[key]
        if walker.asked:
            return  # it stands still until it has answered: a momentary message is decided by where it was
        walker.place = place
        inside = walker.safe is not None and self.map.distance(walker.safe, place) <= walker.safe.radius
        if not inside and walker.region is None:
            self.report(key)

    def ask_safe_region(self, keys, at_most=None):
        for key, circle in self.engine.safe_region(keys, at_most=at_most):
            walker = self.walkers[key]
            if walker.asked:
                assert circle.radius == 0
                continue
            if circle.radius > 0:
                if walker.safe is not None:
                    assert circle.radius >= walker.safe.radius
                walker.safe = circle
                self.check_promise(key, circle)
            else:
                assert walker.safe is None

    def check_promise(self, key, circle):
        """The same messages are in reach from everywhere in the safe region."""
        centre = Point(x=circle.x, y=circle.y, space=circle.space)
        messages = self.valid().values()
        here = [message.id for message in messages if naive.wants(self.subscription(key, centre), message)]
        angles = [eighth * math.pi / 4 + 0.1 for eighth in range(8)]
        for message in messages:
            if isinstance(message.place, Point | Circle):  # straight towards it, and straight away from it
                towards = self.map.angle(centre, message.place)
                angles += [towards, towards + math.pi]
        for share in (1.0, 1 - 1e-9, 0.7):
            for angle in angles:
                place = self.map.away(centre, circle.radius * share, angle)
                if self.map.distance(centre, place) <= circle.radius:
                    there = self.subscription(key, place)
                    assert [message.id for message in messages if naive.wants(there, message)] == here

    # --- Checks ----------------------------------------------------------------------------------------------------

    def check(self):
        valid = self.valid()
        for key, walker in self.walkers.items():
            if walker.asked:
                continue
            wanted = {
                message.id for message in valid.values() if naive.wants(self.subscription(key), message)
            }
            held = walker.held & valid.keys()
            if self.withdrawals:
                assert held == wanted
            else:
                assert wanted <= held
                assert all((key, message) in self.stale for message in held - wanted)
            assert sorted(walker.momentary) == sorted(self.expected[key])
        figures = self.engine.stats()
        assert figures["promises"] == sum(walker.safe is not None for walker in self.walkers.values())
        if not any(walker.asked for walker in self.walkers.values()):
            assert figures["waiting"] == 0

    def save_and_open(self):
        with tempfile.TemporaryDirectory() as folder:
            self.engine.save(Path(folder) / "engine")
            self.engine = Engine.open(Path(folder) / "engine", clock=self.clock, verify=True)
