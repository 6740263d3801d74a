"""Open what was saved: the index of one directory, or a version in several shards."""

from __future__ import annotations

from pathlib import Path

from nearcast.matching import Index, open_one
from nearcast.sharding.version import Sharded, is_sharded
from nearcast.storage.directory import current

__all__ = ["open_index"]


def open_index(directory: str | Path, *, verify: bool = False) -> Index | Sharded:
    """Open a saved index: its arrays are mapped copy-on-write, so that many processes share the pages.

    What this process changes stays private to it. Opening reads no array; ``verify=True`` reads all and compares
    checksums. *directory* may also hold several versions: then the one that its file ``CURRENT`` names is opened. A
    version of several shards answers as one index; it cannot be changed.
    """
    directory = current(Path(directory))
    if is_sharded(directory):
        return Sharded(directory, verify=verify)
    return open_one(directory, verify=verify)
