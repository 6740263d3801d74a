"""The stages that run in Spark's Python workers: Arrow batches in, Arrow batches out."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast import Matches, MessageBatch, config, open_index
from nearcast.columns.ragged import offsets_of
from nearcast.matching import Index
from nearcast.sharding.distribution import Routes
from nearcast.sharding.version import build_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from nearcast.sharding.version import ShardedVersion

__all__ = [
    "SENT",
    "SHARD",
    "build_shards",
    "delivery_rows",
    "match_in_portions",
    "match_messages",
    "match_sent",
    "open_version",
    "send",
    "send_messages",
    "sent_routes",
    "spark_ids",
    "split_by_shard",
]

# Columns of a message on its way to a shard: that shard, and all shards that the message is sent to.
SHARD, SENT = "_shard", "_sent"


@lru_cache(maxsize=config.SPARK_OPEN_INDEXES)
def open_version(version: str) -> tuple[Index | ShardedVersion, pa.Array]:
    """Open the index in the directory *version*, once per process; return it with the ids of its subscriptions.

    A version never changes, so it need not be checked again. Workers outlive a micro-batch, and share the pages of the
    files with one another.
    """
    index = open_index(version)
    if isinstance(index, Index):
        table = index.table  # has all rows, those of removed subscriptions included
        return index, spark_ids(pa.array(np.arange(len(table))) if table.ids is None else table.ids)
    return index, spark_ids(index.ids)


def _open_sharded(version: str) -> tuple[ShardedVersion, pa.Array]:
    index, ids = open_version(version)
    assert not isinstance(index, Index), f"{version} has no shards"
    return index, ids


def spark_ids(ids: pa.Array) -> pa.Array:
    """Return ids in a type that Spark has: it has no unsigned integers, and only one type of string."""
    if pa.types.is_signed_integer(ids.type):
        return ids
    return ids.cast(pa.int64() if pa.types.is_integer(ids.type) else pa.string())


# --- Stages ----------------------------------------------------------------------------------------------------------


def match_messages(batches: Iterable[pa.RecordBatch], version: str) -> Iterator[pa.RecordBatch]:
    """Match messages against the index in *version*; yield the ids of each delivery."""
    index, ids = open_version(version)

    def match(part: pa.RecordBatch) -> Matches:
        return index.match(MessageBatch.from_arrow(part, like=index))

    for part, found in match_in_portions(batches, match):
        yield from delivery_rows(found, {"subscription_id": ids}, {"message_id": part["id"]})


def send_messages(batches: Iterable[pa.RecordBatch], version: str) -> Iterator[pa.RecordBatch]:
    """Yield each message once for each shard that it is sent to.

    If some subscriptions are stored in several shards, each row also lists all shards of its message.
    """
    index, _ = _open_sharded(version)
    for batch in batches:
        routes = index.distribution.route_messages(MessageBatch.from_arrow(batch, like=index))
        yield send(batch, routes, list_shards=index.has_copies)


def match_sent(batches: Iterable[pa.RecordBatch], version: str) -> Iterator[pa.RecordBatch]:
    """Match messages in the shards that they were sent to; yield the ids of the deliveries of these shards."""
    index, ids = _open_sharded(version)
    for batch in batches:
        for number, here in split_by_shard(batch):
            for part, found in match_in_portions([here], partial(_match_shard, index, number)):
                in_all = Matches(found.offsets, index.shard(number).rows[found.rows].astype(np.int32))
                yield from delivery_rows(in_all, {"subscription_id": ids}, {"message_id": part["id"]})


def _match_shard(index: ShardedVersion, number: int, sent: pa.RecordBatch) -> Matches:
    """Return what a shard delivers of the messages that were sent to it."""
    messages = sent.drop_columns([name for name in (SHARD, SENT) if name in sent.schema.names])
    routes = sent_routes(sent) if index.has_copies else None
    return index.match_shard(number, MessageBatch.from_arrow(messages, like=index), routes)


def build_shards(batches: Iterable[pa.RecordBatch], draft: str, index: str) -> Iterator[pa.RecordBatch]:
    """Build the indexes of the shards that the rows of *batches* belong to; yield the size of each."""
    gathered = list(batches)
    if not gathered:
        return
    for number, rows in split_by_shard(pa.Table.from_batches(gathered)):
        count = build_shard(Path(draft), number, rows.drop_columns([SHARD]), index)
        yield pa.RecordBatch.from_pydict(
            {"shard": pa.array([number], pa.int32()), "subscriptions": pa.array([count], pa.int64())}
        )


# --- Steps that stages share -----------------------------------------------------------------------------------------


def send(batch: pa.RecordBatch, routes: Routes, *, list_shards: bool) -> pa.RecordBatch:
    """Return a row for each message and each of its shards; with *list_shards*, it lists the other shards too."""
    rows = pa.array(routes.rows)
    sent = batch.take(rows).append_column(SHARD, pa.array(routes.shards))
    if list_shards:
        lists = pa.ListArray.from_arrays(routes.offsets.astype(np.int32), routes.shards)
        sent = sent.append_column(SENT, lists.take(rows))
    return sent


def sent_routes(sent: pa.RecordBatch) -> Routes:
    """Return all shards of each message, as :func:`send` listed them."""
    lists = sent[SENT]
    return Routes(offsets_of(pc.list_value_length(lists).to_numpy()), lists.flatten().to_numpy())


def split_by_shard(rows: pa.RecordBatch | pa.Table) -> Iterator[tuple[int, pa.RecordBatch | pa.Table]]:
    """Yield each shard in the column ``_shard``, with the rows that it gets."""
    for number in pc.unique(rows[SHARD]).to_pylist():
        yield number, rows.filter(pc.equal(rows[SHARD], number))


def match_in_portions(
    batches: Iterable[pa.RecordBatch], match: Callable[[pa.RecordBatch], Matches]
) -> Iterator[tuple[pa.RecordBatch, Matches]]:
    """Match messages in portions whose matches fit into little memory; yield each portion with its matches."""
    size = config.SPARK_FIRST_MESSAGES
    for batch in batches:
        start = 0
        while start < len(batch):
            part = batch.slice(start, size)
            found = match(part)
            yield part, found
            start += len(part)
            fitting = config.SPARK_MATCHES * len(part) // max(len(found.rows), 1)
            size = max(1, min(fitting, config.SPARK_GROWTH * size))


def delivery_rows(
    found: Matches, subscriptions: Mapping[str, pa.Array], messages: Mapping[str, pa.Array]
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each match, in batches of bounded size: columns of its subscription and of its message."""
    for start in range(0, len(found.rows), config.SPARK_OUTPUT_ROWS):
        part = slice(start, start + config.SPARK_OUTPUT_ROWS)
        columns: dict[str, pa.Array] = {}
        for owners, rows in ((subscriptions, found.rows[part]), (messages, found.messages[part])):
            columns |= {name: column.take(pa.array(rows)) for name, column in owners.items()}
        yield pa.RecordBatch.from_pydict(columns)
