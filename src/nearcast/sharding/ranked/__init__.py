"""Distributions for top-k: which shards keep the results of a subscription, and which shards a message is sent to.

======================  ======================================  ==================================================
name                    a subscription is stored in             a message is sent to
======================  ======================================  ==================================================
``hash``                the shard of its id                     all shards
``location``            the cell of its place                   all shards, since far messages may rank, too
``keyword``             the shards of all its words             the shards of its words
``prefix``              the shards of its rarest words          the shards of its words
``location-prefix``     a cell, and shards of words inside it   in every cell, the shards of its words
``prefix-location``     groups of words, a cell inside each     all cells of the groups of its words
======================  ======================================  ==================================================

These are the four methods of section 7.3 of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe
Over Sliding Window" (2017), and the two hybrids of its section 8.2 (spatial-first and keyword-first).

There is one rule: a message that can become a result of a subscription has a shard in common with it. The first such
shard takes the message for that subscription (:func:`~nearcast.sharding.distribution.routes.delivering_shards`), so the
shards of a subscription share its candidates, and none counts twice.
"""

from __future__ import annotations

from nearcast import config
from nearcast.errors import UnknownError, shown, whole_number
from nearcast.sharding.ranked.base import RankedDistribution, RankedSample, Wishes
from nearcast.sharding.ranked.figures import RankedFigures, measure
from nearcast.sharding.ranked.hashed import Hashed
from nearcast.sharding.ranked.hybrid import LocationPrefix, PrefixLocation
from nearcast.sharding.ranked.location import Cells
from nearcast.sharding.ranked.words import Keyword, Prefix

__all__ = [
    "RANKED_DISTRIBUTIONS",
    "RankedDistribution",
    "RankedFigures",
    "RankedSample",
    "Wishes",
    "measure",
    "spread",
]

RANKED_DISTRIBUTIONS: dict[str, type[RankedDistribution]] = {
    distribution.name: distribution
    for distribution in (Hashed, Cells, Keyword, Prefix, LocationPrefix, PrefixLocation)
}


def spread(name: str, sample: RankedSample, shards: int) -> RankedDistribution:
    """Return the distribution of this name over *shards* shards, fitted to *sample*."""
    if name not in RANKED_DISTRIBUTIONS:
        raise UnknownError(
            f"there is no distribution {shown(name)}; there are {', '.join(RANKED_DISTRIBUTIONS)}"
        )
    count = whole_number("shards", shards, 1, config.SHARDS_MOST)
    return RANKED_DISTRIBUTIONS[name].fit(sample, count)
