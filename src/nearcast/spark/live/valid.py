"""The messages that are still valid, for subscriptions that come or change later: a bounded store on shared storage.

It consists of *segments*, directories of Parquet files that are never changed. Each micro-batch adds one; when there
are many, the newest are merged. A micro-batch names the segments that it sees in its state, so a repeat sees the same
messages; a segment is removed when no state names it.

- A row is a message, its place as a box, and when it ends. Rows are in the order of a coarse cell, and the driver knows
  the box of each file: who comes later reads only what is near.
- A message that was published again takes the place of the earlier one. Segments are not changed for it: of the rows
  with one id the latest counts. A message that is not kept (it has no end, or has ended) leaves a row with the id
  alone, as long as there are older segments.
- There is a limit. Those that expire last are kept, up to the limit; when there is a quarter more, all segments are
  merged and those that expire soonest are dropped, and counted.
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import Window, functions
from pyspark.sql.types import DoubleType, IntegerType, StructField, StructType

from nearcast import MessageBatch, config
from nearcast.columns.coding import Coding
from nearcast.spark.columns import map_in_arrow, quoted
from nearcast.spark.live.nearby import cells, packed, touching
from nearcast.storage.atomic import rename_durably, sync_tree, write_durably

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MARKS", "ORDER", "Seen", "ValidMessages"]

ENDS = "_ends"  # microseconds; null: this row only says that what was there under its id is gone
ORDER = ("_batch", "_at", "_position")  # of publication: micro-batch, published_at, place in the micro-batch
CELL = "_cell"
BOX = ("_xmin", "_ymin", "_xmax", "_ymax")
MARKS = (ENDS, *ORDER, CELL, *BOX)  # the columns that are not the message's own
_ABOUT = "_about.json"  # Spark passes over names that begin so


class Seen(NamedTuple):
    """What a micro-batch sees of the store."""

    segments: tuple[str, ...]  # from the oldest to the newest
    dropped: int  # messages, since the beginning, that the limit took


class _File(NamedTuple):
    name: str
    rows: int
    ends: int | None  # when the last of its messages ends; None without messages
    box: tuple[float, ...] | None  # around them all; None where it is not known


class _Segment(NamedTuple):
    name: str
    schema: str
    files: tuple[_File, ...]
    distinct: bool  # no id is there twice
    dropped: int  # messages that are in the files still, but do not count:
    floor: tuple[int, ...] | None  # those up to this end and order

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files) - self.dropped

    @property
    def ends(self) -> int:
        return max((file.ends for file in self.files if file.ends is not None), default=0)


class ValidMessages:
    """The store in the directory *home*, for at most *limit* messages and a quarter more."""

    def __init__(self, spark: SparkSession, home: Path, limit: int) -> None:
        self._spark, self._home, self._limit = spark, home, limit
        self._segment = lru_cache(maxsize=4 * config.LIVE_VALID_SEGMENTS)(self._opened)
        home.mkdir(parents=True, exist_ok=True)

    # --- What comes in ---------------------------------------------------------------------------------------------

    def add(self, messages: DataFrame, number: int, seen: Seen, now: int) -> None:
        """Keep the messages of a micro-batch that end after *now*; on disk when this returns. A repeat adds nothing.

        ``expires_at`` and ``published_at``, where they are, are microseconds.
        """
        name = _name(number)
        if (self._home / name).exists() or "expires_at" not in messages.columns:
            return
        ends = functions.col("expires_at")
        at = functions.col("published_at") if "published_at" in messages.columns else functions.lit(0)
        marked = messages.select(
            "*",
            functions.when(ends > now, ends).alias(ENDS),
            functions.lit(number).cast("long").alias(ORDER[0]),
            functions.coalesce(at, functions.lit(0)).cast("long").alias(ORDER[1]),
            functions.monotonically_increasing_id().alias(ORDER[2]),
        ).drop("expires_at", "published_at")
        placed = StructType(
            [
                *_emptied(marked).schema.fields,
                StructField(CELL, IntegerType()),
                *(StructField(side, DoubleType()) for side in BOX),
            ]
        )
        rows = map_in_arrow(_emptied(marked), _placing, placed).sortWithinPartitions(CELL)
        self._write(rows, name, distinct=False, needed=bool(seen.segments))

    def added(self, seen: Seen, number: int) -> Seen:
        """Return what there is after micro-batch *number*, which saw *seen*."""
        there = (self._home / _name(number)).exists()
        return Seen((*seen.segments, _name(number)), seen.dropped) if there else seen

    def after(self, seen: Seen, number: int, now: int) -> Seen:
        """Return what the next one sees after micro-batch *number*, which saw *seen*; merge what is too much."""
        names = list(self.added(seen, number).segments)
        while names and self._segment(names[0]).ends <= now:
            del names[0]  # what it replaces would be older, and there is nothing older
        rows = [self._segment(name).rows for name in names]
        if sum(rows) > self._limit * (1 + config.LIVE_VALID_SLACK):
            start = 0
        elif len(names) > config.LIVE_VALID_SEGMENTS:
            start = len(names) - config.LIVE_VALID_SEGMENTS // 2 - 1
            while start and rows[start - 1] <= sum(rows[start:]):  # so that a message is rewritten rarely
                start -= 1
        else:
            return Seen(tuple(names), seen.dropped)
        merged, dropped = self._merged(names[start:], now, whole=start == 0)
        if dropped:
            logging.getLogger(__name__).warning(
                "%d valid messages were dropped, those that expire soonest: more than %d are valid",
                dropped,
                self._limit,
            )
        return Seen((*names[:start], *merged), seen.dropped + dropped)

    def _merged(self, names: Sequence[str], now: int, whole: bool) -> tuple[list[str], int]:
        """Merge segments; return the name of the new one, if anything is left, and how many messages were dropped.

        Where there are older ones, ids that were published again or have expired stay, as they count for those.
        """
        rows = self._read(names)
        assert rows is not None
        newest = Window.partitionBy("id").orderBy(*(functions.desc(name) for name in ORDER))
        rows = rows.withColumn("_rank", functions.row_number().over(newest)).where("_rank = 1").drop("_rank")
        rows = rows.withColumn(ENDS, functions.when(functions.col(ENDS) > now, functions.col(ENDS)))
        rows = rows.where(functions.col(ENDS).isNotNull()) if whole else _emptied(rows)
        files = 1 + sum(self._segment(name).rows for name in names) // config.LIVE_VALID_FILE_ROWS
        rows = rows.repartitionByRange(files, CELL) if files > 1 else rows.coalesce(1)
        name = f"{names[-1].partition('-')[0]}-{uuid.uuid4().hex}"
        return self._write(rows.sortWithinPartitions(CELL), name, distinct=True, needed=not whole, cut=whole)

    def _write(
        self, rows: DataFrame, name: str, *, distinct: bool, needed: bool, cut: bool = False
    ) -> tuple[list[str], int]:
        """Write a segment that appears whole; without messages only if it is *needed*. Cut it to the limit if asked."""
        draft = self._home / f".{name}.{uuid.uuid4().hex}"
        try:
            rows.write.parquet(f"file://{draft}")
            files = [_described(path) for path in sorted(draft.glob("*.parquet"))]
            files = [file for file in files if file.rows]
            if not files or not (needed or any(file.ends is not None for file in files)):
                return [], 0
            dropped = max(sum(file.rows for file in files) - self._limit, 0) if cut else 0
            about = {
                "schema": rows.schema.json(),
                "files": files,
                "distinct": distinct,
                "dropped": dropped,
                "floor": _floor([draft / file.name for file in files], dropped) if dropped else None,
            }
            with write_durably(draft / _ABOUT) as file:
                file.write(json.dumps(about).encode())
            sync_tree(draft)
            rename_durably(draft, self._home / name)
            return [name], dropped
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    # --- What is asked ---------------------------------------------------------------------------------------------

    def near(self, seen: Seen, boxes: NDArray[np.float64], now: int) -> DataFrame | None:
        """Return the rows that are valid after *now* and touch one of the boxes, with :data:`MARKS`; None if none can.

        Messages that were published again are there more than once: :meth:`latest` takes the earlier ones out.
        """
        few = packed(boxes, config.LIVE_VALID_BOXES)

        def concerned(file: _File) -> bool:
            if file.ends is None or file.ends <= now:
                return False
            return file.box is None or bool(touching(few, file.box).any())

        rows = self._read(seen.segments, concerned)
        if rows is None or not len(few):
            return None
        return rows.where(f"{ENDS} > {now}").where(_touches(few))

    def latest(self, rows: DataFrame, seen: Seen, key: str = "id") -> DataFrame:
        """Return those of *rows* whose message, named by *key*, was not published again."""
        if len(seen.segments) == 1 and self._segment(seen.segments[0]).distinct:
            return rows
        every = self._read(seen.segments)
        assert every is not None
        later = every.select(functions.col("id").alias("_id"), functions.struct(*ORDER).alias("_later"))
        again = (rows[key] == later["_id"]) & (
            functions.struct(*(rows[name] for name in ORDER)) < later["_later"]
        )
        return rows.join(later, again, "left_anti")

    def count(self, seen: Seen, now: int) -> int:
        """Return how many messages are valid after *now*."""
        rows = self._read(seen.segments)
        return 0 if rows is None else self.latest(rows.where(functions.col(ENDS) > now), seen).count()

    def tidy(self, named: Collection[str], number: int) -> None:
        """Remove the segments that are not *named*, but for those that micro-batches from *number* on have added."""
        for path in self._home.iterdir():
            added = path.name.isdecimal() and int(path.name) >= number
            if path.name not in named and not added:
                shutil.rmtree(path)

    def _read(self, names: Iterable[str], concerned: Any = lambda file: True) -> DataFrame | None:
        """Return the rows of segments, of those files that are concerned."""
        frames = []
        segments = map(self._segment, names)
        for (schema, floor), group in groupby(segments, lambda segment: (segment.schema, segment.floor)):
            paths = [
                f"file://{self._home / segment.name / file.name}"
                for segment in group
                for file in segment.files
                if concerned(file)
            ]
            if paths:
                frame = self._spark.read.schema(StructType.fromJson(json.loads(schema))).parquet(*paths)
                if floor is not None:
                    limits = functions.struct(*(functions.lit(value).cast("long") for value in floor))
                    frame = frame.where(functions.struct(ENDS, *ORDER) > limits)
                frames.append(frame)
        return (
            reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
            if frames
            else None
        )

    def _opened(self, name: str) -> _Segment:
        about = json.loads((self._home / name / _ABOUT).read_bytes())
        files = tuple(_File(file[0], file[1], file[2], file[3] and tuple(file[3])) for file in about["files"])
        floor = None if about["floor"] is None else tuple(about["floor"])
        return _Segment(name, about["schema"], files, about["distinct"], about["dropped"], floor)


def _name(number: int) -> str:
    return f"{number:012}"


def _emptied(rows: DataFrame) -> DataFrame:
    """Return rows of which those that are not kept have nothing but the id."""
    kept = functions.col(ENDS).isNotNull()
    own = [name for name in rows.columns if name not in ("id", ENDS, *ORDER)]
    return rows.select(
        "id", *(functions.when(kept, functions.col(quoted(name))).alias(name) for name in own), ENDS, *ORDER
    )


def _touches(boxes: NDArray[np.float64]) -> str:
    """Return the condition that a row touches one of the boxes, in SQL: Spark also reads it against whole pages."""
    conditions = []
    for box in boxes.tolist():
        tests = zip(BOX, ("<=", "<=", ">=", ">="), (*box[2:], *box[:2]))
        written = [f"{side} {sign} {value!r}D" for side, sign, value in tests if np.isfinite(value)]
        conditions.append(f"({' AND '.join(written) or 'TRUE'})")
    return " OR ".join(conditions)


def _placing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the boxes of messages that are kept, and the cells of their middles."""
    coding = Coding.new()
    for rows in batches:
        kept = np.flatnonzero(rows[ENDS].is_valid().to_numpy(zero_copy_only=False))
        boxes = np.full((len(rows), 4), np.nan)
        if len(kept):
            plain = rows.take(pa.array(kept)).drop_columns([ENDS, *ORDER])
            batch = MessageBatch.from_arrow(plain, like=coding)
            starts = batch.probe_offsets[:-1]
            boxes[kept, :2] = np.minimum.reduceat(batch.probes.boxes[:, :2], starts)
            boxes[kept, 2:] = np.maximum.reduceat(batch.probes.boxes[:, 2:], starts)
        nothing = np.isnan(boxes[:, 0])
        at = pa.array(cells(np.where(nothing[:, None], 0.0, boxes)), pa.int32(), mask=nothing)
        sides = [pa.array(side, mask=nothing) for side in boxes.T]
        yield pa.RecordBatch.from_arrays([*rows.columns, at, *sides], [*rows.schema.names, CELL, *BOX])


def _described(path: Path) -> _File:
    """Return what the footer of a Parquet file tells about its messages."""
    about = pq.read_metadata(path)
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    for group in range(about.num_row_groups):
        for column in map(about.row_group(group).column, range(about.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if name in (ENDS, *BOX) and found is not None and found.has_min_max:
                least[name] = min(found.min, least.get(name, found.min))
                most[name] = max(found.max, most.get(name, found.max))
    if ENDS not in most:
        return _File(path.name, about.num_rows, None, None)
    known = all(name in most for name in BOX)
    box = (least[BOX[0]], least[BOX[1]], most[BOX[2]], most[BOX[3]]) if known else None
    return _File(path.name, about.num_rows, most[ENDS], box)


def _floor(files: Sequence[Path], dropped: int) -> tuple[int, ...]:
    """Return end and order of the last of so many messages that expire soonest, the earliest published first."""
    names = [ENDS, *ORDER]
    rows = pa.concat_tables([pq.read_table(file, columns=names) for file in files])
    columns = [rows[name].to_numpy() for name in names]
    last = np.lexsort(columns[::-1])[dropped - 1]
    return tuple(int(column[last]) for column in columns)
