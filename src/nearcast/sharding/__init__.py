"""Subscriptions in shards: distributions, sharded versions of an index, and replicas that follow later changes."""

from nearcast.sharding.opening import open_index

__all__ = ["open_index"]
