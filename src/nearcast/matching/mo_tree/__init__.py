"""MO-Tree: attribute values and places in one structure, for subscriptions and for valid messages."""

from nearcast.matching.mo_tree.index import MOTree

__all__ = ["MOTree"]
