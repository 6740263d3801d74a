"""Open what was saved: the index of one directory, or a version in several shards."""

from __future__ import annotations

from pathlib import Path

from nearcast.matching import Index, open_one
from nearcast.sharding.version import KIND, Sharded
from nearcast.storage.current import current
from nearcast.storage.manifest import read_manifest

__all__ = ["open_index"]


def open_index(directory: str | Path, *, verify: bool = False) -> Index | Sharded:
    """Open a saved index: its arrays are mapped copy-on-write, so that many processes share the pages.

    What this process changes stays private to it. Whatever could lead a kernel astray is compared with its checksum;
    with ``verify=True`` everything is, coordinates too. Damage is an :class:`~nearcast.IndexFileError`.

    *directory* may also hold several versions: then the one that its file ``CURRENT`` names is opened. A version of
    several shards answers as one index; it cannot be changed.
    """
    directory = current(Path(directory))
    if read_manifest(directory).kind == KIND:
        return Sharded(directory, verify=verify)
    return open_one(directory, verify=verify)
