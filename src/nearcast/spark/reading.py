"""Read files of raw rows, as a batch or as they arrive. Nothing is lost: a line that is not a row is kept as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  its usual name
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DatetimeType,
    NumericType,
    StringType,
    StructField,
    StructType,
)

from nearcast import config
from nearcast.columns.from_arrow.declared import geoparquet
from nearcast.errors import ColumnError, InputError, shown, warn
from nearcast.files.compression import endings
from nearcast.geometry.crs import require_wgs84
from nearcast.preparation import MALFORMED
from nearcast.spark.columns import quoted
from nearcast.spark.paths import spark_path
from nearcast.storage.paths import local_path

if TYPE_CHECKING:
    import os

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

__all__ = [
    "FORMATS",
    "format_of",
    "other_fields",
    "parse_records",
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
# Columns of these types cannot be GeoParquet's geometry.
_NO_GEOMETRY = (NumericType, StringType, BooleanType, DatetimeType)


def read_raw(spark: SparkSession, path: str | os.PathLike[str], format: str | None = None) -> DataFrame:
    """Return the rows of a file, or of a directory of files, for :func:`nearcast.spark.prepare`.

    Parameters
    ----------
    spark
        The session.
    path
        Anything that Spark can read: a file, a directory, a pattern, a URI. Without a scheme, it is a file of this
        machine, and a relative path is relative to the working directory of Python.
    format
        ``"json"``
            One object per line. Spark reads all lines once to find the columns and their types.
        ``"csv"``
            A line of names, then rows; all columns are strings. Quoted cells may contain newlines, and quotes written
            twice; therefore one task reads the whole of a file.
        ``"parquet"``
            If the files have GeoParquet metadata, the column that they call the geometry is renamed to ``geometry``.
        ``"geoparquet"``
            The same, but the metadata must be there.

        By default the ending of the path decides. A further ending ``.gz`` or ``.zst`` means that Spark decompresses
        the file.
    """
    where = spark_path(path)
    chosen = format or _ENDINGS.get(endings(where)[0], "")
    if chosen not in FORMATS:
        problem = f"there is no format {shown(format)}" if format else f"the ending of {path} tells no format"
        raise InputError(f"{problem}; there are {', '.join(FORMATS)}")
    return FORMATS[chosen](spark, where)


def stream_raw(
    spark: SparkSession,
    path: str | os.PathLike[str],
    format: str | None = None,
    schema: StructType | None = None,
    *,
    empty: StructType | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of files as they arrive in a directory, or under a pattern, as a streaming DataFrame.

    The formats are those of :func:`read_raw`; by default :func:`format_of` chooses one. *schema* lists the columns;
    without it they are taken from the files that exist, and JSON files are read once for that. With a schema, columns
    of CSV have types, a cell that does not fit its type makes the line malformed, and GeoParquet metadata is ignored.
    *empty* lists the columns to use if no file exists yet; without it, that is an error. *options* are more options of
    Spark's source, such as ``maxFilesPerTrigger``.
    """
    where = spark_path(path)
    chosen = format or format_of(where)
    if chosen not in _STREAM_FORMATS:
        raise InputError(f"there is no format {shown(format)}; there are {', '.join(_STREAM_FORMATS)}")
    reader = spark.readStream.options(**(options or {}))
    try:
        return _STREAM_FORMATS[chosen](spark, reader, where, schema)
    except AnalysisException as error:
        if error.getCondition() not in ("UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND"):
            raise
    if empty is None:
        raise ColumnError(
            f"no file has arrived in {path} yet, so its columns are not known; give a schema (--schema)"
        )
    return _STREAM_FORMATS[chosen](spark, reader, where, empty)


def stream_objects(
    spark: SparkSession, path: str | os.PathLike[str], schema: StructType, others: str
) -> DataFrame:
    """Return the JSON objects of files as they arrive, one object per line, as :func:`stream_raw` does.

    There is one more column, called *others*, which lists the names of fields that are not in the schema.
    """
    lines = spark.readStream.text(spark_path(path)).where("trim(value) != ''")
    return parse_records(lines, schema, other_fields(schema).alias(others))


