"""Seeded workloads, by name.

========== ==========================================================================================
ap-tree    Zipf words and clustered places; subscriptions made by the recipe of the AP-Tree paper
misses     the same box and words in every subscription, and messages with these words outside the box
mo-tree    20 numeric attributes and a place; subscriptions of six intervals, after the MO-Tree paper
tweets     real messages from a data directory; subscriptions made by the AP-Tree recipe from other messages
places     the same with the names of places
========== ==========================================================================================

The same name, sizes and seed give the same workload. Messages do not depend on the number of subscriptions.

The AP-Tree paper is Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe"
(2015), section 5.1.1. The MO-Tree paper is Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding
Engine for Spatiotemporal-aware Pub/Sub Systems" (2021), Table 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.errors import InputError, UnknownError, shown
from nearcast.geometry import WGS84, Planar, Space
from nearcast.workloads import sampling
from nearcast.workloads.files import CONTIGUOUS_US, TEXT_FILES, check_data, texts
from nearcast.workloads.sampling import Extent, Ragged, Regions

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["WORKLOADS", "Recipe", "Workload", "ap_tree", "check_data", "make", "mo_tree", "real"]

_UNIT_SQUARE = Extent(0.0, 0.0, 1.0, 1.0)
_JITTER_DEG = 0.05  # standard deviation by which a message that is used twice is moved

WORKLOADS = ("ap-tree", "mo-tree", "misses", *TEXT_FILES)


@dataclass(frozen=True)
class Workload:
    """Subscriptions and messages to measure with.

    *newcomers* are further subscriptions of the same kind, for measuring inserts. *facts* are the numbers that define
    the distributions, for the report.
    """

    name: str
    seed: int
    description: str
    subscriptions: SubscriptionTable
    newcomers: SubscriptionTable
    messages: MessageBatch
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """The recipe by which subscriptions are made from messages, and by which the messages themselves are shaped.

    The defaults are those of the AP-Tree paper (section 5.1.1). Its experiments vary them, and so do those of Yu, Li
    and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015).
    """

    keywords: tuple[int, int] = config.AP_KEYWORDS  # the smallest and the largest number in a subscription
    area: tuple[float, float] = config.AP_AREA  # area of its region, as a share of the data space
    boolean: bool = False  # keywords are joined by AND and OR at random, instead of by AND only
    drifting: bool = False  # subscriptions arrive roughly from west to east, instead of in random order
    message_keywords: int | None = None  # words per message, drawn by frequency; None: as in the data
    message_area: tuple[float, float] | None = None  # area of a message, as a share; None: a point


PLAIN = Recipe()


def make(
    name: str,
    subscriptions: int,
    messages: int,
    *,
    seed: int = 0,
    newcomers: int = config.BENCH_BATCH * config.BENCH_BATCHES,
    data: Path | None = None,
) -> Workload:
    """Return the workload *name* with the given numbers of subscriptions and messages.

    *data* is the directory of the real data, for the workloads that need it.
    """
    if name not in WORKLOADS:
        raise UnknownError(f"no workload {shown(name)}; there are {', '.join(WORKLOADS)}")
    for what, count in (("subscriptions", subscriptions), ("messages", messages)):
        if count < 1:
            raise InputError(f"a workload cannot have {count} {what}; give at least 1")
    if name == "ap-tree":
        return ap_tree(subscriptions, messages, seed=seed, newcomers=newcomers)
    if name == "mo-tree":
        return mo_tree(subscriptions, messages, seed=seed, newcomers=newcomers)
    if name == "misses":
        return misses(subscriptions, messages, seed=seed, newcomers=newcomers)
    if data is None:
        raise InputError(f"the workload {name!r} reads real data; give its directory with --data DIR")
    return real(name, data, subscriptions, messages, seed=seed, newcomers=newcomers)


def ap_tree(
    subscriptions: int,
    messages: int,
    *,
    seed: int = 0,
    newcomers: int = 0,
    vocabulary: int = config.AP_VOCABULARY,
    exponent: float = config.AP_EXPONENT,
    message_keywords: int = config.AP_MESSAGE_KEYWORDS,
    cities: int = config.AP_CITIES,
    city_spread: float = config.AP_CITY_SPREAD,
    background: float = config.AP_BACKGROUND,
    recipe: Recipe = PLAIN,
) -> Workload:
    """Return synthetic messages, and subscriptions made from other such messages by the recipe of the AP-Tree paper.

    A message has *message_keywords* distinct words, drawn by a Zipf law over *vocabulary* words, and a place around
    one of many cities in the unit square. Code r is the r-th most frequent word.
    """
    world, for_messages, for_subscriptions = _streams(seed)
    law = sampling.zipf(vocabulary, exponent)
    clusters = sampling.clustered(world, _UNIT_SQUARE, cities, city_spread, background)

    def sampled(rng: np.random.Generator, count: int, words: int) -> tuple[NDArray[np.float64], Ragged]:
        return sampling.places(rng, clusters, count), sampling.distinct_words(rng, law, count, words)

    pieces = [
        _regions(
            for_subscriptions, *sampled(for_subscriptions, count, message_keywords), _UNIT_SQUARE, recipe
        )
        for count in sampling.in_chunks(subscriptions + newcomers)
    ]
    space = Planar(*_UNIT_SQUARE)
    table, more = _tables(for_subscriptions, sampling.joined(pieces), subscriptions, space, recipe)
    points, words = sampled(for_messages, messages, recipe.message_keywords or message_keywords)
    return Workload(
        name="ap-tree",
        seed=seed,
        description="Zipf words, clustered places; subscriptions by the AP-Tree paper's recipe",
        subscriptions=table,
        newcomers=more,
        messages=_batch(for_messages, points, words, _UNIT_SQUARE, space, recipe),
        facts={
            "vocabulary": vocabulary,
            "zipf_exponent": exponent,
            "keywords_per_message": recipe.message_keywords or message_keywords,
            **_facts(recipe),
            "cities": cities,
            "city_spread": city_spread,
            "background_share": background,
        },
    )


def misses(subscriptions: int, messages: int, *, seed: int = 0, newcomers: int = 0) -> Workload:
    """Return identical subscriptions, and messages that have their words but lie outside their box."""
    _, for_messages, _ = _streams(seed)
    space = Planar(*_UNIT_SQUARE)

    def table(rows: int) -> SubscriptionTable:
        boxes = np.tile([0.4, 0.4, 0.5, 0.5], (rows, 1))
        words = np.tile(np.arange(2, dtype=np.int32), rows)
        return SubscriptionTable.from_arrays(boxes, np.arange(rows + 1) * 2, words, space=space)

    points = for_messages.uniform(0.6, 1.0, (messages, 2))
    words = np.tile(np.arange(config.AP_MESSAGE_KEYWORDS, dtype=np.int32), messages)
    offsets = np.arange(messages + 1) * config.AP_MESSAGE_KEYWORDS
    return Workload(
        name="misses",
        seed=seed,
        description="subscriptions that are all alike, messages with their words outside their box",
        subscriptions=table(subscriptions),
        newcomers=table(newcomers),
        messages=MessageBatch.from_arrays(points, offsets, words, space=space),
        facts={"keywords_per_message": config.AP_MESSAGE_KEYWORDS, "keywords_per_subscription": 2},
    )


def mo_tree(
    subscriptions: int,
    messages: int,
    *,
    seed: int = 0,
    newcomers: int = 0,
    predicates: int = config.MO_PREDICATES,
    exponent: float = config.MO_EXPONENT,
) -> Workload:
    """Return events with numeric attributes, and subscriptions of intervals: Table 4 of the MO-Tree paper.

    An event has 15 to 20 of the 20 attributes. A subscription has *predicates* intervals, whose ends are uniform in
    [0, 1]. Both choose their attributes by a Zipf law with *exponent*. Places gather at hot spots of a city that is
    100 km wide; a region extends 0.5 to 2 km from its centre to each side.
    """
    world, for_messages, for_subscriptions = _streams(seed)
    city = Extent(0.0, 0.0, config.MO_CITY_KM, config.MO_CITY_KM)
    clusters = sampling.clustered(
        world, city, config.MO_HOT_SPOTS, config.MO_HOT_SPOT_SPREAD, config.MO_BACKGROUND
    )
    space = Planar(*city)
    total = subscriptions + newcomers
    boxes = np.empty((total, 4))
    attribute = np.empty((total, predicates), np.int32)
    low = np.empty((total, predicates))
    high = np.empty((total, predicates))
    start = 0
    rng = for_subscriptions
    for count in sampling.in_chunks(total):
        rows = slice(start, start + count)
        centres = sampling.places(rng, clusters, count)
        reach = rng.uniform(*config.MO_RADIUS_KM, (count, 1))
        boxes[rows] = np.hstack([centres - reach, centres + reach])
        attribute[rows] = sampling.choose_attributes(rng, count, config.MO_ATTRIBUTES, predicates, exponent)
        ends = np.sort(rng.random((count, predicates, 2)), axis=2)
        low[rows], high[rows] = ends[:, :, 0], ends[:, :, 1]
        start += count

    def table(rows: slice) -> SubscriptionTable:
        count = len(boxes[rows])
        intervals = (
            np.arange(count + 1, dtype=np.int64) * predicates,
            attribute[rows].ravel(),
            low[rows].ravel(),
            high[rows].ravel(),
        )
        return SubscriptionTable.from_arrays(boxes[rows], *_no_words(count), intervals=intervals, space=space)

    events = sampling.places(for_messages, clusters, messages)
    fewest, most = config.MO_EVENT_ATTRIBUTES
    eager = sampling.choose_attributes(for_messages, messages, config.MO_ATTRIBUTES, most, exponent)
    present = np.arange(most) < for_messages.integers(fewest, most, (messages, 1), endpoint=True)
    attributes = np.full((messages, config.MO_ATTRIBUTES), np.nan)
    np.put_along_axis(
        attributes, eager, np.where(present, for_messages.random((messages, most)), np.nan), axis=1
    )
    return Workload(
        name="mo-tree",
        seed=seed,
        description="numeric attributes by a Zipf law, hot spots in a city; the MO-Tree paper's Table 4",
        subscriptions=table(slice(0, subscriptions)),
        newcomers=table(slice(subscriptions, total)),
        messages=MessageBatch.from_arrays(events, *_no_words(messages), attributes=attributes, space=space),
        facts={
            "attributes": config.MO_ATTRIBUTES,
            "attributes_per_message": list(config.MO_EVENT_ATTRIBUTES),
            "predicates_per_subscription": predicates,
            "zipf_exponent": exponent,
            "radius_km": list(config.MO_RADIUS_KM),
            "city_km": config.MO_CITY_KM,
            "hot_spots": config.MO_HOT_SPOTS,
            "hot_spot_spread": config.MO_HOT_SPOT_SPREAD,
            "background_share": config.MO_BACKGROUND,
        },
    )


def real(
    name: str,
    data: Path,
    subscriptions: int,
    messages: int,
    *,
    seed: int = 0,
    newcomers: int = 0,
    recipe: Recipe = PLAIN,
) -> Workload:
    """Return real messages from a file in *data*, and subscriptions made from other rows by the AP-Tree recipe.

    Only rows inside the contiguous United States with at least one word are used. A random half of them are messages.
    Subscriptions are made from those rows of the other half that have at least as many words as the recipe requires. If
    there are not enough rows, they are used repeatedly; a subscription made from a repeated row is moved a little.
    """
    points, rows, vocabulary = texts(name, data)
    world, for_messages, for_subscriptions = _streams(seed)
    order = world.permutation(len(points))
    half = len(order) // 2
    chosen = _drawn(for_messages, order[:half], messages)
    if recipe.message_keywords is None:
        words = sampling.take(rows, chosen)
    else:
        law = sampling.shares(np.bincount(rows.words, minlength=len(vocabulary)).astype(np.float64))
        words = sampling.distinct_words(for_messages, law, messages, recipe.message_keywords)

    pool = order[half:]
    pool = pool[np.diff(rows.offsets)[pool] >= recipe.keywords[0]]
    sources = _drawn(for_subscriptions, pool, subscriptions + newcomers)
    pieces = []
    for part in np.split(sources, np.cumsum(sampling.in_chunks(sources.size))[:-1]):
        centres = points[part]
        if sources.size > pool.size:
            centres = centres + for_subscriptions.normal(0.0, _JITTER_DEG, centres.shape)
        pieces.append(_regions(for_subscriptions, centres, sampling.take(rows, part), CONTIGUOUS_US, recipe))
    table, more = _tables(for_subscriptions, sampling.joined(pieces), subscriptions, WGS84, recipe)
    return Workload(
        name=name,
        seed=seed,
        description=f"real {name} of the contiguous US; subscriptions by the AP-Tree paper's recipe",
        subscriptions=table,
        newcomers=more,
        messages=_batch(for_messages, points[chosen], words, CONTIGUOUS_US, WGS84, recipe),
        facts={
            "rows": len(points),
            "vocabulary": len(vocabulary),
            "keywords_per_message": round(words.words.size / messages, 2),
            **_facts(recipe),
        },
    )


def _streams(seed: int) -> list[np.random.Generator]:
    """Return independent generators: for what both sides share, for the messages and for the subscriptions."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3)]


