"""What runs in Spark's Python workers: Arrow batches in, Arrow batches out."""

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

    from nearcast.sharding.version import Sharded

__all__ = [
    "SENT",
    "SHARD",
    "built_shards",
    "deliveries",
    "opened",
    "pairs",
    "portions",
    "sent",
    "shard_deliveries",
    "spark_ids",
]

SHARD, SENT = (
    "_shard",
    "_sent",
)  # columns of a message on its way: the shard that it goes to, and all of these


@lru_cache(maxsize=config.SPARK_OPEN_INDEXES)
def opened(version: str) -> tuple[Index | Sharded, pa.Array]:
    """Open the index in the directory *version*, once per process; return it with the ids of its subscriptions.

    A version never changes, so nothing has to be looked at again. Workers live on from one micro-batch to the next
    and share the pages of the files with one another.
    """
    index = open_index(version)
    if isinstance(index, Index):
        table = index.table  # of all rows, those of removed subscriptions too
        return index, spark_ids(pa.array(np.arange(len(table))) if table.ids is None else table.ids)
    return index, spark_ids(index.ids)


def _opened_shards(version: str) -> tuple[Sharded, pa.Array]:
    index, ids = opened(version)
    assert not isinstance(index, Index), f"{version} has no shards"
    return index, ids


def spark_ids(ids: pa.Array) -> pa.Array:
    """Return ids in a type that Spark has: it knows no unsigned numbers and one kind of string."""
    if pa.types.is_signed_integer(ids.type):
        return ids
    return ids.cast(pa.int64() if pa.types.is_integer(ids.type) else pa.string())


def deliveries(batches: Iterable[pa.RecordBatch], version: str) -> Iterator[pa.RecordBatch]:
    """Match each batch of messages against the index in *version*; yield the ids of who receives which."""
    index, ids = opened(version)
    for part, found in portions(batches, lambda part: index.match(MessageBatch.from_arrow(part, like=index))):
        yield from pairs(found, {"subscription_id": ids}, {"message_id": part["id"]})


def sent(batches: Iterable[pa.RecordBatch], version: str) -> Iterator[pa.RecordBatch]:
    """Yield each message once for each shard that it is sent to.

    All of its shards go with it where some subscriptions are stored more than once.
    """
    index, _ = _opened_shards(version)
    for batch in batches:
        routes = index.distribution.messages(MessageBatch.from_arrow(batch, like=index))
        rows = pa.array(routes.rows)
        out = batch.take(rows).append_column(SHARD, pa.array(routes.shards))
        if index.copies:
            lists = pa.ListArray.from_arrays(routes.offsets.astype(np.int32), routes.shards)
            out = out.append_column(SENT, lists.take(rows))
        yield out


def shard_deliveries(batches: Iterable[pa.RecordBatch], version: str) -> Iterator[pa.RecordBatch]:
    """Match messages that were :func:`sent` to shards; yield what these shards deliver."""
    index, ids = _opened_shards(version)
    for batch in batches:
        for number in pc.unique(batch[SHARD]).to_pylist():
            here = batch.filter(pc.equal(batch[SHARD], number))
            for part, found in portions([here], partial(_matched, index, number)):
                in_all = Matches(found.offsets, index.shard(number).rows[found.rows].astype(np.int32))
                yield from pairs(in_all, {"subscription_id": ids}, {"message_id": part["id"]})


def _matched(index: Sharded, number: int, sent: pa.RecordBatch) -> Matches:
    """Return what a shard delivers of messages that were sent to it."""
    plain = sent.drop_columns([name for name in (SHARD, SENT) if name in sent.schema.names])
    others = None
    if index.copies:
        lists = sent[SENT]
        others = Routes(offsets_of(pc.list_value_length(lists).to_numpy()), lists.flatten().to_numpy())
    return index.matched(number, MessageBatch.from_arrow(plain, like=index), others)


def portions(
    batches: Iterable[pa.RecordBatch], matched: Callable[[pa.RecordBatch], Matches]
) -> Iterator[tuple[pa.RecordBatch, Matches]]:
    """Match messages so many at a time that their matches fit into little memory; yield both."""
    size = config.SPARK_FIRST_MESSAGES
    for batch in batches:
        start = 0
        while start < len(batch):
            part = batch.slice(start, size)
            found = matched(part)
            yield part, found
            start += len(part)
            fitting = config.SPARK_MATCHES * len(part) // max(len(found.rows), 1)
            size = max(1, min(fitting, config.SPARK_GROWTH * size))


def pairs(
    found: Matches, subscriptions: Mapping[str, pa.Array], messages: Mapping[str, pa.Array]
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each match, in batches of bounded size: columns of its subscription and of its message."""
    for start in range(0, len(found.rows), config.SPARK_OUTPUT_ROWS):
        part = slice(start, start + config.SPARK_OUTPUT_ROWS)
        columns: dict[str, pa.Array] = {}
        for owners, rows in ((subscriptions, found.rows[part]), (messages, found.messages[part])):
            columns |= {name: column.take(pa.array(rows)) for name, column in owners.items()}
        yield pa.RecordBatch.from_pydict(columns)


def built_shards(batches: Iterable[pa.RecordBatch], draft: str, index: str) -> Iterator[pa.RecordBatch]:
    """Build the indexes of the shards that the rows of *batches* belong to; yield how many each has."""
    rows = pa.Table.from_batches(gathered) if (gathered := list(batches)) else None
    if rows is None:
        return
    for number in pc.unique(rows[SHARD]).to_pylist():
        here = rows.filter(pc.equal(rows[SHARD], number)).drop([SHARD])
        count = build_shard(Path(draft), number, here, index)
        yield pa.RecordBatch.from_pydict(
            {"shard": pa.array([number], pa.int32()), "subscriptions": pa.array([count], pa.int64())}
        )
