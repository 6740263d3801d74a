"""A bounded store, on shared storage, of messages that are still valid, for subscriptions that come or change later.

It consists of *segments*: Parquet files that never change, and a description that counts their rows. Each micro-batch
adds one; when there are too many, the newest are merged. The state of a micro-batch names the segments that it sees, so
a repeat sees the same messages. A segment is removed when no state names it.

- A row holds a message, its place as a box, and the time when it expires. Rows are sorted by a coarse cell, and the
  driver knows the box of each file, so a new subscription reads only the files near its region.
- A message that is published again replaces the earlier one. Segments do not change: of all rows with one id, the
  latest counts. A message that is not kept (it has no expiry, or has expired) leaves a row with its id alone, as long
  as there are older segments.
- The store has a limit. When it holds a quarter more messages than that, all segments are merged, and the messages that
  expire soonest are dropped, and counted.
- A segment exists when its description does, also if it is empty: a micro-batch that has added messages, but whose
  segment is not there, is an error, not a micro-batch without messages. A file with another number of rows than the
  tasks have counted is one, too.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import Window, functions
from pyspark.sql.types import DoubleType, IntegerType, StructField, StructType

from nearcast import MessageBatch, config
from nearcast.columns.coding import Coding
from nearcast.errors import StorageError
from nearcast.spark.columns import map_in_arrow, quoted
from nearcast.spark.live.boxes import bounding_boxes, cells, touching
from nearcast.spark.live.states import Snapshot, segment_name
from nearcast.spark.parts import read_parts, write_parts
from nearcast.spark.worker import without_kept
from nearcast.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MARKS", "ORDER", "ValidMessageStore"]

# When the message expires, in microseconds; null if the row only cancels earlier rows with its id.
ENDS = "_nearcast_ends"
# The order of publication: micro-batch, published_at, position in the micro-batch.
ORDER = ("_nearcast_batch", "_nearcast_at", "_nearcast_position")
CELL = "_nearcast_cell"
BOX = ("_nearcast_xmin", "_nearcast_ymin", "_nearcast_xmax", "_nearcast_ymax")
# The columns that the store adds to those of messages; no attribute has such a name.
MARKS = (ENDS, *ORDER, CELL, *BOX)
_RANK = "_nearcast_rank"


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
    """The store in a place, for *limit* messages, and up to a quarter more."""

    def __init__(self, place: Place, limit: int) -> None:
        self._place, self._limit = place, limit
        self._opened: dict[str, _Segment] = {}  # those that are in use

    # --- Adding and merging ----------------------------------------------------------------------------------------

    def add(self, messages: DataFrame, number: int, snapshot: Snapshot, now: int) -> None:
        """Keep the messages of a micro-batch that expire after *now*. A repeat adds nothing.

        ``expires_at`` and ``published_at``, if they exist, are in microseconds. The messages are durable when this
        returns.
        """
        name = segment_name(number)
        if not snapshot.adding or self._place.exists(f"{name}.json"):
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
        rows = map_in_arrow(_without_content(marked), _add_places, placed)
        rows = rows.coalesce(config.LIVE_VALID_WRITERS).sortWithinPartitions(CELL)
        self._write(rows, name, distinct=False, needed=bool(snapshot.segments))

    def added(self, snapshot: Snapshot, number: int) -> tuple[str, ...]:
        """Return the segments after micro-batch *number*, which saw *snapshot*."""
        if not snapshot.adding:
            return snapshot.segments
        name = segment_name(number)
        return (*snapshot.segments, name) if self._segment(name).files else snapshot.segments

    def after(self, spark: SparkSession, snapshot: Snapshot, number: int, now: int, adding: bool) -> Snapshot:
        """Return what the micro-batch after *number*, which saw *snapshot*, will see; merge segments if need be.

        *adding* tells whether that micro-batch will add messages.
        """
        names = list(self.added(snapshot, number))
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
            return Snapshot(tuple(names), snapshot.dropped, adding)
        merged, dropped = self._merge(spark, names[start:], now, whole=start == 0)
        if dropped:
            logging.getLogger(__name__).warning(
                "%d valid messages were dropped, those that expire soonest, because more than %d are valid",
                dropped,
                self._limit,
            )
        return Snapshot((*names[:start], *merged), snapshot.dropped + dropped, adding)

    def _merge(
        self, spark: SparkSession, names: Sequence[str], now: int, whole: bool
    ) -> tuple[list[str], int]:
        """Merge segments; return the name of the new one, if any message is left, and how many messages were dropped.

        Unless they are the *whole* store, ids of messages that are not kept stay: they cancel rows of older segments.
        """
        rows = self._read(spark, names)
        assert rows is not None
        newest = Window.partitionBy("id").orderBy(*(functions.desc(name) for name in ORDER))
        rows = rows.withColumn(_RANK, functions.row_number().over(newest)).where(f"{_RANK} = 1").drop(_RANK)
        rows = rows.withColumn(ENDS, functions.when(functions.col(ENDS) > now, functions.col(ENDS)))
        rows = rows.where(functions.col(ENDS).isNotNull()) if whole else _without_content(rows)
        files = 1 + sum(self._segment(name).rows for name in names) // config.LIVE_VALID_FILE_ROWS
        rows = rows.repartitionByRange(files, CELL) if files > 1 else rows.coalesce(1)
        name = f"{names[-1].partition('-')[0]}-{uuid.uuid4().hex[:12]}"
        written = self._write(
            rows.sortWithinPartitions(CELL), name, distinct=True, needed=not whole, cut=whole
        )
        return [name] if written.files else [], written.dropped

    def _write(
        self, rows: DataFrame, name: str, *, distinct: bool, needed: bool, cut: bool = False
    ) -> _Segment:
        """Write a segment and return it. Without messages it has no files, unless they are *needed*.

        With *cut*, the limit applies.
        """
        written = write_parts(rows, self._place, prefix=name).to_pylist()
        with ThreadPoolExecutor(config.LIVE_VALID_WRITERS) as pool:
            files = list(pool.map(lambda file: self._describe(file["name"], file["rows"]), written))
        if not (needed or any(file.ends is not None for file in files)):
            self._place.remove([file.name for file in files])
            files = []
        dropped = max(sum(file.rows for file in files) - self._limit, 0) if cut else 0
        floor = self._floor(files, dropped) if dropped else None
        segment = _Segment(name, rows.schema.json(), tuple(files), distinct, dropped, floor)
        if not self._place.create(f"{name}.json", json.dumps(segment._asdict()).encode()):
            there = self._segment(name)  # of a driver that was faster; or ours, if the answer was lost
            counted = {file.name for file in there.files}
            self._place.remove([file.name for file in files if file.name not in counted])
            return there
        self._opened[name] = segment
        return segment

    def _describe(self, name: str, rows: int) -> _File:
        """Return what the footer of a file says about its messages; it must have the rows that its task has counted."""
        with self._place.open(name) as opened, pq.ParquetFile(opened) as file:
            about = file.metadata
        if about.num_rows != rows:
            raise StorageError(f"{self._place}/{name} has {about.num_rows:,} rows, but {rows:,} were written")
        return _described(name, about)

    def _floor(self, files: Sequence[_File], dropped: int) -> tuple[int, ...]:
        """Return expiry and order of the last message to drop: those that expire soonest go first, then the oldest."""
        names, parts = [ENDS, *ORDER], []
        for file in files:
            with self._place.open(file.name) as opened:
                parts.append(pq.read_table(opened, columns=names))
        columns = [pa.concat_tables(parts)[name].to_numpy() for name in names]
        last = np.lexsort(columns[::-1])[dropped - 1]
        return tuple(int(column[last]) for column in columns)

    # --- Reading ---------------------------------------------------------------------------------------------------

    def near(
        self, spark: SparkSession, snapshot: Snapshot, boxes: NDArray[np.float64], now: int
    ) -> DataFrame | None:
        """Return the rows that are valid after *now* and may touch one of the boxes, with :data:`MARKS`, if any can.

        Messages that were published again occur more than once: :meth:`latest` removes the earlier rows.
        """
        few = bounding_boxes(boxes, config.LIVE_VALID_BOXES)
        if not len(few):
            return None
        rows = self._read(spark, snapshot.segments, partial(_is_relevant, few, now))
        return None if rows is None else rows.where(f"{ENDS} > {now}").where(_touches(few))

    def latest(self, rows: DataFrame, snapshot: Snapshot, key: str = "id") -> DataFrame:
        """Return those of *rows* whose message, with its id in the column *key*, was not published again.

        *rows* is read twice. If they are of few messages, only those are looked for in the store.
        """
        names = snapshot.segments
        if names and self._segment(names[0]).distinct:
            names = names[1:]  # it replaces nothing: it is the oldest, and has each id once
        if not names:
            return rows
        later = self._read(rows.sparkSession, names)
        assert later is not None
        later = later.select(functions.col("id").alias("_id"), *ORDER)
        found = rows.select(quoted(key)).distinct().limit(config.LIVE_VALID_FOUND + 1).toArrow()[key]
        if len(found) <= config.LIVE_VALID_FOUND:
            later = map_in_arrow(later, _with_ids(found.combine_chunks()), later.schema)
        later = later.select("_id", functions.struct(*ORDER).alias("_later"))
        replaced = (rows[key] == later["_id"]) & (
            functions.struct(*(rows[name] for name in ORDER)) < later["_later"]
        )
        return rows.join(later, replaced, "left_anti")

    def kept(self, names: Iterable[str], now: int) -> int:
        """Return how many messages segments keep, as their files tell: at most so many are valid after *now*.

        A message that was published again counts several times until its segments are merged, and one that has expired
        as long as another one in its file has not.
        """
        return sum(
            min(sum(file.rows for file in segment.files if (file.ends or 0) > now), segment.rows)
            for segment in map(self._segment, names)
        )

    def _read(
        self,
        spark: SparkSession,
        names: Iterable[str],
        relevant: Callable[[_File], bool] = lambda file: True,
    ) -> DataFrame | None:
        """Return the rows of the relevant files of segments, or None if there are none."""
        frames = []
        segments = map(self._segment, names)
        for (schema, floor), group in groupby(segments, lambda segment: (segment.schema, segment.floor)):
            files = {
                f"{self._place.uri}/{file.name}": file.rows
                for segment in group
                for file in segment.files
                if relevant(file)
            }
            if files:
                frame = read_parts(spark, files, StructType.fromJson(json.loads(schema)))
                if floor is not None:
                    limits = functions.struct(*(functions.lit(value).cast("long") for value in floor))
                    frame = frame.where(functions.struct(ENDS, *ORDER) > limits)
                frames.append(frame)
        return (
            reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
            if frames
            else None
        )

    def _segment(self, name: str) -> _Segment:
        if name not in self._opened:
            try:
                about = json.loads(self._place.read(f"{name}.json"))
            except FileNotFoundError:
                raise StorageError(
                    f"{self._place}/{name}.json is missing, so the valid messages of a micro-batch are lost; restore "
                    "it, or start in another home"
                ) from None
            files = tuple(
                _File(name, rows, ends, box and tuple(box)) for name, rows, ends, box in about["files"]
            )
            floor = None if about["floor"] is None else tuple(about["floor"])
            self._opened[name] = _Segment(**about | {"files": files, "floor": floor})
        return self._opened[name]

    # --- Upkeep ----------------------------------------------------------------------------------------------------

    def remove(self, names: Iterable[str]) -> None:
        """Remove segments that no state names."""
        for name in names:
            try:
                files = [file.name for file in self._segment(name).files]
            except StorageError:  # it is gone already
                continue
            self._place.remove([f"{name}.json"])
            if files:
                self._place.remove(files)
            self._opened.pop(name, None)

    def sweep(self, named: Collection[str], before: float) -> None:
        """Remove the files of interrupted drivers: those of no segment that is *named*, written before a time."""
        needed = {f"{name}.json" for name in named}
        needed |= {file.name for name in named for file in self._segment(name).files}
        old = [entry.name for entry in self._place.entries() if entry.modified < before]
        self._place.remove([name for name in old if name not in needed])


def _is_relevant(few: NDArray[np.float64], now: int, file: _File) -> bool:
    """Tell whether a file may have messages that are valid after *now* and touch one of the boxes."""
    if file.ends is None or file.ends <= now:
        return False
    return file.box is None or bool(touching(few, file.box).any())


def _with_ids(ids: pa.Array) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the stage that keeps the rows with one of these ids in the column ``_id``."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(pc.is_in(batch["_id"], ids.cast(batch["_id"].type)))

    return run


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
            plain = without_kept(rows.take(pa.array(kept))).drop_columns([ENDS, *ORDER])
            batch = MessageBatch.from_arrow(plain, like=coding)
            starts = batch.probe_offsets[:-1]
            boxes[kept, :2] = np.minimum.reduceat(batch.probes.boxes[:, :2], starts)
            boxes[kept, 2:] = np.maximum.reduceat(batch.probes.boxes[:, 2:], starts)
        empty = np.isnan(boxes[:, 0])
        cell = pa.array(cells(np.where(empty[:, None], 0.0, boxes)), pa.int32(), mask=empty)
        sides = [pa.array(side, mask=empty) for side in boxes.T]
        yield pa.RecordBatch.from_arrays([*rows.columns, cell, *sides], [*rows.schema.names, CELL, *BOX])


def _described(name: str, about: pq.FileMetaData) -> _File:
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    for group in range(about.num_row_groups):
        for column in map(about.row_group(group).column, range(about.num_columns)):
            side, found = column.path_in_schema, column.statistics
            if side in (ENDS, *BOX) and found is not None and found.has_min_max:
                least[side] = min(found.min, least.get(side, found.min))
                most[side] = max(found.max, most.get(side, found.max))
    if ENDS not in most:
        return _File(name, about.num_rows, None, None)
    known = all(side in most for side in BOX)
    box = (least[BOX[0]], least[BOX[1]], most[BOX[2]], most[BOX[3]]) if known else None
    return _File(name, about.num_rows, most[ENDS], box)
