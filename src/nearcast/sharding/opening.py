"""Open a saved index, whether it is in one piece or in several shards."""

from __future__ import annotations

from pathlib import Path

from nearcast.matching import Index, open_one
from nearcast.sharding.version import KIND, ShardedVersion
from nearcast.storage.current import current
from nearcast.storage.manifest import read_manifest
from nearcast.storage.places import Place

__all__ = ["open_index"]


def open_index(directory: str | Path | Place, *, verify: bool = False) -> Index | ShardedVersion:
    """Open a saved index: its arrays are mapped copy-on-write, so that many processes share the pages.

    Changes made by this process stay private to it. Every array that could lead a kernel astray is checked against
    its checksum; with ``verify=True`` all arrays are, coordinates included. Damage raises
    :class:`~nearcast.IndexFileError`.

    *directory* is a path or a URI (``s3:``, ``gs:``, ``abfss:``, ``hdfs:``); what is not on a disk is fetched once into
    a cache of this machine. It may also hold several versions: then the one that its file ``CURRENT`` names is opened.
    A version with several shards answers as one index does; it cannot be changed.
    """
    found = current(directory)
    if read_manifest(found).kind == KIND:
        return ShardedVersion(found.local or found.uri, verify=verify)
    return open_one(found, verify=verify)
