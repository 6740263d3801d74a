"""Raw rows → typed rows, and a quarantine for those that cannot be used."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.storagelevel import StorageLevel

from nearcast.errors import InputError, NearcastError, shown
from nearcast.preparation import Kind, Preparation
from nearcast.spark.columns import map_in_arrow, quoted
from nearcast.spark.parquet import write_parquet
from nearcast.spark.reading import located
from nearcast.spark.session import quietly

if TYPE_CHECKING:
    import os

    from pyspark.sql import Column

__all__ = ["Prepared", "good_rows", "prepare", "quarantined_rows", "write_prepared"]


def prepare(
    raw: DataFrame, kind: Kind, *, numbers: Collection[str] = (), keep_text: bool = False
) -> DataFrame:
    """Return *raw* with typed columns, and for each row whether it can be used.

    Batch or streaming; no row is dropped, and none fails the query. The columns: ``id``, place, words, times and
    attributes in their types, then ``reason`` (null: the row is good), ``detail`` (a sentence) and ``original`` (the
    raw row as JSON). Of a bad row only its id and these three are there. :mod:`nearcast.preparation` lists the
    reasons. :func:`good_rows` and :func:`quarantined_rows` part the two; :func:`write_prepared` writes both.

    In a batch, ids are made unique, for which rows are shuffled by id: of good rows with the same id the one with the
    earliest ``published_at`` stays, and among equals the one whose content has the smallest hash (``xxhash64``),
    whatever the files and partitions; the others are ``duplicate-id``. A stream is prepared row by row, without state:
    write its micro-batches with :func:`write_prepared`, which does the same within each of them, or put Spark's
    ``dropDuplicatesWithinWatermark`` behind.

    Parameters
    ----------
    raw
        Columns by name, as :mod:`nearcast.columns.from_arrow` lists them: of their own type, or strings. Keywords as a
        string are a JSON list, or words with white space between; times as a string are ISO 8601 with an offset, or
        microseconds; geometry as a string is WKT. ``_corrupt_record``, where Spark's readers put a line that is no row,
        makes it ``malformed``. Every other column of messages is an attribute: numbers become doubles, strings and
        booleans stay; columns of other types are left out, and so are all others of subscriptions.
    kind
        ``"messages"`` or ``"subscriptions"``.
    numbers
        Attributes that are numbers though *raw* has them as strings, as CSV does.
    keep_text
        Keep the ``text`` of messages; only its keywords stay otherwise.

    Raises ColumnError before any job starts if a column is missing or of a type that cannot be read.
    """
    return _prepared(raw, kind, numbers, keep_text)[0]


def good_rows(prepared: DataFrame) -> DataFrame:
    """Return the rows of :func:`prepare` that can be used, typed columns only."""
    return prepared.where("reason IS NULL").drop("reason", "detail", "original")


def quarantined_rows(prepared: DataFrame) -> DataFrame:
    """Return the rows of :func:`prepare` that cannot be used: id, reason, detail, original and quarantined_at."""
    bad = prepared.where("reason IS NOT NULL")
    return bad.select("id", "reason", "detail", "original", F.current_timestamp().alias("quarantined_at"))


@dataclass(frozen=True, slots=True)
class Prepared:
    """What :func:`write_prepared` did."""

    read: int  #: rows that went in: good + bad
    good: int
    bad: Mapping[str, int]  #: by reason, the most frequent first
    examples: Mapping[str, str]  #: one detail for each reason
    left_out: Mapping[str, str]  #: columns that nothing became of, each with why
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
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
    overwrite: bool = False,
    progress: Callable[[str, float | None], None] | None = None,
) -> Prepared:
    """Prepare *raw* and write Parquet: the good rows to ``directory/good``, the others to ``directory/quarantine``.

    *raw* is a batch, or a micro-batch in ``foreachBatch``: with *overwrite* and a directory for each batch id, a repeat
    writes the same again. The input is read once: the prepared rows are kept (in memory, or on disk where that does not
    suffice) until both are written. Then the rows in the files are counted, and must be those that were read.
    Times are written as microseconds in UTC, whatever the session has set.

    Parameters are those of :func:`prepare`, and *progress*, which is called with what is being done and the share of it
    that is behind us, if known.
    """
    if raw.isStreaming:
        raise InputError(
            "a streaming DataFrame is written by its query; call write_prepared on its micro-batches, in foreachBatch"
        )
    directory = located(directory)
    tell = progress or (lambda step, share: None)
    started = time.perf_counter()
    prepared, left_out = _prepared(raw, kind, numbers, keep_text)
    prepared = prepared.persist(StorageLevel.MEMORY_AND_DISK)
    mode = "overwrite" if overwrite else "errorifexists"
    spark = prepared.sparkSession
    try:
        tell(f"preparing {kind}", None)
        write_parquet(good_rows(prepared), f"{directory}/good", mode)
        tell("writing the quarantine", 0.8)
        write_parquet(quarantined_rows(prepared), f"{directory}/quarantine", mode)
        tell("counting", 0.95)
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
            "if nothing else writes there, this is a mistake of ours"
        )
    return Prepared(
        read,
        good,
        {row["reason"]: row["rows"] for row in bad},
        {row["reason"]: row["example"] for row in bad},
        left_out,
        time.perf_counter() - started,
    )


def _prepared(
    raw: DataFrame, kind: Kind, numbers: Collection[str], keep_text: bool
) -> tuple[DataFrame, dict[str, str]]:
    """Return the prepared rows, and the columns that were left out."""
    if not isinstance(raw, DataFrame):
        raise InputError(f"{shown(raw)} is not a Spark DataFrame")
    with quietly():
        schema = to_arrow_schema(raw.schema, timezone="UTC")
        preparation = Preparation(schema, kind, numbers=numbers, keep_text=keep_text)
        batch = not raw.isStreaming
        rows = _by_id(raw) if batch else raw

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            tables = preparation.apply_by_id(batches) if batch else map(preparation.apply, batches)
            for table in tables:
                yield from table.to_batches()

        return map_in_arrow(rows, work, from_arrow_schema(preparation.schema)), preparation.left_out


def _by_id(raw: DataFrame) -> DataFrame:
    """Return the rows with those of the same id in one partition, one after the other, the first one first."""
    content = F.xxhash64(*(F.col(quoted(f.name)) for f in raw.schema if _hashable(f.dataType.simpleString())))
    id = F.col("id").cast("string")
    order: list[Column] = [id]
    if "published_at" in raw.columns:
        time = F.col("published_at")
        if raw.schema["published_at"].dataType.simpleString() == "string":
            time = F.coalesce(
                F.try_to_timestamp(time), F.expr("timestamp_micros(try_cast(published_at AS BIGINT))")
            )
        order.append(time.asc_nulls_last())
    spread = F.coalesce(id, content.cast("string"))  # not all the rows without an id into one partition
    partitions = int(
        raw.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1
    )  # Spark would make it fewer
    return raw.repartition(partitions, spread).sortWithinPartitions(*order, content)


def _hashable(kind: str) -> bool:
    return not any(name in kind for name in ("map<", "variant", "geometry(", "geography("))
