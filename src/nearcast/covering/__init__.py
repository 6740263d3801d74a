"""Subscriptions that cover others, and which of them must be forwarded between brokers."""

from nearcast.covering.graph import RelationGraph, Replayed, Subscribed, Unsubscribed

__all__ = ["RelationGraph", "Replayed", "Subscribed", "Unsubscribed"]
