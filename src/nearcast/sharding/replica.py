"""A version of an index and the changes since, in this process.

Changes come as *deltas*. A delta is a Parquet file that never changes: rows of subscriptions with the columns of the
version, each id once, as they are after the last of its micro-batches, and the column ``_change`` with the last change
of each subscription. ``unsubscribe`` means that it is gone. The name of a delta begins with the first and the last
micro-batch that it covers (:func:`delta_range`). Several deltas may be merged into one that covers them all.

A :class:`Replica` holds one shard, a :class:`Router` the distribution. Both follow a list of deltas: the same version
and the same micro-batches give the same answers, in every process and every time, however the deltas were merged. A
delta does not say which shards store its subscriptions, because that depends on the version that it is applied to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.growable import GrowableArray
from nearcast.columns.ids import id_words
from nearcast.columns.ragged import ragged_take
from nearcast.columns.vocabulary import Vocabulary
from nearcast.sharding.distribution import Routes, keep_delivered
from nearcast.sharding.keys import find_keys, half_hashes, sorted_keys
from nearcast.sharding.version import ShardedVersion
from nearcast.storage.places import place_at

__all__ = ["CHANGE", "CHANGED_AT", "Replica", "Router", "delta_range", "subscribed_rows", "subscriptions_of"]

# Columns of a delta: the last change of each subscription, and its time.
CHANGE, CHANGED_AT = "_change", "_changed_at"
_NONE = -1  # the micro-batch before the first one; the row of a subscription that is not here


def delta_range(uri: str) -> tuple[int, int]:
    """Return the first and the last micro-batch that a delta covers.

    >>> delta_range("file:///live/deltas/000000000003-000000000005-1f.parquet")
    (3, 5)
    """
    first, last = uri.rpartition("/")[2].split("-")[:2]
    return int(first), int(last)


def subscriptions_of(rows: pa.Table, like: Any) -> SubscriptionTable:
    """Return rows of a version or a delta as subscriptions."""
    return SubscriptionTable.from_arrow(
        rows.drop([name for name in (CHANGE, CHANGED_AT) if name in rows.column_names]), like=like
    )


def subscribed_rows(delta: pa.Table) -> pa.Table:
    """Return the rows of a delta whose subscriptions exist after it."""
    return delta.filter(pc.not_equal(delta[CHANGE], "unsubscribe"))


class _DeltaFollower(ABC):
    """The state of a version after a list of deltas."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._applied = _NONE  # the last micro-batch
        self._names: dict[tuple[int, int], str] = {}
        self._start()

    def follow(self, deltas: Sequence[str]) -> None:
        """Apply the deltas whose last micro-batches are missing; start again if later ones, or others, were applied.

        They come in the order of their micro-batches. A merged delta may repeat some that were applied: its rows are
        what became of the subscriptions, so nothing is lost.
        """
        ranges = [delta_range(delta) for delta in deltas]
        others = any(self._names.get(each, delta) != delta for each, delta in zip(ranges, deltas))
        if others or max((last for _, last in ranges), default=_NONE) < self._applied:
            self._begin()
        for delta, (first, last) in zip(deltas, ranges):
            if last > self._applied:
                self._apply(delta)
                self._applied = last
                self._names[first, last] = delta

    @abstractmethod
    def _start(self) -> None:
        """Go back to the version without any delta."""

    @abstractmethod
    def _apply(self, delta: str) -> None:
        """Apply one delta."""


class _Change(NamedTuple):
    """A delta that has been read."""

    ids: pa.Array  # of all subscriptions that changed
    table: SubscriptionTable  # those that exist after it
    routes: Routes  # the shards that store them


class Router(_DeltaFollower):
    """The shards that messages are sent to, and those that store subscriptions.

    The coding of the version grows by the words of deltas. It stays grown when the router starts again: nobody asks for
    the words in excess.
    """

    def __init__(self, version: ShardedVersion) -> None:
        self._version = version
        self.coding = version.coding
        self._read: OrderedDict[str, _Change] = OrderedDict()
        super().__init__()

    def _start(self) -> None:
        self.distribution = self._version.distribution

    def _apply(self, delta: str) -> None:
        self.change(delta)

    def change(self, delta: str) -> _Change:
        """Return a delta, and route its subscriptions; replicas ask for it one after the other."""
        if delta not in self._read:
            home, _, name = delta.rpartition("/")
            with place_at(home).open(name) as file:
                rows = pq.read_table(file)
            table = subscriptions_of(subscribed_rows(rows).select(self._version.schema.names), self.coding)
            self.distribution = self.distribution.grown(table, np.arange(len(table.owners)))
            routes = self.distribution.route_subscriptions(table)
            self._read[delta] = _Change(rows["id"].combine_chunks(), table, routes)
            while len(self._read) > config.SHARD_OPEN_DELTAS:
                self._read.popitem(last=False)
        return self._read[delta]

    def messages(self, batch: pa.RecordBatch | pa.Table) -> MessageBatch:
        """Return messages in the coding of the version and its deltas."""
        return MessageBatch.from_arrow(batch, like=self.coding)


