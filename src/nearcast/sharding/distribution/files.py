"""A distribution at rest: an index directory without subscriptions, with the words that they are coded by."""

from __future__ import annotations

from pathlib import Path

from nearcast.columns import SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.errors import IndexFileError, shown
from nearcast.sharding.distribution import DISTRIBUTIONS, Distribution
from nearcast.storage.directory import read, restored_store, write

__all__ = ["open_distribution", "save_distribution"]


def save_distribution(distribution: Distribution, table: SubscriptionTable, directory: Path) -> Path:
    """Write *distribution*, and the vocabulary of the *table* that it was fitted to."""
    words = SubscriptionTable.empty(table.coding)
    name = f"{distribution.name}/{distribution.shards}"
    return write(directory, name, ClauseStore(words), distribution.arrays())


def open_distribution(directory: Path) -> tuple[Distribution, Coding]:
    """Map what :func:`save_distribution` wrote; return the distribution, and what messages are to be coded by."""
    manifest, arrays = read(directory, verify=False)
    name, _, shards = str(manifest["index"]).partition("/")
    if name not in DISTRIBUTIONS or not shards.isdecimal():
        raise IndexFileError(f"{directory} holds {shown(manifest['index'])}, which is no distribution")
    return DISTRIBUTIONS[name].restored(int(shards), arrays.structure), restored_store(
        manifest, arrays
    ).coding
