"""The whole pipeline on HDFS, which is Spark's default file system, too."""

import pytest

from nearcast.spark import build, match, profile
from nearcast.spark.reading import read_raw, stream_raw
from nearcast.spark.sinks import parquet_sink
from spark.live_queries import MINUTE, Query, late, steps_of
from spark.worlds import in_process, message_table, pairs, subscription_table, write_files

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def home(spark, hdfs, tmp_path):
    """A directory in HDFS, the default file system for as long as the test runs."""
    hadoop = spark._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", hdfs.rpartition("/")[0])
    yield f"{hdfs}/{tmp_path.name}"
    hadoop.set("fs.defaultFS", before)


def test_profile_build_match_and_stream(spark, home, tmp_path):
    subscriptions, messages = subscription_table(), message_table()
    for name, table in (("subscriptions", subscriptions), ("messages", messages)):
        write_files(table, tmp_path / name, 2)
        read_raw(spark, tmp_path / name, "parquet").write.parquet(f"{home}/{name}")
    expected = in_process(messages, subscriptions)
    rows = {name: read_raw(spark, f"{home}/{name}", "parquet") for name in ("subscriptions", "messages")}
    assert profile(f"{home}/profile", **rows).count("messages") == len(messages)
    version = build(rows["subscriptions"], f"{home}/versions", shards=2)
    assert pairs(match(rows["messages"], version)) == expected
    arriving = stream_raw(spark, f"{home}/messages", "parquet")
    writer = match(arriving, f"{home}/versions").writeStream.foreachBatch(parquet_sink(f"{home}/out"))
    writer = writer.option("checkpointLocation", f"{home}/checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()
    assert pairs(spark.read.parquet(f"{home}/out")) == expected


def test_subscriptions_that_change(spark, home, tmp_path):
    """Its own state and Spark's checkpoint are in HDFS; it is stopped, and goes on."""
    run = Query(spark, tmp_path, shards=2, distribution="location")
    run.where, run.checkpoint = f"{home}/live", f"{home}/live-checkpoint"
    expected = steps_of(run, 3)
    later = run.take_back(2)
    run.go()
    run.now = run.started + 4 * MINUTE
    later()
    run.go()
    assert run.delivered == dict(enumerate(expected))
    assert late(expected[2]).total() > 10
    assert run.state(2).owner.checkpoint == f"{home}/live-checkpoint"
    assert not any(each.name in ("live", "checkpoint") for each in tmp_path.iterdir())
    run.checkpoint = f"{home}/another"
    with pytest.raises(Exception, match="belongs to the query"):
        run.go()
    assert sorted(run.delivered) == [0, 1, 2]
