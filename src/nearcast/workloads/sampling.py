"""Seeded random rows: Zipf words, clustered places, and subscriptions made from messages.

The loops are kernels that draw from a NumPy generator: a million subscriptions take about a second, and the same seed
gives the same rows on any machine. The AP-Tree paper is Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support
Location-Aware Publish/Subscribe" (2015).
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearcast.kernels import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = [
    "Clusters",
    "Extent",
    "Ragged",
    "Regions",
    "Zipf",
    "around",
    "choose_attributes",
    "clustered",
    "distinct_words",
    "expressions",
    "in_chunks",
    "joined",
    "places",
    "regions_from",
    "shares",
    "take",
    "zipf",
]

_CHUNK = 1 << 18  # rows made at a time, which bounds the memory of intermediate results


class Ragged(NamedTuple):
    """Rows of words of different lengths: row i is ``words[offsets[i]:offsets[i + 1]]``."""

    offsets: NDArray[np.int64]
    words: NDArray[np.int32]


class Regions(NamedTuple):
    """A box and some keywords for each subscription, as :func:`regions_from` makes them."""

    boxes: NDArray[np.float64]
    keywords: Ragged


class Extent(NamedTuple):
    """The rectangle in which all places lie."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float

    @property
    def low(self) -> NDArray[np.float64]:
        """The lower left corner."""
        return np.array([self.xmin, self.ymin])

    @property
    def size(self) -> NDArray[np.float64]:
        """Width and height."""
        return np.array([self.xmax - self.xmin, self.ymax - self.ymin])


class Zipf(NamedTuple):
    """A distribution to draw words from: cumulative shares, and a guide from equal steps to positions in them."""

    cumulative: NDArray[np.float64]
    guide: NDArray[np.int32]


@lru_cache(maxsize=4)  # the experiments draw many workloads from one distribution
def zipf(size: int, exponent: float) -> Zipf:
    """Return the distribution in which word r (from 0) has a share proportional to ``(r + 1) ** -exponent``.

    >>> zipf(3, 1.0).cumulative.round(3)
    array([0.545, 0.818, 1.   ])
    """
    return shares(np.arange(1, size + 1, dtype=np.float64) ** -exponent)


def shares(weights: NDArray[np.float64]) -> Zipf:
    """Return the distribution in which each word's share is proportional to its weight, such as its count in texts."""
    cumulative = np.cumsum(weights)
    cumulative /= cumulative[-1]
    size = len(cumulative)
    guide = np.searchsorted(cumulative, np.arange(size) / size, side="right").astype(np.int32)
    return Zipf(cumulative, guide)


@kernel
def _draw(rng: np.random.Generator, law: Zipf) -> int:
    """Draw one word by inversion: the guide leads to the right neighbourhood, and about one step is left."""
    share = rng.random()
    word = law.guide[int(share * law.guide.size)]
    while law.cumulative[word] <= share:
        word += 1
    return int(word)


@kernel
def _fill_distinct(rng: np.random.Generator, law: Zipf, out: NDArray[np.int32]) -> None:
    """Fill each row of *out* with the first distinct words of an endless series of draws."""
    for row in range(out.shape[0]):
        filled = 0
        while filled < out.shape[1]:
            word = _draw(rng, law)
            known = False
            for i in range(filled):
                known |= out[row, i] == word
            if not known:
                out[row, filled] = word
                filled += 1


@kernel
def _pick(rng: np.random.Generator, rows: Ragged, offsets: NDArray[np.int64], out: NDArray[np.int32]) -> None:
    """Write as many distinct random words of each row as *offsets* has room for; shuffles the rows."""
    for row in range(offsets.size - 1):
        start, end = rows.offsets[row], rows.offsets[row + 1]
        for i in range(offsets[row + 1] - offsets[row]):
            other = start + i + int(rng.random() * (end - start - i))
            word = rows.words[other]
            rows.words[other] = rows.words[start + i]
            rows.words[start + i] = word
            out[offsets[row] + i] = word


def distinct_words(rng: np.random.Generator, law: Zipf, rows: int, per_row: int) -> Ragged:
    """Return *rows* rows of exactly *per_row* distinct words each, or of all words that *law* has."""
    words = np.empty((rows, min(per_row, law.guide.size)), np.int32)
    _fill_distinct(rng, law, words)
    return Ragged(np.arange(rows + 1, dtype=np.int64) * words.shape[1], words.ravel())


class Clusters(NamedTuple):
    """Clusters of places: centres with Zipf weights, their spread, and the share of places that lie anywhere."""

    extent: Extent
    centres: NDArray[np.float64]
    law: Zipf
    spread: float
    background: float


def clustered(
    rng: np.random.Generator, extent: Extent, centres: int, spread: float, background: float
) -> Clusters:
    """Return *centres* random cluster centres; *spread* is one standard deviation in widths of the extent.

    Centres keep three standard deviations away from the edges, so that hardly any place has to be moved back inside.
    """
    inside = rng.uniform(3 * spread, 1 - 3 * spread, (centres, 2))
    return Clusters(extent, inside, zipf(centres, 1.0), spread, background)


