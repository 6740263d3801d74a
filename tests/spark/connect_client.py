"""A client of Spark Connect, in a process of its own: a process has either a Java gateway or a remote session.

It is run with ``SPARK_REMOTE`` and a directory of files, does the whole pipeline, and prints what it found as JSON.
"""

import json
import sys
from pathlib import Path

from pyspark.sql.connect.dataframe import DataFrame

from nearcast.spark import build, match, metrics, prepare, profile, session, write_prepared
from nearcast.spark.reading import read_raw, stream_raw


def pairs(rows):
    return sorted((row["message_id"], row["subscription_id"]) for row in rows)


def run(spark, home):
    assert session() is spark
    subscriptions = read_raw(spark, home / "subscriptions", "parquet")
    messages = read_raw(spark, home / "messages", "parquet")
    assert isinstance(messages, DataFrame), "the session is a remote one"
    found = {"zone": spark.conf.get("spark.sql.session.timeZone")}
    found["batch"] = pairs(match(messages, subscriptions, index_dir=home / "versions").collect())

    version = build(subscriptions, home / "versions", distribution="location", shards=2, messages=messages)
    counts = metrics.Metrics()
    found["shards"] = pairs(counts.match(messages, version).collect())
    found["metrics"] = counts.get()

    raw = read_raw(spark, home / "raw.jsonl")
    found["reasons"] = sorted(row["reason"] for row in prepare(raw, "messages").collect() if row["reason"])
    found["prepared"] = {
        **write_prepared(raw, "messages", home / "prepared").to_dict(),
        "seconds": None,
    }

    profile(home / "profile", messages=messages)
    made = profile(home / "profile", subscriptions=subscriptions)
    found["profile"] = [made.version, made.count("messages"), made.count("subscriptions")]

    told = []
    listener = metrics.MetricsListener(told.append)
    spark.streams.addListener(listener)
    arriving = stream_raw(spark, home / "messages", "parquet", options={"maxFilesPerTrigger": "1"})
    # Not foreachBatch: the server gives the process that runs its function ten seconds to start.
    writer = metrics.Metrics().match(arriving, version).writeStream.format("parquet").queryName("remote")
    writer = writer.option("checkpointLocation", f"{home}/checkpoint").trigger(availableNow=True)
    writer.start(f"{home}/streamed").awaitTermination()
    found["stream"] = pairs(spark.read.parquet(f"{home}/streamed").collect())
    spark.streams.removeListener(listener)
    found["told"] = [(each.query, each.batch, each.messages, each.deliveries) for each in told]
    return found


if __name__ == "__main__":
    client = session("nearcast client")
    try:
        json.dump(run(client, Path(sys.argv[1])), sys.stdout)
    finally:
        client.stop()  # also ends the listener's thread, for which the process would wait
