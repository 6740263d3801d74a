"""Writing sharded versions: shards that any process builds and writes, and the manifest that makes them a version.

Whoever builds a version chooses a name for the build. Every file and directory that is written for it has this name and
a further one, which nobody else uses: a task that is repeated, or runs twice at once, writes other files, and two
builds of one version do not meet. :func:`finish_version` lists those that count, and creates the manifest if there is
none; of two builds that finish at once, the second finds the manifest of the first. However a build ends,
:func:`discard_build` then removes what the manifest does not name.
"""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import MessageBatch, SubscriptionTable
from nearcast.columns.coding import Coding
from nearcast.columns.growable import GrowableArray
from nearcast.columns.growing_table import GrowingTable
from nearcast.columns.parts import nested
from nearcast.columns.ragged import offsets_of, ragged_take
from nearcast.errors import InputError
from nearcast.matching import build_index
from nearcast.sharding.distribution import Distribution, Routes, distribute
from nearcast.sharding.distribution.files import save_distribution
from nearcast.sharding.keys import half_hashes, sorted_keys
from nearcast.sharding.version import KEYS_KIND, KIND, SHARD_KIND
from nearcast.storage.directory import write
from nearcast.storage.manifest import MANIFEST, encode_manifest, file_entry, mapped, read_manifest
from nearcast.storage.places import Place

__all__ = ["BuiltShard", "ShardBuilder", "build_sharded", "discard_build", "finish_version", "new_name"]


def new_name() -> str:
    """Return a name that nobody else uses: of a build, or of an attempt to write a part of it."""
    return uuid.uuid4().hex[:12]


@dataclass(frozen=True)
class BuiltShard:
    """A shard that was written: what the manifest of the version says about it."""

    shard: int
    directory: str
    rows: str | None  # the file of the rows whose first shard this is; None if there are none
    keys: str | None  # the directory with the keys of these rows
    stored: int  # subscriptions in the shard
    own: int  # those whose first shard this is
    nbytes: dict[str, int]  # of all files in each directory
    files: dict[str, Any]  # the entries of the manifest for the rows and for the directories' own manifests
    added: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # to the distribution

    def to_json(self) -> str:
        """Return the shard as text, for the result of a task; what it added to the distribution is left out."""
        return json.dumps(asdict(self) | {"added": None})

    @classmethod
    def from_json(cls, text: str, added: bytes) -> BuiltShard:
        """Return the shard that the text came from."""
        return cls(**json.loads(text) | {"added": np.frombuffer(added, np.int64)})


class ShardBuilder:
    """Takes the rows of one shard, in ascending order of their ids, and writes its index and its own rows.

    Rows may come in any number of portions: of those before, only the coded form stays in memory. The largest share is
    taken while the index is built, so all that it does not need is written, and let go, before.
    """

    def __init__(
        self,
        place: Place,
        build: str,
        shard: int,
        schema: pa.Schema,
        distribution: Distribution,
        coding: Coding,
    ) -> None:
        self._place, self._shard = place, shard
        self._ending = f"{shard:04}-{build}-{new_name()}"
        self._before = self._distribution = distribution
        self._table = GrowingTable(coding)
        self._table.extend(SubscriptionTable.from_arrow(schema.empty_table(), like=coding))
        # Of each row: how many shards store it, and which.
        self._counts, self._shards = (GrowableArray(np.empty(0, np.int32)) for _ in range(2))
        self._own = GrowableArray(np.empty(0, np.uint64))  # the hashes of the ids of own rows
        self._schema, self._waiting = schema, schema.empty_table()
        self._scratch = tempfile.TemporaryDirectory(prefix="nearcast-")
        self._file = Path(self._scratch.name, "rows")
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> ShardBuilder:
        return self

    def __exit__(self, *exception: object) -> None:
        self._scratch.cleanup()

    def add(self, rows: pa.Table, coded: SubscriptionTable, routes: Routes) -> None:
        """Take some rows, the same as subscriptions, and the shards that store each of them."""
        self._distribution = self._distribution.grown(coded, np.arange(len(coded.owners)))
        self._table.extend(coded)
        self._counts.extend(np.diff(routes.offsets))
        self._shards.extend(routes.shards)
        own = np.flatnonzero(routes.shards[routes.offsets[:-1]] == self._shard)
        mine = rows.take(pa.array(own)).cast(self._schema)
        self._own.extend(half_hashes(mine["id"].combine_chunks()))
        self._waiting = pa.concat_tables([self._waiting, mine])
        if len(self._waiting) >= config.SHARD_ROW_GROUP:
            self._write_rows()

    def _write_rows(self) -> None:
        if self._writer is None:
            how = {"compression": "zstd", "write_page_checksum": True}
            self._writer = pq.ParquetWriter(self._file, self._schema, **how)
        self._writer.write_table(self._waiting.combine_chunks(), row_group_size=config.SHARD_ROW_GROUP)
        self._waiting = self._schema.empty_table()

    def finish(self, index: str) -> BuiltShard:
        """Build the index, and write everything; no more rows may follow."""
        files: dict[str, Any] = {}
        own = len(self._own.values)
        rows, keys = self._finish_rows(files) if own else (None, None)
        table = self._table.table()
        built = build_index(index, table)
        arrays = nested(index=built.arrays())
        if len(self._shards.values) > len(table):  # otherwise each is stored here alone
            stored = Routes(offsets_of(self._counts.values), self._shards.values)
            arrays |= nested(stored=stored._asdict())
        name = f"shard-{self._ending}"
        write(self._place / name, SHARD_KIND, arrays, {"index": index, "subscriptions": len(table)})
        sizes = {}
        for directory in (name, keys) if keys else (name,):
            place = self._place / directory
            files[f"{directory}/{MANIFEST}"] = _entry(place, MANIFEST)
            sizes[directory] = sum(entry.size for entry in place.entries())
        added = self._distribution.added(self._before)
        return BuiltShard(self._shard, name, rows, keys, len(table), own, sizes, files, added)

    def _finish_rows(self, files: dict[str, Any]) -> tuple[str, str]:
        """Write the own rows and their keys, note the file of the former, and return the names of both."""
        if len(self._waiting):
            self._write_rows()
        assert self._writer is not None
        self._writer.close()
        rows, keys = f"rows-{self._ending}.parquet", f"keys-{self._ending}"
        self._place.write(rows, self._file)
        files[rows] = file_entry(mapped(self._file))
        write(self._place / keys, KEYS_KIND, {"keys": sorted_keys(self._own.values)}, {})
        del self._own, self._writer
        return rows, keys