def _regions(
    rng: np.random.Generator, points: NDArray[np.float64], rows: Ragged, extent: Extent, recipe: Recipe
) -> Regions:
    return sampling.regions_from(rng, points, rows, extent, keywords=recipe.keywords, area=recipe.area)


def _tables(
    rng: np.random.Generator, regions: Regions, first: int, space: Space, recipe: Recipe
) -> tuple[SubscriptionTable, SubscriptionTable]:
    """Split into the first *first* subscriptions and the newcomers."""
    boxes, words = regions
    if recipe.drifting:
        west = boxes[:, 0] + boxes[:, 2]
        order = np.argsort(west + rng.uniform(0.0, np.ptp(west), len(west)))
        boxes, words = boxes[order], sampling.take(words, order)
    if recipe.boolean:
        return _expressions(rng, boxes, words, first, space, recipe)
    offsets, codes = words
    cut = offsets[first]
    return (
        SubscriptionTable.from_arrays(boxes[:first], offsets[: first + 1], codes[:cut], space=space),
        SubscriptionTable.from_arrays(boxes[first:], offsets[first:] - cut, codes[cut:], space=space),
    )


def _expressions(
    rng: np.random.Generator,
    boxes: NDArray[np.float64],
    words: Ragged,
    first: int,
    space: Space,
    recipe: Recipe,
) -> tuple[SubscriptionTable, SubscriptionTable]:
    """Return the same for subscriptions that join a fixed number of words by AND and OR."""
    fewest, most = recipe.keywords
    if fewest != most:
        raise InputError(f"Boolean subscriptions cannot have {fewest} to {most} keywords; give one number")
    owners, clauses = sampling.expressions(rng, len(boxes), most)
    starts = np.repeat(words.offsets[owners], np.diff(clauses.offsets))
    table = SubscriptionTable.from_arrays(
        boxes[owners], clauses.offsets, words.words[starts + clauses.words], owners=owners, space=space
    )
    return table.take(np.arange(first)), table.take(np.arange(first, len(table)))


