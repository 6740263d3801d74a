"""What Spark's workers do, without Spark."""

import pyarrow as pa
import pytest

from nearcast import SubscriptionTable, build_index

pytest.importorskip("pyspark")

from nearcast.spark import worker


def test_an_index_from_which_rows_were_removed_delivers_to_those_behind_them(tmp_path):
    index = build_index("scan", SubscriptionTable.from_arrow({"expression": ["*"] * 4}))
    index.remove([0, 1])
    index.save(tmp_path / "saved")
    messages = pa.RecordBatch.from_pydict({"id": ["m"], "lon": [0.0], "lat": [0.0]})
    (found,) = worker.match_messages([messages], str(tmp_path / "saved"))
    assert found.to_pydict() == {"subscription_id": [2, 3], "message_id": ["m", "m"]}
