"""Files of raw rows as a batch DataFrame, nothing of them lost: a line that is no row is kept as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql.types import StringType, StructField, StructType

from nearcast.errors import ColumnError, InputError, shown
from nearcast.files.columnar import geometry_column
from nearcast.preparation import MALFORMED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMATS", "located", "read_raw"]

_ENDINGS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".geoparquet": "geoparquet",
}


def read_raw(spark: SparkSession, path: str | os.PathLike[str], format: str | None = None) -> DataFrame:
    """Return the rows of a file, or of a directory of files, for :func:`nearcast.spark.prepare`.

    Parameters
    ----------
    spark
        The session.
    path
        Whatever Spark can read: a file, a directory, a pattern, a URL. A relative path is relative to where Python is.
    format
        ``"json"``
            An object a line. Spark looks at all lines first to tell the columns and their types.
        ``"csv"``
            A line of names, then rows; all columns are strings. Quoted cells may have newlines in them, and quotes as
            two quotes; so one file is read by one task.
        ``"parquet"``
            A column that the files' metadata, if they have any, call the geometry, gets that name.
        ``"geoparquet"``
            The same, and there must be such metadata.

        Told by the ending unless given.
    """
    where = located(path)
    told = format or _ENDINGS.get(PurePosixPath(where).suffix.lower(), "")
    if told not in FORMATS:
        given = f"there is no format {shown(format)}" if format else f"the ending of {path} tells no format"
        raise InputError(f"{given}; there are {', '.join(FORMATS)}")
    return FORMATS[told](spark, where)


def located(path: str | os.PathLike[str]) -> str:
    """Return a path as Spark takes it: a relative one leads where it leads for Python, not for the Java process."""
    where = os.fspath(path)
    return where if "://" in where else os.path.abspath(where)  # noqa: PTH100  it may be a pattern


def _json(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.option("columnNameOfCorruptRecord", MALFORMED).json(path)


def _csv(spark: SparkSession, path: str) -> DataFrame:
    options: Mapping[str, bool | str] = {"header": True, "multiLine": True, "escape": '"'}
    names = spark.read.options(**options).csv(path).columns
    if not names:
        raise ColumnError(f"{path} is empty; a CSV file begins with a line of column names")
    schema = StructType([StructField(name, StringType()) for name in (*names, MALFORMED)])
    reader = spark.read.options(**options).option("columnNameOfCorruptRecord", MALFORMED)
    rows = (
        reader.option("enforceSchema", False).schema(schema).csv(path)
    )  # every file has these names, or it fails
    return rows.toDF(*(name.strip() for name in names), MALFORMED)


def _parquet(spark: SparkSession, path: str) -> DataFrame:
    return _with_geometry(spark.read.parquet(path), required=False)


def _geoparquet(spark: SparkSession, path: str) -> DataFrame:
    return _with_geometry(spark.read.parquet(path), required=True)


def _with_geometry(frame: DataFrame, *, required: bool) -> DataFrame:
    """Return the frame with the primary column of GeoParquet under the name ``geometry``."""
    names = set()
    for file in frame.inputFiles():
        system, name = fs.FileSystem.from_uri(file)
        try:
            names.add(geometry_column(pq.read_metadata(name, filesystem=system).metadata))
        except ColumnError as error:
            raise ColumnError(f"{file}: {error}") from None
    if len(names) > 1:
        raise ColumnError(f"the files call different columns their geometry: {', '.join(map(str, names))}")
    (name,) = names or {None}
    if name is None and required:
        raise ColumnError("the files have no GeoParquet metadata; give the format parquet")
    if name in (None, "geometry"):
        return frame
    return frame.drop("geometry").withColumnRenamed(name, "geometry")


FORMATS: Mapping[str, Callable[[SparkSession, str], DataFrame]] = {
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "geoparquet": _geoparquet,
}
