"""The session helper: quiet, local, complete, and clear about what is missing."""

import ast
import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nearcast.spark
from nearcast.errors import InputError, RuntimeUnavailableError
from nearcast.spark import session
from nearcast.spark.session import quietly


@pytest.mark.spark
class TestStarted:
    def test_it_starts_and_runs_a_job_without_a_word(self, started):
        assert started.said == ""

    def test_settings(self, spark):
        expected = {
            "spark.app.name": "nearcast tests",
            "spark.master": "local[2]",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.ui.enabled": "false",
        }
        assert {name: spark.conf.get(name) for name in expected} == expected

    def test_workers_run_this_interpreter_and_are_forked_warm(self, spark):
        def look(batches):
            import pyarrow

            parent = sys.modules["__main__"].__spec__.name
            yield pyarrow.RecordBatch.from_pydict({"path": [sys.executable], "parent": [parent]})

        with quietly():
            rows = spark.range(1, numPartitions=1).mapInArrow(look, "path string, parent string").collect()
        assert [tuple(row) for row in rows] == [(sys.executable, "nearcast.spark.daemon")]

    def test_a_second_call_returns_the_active_session(self, spark):
        assert session("another name") is spark
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(session, "yet another").result() is spark
        assert spark.conf.get("spark.app.name") == "nearcast tests"

    def test_the_environment_is_as_before(self, spark):
        assert "nearcast-java" not in os.environ.get("JAVA_HOME", "")
        assert os.environ.get("SPARK_LOCAL_IP") is None


def test_what_the_daemon_warms_leaves_no_thread_of_python():
    """A thread that holds a lock at the fork would hang the worker."""
    program = (
        "import threading; from nearcast.spark.daemon import warm; warm(); print(threading.active_count())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr) == ("1\n", "")


def test_without_pyspark_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeUnavailableError, match=r"pip install 'nearcast\[spark\]'"):
        session()


@pytest.mark.parametrize("cores", [0, -1, "two", 1.5])
def test_cores_must_be_a_number_or_a_star(cores):
    with pytest.raises(InputError, match="cores must be"):
        session(cores=cores)


class Builder:
    """A builder that records what a session would be started with."""

    def __init__(self):
        self.settings = {}

    def config(self, name, value):
        self.settings[name] = value
        return self

    def getOrCreate(self):
        return self.settings, dict(os.environ)


@pytest.mark.parametrize(
    ("master", "local"), [(None, True), ("local[3]", True), ("spark://host:7077", False), ("yarn", False)]
)
def test_the_driver_of_a_cluster_can_be_reached(monkeypatch, master, local):
    monkeypatch.setattr(sys.modules["nearcast.spark.session"], "active_session", lambda: None)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", Builder())
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python")
    settings, environment = session(master=master, config={"spark.ui.enabled": "true"})
    assert settings["spark.master"] == (master or "local[*]")
    assert settings["spark.ui.enabled"] == "true"
    assert ("spark.driver.bindAddress" in settings) == local
    assert ("SPARK_LOCAL_IP" in environment) == local
    assert environment["PYSPARK_PYTHON"] == (sys.executable if local else "/elsewhere/python")
    assert settings["spark.python.daemon.module"] == "nearcast.spark.daemon"


def test_nothing_reaches_past_spark_connect():
    """Under Spark Connect there is no Java gateway and no RDD: our code must not use them."""
    forbidden = {"sparkContext", "_sc", "_jvm", "_jsc", "_jdf", "_jsparkSession", "rdd", "SparkContext"}
    files = list(Path(nearcast.spark.__file__).parent.glob("*.py"))
    assert len(files) >= 5
    for file in files:
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        names |= {node.id for node in nodes if isinstance(node, ast.Name)}
        names |= {
            alias.name
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not names & forbidden, file.name
