"""A batch on Spark has the same deliveries as the same batch in one process."""

import threading
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyspark.sql import types as spark_types

from nearcast import Matches, open_index
from nearcast.columns.ragged import offsets_of
from nearcast.errors import ColumnError, DuplicateError, IndexFileError, InputError, UnknownError
from nearcast.spark import build, match, versions
from spark.worlds import in_process, message_table, pairs

pytestmark = pytest.mark.spark


@pytest.fixture
def frame(spark, tmp_path):
    """A function from a table to a DataFrame."""

    def read(table):
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        pq.write_table(table, file)
        return spark.read.parquet(str(file))

    return read


@pytest.fixture(scope="module")
def version(world):
    return build(world.subscriptions, world.home / "versions")


# --- Answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, pytest.param(4, marks=pytest.mark.versions), 16])
def test_spark_equals_in_process(world, version, partitions):
    assert sum(world.expected.values()) > 5000
    assert pairs(match(world.messages.repartition(partitions), version)) == world.expected


def test_a_dataframe_of_subscriptions_and_transform(world, tmp_path):
    found = world.messages.transform(match, world.subscriptions, index="scan", index_dir=tmp_path)
    assert pairs(found) == world.expected


def test_deliveries_come_in_batches_of_bounded_size(world, version, monkeypatch):
    """One Arrow batch of messages can have more deliveries than fit into one Arrow batch."""
    from nearcast.spark import worker

    monkeypatch.setattr("nearcast.config.SPARK_OUTPUT_ROWS", 1000)
    batches = list(worker.match_messages(world.message_table.drop(["unasked"]).to_batches(), str(version)))
    assert len(batches) > 5
    assert all(len(batch) <= 1000 for batch in batches)
    assert pairs(pa.Table.from_batches(batches)) == world.expected


def test_messages_that_match_many_are_matched_few_at_a_time(world, version, monkeypatch):
    """The matches found at once are bounded, wherever there are many; messages with few matches are not slowed down."""
    from nearcast.spark import worker

    def sizes(many):
        """Return the portions of a batch of messages, of which each in the second half has this many matches."""
        batch = pa.record_batch({"row": np.arange(10_000)})

        def matched(part):
            counts = np.where(part["row"].to_numpy() < 5000, 1, many)
            return Matches(offsets_of(counts), np.zeros(counts.sum(), np.int32))

        found = [
            (len(part), len(found.rows)) for part, found in worker.match_in_portions([batch, batch], matched)
        ]
        assert sum(size for size, _ in found) == 20_000
        return found

    monkeypatch.setattr("nearcast.config.SPARK_MATCHES", 100_000)
    assert len(sizes(1)) == 2
    many = sizes(1000)
    assert np.median([matches for _, matches in many]) <= 100_000
    assert max(matches for _, matches in many) <= 250_000
    monkeypatch.setattr("nearcast.config.SPARK_MATCHES", 1)
    batches = list(worker.match_messages(world.message_table.drop(["unasked"]).to_batches(), str(version)))
    assert pairs(pa.Table.from_batches(batches)) == world.expected


def test_messages_as_text_and_geometry(world, version, frame):
    """Text is tokenised; a geometry takes precedence over a point."""
    table = message_table(200, seed=5).drop(["keywords"])
    wkb = shapely.to_wkb(shapely.points(table["lon"].to_numpy(), table["lat"].to_numpy()))
    wkb[::2] = shapely.to_wkb(shapely.box(-3, -3, 3, 3))
    wkb[1::4] = None
    texts = ["Fresh COFFEE & tea!", "flood; Sale", None, "Ein Café in 日本"]
    table = table.append_column("text", pa.array(texts * 50))
    table = table.append_column("geometry", pa.array(wkb.tolist(), pa.binary()))
    expected = in_process(table.drop(["unasked"]), world.subscription_table)
    assert pairs(match(frame(table), version)) == expected
    assert sum(expected.values()) > 100


def test_areas_as_boxes(version, world, frame):
    table = message_table(50, seed=6)
    table = pa.table(
        {
            "id": [f"m{i}" for i in range(50)],
            "xmin": table["lon"],
            "ymin": table["lat"],
            "xmax": pa.array(table["lon"].to_numpy() + 1),
            "ymax": pa.array(table["lat"].to_numpy() + 1),
            "keywords": table["keywords"],
        }
    )
    assert pairs(match(frame(table), version)) == in_process(table, world.subscription_table)


# --- Shape -------------------------------------------------------------------------------------------------------


def test_only_the_columns_that_matter_reach_the_workers(world, version):
    plan = match(world.messages, version)._jdf.queryExecution().executedPlan().toString()
    assert "price" in plan
    assert "brand" in plan
    assert "unasked" not in plan
    assert "Exchange" not in plan  # no shuffle


@pytest.mark.parametrize(
    ("arrow", "spark_type"),
    [
        (pa.string(), spark_types.StringType()),
        (pa.int64(), spark_types.LongType()),
        (pa.int32(), spark_types.IntegerType()),
        (pa.int16(), spark_types.ShortType()),
        (pa.int8(), spark_types.ByteType()),
    ],
)
def test_the_types_of_ids(frame, tmp_path, arrow, spark_type):
    ids = pa.array([3, 7]).cast(arrow)
    messages = pa.table({"id": ids, "lon": [0.0, 50.0], "lat": [0.0, 0.0], "keywords": [["tea"], ["tea"]]})
    circle = {"lon": [0.0, None], "lat": [0.0, None], "radius_m": [10.0, None]}
    subscriptions = pa.table({"id": ids, "expression": ["tea", "tea"], **circle})
    found = match(frame(messages), frame(subscriptions), index_dir=tmp_path)
    assert found.schema["message_id"].dataType == spark_type  # its own
    kind = spark_types.StringType() if pa.types.is_string(arrow) else spark_types.LongType()
    assert found.schema["subscription_id"].dataType == kind
    three, seven = ids.to_pylist()
    assert pairs(found) == Counter([(three, three), (three, seven), (seven, seven)])


