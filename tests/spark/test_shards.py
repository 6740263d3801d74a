"""Sharded versions on Spark: the same deliveries, however subscriptions are divided."""

from collections import Counter
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast import Deliveries, MessageBatch, open_index
from nearcast.errors import ColumnError, IndexFileError, InputError, UnknownError
from nearcast.sharding.distribution import DISTRIBUTIONS
from nearcast.sharding.version import ShardedVersion
from nearcast.spark import build, match
from nearcast.storage.directory import read
from nearcast.storage.manifest import read_manifest
from profiles import shortened
from spark.worlds import in_process, message_table, pairs, write_files

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def version(world):
    """Four shards; some subscriptions are in several of them."""
    return build(world.subscriptions, world.home / "sharded", distribution="location", shards=4)


def streamed(spark, world, subscriptions, home, **how):
    """The deliveries of a stream of the world's messages, in two micro-batches."""
    arriving = spark.readStream.schema(world.messages.schema).option("maxFilesPerTrigger", 2)
    stream = arriving.parquet(str(world.home / "messages"))
    writer = match(stream, subscriptions, **how).writeStream.option("checkpointLocation", str(home))
    batches = []
    query = writer.foreachBatch(lambda frame, _: batches.append(pairs(frame)))
    assert query.trigger(availableNow=True).start().awaitTermination(60)
    assert len(batches) == 2
    return sum(batches, Counter())


ALL = [("hash", 1), *product(DISTRIBUTIONS, [4, 16])]  # one shard is the same for all


@pytest.mark.parametrize("how", shortened(ALL, lambda how: how[1] < 16), ids=lambda how: "{}-{}".format(*how))
def test_shards_deliver_what_one_process_delivers(spark, world, tmp_path, how):
    """Batch and stream, whatever the distribution."""
    distribution, shards = how
    how = {"distribution": distribution, "shards": shards, "index_dir": world.home / "all"}
    assert pairs(match(world.messages, world.subscriptions, **how)) == world.expected
    assert streamed(spark, world, world.subscriptions, tmp_path, **how) == world.expected


@pytest.mark.versions
def test_areas_meet_several_shards_and_are_delivered_once(spark, world, version, tmp_path):
    points = message_table(200, seed=6).drop(["unasked"])
    table = points.drop(["lon", "lat"])
    for name, column, by in (("xmin", "lon", 0), ("ymin", "lat", 0), ("xmax", "lon", 6), ("ymax", "lat", 6)):
        table = table.append_column(name, pa.array(points[column].to_numpy() + by))
    frame = spark.read.parquet(str(write_files(table, tmp_path / "areas", 2)))
    expected = in_process(table, world.subscription_table)
    assert sum(expected.values()) > 1000
    assert pairs(match(frame, version)) == expected


def test_rescaling_keeps_the_answers(world, version):
    wider = build(world.subscriptions, version.parent, distribution="location", shards=8)
    assert wider != version
    assert pairs(match(world.messages, wider)) == pairs(match(world.messages, version)) == world.expected


class TestVersion:
    def test_it_opens_in_any_process_and_answers_as_one_index(self, world, version):
        index = open_index(version, verify=True)
        assert isinstance(index, ShardedVersion)
        assert len(index) == 300
        assert "location distribution over 4 shards" in repr(index)
        batch = MessageBatch.from_arrow(world.message_table.drop(["unasked"]), like=index)
        assert pairs(Deliveries.of(index.match(batch), batch.ids, index.ids).to_arrow()) == world.expected
        with pytest.raises(ColumnError, match=r"like=version"):
            index.match(MessageBatch.from_arrays([[0.0, 0.0]], [0, 0], []))

    def test_the_same_subscriptions_are_not_built_twice(self, world, version):
        before = {path: path.stat().st_mtime_ns for path in version.rglob("*")}
        again = build(world.subscriptions.orderBy("lon"), version.parent, distribution="location", shards=4)
        assert again == version
        assert before == {path: path.stat().st_mtime_ns for path in version.rglob("*")}

    def test_current_names_the_version_that_was_built_last(self, world, tmp_path):
        first = build(world.subscriptions, tmp_path, shards=2, distribution="hash")
        second = build(world.subscriptions, tmp_path)
        assert (tmp_path / "CURRENT").read_text() == second.name + "\n"
        assert not isinstance(open_index(tmp_path), ShardedVersion)
        assert pairs(match(world.messages, tmp_path)) == world.expected
        assert build(world.subscriptions, tmp_path, shards=2, distribution="hash") == first
        assert isinstance(open_index(tmp_path), ShardedVersion)
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]

    def test_the_manifest_tells_what_is_in_it(self, version):
        told = read_manifest(version, "shards").document
        assert (told["distribution"], told["shards"], told["subscriptions"]) == ("location", 4, 300)
        rows = [read(version / f"shard-{shard:04}", "shard")[1]["stored/rows"] for shard in range(4)]
        assert told["stored"] == sum(map(len, rows)) > 300
        assert np.array_equal(np.unique(np.concatenate(rows)), np.arange(300))
        assert pq.read_metadata(version / "subscriptions.parquet").num_rows == 300

    def test_damage_is_found(self, world, tmp_path):
        version = build(world.subscriptions, tmp_path, shards=2, distribution="hash")
        data = version / "shard-0001" / "index.rows.boxes"
        content = bytearray(data.read_bytes())
        content[-1] ^= 1
        data.write_bytes(content)
        with pytest.raises(IndexFileError, match="checksum"):
            open_index(version, verify=True)
        (version / "shard-0001" / "stored.rows").unlink()
        with pytest.raises(IndexFileError, match=r"shard-0001.*missing"):
            match(world.messages, version)
        again = build(world.subscriptions, tmp_path, shards=2, distribution="hash")
        assert pairs(match(world.messages, again)) == world.expected

    def test_few_subscriptions_leave_shards_empty(self, spark, world, tmp_path):
        few = world.subscriptions.limit(3).toArrow()
        frame = spark.createDataFrame(few)
        found = match(world.messages, frame, shards=16, distribution="keyword", index_dir=tmp_path)
        assert pairs(found) == in_process(world.message_table.drop(["unasked"]), few)


def test_what_cannot_be_is_said_before_a_job(world, tmp_path):
    with pytest.raises(UnknownError, match="no distribution 'random'"):
        build(world.subscriptions, tmp_path, distribution="random", shards=2)
    with pytest.raises(InputError, match="from 1 to 1,024, not 0"):
        build(world.subscriptions, tmp_path, shards=0)
    assert not list(tmp_path.iterdir())
