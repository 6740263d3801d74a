"""A Hadoop file system on loopback, for the tests that take long."""

import json
import os
import signal
import subprocess
import time

import pytest

JARS = (
    "org.apache.hadoop:hadoop-client-minicluster:3.4.2",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.mockito:mockito-core:4.11.0",
    "junit:junit:4.13.2",
    "commons-logging:commons-logging:1.3.5",
)


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory):
    """The URI of a file system with one data node, from the jars of Hadoop's own tests."""
    from nearcast.spark.java import find_java
    from spark.broker import SPARK_JARS, NotToBeHadError, resolve

    try:
        jars = resolve(*JARS)
    except NotToBeHadError as error:
        pytest.skip(f"HDFS: {error}")
    home = tmp_path_factory.mktemp("hdfs")
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
