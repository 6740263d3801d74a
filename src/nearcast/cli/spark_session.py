"""The Spark session of a command, the options that configure it, and the rows that it reads.

::

    def command(master: Master = None, conf: Conf = None, verbose: Verbose = False) -> None:
        with spark_session.open_session("nearcast command", master, conf, verbose) as spark:
            ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from nearcast.errors import InputError, NearcastError, shown
from nearcast.storage.paths import local_path
from nearcast.storage.places import place_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Conf",
    "Master",
    "Verbose",
    "first_sentence",
    "index_or_rows",
    "is_index",
    "open_session",
    "parse_pairs",
    "rows_of",
    "typed_path",
    "typed_rows",
]

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://…; by default on all cores of this machine.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Let Spark log to stderr.")]


@contextmanager
def open_session(
    app: str, master: str | None, conf: list[str] | None, verbose: bool, *, kafka: bool = False
) -> Iterator[SparkSession]:
    """Open the session that the options describe, with Kafka if needed; errors of Spark become sentences.

    A session that is already active is used as it is, and stays open.
    """
    settings = parse_pairs(conf, "--conf", "NAME=VALUE")
    # Spark logs an error several times, with all its stack traces. It also raises it, and we report it in one line.
    settings = {"spark.log.level": "INFO" if verbose else "FATAL", **settings}
    from nearcast.spark import session
    from nearcast.spark.session import active_session

    ours = active_session() is None
    from nearcast.spark.kafka import packages

    spark = session(app, master=master, config=settings, packages=packages() if kafka else ())
    try:
        with _in_sentences():
            yield spark
    finally:
        if ours:
            spark.stop()


def parse_pairs(given: list[str] | None, option: str, form: str) -> dict[str, str]:
    """Return NAME=VALUE options as a mapping."""
    pairs = {}
    for written in given or ():
        name, equals, value = written.partition("=")
        if not equals or not name.strip():
            raise InputError(f"{option} {shown(written)} has the wrong form; write {form}")
        pairs[name.strip()] = value.strip()
    return pairs


@contextmanager
def _in_sentences() -> Iterator[None]:
    """Turn errors of Spark into one line, the first sentence of each."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except PySparkException as error:
        kind = InputError if isinstance(error, AnalysisException | ParseException) else NearcastError
        raise kind(f"Spark: {first_sentence(str(error))}") from None


def first_sentence(message: str) -> str:
    r"""Return the first sentence of a Spark error; for an error in a Python worker, the message that was raised there.

    >>> first_sentence("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03\n== SQL ==")
    'Path does not exist: file:/x.'
    >>> first_sentence("Traceback (most recent call last):\n  …\nnearcast.errors.ModelError: message 7 has no place")
    'message 7 has no place'
    """
    lines = message.strip().splitlines() or ["it failed without a message"]
    raised = [line.strip() for line in lines if re.match(r"\s*[\w.]+(Error|Exception): ", line)]
    line = raised[-1] if raised else lines[0]
    return re.sub(r"^\[[A-Z0-9_.]+\] |^nearcast\.errors\.\w+: | SQLSTATE: \w+", "", line.strip())


def typed_rows(spark: SparkSession, path: str, kind: str) -> DataFrame:
    """Return the rows of Parquet files, or of the output of ``nearcast prepare``, as a batch DataFrame."""
    from nearcast.spark.reading import read_raw

    return read_raw(spark, typed_path(path, kind), "parquet")


def typed_path(path: str, kind: str) -> str:
    """Return the path of the Parquet files: *path*, or its ``good`` rows if ``nearcast prepare`` wrote it."""
    where = local_path(path)
    if where is None or "*" in path:
        return path
    if not where.exists():
        raise InputError(f"there is no file or directory {path}")
    if where.is_file() and where.suffix != ".parquet":
        raise InputError(f"{path} is not Parquet; convert it with: nearcast prepare {kind} {path} prepared")
    return rows_of(path)


def rows_of(path: str) -> str:
    """Return the path that is read: *path*, or its ``good`` rows if ``nearcast prepare`` wrote it."""
    where = local_path(path)
    return str(where / "good") if where is not None and (where / "good").is_dir() else path


def is_index(path: str) -> bool:
    """Return whether a path or a URI leads to what ``nearcast build`` made."""
    from nearcast.storage.current import CURRENT
    from nearcast.storage.manifest import MANIFEST

    try:
        place = place_at(local_path(path) or path)
    except InputError:  # a topic, or a file system that only Spark knows
        return False
    return any(place.exists(name) for name in (CURRENT, MANIFEST))


def index_or_rows(spark: SparkSession, path: str) -> DataFrame | str:
    """Return the path or URI of an index, or the subscriptions of Parquet files."""
    if is_index(path):
        return str(local_path(path) or path)
    return typed_rows(spark, path, "subscriptions")
