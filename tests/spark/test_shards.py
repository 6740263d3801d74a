"""Sharded versions on Spark: the same deliveries, however subscriptions are divided, and whoever builds the shards."""

import threading
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions

from memory_place import lose_answer
from nearcast import Deliveries, MessageBatch, open_index
from nearcast.errors import ColumnError, DuplicateError, IndexFileError, InputError, UnknownError
from nearcast.sharding.distribution import DISTRIBUTIONS
from nearcast.sharding.version import ShardedVersion
from nearcast.spark import build, match, versions
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


@pytest.fixture
def by_tasks(monkeypatch):
    """However few subscriptions there are, tasks build their shards, and a sample decides about the distribution."""
    monkeypatch.setattr("nearcast.config.SPARK_DRIVER_ROWS", 2)
    monkeypatch.setattr("nearcast.config.SHARD_SUBSCRIPTIONS", 60)
    monkeypatch.setattr(versions, "build_sharded", None)  # the driver's own way would fail


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


@pytest.mark.parametrize("how", shortened(ALL, lambda how: how[1] < 16), ids=lambda how: "{}-{}".format(*how))
def test_shards_that_tasks_build_deliver_the_same(spark, world, by_tasks, tmp_path, how):
    """The world has polygons, circles, subscriptions to everywhere, alternatives, forbidden words and tests."""
    distribution, shards = how
    version = build(world.subscriptions, tmp_path, distribution=distribution, shards=shards)
    assert pairs(match(world.messages, version)) == world.expected
    opened = open_index(version, verify=True)
    assert sorted(opened.ids.to_pylist()) == sorted(world.subscription_table["id"].to_pylist())
    batch = MessageBatch.from_arrow(world.message_table.drop(["unasked"]), like=opened)
    assert pairs(Deliveries.of(opened.match(batch), batch.ids, opened.ids).to_arrow()) == world.expected
    rows = versions.version_frame(spark, opened).orderBy("id").toArrow()
    assert rows.equals(world.subscriptions.orderBy("id").toArrow())
    assert [path for path in version.iterdir() if path.name.startswith(("draft", "."))] == []


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
        parts = told["parts"]
        assert told["stored"] == sum(part["stored"] for part in parts) > 300
        assert sum(part["own"] for part in parts) == 300
        for part in parts:
            assert pq.read_metadata(version / part["rows"]).num_rows == part["own"]
            assert part["bytes"] == {
                part[name]: sum(file.stat().st_size for file in (version / part[name]).iterdir())
                for name in ("directory", "keys")
            }
        listed = {part[name] for part in parts for name in ("directory", "rows", "keys")} | {
            told["directory"]
        }
        assert {path.name for path in version.iterdir()} == listed | {"manifest.json"}

    def test_a_shard_knows_the_ids_of_its_own_subscriptions_alone(self, version):
        opened = open_index(version)
        stored = [part["stored"] for part in read_manifest(version).document["parts"]]
        assert [len(opened.open_shard(number).ids) for number in range(4)] == stored
        assert max(stored) < 300

    def test_rows_are_found_by_their_ids(self, world, version, monkeypatch):
        opened = open_index(version)
        wanted = pa.array(["s7", "s299", "nobody", "s100"])
        found = opened.rows_with_ids(wanted).sort_by("id")
        assert found["id"].to_pylist() == ["s100", "s299", "s7"]
        expected = world.subscription_table.filter(pa.compute.is_in(world.subscription_table["id"], wanted))
        assert found.to_pylist() == expected.sort_by("id").to_pylist()
        assert opened.rows_with_ids(pa.array([], pa.string())).num_rows == 0

    def test_damage_is_found(self, world, tmp_path):
        version = build(world.subscriptions, tmp_path, shards=2, distribution="hash")
        (shard,) = version.glob("shard-0001-*")
        data = shard / "index.rows.boxes"
        content = bytearray(data.read_bytes())
        content[-1] ^= 1
        data.write_bytes(content)
        with pytest.raises(IndexFileError, match="checksum"):
            open_index(version, verify=True)
        data.unlink()
        with pytest.raises(IndexFileError, match=r"shard-0001.*missing"):
            match(world.messages, version)
        again = build(world.subscriptions, tmp_path, shards=2, distribution="hash")
        assert pairs(match(world.messages, again)) == world.expected

    def test_few_subscriptions_leave_shards_empty(self, spark, world, tmp_path):
        few = world.subscriptions.limit(3).toArrow()
        frame = spark.createDataFrame(few)
        found = match(world.messages, frame, shards=16, distribution="keyword", index_dir=tmp_path)
        assert pairs(found) == in_process(world.message_table.drop(["unasked"]), few)


