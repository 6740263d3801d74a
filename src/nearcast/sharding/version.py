"""A sharded version: subscriptions divided by a distribution, one index for each shard, in one directory.

===========================  =================================================================================
``manifest.json``            index, distribution, shards, counts; checksums of the file and the manifests below
``subscriptions.parquet``    all subscriptions, in the order of their ids; later versions are made from it
``distribution``             the distribution, and the coding of messages before they are sent
``shard-0000`` …             the index of each shard; for each subscription its row among all, and its shards
===========================  =================================================================================

Like every saved directory, it never changes, and appears whole or not at all. Its parts are written in parallel (by the
tasks of a Spark job, for example) into a draft; :func:`finish_version` checks that all of them are there.
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
from nearcast.columns.ragged import offsets_of, ragged_take
from nearcast.errors import ColumnError, IndexFileError
from nearcast.matching import INDEXES, Index, build_index
from nearcast.sharding.distribution import Distribution, Routes, distribute, keep_delivered
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
    "ShardedVersion",
    "build_shard",
    "finish_version",
    "start_version",
]

KIND = "shards"  # the kind of directory
SUBSCRIPTIONS = "subscriptions.parquet"
# Columns of that file: the row among all subscriptions, and the shards that store it.
ROW, SHARDS = "_row", "_shards"
_SHARD, _DISTRIBUTION = "shard", "distribution"  # the kinds of the directories inside


def start_version(
    draft: Path,
    table: pa.Table,
    *,
    distribution: str,
    shards: int,
    messages: pa.Table | None = None,
) -> None:
    """Start a version in the directory *draft*: fit a distribution to the subscriptions, and write both."""
    subscriptions = SubscriptionTable.from_arrow(table)
    sample = None if messages is None else MessageBatch.from_arrow(messages, like=subscriptions)
    fitted = distribute(distribution, subscriptions, shards, messages=sample)
    stored = fitted.route_subscriptions(subscriptions)
    draft.mkdir(mode=0o700, parents=True)
    save_distribution(fitted, subscriptions.coding, draft / _DISTRIBUTION)
    lists = pa.ListArray.from_arrays(stored.offsets.astype(np.int32), stored.shards)
    table = table.append_column(ROW, pa.array(np.arange(len(table)))).append_column(SHARDS, lists)
    with write_synced(draft / SUBSCRIPTIONS) as file:
        pq.write_table(table, file, row_group_size=config.SHARD_ROW_GROUP)


def build_shard(draft: Path, shard: int, rows: pa.Table, index: str) -> int:
    """Build the index of one shard from its *rows* of ``subscriptions.parquet``; return how many there are."""
    _, coding = open_distribution(draft / _DISTRIBUTION)
    rows = rows.sort_by(ROW).combine_chunks()
    lists = rows[SHARDS].combine_chunks()
    built = build_index(index, SubscriptionTable.from_arrow(rows.drop([ROW, SHARDS]), like=coding))
    stored = {
        "rows": rows[ROW].to_numpy(),
        "offsets": offsets_of(pc.list_value_length(lists).to_numpy()),
        "shards": lists.flatten().to_numpy().astype(np.int32),
    }
    arrays = nested(index=built.arrays(), coding=built.coding.arrays(), stored=stored)
    document = {"index": index, "coding": built.coding.document(), "subscriptions": len(rows)}
    write(draft / _shard_name(shard), _SHARD, arrays, document)
    return len(rows)


def finish_version(draft: Path, index: str) -> None:
    """Write the manifest of a draft, which makes it a version; raise if a shard has a wrong number of subscriptions.

    :func:`build_shard` was not called for shards without subscriptions; they are built here. Every file is on disk when
    this returns.
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
            raise IndexFileError(
                f"shard {shard} of {draft} does not have the {count:,} subscriptions that belong to it"
            )
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
    """An open shard."""

    matcher: Index
    rows: NDArray[np.int64]  # the row of each of its subscriptions among all
    stored: Routes  # the shards that store each of them


class ShardedVersion:
    """An open sharded version: it answers as one index over all subscriptions would; rows are in the order of ids.

    It cannot be changed. Messages are coded by :attr:`coding`.
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
        return f"<ShardedVersion: {len(self):,} subscriptions in {self.distribution!r}>"

    @property
    def ids(self) -> pa.Array:
        """The ids of all subscriptions, by row."""
        return pq.read_table(self.directory / SUBSCRIPTIONS, columns=["id"])["id"].combine_chunks()

    @property
    def has_copies(self) -> bool:
        """Whether some subscription is stored in several shards."""
        return bool(self._stored > self._size)

    def open_distribution(self) -> tuple[Distribution, Coding]:
        """Open the distribution, and the coding of messages before they are sent; each call opens new ones."""
        return open_distribution(self.directory / _DISTRIBUTION)

    def open_shard(self, number: int) -> Shard:
        """Open a shard; each call opens a new one, so changes to it stay private."""
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
        sent = self.distribution.route_messages(batch)
        found = [np.empty((2, 0), np.int64)]
        for number in range(self.distribution.shards):
            messages = sent.rows[sent.shards == number]
            if len(messages):
                routes = Routes(*ragged_take(*sent, messages))
                here = self.match_shard(number, batch.take(messages), routes, threads)
                rows = self.shard(number).rows[here.rows]
                found.append(np.stack([messages[here.messages], rows]))
        pairs = np.concatenate(found, axis=1)
        order = np.lexsort(pairs[::-1])
        offsets = np.searchsorted(pairs[0][order], np.arange(len(batch) + 1))
        return Matches(offsets.astype(np.int64), pairs[1][order].astype(np.int32))

    def match_shard(self, number: int, batch: MessageBatch, sent: Routes | None, threads: int = 1) -> Matches:
        """Return what one shard delivers of the messages that were sent to it, in rows of that shard.

        *sent* lists all shards of each message; it may be None if no subscription is stored in several shards.
        """
        index, _, stored = self.shard(number)
        # All shards share the words of the version, so the batch fits each of them.
        found = index.match(replace(batch, coding=index.coding), threads=threads)
        if sent is None or len(stored.shards) == len(stored.offsets) - 1:
            return found
        return keep_delivered(found, number, stored, sent)


def _shard_name(shard: int) -> str:
    return f"shard-{shard:04}"
