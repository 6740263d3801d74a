"""Random lives of subscribers with safe regions: nobody misses a message, and nobody is told of one too many."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from nearcast import Box, Message, Polygon, Subscription
from stateful.engine_life import SECOND, hurry
from stateful.promises_life import WORLDS, PromisesLife, Walker

WALKERS = st.integers(1, 4)
MESSAGES = st.integers(1, 5)
SPOTS = st.tuples(st.integers(-8, 8), st.integers(-8, 8))
WORDS = st.sampled_from(["coffee", "coffee OR tea", "coffee AND NOT milk", "price < 2 OR tea"])
TEXTS = st.sampled_from(["coffee", "coffee tea", "coffee milk", "tea"])
RADII = st.sampled_from([0.0, 1.0, 3.0, 3.0, 5.0])  # in units of the world
LIVES = st.sampled_from([None, None, 0, 1, 2, 9, 9, 9]), st.sampled_from([None, None, None, 1, 2])
SHAPES = st.sampled_from(["point", "point", "point", "box", "circle", "polygon"])
FEW_WALKERS = st.lists(WALKERS, min_size=1, max_size=3, unique=True)


class PromisesMachine(PromisesLife, RuleBasedStateMachine):
    """What hypothesis draws, done by walkers and publishers."""

    def present(self, keys):
        return [key for key in keys if key in self.walkers]

    def place(self, shape, spot, size):
        """Return the place of a message."""
        here, there = self.map.point(*spot), self.map.point(spot[0] + size[0], spot[1] + size[1])
        if shape == "circle":
            return self.map.circle(here, size[0] * self.map.unit)
        if shape == "point" or here.x >= there.x or here.y >= there.y:
            return here
        if shape == "box":
            return Box(here.x, here.y, there.x, there.y, space=self.map.space)
        corners = [[here.x, here.y], [there.x, here.y], [there.x, there.y], [here.x, here.y]]
        return Polygon({"type": "Polygon", "coordinates": [corners]}, space=self.map.space)

    @initialize(spots=st.lists(SPOTS, min_size=2, max_size=4), radius=RADII, words=WORDS)
    def begin(self, spots, radius, words):
        """Somebody has a safe region from the beginning, in most lives."""
        for key, spot in enumerate(spots, 1):
            self.subscribe(key, words, radius, spot)
        self.promise(list(self.walkers), None)

    @rule(key=WALKERS, words=WORDS, radius=RADII, spot=SPOTS)
    def subscribe(self, key, words, radius, spot):
        if key in self.walkers:
            return
        walker = Walker(None, radius * self.map.unit, self.map.point(*spot))
        new = Subscription(key, words, self.map.circle(walker.place, walker.radius))
        walker.expression = new.expression
        self.pass_time()
        self.walkers[key], self.expected[key] = walker, []
        self.hear(self.engine.subscribe(new))

    @rule(key=WALKERS)
    def unsubscribe(self, key):
        if key in self.walkers:
            self.pass_time()
            told = self.engine.unsubscribe(key)
            leaving = self.walkers[key]
            self.hear(told, gone={key})
            gone = {d.message_id for d in told if d.reason == "unsubscribe"}
            if self.withdrawals and not leaving.asked:
                assert gone == leaving.held & self.valid().keys()
            assert gone <= leaving.held
            del self.walkers[key], self.expected[key]

    @rule(keys=FEW_WALKERS, way=st.tuples(st.integers(-3, 3), st.integers(-3, 3)), part=st.integers(1, 7))
    def walk(self, keys, way, part):
        self.expire()  # what is due comes before anybody moves
        for key in self.present(keys):
            here, scale = self.walkers[key].place, self.map.step / part
            y = here.y + way[1] * scale
            if self.map.space == WORLDS["plane"].space:
                there = type(here)(x=here.x + way[0] * scale, y=y, space=here.space)
            else:
                there = type(here)(lon=(here.x + way[0] * scale + 180) % 360 - 180, lat=min(max(y, -90), 90))
            super().walk(key, there)
        self.promise(keys, None)

    @rule(keys=FEW_WALKERS, spot=SPOTS)
    def jump(self, keys, spot):
        self.expire()
        for key in self.present(keys):
            super().walk(key, self.map.point(*spot))

    @rule(keys=FEW_WALKERS)
    def answer(self, keys):
        for key in self.present(keys):
            if self.walkers[key].asked:
                self.pass_time()
                self.report(key)
        self.promise(keys, None)

    @rule(keys=FEW_WALKERS)
    def report_together(self, keys):
        """Report in one call, twice each; the last place counts."""
        keys = [key for key in self.present(keys) if self.walkers[key].region is None]
        self.pass_time()
        here = [self.walkers[key].place for key in keys]
        told = self.engine.move(keys + keys, [self.map.point(0, 0)] * len(keys) + here)
        self.hear(told, changed=keys)
        for key in keys:
            self.walkers[key].safe, self.walkers[key].asked = None, False

    @rule(keys=FEW_WALKERS, at_most=st.sampled_from([None, None, 0.0, 2.0]))
    def promise(self, keys, at_most):
        keys = [key for key in self.present(keys) if self.walkers[key].region is None]
        # A circle is around where the engine knows somebody to be; only a report brings that up to date.
        self.ask_safe_region(keys, None if at_most is None else at_most * self.map.unit)

    @rule(key=WALKERS, words=WORDS, radius=RADII, boxed=st.sampled_from([False, False, True]))
    def update(self, key, words, radius, boxed):
        if key not in self.walkers:
            return
        walker = self.walkers[key]
        self.pass_time()
        walker.radius = radius * self.map.unit
        walker.expression = Subscription(0, words).expression
        walker.region = None
        if boxed and walker.place.x < 179 and walker.place.y < 89:
            corner = walker.place.x + self.map.step, walker.place.y + self.map.step
            walker.region = Box(walker.place.x, walker.place.y, *corner, space=self.map.space)
        if walker.asked and any(
            m is not None for m in self.engine._promises.waiting.of(self.row(key)).values()
        ):
            # A momentary message is decided by the new region: nobody can say whether that is right.
            self.expected[key] = None
        self.hear(self.engine.update(self.subscription(key)), changed=[key])
        if self.expected[key] is None:
            self.expected[key] = list(walker.momentary)
        walker.safe, walker.asked = None, False

    def row(self, key):
        return self.engine._ids.row(key)

    @rule(
        msgs=st.lists(
            st.tuples(
                MESSAGES, TEXTS, SHAPES, SPOTS, st.tuples(st.integers(0, 9), st.integers(1, 9)), *LIVES
            ),
            min_size=1,
            max_size=3,
        )
    )
    def publish(self, msgs):
        self.publish_all(
            [
                (key, text, self.place(shape, spot, size), lasts, starts)
                for key, text, shape, spot, size, lasts, starts in msgs
            ]
        )

    def publish_all(self, msgs):
        now, new = self.clock.now(), []
        for key, text, place, lasts, starts in msgs:
            start = None if starts is None else now + starts * SECOND
            end = None if lasts is None else (start or now) + lasts * SECOND
            if start is not None and end is not None and end <= start:
                end = start + SECOND
            self.order += 1
            name = key if end is not None else 100 + self.order  # a momentary message has its own id
            new.append(Message(name, text, place, {"price": 1}, published_at=start, expires_at=end))
        self.pass_time()
        for message in new:
            self.coming.pop(message.id, None)
            if message.published_at is not None and message.published_at > now:
                self.coming[message.id] = (message.published_at, self.order, message)
                self.order += 1
            else:
                self.published(message)
        self.momentary |= {message.id for message in new if message.expires_at is None}
        self.hear(self.engine.publish(new))

    @rule(
        key=WALKERS,
        message=MESSAGES,
        share=st.sampled_from([0.0, 0.3, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0]),
        eighth=st.integers(0, 7),
        lasts=st.sampled_from([None, 2, 9, 9]),
    )
    def publish_near(self, key, message, share, eighth, lasts):
        """Publish a message near the rim of what somebody reaches from the middle of its safe region."""
        if key not in self.walkers:
            return
        walker = self.walkers[key]
        middle = walker.place if walker.safe is None else walker.safe
        place = self.map.away(middle, share * walker.radius, eighth * math.pi / 4)
        self.publish_all([(message, "coffee tea", place, lasts, None)])

    @rule(key=MESSAGES)
    def publish_again(self, key):
        if key in self.valid():
            self.pass_time()
            message = self.kept.get(key)
            if message is not None:
                self.coming.pop(key, None)
                self.hear(
                    self.engine.publish(
                        Message(
                            key,
                            message.keywords,
                            message.place,
                            message.attributes,
                            expires_at=message.expires_at,
                        )
                    )
                )

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds):
        self.clock.advance(seconds=seconds)
        self.expire()

    @rule(seconds=st.integers(1, 3))
    def time_flies(self, seconds):
        """Let time pass without a call: the next one notices."""
        self.clock.advance(seconds=seconds)

    def expire(self):
        self.pass_time()
        self.hear(self.engine.expire())
        if self.withdrawals:
            assert all(walker.held <= self.valid().keys() for walker in self.walkers.values())

    @rule()
    def rest(self):
        self.save_and_open()

    @rule()
    def compact(self):
        self.engine.compact()

    @invariant()
    def sound(self):
        self.check()


def run(monkeypatch, examples=3, **pieces):
    hurry(monkeypatch)
    machine = type("Machine", (PromisesMachine,), pieces)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=max(settings().max_examples // examples, 2))
    )


@pytest.mark.parametrize("world", WORLDS)
def test_machine(monkeypatch, world):
    run(monkeypatch, world=world)


def test_without_withdrawals(monkeypatch):
    run(monkeypatch, withdrawals=False)
