"""Saved distributions: the arrays, and the coding of the subscriptions that the distribution was fitted to."""

from __future__ import annotations

from pathlib import Path

from nearcast.columns.coding import Coding
from nearcast.columns.parts import nested, part_of
from nearcast.errors import UnknownError, shown
from nearcast.sharding.distribution import DISTRIBUTIONS, Distribution
from nearcast.storage.directory import read, restoring, write
from nearcast.storage.places import Place

__all__ = ["open_distribution", "save_distribution"]

_KIND = "distribution"  # the kind of directory


def save_distribution(
    distribution: Distribution, coding: Coding, directory: str | Path | Place
) -> Path | str:
    """Write *distribution* and the *coding* of its subscriptions to a new directory; return its path or URI."""
    document = {
        "distribution": distribution.name,
        "shards": distribution.shards,
        "coding": coding.document(),
    }
    arrays = nested(coding=coding.arrays(), distribution=distribution.arrays())
    return write(directory, _KIND, arrays, document)


def open_distribution(directory: str | Path | Place, *, verify: bool = False) -> tuple[Distribution, Coding]:
    """Map what :func:`save_distribution` wrote; return the distribution, and the coding for messages."""
    document, arrays = read(directory, _KIND, verify=verify)
    with restoring(directory):
        name = document["distribution"]
        if name not in DISTRIBUTIONS:
            raise UnknownError(
                f"there is no distribution {shown(name)}; there are {', '.join(DISTRIBUTIONS)}"
            )
        distribution = DISTRIBUTIONS[name].restored(document["shards"], part_of(arrays, "distribution"))
        return distribution, Coding.restored(document["coding"], part_of(arrays, "coding"))
