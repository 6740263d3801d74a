"""Subscriptions in shards: distributions, versions of an index in several shards, replicas with the changes since."""

from nearcast.sharding.opening import open_index

__all__ = ["open_index"]
