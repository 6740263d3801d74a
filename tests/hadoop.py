"""A Hadoop file system on loopback, from the jars of Hadoop's own tests."""

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager

from nearcast.spark.java import find_java
from spark.broker import SPARK_JARS, resolve

JARS = (
    "org.apache.hadoop:hadoop-client-minicluster:3.4.2",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.mockito:mockito-core:4.11.0",
    "junit:junit:4.13.2",
    "commons-logging:commons-logging:1.3.5",
)


@contextmanager
def running(home):
    """Provide the URI of a file system with one data node; raise NotToBeHadError if no repository has the jars."""
    jars = resolve(*JARS)
    path = [
        *map(str, jars),
        *(str(jar) for name in ("slf4j-api", "log4j") for jar in SPARK_JARS.glob(f"{name}*.jar")),
    ]
    command = [
        str(find_java().home / "bin" / "java"),
        "-Xmx256m",
        f"-Dtest.build.data={home}",
        "-cp",
        os.pathsep.join(path),
    ]
    command += [
        "org.apache.hadoop.test.MiniDFSClusterManager",
        "-format",
        "-writeDetails",
        str(home / "details"),
    ]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=home, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 120
        while not (home / "details").exists() or not (home / "details").stat().st_size:
            assert server.poll() is None, (home / "log").read_text()
            assert time.monotonic() < until, "HDFS takes more than two minutes to start"
            time.sleep(0.2)
        yield f"hdfs://127.0.0.1:{json.loads((home / 'details').read_text())['namenode_port']}/tests"
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
