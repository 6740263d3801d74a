"""A well-configured Spark session: one call, no noise; without a cluster, no network."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import sys
import tempfile
import threading
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.errors import InputError, RuntimeUnavailableError, shown
from nearcast.spark.java import find_java, wrap
from nearcast.spark.launching import given_settings, is_submitted
from nearcast.spark.parquet import UTC_TIMES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = ["active_session", "quietly", "require_pyspark", "session"]

_LOG4J = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SQL_SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    **dict([UTC_TIMES]),
}


def session(
    app: str | None = None,
    cores: int | str = "*",
    memory: str | None = None,
    config: Mapping[str, object] | None = None,
    *,
    master: str | None = None,
    packages: Collection[str] = (),
) -> SparkSession:
    """Return the active Spark session, or start one: where Spark is told to run, or else on this machine.

    A session that is already active is returned as it is; then the arguments have no effect. Otherwise Spark runs where
    *master* says, or else where it was told to run already: by ``spark-submit``, by ``SPARK_REMOTE`` (a Spark Connect
    server), by ``PYSPARK_SUBMIT_ARGS`` or in ``spark-defaults.conf``. Settings made there stay as they are, and Java
    options are added to them.

    If nothing says where, Spark runs on this machine alone, listens on the loopback address only, needs no network
    unless there are packages to fetch, and has no web interface. Everywhere, Arrow is on, the time zone is UTC, Parquet
    files get times in UTC, and the driver logs errors only.

    Parameters
    ----------
    app
        The name of the application; by default ``nearcast``.
    cores
        How many tasks run at once on this machine; ``"*"`` means one per core.
    memory
        The memory of the Java process, in Spark's notation, ``"512m"``; by default ``"2g"``. It need not hold indexes:
        Python workers map them from files.
    config
        Spark settings, which are added to these or replace them.
    master
        Where to run, in Spark's notation: ``"spark://host:7077"``, ``"yarn"``. On a cluster the driver listens where
        the cluster can reach it, and workers run the Python that they find under the path of this one, unless
        ``PYSPARK_PYTHON`` names another. ``"local[4]"`` means this machine, and takes precedence over *cores*.
    packages
        Maven coordinates (``group:artifact:version``) of libraries that Spark fetches first, such as those of
        :func:`nearcast.spark.kafka.packages`. Spark takes them from its cache, from ``~/.m2``, or from Maven Central,
        and says on stderr what it finds. If Maven Central cannot be reached, name another repository by
        ``spark.jars.repositories`` or ``spark.jars.ivySettings``, in *config* or in ``spark-defaults.conf``. A program
        that ``spark-submit`` runs cannot fetch any: give them to ``spark-submit --packages``.

    Raises RuntimeUnavailableError, which names what to install, if PySpark or a Java that it supports is missing, or if
    the packages cannot be fetched.
    """
    require_pyspark()
    if cores != "*" and not (isinstance(cores, int) and cores >= 1):
        raise InputError(f'cores must be "*" or a whole number from 1, not {shown(cores)}')
    found = active_session()
    if found is not None:
        return found
    arguments = {
        "spark.app.name": app,
        "spark.driver.memory": memory,
        "spark.jars.packages": ",".join(packages) or None,
        **(config or {}),
    }
    asked = {name: str(value) for name, value in arguments.items() if value is not None}
    if master is not None:
        asked["spark.master"] = master
    with quietly():
        told = given_settings()
        remote = None if "spark.master" in asked else asked.get("spark.remote", told.get("spark.remote"))
        if remote is not None:
            return _connect(remote, asked)
        return _start(cores, asked, told, packages)


def _connect(remote: str, asked: Mapping[str, str]) -> SparkSession:
    """Return a session of a Spark Connect server; the memory and the master are those of the server."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(remote)
    for name, value in {**_SQL_SETTINGS, **asked}.items():
        if name not in ("spark.remote", "spark.driver.memory"):
            builder = builder.config(name, value)
    return builder.getOrCreate()


def _start(
    cores: int | str, asked: Mapping[str, str], told: Mapping[str, str], packages: Collection[str]
) -> SparkSession:
    """Start a session: with the settings that were asked for, those that were made already, and ours, in that order."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    master = asked.get("spark.master") or told.get("spark.master") or f"local[{cores}]"
    local = re.match(r"local(\[|$)", master) is not None
    if master == "local[*]":  # spark-submit says so, too, if nobody told it where to run
        master = f"local[{cores}]"
    ours = _settings(cores, local=local)
    settings = {**{name: value for name, value in ours.items() if name not in told}, **asked}
    if not is_submitted():
        quiet = f'"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"'
        options = asked.get(_JAVA_OPTIONS, told.get(_JAVA_OPTIONS, ""))
        settings[_JAVA_OPTIONS] = f"{quiet} {options}".strip()  # of two equal options, Java takes the last
    with (
        tempfile.TemporaryDirectory(prefix="nearcast-java-") as directory,
        _environment(_variables(Path(directory), local=local)),
        _keep_interrupt_handler(),
    ):
        builder = SparkSession.builder
        for name, value in {**settings, "spark.master": master}.items():
            builder = builder.config(name, value)
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            if not packages or error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise RuntimeUnavailableError(
                f"Spark did not start with the packages {', '.join(packages)}. Its output above names those that "
                "no repository has; name another repository by spark.jars.repositories in config"
            ) from None


def _variables(directory: Path, *, local: bool) -> dict[str, str]:
    """Return the environment in which Spark starts; *directory* is for files that it needs meanwhile."""
    if is_submitted():  # Java runs already
        return {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    python = sys.executable if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
    variables = {"JAVA_HOME": str(wrap(find_java(), directory)), "PYSPARK_PYTHON": python}
    # Otherwise Spark asks the network for the name of this machine.
    return {**variables, "SPARK_LOCAL_IP": "127.0.0.1"} if local else variables


def require_pyspark() -> None:
    """Raise RuntimeUnavailableError, which names what to install, if PySpark is missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise RuntimeUnavailableError(
            "PySpark is not installed; `pip install 'nearcast[spark]'` installs it, with a Java runtime"
        )


def active_session() -> SparkSession | None:
    """Return the active session, if there is one."""
    require_pyspark()
    with quietly():
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        with suppress(PySparkRuntimeError):  # there is none
            return SparkSession.active()
    return None


def _settings(cores: int | str, *, local: bool) -> dict[str, str]:
    settings = {
        "spark.app.name": "nearcast",
        "spark.driver.memory": "2g",
        **_SQL_SETTINGS,
        "spark.python.daemon.module": "nearcast.spark.daemon",
        "spark.ui.showConsoleProgress": "false",
    }
    if local:
        settings |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str((os.cpu_count() or 1) if cores == "*" else cores),
        }
    return settings


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while: there is no other way to configure Spark's launcher."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Keep the program's own handler for Ctrl-C, if it has one.

    A new SparkContext replaces any handler by its own, which cancels all jobs and raises KeyboardInterrupt wherever the
    program is. (Ctrl-C does not reach the Java process, because of how PySpark starts it, nor the Python workers, which
    have their own process group.)
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        ours = before not in (signal.default_int_handler, None)
        if ours and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress PySpark's warning about new versions of pandas: no data of ours passes through pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
        )
        yield
