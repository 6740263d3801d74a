"""Sets of shards: where subscriptions are stored, and where messages are sent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.columns.ragged import offsets_of
from nearcast.kernels import kernel

__all__ = ["Routes", "delivering_shards"]


class Routes(NamedTuple):
    """The shards of each row as CSR, ascending in a row, each once."""

    offsets: NDArray[np.int64]
    shards: NDArray[np.int32]

    @classmethod
    def single(cls, shards: NDArray[Any]) -> Routes:
        """Send each row to one shard, to none where it is negative."""
        there = shards >= 0
        return cls(offsets_of(there), shards[there].astype(np.int32))

    @classmethod
    def everywhere(cls, rows: int, shards: int) -> Routes:
        """Send each row to all shards."""
        return cls(np.arange(rows + 1) * shards, np.tile(np.arange(shards, dtype=np.int32), rows))

    @classmethod
    def from_pairs(cls, rows: NDArray[Any], shards: NDArray[Any], size: int) -> Routes:
        """Make routes of pairs of a row and a shard, in any order, doubles included, for *size* rows."""
        pairs = np.unique(rows.astype(np.int64) << 32 | shards.astype(np.int64))
        return cls(np.searchsorted(pairs, np.arange(size + 1) << 32), (pairs & 0xFFFFFFFF).astype(np.int32))

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def folded(self, owners: NDArray[np.int32], size: int) -> Routes:
        """Return the union over the rows of each owner."""
        if len(owners) == size:
            return self
        return Routes.from_pairs(owners[self.rows], self.shards, size)


def delivering_shards(
    stored: Routes, sent: Routes, subscriptions: NDArray[Any], messages: NDArray[Any]
) -> NDArray[np.int32]:
    """Return, for pairs of a subscription row and a message row, the shard that delivers: the first that has both.

    -1 where none has both: then the pair does not match.
    """
    out = np.empty(len(subscriptions), np.int32)
    _first_common(*stored, *sent, subscriptions.astype(np.int64), messages.astype(np.int64), out)
    return out


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
        i, last = a_offsets[rows[k]], a_offsets[rows[k] + 1]
        j, end = b_offsets[others[k]], b_offsets[others[k] + 1]
        out[k] = -1
        while i < last and j < end:
            if a[i] < b[j]:
                i += 1
            elif a[i] > b[j]:
                high = end  # messages go to many shards when subscriptions are stored in one: leap
                while j < high:
                    middle = (j + high) >> 1
                    if b[middle] < a[i]:
                        j = middle + 1
                    else:
                        high = middle
            else:
                out[k] = a[i]
                break
