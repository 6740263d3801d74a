"""Earlier messages for subscriptions that came or changed, in portions of bounded work."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast.spark.live import worker
from nearcast.spark.live.message_store import ORDER

MANY = 50


@pytest.fixture
def found(tmp_path, monkeypatch):
    """A function that returns how many messages were matched at once, and the deliveries, of changed subscriptions."""
    sizes, portions = [], worker.match_in_portions

    def counted(batches, match):
        for part, matches in portions(batches, match):
            sizes.append(len(part))
            yield part, matches

    monkeypatch.setattr(worker, "match_in_portions", counted)

    def run(new, old):
        for name, rows in (("new", new), ("old", old)):
            pq.write_table(rows, tmp_path / name)
        size = 1000
        points = {"lon": np.zeros(size), "lat": np.zeros(size), "text": ["tea"] * size}
        order = dict.fromkeys(ORDER, np.arange(size))
        messages = pa.record_batch({"id": np.arange(size), **points, **order})
        stage = worker.joining_stage(f"file://{tmp_path}/new", f"file://{tmp_path}/old")
        rows = pa.Table.from_batches(list(stage([messages])))
        return sizes, rows

    return run


def test_what_is_known_counts_too_although_it_is_not_delivered(found, monkeypatch):
    monkeypatch.setattr("nearcast.config.SPARK_MATCHES", 2_000)
    ids = [f"s{number}" for number in range(MANY)]
    old = pa.table({"id": ids[1:], "expression": ["tea"] * (MANY - 1)})
    changes = ["subscribe", *["update"] * (MANY - 1)]
    new = pa.table({"id": ids[::-1], "expression": ["tea OR milk"] * MANY, "_change": changes[::-1]})
    sizes, rows = found(new, old)
    assert sum(sizes) == len(rows) == 1000  # those of the newcomer
    assert set(rows["subscription_id"].to_pylist()) == {"s0"}
    assert set(rows["reason"].to_pylist()) == {"subscribe"}
    assert max(sizes) * (2 * MANY - 1) <= 2_000


def test_who_left_gets_nothing(found):
    old = pa.table({"id": ["a", "b"], "expression": ["milk", "tea"]})
    gone = {"id": "c", "expression": None, "_change": "unsubscribe"}
    updated = [{"id": name, "expression": "tea", "_change": "update"} for name in "ba"]
    _, rows = found(pa.Table.from_pylist([gone, *updated]), old)
    assert set(rows["subscription_id"].to_pylist()) == {"a"}
    assert len(rows) == 1000