class Replica(_DeltaFollower):
    """One shard of a version with the changes since.

    Each subscription that was ever stored here has an *entry*: a number that only grows. The index numbers
    subscriptions by rows, and may give the row of a removed one to a newcomer. Without deltas, rows and entries are the
    same, and nothing is kept beside the mapped files; the first delta makes most of the index a copy of this process.
    """

    def __init__(self, version: ShardedVersion, number: int, router: Router) -> None:
        self._version, self._number, self._router = version, number, router
        self._private: int | None = 0  # bytes; None if they changed since they were counted
        super().__init__()

    def follow(self, deltas: Sequence[str]) -> None:
        """Apply the deltas that are missing, to the router first."""
        self._router.follow(deltas)
        super().follow(deltas)

    @property
    def private_bytes(self) -> int:
        """Memory that no other process shares, at most."""
        if self._private is None:
            assert self._changes is not None
            kept = self._index.stats()["bytes"] + self._changes.nbytes + self._later.nbytes
            self._private = int(kept + sum(array.nbytes for array in self._grown or ()))
        return self._private

    def _start(self) -> None:
        self._index, self._ids, self._stored = self._version.open_shard(self._number)
        self._later = self._ids.slice(0, 0)  # the ids of entries that deltas brought
        self._changes: _Entries | None = None
        self._grown: tuple[GrowableArray, ...] | None = None  # the arrays of the routes, once they grow
        self._private = 0

    def _apply(self, delta: str) -> None:
        if self._changes is None:
            self._changes = _Entries(self._ids)
        self._private = None
        ids, table, routes = self._router.change(delta)
        self._index.remove(self._changes.forget(ids))
        mine = routes.rows[routes.shards == self._number]
        if not len(mine):
            return
        added = table.take(mine)
        assert added.ids is not None
        new = added.ids.cast(self._ids.type)
        entries = len(self._ids) + len(self._later)
        self._changes.add(new, self._index.insert(added), entries)
        self._later = pa.concat_arrays([self._later, new])
        self._store(Routes(*ragged_take(*routes, mine)), entries)

    def _store(self, routes: Routes, before: int) -> None:
        """Note the shards of new entries, if any entry has several; *before* is how many entries there were."""
        if self._stored is None:
            if len(routes.shards) == len(routes.offsets) - 1:
                return
            self._stored = Routes.single(np.full(before, self._number, np.int32))
        if self._grown is None:
            self._grown = tuple(GrowableArray(array, spare=0.5) for array in self._stored)
        offsets, shards = self._grown
        offsets.extend(offsets.values[-1] + routes.offsets[1:])
        shards.extend(routes.shards)
        self._stored = Routes(offsets.values, shards.values)

    def match(self, batch: MessageBatch, sent: Routes | None) -> Matches:
        """Return the entries that this shard delivers each message to.

        *sent* lists the shards of each message; it may be None if no subscription is stored in several shards.
        """
        found = self._index.match(batch)
        if self._changes is not None:
            found = Matches(found.offsets, self._changes.of_rows[found.rows], found.candidates)
        if self._stored is None:
            return found
        assert sent is not None, "messages come with their shards if subscriptions have copies"
        return keep_delivered(found, self._number, self._stored, sent)

    def ids_of(self, entries: NDArray[Any]) -> pa.Array:
        """Return the ids of entries."""
        size = len(self._ids)
        later = entries >= size
        if not later.any():
            return self._ids.take(pa.array(entries))
        order = np.empty(len(entries), np.int64)
        order[~later] = np.arange(np.count_nonzero(~later))
        order[later] = np.arange(np.count_nonzero(~later), len(entries))
        parts = [self._ids.take(pa.array(entries[~later])), self._later.take(pa.array(entries[later] - size))]
        return pa.concat_arrays(parts).take(pa.array(order))


class _Entries:
    """The entry of each row, and the rows of subscriptions by id, once deltas change them.

    The subscriptions of the version, whose *ids* these are, have the same rows and entries, so one is there as long as
    its row has its entry. It is found by keys; only the ids that deltas brought are copied.
    """

    def __init__(self, ids: pa.Array) -> None:
        self._ids, self._keys = ids, sorted_keys(half_hashes(ids))
        self._later = Vocabulary()  # ids that deltas brought
        self._row_of = GrowableArray(np.empty(0, np.int32), spare=0.5)  # by their codes; _NONE if it is gone
        self._rows = GrowableArray(np.arange(len(ids), dtype=np.int32), borrowed=False, spare=0.5)

    @property
    def of_rows(self) -> NDArray[np.int32]:
        """The entry of each row; _NONE if the row is free."""
        entries: NDArray[np.int32] = self._rows.values
        return entries

    @property
    def nbytes(self) -> int:
        """Memory beside the ids of the version."""
        return self._keys.nbytes + self._later.nbytes + self._row_of.nbytes + self._rows.nbytes

    def add(self, ids: pa.Array, rows: NDArray[Any], first: int) -> None:
        """Note the rows of subscriptions, whose entries are numbered from *first*."""
        codes = self._later.add(id_words(ids))
        self._row_of.fill(max(len(self._later) - len(self._row_of.values), 0), _NONE)
        self._row_of.own()[codes] = rows
        self._rows.fill(max(int(rows.max(initial=_NONE)) + 1 - len(self._rows.values), 0), _NONE)
        self._rows.own()[rows] = np.arange(first, first + len(rows))

    def forget(self, ids: pa.Array) -> NDArray[np.int64]:
        """Return the rows of those of the given ids that are here, and forget them."""
        ids = ids.cast(self._ids.type)
        found = find_keys(self._keys, ids)
        same = pc.equal(self._ids.take(pa.array(found.rows)), ids.take(pa.array(found.ids)))
        first = found.rows[same.to_numpy(zero_copy_only=False)]
        first = first[self.of_rows[first] == first]
        codes = self._later.encode(id_words(ids))
        codes = codes[codes >= 0]
        later = self._row_of.values[codes].astype(np.int64)
        self._row_of.own()[codes] = _NONE
        rows = np.concatenate([first, later[later != _NONE]])
        self._rows.own()[rows] = _NONE
        return rows
