"""When kept messages expire, in the order of time: for an engine that tells subscribers what has expired."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns.ragged import offsets_of
from nearcast.engine.queue import Queue

__all__ = ["Expiries"]


class _Bucket(NamedTuple):
    """The rows of the messages that expire in one second."""

    key: int
    number: int  # a bucket that became empty has a successor with the same key
    rows: set[int]


class Expiries:
    """Message rows by the time at which they expire, in buckets of a second."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._order = Queue[_Bucket](lambda bucket: self._buckets.get(bucket.key) is bucket)
        self._made = 0

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(len(bucket.rows) for bucket in self._buckets.values())

    def note(self, rows: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Note when the messages in the given rows expire."""
        for key, own in _by_bucket(rows, ends):
            bucket = self._buckets.get(key)
            if bucket is None:
                self._made += 1
                bucket = self._buckets[key] = _Bucket(key, self._made, set())
                self._order.push(bucket, len(self._buckets))
            bucket.rows.update(own)

    def forget(self, rows: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Forget messages before their time has come: their rows, and when they would have expired."""
        for key, own in _by_bucket(rows, ends):
            rest = self._buckets[key].rows
            rest.difference_update(own)
            if not rest:
                del self._buckets[key]

    def due(self, now: int) -> NDArray[np.int64]:
        """Remove and return the rows of messages that may have expired by *now*.

        The last bucket may have some that have not: the caller notes them again.
        """
        found: list[int] = []
        for bucket in self._order.pop_before((now // config.EXPIRY_BUCKET_US + 1,)):
            found += self._buckets.pop(bucket.key).rows
        return np.array(found, np.int64)


def _by_bucket(rows: NDArray[Any], ends: NDArray[np.int64]) -> list[tuple[int, list[int]]]:
    """Return the buckets of the given times, each with its rows."""
    keys = ends // config.EXPIRY_BUCKET_US
    if len(rows) == 1:
        return [(int(keys[0]), rows.tolist())]
    order = np.argsort(keys)
    distinct, counts = np.unique(keys[order], return_counts=True)
    cuts, ordered = offsets_of(counts).tolist(), rows[order].tolist()
    return [(key, ordered[cuts[at] : cuts[at + 1]]) for at, key in enumerate(distinct.tolist())]
