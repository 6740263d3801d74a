"""MO-Tree: attribute values and places in one structure, for subscriptions and for valid messages."""

from nearcast.matching.mo_tree.index import MOTree
from nearcast.matching.mo_tree.messages import MOTreeStore

__all__ = ["MOTree", "MOTreeStore"]