class TestBuildingByTasks:
    @pytest.mark.parametrize("distribution", ["keyword", "keyword-location", "location-keyword"])
    def test_words_that_the_sample_lacks(self, spark, by_tasks, tmp_path, monkeypatch, distribution):
        """Every subscription has a word of its own, and often a second one: the sample knows a few of them."""
        monkeypatch.setattr("nearcast.config.SHARD_SUBSCRIPTIONS", 10)
        n = 200
        lon, lat = np.random.default_rng(3).uniform(-9, 9, (2, n))
        words = [[f"w{i}"] if i % 3 else [f"w{i}", f"w{i // 2}"] for i in range(n)]
        region = {"lon": lon, "lat": lat, "radius_m": np.full(n, 90_000.0)}
        subscriptions = pa.table({"id": np.arange(n), "keywords": words, **region})
        said = [f"w{i} w{i // 2}" for i in range(n)]
        messages = pa.table({"id": np.arange(n), "lon": lon, "lat": lat, "text": said})
        version = build(spark.createDataFrame(subscriptions), tmp_path, distribution=distribution, shards=6)
        expected = in_process(messages, subscriptions)
        assert sum(expected.values()) >= n
        assert pairs(match(spark.createDataFrame(messages), version)) == expected

    def test_the_same_subscriptions_are_not_built_twice(self, world, by_tasks, tmp_path, monkeypatch):
        how = {"distribution": "keyword", "shards": 3}
        version = build(world.subscriptions, tmp_path, **how)
        monkeypatch.setattr(versions, "_build_by_tasks", None)
        assert build(world.subscriptions.orderBy("lon").repartition(5), tmp_path, **how) == version
        other = world.subscriptions.withColumn("radius_m", functions.col("radius_m") + 1)
        with pytest.raises(TypeError, match="not callable"):
            build(other, tmp_path, **how)

    def test_the_fingerprint_tells_nulls_and_lists_apart(self, spark):
        kind = "id string, keywords array<string>, xmin double, ymin double, xmax double, ymax double"
        none = (None,) * 4
        rows = [
            ("a", [], *none),
            ("a", None, *none),
            ("a", ["b"], *none),
            ("a", ["b", ""], *none),
            ("a", [None, "b"], *none),
            ("a", ["bc", "d"], *none),
            ("a", ["b", "cd"], *none),
            ("a", ["b"], 0.0, None, None, None),
            ("a", ["b"], None, 0.0, None, None),
        ]
        frame = spark.createDataFrame(rows, kind)
        assert frame.select(versions._row_hash(frame.schema, 0)).distinct().count() == len(rows)

    def test_few_subscriptions_leave_shards_empty(self, spark, world, by_tasks, tmp_path):
        few = world.subscriptions.limit(5).toArrow()
        frame = spark.createDataFrame(few)
        found = match(world.messages, frame, shards=16, distribution="keyword", index_dir=tmp_path)
        assert pairs(found) == in_process(world.message_table.drop(["unasked"]), few)

    def test_two_subscriptions_with_one_id(self, world, by_tasks, tmp_path):
        twice = world.subscriptions.union(world.subscriptions.where("id = 's7'"))
        with pytest.raises(DuplicateError, match="two subscriptions have the id 's7'"):
            build(twice, tmp_path, shards=2, distribution="hash")

    def test_subscriptions_that_change_while_they_are_read(
        self, spark, world, by_tasks, tmp_path, monkeypatch
    ):
        counted = versions._fingerprint

        def one_more(frame):
            size, content = counted(frame)
            return size + 1, content

        monkeypatch.setattr(versions, "_fingerprint", one_more)
        with pytest.raises(InputError, match="301 subscriptions were counted, but 300 were built"):
            build(world.subscriptions, tmp_path, shards=2, distribution="hash")
        (version,) = tmp_path.iterdir()
        assert list(version.iterdir()) == []  # nothing is left behind

    def test_two_at_once_build_one_version(self, world, by_tasks, tmp_path, monkeypatch):
        barrier, finish, found = threading.Barrier(2), versions.finish_version, []

        def together(*arguments, **options):
            barrier.wait(timeout=120)
            finish(*arguments, **options)

        monkeypatch.setattr(versions, "finish_version", together)

        def work():
            found.append(build(world.subscriptions, tmp_path, shards=3, distribution="location"))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 1
        told = read_manifest(found[0]).document
        assert len(list(found[0].glob("shard-*"))) == len(told["parts"]) == 3
        assert len(list(found[0].glob("distribution-*"))) == 1
        assert pairs(match(world.messages, found[0])) == world.expected

    def test_a_version_is_there_although_the_answer_was_lost(self, spark, by_tasks, tmp_path, monkeypatch):
        few = spark.createDataFrame(
            [("a", "tea"), ("b", "milk"), ("c", "tea")], "id string, expression string"
        )
        with monkeypatch.context() as patch:
            lose_answer(patch, "manifest.json", ConnectionResetError())
            with pytest.raises(ConnectionResetError):
                build(few, tmp_path, shards=2, distribution="hash")
        (version,) = tmp_path.iterdir()
        assert len(open_index(version, verify=True)) == 3

    def test_a_bad_subscription_is_named(self, spark, by_tasks, tmp_path):
        rows = [("a", "tea"), ("b", "tea AND"), ("c", "milk")]
        with pytest.raises(Exception, match="id 'b'"):
            build(spark.createDataFrame(rows, "id string, expression string"), tmp_path, shards=2)


