"""Distributions: which shards store a subscription, and which shards a message is sent to.

=====================  ================================  =====================================  ====================
name                   a subscription is stored in       a message is sent to                   good for
=====================  ================================  =====================================  ====================
``hash``               the shard of its id               all shards                             few shards
``location``           the cells that it touches         the cell of its place                  small regions
``keyword``            the shards of its rarest words    the shards of its words                rare words
``location-keyword``   cells, then words                 its cell's shards for its words        crowded places
``keyword-location``   words, then cells                 its words' cells for its place         frequent words
``auto``               the one whose busiest shard has the least work, without too many copies
=====================  ================================  =====================================  ====================

All are exact: a message and a subscription that match have a shard in common, and the first such shard delivers.

The first three start from section 7.3 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe
Over Sliding Window" (2017): ``hash`` is Equation 14; ``location`` and ``keyword`` say in their modules how they depart
from Algorithms 3 and 4. The hybrids are not in the paper.

>>> from nearcast import SubscriptionTable
>>> table = SubscriptionTable.from_arrays([[0, 0, 1, 1], [2, 2, 3, 3]], [0, 1, 2], [7, 7])
>>> spread = distribute("location", table, 2)
>>> spread, spread.route_subscriptions(table).shards  # the cut goes through the second box
(<location distribution over 2 shards>, array([0, 0, 1], dtype=int32))
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.ragged import runs_take
from nearcast.errors import UnknownError, shown, whole_number
from nearcast.sharding.distribution.base import Distribution, Sample
from nearcast.sharding.distribution.figures import Figures, measure
from nearcast.sharding.distribution.hashed import Hash
from nearcast.sharding.distribution.hybrid import KeywordLocation, LocationKeyword
from nearcast.sharding.distribution.keyword import Keyword
from nearcast.sharding.distribution.location import Location
from nearcast.sharding.distribution.routes import Routes, delivering_shards, keep_delivered

__all__ = [
    "DISTRIBUTIONS",
    "Distribution",
    "Figures",
    "Routes",
    "Sample",
    "check_choice",
    "compare",
    "delivering_shards",
    "distribute",
    "draw_sample",
    "fit",
    "keep_delivered",
    "measure",
    "preference",
]

DISTRIBUTIONS: dict[str, type[Distribution]] = {
    distribution.name: distribution
    for distribution in (Hash, Location, Keyword, LocationKeyword, KeywordLocation)
}


def distribute(
    name: str,
    table: SubscriptionTable,
    shards: int,
    *,
    messages: MessageBatch | None = None,
    weight: float = 1.0,
) -> Distribution:
    """Return the distribution of this name over *shards* shards, fitted to *table*.

    Parameters
    ----------
    name
        One of :data:`DISTRIBUTIONS`, or ``auto``.
    table
        All subscriptions, or a sample of them; a distribution that was fitted to a sample has to grow
        (:meth:`~Distribution.grown`) before it routes the others.
    shards
        How many, from 1 to 1,024.
    messages
        A sample of the messages to come, coded like *table*; without it, messages are made from the subscriptions.
    weight
        How many subscriptions each one in *table* stands for.
    """
    sample = draw_sample(table, messages, weight)
    if name == "auto":
        name = compare(sample, shards)[0].distribution
    return fit(name, sample, shards)


def compare(sample: Sample, shards: int) -> list[Figures]:
    """Return the figures of every distribution over *shards* shards, the best first."""
    return sorted((measure(fit(name, sample, shards), sample) for name in DISTRIBUTIONS), key=preference)


def preference(figures: Figures) -> tuple[bool, float]:
    """Return the key by which ``auto`` chooses the least: too many copies, then the load of the busiest shard."""
    return figures.replication > config.SHARD_COPIES, figures.bottleneck_ns


def fit(name: str, sample: Sample, shards: int) -> Distribution:
    """Return the distribution of this name, fitted to *sample*."""
    shards = check_choice(name, shards)
    return DISTRIBUTIONS[name].fit(sample, shards)


def check_choice(name: str, shards: int) -> int:
    """Return the number of shards; raise unless it may be that, and there is a distribution of this name."""
    if name not in DISTRIBUTIONS:
        raise UnknownError(
            f"there is no distribution {shown(name)}; there are {', '.join(DISTRIBUTIONS)}, auto"
        )
    return whole_number("shards", shards, 1, config.SHARDS_MOST)


def draw_sample(
    table: SubscriptionTable, messages: MessageBatch | None = None, weight: float = 1.0
) -> Sample:
    """Return what distributions are fitted to: subscriptions of this weight, and a limited number of messages.

    Without messages, some are made from clauses: each has the words of a clause and lies in the middle of its box.
    """
    if messages is None:
        finite = np.flatnonzero(np.isfinite(table.clauses.boxes).all(axis=1))
        rows = finite[_spread_rows(len(finite))]
        boxes = table.clauses.boxes[rows]
        words = runs_take(table.clauses.keyword_runs, table.clauses.keywords, rows)
        messages = MessageBatch.from_arrays((boxes[:, :2] + boxes[:, 2:]) / 2, *words, space=table.space)
        messages = replace(messages, coding=table.coding)
    else:
        messages = messages.take(_spread_rows(len(messages)))
    return Sample(table, messages, weight)


def _spread_rows(size: int) -> NDArray[np.int64]:
    """Return rows spread evenly over *size* rows, at most as many as a sample may have."""
    return np.arange(size)[:: max(1, -(-size // config.SHARD_SAMPLE))]
