"""Messages from a real Kafka broker, deliveries to it and to files; nothing lost, nothing repeated."""

import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pyspark
import pytest
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.errors import ColumnError
from nearcast.spark import build, kafka, match
from nearcast.spark.sinks import kafka_sink, parquet_sink
from spark import broker as kafka_broker
from spark.broker import create_topics
from spark.worlds import in_process, pairs

pytestmark = pytest.mark.spark

DEADLINE = 120  # seconds that a query gets for anything
SCHEMA = "id long, lon double, lat double, keywords array<string>, price double, brand string"
BROKEN = [
    b"",
    b"{",
    b"null",
    b"17",
    b'[{"id": 1}, {"id": 2}]',
    b'{"id": 1}{"id": 2}',  # Spark's parser would read the first object and ignore the second
    b'{"id": "one"}',
    b'{"id": 1, "lon": "east"}',
    b'{"id": 1, "brand": "caf\xe9"}',  # Latin-1
]


def as_text(value):
    return value.decode(errors="replace")


def produce(spark, servers, topic, values):
    """Send values, bytes or None, to a topic by Spark's own sink; the key is the position of the value."""
    rows = [(str(i), None if value is None else bytearray(value)) for i, value in enumerate(values)]
    frame = spark.createDataFrame(rows, "key string, value binary")
    frame.write.format("kafka").options(**{"kafka.bootstrap.servers": servers}, topic=topic).save()


def as_json(table):
    return [json.dumps(row).encode() for row in table.drop(["unasked"]).to_pylist()]


