"""MO-Tree: attribute values and places in one structure; messages are kept in :mod:`nearcast.matching.messages`."""

from nearcast.matching.structures.mo_tree.index import MOTree

__all__ = ["MOTree"]
