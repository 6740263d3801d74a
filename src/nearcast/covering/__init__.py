"""Subscriptions that cover others, and which of them must be forwarded between brokers."""

from nearcast.covering.graph import Arrivals, Departures, LogOutcome, RelationGraph

__all__ = ["Arrivals", "Departures", "LogOutcome", "RelationGraph"]
