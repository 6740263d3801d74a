"""Files of raw rows, as a batch or as they arrive, nothing of them lost: a line that is no row is kept as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from nearcast.columns.from_arrow.declared import geoparquet
from nearcast.errors import ColumnError, InputError, shown
from nearcast.files.compression import endings
from nearcast.geometry.crs import require_wgs84
from nearcast.preparation import MALFORMED
from nearcast.spark.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "FORMATS",
    "format_of",
    "located",
    "other_fields",
    "parsed",
    "read_raw",
    "stream_objects",
    "stream_raw",
]

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

        Told by the ending unless given. Spark unpacks what ends in ``.gz`` or ``.zst`` behind that.
    """
    where = located(path)
    told = format or _ENDINGS.get(endings(where)[0], "")
    if told not in FORMATS:
        given = f"there is no format {shown(format)}" if format else f"the ending of {path} tells no format"
        raise InputError(f"{given}; there are {', '.join(FORMATS)}")
    return FORMATS[told](spark, where)


def stream_raw(
    spark: SparkSession,
    path: str | os.PathLike[str],
    format: str | None = None,
    schema: StructType | None = None,
    *,
    empty: StructType | None = None,
) -> DataFrame:
    """Return the rows of files as they arrive in a directory, or under a pattern, as a streaming DataFrame.

    The formats are those of :func:`read_raw`, told by :func:`format_of` unless given. *schema* lists the columns;
    without it, the files that are there tell them, and those of JSON are read once for it. With it, columns of CSV have
    types, a cell that is not of its type makes the line malformed, and no metadata of GeoParquet is looked for. *empty*
    lists the columns where no file is there yet, which is an error otherwise.
    """
    where = located(path)
    told = format or format_of(where)
    if told not in _ARRIVING:
        raise InputError(f"there is no format {shown(format)}; there are {', '.join(_ARRIVING)}")
    try:
        return _ARRIVING[told](spark, where, schema)
    except AnalysisException as error:
        if error.getCondition() not in ("UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND"):
            raise
    if empty is None:
        raise ColumnError(
            f"no file has arrived in {path} yet that would tell the columns; give a schema (--schema)"
        )
    return _ARRIVING[told](spark, where, empty)


def stream_objects(
    spark: SparkSession, path: str | os.PathLike[str], schema: StructType, others: str
) -> DataFrame:
    """Return the JSON objects of files as they arrive, an object a line, with one more column than :func:`stream_raw`.

    *others* is its name: it has the names of fields that the schema does not list.
    """
    lines = spark.readStream.text(located(path)).where("trim(value) != ''")
    return parsed(lines, schema, other_fields(schema).alias(others))


