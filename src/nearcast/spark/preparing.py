"""Turn raw rows into typed rows, and quarantine those that cannot be used."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  its usual name
from pyspark.storagelevel import StorageLevel

from nearcast.columns.from_arrow.renaming import Columns
from nearcast.errors import InputError, NearcastError, shown
from nearcast.preparation import Kind, Preparation
from nearcast.spark.columns import map_in_arrow, quoted, refuse_unreadable, without_rows
from nearcast.spark.compat import spark_schema
from nearcast.spark.parquet import write_parquet
from nearcast.spark.paths import spark_path
from nearcast.spark.session import quietly

if TYPE_CHECKING:
    import os

    from pyspark.sql import Column

__all__ = ["Prepared", "good_rows", "prepare", "quarantined_rows", "write_prepared"]


def prepare(
    raw: DataFrame,
    kind: Kind,
    *,
    numbers: Collection[str] = (),
    keep_text: bool = False,
    timezone: str | None = None,
    columns: Columns | None = None,
) -> DataFrame:
    """Return *raw* with typed columns, and for each row whether it can be used.

    *raw* may be a batch or a stream; no row is dropped, and no row fails the query. The columns are ``id``, place,
    words, times and attributes in their types, then ``reason`` (null if the row is good), ``detail`` (a sentence) and
    ``original`` (the raw row as JSON). A bad row has only its id and these three. :mod:`nearcast.preparation` lists the
    reasons. :func:`good_rows` and :func:`quarantined_rows` separate the two kinds; :func:`write_prepared` writes both.

    In a batch, ids are made unique, for which rows are shuffled by id. Of good rows with the same id, the one with the
    earliest ``published_at`` stays, and among equals the one whose content has the smallest hash (``xxhash64``),
    regardless of files and partitions; the others become ``duplicate-id``. A stream is prepared row by row, without
    state: write its micro-batches with :func:`write_prepared`, which makes ids unique within each of them, or apply
    Spark's ``dropDuplicatesWithinWatermark`` to the result.

    Parameters
    ----------
    raw
        Columns with the names that :mod:`nearcast.columns.from_arrow` lists, in their own types or as strings. A string
        of keywords is a JSON list, or words separated by white space; a string for a time is ISO 8601 with an offset,
        or microseconds; a string for a geometry is WKT. A row with ``_corrupt_record``, where Spark's readers put a
        line that is not a row, becomes ``malformed``. Every other column of messages is an attribute: numbers become
        doubles, strings and booleans stay as they are. Columns of other types are left out, and so are all other
        columns of subscriptions.
    kind
        ``"messages"`` or ``"subscriptions"``.
    numbers
        Attributes that are numbers although *raw* has them as strings, as CSV files do.
    keep_text
        Whether to keep the ``text`` of messages; otherwise only its keywords are kept.
    timezone
        The time zone of times of the type ``timestamp_ntz``, such as ``Europe/Lisbon``. Without it, they are an error.
    columns
        If *raw* has other names for the columns, a mapping from ours to theirs, such as ``{"lat": "latitude"}``
        (:mod:`nearcast.columns.from_arrow.renaming`). Originals keep the names that *raw* has.

    Raises ColumnError before any job starts if a column is missing or has a type that cannot be read.
    """
    return _prepare(raw, kind, numbers, keep_text, timezone, columns)[0]


def good_rows(prepared: DataFrame) -> DataFrame:
    """Return the rows of :func:`prepare` that can be used, with their typed columns only."""
    return prepared.where("reason IS NULL").drop("reason", "detail", "original")


def quarantined_rows(prepared: DataFrame) -> DataFrame:
    """Return the rows of :func:`prepare` that cannot be used: id, reason, detail, original and quarantined_at."""
    bad = prepared.where("reason IS NOT NULL")
    return bad.select("id", "reason", "detail", "original", F.current_timestamp().alias("quarantined_at"))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A summary of what :func:`write_prepared` did."""

    read: int  #: rows that were read, good or bad
    good: int  #: rows that can be used
    bad: Mapping[str, int]  #: rows by reason, the most frequent reason first
    examples: Mapping[str, str]  #: one detail for each reason
    left_out: Mapping[str, str]  #: columns that were not used, each with the reason
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain values, for JSON."""
        return {
            "read": self.read,
            "good": self.good,
            "bad": sum(self.bad.values()),
            "reasons": [
                {"reason": reason, "rows": rows, "example": self.examples[reason]}
                for reason, rows in self.bad.items()
            ],
            "left_out": dict(self.left_out),
            "seconds": round(self.seconds, 3),
        }


def write_prepared(
    raw: DataFrame,
    kind: Kind,
    directory: str | os.PathLike[str],
    *,
    numbers: Collection[str] = (),
    keep_text: bool = False,
    timezone: str | None = None,
    columns: Columns | None = None,
    overwrite: bool = False,
    progress: Callable[[str, float | None], None] | None = None,
) -> Prepared:
    """Prepare *raw* and write Parquet: the good rows to ``directory/good``, the others to ``directory/quarantine``.

    *raw* is a batch, or a micro-batch in ``foreachBatch``: with *overwrite* and a directory for each batch id, a repeat
    writes the same again. The input is read once: the prepared rows are kept (in memory, or on disk if memory does not
    suffice) until both parts are written. Then the rows in the files are counted; there must be as many as were read.
    Times are written as microseconds in UTC, whatever the settings of the session.

    The parameters are those of :func:`prepare`, and *progress*, a function that is called with the name of each step
    and the share of the work that is done, if it is known.
    """
    if raw.isStreaming:
        raise InputError(
            "raw is a streaming DataFrame, which only its query can write; call write_prepared in foreachBatch instead"
        )
    directory = spark_path(directory)
    report = progress or (lambda step, share: None)
    started = time.perf_counter()
    prepared, left_out = _prepare(raw, kind, numbers, keep_text, timezone, columns)
    prepared = prepared.persist(StorageLevel.MEMORY_AND_DISK)
    mode = "overwrite" if overwrite else "error"
    spark = prepared.sparkSession
    try:
        report(f"preparing {kind}", None)
        write_parquet(good_rows(prepared), f"{directory}/good", mode)
        report("writing the quarantine", 0.8)
        write_parquet(quarantined_rows(prepared), f"{directory}/quarantine", mode)
        report("counting", 0.95)
        counted = (
            prepared.groupBy("reason")
            .agg(F.count(F.lit(1)).alias("rows"), F.min("detail").alias("example"))
            .collect()
        )
    finally:
        prepared.unpersist()
    found = {row["reason"]: row for row in counted}
    good = found.pop(None)["rows"] if None in found else 0
    bad = sorted(found.values(), key=lambda row: (-row["rows"], row["reason"]))
    read = good + sum(row["rows"] for row in bad)
    written = sum(spark.read.parquet(f"{directory}/{name}").count() for name in ("good", "quarantine"))
    if written != read:
        raise NearcastError(
            f"{read:,} rows were read and {written:,} written to {shown(directory)}; "
            "unless something else writes there, this is a bug in nearcast"
        )
    return Prepared(
        read,
        good,
        {row["reason"]: row["rows"] for row in bad},
        {row["reason"]: row["example"] for row in bad},
        left_out,
        time.perf_counter() - started,
    )


def _prepare(
    raw: DataFrame,
    kind: Kind,
    numbers: Collection[str],
    keep_text: bool,
    timezone: str | None,
    columns: Columns | None,
) -> tuple[DataFrame, dict[str, str]]:
    """Return the prepared rows, and the columns that were left out."""
    if not isinstance(raw, DataFrame):
        raise InputError(f"{shown(raw)} is not a Spark DataFrame")
    with quietly():
        preparation = Preparation(
            without_rows(raw).schema,
            kind,
            numbers=numbers,
            keep_text=keep_text,
            timezone=timezone,
            columns=columns,
        )
        refuse_unreadable(raw, preparation.theirs.get("geometry", "geometry"))
        batch = not raw.isStreaming
        rows = _by_id(raw, preparation.theirs) if batch else raw

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            tables = preparation.apply_by_id(batches) if batch else map(preparation.apply, batches)
            for table in tables:
                yield from table.to_batches()

        return map_in_arrow(rows, work, spark_schema(preparation.schema)), preparation.left_out


def _by_id(raw: DataFrame, theirs: Mapping[str, str]) -> DataFrame:
    """Return the rows such that those with the same id are next to each other in one partition, in order.

    *theirs* has the names of columns that have others than ours.
    """
    content = F.xxhash64(*(F.col(quoted(f.name)) for f in raw.schema if _hashable(f.dataType.simpleString())))
    id = F.col(quoted(theirs.get("id", "id"))).cast("string")
    order: list[Column] = [id]
    published = theirs.get("published_at", "published_at")
    if published in raw.columns:
        time = F.col(quoted(published))
        if raw.schema[published].dataType.simpleString() == "string":
            time = F.coalesce(F.try_to_timestamp(time), F.timestamp_micros(time.try_cast("bigint")))
        order.append(time.asc_nulls_last())
    # Rows without an id are spread by their content, so that they are not all in one partition.
    key = F.coalesce(id, content.cast("string"))
    # Without a number, Spark would make fewer partitions.
    partitions = int(raw.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return raw.repartition(partitions, key).sortWithinPartitions(*order, content)


def _hashable(kind: str) -> bool:
    return not any(name in kind for name in ("map<", "variant", "geometry(", "geography("))
