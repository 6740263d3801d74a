"""Live on a standalone cluster whose executors are taken away: nothing is lost, nothing is delivered twice."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark import hosts as clusters
from spark.live_queries import Query, late, steps_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="executors are found in /proc"),
]


@pytest.fixture
def cluster(tmp_path_factory):
    """The address of a master; its two workers see the directories of this test."""
    if not clusters.can_be_apart():
        pytest.skip("this user may not make mount namespaces")
    with clusters.running(tmp_path_factory.mktemp("hosts")) as found:
        yield found.address


# In the second micro-batch, after its state is decided and while its tasks run, every executor but one is killed; in
# the third, before its tasks start, all of them are.
SCRIPT = """
import os, signal, sys, threading, time
from pathlib import Path
from nearcast.spark import Live, session
from pyspark.sql.types import StructType

address, home, *schemas = sys.argv[1:]
settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.executor.cores": 1,
            "spark.sql.shuffle.partitions": 4}
spark = session(master=address, config=settings)
app = spark.sparkContext.applicationId

def executors():
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode().split("\\0")
        except OSError:
            continue
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and app in words:
            found.append(int(file.parent.name))
    return sorted(found)

def kill(pids):
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    print("killed", len(pids), flush=True)

def write(frame, number):
    if number == 1:
        threading.Timer(0.3, lambda: kill(executors()[1:] or executors())).start()
    if number == 2:
        kill(executors())
    frame.toArrow()  # the tasks run, and are repeated elsewhere
    import pyarrow.parquet as pq
    pq.write_table(frame.toArrow(), f"{home}/out/{number}.parquet")
    clock[0] += 120_000_000

clock = [1_700_000_000_000_000]
streams = [
    spark.readStream.schema(StructType.fromDDL(ddl)).option("maxFilesPerTrigger", 1).parquet(f"file://{home}/{name}")
    for name, ddl in zip(("messages", "changes"), schemas)
]
live = Live(f"{home}/live", spark.read.parquet(f"file://{home}/subscriptions.parquet"), shards=3,
            distribution="location", clock=lambda: clock[0])
live.start(*streams, write, checkpoint=f"{home}/checkpoint", availableNow=True).awaitTermination()
spark.stop()
"""


def test_executors_are_taken_away(cluster, spark, tmp_path):
    run = Query(spark, tmp_path)
    expected = steps_of(run, 4)
    (tmp_path / "out").mkdir()
    schemas = [spark.read.parquet(str(tmp_path / name)).schema for name in ("messages", "changes")]
    ddl = [
        ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema) for schema in schemas
    ]
    command = [sys.executable, "-c", SCRIPT, cluster, str(tmp_path), *ddl]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("killed") == 2
    for number, deliveries in enumerate(expected):
        rows = pq.read_table(tmp_path / "out" / f"{number}.parquet")
        names = ("message_id", "subscription_id", "reason")
        assert Counter(zip(*(rows[name].to_pylist() for name in names))) == deliveries, number
    assert late(expected[3]).total() > 10
