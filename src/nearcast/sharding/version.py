"""A sharded version: subscriptions divided by a distribution, one index for each shard, in one place.

==========================  ==================================================================================
``manifest.json``           index, distribution, shards, counts, columns; the names of the parts and checksums
``distribution-…``          the distribution, and the coding of words that all shards share
``shard-0000-…`` …          the index of each shard, with the ids of its subscriptions; which other shards have them
``rows-0000-….parquet`` …   each subscription once, in the file of its first shard, in the order of ids
``keys-0000-…`` …           where the row of an id is in that file
==========================  ==================================================================================

It never changes, and exists when its manifest does. Its parts are written by any number of processes, the tasks of a
Spark job for example (:mod:`.building`). Later versions are made from the rows; to change a few subscriptions, only the
row groups that have them are read.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast import config
from nearcast.columns import Matches, MessageBatch
from nearcast.columns.coding import Coding
from nearcast.columns.ids import id_words
from nearcast.columns.parts import part_of
from nearcast.columns.ragged import ragged_take
from nearcast.columns.vocabulary import Vocabulary
from nearcast.columns.wire import Known
from nearcast.errors import ColumnError, IndexFileError
from nearcast.matching import INDEXES, Index
from nearcast.sharding.distribution import Distribution, Routes, keep_delivered
from nearcast.sharding.distribution.files import open_distribution
from nearcast.sharding.keys import find_keys
from nearcast.storage.directory import read, restoring
from nearcast.storage.manifest import file_entry, read_manifest
from nearcast.storage.places import Place, place_at

__all__ = ["KEYS_KIND", "KIND", "SHARD_KIND", "Shard", "ShardedVersion"]

KIND = "shards"  # the kind of directory
SHARD_KIND, KEYS_KIND = "shard", "keys"  # of those inside
_CHECKED = {"page_checksum_verification": True}  # how rows are read


class Shard(NamedTuple):
    """An open shard."""

    matcher: Index
    ids: pa.Array  # of its subscriptions, by row
    stored: Routes | None  # the shards that store each of them; None if each is stored here alone


class _Footer(NamedTuple):
    """The footer of a file of rows."""

    metadata: pq.FileMetaData
    ends: NDArray[np.int64]  # the row after each row group

    @classmethod
    def of(cls, file: pq.ParquetFile) -> _Footer:
        groups = (file.metadata.row_group(group) for group in range(file.metadata.num_row_groups))
        return cls(file.metadata, np.cumsum([group.num_rows for group in groups]))


class ShardedVersion:
    """An open sharded version: it answers as one index over all subscriptions would. It cannot be changed.

    Messages are coded by :attr:`coding`. Subscription rows are numbered by their first shards, then by id.
    """

    def __init__(self, place: str | Path | Place, *, verify: bool = False) -> None:
        self.place = place_at(place)
        manifest = read_manifest(self.place, KIND)
        self._files, self._told = manifest.files, manifest.document
        self.digest = manifest.digest  # of the manifest, and so of everything
        with restoring(self._shown):
            self._parts: list[dict[str, Any]] = self._told["parts"]
            self._size, self.shards = int(self._told["subscriptions"]), int(self._told["shards"])
            self.schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self._told["schema"])))
        self.shard = lru_cache(maxsize=None)(self.open_shard)
        self._footer = lru_cache(maxsize=None)(self._read_footer)
        self._keys = lru_cache(maxsize=None)(self._open_keys)
        if verify:
            self._verify()

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"<ShardedVersion: {len(self):,} subscriptions in {self.distribution!r}>"

    @property
    def _shown(self) -> Any:
        return self.place.local or self.place

    @property
    def has_copies(self) -> bool:
        """Whether some subscription is stored in several shards."""
        return bool(self._told["stored"] > self._size)

    # --- Soundness -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise if a file is missing, or has another size than it was written with."""
        sizes: dict[str, int] = {}
        for entry in self.place.entries():
            for name in {entry.name, entry.name.partition("/")[0]}:
                sizes[name] = sizes.get(name, 0) + entry.size
        expected = {name: entry["bytes"] for name, entry in self._files.items()}
        for part in self._parts:
            expected |= part["bytes"]
        for name, size in expected.items():
            if sizes.get(name, 0) != size:
                raise IndexFileError(
                    f"{self._shown}/{name} is missing, or a part of it is: there are {sizes.get(name, 0):,} bytes "
                    f"of {size:,}; build it again"
                )

    def _verify(self) -> None:
        """Raise unless all files are as they were written."""
        self.check()
        for name, entry in self._files.items():
            if file_entry(np.frombuffer(self.place.read(name), np.uint8)) != entry:
                raise IndexFileError(
                    f"{self._shown}/{name} is damaged: its checksum differs from the manifest; build it again"
                )
        open_distribution(self.place / self._told["directory"], verify=True)
        for part in self._parts:
            read(self.place / part["directory"], SHARD_KIND, verify=True)
            if part["keys"]:
                self._open_keys(part["keys"])

    # --- Parts -----------------------------------------------------------------------------------------------------

    @property
    def distribution(self) -> Distribution:
        """Where subscriptions are stored, and messages are sent."""
        return self._distribution[0]

    @property
    def coding(self) -> Coding:
        """The coding of messages and subscriptions; all shards share it."""
        return self._distribution[1]

    @property
    def known(self) -> Known:
        """The codes that every process that opens this version has; :attr:`coding` may grow."""
        return self._distribution[2]

    @cached_property
    def _distribution(self) -> tuple[Distribution, Coding, Known]:
        distribution, coding = open_distribution(self.place / self._told["directory"])
        return distribution, coding, Known.of(coding)

    def open_shard(self, number: int) -> Shard:
        """Open a shard, in the coding of this version; each call opens a new one, so changes to it stay private."""
        place = self.place / self._parts[number]["directory"]
        document, arrays = read(place, SHARD_KIND)
        with restoring(place.local or place):
            index = Index.restored(INDEXES[document["index"]], self.coding, part_of(arrays, "index"))
            stored = part_of(arrays, "stored")
            ids = index.store.ids
            if ids is None:  # there is no subscription
                ids = self.schema.empty_table()["id"].combine_chunks()
            return Shard(index, ids, Routes(**stored) if stored else None)

    @property
    def row_files(self) -> dict[str, int]:
        """The files with the rows of all subscriptions, each once, by URI; and how many rows each has."""
        return {f"{self.place.uri}/{part['rows']}": part["own"] for part in self._parts if part["rows"]}

    # --- Rows ------------------------------------------------------------------------------------------------------

    def rows_with_ids(self, ids: pa.Array) -> pa.Table:
        """Return the rows of the subscriptions with these ids; ids that there are none of are left out.

        Only the row groups that have them are read, at most one for each id.
        """
        wanted = ids.cast(self.schema.field("id").type)
        found = {
            part["rows"]: rows
            for part in self._parts
            if part["rows"] and len(rows := find_keys(self._keys(part["keys"]), wanted).rows)
        }
        with ThreadPoolExecutor(config.STORAGE_TRANSFERS) as pool:
            read = pool.map(lambda name: self._read_groups(name, found[name], wanted), found)
            return pa.concat_tables([self.schema.empty_table(), *read])

    def _read_groups(self, name: str, rows: NDArray[np.int64], wanted: pa.Array) -> pa.Table:
        """Return what the row groups of these rows have of the ids that are wanted."""
        metadata, ends = self._footer(name)
        groups = np.unique(np.searchsorted(ends, rows, side="right")).tolist()
        with self._reading(name) as opened, pq.ParquetFile(opened, metadata=metadata, **_CHECKED) as file:
            found = file.read_row_groups(groups, use_threads=False)
            return found.filter(pc.is_in(found["id"], wanted)).cast(self.schema)

    def _read_footer(self, name: str) -> _Footer:
        with self._reading(name) as opened, pq.ParquetFile(opened) as file:
            return _Footer.of(file)

    @contextmanager
    def _reading(self, name: str) -> Iterator[Any]:
        """Open a file of rows; if it turns out to be damaged, an error names it."""
        with restoring(f"{self._shown}/{name}"), self.place.open(name) as opened:
            try:
                yield opened
            except (OSError, pa.ArrowException) as error:
                if getattr(error, "errno", None) is not None:  # of the system, not of the content
                    raise
                raise ValueError(error) from error

    def _open_keys(self, name: str) -> NDArray[np.uint64]:
        """Map the keys of a file of rows; from an object store they are fetched once."""
        _, arrays = read(self.place / name, KEYS_KIND)
        return arrays["keys"]

    @property
    def ids(self) -> pa.Array:
        """The ids of all subscriptions, by row."""
        own = [self.schema.empty_table()["id"].combine_chunks()]
        for number in range(self.shards):
            _, ids, stored = self.shard(number)
            own.append(ids if stored is None else ids.filter(pa.array(_is_first(stored, number))))
        return pa.concat_arrays([each.cast(own[0].type) for each in own])

    @cached_property
    def _rows(self) -> list[NDArray[np.int32]]:
        """For each shard, the row of each of its subscriptions among all."""
        copied, rows_of_copied, size, every = Vocabulary(), np.empty(0, np.int32), 0, []
        for number in range(self.shards):
            _, ids, stored = self.shard(number)
            own = np.ones(len(ids), np.bool_) if stored is None else _is_first(stored, number)
            rows = np.empty(len(ids), np.int32)
            rows[own] = np.arange(size, size + np.count_nonzero(own))
            size += int(np.count_nonzero(own))
            if stored is not None:
                # A first shard comes before the others, so all copies were seen there.
                rows[~own] = rows_of_copied[copied.encode(_words(ids, ~own))]
                several = own & (np.diff(stored.offsets) > 1)
                copied.add(_words(ids, several))
                rows_of_copied = np.concatenate([rows_of_copied, rows[several]])
            every.append(rows)
        return every

    def match(self, batch: MessageBatch, threads: int = 1) -> Matches:
        """Return the subscription rows that each message of *batch* matches, as :meth:`Index.match` does."""
        if not batch.coding.fits(self.coding):
            raise ColumnError(
                "the messages are coded by another vocabulary; make the batch with like=version"
            )
        sent = self.distribution.route_messages(batch)
        found = [np.empty((2, 0), np.int64)]
        for number in range(self.shards):
            messages = sent.rows[sent.shards == number]
            if len(messages):
                index, _, stored = self.shard(number)
                here = index.match(batch.take(messages), threads=threads)
                if stored is not None:
                    here = keep_delivered(here, number, stored, Routes(*ragged_take(*sent, messages)))
                found.append(np.stack([messages[here.messages], self._rows[number][here.rows]]))
        pairs = np.concatenate(found, axis=1)
        order = np.lexsort(pairs[::-1])
        offsets = np.searchsorted(pairs[0][order], np.arange(len(batch) + 1))
        return Matches(offsets.astype(np.int64), pairs[1][order].astype(np.int32))


def _is_first(stored: Routes, number: int) -> NDArray[np.bool_]:
    """Tell of which subscriptions of a shard it is the first."""
    first: NDArray[np.bool_] = stored.shards[stored.offsets[:-1]] == number
    return first


def _words(ids: pa.Array, chosen: NDArray[np.bool_]) -> Any:
    """Return the chosen ids as words of a vocabulary."""
    words = ids.filter(pa.array(chosen))
    return id_words(words) if len(words) else []
