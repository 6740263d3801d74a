"""A distribution at rest: an index directory without subscriptions, with the words that they are coded by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nearcast.columns import SubscriptionTable
from nearcast.distribution import DISTRIBUTIONS, Distribution
from nearcast.errors import IndexFileError, shown
from nearcast.matching import files
from nearcast.matching.store import ClauseStore

__all__ = ["open_distribution", "save_distribution"]


def save_distribution(distribution: Distribution, table: SubscriptionTable, directory: Path) -> Path:
    """Write *distribution*, and the vocabulary of the *table* that it was fitted to."""
    words = SubscriptionTable.empty(table.vocabulary, table.attributes, table.space)
    name = f"{distribution.name}/{distribution.shards}"
    return files.write(directory, name, ClauseStore(words), distribution.arrays())


def open_distribution(directory: Path) -> tuple[Distribution, SubscriptionTable]:
    """Map what :func:`save_distribution` wrote; return the distribution, and what messages are to be coded like."""
    manifest, arrays = files.read(directory, verify=False)
    name, _, shards = str(manifest["index"]).partition("/")
    if name not in DISTRIBUTIONS or not shards.isdecimal():
        raise IndexFileError(f"{directory} holds {shown(manifest['index'])}, which is no distribution")
    table = files.restored_store(manifest, arrays).table
    return DISTRIBUTIONS[name].restored(int(shards), arrays.structure), replace(table, ids=None)
