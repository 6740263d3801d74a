"""The indexes that the papers compare theirs with, as well built as ours: exact, compiled, changeable.

==============  =====================================================================================
``iq-tree``     a quadtree, with ranked-key lists in its cells: space first
``rq-tree``     ranked-key lists, with a quadtree inside each long one: words first
==============  =====================================================================================
"""

from nearcast.matching.rivals.iq_tree import IQTree
from nearcast.matching.rivals.rq_tree import RQTree

__all__ = ["IQTree", "RQTree"]
