"""Is this already asked for? Subscriptions that cover others, and what must be forwarded."""

from nearcast.covering.graph import RelationGraph, Replayed, Subscribed, Unsubscribed

__all__ = ["RelationGraph", "Replayed", "Subscribed", "Unsubscribed"]