def _entry(place: Place, name: str) -> dict[str, Any]:
    """Return the entry of the manifest for a small file."""
    return file_entry(np.frombuffer(place.read(name), np.uint8))


def build_sharded(
    place: Place,
    table: pa.Table,
    *,
    index: str,
    distribution: str,
    shards: int,
    messages: pa.Table | None = None,
) -> None:
    """Build the version of the subscriptions in *table*, which are in the order of their ids, in this process."""
    subscriptions = SubscriptionTable.from_arrow(table)
    coding = subscriptions.coding
    sample = None if messages is None else MessageBatch.from_arrow(messages, like=subscriptions)
    fitted = distribute(distribution, subscriptions, shards, messages=sample)
    stored = fitted.route_subscriptions(subscriptions)
    build, built = new_name(), []
    try:
        for shard in np.unique(stored.shards).tolist():
            rows = stored.rows[stored.shards == shard]
            with ShardBuilder(place, build, shard, table.schema, fitted, coding) as builder:
                builder.add(table.take(rows), subscriptions.take(rows), Routes(*ragged_take(*stored, rows)))
                built.append(builder.finish(index))
        finish_version(place, build, built, fitted, coding, table.schema, index=index, size=len(table))
    finally:
        discard_build(place, build)


def finish_version(
    place: Place,
    build: str,
    built: Sequence[BuiltShard],
    distribution: Distribution,
    coding: Coding,
    schema: pa.Schema,
    *,
    index: str,
    size: int,
) -> None:
    """Make a version of the shards that were built, unless there is one already.

    Shards without subscriptions, which nobody built, are written here. *size* is how many subscriptions there are.
    """
    own = sum(shard.own for shard in built)
    if own != size:
        raise InputError(
            f"{size:,} subscriptions were counted, but {own:,} were built: they changed meanwhile; "
            "write them to a table first, and build from it"
        )
    parts = {shard.shard: shard for shard in built}
    for number in set(range(distribution.shards)) - parts.keys():
        with ShardBuilder(place, build, number, schema, distribution, coding) as builder:
            parts[number] = builder.finish(index)
    whole = distribution.joined(np.unique(np.concatenate([part.added for part in parts.values()])))
    name = f"distribution-{build}-{new_name()}"
    save_distribution(whole, coding, place / name)
    files = {f"{name}/{MANIFEST}": _entry(place / name, MANIFEST)}
    for number in range(distribution.shards):
        files |= parts[number].files
    document = {
        "index": index,
        "distribution": distribution.name,
        "shards": distribution.shards,
        "subscriptions": size,
        "stored": sum(part.stored for part in parts.values()),
        "schema": base64.b64encode(schema.remove_metadata().serialize()).decode(),
        "directory": name,
        "parts": [_told(parts[number]) for number in range(distribution.shards)],
    }
    place.create(MANIFEST, encode_manifest(KIND, document, files))


def _told(part: BuiltShard) -> Mapping[str, Any]:
    """Return what the document of the manifest says about a shard."""
    told = {name: getattr(part, name) for name in ("directory", "rows", "keys", "stored", "own")}
    return told | {"bytes": part.nbytes}


def discard_build(place: Place, build: str) -> None:
    """Remove what was written for a build and does not count; if there is a version, also what was abandoned long ago.

    Only the manifest tells what counts: a call that failed may have created it, and its answer was lost. If it cannot
    be read, nothing is removed.
    """
    files = read_manifest(place, KIND).files if place.exists(MANIFEST) else {}
    named = {MANIFEST, *(file.partition("/")[0] for file in files)}
    parts: dict[str, float] = {}
    for entry in place.entries():
        part = entry.name.partition("/")[0]
        parts[part] = max(parts.get(part, 0.0), entry.modified)
    old = time.time() - config.SHARD_ABANDONED_SECONDS
    for part, modified in parts.items():
        ours = f"-{build}-" in part
        if part in named or not (ours or (files and modified < old)):
            continue
        if part.endswith(".parquet"):
            place.remove([part])
        else:
            (place / part).clear()
    if place.local is not None:  # drafts of tasks that were killed
        for draft in place.local.glob(f".*-{build}-*"):
            shutil.rmtree(draft, ignore_errors=True)