def _batch(
    rng: np.random.Generator,
    points: NDArray[np.float64],
    words: Ragged,
    extent: Extent,
    space: Space,
    recipe: Recipe,
) -> MessageBatch:
    """Return the messages as points, or as boxes around them if the recipe says so."""
    if recipe.message_area is None:
        return MessageBatch.from_arrays(points, words.offsets, words.words, space=space)
    boxes = sampling.around(rng, points, extent, recipe.message_area)
    return MessageBatch.from_arrays(None, words.offsets, words.words, boxes=boxes, space=space)


def _facts(recipe: Recipe) -> dict[str, Any]:
    """Return the numbers of the recipe that differ from the defaults."""
    facts: dict[str, Any] = {
        "keywords_per_subscription": list(recipe.keywords),
        "area_share": list(recipe.area),
    }
    if recipe.message_area:
        facts["message_area_share"] = list(recipe.message_area)
    return facts | {name: True for name in ("boolean", "drifting") if getattr(recipe, name)}


def _no_words(rows: int) -> Ragged:
    return Ragged(np.zeros(rows + 1, np.int64), np.empty(0, np.int32))


def _drawn(rng: np.random.Generator, pool: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return *count* members of *pool*: the first ones if they suffice, else draws with repetition."""
    return pool[:count] if count <= pool.size else rng.choice(pool, count)
