"""The pipeline under Spark Connect: a real server on loopback, and a client that has no Java gateway."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

from nearcast.spark.java import find_java, wrap
from spark.worlds import in_process, message_table, subscription_table, write_files

pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
pytestmark = pytest.mark.spark

SPARK_HOME = Path(pyspark.__file__).parent
SECONDS = 120
RAW = [
    '{"id": 1, "lon": 0.5, "lat": 0.5, "text": "Coffee"}',
    '{"id": 2, "lon": 0.5, "lat": 91, "text": "Tea"}',
    "{oops",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a Spark Connect server, a process of its own; it is stopped afterwards, by its id."""
    home = tmp_path_factory.mktemp("connect")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.python.daemon.module": "nearcast.spark.daemon",
        "spark.sql.session.timeZone": "Asia/Tokyo",  # the client asks for its own
    }
    command = [SPARK_HOME / "bin" / "spark-submit", "--master", "local[2]", "--driver-memory", "1g"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = {
        **os.environ,
        "JAVA_HOME": str(wrap(find_java(), home / "java")),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (home / "said").open("wb") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, cwd=home)
    try:
        limit = time.monotonic() + SECONDS
        while True:
            assert process.poll() is None, (home / "said").read_text()
            assert time.monotonic() < limit, f"no server after {SECONDS} s: {(home / 'said').read_text()}"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def found(server, tmp_path_factory):
    """What the client found; see connect_client.py."""
    home = tmp_path_factory.mktemp("client")
    write_files(subscription_table(), home / "subscriptions", 2)
    write_files(message_table(), home / "messages", 3)
    (home / "raw.jsonl").write_text("\n".join(RAW))
    client = Path(__file__).with_name("connect_client.py")
    ran = subprocess.run(
        [sys.executable, client, home],
        env={**os.environ, "SPARK_REMOTE": server},
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def expected():
    pairs = in_process(message_table(), subscription_table())
    return sorted(list(pair) for pair in pairs.elements())


def test_the_session_is_the_one_that_the_environment_names(found):
    assert found["zone"] == "UTC"


@pytest.mark.parametrize("how", ["batch", "shards", "stream"])
def test_match(found, expected, how):
    assert found[how] == expected


def test_prepare(found):
    assert found["reasons"] == ["malformed", "place"]
    assert (found["prepared"]["read"], found["prepared"]["good"]) == (3, 1)


def test_profile(found):
    assert found["profile"] == [2, message_table().num_rows, subscription_table().num_rows]


def test_metrics(found, expected):
    total = {"messages": message_table().num_rows, "deliveries": len(expected)}
    candidates = found["metrics"]["candidates"]
    assert found["metrics"] == total | {"candidates": candidates}
    assert candidates > total["deliveries"]  # some boxes are touched, and circles are not
    assert [(query, batch) for query, batch, *_ in found["told"]] == [
        ("remote", number) for number in range(3)
    ]
    counts = [sum(column) for column in list(zip(*found["told"]))[2:]]
    assert counts == [total["messages"], total["deliveries"]]