def parse_records(records: DataFrame, fields: StructType, *more: Column) -> DataFrame:
    """Return the JSON objects in the column ``value`` as rows: *fields*, the malformed text, and *more* columns."""
    text = F.col("value").cast("string")
    # Spark's parser stops after the first object and silently ignores a second one behind it. Inside another object, a
    # second one is an error.
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
    """Return the names of the fields, other than *fields*, of the JSON objects in the column ``value``."""
    keys = F.json_object_keys(F.col("value").cast("string"))
    return F.array_except(keys, F.array(*map(F.lit, fields.names)))


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format that the ending of *path* names, or else that of a file in it, or else Parquet."""
    where = local_path(path)
    paths = [spark_path(path)]
    if where is not None and where.is_dir():
        paths += sorted(file.name for file in where.iterdir() if file.name[0] not in "._")
    known = (_ENDINGS.get(endings(name)[0]) for name in paths)
    return next(filter(None, known), "parquet")


_JSON: Mapping[str, bool | str] = {"columnNameOfCorruptRecord": MALFORMED}
_CSV: Mapping[str, bool | str] = {
    "header": True,
    "multiLine": True,
    "escape": '"',
    "enforceSchema": False,  # a file with other names is an error
    "columnNameOfCorruptRecord": MALFORMED,
}


def _read_json(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.options(**_JSON).json(path)


def _stream_json(
    spark: SparkSession, reader: DataStreamReader, path: str, schema: StructType | None
) -> DataFrame:
    fields = _with_malformed(schema or _read_json(spark, path).schema)
    return reader.options(**_JSON).schema(fields).json(path)


def _read_csv(spark: SparkSession, path: str) -> DataFrame:
    names = _csv_columns(spark, path)
    return _strip_names(spark.read.options(**_CSV).schema(_with_malformed(names)).csv(path))


def _stream_csv(
    spark: SparkSession, reader: DataStreamReader, path: str, schema: StructType | None
) -> DataFrame:
    fields = _with_malformed(schema or _csv_columns(spark, path))
    return _strip_names(reader.options(**_CSV).schema(fields).csv(path))


def _csv_columns(spark: SparkSession, path: str) -> StructType:
    """Return the columns of CSV files, which are all strings."""
    schema = spark.read.options(**_CSV).csv(path).schema
    if not schema.names:
        raise ColumnError(f"{path} is empty; a CSV file begins with a line of column names")
    return schema


def _strip_names(frame: DataFrame) -> DataFrame:
    return frame.toDF(*(name.strip() for name in frame.columns))


def _with_malformed(schema: StructType) -> StructType:
    """Return the columns, and the one that keeps malformed lines."""
    return StructType(
        [*(field for field in schema if field.name != MALFORMED), StructField(MALFORMED, StringType())]
    )


def _read_parquet(spark: SparkSession, path: str) -> DataFrame:
    frame = spark.read.parquet(path)
    return _rename_geometry(frame, _geometry_name(frame, required=False))


def _read_geoparquet(spark: SparkSession, path: str) -> DataFrame:
    frame = spark.read.parquet(path)
    return _rename_geometry(frame, _geometry_name(frame, required=True))


def _stream_parquet(
    spark: SparkSession, reader: DataStreamReader, path: str, schema: StructType | None
) -> DataFrame:
    if schema is not None:
        return reader.schema(schema).parquet(path)
    existing = spark.read.parquet(path)
    return _rename_geometry(
        reader.schema(existing.schema).parquet(path), _geometry_name(existing, required=False)
    )


def _geometry_name(frame: DataFrame, *, required: bool) -> str | None:
    """Return the primary geometry column that GeoParquet files name, if they name one.

    Spark does not show the metadata of files, so Arrow reads it: of a bounded number of files, and only if a column
    could be a geometry. Arrow does not know all file systems that Spark does; columns then keep their names.
    """
    if not required and all(isinstance(field.dataType, _NO_GEOMETRY) for field in frame.schema):
        return None
    files = sorted(frame.inputFiles())
    files = files[:: -(-len(files) // config.SPARK_FOOTERS) or 1]
    try:
        # The first one alone: if it cannot be read, nor can the others.
        names = {_declared_geometry(file) for file in files[:1]}
        with ThreadPoolExecutor(config.SPARK_FOOTER_THREADS) as pool:
            names.update(pool.map(_declared_geometry, files[1:]))
    except (OSError, pa.ArrowException) as error:
        _tell_unknown_geometry(frame, files[0], error, required=required)
        return None
    if len(names) > 1:
        raise ColumnError(
            f"the files name different geometry columns: {', '.join(sorted(map(str, names)))}; read them one by one"
        )
    (name,) = names or {None}
    if name is None and required:
        raise ColumnError("the files have no GeoParquet metadata; read them with the format parquet")
    return name


def _declared_geometry(file: str) -> str | None:
    """Return the primary geometry column that the metadata of a file names."""
    system, name = fs.FileSystem.from_uri(file)
    try:
        found = geoparquet(pq.read_metadata(name, filesystem=system).metadata or {})
        if found is not None:
            require_wgs84(found[1])
    except InputError as error:
        raise type(error)(f"{file}: {error}") from None
    return None if found is None else found[0]


def _tell_unknown_geometry(frame: DataFrame, file: str, error: Exception, *, required: bool) -> None:
    """Say that the metadata of *file* cannot be read, if it matters."""
    cause = str(error).partition("\n")[0]
    if required:
        raise InputError(
            f"the GeoParquet metadata of {file} cannot be read ({cause}); name the column of WKB geometry, and read "
            "the files with the format parquet"
        )
    if "geometry" not in frame.columns and any(isinstance(f.dataType, BinaryType) for f in frame.schema):
        warn(
            f"whether {file} is GeoParquet cannot be seen ({cause}); columns keep their names, so rename the one of "
            "WKB geometry to geometry, if there is one"
        )


def _rename_geometry(frame: DataFrame, geometry: str | None) -> DataFrame:
    """Return the frame with the column *geometry* renamed to ``geometry``."""
    if geometry in (None, "geometry"):
        return frame
    return frame.drop("geometry").withColumnRenamed(geometry, "geometry")


FORMATS: Mapping[str, Callable[[SparkSession, str], DataFrame]] = {
    "json": _read_json,
    "csv": _read_csv,
    "parquet": _read_parquet,
    "geoparquet": _read_geoparquet,
}
_STREAM_FORMATS: Mapping[
    str, Callable[[SparkSession, DataStreamReader, str, StructType | None], DataFrame]
] = {
    "json": _stream_json,
    "csv": _stream_csv,
    "parquet": _stream_parquet,
    "geoparquet": _stream_parquet,
}
