"""The stages that run in Spark's Python workers while subscriptions change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nearcast import Index, Matches, MessageBatch, build_index
from nearcast.columns.coding import Coding
from nearcast.columns.ragged import offsets_of
from nearcast.sharding.replica import CHANGE, Replica, Router, subscribed_rows, subscriptions_of
from nearcast.sharding.version import ShardedVersion
from nearcast.spark.live.message_store import ORDER
from nearcast.spark.worker import (
    SENT,
    SHARD,
    delivery_rows,
    match_in_portions,
    send,
    sent_routes,
    spark_ids,
    split_by_shard,
)

__all__ = ["joining_stage", "matching_stage", "sending_stage"]

Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Replicas:
    """The router of a version, and replicas of the shards that this process was asked for."""

    def __init__(self, version: str) -> None:
        self._version = ShardedVersion(version)
        self.router = Router(self._version)
        self._shards: dict[int, Replica] = {}

    def shard(self, number: int) -> Replica:
        if number not in self._shards:
            self._shards[number] = Replica(self._version, number, self.router)
        return self._shards[number]


@lru_cache(maxsize=2)  # the current version, and the one before for a repeat
def _replicas(version: str) -> _Replicas:
    return _Replicas(version)


def sending_stage(version: str, deltas: Sequence[str]) -> Stage:
    """Return the stage that sends each message to its shards."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        router = _replicas(version).router
        router.follow([Path(delta) for delta in deltas])
        for batch in batches:
            yield send(batch, router.route_messages(batch), list_shards=True)

    return run


def matching_stage(version: str, deltas: Sequence[str]) -> Stage:
    """Return the stage that matches messages in the shards that they were sent to."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, here in split_by_shard(batch):
                replica = _replicas(version).shard(number)
                replica.follow([Path(delta) for delta in deltas])
                ids = {"subscription_id": spark_ids(replica.ids)}
                for part, found in match_in_portions([here], partial(_match_shard, replica)):
                    yield from delivery_rows(found, ids, {"message_id": part["id"]})

    return run


def _match_shard(replica: Replica, sent: pa.RecordBatch) -> Matches:
    """Return what a shard delivers of the messages that were sent to it."""
    return replica.match(sent.drop_columns([SHARD, SENT]), sent_routes(sent))


def joining_stage(delta: str, before: str) -> Stage:
    """Return the stage that finds messages for the subscriptions of a delta, unless they matched before the change.

    Each delivery has its reason, the last change of the subscription, and the message's order of publication.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = subscribed_rows(pq.read_table(delta))
        new_index, ids = _small_index(rows)
        old_index, old_ids = _small_index(pq.read_table(before))
        row_of = {key: row for row, key in enumerate(ids.to_pylist())}
        new_rows = np.array([row_of[key] for key in old_ids.to_pylist()], np.int64)

        def match(part: pa.RecordBatch) -> Matches:
            messages = part.drop_columns(list(ORDER))
            found = new_index.match(MessageBatch.from_arrow(messages, like=new_index))
            known = old_index.match(MessageBatch.from_arrow(messages, like=old_index))
            size = len(rows)
            fresh = np.isin(
                found.messages * size + found.rows, known.messages * size + new_rows[known.rows], invert=True
            )
            return Matches(
                offsets_of(np.bincount(found.messages[fresh], minlength=len(part))), found.rows[fresh]
            )

        subscriptions = {"subscription_id": spark_ids(ids), "reason": rows[CHANGE].combine_chunks()}
        for part, found in match_in_portions(batches, match):
            order = {name: part[name] for name in ORDER}
            yield from delivery_rows(found, subscriptions, {"message_id": part["id"], **order})

    return run


def _small_index(rows: pa.Table) -> tuple[Index, pa.Array]:
    """Return an index over a few subscriptions, and their ids."""
    table = subscriptions_of(rows, Coding.new())
    return build_index(table), rows["id"].combine_chunks()
