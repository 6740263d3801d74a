"""Deltas: the changes that micro-batches made since a version, and the subscriptions that result.

===================  ================================================================================================
``deltas/``          Parquet files of changed subscriptions; each covers some micro-batches: first and last are its name
``before/``          the subscriptions that a micro-batch replaced, as they were before; needed by it alone
``gone/``            tombstones of ids that the version does not have any more
``refused/``         the last records of change that could not be applied, with the reason
===================  ================================================================================================

No file ever changes, and each has its own name; the state of a micro-batch says which count. Deltas come in *tiers*:
when there are several of about the same size, the next micro-batch merges them into one. So their number grows with the
logarithm of the number of micro-batches, and so does how often a row is written again.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nearcast import config
from nearcast.columns.from_arrow.names import SUBSCRIPTION_COLUMNS
from nearcast.sharding.replica import CHANGE, CHANGED_AT, subscribed_rows
from nearcast.spark.live.changes import STAMPS, resolve
from nearcast.spark.live.records import REFUSED
from nearcast.storage.places import Place

__all__ = ["Delta", "Deltas", "Outcome", "Tombstones", "Version", "known_columns", "subscription_schema"]

_BATCH = "batch"  # the column of refused records with the number of their micro-batch


class Delta(NamedTuple):
    """A file of changes."""

    name: str
    rows: int
    first: int  # of the micro-batches that it covers
    last: int


class Tombstones(NamedTuple):
    """A file of ids that a version does not have any more."""

    name: str
    rows: int


class Outcome(NamedTuple):
    """What is there when the changes of a micro-batch have been applied."""

    deltas: tuple[Delta, ...]
    before: str | None
    refused: int
    refusals: str | None


class Version(Protocol):
    """What deltas need of a version of the index."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its subscriptions."""

    def rows_with_ids(self, ids: pa.Array) -> pa.Table:
        """Return its subscriptions with these ids."""


def subscription_schema(version: Version) -> pa.Schema:
    """Return the columns of the subscriptions of a version, without those that are kept beside them."""
    return pa.schema([field for field in version.schema if field.name in SUBSCRIPTION_COLUMNS])


