"""The stage that finds earlier messages for subscriptions that came or changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast import Matches, MessageBatch, build_index
from nearcast.columns.coding import Coding
from nearcast.columns.growing_table import GrowingTable
from nearcast.columns.ragged import offsets_of
from nearcast.sharding.replica import CHANGE, subscribed_rows, subscriptions_of
from nearcast.spark.live.message_store import ORDER
from nearcast.spark.worker import carried, delivery_rows, match_in_portions, spark_ids, without_kept
from nearcast.storage.places import place_at

__all__ = ["joining_stage"]

Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def joining_stage(delta: str, before: str) -> Stage:
    """Return the stage that finds messages for the subscriptions of a delta, unless they matched before the change.

    Each delivery has its reason, the last change of the subscription, and from the message what deliveries keep and its
    order of publication.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        new, old = subscribed_rows(_read(delta)), _read(before)
        size, coding = len(new), Coding.new()
        ids, reasons = (new[name].combine_chunks() for name in ("id", CHANGE))
        # One index of both, so that a portion is as small as all of its matches ask for, not the fresh ones alone.
        tables = (replace(subscriptions_of(rows, coding), ids=None) for rows in (new, old))
        index = build_index(GrowingTable.joined(list(tables)))
        row_of = {key: row for row, key in enumerate(ids.to_pylist())}
        new_row = np.array([*range(size), *(row_of[key] for key in old["id"].to_pylist())], np.int64)

        def match(part: pa.RecordBatch) -> Matches:
            messages = without_kept(part).drop_columns(list(ORDER))
            return index.match(MessageBatch.from_arrow(messages, like=index))

        def subscriptions(found: NDArray[np.int32]) -> dict[str, pa.Array]:
            picks = pa.array(found)
            return {"subscription_id": spark_ids(ids.take(picks)), "reason": reasons.take(picks)}

        for part, found in match_in_portions(batches, match):
            columns = carried(part) | {name: part[name] for name in ORDER}
            yield from delivery_rows(_fresh(found, size, new_row), subscriptions, columns)

    return run


def _fresh(found: Matches, size: int, new_row: NDArray[np.int64]) -> Matches:
    """Return the matches of the first *size* rows whose subscriptions did not match by the rows behind them."""
    pairs = found.messages * size + new_row[found.rows]
    known = found.rows >= size
    fresh = ~known & np.isin(pairs, pairs[known], invert=True)
    return Matches(offsets_of(np.bincount(found.messages[fresh], minlength=len(found))), found.rows[fresh])


def _read(uri: str) -> pa.Table:
    home, _, name = uri.rpartition("/")
    with place_at(home).open(name) as file:
        return pq.read_table(file)
