"""Who wants this message, and which messages does this subscription want? Exact indexes over either side.

Indexes over subscriptions are all behind one interface, and so are the stores of messages (:mod:`.messages`). Both
meet where subscriptions move (:mod:`.moving`).

==============  =====================================================================================
``auto``        picks the structure by cost; the default
``scan``        tests every clause: the oracle and the fallback
``ranked-list`` each clause under its rarest keyword; those without keywords in a grid
``packed-list`` the same with long lists packed by place, and postings that decide by themselves
``ap-tree``     partitioned by keywords or by space, node by node, as a cost model decides [1]
``mbr-trie``    a trie over sorted token sets with bounding boxes [2, section 3]
``pt-quadtree`` a quadtree over boxes with pivotal tokens [2, section 4]
``lfilter``     both of these, and a cost model that picks one for each message [2, section 5]
``mo-tree``     overlapping cells for intervals of places and attribute values [3]
``iq-tree``     a rival in [1]: a quadtree, with ranked-key lists in its cells
``rq-tree``     a rival in [1]: ranked-key lists, with a quadtree inside each long one
``ss-lists``    a rival in [1]: a grid file, with ranked-key lists in its cells
``kk-lists``    a rival in [1]: ranked-key lists, with a grid file inside each
``rt-tree``     a rival in [1] and [2]: the R^t++-Tree, an R-tree with token filters
``tama``        a rival in [3]: counts predicates over cells of several levels
``op-index``    a rival in [3]: counts predicates under pivot attributes, by operator
``r-star-tree`` a rival in [3]: boxes over place and attributes (needs nearcast[bench])
==============  =====================================================================================

1. Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015)
2. Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015)
3. Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for Spatiotemporal-aware Pub/Sub
   Systems" (2021)

:func:`build_index` builds one by name; :func:`open_one` maps a saved one into memory. An :class:`Index` holds one
*structure*: a subclass of :class:`~.structure.Structure` that is listed in :data:`INDEXES`. The contract suite tests
every structure in that list.
"""

from __future__ import annotations

from nearcast.matching.index import Index
from nearcast.matching.indexes import INDEXES, build_index, open_one
from nearcast.matching.messages import STORES, build_store, open_store
from nearcast.matching.messages.store import MessageStore
from nearcast.matching.moving import MOVING, MovingIndex

__all__ = [
    "INDEXES",
    "MOVING",
    "STORES",
    "Index",
    "MessageStore",
    "MovingIndex",
    "build_index",
    "build_store",
    "open_one",
    "open_store",
]
