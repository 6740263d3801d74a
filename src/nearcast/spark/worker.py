"""What runs in Spark's Python workers: Arrow batches of messages in, Arrow batches of deliveries out."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast import MessageBatch, config, open_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nearcast import Matcher, SubscriptionTable

__all__ = ["deliveries", "opened"]


@lru_cache(maxsize=config.SPARK_OPEN_INDEXES)
def opened(version: str) -> tuple[Matcher, SubscriptionTable, pa.Array]:
    """Open the index in the directory *version*, once per process; return it with its table and its ids.

    A version never changes, so nothing has to be looked at again. Workers live on from one micro-batch to the next
    and share the pages of the files with one another.
    """
    index = open_index(version)
    table = index.table
    ids = pa.array(np.arange(len(table))) if table.ids is None else table.ids
    if not pa.types.is_signed_integer(ids.type):  # Spark has no unsigned numbers and one kind of string
        ids = ids.cast(pa.int64() if pa.types.is_integer(ids.type) else pa.string())
    return index, table, ids


def deliveries(batches: Iterable[pa.RecordBatch], version: str) -> Iterator[pa.RecordBatch]:
    """Match each batch of messages against the index in *version*; yield the deliveries in batches of bounded size."""
    index, table, ids = opened(version)
    for batch in batches:
        found = index.match(MessageBatch.from_arrow(batch, like=table))
        for start in range(0, len(found.rows), config.SPARK_OUTPUT_ROWS):
            part = slice(start, start + config.SPARK_OUTPUT_ROWS)
            yield pa.RecordBatch.from_arrays(
                [batch["id"].take(pa.array(found.messages[part])), ids.take(pa.array(found.rows[part]))],
                names=["message_id", "subscription_id"],
            )
