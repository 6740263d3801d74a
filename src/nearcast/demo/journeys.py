"""The moving subscribers of the demonstration: a hundred invented people, what they ask for, and the way they take.

Everyone starts at home, visits places nearby, and is back at home at night. A way follows the streets of a tilted grid,
in straight legs. A leg takes whole minutes, so that nobody is faster than stated, and everyone is at a corner or on a
straight line whenever the engine looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast import config

__all__ = ["DAY", "Subscriber", "invent", "metres", "positions", "table"]

DAY = 24 * 60  # minutes

_CENTRE = (-73.96, 40.74)  # of the city: lon, lat
_CITY = 9_000.0  # metres around it: where people live and go
_APART = 800.0  # metres between two places; a crowded quarter is named many times over
_TILT = math.radians(29)  # the avenues of Manhattan point this far east of north
_STREETS = np.array([[math.cos(_TILT), -math.sin(_TILT)], [math.sin(_TILT), math.cos(_TILT)]])  # and avenues
# Metres in a degree of longitude, and in one of latitude.
_DEGREE = np.array([math.cos(math.radians(_CENTRE[1])), 1.0]) * 111_195
_DOORSTEP = 250.0  # metres: a stop is at most this far east or north of the place that it is named after


@dataclass(frozen=True, slots=True)
class Mode:
    """How somebody gets around; ranges are the least and the most."""

    name: str
    share: int  # of a hundred subscribers
    speed: float  # km/h
    range: float  # metres from home to the places that they visit
    radius: tuple[int, int]  # metres, of the circle around them
    stop: tuple[int, int]  # minutes


_MODES = (
    Mode("walks", 45, 5, 2_500, (500, 1_000), (10, 75)),
    Mode("cycles", 30, 15, 6_000, (700, 1_400), (10, 60)),
    Mode("drives", 25, 30, 14_000, (1_000, 2_000), (15, 90)),
)

# Each line is asked for by several people.
_WANTED = (
    'coffee OR espresso OR "cold brew"',
    'category = "food" AND price < 12',
    'category = "food" AND rating >= 4.5',
    "(pizza OR tacos OR dumplings) NOT queue",
    '(vegan OR vegetarian OR halal) AND category = "food"',
    '"happy hour" OR "late night discount" OR "two for one"',
    "ramen OR sushi OR curry",
    "bagels OR pancakes OR brunch",
    'jazz OR gospel OR "brass band"',
    'category = "events" AND price < 25',
    "(basketball OR soccer OR tennis) NOT finals",
    '"indie rock" OR "hip hop" OR salsa',
    "(lost OR missing) AND (cat OR dog OR tabby OR terrier)",
    "lost OR found OR missing",
    '"farmers market" OR greenmarket OR "street fair"',
    '("used books" OR "vinyl records" OR ceramics) AND price < 30',
    "honey OR sourdough OR strawberries",
    'category = "traffic" AND (blocked OR closed)',
    'category = "traffic" NOT open',
    'accident OR collision OR "stalled bus"',
    "(train OR bus OR ferry) AND (delayed OR late OR cancelled)",
    'category = "transit" NOT good',
    "(flood OR thunderstorm OR hail) AND (warning OR advisory)",
    'category = "weather"',
    '(studio OR loft OR "one bedroom") AND price < 3000',
    'category = "rentals" AND (balcony OR rooftop OR backyard)',
)

_NAMES = """
    Ada Alma Amir Anouk Arlo Astrid Basil Bea Bianca Bo Boris Bruno Cara Carmen Cato Chloe Cleo Cosmo Cyrus Dalia Daria
    Demi Dora Edgar Eli Elif Elsa Enzo Esme Ezra Farah Felix Fern Finn Flora Freya Gaia Gus Hana Hugo Ida Igor Ines Iris
    Ivo Jade Jonas Jude Juno Kai Kira Koji Lars Leda Leon Lila Linus Lola Lotte Luca Mabel Mara Max Mina Mira Moritz
    Nadia Nell Nico Nils Noor Nora Odin Olga Omar Orla Oscar Otis Pablo Pia Quinn Rafa Remy Rhea Rosa Rufus Sami
    Saskia Selma Silas Sven Tara Theo Tilda Uma Vera Viktor Wanda Yara Zeno
"""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Somebody who moves. The way has a row for each corner and stop: the minute of the day, longitude, latitude."""

    id: str
    expression: str
    mode: Mode
    radius: int
    way: NDArray[np.float64]


