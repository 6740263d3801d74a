"""What runs in Spark's Python workers while subscriptions change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType

from nearcast import Index, Matches, MessageBatch, build_index, config
from nearcast.columns.coding import Coding
from nearcast.columns.ragged import offsets_of
from nearcast.sharding.distribution import Routes
from nearcast.sharding.replica import PUT, Replica, Router, subscriptions_of
from nearcast.sharding.version import Sharded
from nearcast.spark.live.valid import ORDER
from nearcast.spark.worker import SENT, SHARD, spark_ids

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
                lists = here[SENT]
                routes = Routes(
                    offsets_of(pc.list_value_length(lists).to_numpy()), lists.flatten().to_numpy()
                )
                plain = here.drop_columns([SHARD, SENT])
                yield from _pairs(replica.match(plain, routes), here["id"], replica.ids, "publish")

    return run


def joining(delta: str, before: str) -> Stage:
    """Return the stage that finds what subscriptions of a delta receive which they did not match as they were.

    The order of publication goes with each delivery.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        changed = pq.read_table(delta)
        rows = changed.filter(changed[PUT])
        now, ids = _small_index(rows)
        then, old_ids = _small_index(pq.read_table(before))
        at = {old: row for row, old in enumerate(ids.to_pylist())}
        row_of = np.array([at[old] for old in old_ids.to_pylist()], np.int64)
        for batch in batches:
            messages = batch.drop_columns(list(ORDER))
            found = now.match(MessageBatch.from_arrow(messages, like=now))
            known = then.match(MessageBatch.from_arrow(messages, like=then))
            size = len(rows)
            told = np.isin(
                found.messages * size + found.rows, known.messages * size + row_of[known.rows], invert=True
            )
            fresh = Matches(
                offsets_of(np.bincount(found.messages[told], minlength=len(batch))), found.rows[told]
            )
            yield from _pairs(fresh, batch["id"], ids, "subscribe", {name: batch[name] for name in ORDER})

    return run


def _small_index(rows: pa.Table) -> tuple[Index, pa.Array]:
    """Return an index over a few subscriptions, and their ids."""
    table = subscriptions_of(rows, Coding.new())
    return build_index(table), rows["id"].combine_chunks()


def _pairs(
    found: Matches,
    message_ids: pa.Array,
    ids: pa.Array,
    reason: str,
    more: Mapping[str, pa.Array] = MappingProxyType({}),
) -> Iterator[pa.RecordBatch]:
    """Yield matches as ids, in batches of bounded size, with more columns of the messages."""
    ids = spark_ids(ids)
    for start in range(0, len(found.rows), config.SPARK_OUTPUT_ROWS):
        part = slice(start, start + config.SPARK_OUTPUT_ROWS)
        messages = pa.array(found.messages[part])
        yield pa.RecordBatch.from_pydict(
            {
                "message_id": message_ids.take(messages),
                "subscription_id": ids.take(pa.array(found.rows[part])),
                "reason": pa.array([reason] * len(messages)),
                **{name: column.take(messages) for name, column in more.items()},
            }
        )
