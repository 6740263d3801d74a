"""A local Spark session, well configured: one call, no noise, no network."""

from __future__ import annotations

import importlib.util
import os
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
from nearcast.spark.parquet import UTC_TIMES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = ["active", "quietly", "require_pyspark", "session"]

_LOG4J = Path(__file__).with_name("log4j2.properties")


def session(
    app: str = "nearcast",
    cores: int | str = "*",
    memory: str = "2g",
    config: Mapping[str, object] | None = None,
    *,
    master: str | None = None,
    packages: Collection[str] = (),
) -> SparkSession:
    """Return the active Spark session, or start a local one.

    A session that is already active is returned as it is: then the arguments have no effect. A new one runs
    on this machine alone, listens on the loopback address only, needs no network unless there are packages to fetch,
    logs errors only, runs its Python workers with this interpreter, and has Arrow on, the web page off, UTC as its
    time zone, and Parquet's times in it.

    Parameters
    ----------
    app
        Its name.
    cores
        How many tasks run at once; ``"*"`` for every core.
    memory
        Of the Java process, as Spark writes it: ``"2g"``, ``"512m"``. Indexes are not in it: Python workers
        map them from files.
    config
        Spark settings to add, or to put in the place of these.
    master
        The cluster to run on instead, as Spark writes it: ``"spark://host:7077"``, ``"yarn"``. Then the driver
        listens where the cluster can reach it, and workers run the Python that has the path of this one there unless
        ``PYSPARK_PYTHON`` names another. ``"local[4]"`` is this machine, and goes before *cores*.
    packages
        Maven coordinates of libraries that Spark fetches first, such as those of
        :func:`nearcast.spark.kafka.packages`, each ``group:artifact:version``. It takes them from its cache, from
        ``~/.m2``, or from Maven Central, and says on stderr what it finds. Where Maven Central is not reached,
        ``spark.jars.repositories`` or ``spark.jars.ivySettings`` in *config*, or in ``spark-defaults.conf``, name
        another place.

    Raises RuntimeUnavailableError, naming what to install, if PySpark or a Java that it supports is missing, or if the
    packages cannot be fetched.
    """
    require_pyspark()
    if packages:
        config = {"spark.jars.packages": ",".join(packages), **(config or {})}
    if cores != "*" and not (isinstance(cores, int) and cores >= 1):
        raise InputError(f'cores must be "*" or a whole number from 1, not {shown(cores)}')
    found = active()
    if found is not None:
        return found
    master = master or f"local[{cores}]"
    local = master.startswith("local")
    with quietly(), tempfile.TemporaryDirectory(prefix="nearcast-java-") as directory:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        python = sys.executable if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
        surroundings = {"JAVA_HOME": str(wrap(find_java(), Path(directory))), "PYSPARK_PYTHON": python}
        if local:
            surroundings["SPARK_LOCAL_IP"] = (
                "127.0.0.1"  # else Spark asks the network for this machine's name
            )
        settings = {**_settings(memory), **(_local_settings(cores) if local else {}), **(config or {})}
        with _environment(surroundings):
            builder = SparkSession.builder.master(master).appName(app)
            for name, value in settings.items():
                builder = builder.config(name, str(value))
            try:
                with _interrupts_kept():
                    return builder.getOrCreate()
            except PySparkRuntimeError as error:
                if not packages or error.getCondition() != "JAVA_GATEWAY_EXITED":
                    raise
                raise RuntimeUnavailableError(
                    f"Spark did not start with the packages {', '.join(packages)}. What it said above names those "
                    "that no repository has; spark.jars.repositories in config can name another one"
                ) from None


def require_pyspark() -> None:
    """Raise RuntimeUnavailableError, naming what to install, if PySpark is missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise RuntimeUnavailableError(
            "PySpark is not installed; `pip install 'nearcast[spark]'` brings it, and a Java runtime with it"
        )


def active() -> SparkSession | None:
    """Return the session that is active, if there is one."""
    require_pyspark()
    with quietly():
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        with suppress(PySparkRuntimeError):  # there is none
            return SparkSession.active()
    return None


def _local_settings(cores: int | str) -> dict[str, object]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": (os.cpu_count() or 1) if cores == "*" else cores,
    }


def _settings(memory: str) -> dict[str, object]:
    return {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"',
        "spark.python.daemon.module": "nearcast.spark.daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        **dict([UTC_TIMES]),
    }


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while: Spark's launcher has no other way to be told."""
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
def _interrupts_kept() -> Iterator[None]:
    """Keep the handler that the program has for Ctrl-C, if it has one of its own.

    A new SparkContext puts its own in the place of any: that cancels all jobs, and raises KeyboardInterrupt wherever
    the program is. (The Java process does not see Ctrl-C: PySpark starts it so; nor do the Python workers, which have
    a process group of their own.)
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
    """Keep back PySpark's warning about new versions of pandas, which no table of ours passes through."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
        )
        yield
