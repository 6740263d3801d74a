"""A version of an index and the changes since, in this process.

Changes come as *deltas*. A delta is a Parquet file that never changes: rows of subscriptions with the columns of the
version's ``subscriptions.parquet``, each id once, and the column ``_change`` with the last change of each subscription.
``unsubscribe`` means that it is gone.

A :class:`Replica` holds one shard, a :class:`Router` the distribution. Both follow a list of deltas: the same version
and the same deltas give the same answers, in every process and every time. A delta does not say which shards store its
subscriptions, because that depends on the version that it is applied to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.ragged import ragged_take
from nearcast.columns.vocabulary import Vocabulary
from nearcast.sharding.distribution import Routes, keep_delivered
from nearcast.sharding.version import ROW, SHARDS, ShardedVersion

__all__ = ["CHANGE", "Replica", "Router", "subscribed_rows", "subscriptions_of"]

CHANGE = "_change"  # the column of a delta with the last change of each subscription


def subscriptions_of(rows: pa.Table, like: Any) -> SubscriptionTable:
    """Return rows of a version or a delta as subscriptions."""
    return SubscriptionTable.from_arrow(
        rows.drop([name for name in (ROW, SHARDS, CHANGE) if name in rows.column_names]), like=like
    )


def subscribed_rows(delta: pa.Table) -> pa.Table:
    """Return the rows of a delta whose subscriptions exist after it."""
    return delta.filter(pc.not_equal(delta[CHANGE], "unsubscribe"))


class _DeltaFollower(ABC):
    """The state of a version after a list of deltas."""

    def __init__(self) -> None:
        self._applied: list[Path] = []
        self._start()

    def follow(self, deltas: Sequence[Path]) -> None:
        """Apply the deltas that are missing; start again if others than these were applied."""
        known = len(self._applied)
        if list(deltas[:known]) != self._applied:
            self._applied, known = [], 0
            self._start()
        for delta in deltas[known:]:
            self._apply(delta)
            self._applied.append(delta)

    @abstractmethod
    def _start(self) -> None:
        """Go back to the version without any delta."""

    @abstractmethod
    def _apply(self, path: Path) -> None:
        """Apply one delta."""


class Router(_DeltaFollower):
    """The shards that messages are sent to, and those that store subscriptions."""

    def __init__(self, version: ShardedVersion) -> None:
        self._version = version
        super().__init__()

    def _start(self) -> None:
        self.distribution, self.coding = self._version.open_distribution()
        self.stored: dict[Path, Routes] = {}  # for each delta, the shards of its subscribed rows

    def _apply(self, path: Path) -> None:
        delta = pq.read_table(path)
        table = subscriptions_of(subscribed_rows(delta), self.coding)
        self.distribution = self.distribution.grown(table, np.arange(len(table.owners)))
        self.stored[path] = self.distribution.route_subscriptions(table)

    def route_messages(self, batch: pa.RecordBatch | pa.Table) -> Routes:
        """Return the shards that each message is sent to."""
        return self.distribution.route_messages(MessageBatch.from_arrow(batch, like=self.coding))


class Replica(_DeltaFollower):
    """One shard of a version with the changes since.

    Each subscription that was ever stored here has an *entry*: a number that only grows, and that :attr:`ids` and
    the routes are listed by. The index numbers subscriptions by rows, and may give the row of a removed one to a
    newcomer; ``_entries`` translates.
    """

    def __init__(self, version: ShardedVersion, number: int, router: Router) -> None:
        self._version, self._number, self._router = version, number, router
        super().__init__()

    def follow(self, deltas: Sequence[Path]) -> None:
        """Apply the deltas that are missing, to the router first."""
        self._router.follow(deltas)
        super().follow(deltas)

    def _start(self) -> None:
        self._index, rows, self._stored = self._version.open_shard(self._number)
        self.ids = self._version.ids.take(pa.array(rows))
        self._codes = Vocabulary()  # of ids
        self._row_of = np.empty(0, np.int64)  # the row of each code, or -1
        self._entries = np.empty(0, np.int32)  # the entry of each row
        self._note(self.ids, np.arange(len(rows)), 0)

    def _note(self, ids: pa.Array, rows: NDArray[Any], first: int) -> None:
        """Note the rows of subscriptions, whose entries are numbered from *first*."""
        codes = self._codes.add(ids.cast(pa.string()))
        self._row_of = _padded(self._row_of, len(self._codes))
        self._row_of[codes] = rows
        self._entries = _padded(self._entries, int(rows.max(initial=-1)) + 1)
        self._entries[rows] = np.arange(first, first + len(rows))

    def _apply(self, path: Path) -> None:
        delta = pq.read_table(path)
        codes = self._codes.encode(delta["id"].combine_chunks().cast(pa.string()))
        old = self._row_of[codes[codes >= 0]]
        self._index.remove(old[old >= 0])
        self._row_of[codes[codes >= 0]] = -1
        routes = self._router.stored[path]
        mine = routes.rows[routes.shards == self._number]
        if not len(mine):
            return
        added = subscribed_rows(delta).take(mine)
        rows = self._index.insert(subscriptions_of(added, self._index))
        ids = added["id"].combine_chunks().cast(self.ids.type)
        self._note(ids, rows, len(self.ids))
        self.ids = pa.concat_arrays([self.ids, ids])
        offsets, shards = ragged_take(*routes, mine)
        self._stored = Routes(
            np.concatenate([self._stored.offsets, self._stored.offsets[-1] + offsets[1:]]),
            np.concatenate([self._stored.shards, shards]),
        )

    def match(self, batch: pa.RecordBatch | pa.Table, sent: Routes) -> Matches:
        """Return the entries that this shard delivers each message to; *sent* lists the shards of each message."""
        found = self._index.match(MessageBatch.from_arrow(batch, like=self._index))
        entries = Matches(found.offsets, self._entries[found.rows])
        return keep_delivered(entries, self._number, self._stored, sent)


def _padded(values: NDArray[Any], size: int) -> NDArray[Any]:
    """Return *values* with -1 behind them, up to *size*, or as they are if there are as many already."""
    return np.concatenate([values, np.full(max(size - len(values), 0), -1, values.dtype)])
