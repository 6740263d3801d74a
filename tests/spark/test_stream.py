"""A stream delivers what a batch delivers; after a stop or a failure it neither loses nor repeats deliveries."""

import time

import pytest

from nearcast.spark import build, match
from nearcast.spark.session import quietly
from spark.worlds import in_process, pairs, write_files

pytestmark = pytest.mark.spark

DEADLINE = 60  # seconds that a query gets for anything


@pytest.fixture(scope="module")
def version(world):
    return build(world.subscriptions, world.home / "versions")


@pytest.fixture
def stream(spark, world, tmp_path):
    """Return the messages of files as they appear in ``input``, one file per micro-batch."""
    (tmp_path / "input").mkdir()
    files = spark.readStream.schema(world.messages.schema).option("maxFilesPerTrigger", 1)
    return files.parquet(str(tmp_path / "input"))


def start(deliveries, home, **trigger):
    """Start a query to a Parquet sink with a checkpoint."""
    writer = deliveries.writeStream.option("checkpointLocation", str(home / "checkpoint"))
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.format("parquet").start(str(home / "output"))


def finish(query):
    assert query.awaitTermination(DEADLINE), "the query did not end"


def delivered(spark, home):
    return pairs(spark.read.parquet(str(home / "output")))


def batches(query):
    return sum(progress["numInputRows"] > 0 for progress in query.recentProgress)


def until(condition):
    limit = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.02)


@pytest.mark.versions
def test_a_stream_equals_in_process(spark, world, version, stream, tmp_path):
    write_files(world.message_table, tmp_path / "input", 3)
    query = start(stream.transform(match, version), tmp_path, availableNow=True)
    finish(query)
    assert batches(query) == 3
    assert delivered(spark, tmp_path) == world.expected


def test_stopped_and_started_again(spark, world, version, stream, tmp_path):
    """Stop after the second micro-batch, while more files wait, and others come before the restart."""
    first, second = world.message_table.slice(0, 900), world.message_table.slice(900)
    write_files(first, tmp_path / "input", 6)
    query = start(match(stream, version), tmp_path)
    until(lambda: batches(query) >= 2)
    query.stop()
    early = delivered(spark, tmp_path)
    assert 0 < sum(early.values()) < sum(world.expected.values())
    write_files(second, tmp_path / "input", 2, start=6)
    finish(start(match(stream, version), tmp_path, availableNow=True))
    assert delivered(spark, tmp_path) == world.expected


def test_stopped_again_and_again(spark, world, stream, tmp_path):
    """Stop at arbitrary moments and give the subscriptions as a DataFrame each time: the same version is used."""
    write_files(world.message_table, tmp_path / "input", 6)
    for pause in (0.2, 0.5, 0.8):
        query = start(match(stream, world.subscriptions, index_dir=tmp_path / "versions"), tmp_path)
        # Spark itself cannot go on from a checkpoint in which the first micro-batch was only half written down.
        while not (tmp_path / "checkpoint" / "offsets" / "0").exists():
            time.sleep(0.05)
        time.sleep(pause)
        query.stop()
    finish(
        start(
            match(stream, world.subscriptions, index_dir=tmp_path / "versions"), tmp_path, availableNow=True
        )
    )
    assert delivered(spark, tmp_path) == world.expected
    assert len(list((tmp_path / "versions").iterdir())) == 1


def test_a_task_that_dies_in_the_middle_of_a_batch(spark, world, version, stream, tmp_path):
    """One task of the second micro-batch fails after the other of the same batch has written its file."""
    write_files(world.message_table, tmp_path / "input", 3)
    fuse = tmp_path / "fuse"
    fuse.touch()
    path, victim = str(fuse), world.message_table["id"][600].as_py()  # in the second file

    def dying(rows):
        import time
        from pathlib import Path

        for batch in rows:
            if Path(path).exists() and victim in batch["message_id"].to_pylist():
                time.sleep(0.5)  # the other task finishes first
                raise RuntimeError("the machine is on fire")
            yield batch

    def query(**trigger):
        deliveries = match(stream.repartition(2, "id"), version)
        with quietly():
            return start(deliveries.mapInArrow(dying, deliveries.schema), tmp_path, **trigger)

    assert any(subscriptions for (message, subscriptions) in world.expected if message == victim)
    broken = query(availableNow=True)
    with pytest.raises(Exception, match="on fire"):
        broken.awaitTermination(DEADLINE)
    assert delivered(spark, tmp_path) == in_process(
        world.message_table.slice(0, 400), world.subscription_table
    )
    fuse.unlink()
    finish(query(availableNow=True))
    assert delivered(spark, tmp_path) == world.expected


def test_foreach_batch_is_repeated_under_the_same_number(spark, world, version, stream, tmp_path):
    """A batch that fails after its rows are written is repeated with its number; overwriting by number is exact."""
    write_files(world.message_table, tmp_path / "input", 3)
    seen, broken = [], []

    def write(deliveries, number):
        seen.append(number)
        deliveries.write.mode("overwrite").parquet(str(tmp_path / "output" / f"batch={number}"))
        if number == 1 and not broken:
            broken.append(number)
            raise RuntimeError("after the rows were written, before the batch was committed")

    def query():
        writer = match(stream, version).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.foreachBatch(write).trigger(availableNow=True).start()

    with pytest.raises(Exception, match="after the rows were written"):
        query().awaitTermination(DEADLINE)
    finish(query())
    assert seen == [0, 1, 1, 2]
    assert delivered(spark, tmp_path) == world.expected
