"""The stores of valid messages by name; see :mod:`.store`.

==============  =====================================================================================
``auto``        a scan while messages are few, an MO-Tree from then on; the default
``packed``      lists by cell, packed by place, with signatures of words
``cell-lists``  lists by cell, with signatures of words: cheap to change; those of the AP+-Tree
``mo-tree``     disjoint cells of place and attribute values
``ss-lists``    a grid file, with inverted lists in its cells: a rival
``kk-lists``    inverted lists, with a grid file inside each: a rival
``iq-tree``     a quadtree, with inverted lists in its cells: a rival
``rq-tree``     inverted lists, with a quadtree inside each long one: a rival
``beq-tree``    a quadtree with sorted lists of values in its cells, and counting: a rival
``r-star-tree`` boxes over place and attributes, in the R*-Tree of libspatialindex: a rival
``scan``        tests every message: the oracle and the fallback
==============  =====================================================================================
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.rows.messages import MessageRows
from nearcast.errors import UnknownError, shown
from nearcast.matching.messages.store import MessageStore
from nearcast.matching.structure import MessageStructure, Progress, Structure
from nearcast.registry import Registry

__all__ = ["STORES", "build_store", "check_parameters", "open_store"]

STORES: Registry[type[MessageStructure]] = Registry(
    {
        "auto": "nearcast.matching.messages.auto:MessageAuto",
        "packed": "nearcast.matching.messages.packed:MessagePacked",
        "cell-lists": "nearcast.matching.messages.cell_lists:MessageCellLists",
        "mo-tree": "nearcast.matching.messages.mo_tree:MessageMOTree",
        "ss-lists": "nearcast.matching.rivals.grid_messages:SSMessages",
        "kk-lists": "nearcast.matching.rivals.grid_messages:KKMessages",
        "iq-tree": "nearcast.matching.rivals.quadtree_messages:IQMessages",
        "rq-tree": "nearcast.matching.rivals.quadtree_messages:RQMessages",
        "beq-tree": "nearcast.matching.rivals.beq_tree:BEQTree",
        "r-star-tree": "nearcast.matching.rivals.r_star_tree_store:MessageRStarTree",
        "scan": "nearcast.matching.messages.scan:MessageScan",
    }
)


def build_store(
    name: str | MessageBatch,
    batch: MessageBatch | None = None,
    *,
    subscriptions: SubscriptionTable | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> MessageStore:
    """Build a store of messages: the one called *name*, or the default one for a batch alone.

    Parameters
    ----------
    name
        One of :data:`STORES`; it may be left out.
    batch
        The first messages, possibly none; the store copies them.
    subscriptions
        A sample of the subscriptions to come, from which cost models learn.
    progress
        Called with the current step and the share of it that is done, from 0 to 1.
    parameters
        The parameters of the structure, by name, if it has any; its class describes them.

    >>> store = build_store("scan", MessageBatch.from_arrays([[1, 1], [5, 5]], [0, 1, 2], [7, 7], expires_at=[10, 20]))
    >>> late = SubscriptionTable.from_arrays([[0, 0, 9, 9]], [0, 1], [7])
    >>> store.match(late, now=10)[0], len(store)
    (array([1], dtype=int32), 1)
    """
    if isinstance(name, MessageBatch) and batch is None:
        batch, name = name, config.DEFAULT_STORE
    if not isinstance(name, str) or name not in STORES:
        raise UnknownError(f"there is no store {shown(name)}; there are {', '.join(STORES)}")
    if not isinstance(batch, MessageBatch):
        raise UnknownError(
            f"a store is built over a MessageBatch, not {shown(batch)}; "
            "make one with MessageBatch.from_arrow, from_messages or from_arrays"
        )
    if subscriptions is not None and not subscriptions.coding.fits(batch.coding):
        raise UnknownError(
            "the sample of subscriptions is coded by another vocabulary than the messages; "
            "make both like the same table"
        )
    structure = STORES[name]
    check_parameters("store", structure, parameters)
    sample = None if subscriptions is None else subscriptions.clauses
    return MessageStore.built(structure(MessageRows(batch), **parameters), sample, progress)


def open_store(directory: str | Path, *, verify: bool = False) -> MessageStore:
    """Open a saved store of messages, as :func:`~nearcast.open_index` opens an index."""
    return MessageStore.opened(directory, STORES, verify=verify)


def check_parameters(kind: str, structure: type[Structure[Any, Any]], parameters: dict[str, Any]) -> None:
    """Raise an error for a parameter that the structure of an index or a store does not have."""
    unknown = sorted(set(parameters) - set(structure.parameters))
    if unknown:
        known = f"it has {', '.join(structure.parameters)}" if structure.parameters else "it has none"
        raise UnknownError(f"the {kind} {structure.name!r} has no parameter {unknown[0]!r}; {known}")
