"""Counts of messages and deliveries, by Spark's own observations."""

import time
from dataclasses import replace

import pytest

from nearcast import MessageBatch, SubscriptionTable, build_index
from nearcast.columns.shapes import NO_SHAPES
from nearcast.errors import InputError
from nearcast.spark import build
from nearcast.spark.metrics import DELIVERIES, MESSAGES, Metrics, MetricsListener
from spark.worlds import write_files

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def version(world):
    return build(world.subscriptions, world.home / "metrics-versions")


def totals(world):
    """Return the counts, the candidates by the boxes of regions and the words alone."""
    table = SubscriptionTable.from_arrow(world.subscription_table)
    loose = replace(table, shapes=NO_SHAPES)  # boxes decide
    batch = MessageBatch.from_arrow(world.message_table, like=loose)
    found = build_index("scan", loose).match(replace(batch, shapes=NO_SHAPES))
    assert found.candidates > sum(world.expected.values())
    return {
        "messages": len(world.message_table),
        "deliveries": sum(world.expected.values()),
        "candidates": found.candidates,
    }


def test_a_batch(world, version):
    """The counts belong to the query itself: a second one does not change them."""
    counts = Metrics()
    found = counts.match(world.messages, version)
    assert found.count() == totals(world)["deliveries"]
    assert counts.get() == totals(world)
    found.limit(1).collect()
    assert counts.get() == totals(world)


def test_shards_and_columns_that_are_kept(world):
    counts = Metrics()
    found = counts.match(
        world.messages, world.subscriptions, shards=3, distribution="hash", keep=["lon"],
        index_dir=world.home / "metrics-shards",
    )  # fmt: skip
    rows = found.toArrow()
    assert len(rows) == totals(world)["deliveries"]
    assert not any(
        column.null_count for name, column in zip(rows.column_names, rows.columns) if name.endswith("_id")
    )
    assert counts.get() == totals(world)


def test_messages_that_nobody_wants(world, version):
    """Candidates are counted where nothing is delivered, and nothing is where there are no messages."""
    counts = Metrics()
    nobody = world.messages.where("id IS NULL")
    assert counts.match(nobody, version).count() == 0
    assert counts.get() == {"messages": 0, "deliveries": 0, "candidates": 0}


def test_a_stream(spark, world, version, tmp_path):
    """A listener hears of each micro-batch; the platform's own sees the same numbers in the progress."""
    told = []
    listener = MetricsListener(told.append)
    spark.streams.addListener(listener)
    try:
        write_files(world.message_table, tmp_path / "messages", 3)
        arriving = spark.readStream.schema(world.messages.schema).option("maxFilesPerTrigger", 1)
        deliveries = Metrics().match(arriving.parquet(str(tmp_path / "messages")), version)
        writer = deliveries.writeStream.format("noop").queryName("counted").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        until = time.monotonic() + 30
        while len(told) < 3 and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert [(each.query, each.batch) for each in told] == [("counted", number) for number in range(3)]
    assert sum(each.messages for each in told) == totals(world)["messages"]
    assert sum(each.deliveries for each in told) == totals(world)["deliveries"]
    assert sum(each.candidates for each in told) == totals(world)["candidates"]
    assert all(each.seconds > 0 for each in told)
    observed = [progress["observedMetrics"] for progress in query.recentProgress]
    assert (
        sum(each[MESSAGES]["messages"] for each in observed if MESSAGES in each) == totals(world)["messages"]
    )
    assert all(DELIVERIES in each for each in observed if MESSAGES in each)


def test_nothing_to_get():
    with pytest.raises(InputError, match="nothing was counted"):
        Metrics().get()
