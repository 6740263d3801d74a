"""A driver that tests kill: up to three queries over the same messages, each with its checkpoint and its sink.

=========  ==========================================================================================
``plain``  ``match``, and ``parquet_sink`` by ``foreachBatch``
``spark``  ``match``, and Spark's own Parquet sink
``live``   ``Live`` in three shards, with changes and with versions made often, and ``parquet_sink``
=========  ==========================================================================================

Its arguments are a home (see ``spark.faults``) and JSON: ``queries``, ``master``, ``ends`` (stop when all files were
read; otherwise run until killed), and ``die``: the operation on a file at which it kills itself.
"""

import fnmatch
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path


def die_at(event, path, after=False):
    """Kill this process and Spark's Java right before an operation on a file, or right after it.

    *event* is the name of an audit event of Python; *path* is a pattern for the file that is removed or made, or for
    its new name.
    """
    done = threading.local()

    def die():
        os.killpg(0, signal.SIGKILL)

    def hook(name, arguments):
        if name == "os.killpg":  # an event, too
            return
        if getattr(done, "matched", False):  # a later event of this thread: the operation is over
            die()
        if name == event and fnmatch.fnmatch(os.fsdecode(arguments[name in ("os.rename", "os.link")]), path):
            if not after:
                die()
            threading.Timer(0.1, die).start()  # in case the operation is the last of its thread
            done.matched = True

    sys.addaudithook(hook)


def note_states(home):
    """Keep the state that each micro-batch of ``live`` saw at its first attempt: a link to the file of that time."""
    (home / "seen").mkdir(exist_ok=True)
    for state in (home / "live" / "home" / "states").glob("*.json"):
        with suppress(FileExistsError, FileNotFoundError):  # noted before; removed meanwhile
            os.link(state, home / "seen" / state.name)


def start(name, spark, home, **trigger):
    """Start one query."""
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import from_arrow_schema

    from nearcast.spark import Live, build, match
    from nearcast.spark.sinks import parquet_sink

    def stream(directory):
        schema = from_arrow_schema(pq.read_schema(home / directory / "000.parquet"))
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(home / directory))

    subscriptions = spark.read.parquet(str(home / "subscriptions.parquet"))
    checkpoint, out = str(home / name / "checkpoint"), home / name / "out"
    sink = parquet_sink(out)
    if name == "live":

        def clock():
            return int((home / "clock").read_text())

        def write(deliveries, number):
            note_states(home)
            sink(deliveries, number)

        live = Live(home / "live" / "home", subscriptions, distribution="location", shards=3, clock=clock)
        return live.start(stream("messages"), stream("changes"), write, checkpoint=checkpoint, **trigger)
    deliveries = match(stream("messages"), build(subscriptions, home / name / "versions"))
    writer = deliveries.writeStream.option("checkpointLocation", checkpoint)
    if trigger:
        writer = writer.trigger(**trigger)
    return (writer.foreachBatch(sink) if name == "plain" else writer.format("parquet")).start(
        **({"path": str(out)} if name == "spark" else {})
    )


def main(home, queries, master, ends, die):
    from nearcast import config
    from nearcast.spark import session

    assert os.getpgrp() == os.getpid(), "it kills its process group, which must be its own"
    config.LIVE_DELTA_ROWS, config.LIVE_DELTA_SHARE = 40, 0.0
    settings = {"spark.python.daemon.module": "fault_daemon", "spark.sql.adaptive.enabled": "false"}
    spark = session("nearcast faults", master=master, memory="1g", config=settings)
    if die:
        die_at(**die)
    running = [start(name, spark, home, **({"availableNow": True} if ends else {})) for name in queries]
    (home / f"started.{os.getpid()}").touch()
    if not ends:
        spark.streams.awaitAnyTermination()
        raise SystemExit("a query has ended, and should go on")
    for query in running:
        query.awaitTermination()
    if "spark" in queries:  # its sink is exact only for readers that use Spark
        found = spark.read.parquet(str(home / "spark" / "out"))
        found.write.mode("overwrite").parquet(str(home / "spark" / "read"))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