def known_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of a version, a delta or tombstones with the columns that a delta has, null where there are none."""
    full = pa.schema([*schema, (CHANGE, pa.string()), (CHANGED_AT, STAMPS)])
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(len(rows), field.type)
        for field in full
    ]
    return pa.table(columns, schema=full)


class Deltas:
    """The deltas in a home. The driver keeps those that it has read or written in memory, up to a limit."""

    def __init__(self, home: Place) -> None:
        self._home = home
        self._cache: OrderedDict[str, pa.Table] = OrderedDict()
        self._cached = 0  # bytes

    def uri(self, part: str, name: str) -> str:
        """Return the URI of a file."""
        return f"{self._home.uri}/{part}/{name}"

    def files(self, deltas: Iterable[Delta]) -> dict[str, int]:
        """Return the URIs of deltas, and the rows of each."""
        return {self.uri("deltas", delta.name): delta.rows for delta in deltas}

    # --- A micro-batch ---------------------------------------------------------------------------------------------

    def apply(
        self,
        records: pa.Table,
        number: int,
        version: Version,
        *,
        upto: int,
        deltas: Sequence[Delta],
        gone: Tombstones | None,
        now: int,
        refused: int,
        refusals: str | None,
    ) -> Outcome:
        """Write what the records of a micro-batch change, after *version*, *gone* and the earlier *deltas*.

        The files are there when this returns.
        """
        if not len(records):
            return Outcome(tuple(deltas), None, refused, refusals)
        schema = subscription_schema(version)
        changes = resolve(records, schema, lambda ids: self._current(ids, version, schema, deltas, gone), now)
        if changes.refused_count:
            refusals = self._refuse(changes.refused, number, refusals)
            refused += changes.refused_count
        if not len(changes.delta):
            return Outcome(tuple(deltas), None, refused, refusals)
        earlier = self._merged(deltas)
        first = 1 + (earlier[-1].last if earlier else upto)
        own = self._write_delta(changes.delta, first, number)
        before = self._write("before", f"{number:012}", changes.before)
        return Outcome((*earlier, own), before, refused, refusals)

    def _current(
        self,
        ids: pa.Array,
        version: Version,
        schema: pa.Schema,
        deltas: Sequence[Delta],
        gone: Tombstones | None,
    ) -> pa.Table:
        """Return what is known of these ids before the micro-batch: of each, the newest row."""
        found = []
        files = [f"deltas/{delta.name}" for delta in reversed(deltas)]
        for file in [*files, *([f"gone/{gone.name}"] if gone is not None else [])]:
            if not len(ids):
                break
            rows = self._read(file)
            rows = rows.filter(pc.is_in(rows["id"], ids.cast(rows.schema.field("id").type)))
            if len(rows):
                found.append(known_columns(rows, schema))
                ids = ids.filter(pc.invert(pc.is_in(ids, found[-1]["id"].combine_chunks())))
        if len(ids):
            found.append(known_columns(version.rows_with_ids(ids), schema))
        return pa.concat_tables(found) if found else known_columns(schema.empty_table(), schema)

    def write_gone(self, rows: pa.Table, upto: int) -> Tombstones:
        """Write the tombstones that belong to a version."""
        ordered = rows.take(pc.sort_indices(rows["id"]))
        return Tombstones(self._write("gone", f"{upto:012}", ordered, keep=False), len(rows))

    def subscribed(self, own: Delta) -> pa.Table:
        """Return the subscriptions that a micro-batch added or changed, as they are after it."""
        return subscribed_rows(self._read(f"deltas/{own.name}"))

    # --- Tiers -----------------------------------------------------------------------------------------------------

    def _merged(self, deltas: Sequence[Delta]) -> tuple[Delta, ...]:
        """Return deltas with the same content, of which the newest are merged if there are several of one size."""
        start = _tier(deltas)
        if len(deltas) - start < 2:
            return tuple(deltas)
        rows = pa.concat_tables([self._read(f"deltas/{delta.name}") for delta in deltas[start:]])
        whole = self._write_delta(_latest(rows), deltas[start].first, deltas[-1].last)
        return (*deltas[:start], whole)

    def _write_delta(self, rows: pa.Table, first: int, last: int) -> Delta:
        name = self._write("deltas", f"{first:012}-{last:012}", rows)
        return Delta(name, len(rows), first, last)

    # --- Refused records -------------------------------------------------------------------------------------------

    def _refuse(self, rows: pa.Table, number: int, earlier: str | None) -> str:
        """Write the last refused records; return the name of the file."""
        rows = rows.append_column(_BATCH, pa.array(np.full(len(rows), number)))
        kept = pa.concat_tables([self.refused(earlier), rows])[-config.LIVE_REFUSED :]
        return self._write("refused", f"{number:012}", kept)

    def refused(self, name: str | None) -> pa.Table:
        """Return the last refused records: id, change, reason, detail and the number of the micro-batch."""
        if name is None:
            return pa.schema([*REFUSED, (_BATCH, pa.int64())]).empty_table()
        return self._read(f"refused/{name}")

    # --- Files -----------------------------------------------------------------------------------------------------

    def _write(self, part: str, span: str, rows: pa.Table, *, keep: bool = True) -> str:
        name = f"{span}-{uuid.uuid4().hex[:12]}.parquet"
        content = pa.BufferOutputStream()
        pq.write_table(rows, content)
        (self._home / part).write(name, content.getvalue().to_pybytes())
        if keep:
            self._keep(f"{part}/{name}", rows)
        return name

    def _read(self, file: str) -> pa.Table:
        if file in self._cache:
            self._cache.move_to_end(file)
            return self._cache[file]
        part, _, name = file.partition("/")
        rows = pq.read_table(pa.BufferReader((self._home / part).read(name)))
        self._keep(file, rows)
        return rows

    def _keep(self, file: str, rows: pa.Table) -> None:
        self._cache[file] = rows
        self._cached += rows.nbytes
        while len(self._cache) > 1 and self._cached > config.LIVE_CACHED_BYTES:
            self._cached -= self._cache.popitem(last=False)[1].nbytes

    def remove(self, files: Iterable[str]) -> None:
        """Remove files that no state names."""
        by_part: dict[str, list[str]] = {}
        for file in files:
            if file in self._cache:
                self._cached -= self._cache.pop(file).nbytes
            part, _, name = file.partition("/")
            by_part.setdefault(part, []).append(name)
        for part, names in by_part.items():
            (self._home / part).remove(sorted(names))

    def sweep(self, named: set[str], before: float) -> None:
        """Remove the files of interrupted drivers: those that are not *named*, and that were written before a time."""
        for part in ("deltas", "before", "gone", "refused"):
            found = (self._home / part).entries()
            old = [entry.name for entry in found if entry.modified < before]
            self.remove(file for name in old if (file := f"{part}/{name}") not in named)


def _tier(deltas: Sequence[Delta]) -> int:
    """Return the first of the deltas at the end that are to be merged, or the number of all if there are none.

    They are merged if they are many, and none has much more than its part of the rows: so a row gets into a file
    several times as large whenever it is written again. The largest merge that is possible is made; it includes the
    smaller ones.
    """
    best, rows, largest = len(deltas), 0, 0
    for start in range(len(deltas) - 1, -1, -1):
        rows += deltas[start].rows
        largest = max(largest, deltas[start].rows)
        if rows > config.LIVE_MERGED_ROWS:
            break
        if len(deltas) - start >= config.LIVE_TIER and config.LIVE_TIER * largest <= 2 * rows:
            best = start
    return best


def _latest(rows: pa.Table) -> pa.Table:
    """Return the last row of each id, in the order of ids."""
    coded = rows["id"].combine_chunks().dictionary_encode()
    last = np.empty(len(coded.dictionary), np.int64)
    last[coded.indices.to_numpy()] = np.arange(len(rows))  # the last of several is kept
    latest = rows.take(pa.array(last))
    return latest.take(pc.sort_indices(latest["id"]))
