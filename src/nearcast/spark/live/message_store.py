"""A bounded store, on shared storage, of messages that are still valid, for subscriptions that come or change later.

It consists of *segments*: directories of Parquet files that never change. Each micro-batch adds one; when there are too
many, the newest are merged. The state of a micro-batch names the segments that it sees, so a repeat sees the same
messages. A segment is removed when no state names it.

- A row holds a message, its place as a box, and the time when it expires. Rows are sorted by a coarse cell, and the
  driver knows the box of each file, so a new subscription reads only the files near its region.
- A message that is published again replaces the earlier one. Segments do not change: of all rows with one id, the
  latest counts. A message that is not kept (it has no expiry, or has expired) leaves a row with its id alone, as long
  as there are older segments.
- The store has a limit. When it holds a quarter more messages than that, all segments are merged, and the messages that
  expire soonest are dropped, and counted.
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
from nearcast.spark.live.boxes import bounding_boxes, cells, touching
from nearcast.storage.atomic import rename_durably, sync_tree, write_durably

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MARKS", "ORDER", "Snapshot", "ValidMessageStore"]

# When the message expires, in microseconds; null if the row only cancels earlier rows with its id.
ENDS = "_ends"
# The order of publication: micro-batch, published_at, position in the micro-batch.
ORDER = ("_batch", "_at", "_position")
CELL = "_cell"
BOX = ("_xmin", "_ymin", "_xmax", "_ymax")
MARKS = (ENDS, *ORDER, CELL, *BOX)  # the columns that the store adds to those of messages
_ABOUT = "_about.json"  # Spark ignores files whose names begin with an underscore


class Snapshot(NamedTuple):
    """The content of the store that a micro-batch sees."""

    segments: tuple[str, ...]  # from the oldest to the newest
    dropped: int  # how many messages were dropped because of the limit since the beginning


class _File(NamedTuple):
    name: str
    rows: int
    ends: int | None  # when the last of its messages expires; None if it has none
    box: tuple[float, ...] | None  # around all messages; None if it is not known


class _Segment(NamedTuple):
    name: str
    schema: str
    files: tuple[_File, ...]
    distinct: bool  # no id occurs twice
    dropped: int  # how many messages of the files do not count any more
    floor: tuple[int, ...] | None  # expiry and order of the last of those

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files) - self.dropped

    @property
    def ends(self) -> int:
        return max((file.ends for file in self.files if file.ends is not None), default=0)


class ValidMessageStore:
    """The store in the directory *home*, for *limit* messages, and up to a quarter more."""

    def __init__(self, spark: SparkSession, home: Path, limit: int) -> None:
        self._spark, self._home, self._limit = spark, home, limit
        self._segment = lru_cache(maxsize=4 * config.LIVE_VALID_SEGMENTS)(self._open_segment)
        home.mkdir(parents=True, exist_ok=True)

    # --- Adding and merging ----------------------------------------------------------------------------------------

    def add(self, messages: DataFrame, number: int, snapshot: Snapshot, now: int) -> None:
        """Keep the messages of a micro-batch that expire after *now*. A repeat adds nothing.

        ``expires_at`` and ``published_at``, if they exist, are in microseconds. The messages are on disk when this
        returns.
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
                *_without_content(marked).schema.fields,
                StructField(CELL, IntegerType()),
                *(StructField(side, DoubleType()) for side in BOX),
            ]
        )
        rows = map_in_arrow(_without_content(marked), _add_places, placed).sortWithinPartitions(CELL)
        self._write(rows, name, distinct=False, needed=bool(snapshot.segments))

    def added(self, snapshot: Snapshot, number: int) -> Snapshot:
        """Return the content after micro-batch *number*, which saw *snapshot*."""
        if not (self._home / _name(number)).exists():
            return snapshot
        return Snapshot((*snapshot.segments, _name(number)), snapshot.dropped)

    def after(self, snapshot: Snapshot, number: int, now: int) -> Snapshot:
        """Return what the micro-batch after *number*, which saw *snapshot*, will see; merge segments if need be."""
        names = list(self.added(snapshot, number).segments)
        while names and self._segment(names[0]).ends <= now:
            del names[0]  # its rows could only replace older ones, and there are none
        rows = [self._segment(name).rows for name in names]
        if sum(rows) > self._limit * (1 + config.LIVE_VALID_SLACK):
            start = 0
        elif len(names) > config.LIVE_VALID_SEGMENTS:
            start = len(names) - config.LIVE_VALID_SEGMENTS // 2 - 1
            while start and rows[start - 1] <= sum(rows[start:]):  # so that each message is seldom rewritten
                start -= 1
        else:
            return Snapshot(tuple(names), snapshot.dropped)
        merged, dropped = self._merge(names[start:], now, whole=start == 0)
        if dropped:
            logging.getLogger(__name__).warning(
                "%d valid messages were dropped, those that expire soonest, because more than %d are valid",
                dropped,
                self._limit,
            )
        return Snapshot((*names[:start], *merged), snapshot.dropped + dropped)

    def _merge(self, names: Sequence[str], now: int, whole: bool) -> tuple[list[str], int]:
        """Merge segments; return the name of the new one, if any message is left, and how many messages were dropped.

        Unless they are the *whole* store, ids of messages that are not kept stay: they cancel rows of older segments.
        """
        rows = self._read(names)
        assert rows is not None
        newest = Window.partitionBy("id").orderBy(*(functions.desc(name) for name in ORDER))
        rows = rows.withColumn("_rank", functions.row_number().over(newest)).where("_rank = 1").drop("_rank")
        rows = rows.withColumn(ENDS, functions.when(functions.col(ENDS) > now, functions.col(ENDS)))
        rows = rows.where(functions.col(ENDS).isNotNull()) if whole else _without_content(rows)
        files = 1 + sum(self._segment(name).rows for name in names) // config.LIVE_VALID_FILE_ROWS
        rows = rows.repartitionByRange(files, CELL) if files > 1 else rows.coalesce(1)
        name = f"{names[-1].partition('-')[0]}-{uuid.uuid4().hex}"
        return self._write(rows.sortWithinPartitions(CELL), name, distinct=True, needed=not whole, cut=whole)

    def _write(
        self, rows: DataFrame, name: str, *, distinct: bool, needed: bool, cut: bool = False
    ) -> tuple[list[str], int]:
        """Write a segment, which appears whole; return its name, and how many of its messages do not count.

        Without messages it is written only if it is *needed*. With *cut*, the limit applies.
        """
        draft = self._home / f".{name}.{uuid.uuid4().hex}"
        try:
            rows.write.parquet(f"file://{draft}")
            files = [_describe(path) for path in sorted(draft.glob("*.parquet"))]
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

    # --- Reading ---------------------------------------------------------------------------------------------------

    def near(self, snapshot: Snapshot, boxes: NDArray[np.float64], now: int) -> DataFrame | None:
        """Return the rows that are valid after *now* and may touch one of the boxes, with :data:`MARKS`, if any can.

        Messages that were published again occur more than once: :meth:`latest` removes the earlier rows.
        """
        few = bounding_boxes(boxes, config.LIVE_VALID_BOXES)

        def relevant(file: _File) -> bool:
            if file.ends is None or file.ends <= now:
                return False
            return file.box is None or bool(touching(few, file.box).any())

        rows = self._read(snapshot.segments, relevant)
        if rows is None or not len(few):
            return None
        return rows.where(f"{ENDS} > {now}").where(_touches(few))

    def latest(self, rows: DataFrame, snapshot: Snapshot, key: str = "id") -> DataFrame:
        """Return those of *rows* whose message, with its id in the column *key*, was not published again."""
        if len(snapshot.segments) == 1 and self._segment(snapshot.segments[0]).distinct:
            return rows
        everything = self._read(snapshot.segments)
        assert everything is not None
        later = everything.select(functions.col("id").alias("_id"), functions.struct(*ORDER).alias("_later"))
        replaced = (rows[key] == later["_id"]) & (
            functions.struct(*(rows[name] for name in ORDER)) < later["_later"]
        )
        return rows.join(later, replaced, "left_anti")

    def count(self, snapshot: Snapshot, now: int) -> int:
        """Return how many messages are valid after *now*."""
        rows = self._read(snapshot.segments)
        return 0 if rows is None else self.latest(rows.where(functions.col(ENDS) > now), snapshot).count()

    def tidy(self, named: Collection[str], number: int) -> None:
        """Remove the segments that are not *named*, except those that micro-batches from *number* on have added."""
        for path in self._home.iterdir():
            added = path.name.isdecimal() and int(path.name) >= number
            if path.name not in named and not added:
                shutil.rmtree(path)

    def _read(self, names: Iterable[str], relevant: Any = lambda file: True) -> DataFrame | None:
        """Return the rows of the relevant files of segments, or None if there are none."""
        frames = []
        segments = map(self._segment, names)
        for (schema, floor), group in groupby(segments, lambda segment: (segment.schema, segment.floor)):
            paths = [
                f"file://{self._home / segment.name / file.name}"
                for segment in group
                for file in segment.files
                if relevant(file)
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

    def _open_segment(self, name: str) -> _Segment:
        about = json.loads((self._home / name / _ABOUT).read_bytes())
        files = tuple(_File(file[0], file[1], file[2], file[3] and tuple(file[3])) for file in about["files"])
        floor = None if about["floor"] is None else tuple(about["floor"])
        return _Segment(name, about["schema"], files, about["distinct"], about["dropped"], floor)


def _name(number: int) -> str:
    return f"{number:012}"


def _without_content(rows: DataFrame) -> DataFrame:
    """Return the rows; those that are not kept have nothing but their id and order."""
    kept = functions.col(ENDS).isNotNull()
    own = [name for name in rows.columns if name not in ("id", ENDS, *ORDER)]
    return rows.select(
        "id", *(functions.when(kept, functions.col(quoted(name))).alias(name) for name in own), ENDS, *ORDER
    )


def _touches(boxes: NDArray[np.float64]) -> str:
    """Return the condition that a row touches one of the boxes, in SQL: Spark skips whole pages by it."""
    conditions = []
    for box in boxes.tolist():
        tests = zip(BOX, ("<=", "<=", ">=", ">="), (*box[2:], *box[:2]))
        sides = [f"{side} {sign} {value!r}D" for side, sign, value in tests if np.isfinite(value)]
        conditions.append(f"({' AND '.join(sides) or 'TRUE'})")
    return " OR ".join(conditions)


def _add_places(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the box of each message that is kept, and the cell of its middle."""
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
        empty = np.isnan(boxes[:, 0])
        cell = pa.array(cells(np.where(empty[:, None], 0.0, boxes)), pa.int32(), mask=empty)
        sides = [pa.array(side, mask=empty) for side in boxes.T]
        yield pa.RecordBatch.from_arrays([*rows.columns, cell, *sides], [*rows.schema.names, CELL, *BOX])


def _describe(path: Path) -> _File:
    """Return what the footer of a Parquet file says about its messages."""
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
    """Return expiry and order of the last message to drop; those that expire soonest go first, then the oldest."""
    names = [ENDS, *ORDER]
    rows = pa.concat_tables([pq.read_table(file, columns=names) for file in files])
    columns = [rows[name].to_numpy() for name in names]
    last = np.lexsort(columns[::-1])[dropped - 1]
    return tuple(int(column[last]) for column in columns)
