"""Where ``fs.defaultFS`` is another file system, as on HDFS or Databricks, a local path is still a local file."""

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.errors import ColumnError, InputError, NearcastWarning
from nearcast.spark import Live, build, match, profile, reading, write_prepared
from nearcast.spark.paths import spark_path
from nearcast.spark.reading import read_raw, stream_raw
from spark.worlds import in_process, message_table, pairs, subscription_table, write_files

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def foreign(spark):
    """A default file system that cannot be reached, for all that the session does."""
    hadoop = spark._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "nowhere://host:9000")
    yield
    hadoop.set("fs.defaultFS", before)


@pytest.fixture
def home(tmp_path):
    """A directory of files, under a name that a URL would encode."""
    home = tmp_path / "half %20 full"
    write_files(subscription_table(), home / "subscriptions", 2)
    write_files(message_table(), home / "messages", 2)
    return home


@pytest.fixture
def expected():
    return in_process(message_table(), subscription_table())


def test_a_path_without_a_scheme_would_be_elsewhere(spark, home):
    """Without this, the other tests would prove nothing."""
    with pytest.raises(Exception, match="nowhere"):
        spark.read.parquet(str(home / "messages"))


def test_prepare_and_profile(spark, home):
    messages = read_raw(spark, home / "messages", "parquet")
    done = write_prepared(messages.drop("unasked"), "messages", home / "prepared")
    assert (done.read, done.good) == (len(message_table()),) * 2
    assert pq.read_table(home / "prepared" / "good").num_rows == done.good
    profile(home / "profile", messages=read_raw(spark, home / "prepared" / "good", "parquet"))
    subscriptions = read_raw(spark, home / "subscriptions", "parquet")
    counted = profile(home / "profile", subscriptions=subscriptions)  # reads the first version
    assert (counted.count("messages"), counted.count("subscriptions")) == (done.good, subscriptions.count())


def test_build_and_match(spark, home, expected):
    subscriptions = read_raw(spark, home / "subscriptions", "parquet")
    version = build(subscriptions, home / "versions")
    assert pairs(match(read_raw(spark, home / "messages", "parquet"), version)) == expected
    arriving = stream_raw(spark, home / "messages", "parquet")
    writer = match(arriving, version).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", spark_path(home / "checkpoint"))
    writer.format("parquet").start(spark_path(home / "streamed")).awaitTermination()
    assert pairs(read_raw(spark, home / "streamed", "parquet")) == expected


def test_the_command(home, expected):
    """It continues from its checkpoint, which it finds where Spark has written it."""
    few = message_table().slice(0, 100)
    write_files(few, home / "more", 1)
    paths = [
        home / "messages",
        home / "subscriptions",
        home / "delivered",
        "--checkpoint",
        home / "checkpoint",
    ]
    command = ["stream", *map(str, paths), "--trigger", "once", "--json"]
    command += ["--name", "abroad", "--option", "maxFilesPerTrigger=1"]

    def run():
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.stderr
        return json.loads(ran.stdout)

    assert run()["batches"] == 2
    assert (home / "checkpoint" / "offsets").is_dir()
    write_files(few, home / "messages", 1, start=9)
    assert run()["messages"] == 100
    more = in_process(few, subscription_table())
    assert pairs(pq.read_table(home / "delivered")) == Counter(expected) + more


def test_build_with_shards(spark, home, expected):
    version = build(read_raw(spark, home / "subscriptions", "parquet"), home / "versions", shards=2)
    assert pairs(match(read_raw(spark, home / "messages", "parquet"), version)) == expected


def test_live(spark, home, expected):
    subscriptions = read_raw(spark, home / "subscriptions", "parquet")
    (home / "changes").mkdir()
    schema = "change string, id string, changed_at long, expression string"
    changes = spark.readStream.schema(schema).parquet(spark_path(home / "changes"))
    found = Counter()
    query = Live(home / "live", subscriptions).start(
        stream_raw(spark, home / "messages", "parquet"),
        changes,
        lambda frame, number: found.update(pairs(frame)),
        checkpoint=home / "checkpoint",
        availableNow=True,
    )
    query.awaitTermination()
    assert found == expected


class Files:
    """A DataFrame, as far as the look for GeoParquet metadata sees it."""

    def __init__(self, kind, *files):
        self.schema = StructType([StructField("id", LongType()), StructField("shape", kind)])
        self.columns, self.files = self.schema.names, files

    def inputFiles(self):
        return list(self.files)


class TestGeometry:
    """The metadata of files, which Arrow reads, in places that Arrow does not know."""

    @pytest.mark.parametrize("file", ["s3a://bucket/a.parquet", "dbfs:/a.parquet"])
    def test_places_that_arrow_does_not_know(self, file):
        assert reading._geometry_name(Files(StringType(), file), required=False) is None
        with pytest.warns(NearcastWarning, match=f"whether {file} is GeoParquet cannot be seen"):
            assert reading._geometry_name(Files(BinaryType(), file), required=False) is None
        with pytest.raises(
            InputError, match=f"the GeoParquet metadata of {file} cannot be read .* format parquet"
        ):
            reading._geometry_name(Files(BinaryType(), file), required=True)

    @pytest.mark.parametrize("count", [0, 1, 32, 33, 1000])
    def test_only_some_files_are_read(self, monkeypatch, count):
        seen = []
        monkeypatch.setattr(reading, "_declared_geometry", lambda file: seen.append(file) or "shape")
        files = [f"file:///{number:04}.parquet" for number in range(count)]
        name = reading._geometry_name(Files(BinaryType(), *files), required=False)
        assert name == ("shape" if count else None)
        assert min(count, 16) <= len(set(seen)) == len(seen) <= 32

    def test_files_that_differ(self, monkeypatch):
        monkeypatch.setattr(reading, "_declared_geometry", lambda file: file[-1])
        with pytest.raises(ColumnError, match="different geometry columns: a, b"):
            reading._geometry_name(Files(BinaryType(), "file:/b", "file:/a"), required=False)
