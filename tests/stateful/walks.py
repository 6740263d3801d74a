"""A long life of walkers with safe regions: what the promises machine does, drawn by numpy, with more of everyone."""

from stateful.test_promises_machine import PromisesMachine

WALKERS, MESSAGES = 25, 30
TEXTS = "coffee", "coffee tea", "coffee milk", "tea"
WORDS = "coffee", "coffee OR tea", "coffee AND NOT milk", "price < 2 OR tea"
RADII = 0.0, 1.0, 3.0, 3.0, 5.0
SHAPES = "point", "point", "point", "box", "circle", "polygon"


class Draw:
    """Draws what a verb takes."""

    def __init__(self, rng):
        self.rng = rng

    def one(self, values):
        return values[self.rng.integers(len(values))]

    def number(self, least, most):
        return int(self.rng.integers(least, most + 1))

    def pair(self, least, most):
        return self.number(least, most), self.number(least, most)

    def walker(self):
        return self.number(1, WALKERS)

    def walkers(self):
        return (1 + self.rng.permutation(WALKERS)[: self.number(1, 6)]).tolist()

    def wish(self):
        return self.walker(), self.one(WORDS), self.one(RADII)

    def message(self):
        """Return a message's id, text, shape, spot and size, how long it lasts, and from when."""
        lasts, starts = self.one((None, None, 0, 2, 9, 30, 30, 30)), self.one((None, None, None, 1, 2))
        said = self.number(1, MESSAGES), self.one(TEXTS), self.one(SHAPES)
        return *said, self.pair(-8, 8), (self.number(0, 9), self.number(1, 9)), lasts, starts

    def near(self):
        """Return whom a message is near, its id, how far away it is, in which direction, and how long it lasts."""
        share, lasts = self.one((0.0, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0)), self.one((None, 2, 9, 30))
        return self.walker(), self.number(1, MESSAGES), share, self.number(0, 7), lasts


# How often each verb comes, and what it takes.
VERBS = {
    "subscribe": (10, lambda draw: (*draw.wish(), draw.pair(-8, 8))),
    "unsubscribe": (3, lambda draw: (draw.walker(),)),
    "walk": (30, lambda draw: (draw.walkers(), draw.pair(-3, 3), draw.number(1, 7))),
    "jump": (5, lambda draw: (draw.walkers(), draw.pair(-8, 8))),
    "answer": (10, lambda draw: (draw.walkers(),)),
    "report_together": (5, lambda draw: (draw.walkers(),)),
    "promise": (5, lambda draw: (draw.walkers(), draw.one((None, 0.0, 2.0)))),
    "update": (5, lambda draw: (*draw.wish(), draw.one((False, False, True)))),
    "publish": (10, lambda draw: ([draw.message() for _ in range(draw.number(1, 3))],)),
    "publish_near": (10, lambda draw: draw.near()),
    "publish_again": (2, lambda draw: (draw.number(1, MESSAGES),)),
    "time_flies": (4, lambda draw: (draw.number(1, 3),)),
    "time_passes": (1, lambda draw: (draw.number(1, 3),)),
}


class Walks(PromisesMachine):
    """Does what is drawn, one verb at a time."""

    def __init__(self, rng):
        super().__init__()
        self._draw = Draw(rng)
        self._verbs = [verb for verb, (share, _) in VERBS.items() for _ in range(share)]

    def step(self):
        """Do something; return what, and how many took part."""
        verb = self._draw.one(self._verbs)
        first, *more = VERBS[verb][1](self._draw)
        getattr(self, verb)(first, *more)
        return verb, len(first) if isinstance(first, list) else 1

    def check_promise(self, key, circle):
        """Check one of many, since each takes long."""
        if self._draw.number(1, 20) == 1:
            super().check_promise(key, circle)
