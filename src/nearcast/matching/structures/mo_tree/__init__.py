"""MO-Tree: attribute values and places in one structure.

After Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for Spatiotemporal-aware Pub/Sub
Systems" (2021); "the paper" in this package is theirs. This is the index over subscriptions;
:mod:`nearcast.matching.messages` has the store of messages.
"""

from nearcast.matching.structures.mo_tree.index import MOTree

__all__ = ["MOTree"]