def parsed(records: DataFrame, fields: StructType, *more: Column) -> DataFrame:
    """Return rows of the JSON objects in the column ``value``: *fields*, what is malformed as it is, and *more*."""
    text = F.col("value").cast("string")
    # Spark's parser stops after the first object: a second one behind it would be lost without a word. Inside of
    # another object it is an error.
    wrapped = F.when(F.is_valid_utf8(text), F.concat(F.lit('{"it":'), text, F.lit("}")))
    inside = StructType([StructField("it", fields), StructField(MALFORMED, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
    read = records.withColumn("read", F.from_json(wrapped, inside, options))
    good = F.col("read.it").isNotNull() & F.col(f"read.{MALFORMED}").isNull()
    return read.select(
        *(F.when(good, F.col(f"read.it.{quoted(name)}")).alias(name) for name in fields.names),
        F.when(~good, F.coalesce(F.make_valid_utf8(text), F.lit(""))).alias(MALFORMED),
        *more,
    )


def other_fields(fields: StructType) -> Column:
    """Return the names of the fields that the JSON objects in the column ``value`` have beside *fields*."""
    keys = F.json_object_keys(F.col("value").cast("string"))
    return F.array_except(keys, F.array(*map(F.lit, fields.names)))


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format of files: told by the ending of *path*, by the files that are there, or Parquet."""
    where = located(path)
    paths = [where]
    if "://" not in where and Path(where).is_dir():
        paths += sorted(file.name for file in Path(where).iterdir() if file.name[0] not in "._")
    known = (_ENDINGS.get(endings(name)[0]) for name in paths)
    return next(filter(None, known), "parquet")


def located(path: str | os.PathLike[str]) -> str:
    """Return a path as Spark takes it: a relative one leads where it leads for Python, not for the Java process."""
    where = os.fspath(path)
    return where if "://" in where else os.path.abspath(where)  # noqa: PTH100  it may be a pattern


_JSON: Mapping[str, bool | str] = {"columnNameOfCorruptRecord": MALFORMED}
_CSV: Mapping[str, bool | str] = {
    "header": True,
    "multiLine": True,
    "escape": '"',
    "enforceSchema": False,  # every file has these names, or it fails
    "columnNameOfCorruptRecord": MALFORMED,
}


def _json(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.options(**_JSON).json(path)


def _arriving_json(spark: SparkSession, path: str, schema: StructType | None) -> DataFrame:
    fields = _with_lines(schema or _json(spark, path).schema)
    return spark.readStream.options(**_JSON).schema(fields).json(path)


def _csv(spark: SparkSession, path: str) -> DataFrame:
    names = _header(spark, path)
    return _stripped(spark.read.options(**_CSV).schema(_with_lines(names)).csv(path))


def _arriving_csv(spark: SparkSession, path: str, schema: StructType | None) -> DataFrame:
    fields = _with_lines(schema or _header(spark, path))
    return _stripped(spark.readStream.options(**_CSV).schema(fields).csv(path))


def _header(spark: SparkSession, path: str) -> StructType:
    """Return the columns that CSV files have, all of strings."""
    schema = spark.read.options(**_CSV).csv(path).schema
    if not schema.names:
        raise ColumnError(f"{path} is empty; a CSV file begins with a line of column names")
    return schema


def _stripped(frame: DataFrame) -> DataFrame:
    return frame.toDF(*(name.strip() for name in frame.columns))


def _with_lines(schema: StructType) -> StructType:
    """Return the columns, and the one that keeps a line which is no row."""
    return StructType(
        [*(field for field in schema if field.name != MALFORMED), StructField(MALFORMED, StringType())]
    )


def _parquet(spark: SparkSession, path: str) -> DataFrame:
    frame = spark.read.parquet(path)
    return _renamed(frame, _geometry_name(frame, required=False))


def _geoparquet(spark: SparkSession, path: str) -> DataFrame:
    frame = spark.read.parquet(path)
    return _renamed(frame, _geometry_name(frame, required=True))


def _arriving_parquet(spark: SparkSession, path: str, schema: StructType | None) -> DataFrame:
    if schema is not None:
        return spark.readStream.schema(schema).parquet(path)
    there = spark.read.parquet(path)
    return _renamed(
        spark.readStream.schema(there.schema).parquet(path), _geometry_name(there, required=False)
    )


def _geometry_name(frame: DataFrame, *, required: bool) -> str | None:
    """Return the primary column that GeoParquet files name, if they do."""
    names = set()
    for file in frame.inputFiles():
        system, name = fs.FileSystem.from_uri(file)
        try:
            found = geoparquet(pq.read_metadata(name, filesystem=system).metadata or {})
            if found is not None:
                require_wgs84(found[1])
            names.add(None if found is None else found[0])
        except InputError as error:
            raise type(error)(f"{file}: {error}") from None
    if len(names) > 1:
        raise ColumnError(f"the files call different columns their geometry: {', '.join(map(str, names))}")
    (name,) = names or {None}
    if name is None and required:
        raise ColumnError("the files have no GeoParquet metadata; give the format parquet")
    return name


def _renamed(frame: DataFrame, geometry: str | None) -> DataFrame:
    """Return the frame with this column under the name ``geometry``."""
    if geometry in (None, "geometry"):
        return frame
    return frame.drop("geometry").withColumnRenamed(geometry, "geometry")


FORMATS: Mapping[str, Callable[[SparkSession, str], DataFrame]] = {
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "geoparquet": _geoparquet,
}
_ARRIVING: Mapping[str, Callable[[SparkSession, str, StructType | None], DataFrame]] = {
    "json": _arriving_json,
    "csv": _arriving_csv,
    "parquet": _arriving_parquet,
    "geoparquet": _arriving_parquet,
}
