"""What runs in Spark's Python workers while subscriptions change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType

from nearcast import Index, Matches, MessageBatch, build_index
from nearcast.columns.coding import Coding
from nearcast.columns.ragged import offsets_of
from nearcast.sharding.distribution import Routes
from nearcast.sharding.replica import CHANGE, Replica, Router, subscriptions_of, there
from nearcast.sharding.version import Sharded
from nearcast.spark.live.valid import ORDER
from nearcast.spark.worker import SENT, SHARD, pairs, portions, spark_ids

__all__ = ["SHARD", "delivering", "joining", "sending", "sent_schema"]

Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Replicas:
    """The shards of a version that this process has been asked for, and the way to them."""

    def __init__(self, version: str) -> None:
        self._version = Sharded(version)
        self.router = Router(self._version)
        self._shards: dict[int, Replica] = {}

    def shard(self, number: int) -> Replica:
        if number not in self._shards:
            self._shards[number] = Replica(self._version, number, self.router)
        return self._shards[number]


@lru_cache(maxsize=2)  # the one that counts, and the one before for a repeat
def _replicas(version: str) -> _Replicas:
    return _Replicas(version)


def sent_schema(messages: StructType) -> StructType:
    """Return the columns of messages on their way to shards."""
    way = StructType([*messages.fields, StructField(SHARD, IntegerType(), nullable=False)])
    return way.add(SENT, ArrayType(IntegerType(), containsNull=False), nullable=False)


def sending(version: str, deltas: Sequence[str]) -> Stage:
    """Return the stage that sends each message to its shards."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        router = _replicas(version).router
        router.reach([Path(delta) for delta in deltas])
        for batch in batches:
            routes = router.messages(batch)
            rows = pa.array(routes.rows)
            lists = pa.ListArray.from_arrays(routes.offsets.astype(np.int32), routes.shards)
            out = batch.take(rows).append_column(SHARD, pa.array(routes.shards))
            yield out.append_column(SENT, lists.take(rows))

    return run


def delivering(version: str, deltas: Sequence[str]) -> Stage:
    """Return the stage that matches what was sent to shards."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in pc.unique(batch[SHARD]).to_pylist():
                replica = _replicas(version).shard(number)
                replica.reach([Path(delta) for delta in deltas])
                here = batch.filter(pc.equal(batch[SHARD], number))
                ids = {"subscription_id": spark_ids(replica.ids)}
                for part, found in portions([here], partial(_matched, replica)):
                    yield from pairs(found, ids, {"message_id": part["id"]})

    return run


def _matched(replica: Replica, sent: pa.RecordBatch) -> Matches:
    """Return what a shard delivers of messages that were sent to it."""
    lists = sent[SENT]
    routes = Routes(offsets_of(pc.list_value_length(lists).to_numpy()), lists.flatten().to_numpy())
    return replica.match(sent.drop_columns([SHARD, SENT]), routes)


def joining(delta: str, before: str) -> Stage:
    """Return the stage that finds what subscriptions of a delta receive which they did not match as they were.

    The reason, which is the last change of the subscription, and the order of publication go with each delivery.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = there(pq.read_table(delta))
        now, ids = _small_index(rows)
        then, old_ids = _small_index(pq.read_table(before))
        at = {old: row for row, old in enumerate(ids.to_pylist())}
        row_of = np.array([at[old] for old in old_ids.to_pylist()], np.int64)

        def matched(part: pa.RecordBatch) -> Matches:
            messages = part.drop_columns(list(ORDER))
            found = now.match(MessageBatch.from_arrow(messages, like=now))
            known = then.match(MessageBatch.from_arrow(messages, like=then))
            size = len(rows)
            told = np.isin(
                found.messages * size + found.rows, known.messages * size + row_of[known.rows], invert=True
            )
            return Matches(
                offsets_of(np.bincount(found.messages[told], minlength=len(part))), found.rows[told]
            )

        subscriptions = {"subscription_id": spark_ids(ids), "reason": rows[CHANGE].combine_chunks()}
        for part, found in portions(batches, matched):
            order = {name: part[name] for name in ORDER}
            yield from pairs(found, subscriptions, {"message_id": part["id"], **order})

    return run


def _small_index(rows: pa.Table) -> tuple[Index, pa.Array]:
    """Return an index over a few subscriptions, and their ids."""
    table = subscriptions_of(rows, Coding.new())
    return build_index(table), rows["id"].combine_chunks()