def records(spark, servers, topic):
    """Return the records of a topic: partition, offset, key, value and headers, in order within each partition."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
    frame = spark.read.format("kafka").options(**options).load()
    return [
        SimpleNamespace(
            partition=row.partition,
            key=row.key.decode(),
            value=json.loads(row.value),
            headers={header.key: header.value.decode() for header in row.headers or ()},
        )
        for row in frame.orderBy("partition", "offset").collect()
    ]


def without_repeats(found):
    """Return the deliveries that a consumer reads from records if it follows the docstring of kafka_sink."""
    kept, batch, seen = [], defaultdict(lambda: -1), defaultdict(set)
    for record in found:
        number, delivery = int(record.headers["nearcast-batch"]), record.headers["nearcast-delivery"]
        if number > batch[record.partition]:
            batch[record.partition], seen[record.partition] = number, set()
        if number == batch[record.partition] and delivery not in seen[record.partition]:
            seen[record.partition].add(delivery)
            kept.append((record.value["message_id"], record.value["subscription_id"]))
    return Counter(kept)


def until(condition):
    limit = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.05)


def finish(query):
    assert query.awaitTermination(DEADLINE), f"the query did not end: {query.status}, {query.lastProgress}"


@pytest.fixture(scope="module")
def version(world):
    return build(world.subscriptions, world.home / "kafka-versions")


def test_the_connector_has_the_version_of_pyspark(broker, connector):
    """And so have the libraries that it asks for; else the tests run with stand-ins for these, and this one says so."""
    assert any(f"kafka-0-10_2.13-{pyspark.__version__}.jar" in jar.name for jar in connector.jars)
    if not connector.matching:
        names = ", ".join(jar.name for jar in connector.jars if "spark" in jar.name)
        pytest.xfail(f"{connector.reason}; the Kafka tests ran with {names}")


def test_records_that_are_no_messages_keep_their_place(spark, broker):
    """A batch has the columns, the original text, and the position of each record."""
    create_topics(spark, broker, "mixed")
    good = b'{"id": 7, "lon": 1.5, "keywords": ["caf\xc3\xa9"], "more": {"deep": [1]}}'
    produce(spark, broker, "mixed", [*BROKEN, None, good])
    raw = kafka.read_messages(spark, broker, "mixed", SCHEMA, stream=False)
    assert raw.columns == ["id", "lon", "lat", "keywords", "price", "brand", "_corrupt_record", "kafka"]
    found = {row.kafka.key.decode(): row for row in raw.collect()}
    assert len(found) == len(BROKEN) + 2
    for i, value in enumerate([*BROKEN, b""]):
        row = found[str(i)]
        assert row["_corrupt_record"] == as_text(value), value
        assert [row[name] for name in raw.columns[:6]] == [None] * 6, value
    row = found[str(len(BROKEN) + 1)]
    assert tuple(row)[:7] == (7, 1.5, None, ["café"], None, None, None)
    assert (row.kafka.topic, row.kafka.timestamp.year >= 2020) == ("mixed", True)
    assert len({(each.kafka.partition, each.kafka.offset) for each in found.values()}) == len(found)
    # A query that reads only one column must see the same rows.
    assert raw.where("_corrupt_record IS NULL").select("id").collect() == [(7,)]
    assert raw.where("_corrupt_record IS NOT NULL").select("id").distinct().collect() == [(None,)]


def test_messages_in_and_deliveries_out(spark, broker, world, version, tmp_path):
    """A stream into both sinks, stopped in the middle and started again with more messages waiting."""
    create_topics(spark, broker, "city", "city-deliveries")
    first, second = world.message_table.slice(0, 800), world.message_table.slice(800)
    produce(spark, broker, "city", [*as_json(first), *BROKEN])
    raw = kafka.read_messages(
        spark, broker, "city", SCHEMA, options={"maxOffsetsPerTrigger": "150", "minPartitions": "2"}
    )
    to_files, to_topic = parquet_sink(tmp_path / "deliveries"), kafka_sink(broker, "city-deliveries")
    bad, fuse = [], []

    def write(rows, batch):
        rows.persist()
        good = rows.where("_corrupt_record IS NULL")
        bad.extend(
            (batch, row["_corrupt_record"]) for row in rows.where("_corrupt_record IS NOT NULL").collect()
        )
        deliveries = match(good, version).persist()
        to_topic(deliveries, batch)
        to_files(deliveries, batch)
        deliveries.unpersist()
        rows.unpersist()
        if fuse:  # everything is written, nothing is committed: this batch is repeated
            fuse.pop()
            raise RuntimeError("the driver is on fire")

    def start(**trigger):
        writer = raw.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.foreachBatch(write).trigger(**trigger).start()

    query = start(processingTime="0 seconds")
    until(lambda: (tmp_path / "deliveries" / "batch=1").exists())
    query.stop()
    early = pairs(spark.read.parquet(str(tmp_path / "deliveries")))
    assert 0 < sum(early.values()) < sum(world.expected.values())

    produce(spark, broker, "city", as_json(second))
    fuse.append("lit")
    with pytest.raises(Exception, match="the driver is on fire"):
        start(availableNow=True).awaitTermination(DEADLINE)
    finish(start(availableNow=True))

    expected = in_process(world.message_table, world.subscription_table)
    assert pairs(spark.read.parquet(str(tmp_path / "deliveries"))) == expected
    sent = records(spark, broker, "city-deliveries")
    everything = Counter((each.value["message_id"], each.value["subscription_id"]) for each in sent)
    assert set(everything) == set(expected)
    assert sum(everything.values()) > sum(expected.values()), "a batch was sent twice"
    assert without_repeats(sent) == expected
    assert all(each.key == each.value["subscription_id"] for each in sent)
    assert Counter(text for _, text in set(bad)) == Counter(map(as_text, BROKEN))


def test_spark_sink_of_the_stream_itself(spark, broker, world, version, tmp_path):
    """`writeStream.format("kafka")` accepts the deliveries without a function in between."""
    create_topics(spark, broker, "plain", "plain-deliveries")
    few = world.message_table.slice(0, 200)
    produce(spark, broker, "plain", as_json(few))
    deliveries = match(kafka.read_messages(spark, broker, "plain", SCHEMA), version)
    writer = kafka.deliveries_to_kafka(deliveries).writeStream.format("kafka")
    writer = writer.options(**{"kafka.bootstrap.servers": broker}, topic="plain-deliveries")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    finish(writer.start())
    found = records(spark, broker, "plain-deliveries")
    assert Counter((each.value["message_id"], each.value["subscription_id"]) for each in found) == in_process(
        few, world.subscription_table
    )


def stream_once(tmp_path, *arguments):
    options = ("--schema", SCHEMA, "--checkpoint", tmp_path / "checkpoint", "--trigger", "once", "--json")
    ran = CliRunner().invoke(app, ["stream", *map(str, (*arguments, *options))])
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_command_from_topic_to_topic(spark, broker, world, version, tmp_path):
    """Messages in, deliveries out; records that are not messages are quarantined; nothing comes twice."""
    create_topics(spark, broker, "heard", "told")
    few = world.message_table.slice(0, 200)
    expected = in_process(few, world.subscription_table)
    produce(spark, broker, "heard", [*as_json(few), *BROKEN])
    command = (f"kafka://{broker}/heard?maxOffsetsPerTrigger=120", version, f"kafka://{broker}/told")
    done = stream_once(tmp_path, *command)
    assert (done["messages"], done["quarantined"]) == (200 + len(BROKEN), len(BROKEN))
    assert (done["deliveries"], done["batches"]) == (sum(expected.values()), 2)
    assert stream_once(tmp_path, *command)["messages"] == 0
    found = records(spark, broker, "told")
    assert Counter((each.value["message_id"], each.value["subscription_id"]) for each in found) == expected
    assert {int(each.headers["nearcast-batch"]) for each in found} == {0, 1}
    kept = pq.read_table(tmp_path / "checkpoint" / "quarantine")["original"].to_pylist()
    assert Counter(kept) == Counter(map(as_text, BROKEN))


def test_the_command_with_changes_from_a_topic(spark, broker, world, tmp_path):
    create_topics(spark, broker, "said", "changed")
    few = world.message_table.slice(0, 50)
    changes = [
        b'{"change": "unsubscribe", "id": "s1", "changed_at": 1}',
        b'{"change": "subscribe", "id": "new", "changed_at": "2026-11-16T08:00:00Z", "expression": "*"}',
        b"{oops",
    ]
    produce(spark, broker, "said", as_json(few))
    produce(spark, broker, "changed", changes)
    done = stream_once(
        tmp_path, f"kafka://{broker}/said", world.home / "subscriptions", tmp_path / "deliveries",
        "--changes", f"kafka://{broker}/changed",
    )  # fmt: skip
    assert (done["messages"], done["changes"], done["refused"], done["quarantined"]) == (50, 3, 1, 0)
    expected = in_process(few, world.subscription_table)
    expected = Counter({pair: 1 for pair in expected if pair[1] != "s1"})
    expected.update((id, "new") for id in few["id"].to_pylist())
    assert pairs(pq.read_table(tmp_path / "deliveries")) == expected
    (refused,) = pq.read_table(tmp_path / "checkpoint" / "live" / "refused").to_pylist()
    assert refused["change"] == "{oops"


def test_starting_at_an_offset(spark, broker):
    create_topics(spark, broker, "late")
    produce(spark, broker, "late", [b'{"id": 1}'] * 9)
    every = kafka.read_messages(spark, broker, "late", "id long", stream=False).collect()
    of_last = sum(row.kafka.partition == 2 for row in every)
    assert 0 < of_last < len(every) == 9
    offsets = json.dumps({"late": {"0": -1, "1": -1, "2": -2}})  # -1: behind the last, -2: the first
    stream = kafka.read_messages(spark, broker, "late", "id long", starting=offsets)
    query = stream.writeStream.format("memory").queryName("late").trigger(availableNow=True).start()
    finish(query)
    assert spark.table("late").count() == of_last


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("id long, kafka string", "no column of messages can be called kafka"),
        ("id long, _corrupt_record string", "no column of messages can be called _corrupt_record"),
        ("", "at least one column"),
    ],
)
def test_schemas_that_cannot_be(spark, schema, says):
    with pytest.raises(ColumnError, match=says):
        kafka.read_messages(spark, "nowhere:9092", "none", schema)


class TestPackages:
    """Libraries that Spark fetches at the start; in separate processes, because a process starts one session."""

    def run(self, package):
        program = (
            "from nearcast.spark import session\n"
            f"spark = session(cores=1, memory='512m', packages=[{package!r}])\n"
            "print(*(row[0].rsplit('/')[-1] for row in spark.sql('LIST JARS').collect()))"
        )
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)

    def test_they_are_there(self, broker):
        """A library of the broker: wherever the broker runs, this can be fetched."""
        ran = self.run("net.sf.jopt-simple:jopt-simple:5.0.4")
        assert ran.stdout == "net.sf.jopt-simple_jopt-simple-5.0.4.jar\n", ran.stderr

    def test_one_that_is_not_to_be_had(self, broker):
        ran = self.run("org.example:no-such-library:1.0")
        assert "RuntimeUnavailableError: Spark did not start with the packages org.example" in ran.stderr


def test_what_ivy_does_not_find_is_named():
    said = "\t\t:: org.apache.spark#spark-sql-kafka-0-10_2.13;4.3.0: not found\n\t\t::::::::\n"
    assert kafka_broker._complaint(said, ()) == (
        "no Maven repository that answers has org.apache.spark#spark-sql-kafka-0-10_2.13;4.3.0"
    )


class TestFindConnector:
    """The connector is always that of this PySpark; stand-ins for its libraries come second, and with a reason."""

    @pytest.fixture
    def repository(self, monkeypatch):
        """A repository with these artifacts: a dict of coordinates and their jars."""
        there = {}

        def resolve(*coordinates):
            if coordinates not in there:
                raise kafka_broker.NotToBeHadError(f"no {', '.join(coordinates)}")
            return there[coordinates]

        monkeypatch.setattr(kafka_broker, "resolve", resolve)
        monkeypatch.setenv("NEARCAST_KAFKA_STANDIN", "a:old:1")
        return there

    def test_the_matching_one(self, repository):
        repository[tuple(kafka.packages())] = (Path("matching-4.jar"), Path("spark-sql_2.13-4.jar"))
        repository[*kafka.packages(), "a:old:1"] = (Path("old-1.jar"),)
        assert kafka_broker.find_connector() == kafka_broker.Connector((Path("matching-4.jar"),))

    def test_the_standin(self, repository):
        repository[*kafka.packages(), "a:old:1"] = (Path("matching-4.jar"), Path("old-1.jar"))
        found = kafka_broker.find_connector()
        assert (found.jars, found.matching) == ((Path("matching-4.jar"), Path("old-1.jar")), False)

    def test_neither(self, repository, monkeypatch):
        asked = kafka.packages()[0]
        found = kafka_broker.find_connector()
        assert (found.jars, found.reason) == (
            (),
            f"no {asked}; with a:old:1: no {asked}, a:old:1",
        )
        monkeypatch.delenv("NEARCAST_KAFKA_STANDIN")
        assert kafka_broker.find_connector().reason == f"no {asked}"