def test_no_messages_no_subscriptions(world, version, tmp_path):
    assert match(world.messages.limit(0), version).count() == 0
    nobody = match(world.messages, world.subscriptions.limit(0), index_dir=tmp_path)
    assert nobody.count() == 0
    assert nobody.columns == match(world.messages, version).columns


# --- Versions ----------------------------------------------------------------------------------------------------


def test_the_same_subscriptions_are_built_once(world, tmp_path, monkeypatch):
    first = build(world.subscriptions, tmp_path)
    monkeypatch.setattr(versions, "build_index", None)  # a second build would fail
    assert build(world.subscriptions.repartition(5).orderBy("expression"), tmp_path) == first
    assert {entry.name for entry in tmp_path.iterdir()} == {first.name, "CURRENT"}


def test_other_subscriptions_and_other_indexes_are_other_versions(world, tmp_path):
    names = {
        build(world.subscriptions, tmp_path).name,
        build(world.subscriptions, tmp_path, index="scan").name,
        build(world.subscriptions.where("id != 's7'"), tmp_path).name,
        build(world.subscriptions.selectExpr("id", "expression"), tmp_path).name,
    }
    assert len(names) == 4
    assert {entry.name for entry in tmp_path.iterdir()} == {*names, "CURRENT"}


def test_a_damaged_version_is_built_again(world, tmp_path):
    table = world.subscription_table
    version = versions.ensure_version(table, tmp_path, "scan")
    (version.local / "rows.boxes").unlink()
    assert versions.ensure_version(table, tmp_path, "scan") == version
    assert len(open_index(version, verify=True)) == len(table)


def test_two_at_once_build_one_version(world, tmp_path):
    table = world.subscription_table
    barrier = threading.Barrier(2)
    build_index = versions.build_index
    found = []

    def together(*args):
        index = build_index(*args)
        barrier.wait(timeout=30)
        return index

    def work():
        found.append(versions.ensure_version(table, tmp_path, "scan"))

    threads = [threading.Thread(target=work) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "build_index", together)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert list(tmp_path.iterdir()) == [found[0].local]


def test_the_default_directory_is_the_users_own(monkeypatch, tmp_path, world):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    version = build(world.subscriptions)
    assert version.parent.parent == tmp_path
    assert version.parent.stat().st_mode & 0o077 == 0
    version.parent.chmod(0o777)
    with pytest.raises(
        InputError, match=f"{version.parent}, where versions are kept by default, belongs to another"
    ):
        build(world.subscriptions)


# --- Errors, all of them before a job starts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (["id"], "messages need a column id; the columns are lon, lat, keywords"),
        (["lat"], "there is no lat"),
        (["lon", "lat"], "no place.* among the columns id, keywords, price"),
    ],
)
def test_a_missing_message_column_is_named(world, version, missing, said):
    with pytest.raises(ColumnError, match=said):
        match(world.messages.drop(*missing), version)


@pytest.mark.parametrize("missing", ["id", "radius_m"])
def test_a_missing_subscription_column_is_named(world, tmp_path, missing):
    with pytest.raises(ColumnError, match=missing):
        match(world.messages, world.subscriptions.drop(missing), index_dir=tmp_path)


def test_a_column_of_the_wrong_type_is_named(world, version):
    with pytest.raises(ColumnError, match="keywords must be a column of lists"):
        match(world.messages.withColumn("keywords", world.messages.brand), version)
    with pytest.raises(ColumnError, match="id must be strings or integers, not double"):
        match(world.messages.withColumn("id", world.messages.lon), version)


def test_streaming_subscriptions_have_a_way_out(spark, world, tmp_path):
    stream = spark.readStream.schema(world.subscriptions.schema).parquet(str(world.home / "subscriptions"))
    with pytest.raises(InputError, match=r"spark\.read instead of spark\.readStream"):
        match(world.messages, stream, index_dir=tmp_path)


def test_what_is_no_dataframe_and_no_path(world):
    with pytest.raises(InputError, match="DataFrame"):
        match(world.messages, 5)
    with pytest.raises(InputError, match="DataFrame"):
        match(world.message_table, world.subscriptions)


def test_a_directory_without_an_index(world, tmp_path):
    with pytest.raises(IndexFileError, match=r"nothing is saved at .*: it has no manifest"):
        match(world.messages, tmp_path)


def test_two_subscriptions_with_one_id(world, tmp_path):
    with pytest.raises(DuplicateError, match="two subscriptions have the id 's7'"):
        build(world.subscriptions.union(world.subscriptions.where("id = 's7'")), tmp_path)


def test_an_unknown_index(world, tmp_path):
    with pytest.raises(UnknownError, match="no index 'quick'"):
        match(world.messages, world.subscriptions, index="quick", index_dir=tmp_path)


def test_a_bad_message_fails_its_task_and_is_named(world, version, frame):
    table = message_table(5)
    latitudes = table["lat"].to_numpy().copy()
    latitudes[3] = 91.0
    table = table.set_column(table.schema.get_field_index("lat"), "lat", pa.array(latitudes))
    with pytest.raises(Exception, match="10000000003"):
        match(frame(table), version).collect()
