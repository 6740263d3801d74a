"""A few contents of subscriptions and messages, on the globe and on a plane: lives of any length are made of them.

The naive matcher compares each pair once, so that a million operations are checked in minutes.
"""

import os
import random
from functools import cache

import naive
from nearcast import EVERYWHERE, Box, Circle, Message, Planar, Point, Polygon, Subscription
from nearcast.geometry import WGS84
from nearcast.predicates import ANYTHING, attribute, word

SEED = int(os.environ.get("NEARCAST_SEED", "20261115"))
CONTENTS = 100  # of each kind
AREAS = 0.1  # the share of messages that are areas: whom they reach is decided one by one, which takes time
SPACES = {"globe": WGS84, "plane": Planar(-10, -10, 10, 10)}


class Contents:
    """Expressions, regions, and what messages say and where; which message each pair of the first two wants."""

    def __init__(self, world):
        self.space = SPACES[world]
        draw = random.Random(SEED)
        region, place = {
            "globe": (region_on_globe, place_on_globe),
            "plane": (region_on_plane, place_on_plane),
        }[world]
        self.expressions = [expression(draw) for _ in range(CONTENTS)]
        self.regions = [region(draw) for _ in range(CONTENTS)]
        self.messages = [(words(draw), place(draw), values(draw)) for _ in range(CONTENTS)]
        unheard = Message(0, ["unheard"], Point(x=0, y=0, space=self.space), {"brand": "unheard"})
        self._messages = [*(Message(0, *message) for message in self.messages), unheard]
        self._wanted = {}

    def wanted(self, expression, region):
        """Return for each message whether it is wanted by who asks for this expression in this region (numbers).

        The last one says so of a message at (0, 0) with words and strings that nobody asks for.
        """
        if (expression, region) not in self._wanted:
            asked = Subscription(0, self.expressions[expression], self.regions[region])
            self._wanted[expression, region] = [naive.wants(asked, message) for message in self._messages]
        return self._wanted[expression, region]


contents = cache(Contents)


def expression(draw):
    """Up to three words, prices and brands, joined in one way or another."""
    price, brand, flood = attribute("price"), attribute("brand"), word("flood")
    leaves = word("tea"), word("milk"), word("storm"), price < 1.5, price != 1, brand == "a", brand != "b"
    one, two, three = draw.choices(leaves, k=3)
    return draw.choice([ANYTHING, one, one & flood, one | two, flood & ~one, (one | two) & three | two])


def words(draw):
    return [word for word in ("tea", "milk", "storm", "flood") if draw.random() < 0.5]


def values(draw):
    known = {"price": draw.choice([0.0, 1.0, 2.5]), "brand": draw.choice("abc")}
    return {name: value for name, value in known.items() if draw.random() < 0.8}


def region_on_globe(draw):
    """A region around the middle of the map, at the antimeridian, or at a pole."""
    x, y = draw.randint(-3, 2), draw.randint(-3, 2)
    pole = draw.choice([-1, 1])
    return draw.choice(
        [
            EVERYWHERE,
            Box(x, y, x + 2, y + 1),
            Box(177 + x, y, x - 177, y + 2),  # across the antimeridian
            Circle(lon=x, lat=y, radius=150_000),
            Circle(lon=179.5 + x / 10, lat=y, radius=150_000),
            Circle(
                lon=60 * x, lat=pole * 89.2, radius=draw.choice([50_000, 150_000])
            ),  # beside a pole, and over it
            Box(60 * x, *(88, 60 * x + 60, 90) if pole > 0 else (-90, 60 * x + 60, -88.5)),
            Polygon(f"POLYGON (({x} {y}, {x + 2} {y}, {x} {y + 3}, {x} {y}))"),
        ]
    )


def place_on_globe(draw):
    x, y = draw.randint(-6, 6) / 2, draw.randint(-6, 6) / 2
    if draw.random() < AREAS:
        return draw.choice([Circle(lon=x, lat=y, radius=100_000), Box(x, y, x + 1, y + 1)])
    pole = draw.choice([-1, 1]) * draw.choice([88.5, 89.5, 90])
    return draw.choice([Point(lon=x, lat=y), Point(lon=180, lat=y), Point(lon=25 * x, lat=pole)])


def region_on_plane(draw):
    x, y = draw.randint(-3, 2), draw.randint(-3, 2)
    plane, corners = SPACES["plane"], [[x, y], [x + 2, y], [x, y + 3], [x, y]]
    return draw.choice(
        [
            EVERYWHERE,
            Box(x, y, x + 2, y + 1, space=plane),
            Circle(x=x, y=y, radius=1.5, space=plane),
            Polygon({"type": "Polygon", "coordinates": [corners]}, space=plane),
        ]
    )


def place_on_plane(draw):
    x, y = draw.randint(-6, 6) / 2, draw.randint(-6, 6) / 2
    plane = SPACES["plane"]
    if draw.random() < AREAS:
        return draw.choice([Circle(x=x, y=y, radius=1, space=plane), Box(x, y, x + 1, y + 1, space=plane)])
    return Point(x=x, y=y, space=plane)
