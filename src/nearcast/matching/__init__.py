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

from pathlib import Path
from typing import Any

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.errors import UnknownError, shown
from nearcast.matching.index import Index
from nearcast.matching.messages import STORES, build_store, check_parameters, open_store
from nearcast.matching.messages.store import MessageStore
from nearcast.matching.moving import MOVING, MovingIndex
from nearcast.matching.structure import ClauseStructure, Progress
from nearcast.registry import Registry
from nearcast.storage.places import Place

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

_STRUCTURES = "nearcast.matching.structures"
_RIVALS = "nearcast.matching.rivals"

INDEXES: Registry[type[ClauseStructure]] = Registry(
    {
        "auto": f"{_STRUCTURES}.auto:Auto",
        "scan": f"{_STRUCTURES}.scan:Scan",
        "ranked-list": f"{_STRUCTURES}.ranked_list:RankedList",
        "packed-list": f"{_STRUCTURES}.packed_list:PackedList",
        "ap-tree": f"{_STRUCTURES}.ap_tree:APTree",
        "mbr-trie": f"{_STRUCTURES}.mbr_trie:MBRTrie",
        "pt-quadtree": f"{_STRUCTURES}.pt_quadtree:PTQuadtree",
        "lfilter": f"{_STRUCTURES}.lfilter:LFilter",
        "mo-tree": f"{_STRUCTURES}.mo_tree:MOTree",
        "iq-tree": f"{_RIVALS}.iq_tree:IQTree",
        "rq-tree": f"{_RIVALS}.rq_tree:RQTree",
        "ss-lists": f"{_RIVALS}.grid_lists:SSLists",
        "kk-lists": f"{_RIVALS}.grid_lists:KKLists",
        "rt-tree": f"{_RIVALS}.rt_tree:RTTree",
        "tama": f"{_RIVALS}.tama:TAMA",
        "op-index": f"{_RIVALS}.op_index:OpIndex",
        "r-star-tree": f"{_RIVALS}.r_star_tree:RStarTree",
    }
)


def build_index(
    name: str | SubscriptionTable,
    table: SubscriptionTable | None = None,
    *,
    messages: MessageBatch | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> Index:
    """Build an index over the subscriptions of *table*: the one called *name*, or ``auto`` for a table alone.

    Parameters
    ----------
    name
        One of :data:`INDEXES`; it may be left out.
    table
        The subscriptions; the index borrows its arrays until it changes them.
    messages
        A sample of the messages to be matched, from which cost models learn how likely a word or a place is; without
        one they learn from the subscriptions.
    progress
        Called with the name of each step and the share that is done, from 0 to 1.
    parameters
        The parameters of the structure, by name, if it has any; its class lists them.

    >>> subs = SubscriptionTable.from_arrays([[0, 0, 2, 2]], [0, 1], [7])
    >>> build_index("scan", subs), build_index(subs)
    (<Index scan of 1 subscription>, <Index auto of 1 subscription>)
    """
    if isinstance(name, SubscriptionTable) and table is None:
        table, name = name, config.DEFAULT_INDEX
    if not isinstance(name, str) or name not in INDEXES:
        raise UnknownError(f"there is no index {shown(name)}; there are {', '.join(INDEXES)}")
    if not isinstance(table, SubscriptionTable):
        raise UnknownError(
            f"an index is built over a SubscriptionTable, not {shown(table)}; "
            "make one with SubscriptionTable.from_arrow, from_subscriptions or from_arrays"
        )
    if messages is not None and not messages.coding.fits(table.coding):
        raise UnknownError(
            "the sample of messages is coded by another vocabulary than the subscriptions; "
            "make it with like=table"
        )
    structure = INDEXES[name]
    check_parameters("index", structure, parameters)
    sample = None if messages is None else messages.probes
    return Index.built(structure(ClauseStore(table), **parameters), sample, progress)


def open_one(directory: Path | Place, *, verify: bool = False) -> Index:
    """Open the directory of one index."""
    return Index.opened(directory, INDEXES, verify=verify)
