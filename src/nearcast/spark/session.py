"""A well-configured local Spark session: one call, no noise, no network."""

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

__all__ = ["active_session", "quietly", "require_pyspark", "session"]

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

    A session that is already active is returned as it is; then the arguments have no effect. A new one runs on this
    machine alone, listens on the loopback address only, needs no network unless there are packages to fetch, logs
    errors only, and runs its Python workers with this interpreter. Arrow is on, the web interface is off, the time zone
    is UTC, and Parquet files get times in UTC.

    Parameters
    ----------
    app
        The name of the application.
    cores
        How many tasks run at once; ``"*"`` means one per core.
    memory
        The memory of the Java process, in Spark's notation: ``"2g"``, ``"512m"``. It need not hold indexes: Python
        workers map them from files.
    config
        Spark settings, which are added to these or replace them.
    master
        The cluster to run on instead, in Spark's notation: ``"spark://host:7077"``, ``"yarn"``. Then the driver listens
        where the cluster can reach it, and workers run the Python that they find under the path of this one, unless
        ``PYSPARK_PYTHON`` names another. ``"local[4]"`` means this machine, and takes precedence over *cores*.
    packages
        Maven coordinates (``group:artifact:version``) of libraries that Spark fetches first, such as those of
        :func:`nearcast.spark.kafka.packages`. Spark takes them from its cache, from ``~/.m2``, or from Maven Central,
        and says on stderr what it finds. If Maven Central cannot be reached, name another repository by
        ``spark.jars.repositories`` or ``spark.jars.ivySettings``, in *config* or in ``spark-defaults.conf``.

    Raises RuntimeUnavailableError, which names what to install, if PySpark or a Java that it supports is missing, or if
    the packages cannot be fetched.
    """
    require_pyspark()
    if packages:
        config = {"spark.jars.packages": ",".join(packages), **(config or {})}
    if cores != "*" and not (isinstance(cores, int) and cores >= 1):
        raise InputError(f'cores must be "*" or a whole number from 1, not {shown(cores)}')
    found = active_session()
    if found is not None:
        return found
    master = master or f"local[{cores}]"
    local = master.startswith("local")
    with quietly(), tempfile.TemporaryDirectory(prefix="nearcast-java-") as directory:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        python = sys.executable if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
        variables = {"JAVA_HOME": str(wrap(find_java(), Path(directory))), "PYSPARK_PYTHON": python}
        if local:
            # Otherwise Spark asks the network for the name of this machine.
            variables["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings = {**_settings(memory), **(_local_settings(cores) if local else {}), **(config or {})}
        with _environment(variables):
            builder = SparkSession.builder.master(master).appName(app)
            for name, value in settings.items():
                builder = builder.config(name, str(value))
            try:
                with _keep_interrupt_handler():
                    return builder.getOrCreate()
            except PySparkRuntimeError as error:
                if not packages or error.getCondition() != "JAVA_GATEWAY_EXITED":
                    raise
                raise RuntimeUnavailableError(
                    f"Spark did not start with the packages {', '.join(packages)}. Its output above names those that "
                    "no repository has; name another repository by spark.jars.repositories in config"
                ) from None


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
