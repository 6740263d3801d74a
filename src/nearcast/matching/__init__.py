"""Who wants this message? Exact indexes over subscriptions, all behind one interface.

==============  =====================================================================================
``scan``        tests every clause: the oracle and the fallback
``ranked-list`` each clause under its rarest keyword; those without keywords in a grid
==============  =====================================================================================

:func:`build_index` builds one by name; :func:`open_index` maps a saved one into memory. An index is a subclass of
:class:`Matcher` that is listed in :data:`INDEXES`; the contract suite then tests it.
"""

from __future__ import annotations

from pathlib import Path

from nearcast.columns import SubscriptionTable
from nearcast.errors import IndexFileError, UnknownError, shown
from nearcast.matching import files
from nearcast.matching.matcher import Matcher
from nearcast.matching.ranked_list import RankedList
from nearcast.matching.scan import Scan

__all__ = ["INDEXES", "Matcher", "build_index", "open_index"]

INDEXES: dict[str, type[Matcher]] = {index.name: index for index in (Scan, RankedList)}


def build_index(name: str, table: SubscriptionTable) -> Matcher:
    """Build the index *name* over the subscriptions of *table*.

    >>> subs = SubscriptionTable.from_arrays([[0, 0, 2, 2]], [0, 1], [7])
    >>> build_index("scan", subs)
    <Scan of 1 subscription>
    """
    if name not in INDEXES:
        raise UnknownError(f"there is no index {shown(name)}; there are {', '.join(INDEXES)}")
    if not isinstance(table, SubscriptionTable):
        raise UnknownError(
            f"an index is built over a SubscriptionTable, not {shown(table)}; "
            "make one with SubscriptionTable.from_arrow, from_subscriptions or from_arrays"
        )
    return INDEXES[name](table)


def open_index(directory: str | Path, *, verify: bool = False) -> Matcher:
    """Open a saved index: its arrays are mapped copy-on-write, so that many processes share the pages.

    What this process changes stays private to it. Opening reads no array; ``verify=True`` reads all and compares
    checksums.
    """
    manifest, arrays = files.read(Path(directory), verify=verify)
    name = manifest["index"]
    if name not in INDEXES:
        raise IndexFileError(
            f"{directory} holds an index {shown(name)}; this version knows {', '.join(INDEXES)}"
        )
    return INDEXES[name].restored(manifest, arrays)