def places(rng: np.random.Generator, clusters: Clusters, count: int) -> NDArray[np.float64]:
    """Return *count* points: most around the centres, the background share uniform over the extent."""
    chosen = np.searchsorted(clusters.law.cumulative, rng.random(count), side="right")
    unit = clusters.centres[chosen] + clusters.spread * rng.standard_normal((count, 2))
    anywhere = rng.random(count) < clusters.background
    unit[anywhere] = rng.random((int(anywhere.sum()), 2))
    return np.asarray(clusters.extent.low + np.clip(unit, 0.0, 1.0) * clusters.extent.size)


def regions_from(
    rng: np.random.Generator,
    points: NDArray[np.float64],
    rows: Ragged,
    extent: Extent,
    *,
    keywords: tuple[int, int],
    area: tuple[float, float],
) -> Regions:
    """Turn messages into subscriptions by the recipe of the AP-Tree paper (section 5.1.1).

    Each takes j of its message's keywords, where j is uniform in *keywords* (all of them, if the message has fewer).
    Its region is a box around the message's place in the proportions of *extent*, whose share of the area is uniform
    in *area*. Shuffles the words within each of the *rows*.
    """
    available = np.diff(rows.offsets)
    wanted = np.minimum(rng.integers(keywords[0], keywords[1], available.size, endpoint=True), available)
    offsets = np.concatenate([[0], np.cumsum(wanted)])
    words = np.empty(offsets[-1], np.int32)
    _pick(rng, rows, offsets, words)
    return Regions(around(rng, points, extent, area), Ragged(offsets, words))


def around(
    rng: np.random.Generator, points: NDArray[np.float64], extent: Extent, area: tuple[float, float]
) -> NDArray[np.float64]:
    """Return a box around each point in the proportions of *extent*, its share of the area uniform in *area*."""
    half = 0.5 * np.sqrt(rng.uniform(area[0], area[1], len(points)))[:, None] * extent.size
    return np.hstack([points - half, points + half])


def expressions(rng: np.random.Generator, rows: int, keywords: int) -> tuple[NDArray[np.int32], Ragged]:
    """Draw a Boolean expression over *keywords* (at least 2) words per row, as in section 5.1.1 of the AP-Tree paper.

    The words are cut in two at a random place; each part becomes a conjunction or a disjunction, and the two are
    joined by AND or OR. Returns the clauses of the disjunctive normal form: which row each belongs to, and the
    positions (from 0) of its words.
    """
    patterns = list(_patterns(keywords))
    clauses = [clause for pattern in patterns for clause in pattern]
    # The number of each pattern's first clause.
    first = np.cumsum([0, *(len(pattern) for pattern in patterns)])
    numbered = Ragged(first, np.arange(len(clauses), dtype=np.int32))
    chosen = take(numbered, rng.integers(len(patterns), size=rows))
    owners = np.repeat(np.arange(rows, dtype=np.int32), np.diff(chosen.offsets))
    return owners, take(_ragged(clauses), chosen.words.astype(np.int64))


def _patterns(keywords: int) -> Iterator[list[list[int]]]:
    """Yield the normal form of every way to cut *keywords* words in two and to connect the parts."""
    for cut in range(1, keywords):
        left, right = list(range(cut)), list(range(cut, keywords))
        for left_clauses, right_clauses in itertools.product(
            ([left], [[word] for word in left]), ([right], [[word] for word in right])
        ):
            yield [a + b for a, b in itertools.product(left_clauses, right_clauses)]
            yield left_clauses + right_clauses


def _ragged(rows: list[list[int]]) -> Ragged:
    lengths = [len(row) for row in rows]
    return Ragged(
        np.concatenate([[0], np.cumsum(lengths)]), np.array([w for row in rows for w in row], np.int32)
    )


def take(rows: Ragged, chosen: NDArray[np.int64]) -> Ragged:
    """Return a copy of the chosen rows, in that order."""
    lengths = np.diff(rows.offsets)[chosen]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    return Ragged(offsets, rows.words[np.repeat(rows.offsets[chosen], lengths) + within])


def in_chunks(total: int) -> list[int]:
    """Return the sizes of the pieces in which *total* rows are made.

    >>> sum(in_chunks(1_000_000)), len(in_chunks(1_000_000))
    (1000000, 4)
    """
    return [min(_CHUNK, total - start) for start in range(0, total, _CHUNK)]


def joined(pieces: list[Regions]) -> Regions:
    """Put pieces of subscriptions one after the other."""
    lengths = np.concatenate([np.diff(piece.keywords.offsets) for piece in pieces])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    words = np.concatenate([piece.keywords.words for piece in pieces])
    return Regions(np.concatenate([piece.boxes for piece in pieces]), Ragged(offsets, words))


def choose_attributes(
    rng: np.random.Generator, rows: int, attributes: int, chosen: int, exponent: float
) -> NDArray[np.int32]:
    """Return for each row *chosen* distinct attributes out of *attributes*, drawn by a Zipf law, in the order drawn.

    Drawing without replacement is sorting by exponential waiting times whose rates are the weights.
    """
    rates = np.arange(1, attributes + 1, dtype=np.float64) ** -exponent
    waits = rng.standard_exponential((rows, attributes)) / rates
    return np.argsort(waits, axis=1)[:, :chosen].astype(np.int32)
