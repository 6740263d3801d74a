"""The session helper: quiet, local, complete, and clear about what is missing."""

import ast
import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from typer.testing import CliRunner

import nearcast.spark
from nearcast.cli import app, spark_session
from nearcast.errors import InputError, RuntimeUnavailableError
from nearcast.spark import Live, session
from nearcast.spark.java import find_java, wrap
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

    def remote(self, address):
        return self.config("remote", address)

    def config(self, name, value):
        self.settings[name] = value
        return self

    def getOrCreate(self):
        settings, self.settings = self.settings, {}
        return settings, dict(os.environ)


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


class TestTold:
    """Where Spark runs, and how, may be decided before the program asks; then it stays so."""

    @pytest.fixture(autouse=True)
    def start(self, monkeypatch):
        monkeypatch.setattr(sys.modules["nearcast.spark.session"], "active_session", lambda: None)
        monkeypatch.setattr("pyspark.sql.SparkSession.builder", Builder())

    def test_by_a_file_of_defaults(self, monkeypatch, tmp_path):
        (tmp_path / "spark-defaults.conf").write_text(
            "# a cluster\nspark.master  spark://host:7077\nspark.driver.memory=7g\n"
            "spark.driver.extraJavaOptions -Dmine=1 -Dother=2\nspark.sql.session.timeZone: Asia/Tokyo\n"
        )
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        settings, _ = session()
        assert settings["spark.master"] == "spark://host:7077"
        assert settings["spark.driver.extraJavaOptions"].endswith('log4j2.properties" -Dmine=1 -Dother=2')
        kept = {"spark.driver.memory", "spark.sql.session.timeZone", "spark.ui.enabled", "spark.driver.host"}
        assert not kept & set(settings), "Spark reads them itself, and has an interface on a cluster"
        asked, _ = session(
            "mine", memory="1g", master="local[3]", config={"spark.driver.extraJavaOptions": "-Da=1"}
        )
        assert (asked["spark.master"], asked["spark.driver.memory"]) == ("local[3]", "1g")
        assert asked["spark.app.name"] == "mine"
        assert asked["spark.driver.extraJavaOptions"].endswith(" -Da=1")
        assert asked["spark.ui.enabled"] == "false"

    def test_by_the_arguments_of_a_notebook(self, monkeypatch):
        told = "--master=yarn --conf spark.ui.port=4050 --driver-memory 3g pyspark-shell"
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", told)
        settings, environment = session(cores=2)
        assert settings["spark.master"] == "yarn"
        assert not {"spark.driver.memory", "spark.ui.enabled", "spark.driver.bindAddress"} & set(settings)
        assert "SPARK_LOCAL_IP" not in environment

    def test_by_the_address_of_a_server(self, monkeypatch):
        monkeypatch.setenv("SPARK_REMOTE", "sc://host:15002")
        settings, _ = session("client", memory="1g", config={"spark.sql.shuffle.partitions": 7})
        assert settings == {
            "remote": "sc://host:15002",
            "spark.app.name": "client",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            "spark.sql.shuffle.partitions": "7",
        }
        settings, _ = session(master="local[2]")
        assert settings["spark.master"] == "local[2]"


@pytest.mark.spark
def test_spark_submit_decides(tmp_path):
    """A program that spark-submit runs: the master, the interface and the Java options are those of its arguments."""
    program = tmp_path / "program.py"
    program.write_text(
        "from nearcast.spark import session\n"
        "spark = session(cores=2)\n"
        "names = ['master', 'app.name', 'ui.enabled', 'driver.memory', 'python.daemon.module',\n"
        "         'sql.session.timeZone', 'ui.showConsoleProgress']\n"
        "print(*(word for word in spark.conf.get('spark.driver.extraJavaOptions').split() if 'mine' in word))\n"
        "print(*(spark.conf.get('spark.' + name) for name in names), spark.range(3).count(), sep='|')\n"
    )
    settings = {"spark.driver.extraJavaOptions": "-Dmine=1", "spark.ui.enabled": "true", "spark.ui.port": "0"}
    settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    home = Path(pyspark.__file__).parent
    command = [
        home / "bin" / "spark-submit",
        "--master",
        "local[1]",
        "--driver-memory",
        "600m",
        "--name",
        "told",
    ]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        "JAVA_HOME": str(wrap(find_java(), tmp_path / "java")),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    ran = subprocess.run([*command, program], env=environment, capture_output=True, text=True, timeout=200)
    assert ran.stdout == ("-Dmine=1\nlocal[1]|told|true|600m|nearcast.spark.daemon|UTC|false|3\n"), ran.stderr


def test_pip_leaves_the_spark_of_a_platform_alone():
    """Only the extra asks for PySpark; the package itself is enough beside one that is there."""
    asked = [each for each in metadata.requires("nearcast") if each.startswith("pyspark")]
    assert asked
    assert all(each.endswith("extra == 'spark'") for each in asked)


@pytest.mark.parametrize("version", ["4.0.1", "3.5.9"])
def test_a_spark_that_is_too_old_is_named(monkeypatch, version):
    monkeypatch.setattr("pyspark.version.__version__", version)
    with pytest.raises(
        RuntimeUnavailableError, match=f"PySpark {version} is installed, .* needs 4.1 or newer"
    ):
        session()


def test_nothing_reaches_past_spark_connect():
    """Under Spark Connect there is no Java gateway and no RDD: our code must not use them, if there is a server."""
    forbidden = {"sparkContext", "_sc", "_jvm", "_jsc", "_jdf", "_jsparkSession", "rdd", "SparkContext"}
    home = Path(nearcast.spark.__file__).parent
    files = [file for file in home.rglob("*.py") if file.name != "launching.py"]
    assert home / "live" / "live.py" in files
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


def test_what_differs_between_versions_of_spark_is_in_one_module():
    home = Path(nearcast.spark.__file__).parent
    inside = {file.name for file in home.rglob("*.py") if "pyspark.sql.pandas" in file.read_text("utf-8")}
    assert inside == {"compat.py"}


def test_a_remote_session_is_refused_where_it_cannot_work(monkeypatch, tmp_path):
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    frame = SimpleNamespace(sparkSession=remote)
    with pytest.raises(
        RuntimeUnavailableError, match=r"Live keeps its state in this program, .* spark-submit"
    ):
        Live(tmp_path, frame)
    monkeypatch.setattr(spark_session, "open_session", lambda *_, **__: nullcontext(remote))
    (tmp_path / "in").mkdir()
    words = ["stream", tmp_path / "in", tmp_path / "in", tmp_path / "out", "--checkpoint", tmp_path / "c"]
    ran = CliRunner().invoke(app, list(map(str, words)))
    assert ran.exit_code != 0
    assert "nearcast stream keeps its state in this program" in ran.stderr
