"""The rivals of the AP+-Tree: pairs of an index and a store that the paper compares it with, and doing it from scratch.

Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015), section 5.2.1
and Figure 20. All but the two from scratch evaluate only what a move changes (Algorithm 6).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.regions import relocated
from nearcast.matching.indexes import build_index
from nearcast.matching.messages import build_store
from nearcast.matching.messages.moves import apart
from nearcast.matching.moving.pair import Changes, Pair

__all__ = [
    "ap_plus_k_tree",
    "ap_plus_s_tree",
    "iq_plus_tree",
    "kk_index",
    "mo_tree_scratch",
    "rq_plus_tree",
    "scratch",
    "ss_index",
]

# The index of subscriptions in the variants of the AP+-Tree that keep messages apart (Figure 20).
_AP_PLUS_TREE = "ap-tree"


def ss_index(
    subscriptions: SubscriptionTable, messages: MessageBatch, side: int = config.GRID_FILE_SIDE
) -> Pair:
    """Return the SS-Index, space first on both sides; *side* is the number of columns and rows of its grids."""
    return Pair(
        build_index("ss-lists", subscriptions, side=side), build_store("ss-lists", messages, side=side)
    )


def kk_index(
    subscriptions: SubscriptionTable, messages: MessageBatch, side: int = config.GRID_FILE_SIDE
) -> Pair:
    """Return the KK-Index, words first on both sides; *side* is as in the SS-Index."""
    return Pair(
        build_index("kk-lists", subscriptions, side=side), build_store("kk-lists", messages, side=side)
    )


def iq_plus_tree(subscriptions: SubscriptionTable, messages: MessageBatch) -> Pair:
    """Return the IQ+-Tree: a quadtree with lists of words, on both sides."""
    return Pair(_learned("iq-tree", subscriptions, messages), build_store("iq-tree", messages))


def rq_plus_tree(subscriptions: SubscriptionTable, messages: MessageBatch) -> Pair:
    """Return the RQ+-Tree: lists of words with quadtrees inside, on both sides."""
    return Pair(_learned("rq-tree", subscriptions, messages), build_store("rq-tree", messages))


def ap_plus_k_tree(
    subscriptions: SubscriptionTable, messages: MessageBatch, side: int = config.GRID_FILE_SIDE
) -> Pair:
    """Return the AP+k-Tree: an AP+-Tree of subscriptions, and messages apart, words first."""
    store = build_store("kk-lists", messages, side=side)
    return Pair(_learned(_AP_PLUS_TREE, subscriptions, messages), store)


def ap_plus_s_tree(
    subscriptions: SubscriptionTable, messages: MessageBatch, side: int = config.GRID_FILE_SIDE
) -> Pair:
    """Return the AP+s-Tree: an AP+-Tree of subscriptions, and messages apart, space first."""
    store = build_store("ss-lists", messages, side=side)
    return Pair(_learned(_AP_PLUS_TREE, subscriptions, messages), store)


def scratch(subscriptions: SubscriptionTable, messages: MessageBatch) -> Scratch:
    """Return the default pair without its way to move: subscriptions leave and come back."""
    return Scratch(build_index(subscriptions), build_store(messages))


def mo_tree_scratch(subscriptions: SubscriptionTable, messages: MessageBatch) -> Scratch:
    """Return :func:`scratch` without the packed messages: they are in an MO-Tree, found by place and then tested."""
    return Scratch(build_index(subscriptions), build_store("mo-tree", messages))


class Scratch(Pair):
    """A pair in which a move is a removal and an insertion, and all messages in both regions are found."""

    def move(self, picks: NDArray[np.int64], regions: Any, now: int | None) -> Changes:
        """Remove the subscriptions, match their old regions, insert them anew, match the new ones, and compare."""
        placed = self.index.placement(regions, len(picks))
        before = self.index.subscriptions(picks)
        after = relocated(before, placed)
        old = self.store.match(before, now)
        self.index.reinsert(picks, after)
        return Changes(*apart(old, self.store.match(after, now)))


def _learned(name: str, subscriptions: SubscriptionTable, messages: MessageBatch) -> Any:
    """Build an index whose cost model learns from the first messages, if there are any."""
    return build_index(name, subscriptions, messages=messages if messages.size else None)