def invent(places: pa.Table, seed: int = config.DEMO_SEED) -> list[Subscriber]:
    """Return the subscribers; the same places and seed give the same ones."""
    random = Random(seed)
    towns = _towns(places)
    modes = [mode for mode in _MODES for _ in range(mode.share)]
    random.shuffle(modes)
    return [
        Subscriber(
            name,
            _WANTED[number % len(_WANTED)],
            mode,
            10 * random.randint(mode.radius[0] // 10, mode.radius[1] // 10),
            _way(random, mode, towns),
        )
        for number, (name, mode) in enumerate(zip(_NAMES.split(), modes, strict=True))
    ]


def positions(subscribers: list[Subscriber]) -> NDArray[np.float64]:
    """Return where everyone is, by minute, subscriber, and longitude or latitude."""
    minutes = np.arange(DAY + 1)
    ways = [subscriber.way for subscriber in subscribers]
    return np.stack(
        [[np.interp(minutes, way[:, 0], way[:, axis]) for axis in (1, 2)] for way in ways]
    ).transpose(2, 0, 1)


def metres(table: pa.Table) -> NDArray[np.float64]:
    """Return the points (``lon``, ``lat``) of a table in metres east and north of the centre of the city."""
    degrees = np.column_stack([table["lon"].to_numpy(), table["lat"].to_numpy()])
    offsets: NDArray[np.float64] = (degrees - _CENTRE) * _DEGREE
    return offsets


def table(subscribers: list[Subscriber]) -> pa.Table:
    """Return the subscriptions at the beginning of the day, as the engine takes them."""
    starts = np.array([subscriber.way[0, 1:] for subscriber in subscribers])
    return pa.table(
        {
            "id": [subscriber.id for subscriber in subscribers],
            "expression": [subscriber.expression for subscriber in subscribers],
            "lon": starts[:, 0],
            "lat": starts[:, 1],
            "radius_m": [float(subscriber.radius) for subscriber in subscribers],
        }
    )


def _towns(places: pa.Table) -> NDArray[np.float64]:
    """Return settlements in the city that lie apart from each other: metres east and north of its centre."""
    towns: list[NDArray[np.float64]] = []
    for town in metres(places.filter(pc.equal(places["feature_class"], "Populated Place"))):
        if math.hypot(*town) <= _CITY and all(math.dist(town, other) > _APART for other in towns):
            towns.append(town)
    return np.array(towns)


def _way(random: Random, mode: Mode, towns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the day of one subscriber, from midnight to midnight."""
    home = _doorstep(random, random.choice(towns))
    nearby = towns[np.hypot(*(towns - home).T) <= mode.range]
    leaves = round(random.triangular(5 * 60, 11 * 60, 8 * 60))
    returns = round(random.triangular(18 * 60, 23 * 60, 21 * 60))
    way: list[tuple[Any, ...]] = [(0, *home), (leaves, *home)]
    while way[-1][0] < returns:
        way += _legs(random, mode, way[-1], _doorstep(random, random.choice(nearby)))
        way.append((way[-1][0] + random.randint(*mode.stop), *way[-1][1:]))
    way += _legs(random, mode, way[-1], home)
    way.append((max(DAY, way[-1][0]), *home))
    corners = np.array(way, np.float64)
    degrees = corners[:, 1:] / _DEGREE + _CENTRE
    return np.column_stack([corners[:, 0], np.round(degrees, 6)])


def _doorstep(random: Random, town: NDArray[np.float64]) -> NDArray[np.float64]:
    return town + [random.uniform(-_DOORSTEP, _DOORSTEP) for _ in range(2)]


def _legs(
    random: Random, mode: Mode, start: tuple[Any, ...], goal: NDArray[np.float64]
) -> Iterator[tuple[Any, ...]]:
    """Go along a street, turn into an avenue, and turn into a street again; or the other way round."""
    minute, *here = start
    whole = _STREETS @ (goal - here)
    first = random.randrange(2)
    part = random.uniform(0.25, 0.75)
    for axis, share in ((first, part), (1 - first, 1.0), (first, 1 - part)):
        minute += max(1, math.ceil(abs(whole[axis] * share) / (mode.speed * 1000 / 60)))
        here = here + whole[axis] * share * _STREETS[axis]
        yield (minute, *here)
