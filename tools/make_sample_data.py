"""Make the sample data of ``nearcast demo``: one invented day around New York.

The place names are real: they are from GNIS, the US government's gazetteer, which is in the public domain. Everything
else is invented by a seeded generator: the same places and seed give the same tables. Run it from the repository root::

    python tools/make_sample_data.py [directory with places_gn.parquet] [--output DIR] [--seed N]

It writes ``places.parquet`` (the base map), ``messages.parquet`` and ``subscriptions.parquet``. Messages and
subscriptions of a theme use the same words, around the same places, so that most messages reach a handful of
subscribers.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

SEED = 20260516
MESSAGES = 4_000
SUBSCRIPTIONS = 10_000
BOUNDS = (-74.6, 40.4, -73.2, 41.3)  # west, south, east, north
MIDNIGHT = datetime(2026, 5, 16, 4, tzinfo=UTC)  # a Saturday in New York begins: UTC-4
METRES_PER_DEGREE = 111_195.0
ROOT = Path(__file__).resolve().parent.parent

# --- What is said, and what is asked -----------------------------------------------------------------------
# {place} is a settlement, {water} a bay, lake or river nearby, {price} the price; other slots name a list.


def word_lists(text: str) -> dict[str, list[str]]:
    """Return the lists of *text*: each begins with its name and a colon, and commas separate its entries."""
    _, *parts = re.split(r"(\w+): ", " ".join(text.split()))
    return {name: words.strip(" ,").split(", ") for name, words in zip(parts[::2], parts[1::2])}


WORDS = word_lists("""
    dish: ramen, dumplings, tacos, pizza, falafel, bagels, pancakes, oysters, curry, sushi
    drink: coffee, espresso, cold brew, craft beer, lemonade, bubble tea
    deal: happy hour, lunch special, student discount, two for one, early bird, late night discount
    eatery: Blue Heron Café, Lantern Noodle Bar, the Corner Oven, Saltbox Kitchen, Marigold Diner, the
        Copper Kettle, Juniper Café, Night Owl Diner, Paper Crane Kitchen, Harbor Light Grill, the Brass
        Spoon, Two Sparrows Bakery
    diet: vegan, gluten free, halal, kosher, vegetarian
    road: Main Street, River Road, Station Avenue, Mill Lane, Bridge Street, the expressway ramp, the
        parkway, Union Avenue
    crash: accident, collision, overturned truck, stalled bus, jackknifed trailer, three car crash, fender
        bender
    works: road works, lane closure, resurfacing, bridge repair, burst water main, gas leak, signal
        failure, sinkhole, fallen tree
    vehicle: truck, cyclist, taxi, motorcycle, school bus, delivery van
    hazard: flash flood, thunderstorm, hail, high wind, coastal flood, lightning, tornado
    level: warning, warning, watch, advisory
    advice: stay indoors, avoid underpasses, move cars to higher ground, secure loose objects, keep away
        from the shore, charge your phones
    pet: cat, dog, cat, dog, parrot, rabbit, beagle, tabby, terrier, tortoise
    coat: black, white, ginger, grey, brown, spotted, striped, golden
    called: Biscuit, Luna, Pepper, Milo, Olive, Pickles, Waffles, Shadow, Mango, Ziggy, Clover, Noodle
    mark: red collar, blue collar, microchip, white paws, torn ear, green harness, short tail
    music: jazz, indie rock, salsa, hip hop, folk, string quartet, gospel, brass band
    sport: baseball, soccer, basketball, roller derby, tennis, rowing, chess
    venue: the old mill, the bandshell, the armory, the waterfront stage, the town hall, the ferry
        terminal, the community garden, the roller rink, the rooftop, the boathouse
    band: The Tin Lanterns, Velvet Harbor, Nine Mile Choir, Static Orchard, The Ferrymen, Paper Tigers,
        Lucia and the Tides, Copper Moon
    ware: strawberries, sourdough, honey, tomatoes, cut flowers, goat cheese, vinyl records, ceramics,
        used books, maple syrup
    market: farmers market, flea market, street fair, yard sale, night market, craft fair, greenmarket
    line: northbound train, southbound train, local bus, express bus, ferry, light rail, shuttle bus,
        commuter train
    trouble: signal problem, police activity, track fire, crew shortage, engine fault, sick passenger,
        debris on the tracks, power failure
    home: studio, one bedroom, two bedroom, loft, garden apartment, row house, sublet, furnished room
    perk: balcony, parking, laundry, dishwasher, rooftop, fireplace, backyard, elevator, pets allowed,
        heat included
    minutes: 10, 15, 20, 25, 30, 40, 45, 60
    clock: 5 pm, 6 pm, 7 pm, 8 pm, 9 pm, noon, sunset
