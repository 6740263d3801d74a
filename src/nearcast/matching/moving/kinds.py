"""Pairs by name: which index and which store they have."""

from __future__ import annotations

from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.matching.indexes import build_index
from nearcast.matching.messages import build_store
from nearcast.matching.moving.pair import Pair

__all__ = ["auto", "scan"]


def auto(subscriptions: SubscriptionTable, messages: MessageBatch) -> Pair:
    """Return the default: each side in the structure that suits it."""
    return Pair(build_index("auto", subscriptions), build_store("auto", messages))


def scan(subscriptions: SubscriptionTable, messages: MessageBatch) -> Pair:
    """Return the oracle: every clause and every message is looked at."""
    return Pair(build_index("scan", subscriptions), build_store("scan", messages))
