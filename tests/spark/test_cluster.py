"""A standalone cluster of two workers on this machine: the same deliveries as in one process."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from nearcast.spark.java import find_java, wrap
from spark.worlds import pairs

pytestmark = pytest.mark.spark

SPARK_HOME = Path(pyspark.__file__).parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, what, processes, seconds=90):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} took more than {seconds} s"
        assert all(process.poll() is None for process in processes), f"{what}: a process has ended"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of a master with two workers of one core each, on loopback; all are stopped afterwards, by id."""
    home = tmp_path_factory.mktemp("cluster")
    java = wrap(find_java(), home / "java")
    environment = {
        **os.environ,
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_WORKER_DIR": str(home / "work"),
    }
    address = f"spark://127.0.0.1:{free_port()}"
    log = home / "log"
    processes = []

    def start(name, *arguments):
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        with log.open("ab") as file:
            processes.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file, cwd=home))

    try:
        start(
            "master.Master", "--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--webui-port", "0"
        )
        wait_for(lambda: "I have been elected leader" in log.read_text(), "the master", processes)
        for _ in range(2):
            start(
                "worker.Worker",
                address,
                "--cores",
                "1",
                "--memory",
                "1g",
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
            )
        wait_for(lambda: len(re.findall("Registering worker", log.read_text())) == 2, "workers", processes)
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(timeout=30)
        shutil.rmtree(home / "work", ignore_errors=True)


SCRIPT = """
import sys
from nearcast.spark import build, match, session

address, home, out = sys.argv[1:]
settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.executor.cores": 1}
spark = session(master=address, config=settings)
version = build(spark.read.parquet(f"{home}/subscriptions"), f"{out}/versions", distribution="location", shards=4)
match(spark.read.parquet(f"{home}/messages"), version).write.parquet(f"{out}/deliveries")
spark.stop()
"""


def test_build_and_match_on_two_workers(cluster, world, tmp_path):
    command = [sys.executable, "-c", SCRIPT, cluster, world.home, tmp_path]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert pairs(pq.read_table(tmp_path / "deliveries")) == world.expected
