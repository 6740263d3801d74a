"""Deltas: the changes that micro-batches made since a version, and the subscriptions that result.

===================  ================================================================================================
``deltas/``          for each micro-batch that changed subscriptions, a Parquet file of the changed ones
``before/``          the same subscriptions as they were before the micro-batch
``refused/``         records of change that could not be applied, with the reason
===================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nearcast.sharding.replica import CHANGE, subscribed_rows
from nearcast.sharding.version import ShardedVersion
from nearcast.spark.live.changes import resolve
from nearcast.storage.atomic import write_durably

__all__ = ["Deltas", "subscription_schema"]

_PARTS = ("deltas", "before", "refused")


def subscription_schema(version: Path) -> pa.Schema:
    """Return the columns of the subscriptions of a version."""
    return ShardedVersion(version).schema


class Deltas:
    """The deltas in a directory; each is written once and never changes."""

    def __init__(self, home: Path) -> None:
        self._home = home
        for part in _PARTS:
            (home / part).mkdir(parents=True, exist_ok=True)

    def paths(self, numbers: Sequence[int], part: str = "deltas") -> list[Path]:
        """Return the files of micro-batches."""
        return [self._home / part / f"{number:012}-{number:012}-0.parquet" for number in numbers]

    def apply(self, records: pa.Table, number: int, version: Path, earlier: Sequence[int]) -> bool:
        """Write the delta of a micro-batch with these records of change; return whether anything changed.

        The files are on disk when this returns.
        """
        schema = subscription_schema(version)
        changes = resolve(
            records, schema.remove_metadata(), lambda ids: self._current(ids, version, schema, earlier)
        )
        if len(changes.refused):
            _write(changes.refused, *self.paths([number], "refused"))
        if not len(changes.delta):
            return False
        _write(changes.before, *self.paths([number], "before"))
        _write(changes.delta, *self.paths([number]))
        return True

    def _current(
        self, ids: list[Any], version: Path, schema: pa.Schema, earlier: Sequence[int]
    ) -> dict[Any, dict[str, Any]]:
        """Return the subscriptions with these ids, by id, as they are before the micro-batch."""
        chosen = pc.field("id").isin(pa.array(ids, schema.field("id").type))
        rows = ShardedVersion(version).rows_with_ids(pa.array(ids, schema.field("id").type)).to_pylist()
        found = {row["id"]: row for row in rows}
        for path in self.paths(earlier):
            for row in pq.read_table(path, filters=chosen).to_pylist():
                if row.pop(CHANGE) != "unsubscribe":
                    found[row["id"]] = row
                else:
                    found.pop(row["id"], None)
        return found

    def subscriptions(self, version: Path, numbers: Sequence[int]) -> pa.Table:
        """Return all subscriptions of a version after these deltas."""
        schema = subscription_schema(version)
        files = ShardedVersion(version).row_files
        rows = pa.concat_tables(
            [schema.empty_table(), *(pq.read_table(uri.removeprefix("file://")) for uri in files)]
        )
        for path in self.paths(numbers):
            delta = pq.read_table(path)
            rows = rows.filter(pc.invert(pc.is_in(rows["id"], delta["id"].combine_chunks())))
            rows = pa.concat_tables([rows, subscribed_rows(delta).select(schema.names).cast(rows.schema)])
        return rows

    def subscribed(self, number: int) -> pa.Table:
        """Return the subscriptions that a micro-batch added or changed, as they are after it."""
        return subscribed_rows(pq.read_table(*self.paths([number])))

    def rows(self, numbers: Sequence[int], part: str = "deltas") -> int:
        """Return the number of rows in the files of these micro-batches."""
        return sum(pq.read_metadata(path).num_rows for path in self.paths(numbers, part))

    def refused(self) -> int:
        """Return how many records could not be applied since the beginning."""
        return self.rows(
            [int(path.stem[:12]) for path in (self._home / "refused").glob("*.parquet")], "refused"
        )

    def forget(self, upto: int) -> None:
        """Remove the deltas of micro-batches up to this one."""
        for part in ("deltas", "before"):
            for path in (self._home / part).glob("*.parquet"):
                if int(path.stem[:12]) <= upto:
                    path.unlink()


def _write(table: pa.Table, path: Path) -> None:
    with write_durably(path) as file:
        pq.write_table(table, file)