""")


@dataclass(frozen=True)
class Theme:
    """One kind of message, and the interests that it matches."""

    category: str
    share: float  # of the messages and of the subscriptions
    hours: tuple[float, float, float]  # local time of day: earliest, likeliest, latest
    lasts: tuple[float, float]  # hours until it expires
    price: tuple[float, float, float] | None  # lowest, likeliest, highest, in dollars
    rated: bool
    messages: list[str]
    interests: list[str]


def lines(text: str) -> list[str]:
    """Return the lines of *text*, without their indentation."""
    return [line.strip() for line in text.strip().splitlines()]


THEMES = (
    Theme(
        category="food",
        share=0.24,
        hours=(6, 12, 23),
        lasts=(1, 6),
        price=(3, 9, 32),
        rated=True,
        messages=lines("""
            {deal} at {eatery} in {place}: {dish} for ${price}.
            Fresh {dish} and {drink} at {eatery}, {place}. ${price} until we run out.
            {eatery} in {place} pours {drink} for ${price} today, {deal} until {clock}.
            New on the menu in {place}: {diet} {dish} at {eatery}, ${price}.
            {place}, are you hungry? {dish} with free {drink} for ${price} at {eatery}.
            Just had the {dish} at {eatery}. Best in {place}, and only ${price}.
            {deal} for {drink} near {place} station, ${price}, take away or sit in.
            Food truck parked by {water}: {diet} {dish}, ${price} a plate.
            Short queue for brunch at {eatery}, {place}. {dish} and {drink}, ${price}.
            {eatery} has a {deal} on {dish}. ${price}, {place}, {minutes} minute wait.
        """),
        interests=lines("""
            {dish} AND price < {cheap}
            {drink} AND ({deal} OR {deal2})
            ({dish} OR {dish2}) AND rating >= 4
            {drink} NOT {drink2} AND category = "food"
            {dish} AND {diet}
            {deal} AND price <= {cheap}
            category = "food" AND rating >= 4.7 AND price < {cheap}
            {dish} NOT {dish2}
            {drink} AND {dish}
            brunch AND ({dish} OR {drink})
            {dish}
            {drink}
            category = "food" AND price < {cheap}
            ({dish} OR {dish2} OR {drink}) NOT queue
            {deal} AND {dish}
            ({dish} OR {dish2} OR {dish3}) AND {deal}
        """),
    ),
    Theme(
        category="traffic",
        share=0.15,
        hours=(0, 8, 24),
        lasts=(0.5, 8),
        price=None,
        rated=False,
        messages=lines("""
            {crash} on {road} in {place}, one lane blocked, expect {minutes} minutes.
            {works} on {road} near {place}. Detour by {road2}.
            Heavy traffic through {place} after a {crash} on {road}.
            {road} closed at {place} because of a {works}. Police on site.
            Careful in {place}: {crash} with a {vehicle} on {road}, both lanes blocked.
            {works} in {place} until {clock}. {road} down to one lane.
            All lanes open again on {road} in {place} after the {crash}.
            {vehicle} stuck under the bridge on {road}, {place}. Delay of {minutes} minutes.
        """),
        interests=lines("""
            ({crash} OR {works}) AND {road}
            {works}
            {road} AND closed
            accident AND {place}
            {crash} NOT open
            category = "traffic" AND blocked
            {road} AND (blocked OR closed OR detour)
            {vehicle} AND {road}
            traffic AND {place}
            detour AND {road}
            closed OR blocked
            {crash} OR {crash2} OR {works}
            accident OR collision
            ({crash} OR {crash2}) AND blocked
        """),
    ),
    Theme(
        category="weather",
        share=0.09,
        hours=(9, 16, 24),
        lasts=(1, 5),
        price=None,
        rated=False,
        messages=lines("""
            {hazard} {level} for {place} and around until {clock}: {advice}.
            {water} is rising fast near {place}. {hazard} {level}, {advice}.
            Street flooding reported in {place}. {hazard} {level} in force, {advice}.
            {hazard} {level}: cells moving east over {place}, {advice}.
            Trees down and power out in parts of {place} after {hazard}. {advice}.
        """),
        interests=lines("""
            {hazard} AND {level}
            (flood OR flooding) AND {place}
            {hazard} AND warning NOT watch
            {hazard} AND rising
            power AND out AND trees
            warning NOT watch
            {hazard}
            category = "weather"
            flooding OR rising
            (hail OR lightning) AND {place}
            ({hazard} OR {hazard2}) AND {place}
            {hazard} AND flooding
        """),
    ),
    Theme(
        category="pets",
        share=0.09,
        hours=(6, 17, 24),
        lasts=(12, 72),
        price=None,
        rated=False,
        messages=lines("""
            Lost {coat} {pet} in {place}, answers to {called}, {mark}. Please call.
            Found: {coat} {pet} with {mark} near {road}, {place}.
            Has anyone in {place} seen {called}? {coat} {pet}, {mark}, missing since this morning.
            {called} the {pet} is home again! Thank you, {place}.
            Missing {pet} last seen by {water}. {coat}, {mark}. Reward.
            {coat} {pet} wandering along {road} in {place}, no collar, looks lost.
        """),
        interests=lines("""
            (lost OR missing) AND {pet}
            found AND {pet}
            {coat} AND {pet}
            {pet} AND {mark}
            {called} AND {pet}
            lost AND ({pet} OR {pet2}) NOT found
            reward AND {pet}
            lost OR missing
            {pet} OR {pet2}
            lost AND (cat OR dog)
            (lost OR found OR missing) AND {mark}
        """),
    ),
    Theme(
        category="events",
        share=0.14,
        hours=(8, 15, 23),
        lasts=(2, 12),
        price=(5, 18, 120),
        rated=False,
        messages=lines("""
            {music} tonight at {venue}, {place}. {band}, doors {clock}, ${price}.
            Tickets left for {band} in {place}: ${price} at {venue}.
            Pick-up {sport} at {place}, everybody welcome, starts {clock}. ${price} for the pitch.
            {sport} finals in {place} this afternoon. Tickets from ${price}.
            Open air {music} by {water}, bring a blanket. ${price}, children free.
            {band} play a {music} set at {venue} in {place}, {clock}, ${price}.
            Beginners class: {music} dance night at {venue}, {place}, ${price}.
            {sport} watch party in {place}, big screen at {venue}, ${price} with a drink.
        """),
        interests=lines("""
            {music} AND price < {ticket}
            {band}
            ({music} OR {music2}) AND tonight
            {sport} AND tickets AND price <= {ticket}
            {sport} AND {place}
            {music} AND {venue}
            category = "events" AND children
            ({sport} OR {sport2}) NOT finals
            dance AND {music}
            {band} AND {venue}
            {sport} AND beginners
            {music}
            {sport} OR {sport2}
            tickets AND price < {ticket}
            {music} OR {music2} OR {music3}
        """),
    ),
    Theme(
        category="market",
        share=0.11,
        hours=(6, 10, 18),
        lasts=(2, 8),
        price=(2, 6, 40),
        rated=True,
        messages=lines("""
            {market} in {place} today: {ware}, {ware2} and {ware3}. From ${price}.
            {ware} for ${price} at the {market}, {place}, until sold out.
            Last {ware} of the season at the {place} {market}, ${price}.
            Our stall at the {market} near {water} has {ware} and {ware2}, ${price} each.
            Half price {ware} after {clock} at the {place} {market}, now ${price}.
            {place} {market}: {ware} going fast, ${price}. Cash only.
        """),
        interests=lines("""
            {ware} AND price < {bargain}
            {market} AND {ware}
            ({ware} OR {ware2}) AND {market}
            {ware} NOT sold
            {market} AND {place}
            {ware} AND rating >= 4.5
            "half price" AND ({ware} OR {ware2})
            {ware} AND {ware2}
            {ware}
            {market}
            {ware} OR {ware2} OR {ware3}
            category = "market" AND price < {bargain}
        """),
    ),
    Theme(
        category="transit",
        share=0.12,
        hours=(4, 8, 24),
        lasts=(0.5, 3),
        price=None,
        rated=False,
        messages=lines("""
            {line} from {place} delayed {minutes} minutes: {trouble}.
            No {line} between {place} and {place2}: {trouble}. Tickets valid on buses.
            {trouble} at {place} station, {line} running {minutes} minutes late.
            {line} skips {place} until {clock} because of a {trouble}.
            Good service again on the {line} at {place} after the {trouble}.
            Crowded platform at {place}, {line} cancelled, next in {minutes} minutes.
        """),
        interests=lines("""
            {line} AND {place}
            {line} AND (delayed OR late)
            {trouble} AND station
            cancelled AND {place}
            {line} AND {trouble}
            ({line} OR {line2}) NOT good
            {place} AND (delayed OR cancelled OR late)
            ferry AND (delayed OR cancelled)
            train AND {trouble}
            delayed OR cancelled
            {line} NOT good
            (train OR ferry) AND (delayed OR late OR cancelled)
        """),
    ),
    Theme(
        category="rentals",
        share=0.06,
        hours=(7, 13, 22),
        lasts=(24, 72),
        price=(900, 2100, 5200),
        rated=False,
        messages=lines("""
            {home} in {place}, {perk} and {perk2}, ${price} a month, free from June.
            For rent: bright {home} near {water}, {perk}, ${price}.
            {place}: {home} with {perk}, no fee, ${price} a month.
            Roommate wanted in {place}, {home} with {perk}, ${price} all in.
            Open house today until {clock}: {home} in {place}, {perk}, ${price}.
        """),
        interests=lines("""
            {home} AND price < {rent}
            {home} AND {perk} AND price <= {rent}
            1200 <= price <= {rent} AND {perk}
            roommate AND {place}
            {perk} AND {perk2} AND category = "rentals"
            "no fee" AND {home}
            ({home} OR {home2}) AND {perk} AND price < {rent}
            {home} OR {home2}
            category = "rentals" AND price < {rent}
        """),
    ),
)
LIMITS = {  # of the tests in interests, in dollars
    "cheap": (6, 8, 10, 12, 15, 20),
    "ticket": (15, 20, 30, 50),
    "bargain": (5, 8, 12, 20),
    "rent": (1800, 2400, 3000, 3600),
}

# --- Places ------------------------------------------------------------------------------------------------
WATER = ("Bay", "Lake", "Reservoir", "Stream", "Channel", "Canal", "Gut")
LAND = (
    "Populated Place",
    "Island",
    "Beach",
    "Cape",
    "Summit",
    "Swamp",
    "Valley",
    "Ridge",
    "Woods",
    "Flat",
    "Range",
)
UNFIT = re.compile(r"\(historical\)|Negro|Coontown")  # gone, or better not repeated
BOROUGHS = ("New York", "Brooklyn", "Queens", "Bronx", "Manhattan", "Staten Island")
CENTRES = (  # longitude, latitude, pull, reach in kilometres
    (-73.985, 40.745, 1.0, 4.5),
    (-73.955, 40.665, 0.7, 4.0),
    (-73.87, 40.745, 0.4, 4.0),
    (-73.9, 40.84, 0.4, 3.0),
    (-74.06, 40.72, 0.5, 3.0),
    (-74.17, 40.735, 0.5, 3.0),
    (-74.17, 40.915, 0.2, 3.0),
    (-73.77, 41.03, 0.2, 3.0),
    (-73.54, 41.05, 0.2, 3.0),
    (-73.64, 40.7, 0.2, 5.0),
)


def select_places(gazetteer: pa.Table) -> pa.Table:
    """Return the map's place names, most prominent first: the order in which a map gives them room.

    Rank comes from GNIS itself: the city and its boroughs, then settlements that name a city, then a town,
    then a census place, then the rest; a county's name comes with the cities.
    """
    west, south, east, north = BOUNDS
    lon, lat = gazetteer["lon"], gazetteer["lat"]
    inside = pc.and_(
        pc.and_(pc.greater(lon, west), pc.less(lon, east)),
        pc.and_(pc.greater(lat, south), pc.less(lat, north)),
    )
    rows = gazetteer.filter(pc.and_(pc.equal(gazetteer["source"], "gnis"), inside)).to_pylist()
    rows = [row for row in rows if not UNFIT.search(row["name"])]
    status = defaultdict(list)  # of a name: where, and the rank that it gives to a settlement there
    for row in rows:
        if row["feature_class"] == "Civil" and " of " in row["name"]:
            kind, _, name = row["name"].partition(" of ")
            status[name].append((row["lon"], row["lat"], 1 if kind == "City" else 2))
        elif row["feature_class"] == "Census":
            status[row["name"].removesuffix(" Census Designated Place")].append((row["lon"], row["lat"], 3))
    chosen = {}
    for row in rows:
        name, kind = row["name"], row["feature_class"]
        if kind == "Populated Place":
            near = [
                rank
                for lon, lat, rank in status[name]
                if math.hypot(lon - row["lon"], lat - row["lat"]) < 0.08
            ]
            rank = 0 if name in BOROUGHS else min(near, default=4)
        elif kind == "Civil" and name.endswith(" County"):
            rank = 1
        elif kind in LAND or kind in WATER:
            rank = 5 if kind in ("Bay", "Island", "Reservoir") else 6
        else:
            continue
        chosen[name, kind, round(row["lon"], 5), round(row["lat"], 5)] = rank
    ordered = sorted(chosen, key=lambda place: (chosen[place], place))
    names, kinds, lons, lats = zip(*ordered)
    return pa.table(
        {"name": names, "feature_class": kinds, "lon": lons, "lat": lats},
        pa.schema(
            [
                ("name", pa.string()),
                ("feature_class", pa.string()),
                ("lon", pa.float64()),
                ("lat", pa.float64()),
            ]
        ),
    )


class Town:
    """Where things happen: settlements with their pull, the water near each, and points around them."""

    def __init__(self, places: pa.Table, rng: Random) -> None:
        rows = places.to_pylist()
        odd = re.compile(
            r"[^A-Za-z' .]|Hous|Tower|Dwelling|Plaza|Court|Estates|\bCorners?\b|Junction|Mobile|\bDe\b"
        )
        self.rng = rng
        self.settlements = [
            row for row in rows if row["feature_class"] == "Populated Place" and not odd.search(row["name"])
        ]
        self.pull = [self._pull(row["lon"], row["lat"]) for row in self.settlements]
        self._waters = defaultdict(list)
        for row in rows:
            if row["feature_class"] in ("Bay", "Lake", "Stream", "Channel") and not odd.search(row["name"]):
                self._waters[self._cell(row)].append(row["name"])
        self._neighbours = defaultdict(list)
        for row in self.settlements:
            self._neighbours[self._cell(row)].append(row["name"])

    @staticmethod
    def _cell(row: dict[str, Any]) -> tuple[int, int]:
        return int(row["lon"] * 10), int(row["lat"] * 10)

    @staticmethod
    def _pull(lon: float, lat: float) -> float:
        """Return how much happens there: a little everywhere, more towards each centre."""
        pull = 0.008
        for x, y, strength, reach in CENTRES:
            pull += strength * math.exp(-math.hypot((lon - x) * 84.4, (lat - y) * 111.2) / reach)
        return pull

    def settlement(self) -> dict[str, Any]:
        """Return a settlement, drawn by its pull."""
        return self.rng.choices(self.settlements, self.pull)[0]

    def neighbour(self, settlement: dict[str, Any]) -> str:
        """Return the name of a settlement nearby, or of the same where it is alone."""
        others = [name for name in self._neighbours[self._cell(settlement)] if name != settlement["name"]]
        return self.rng.choice(others) if others else settlement["name"]

    def water(self, settlement: dict[str, Any]) -> str:
        """Return the name of some water nearby."""
        names = self._waters[self._cell(settlement)]
        return self.rng.choice(names) if names else "the river"

    def near(self, settlement: dict[str, Any], spread_m: float) -> tuple[float, float]:
        """Return a point around a settlement, inside the bounds."""
        west, south, east, north = BOUNDS
        lon, lat = shifted(
            settlement["lon"], settlement["lat"], self.rng.gauss(0, spread_m), self.rng.gauss(0, spread_m)
        )
        return min(max(lon, west), east), min(max(lat, south), north)

    def blob(self, lon: float, lat: float, radius_m: float, corners: int = 6) -> bytes:
        """Return an irregular polygon around a point, as WKB."""
        ring = []
        for corner in range(corners):
            angle = 2 * math.pi * (corner + self.rng.uniform(-0.3, 0.3)) / corners
            reach = radius_m * self.rng.uniform(0.65, 1.15)
            ring.append(shifted(lon, lat, reach * math.cos(angle), reach * math.sin(angle)))
        return bytes(shapely.to_wkb(shapely.Polygon(ring), byte_order=1))


def shifted(lon: float, lat: float, east_m: float, north_m: float) -> tuple[float, float]:
    """Return the point so many metres east and north, to a metre or so, rounded to five decimals."""
    return (
        round(lon + east_m / (METRES_PER_DEGREE * math.cos(math.radians(lat))), 5),
        round(lat + north_m / METRES_PER_DEGREE, 5),
    )


# --- Messages and subscriptions ----------------------------------------------------------------------------
def make_messages(places: pa.Table, seed: int = SEED, count: int = MESSAGES) -> pa.Table:
    """Return *count* messages of one day, in the order of their publication."""
    rng = Random(f"messages {seed}")
    town = Town(places, rng)
    rows = []
    for _ in range(count):
        theme = rng.choices(THEMES, [theme.share for theme in THEMES])[0]
        place = town.settlement()
        hour = rng.triangular(theme.hours[0], theme.hours[2], theme.hours[1])
        row: dict[str, Any] = {"category": theme.category, "lon": None, "lat": None, "geometry": None}
        if theme.category == "weather" and rng.random() < 0.55:
            # The storm comes from the west: it enters the map at nine and leaves it at midnight.
            west = BOUNDS[0] + (BOUNDS[2] - BOUNDS[0]) * (hour - 9) / 15
            place = min((town.settlement() for _ in range(25)), key=lambda it: abs(it["lon"] - west))
            lon, lat = town.near(place, 3_000)
            row["geometry"] = town.blob(lon, lat, rng.triangular(2_000, 12_000, 3_500), corners=8)
        elif theme.category == "traffic" and rng.random() < 0.04:
            row["geometry"] = town.blob(*town.near(place, 800), rng.uniform(300, 900))
        else:
            row["lon"], row["lat"] = town.near(place, 650)
        row["price"] = (
            round_price(rng.triangular(*(theme.price[i] for i in (0, 2, 1)))) if theme.price else None
        )
        row["rating"] = round(rng.triangular(2.8, 5, 4.4), 1) if theme.rated else None
        row["text"] = sentence(rng, rng.choice(theme.messages), town, place, row["price"])
        published = MIDNIGHT + timedelta(seconds=round(hour * 3600))
        row["published_at"] = published
        row["expires_at"] = published + timedelta(minutes=round(60 * rng.uniform(*theme.lasts)))
        rows.append(row)
    rows.sort(key=lambda row: row["published_at"])
    for number, row in enumerate(rows, 1):
        row["id"] = f"m{number:04}"
    time = pa.timestamp("us", tz="UTC")
    text, number = pa.string(), pa.float64()
    names = [
        *(("id", text), ("text", text), ("lon", number), ("lat", number), ("geometry", pa.binary())),
        *(
            ("price", number),
            ("rating", number),
            ("category", text),
            ("published_at", time),
            ("expires_at", time),
        ),
    ]
    return pa.Table.from_pylist(rows, pa.schema(names))


def make_subscriptions(places: pa.Table, seed: int = SEED, count: int = SUBSCRIPTIONS) -> pa.Table:
    """Return *count* subscriptions: mostly circles and boxes, some polygons, a few everywhere."""
    rng = Random(f"subscriptions {seed}")
    town = Town(places, rng)
    rows = []
    for number in range(1, count + 1):
        theme = rng.choices(THEMES, [theme.share for theme in THEMES])[0]
        place = town.settlement()
        row: dict[str, Any] = {"id": f"s{number:05}"}
        row["expression"] = interest(rng, rng.choice(theme.interests), town, place)
        lon, lat = town.near(place, 900)
        reach = rng.triangular(500, 5_000, 3_200)
        shape = rng.choices(("circle", "box", "polygon", "everywhere"), (0.60, 0.26, 0.13, 0.01))[0]
        if shape == "circle":
            row |= {"lon": lon, "lat": lat, "radius_m": float(round(reach, -2))}
        elif shape == "box":
            tall = rng.uniform(0.6, 1.4) * reach
            row["xmin"], row["ymin"] = shifted(lon, lat, -reach, -tall)
            row["xmax"], row["ymax"] = shifted(lon, lat, reach, tall)
        elif shape == "polygon":
            row["geometry"] = town.blob(lon, lat, reach)
        rows.append(row)
    numbers = ("lon", "lat", "radius_m", "xmin", "ymin", "xmax", "ymax")
    names = [
        ("id", pa.string()),
        ("expression", pa.string()),
        *((name, pa.float64()) for name in numbers),
        ("geometry", pa.binary()),
    ]
    return pa.Table.from_pylist(rows, pa.schema(names))


def sentence(rng: Random, template: str, town: Town, place: dict[str, Any], price: float | None) -> str:
    """Return *template* with its slots filled, beginning with a capital."""
    known = {
        "place": place["name"],
        "place2": town.neighbour(place),
        "water": town.water(place),
        "price": f"{price or 0:.2f}".removesuffix(".00"),
    }
    text = re.sub(r"\{(\w+)\}", lambda slot: fill(rng, slot[1], known), template)
    return re.sub(r"(^|[.!?] )([a-z])", lambda start: start[1] + start[2].upper(), text)


def interest(rng: Random, template: str, town: Town, place: dict[str, Any]) -> str:
    """Return *template* with its slots filled by terms of the language: words, quoted phrases, numbers."""
    known = {"place": place["name"]} | {name: str(rng.choice(values)) for name, values in LIMITS.items()}

    def term(slot: re.Match[str]) -> str:
        words = fill(rng, slot[1], known).removeprefix("the ").removeprefix("The ")
        return words if slot[1] in LIMITS else (words.lower() if words.isalnum() else f'"{words}"')

    return re.sub(r"\{(\w+)\}", term, template)


def fill(rng: Random, slot: str, known: dict[str, str]) -> str:
    """Return the words for *slot*; ``ware2`` is a draw from ``ware`` that the text does not have yet."""
    if slot not in known:
        taken = set(known.values())
        known[slot] = rng.choice([word for word in WORDS[slot.rstrip("0123456789")] if word not in taken])
    return known[slot]


def round_price(price: float) -> float:
    """Return *price* as people write it: half dollars below 20, whole ones below 200, then tens."""
    step = 0.5 if price < 20 else 1 if price < 200 else 10
    return round(price / step) * step


def write(table: pa.Table, path: Path) -> None:
    """Write *table* as Parquet; the same table gives the same bytes (of one version of Arrow)."""
    pq.write_table(table, path, compression="zstd", compression_level=19)
    print(f"{path.name}: {table.num_rows:,} rows, {path.stat().st_size / 1024:,.0f} KiB")


def main() -> None:
    """Read the gazetteer, write the three files."""
    parser = argparse.ArgumentParser(description="Make the sample data of `nearcast demo`.")
    parser.add_argument(
        "data",
        nargs="?",
        type=Path,
        default=ROOT.parent / "shared" / "data",
        help="directory with places_gn.parquet",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "src" / "nearcast" / "demo" / "data")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    columns = ["name", "feature_class", "lon", "lat", "source"]
    places = select_places(pq.read_table(options.data / "places_gn.parquet", columns=columns))
    options.output.mkdir(parents=True, exist_ok=True)
    write(places, options.output / "places.parquet")
    write(make_messages(places, options.seed), options.output / "messages.parquet")
    write(make_subscriptions(places, options.seed), options.output / "subscriptions.parquet")


if __name__ == "__main__":
    main()
