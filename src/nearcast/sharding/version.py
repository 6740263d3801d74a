"""A sharded version: subscriptions divided by a distribution, one index for each shard, in one directory.

===========================  =================================================================================
``manifest.json``            format, index, distribution, shards, counts; bytes and CRC-32 of the files
``subscriptions.parquet``    all subscriptions, in the order of their ids: what versions to come are made from
``distribution``             the distribution, and the words that messages are coded by before they are sent
``shard-0000`` …             an index directory for each shard
``shard-0000.*.npy`` …       for its subscriptions: the row among all, and the shards that store it
===========================  =================================================================================

Like an index directory, it is never changed, and appears whole or not at all. The parts are written side by side (by
the tasks of a Spark job, say) into a draft; :func:`finish` checks that all are there.
"""

from __future__ import annotations

import json
import zlib
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
from nearcast._version import __version__
from nearcast.columns import Matches, MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.ragged import ragged_take
from nearcast.errors import ColumnError, IndexFileError, shown
from nearcast.matching import Index, build_index, open_one
from nearcast.sharding.distribution import Distribution, Routes, delivering_shards, distribute
from nearcast.sharding.distribution.files import open_distribution, save_distribution
from nearcast.storage.atomic import synced, write_durably
from nearcast.storage.directory import FORMAT

__all__ = [
    "ROW",
    "SHARDS",
    "SUBSCRIPTIONS",
    "Shard",
    "Sharded",
    "build_shard",
    "finish",
    "is_sharded",
    "start",
]

KIND = "shards"
ROW, SHARDS = (
    "_row",
    "_shards",
)  # columns of subscriptions.parquet: the row among all, the shards that store it
_COLUMNS = ("rows", "offsets", "shards")  # of a shard, beside its index
SUBSCRIPTIONS = "subscriptions.parquet"
_MANIFEST, _DISTRIBUTION = "manifest.json", "distribution"


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
    save_distribution(made, subscriptions, draft / _DISTRIBUTION)
    lists = pa.ListArray.from_arrays(stored.offsets.astype(np.int32), stored.shards)
    table = table.append_column(ROW, pa.array(np.arange(len(table)))).append_column(SHARDS, lists)
    with synced(draft / SUBSCRIPTIONS) as file:
        pq.write_table(table, file, row_group_size=config.SHARD_ROW_GROUP)


def build_shard(draft: Path, shard: int, rows: pa.Table, index: str) -> int:
    """Build the index of one shard over its *rows* of ``subscriptions.parquet``; return how many there are."""
    _, coding = open_distribution(draft / _DISTRIBUTION)
    name = _shard_name(shard)
    rows = rows.sort_by(ROW).combine_chunks()
    lists = rows[SHARDS].combine_chunks()
    build_index(index, SubscriptionTable.from_arrow(rows.drop([ROW, SHARDS]), like=coding)).save(draft / name)
    stored = {
        "rows": rows[ROW].to_numpy(),
        "offsets": np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy())]).astype(np.int64),
        "shards": lists.flatten().to_numpy().astype(np.int32),
    }
    for column in _COLUMNS:
        with synced(draft / f"{name}.{column}.npy") as file:
            np.save(file, stored[column])
    return len(rows)


def finish(draft: Path, index: str) -> None:
    """Write the manifest of a draft, which makes it a version; raise if a shard is not what it should be.

    Shards without subscriptions, for which nobody was called, are built here. Every file is on disk at the end.
    """
    distribution, _ = open_distribution(draft / _DISTRIBUTION)
    table = pq.read_table(draft / SUBSCRIPTIONS, columns=[SHARDS])
    expected = np.bincount(table[SHARDS].combine_chunks().flatten().to_numpy(), minlength=distribution.shards)
    files = [SUBSCRIPTIONS, f"{_DISTRIBUTION}/{_MANIFEST}"]
    for shard, count in enumerate(expected.tolist()):
        name = _shard_name(shard)
        if count == 0:
            build_shard(draft, shard, pq.read_schema(draft / SUBSCRIPTIONS).empty_table(), index)
        own = [f"{name}/{_MANIFEST}", *(f"{name}.{column}.npy" for column in _COLUMNS)]
        if not all((draft / file).exists() for file in own) or len(np.load(draft / own[1])) != count:
            raise IndexFileError(f"shard {shard} of {draft} does not have its {count:,} subscriptions")
        files += own
    manifest = {
        "kind": KIND,
        "format": FORMAT,
        "nearcast": __version__,
        "index": index,
        "distribution": distribution.name,
        "shards": distribution.shards,
        "subscriptions": len(table),
        "stored": int(expected.sum()),
        "files": {name: _sum(draft / name) for name in files},
    }
    with write_durably(draft / _MANIFEST) as file:
        file.write(json.dumps(manifest, indent=1).encode())


def is_sharded(directory: Path) -> bool:
    """Tell whether *directory* is a sharded version."""
    try:
        return bool(json.loads((directory / _MANIFEST).read_bytes()).get("kind") == KIND)
    except (OSError, ValueError, AttributeError):
        return False


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
        try:
            self.manifest = json.loads((self.directory / _MANIFEST).read_bytes())
            version, files = self.manifest["format"], dict(self.manifest["files"])
        except (OSError, ValueError, KeyError, TypeError):
            raise IndexFileError(f"{self.directory} is damaged; build it again") from None
        if version != FORMAT:
            raise IndexFileError(
                f"{self.directory} has format {shown(version)}; Nearcast {__version__} reads format {FORMAT}; "
                "build it again"
            )
        for name, expected in files.items():
            path = self.directory / name
            if not path.exists() or path.stat().st_size != expected["bytes"]:
                raise IndexFileError(f"{path} is missing or cut off; build the version again")
            if verify and _sum(path) != expected:
                raise IndexFileError(f"{path} is damaged: its checksum is not the manifest's; build it again")
        self.distribution, self.coding = self.open_distribution()
        self.shard = lru_cache(maxsize=None)(self.open_shard)
        if verify:
            for shard in range(self.distribution.shards):
                open_one(self.directory / _shard_name(shard), verify=True)

    def __len__(self) -> int:
        return int(self.manifest["subscriptions"])

    def __repr__(self) -> str:
        return f"<Sharded: {len(self):,} subscriptions in {self.distribution!r}>"

    @property
    def ids(self) -> pa.Array:
        """The ids of the subscriptions, by row."""
        return pq.read_table(self.directory / SUBSCRIPTIONS, columns=["id"])["id"].combine_chunks()

    @property
    def copies(self) -> bool:
        """Whether a subscription is stored in several shards."""
        return bool(self.manifest["stored"] > self.manifest["subscriptions"])

    def open_distribution(self) -> tuple[Distribution, Coding]:
        """Return the distribution, and what messages are coded by before they are sent; each time another one."""
        return open_distribution(self.directory / _DISTRIBUTION)

    def open_shard(self, number: int) -> Shard:
        """Open a shard, each time another one: what is changed in it stays private to it."""
        base = self.directory / _shard_name(number)
        rows, offsets, shards = (np.load(f"{base}.{column}.npy") for column in _COLUMNS)
        return Shard(open_one(base), rows, Routes(offsets, shards))

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


def _sum(path: Path) -> dict[str, int]:
    content = path.read_bytes()
    return {"bytes": len(content), "crc32": zlib.crc32(content)}
