"""The stage that finds earlier messages for subscriptions that came or changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nearcast import Index, Matches, MessageBatch, build_index
from nearcast.columns.coding import Coding
from nearcast.columns.ragged import offsets_of
from nearcast.sharding.replica import CHANGE, subscribed_rows, subscriptions_of
from nearcast.spark.live.message_store import ORDER
from nearcast.spark.worker import delivery_rows, match_in_portions, spark_ids
from nearcast.storage.places import place_at

__all__ = ["joining_stage"]

Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def joining_stage(delta: str, before: str) -> Stage:
    """Return the stage that finds messages for the subscriptions of a delta, unless they matched before the change.

    Each delivery has its reason, the last change of the subscription, and the message's order of publication.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = subscribed_rows(_read(delta))
        new_index, ids = _small_index(rows)
        old_index, old_ids = _small_index(_read(before))
        row_of = {key: row for row, key in enumerate(ids.to_pylist())}
        new_rows = np.array([row_of[key] for key in old_ids.to_pylist()], np.int64)
        reasons = rows[CHANGE].combine_chunks()

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

        def subscriptions(found: NDArray[np.int32]) -> dict[str, pa.Array]:
            picks = pa.array(found)
            return {"subscription_id": spark_ids(ids.take(picks)), "reason": reasons.take(picks)}

        for part, found in match_in_portions(batches, match):
            columns = {"message_id": part["id"], **{name: part[name] for name in ORDER}}
            yield from delivery_rows(found, subscriptions, columns)

    return run


def _read(uri: str) -> pa.Table:
    home, _, name = uri.rpartition("/")
    with place_at(home).open(name) as file:
        return pq.read_table(file)


def _small_index(rows: pa.Table) -> tuple[Index, pa.Array]:
    """Return an index over a few subscriptions, and their ids."""
    table = subscriptions_of(rows, Coding.new())
    return build_index(table), rows["id"].combine_chunks()