@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_versions_live_in_an_object_store(world, s3, way, request):
    if way == "tasks":
        request.getfixturevalue("by_tasks")
    version = build(world.subscriptions, s3, distribution="location", shards=3)
    assert version.startswith(s3)
    assert not Path("s3:").exists()
    assert pairs(match(world.messages, version)) == world.expected
    assert pairs(match(world.messages, s3)) == world.expected  # the current version
    assert build(world.subscriptions, s3, distribution="location", shards=3) == version
    opened = open_index(s3)
    assert opened.rows_with_ids(pa.array(["s9"]))["id"].to_pylist() == ["s9"]
    assert len(opened) == 300


def test_one_index_lives_in_an_object_store(world, s3):
    version = build(world.subscriptions, s3)
    assert pairs(match(world.messages, version)) == world.expected
    assert build(world.subscriptions, s3) == version


def test_messages_that_nobody_named_as_a_sample_make_no_other_version(spark, tmp_path):
    few = spark.createDataFrame([("a", "tea"), ("b", "milk")], "id string, expression string")
    columns = "id long, lon double, lat double, text string"
    days = [spark.createDataFrame([(day, 0.0, 0.0, "tea")], columns) for day in range(3)]
    how = {"shards": 2, "distribution": "keyword"}
    for day in days:
        assert [row.subscription_id for row in match(day, few, index_dir=tmp_path, **how).collect()] == ["a"]
    assert len(list(tmp_path.iterdir())) == 1
    named = {build(few, tmp_path, messages=day, **how) for day in days[:2]}
    assert len(named) == 2


def test_one_shard_is_one_stage_of_python(world, tmp_path):
    for shards, stages in ((1, 1), (2, 2)):
        version = build(world.subscriptions, tmp_path, distribution="hash", shards=shards)
        plan = match(world.messages, version)._jdf.queryExecution().executedPlan().toString()
        assert plan.count("MapInArrow") == stages
        assert ("Exchange" in plan) == (shards > 1)


def test_what_cannot_be_is_said_before_a_job(world, tmp_path):
    with pytest.raises(UnknownError, match="no distribution 'random'"):
        build(world.subscriptions, tmp_path, distribution="random", shards=2)
    with pytest.raises(InputError, match="from 1 to 1,024, not 0"):
        build(world.subscriptions, tmp_path, shards=0)
    assert not list(tmp_path.iterdir())
