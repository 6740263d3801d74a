"""The structures of indexes by name, and indexes that are built by these names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.errors import UnknownError, shown
from nearcast.matching.index import Index
from nearcast.matching.messages import check_parameters
from nearcast.matching.structure import ClauseStructure, Progress
from nearcast.registry import Registry
from nearcast.storage.places import Place

__all__ = ["INDEXES", "build_index", "open_one"]

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
