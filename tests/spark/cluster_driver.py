"""What the driver of a cluster without shared disks does; the tests run it as a process of its own."""

import json
import os
import sys
from pathlib import Path

import pyarrow.parquet as pq

from nearcast import Engine, config
from nearcast.spark import Live, build, match, session

# Messages of a stream that every executor can make, since none can read the driver's files.
MESSAGES = """
    concat('m', value) AS id,
    CAST(value * 37 % 100 AS double) / 100 AS lon,
    CAST(value * 61 % 100 AS double) / 100 AS lat,
    element_at(array('tea', 'coffee', 'cake with tea'), CAST(value % 3 + 1 AS int)) AS text
"""


def start(address):
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": 1,
        "spark.sql.shuffle.partitions": 2,
    }
    return session(master=address, config=settings)


def stream_of(spark, rows):
    options = {"rowsPerBatch": rows, "numPartitions": 2, "startTimestamp": 0, "advanceMillisPerBatch": 1000}
    return spark.readStream.format("rate-micro-batch").options(**options).load()


def batch(spark, world, home):
    """Build shards by tasks, match a batch and a stream; return the pairs that were found."""
    config.SPARK_DRIVER_ROWS = 10
    read = lambda name: spark.createDataFrame(pq.read_table(f"{world}/{name}")).repartition(3)  # noqa: E731
    version = build(read("subscriptions"), f"{home}/versions", distribution="location", shards=4)
    found = match(read("messages"), version).toArrow()
    circles = {"lon": [0.3, 0.7], "lat": [0.5, 0.5], "radius_m": [30_000.0, 20_000.0]}
    few = {"id": ["a", "b"], "expression": ["tea", "coffee OR cake"], **circles}
    columns = "id string, expression string, lon double, lat double, radius_m double"
    rows = list(zip(*few.values()))
    streamed, kept = [], []
    messages = stream_of(spark, 100).selectExpr(*_split(MESSAGES))

    def write(frame, number):
        streamed.extend(map(list, frame.select("message_id", "subscription_id").collect()))

    deliveries = match(messages, spark.createDataFrame(rows, columns), index_dir=f"{home}/other", shards=2)
    query = (
        deliveries.writeStream.foreachBatch(write)
        .option("checkpointLocation", f"file://{_disk()}/one")
        .start()
    )
    while query.lastProgress is None or query.lastProgress["batchId"] < 2:
        query.awaitTermination(0.2)
    query.stop()
    last = max(int(pair[0][1:]) for pair in streamed) // 100 * 100 + 100
    made = spark.range(last).withColumnRenamed("id", "value").selectExpr(*_split(MESSAGES)).toArrow()
    engine = Engine()
    engine.subscribe(few)
    kept = [[d.message_id, d.subscription_id] for d in engine.publish(made)]
    ids = ("message_id", "subscription_id")
    return {
        "batch": list(zip(*(found[name].to_pylist() for name in ids))),
        "stream": kept,
        "streamed": streamed,
    }


def shared(spark, world, home):
    """Build in this process, and match by executors who see the version on a disk; return the pairs that were found."""
    read = lambda name: spark.createDataFrame(pq.read_table(f"{world}/{name}")).repartition(3)  # noqa: E731
    version = build(read("subscriptions"), home, distribution="location", shards=2)
    found = match(read("messages"), version).toArrow()
    return list(zip(*(found[name].to_pylist() for name in ("message_id", "subscription_id"))))


# Changes of a stream: each micro-batch has one for each of five subscriptions.
CHANGES = """
    element_at(array('subscribe', 'update', 'move', 'unsubscribe', 'subscribe'), CAST(value * 7 % 5 + 1 AS int))
        AS change,
    concat('s', value % 15) AS id,
    value AS changed_at,
    IF(value * 7 % 5 IN (0, 1, 4), element_at(array('tea', 'coffee', 'cake'), CAST(value % 3 + 1 AS int)), NULL)
        AS expression,
    IF(value * 7 % 5 = 3, NULL, CAST(value * 13 % 100 AS double) / 100) AS lon,
    IF(value * 7 % 5 = 3, NULL, CAST(value * 29 % 100 AS double) / 100) AS lat,
    IF(value * 7 % 5 = 3, NULL, 40000.0D) AS radius_m
"""
FIRST = [(f"s{n}", "tea", 0.5, 0.5, 30_000.0) for n in range(10)]
PER_BATCH = {"messages": 40, "changes": 5}
EXPIRES = (
    4_102_444_800_000_000  # the year 2100; a message with an even number expires then, the others at once
)


def live(spark, home, out, last):
    """Deliver while subscriptions change, until a number of micro-batches is complete; each is a file in *out*."""
    subscriptions = spark.createDataFrame(
        FIRST, "id string, expression string, lon double, lat double, radius_m double"
    )
    query = Live(home, subscriptions, shards=2, distribution="location", clock=lambda: 0)
    messages = stream_of(spark, PER_BATCH["messages"]).selectExpr(
        *_split(MESSAGES), f"IF(value % 2 = 0, timestamp_micros({EXPIRES}), NULL) AS expires_at"
    )
    changes = stream_of(spark, PER_BATCH["changes"]).selectExpr(*_split(CHANGES))

    def write(frame, number):
        rows = sorted(map(list, frame.select("message_id", "subscription_id").collect()))
        draft = Path(out, f".{number}")
        draft.write_text(json.dumps(rows))
        draft.rename(Path(out, str(number)))

    started = query.start(messages, changes, write, checkpoint=f"file://{out}/checkpoint")
    while not Path(out, last).exists():
        started.awaitTermination(0.2)
    started.stop()


def _split(columns):
    """Return the columns of a select list; commas inside parentheses do not count."""
    out, depth = [""], 0
    for letter in columns:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            out.append("")
        else:
            out[-1] += letter
    return [column.strip() for column in out]


def _disk():
    return os.environ["TMPDIR"]


if __name__ == "__main__":
    address, verb, *arguments = sys.argv[1:]
    spark = start(address)
    verbs = {"batch": batch, "shared": shared, "live": live}
    sys.stdout.write(json.dumps(verbs[verb](spark, *arguments)) + "\n")
    spark.stop()
