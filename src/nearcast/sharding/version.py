"""A sharded version: subscriptions divided by a distribution, one index for each shard, in one directory.

===========================  =================================================================================
``manifest.json``            index, distribution, shards, counts; answers for the file and the manifests below it
``subscriptions.parquet``    all subscriptions, in the order of their ids: what versions to come are made from
``distribution``             the distribution, and what messages are coded by before they are sent
``shard-0000`` …             the index of each shard; of its subscriptions the row among all, and who else stores it
===========================  =================================================================================

Like every directory at rest, it is never changed, and appears whole or not at all. The parts are written side by side
(by the tasks of a Spark job, say) into a draft; :func:`finish` checks that all are there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.parts import nested, part_of
from nearcast.columns.ragged import ragged_take
from nearcast.errors import ColumnError, IndexFileError
from nearcast.matching import INDEXES, Index, build_index
from nearcast.sharding.distribution import Distribution, Routes, delivering_shards, distribute
from nearcast.sharding.distribution.files import open_distribution, save_distribution
from nearcast.storage.atomic import write_synced
from nearcast.storage.directory import read, restoring, write
from nearcast.storage.manifest import (
    MANIFEST,
    check_files,
    file_entry,
    mapped,
    read_manifest,
    write_manifest,
)

__all__ = [
    "KIND",
    "ROW",
    "SHARDS",
    "SUBSCRIPTIONS",
    "Shard",
    "Sharded",
    "build_shard",
    "finish",
    "start",
]

KIND = "shards"  # of directory
ROW, SHARDS = (
    "_row",
    "_shards",
)  # columns of subscriptions.parquet: the row among all, the shards that store it
SUBSCRIPTIONS = "subscriptions.parquet"
_SHARD, _DISTRIBUTION = "shard", "distribution"  # kinds of the directories within


def start(
    draft: Path,
    table: pa.Table,
    *,
    distribution: str,
    shards: int,
    messages: pa.Table | None = None,
) -> None:
    """Begin a version in the directory *draft*: fit the distribution to the subscriptions, and write both."""
    subscriptions = SubscriptionTable.from_arrow(table)
    sample = None if messages is None else MessageBatch.from_arrow(messages, like=subscriptions)
    made = distribute(distribution, subscriptions, shards, messages=sample)
    stored = made.subscriptions(subscriptions)
    draft.mkdir(mode=0o700, parents=True)
    save_distribution(made, subscriptions.coding, draft / _DISTRIBUTION)
    lists = pa.ListArray.from_arrays(stored.offsets.astype(np.int32), stored.shards)
    table = table.append_column(ROW, pa.array(np.arange(len(table)))).append_column(SHARDS, lists)
    with write_synced(draft / SUBSCRIPTIONS) as file:
        pq.write_table(table, file, row_group_size=config.SHARD_ROW_GROUP)


def build_shard(draft: Path, shard: int, rows: pa.Table, index: str) -> int:
    """Build the index of one shard over its *rows* of ``subscriptions.parquet``; return how many there are."""
    _, coding = open_distribution(draft / _DISTRIBUTION)
    rows = rows.sort_by(ROW).combine_chunks()
    lists = rows[SHARDS].combine_chunks()
    built = build_index(index, SubscriptionTable.from_arrow(rows.drop([ROW, SHARDS]), like=coding))
    stored = {
        "rows": rows[ROW].to_numpy(),
        "offsets": np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy())]).astype(np.int64),
        "shards": lists.flatten().to_numpy().astype(np.int32),
    }
    arrays = nested(index=built.arrays(), coding=built.coding.arrays(), stored=stored)
    document = {"index": index, "coding": built.coding.document(), "subscriptions": len(rows)}
    write(draft / _shard_name(shard), _SHARD, arrays, document)
    return len(rows)


def finish(draft: Path, index: str) -> None:
    """Write the manifest of a draft, which makes it a version; raise if a shard is not what it should be.

    Shards without subscriptions, for which nobody was called, are built here. Every file is on disk at the end.
    """
    distribution, _ = open_distribution(draft / _DISTRIBUTION)
    table = pq.read_table(draft / SUBSCRIPTIONS, columns=[SHARDS])
    expected = np.bincount(table[SHARDS].combine_chunks().flatten().to_numpy(), minlength=distribution.shards)
    files = [SUBSCRIPTIONS, f"{_DISTRIBUTION}/{MANIFEST}"]
    for shard, count in enumerate(expected.tolist()):
        name = _shard_name(shard)
        if count == 0:
            build_shard(draft, shard, pq.read_schema(draft / SUBSCRIPTIONS).empty_table(), index)
        if read_manifest(draft / name, _SHARD).document["subscriptions"] != count:
            raise IndexFileError(f"shard {shard} of {draft} does not have its {count:,} subscriptions")
        files.append(f"{name}/{MANIFEST}")
    document = {
        "index": index,
        "distribution": distribution.name,
        "shards": distribution.shards,
        "subscriptions": len(table),
        "stored": int(expected.sum()),
    }
    write_manifest(draft, KIND, document, {name: file_entry(mapped(draft / name)) for name in files})


class Shard(NamedTuple):
    """One shard, open."""

    matcher: Index
    rows: NDArray[np.int64]  # the row among all of each of its subscriptions
    stored: Routes  # the shards that store each


class Sharded:
    """A sharded version, open: it answers as one index over all subscriptions would, row by row of their ids' order.

    It cannot be changed. Messages are coded like :attr:`coding`.
    """

    def __init__(self, directory: str | Path, *, verify: bool = False) -> None:
        self.directory = Path(directory).absolute()
        manifest = read_manifest(self.directory, KIND)
        check_files(self.directory, manifest, verify=verify)
        self.distribution, self.coding = open_distribution(self.directory / _DISTRIBUTION, verify=verify)
        for name in map(_shard_name, range(self.distribution.shards)):
            shard = self.directory / name
            check_files(shard, read_manifest(shard, _SHARD), verify=verify)
        with restoring(self.directory):
            self._size, self._stored = manifest.document["subscriptions"], manifest.document["stored"]
        self.shard = lru_cache(maxsize=None)(self.open_shard)

    def __len__(self) -> int:
        return int(self._size)

    def __repr__(self) -> str:
        return f"<Sharded: {len(self):,} subscriptions in {self.distribution!r}>"

    @property
    def ids(self) -> pa.Array:
        """The ids of the subscriptions, by row."""
        return pq.read_table(self.directory / SUBSCRIPTIONS, columns=["id"])["id"].combine_chunks()

    @property
    def copies(self) -> bool:
        """Whether a subscription is stored in several shards."""
        return bool(self._stored > self._size)

    def open_distribution(self) -> tuple[Distribution, Coding]:
        """Return the distribution, and what messages are coded by before they are sent; each time another one."""
        return open_distribution(self.directory / _DISTRIBUTION)

    def open_shard(self, number: int) -> Shard:
        """Open a shard, each time another one: what is changed in it stays private to it."""
        directory = self.directory / _shard_name(number)
        document, arrays = read(directory, _SHARD)
        with restoring(directory):
            coding = Coding.restored(document["coding"], part_of(arrays, "coding"))
            index = Index.restored(INDEXES[document["index"]], coding, part_of(arrays, "index"))
            stored = part_of(arrays, "stored")
            return Shard(index, stored["rows"], Routes(stored["offsets"], stored["shards"]))

    def match(self, batch: MessageBatch, threads: int = 1) -> Matches:
        """Return the subscription rows that each message of *batch* matches, as :meth:`Index.match` does."""
        if not batch.coding.fits(self.coding):
            raise ColumnError(
                "the messages are coded by another vocabulary; make the batch with like=version"
            )
        sent = self.distribution.messages(batch)
        found = [np.empty((2, 0), np.int64)]
        for number in range(self.distribution.shards):
            messages = sent.rows[sent.shards == number]
            if len(messages):
                here = self.matched(number, batch.take(messages), _taken(sent, messages), threads)
                rows = self.shard(number).rows[here.rows]
                found.append(np.stack([messages[here.messages], rows]))
        pairs = np.concatenate(found, axis=1)
        order = np.lexsort(pairs[::-1])
        offsets = np.searchsorted(pairs[0][order], np.arange(len(batch) + 1))
        return Matches(offsets.astype(np.int64), pairs[1][order].astype(np.int32))

    def matched(self, number: int, batch: MessageBatch, sent: Routes | None, threads: int = 1) -> Matches:
        """Return what one shard delivers of messages that were sent to it: rows are its own.

        *sent* says where else they went; it may be left out when no subscription is stored twice.
        """
        matcher, _, stored = self.shard(number)
        # All shards were coded by the same words.
        own = replace(batch, coding=matcher.coding)
        found = matcher.match(own, threads=threads)
        if sent is None or len(stored.shards) == len(stored.offsets) - 1:
            return found
        mine = delivering_shards(stored, sent, found.rows, found.messages) == number
        counts = np.bincount(found.messages[mine], minlength=len(batch))
        return Matches(np.concatenate([[0], np.cumsum(counts)]), found.rows[mine])


def _shard_name(shard: int) -> str:
    return f"shard-{shard:04}"


def _taken(routes: Routes, rows: NDArray[np.int64]) -> Routes:
    return Routes(*ragged_take(routes.offsets, routes.shards, rows))
