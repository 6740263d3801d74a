"""Sets of shards: where subscriptions are stored, and where messages are sent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import Matches
from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel

__all__ = ["Routes", "delivering_shards", "keep_delivered"]


class Routes(NamedTuple):
    """The shards of each row in CSR form: in ascending order, without duplicates."""

    offsets: NDArray[np.int64]
    shards: NDArray[np.int32]

    @classmethod
    def single(cls, shards: NDArray[Any]) -> Routes:
        """Send each row to one shard, or to none if the shard is negative."""
        sent = shards >= 0
        return cls(offsets_of(sent), shards[sent].astype(np.int32))

    @classmethod
    def everywhere(cls, rows: int, shards: int) -> Routes:
        """Send each row to all shards."""
        return cls(np.arange(rows + 1) * shards, np.tile(np.arange(shards, dtype=np.int32), rows))

    @classmethod
    def from_pairs(cls, rows: NDArray[Any], shards: NDArray[Any], size: int) -> Routes:
        """Return the routes of *size* rows from pairs of a row and a shard, in any order; pairs may be repeated."""
        pairs = np.unique(rows.astype(np.int64) << 32 | shards.astype(np.int64))
        return cls(np.searchsorted(pairs, np.arange(size + 1) << 32), (pairs & 0xFFFFFFFF).astype(np.int32))

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def united(self, other: Routes) -> Routes:
        """Return the shards of both, row by row."""
        rows = np.concatenate([self.rows, other.rows])
        return Routes.from_pairs(rows, np.concatenate([self.shards, other.shards]), len(self.offsets) - 1)

    def folded(self, owners: NDArray[np.int32], size: int) -> Routes:
        """Return the shards of each owner: the union over its rows."""
        if len(owners) == size:
            return self
        return Routes.from_pairs(owners[self.rows], self.shards, size)


def delivering_shards(
    stored: Routes, sent: Routes, subscriptions: NDArray[Any], messages: NDArray[Any]
) -> NDArray[np.int32]:
    """Return the shard that delivers each pair of a subscription row and a message row: the first that has both.

    It is -1 if no shard has both: then the pair does not match.
    """
    out = np.empty(len(subscriptions), np.int32)
    _first_common(*stored, *sent, subscriptions.astype(np.int64), messages.astype(np.int64), out)
    return out


def keep_delivered(found: Matches, number: int, stored: Routes, sent: Routes) -> Matches:
    """Return those of the matches of shard *number* that this shard delivers.

    *stored* lists the shards of each subscription row, *sent* those of each message.
    """
    offsets, rows = np.zeros_like(found.offsets), np.empty_like(found.rows)
    _keep(*stored, *sent, found.offsets, found.rows, np.int32(number), offsets, rows)
    return Matches(offsets, rows[: offsets[-1]], found.candidates)


@kernel
def _first_common(
    a_offsets: NDArray[np.int64],
    a: NDArray[np.int32],
    b_offsets: NDArray[np.int64],
    b: NDArray[np.int32],
    rows: NDArray[np.int64],
    others: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    for k in range(out.size):
        out[k] = _first(a_offsets, a, b_offsets, b, rows[k], others[k])


@kernel
def _keep(
    a_offsets: NDArray[np.int64],
    a: NDArray[np.int32],
    b_offsets: NDArray[np.int64],
    b: NDArray[np.int32],
    offsets: NDArray[np.int64],
    rows: NDArray[np.int32],
    number: np.int32,
    out_offsets: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    filled = np.int64(0)
    for message in range(offsets.size - 1):
        for k in range(offsets[message], offsets[message + 1]):
            if _first(a_offsets, a, b_offsets, b, np.int64(rows[k]), np.int64(message)) == number:
                out[filled] = rows[k]
                filled += 1
        out_offsets[message + 1] = filled


@kernel
def _first(
    a_offsets: NDArray[np.int64],
    a: NDArray[np.int32],
    b_offsets: NDArray[np.int64],
    b: NDArray[np.int32],
    row: np.int64,
    other: np.int64,
) -> np.int32:
    """Return the first shard that both lists have, -1 if there is none."""
    i, last = a_offsets[row], a_offsets[row + 1]
    j, end = b_offsets[other], b_offsets[other + 1]
    while i < last and j < end:
        if a[i] < b[j]:
            i += 1
        elif a[i] > b[j]:
            high = end  # a message may go to many shards, a subscription to one: use binary search
            while j < high:
                middle = (j + high) >> 1
                if b[middle] < a[i]:
                    j = middle + 1
                else:
                    high = middle
        else:
            return np.int32(a[i])
    return np.int32(-1)
