"""Matching a stream of messages while subscriptions change.

Messages and changes are two streams that one query reads: a micro-batch has messages and records of change, and the
changes are applied first. What a micro-batch sees is decided and written down at its first attempt: the version of the
index, the deltas, the valid messages and the time. A repeat, after any failure, sees and delivers the same.

===================  ================================================================================================
``versions/``        sharded versions of the index
``deltas/`` …        what micro-batches changed: :mod:`nearcast.spark.live.deltas`
``states/`` …        what micro-batches see: :mod:`nearcast.spark.live.states`
``valid/``           valid messages, for later subscriptions: :mod:`nearcast.spark.live.message_store`
===================  ================================================================================================

When there are many deltas, Spark's tasks make a new version in the background from the old one and the deltas; a later
micro-batch starts with it. Files that no micro-batch will need again are removed.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.types import IntegralType, LongType, StringType, StructField, StructType, TimestampType

from nearcast import config
from nearcast.columns.coding import Coding
from nearcast.columns.from_arrow.names import BOX, KEPT, TIMES, tell_other_case
from nearcast.errors import ColumnError, InputError, whole_number
from nearcast.sharding.replica import subscriptions_of
from nearcast.sharding.version import ShardedVersion
from nearcast.spark.columns import (
    check_kept,
    map_in_arrow,
    message_columns,
    quoted,
    subscription_columns,
    without_rows,
)
from nearcast.spark.compat import refuse_remote, spark_type
from nearcast.spark.deliveries import as_deliveries
from nearcast.spark.live import worker
from nearcast.spark.live.compaction import Compaction
from nearcast.spark.live.deltas import subscription_schema
from nearcast.spark.live.journal import Journal
from nearcast.spark.live.message_store import MARKS, ORDER, ValidMessageStore
from nearcast.spark.live.records import RECORD_COLUMNS, check_columns
from nearcast.spark.live.states import Run, State, States, segment_name
from nearcast.spark.live.subscriptions import current_subscriptions
from nearcast.spark.matching import match_version
from nearcast.spark.parts import read_parts, write_parts
from nearcast.spark.paths import spark_path
from nearcast.spark.session import quietly
from nearcast.spark.versions import ensure_sharded_version, version_name
from nearcast.spark.worker import spark_ids
from nearcast.storage.paths import local_path
from nearcast.storage.places import place_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Live"]

Write = Callable[["DataFrame", int], None]


def _clock() -> int:
    return time.time_ns() // 1000


class Live:
    """A query that delivers a stream of messages to subscriptions that a stream of changes keeps up to date.

    If it is opened again with another index, distribution or number of shards, it first builds the current
    subscriptions in that form, and continues with it; a micro-batch that was tried before keeps the version that it
    saw. The deliveries are the same in any form.

    Parameters
    ----------
    home
        Where versions, deltas, states and valid messages are kept, as a path or a URI: storage that the driver and
        every worker see. It belongs to one query and its checkpoint; another one is refused.
    subscriptions
        The first subscriptions: a batch DataFrame. Only the first start reads it, several times.
    index, distribution, shards
        As :func:`nearcast.spark.build` takes them.
    valid_messages
        How many messages are kept for later subscriptions. If there are more, those that expire soonest may be dropped;
        :meth:`stats` counts them.
    clock
        Returns the time in microseconds since 1970 UTC, which decides which messages are still valid.
    """

    def __init__(
        self,
        home: str | os.PathLike[str],
        subscriptions: DataFrame,
        *,
        index: str = config.DEFAULT_INDEX,
        distribution: str = "auto",
        shards: int = 1,
        valid_messages: int = config.LIVE_VALID_MESSAGES,
        clock: Callable[[], int] = _clock,
    ) -> None:
        refuse_remote(subscriptions.sparkSession, "Live")
        subscriptions = subscription_columns(subscriptions)
        valid_messages = whole_number("valid_messages", valid_messages, 0)
        self._home = place_at(home)
        self._form = {"index": index, "distribution": distribution, "shards": shards}
        self._clock = clock
        self._opened: dict[str, ShardedVersion] = {}
        self._journal = Journal(self._home, self._open)
        self._valid = ValidMessageStore(self._home / "valid", valid_messages)
        self._compaction = Compaction(self._home)
        last = self._journal.states.last
        if last is None:
            self._journal.start(self._build(_with_all_regions(subscriptions)))
            return
        version, *_ = self._journal.states.next_version(last)
        if version.rpartition("-")[0] != version_name(**self._form):  # type: ignore[arg-type]
            self._compact(subscriptions.sparkSession, last)

    # --- The query -------------------------------------------------------------------------------------------------

    def start(
        self,
        messages: DataFrame,
        changes: DataFrame,
        write: Write,
        *,
        checkpoint: str | os.PathLike[str],
        keep: Sequence[str] = (),
        query_name: str | None = None,
        options: Mapping[str, str] | None = None,
        **trigger: Any,
    ) -> StreamingQuery:
        """Start the query; *write* is called with the deliveries of each micro-batch, and its number.

        They have the columns of all deliveries, then those of the messages that *keep* names; ``change`` is always
        ``+``. The reason is ``publish`` for a new
        message. A subscription that comes or changes also gets the earlier messages that are still valid and that it
        did not match before; their reason is its last change: ``subscribe``, ``update`` or ``move``. A message that has
        expired at the first attempt of its micro-batch is delivered to nobody. For later subscriptions, a message that
        is published again under its id replaces the earlier one; of several in one micro-batch, the last one by
        ``published_at`` counts, or else the last one that was read.

        A valid message keeps the columns that *keep* named when it arrived; others are null in its later deliveries.

        A micro-batch that did not finish is repeated, with the same number and the same deliveries: *write* must keep
        one copy for each number. *query_name* and *options* are those of Spark's writer, *trigger* has the arguments of
        its ``trigger``.
        """
        for name, frame in (("messages", messages), ("changes", changes)):
            if not frame.isStreaming:
                raise InputError(f"{name} must be a streaming DataFrame; read them with spark.readStream")
        last = self._journal.states.last
        assert last is not None
        version = self._open(last.version)
        check_columns(without_rows(changes).schema, subscription_schema(version))
        tell_other_case(messages.columns, version.coding.words()[1])
        check_kept("keep", keep, messages.columns)
        needed = map(quoted, message_columns(messages).columns)
        kept = [functions.col(quoted(name)).alias(f"{KEPT}{name}") for name in keep]
        times = [_micros(messages, name).alias(name) for name in TIMES if name in messages.columns]
        read = [name for name in RECORD_COLUMNS if name in changes.columns]
        sides = {
            "message": messages.select(functions.struct(*needed, *times, *kept).alias("message")),
            "record": changes.select(functions.struct(*read).alias("record")),
        }
        both = sides["message"].unionByName(sides["record"], allowMissingColumns=True)
        where = spark_path(checkpoint)
        writer = both.writeStream.foreachBatch(_MicroBatches(self, write, keep, where)).options(
            **options or {}
        )
        if query_name is not None:
            writer = writer.queryName(query_name)
        if trigger:
            writer = writer.trigger(**trigger)
        with quietly():
            return writer.option("checkpointLocation", where).start()

    def process(self, frame: DataFrame, number: int, write: Write, keep: Sequence[str], run: Run) -> None:
        """Deliver one micro-batch of a run of the query."""
        spark = frame.sparkSession
        kept = [frame.persist()]
        try:
            messages = frame.where("message IS NOT NULL").select("message.*")
            adding = "expires_at" in messages.columns
            with quietly():
                records = frame.where("record IS NOT NULL").select("record.*").toArrow()
                state = self._journal.begin(
                    number,
                    records,
                    run,
                    self._clock,
                    lambda last, now: self._valid.after(spark, last.valid, last.number, now, adding),
                )
                deliveries = self._match_published(messages, keep, state)
                carried = [messages.schema[f"{KEPT}{name}"] for name in keep]
                late = self._match_earlier(spark, carried, state)
                if late is not None:
                    kept.append(late.persist())
                    latest = self._valid.latest(late, state.valid, "message_id")
                    named = as_deliveries(latest, [field.name for field in carried])
                    deliveries = deliveries.unionByName(named.toDF(*deliveries.columns))
                write(deliveries, number)
                self._valid.add(messages, number, state.valid, state.now)
        finally:
            for each in kept:
                each.unpersist()
        self._tidy(number)
        if self._journal.is_grown(state, len(self._open(state.version))):
            self._compaction.start(lambda: self._compact(spark, state))

    # --- Looking at it ---------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return plain figures about the last micro-batch that was started, as they are recorded: no job runs.

        They are the number of the ``batch``, its ``version``, the number of later ``deltas`` and their ``delta_rows``,
        the ``valid_messages`` that are kept (some may have expired, or been published again, since their files were
        written) and the ``valid_segments`` that hold them; since the beginning, the messages ``dropped`` because of the
        limit and the records ``refused``; and, since a new version was last made, the attempts that failed
        (``compaction_failures``) and the last error (``compaction_error``).
        """
        last, failed = self._last(), self._compaction.failed()
        # The micro-batch has added its messages if it is finished.
        added = not last.valid.adding or (self._home / "valid").exists(f"{segment_name(last.number)}.json")
        segments = self._valid.added(last.valid, last.number) if added else last.valid.segments
        return {
            "batch": last.number,
            "version": last.version,
            "deltas": len(last.deltas),
            "delta_rows": sum(delta.rows for delta in last.deltas),
            "valid_messages": self._valid.kept(segments, max(last.now, self._clock())),
            "valid_segments": len(segments),
            "dropped": last.valid.dropped,
            "refused": last.refused,
            "compaction_failures": failed["failures"],
            "compaction_error": failed["error"],
        }

    def _last(self) -> State:
        last = States(self._home).last  # whichever process wrote it
        assert last is not None
        return last

    @property
    def refused_records(self) -> int:
        """How many records of change could not be applied since the beginning, as far as this process knows."""
        last = self._journal.states.last
        return 0 if last is None else last.refused

    def refused(self) -> pa.Table:
        """Return the last records of change that could not be applied: id, change, reason, detail and micro-batch."""
        return self._journal.deltas.refused(self._last().refusals)

    # --- Deliveries ------------------------------------------------------------------------------------------------

    def _match_published(self, messages: DataFrame, keep: Sequence[str], state: State) -> DataFrame:
        """Return the deliveries of the messages of this micro-batch."""
        if "expires_at" in messages.columns:
            messages = messages.where(f"expires_at IS NULL OR expires_at > {state.now}")
        version, deltas = self._open(state.version), list(self._journal.deltas.files(state.deltas))
        return match_version(messages.drop(*TIMES), version.place.uri, version, deltas, keep)

    def _match_earlier(
        self, spark: SparkSession, carried: Sequence[StructField], state: State
    ) -> DataFrame | None:
        """Return what earlier messages match subscriptions that came or changed in this micro-batch.

        Messages that were published again since are among them. The columns *carried* are null where a message was kept
        without them.
        """
        if not state.changed or state.before is None:
            return None
        own = state.deltas[-1]
        boxes = subscriptions_of(self._journal.deltas.subscribed(own), Coding.new()).clauses.boxes
        near = self._valid.near(spark, state.valid, boxes, state.now)
        if near is None:
            return None
        ids = subscription_schema(self._open(state.version)).field("id").type
        schema = StructType(
            [
                StructField("subscription_id", spark_type(spark_ids(pa.array([], ids)).type)),
                StructField("reason", StringType()),
                StructField("message_id", near.schema["id"].dataType),
                *carried,
                *(StructField(name, LongType()) for name in ORDER),
            ]
        )
        read = [name for name in near.columns if name not in MARKS and not name.startswith(KEPT)]
        kept = (
            functions.col(quoted(field.name)) if field.name in near.columns else functions.lit(None)
            for field in carried
        )
        near = near.select(
            *map(quoted, read),
            *(column.cast(field.dataType).alias(field.name) for column, field in zip(kept, carried)),
            *ORDER,
        )
        stage = worker.joining_stage(
            self._journal.deltas.uri("deltas", own.name), self._journal.deltas.uri("before", state.before)
        )
        return map_in_arrow(near, stage, schema)

    # --- Upkeep ----------------------------------------------------------------------------------------------------

    def _tidy(self, number: int) -> None:
        """Remove what no micro-batch will need again."""
        versions, segments = self._journal.finish(number)
        self._valid.remove(segments)
        for name in versions:
            self._opened.pop(name, None)
            (self._home / "versions" / name).clear()

    def sweep(self) -> None:
        """Remove what interrupted drivers have left."""
        before = time.time() - config.LIVE_ORPHAN_SECONDS
        self._home.sweep_drafts(before)
        self._journal.sweep(before)
        versions, segments = self._journal.needed()
        self._valid.sweep(segments, before)
        for part, named in (("versions", versions), ("compacting", set())):
            for name in set((self._home / part).children()) - named:
                place = self._home / part / name
                if all(entry.modified < before for entry in (*place.entries(), *place.drafts())):
                    place.clear()

    def _compact(self, spark: SparkSession, state: State) -> None:
        """Make a new version from the version of *state* and its deltas, by tasks."""
        deltas, upto = self._journal.deltas, state.deltas[-1].last if state.deltas else state.upto
        scratch = self._home / "compacting" / uuid.uuid4().hex[:12]
        with quietly():
            rows, ended = current_subscriptions(
                spark,
                self._open(state.version),
                deltas.files(state.deltas),
                {} if state.gone is None else {deltas.uri("gone", state.gone.name): state.gone.rows},
                state.now,
            )
            try:
                # Building reads them several times.
                parts = write_parts(rows, scratch)
                names = [f"{scratch.uri}/{name}" for name in parts["name"].to_pylist()]
                files = dict(zip(names, parts["rows"].to_pylist()))
                version = self._build(read_parts(spark, files, rows.schema))
            finally:
                scratch.clear()
            gone = deltas.write_gone(ended, upto) if len(ended) else None
        self._journal.states.set_next_version(version, upto, gone)

    def _build(self, rows: DataFrame) -> str:
        """Build a version in the form of this query; return its name."""
        versions = self._home / "versions"
        return ensure_sharded_version(rows, versions, sample=None, **self._form).name  # type: ignore[arg-type]

    def _open(self, name: str) -> ShardedVersion:
        if name not in self._opened:
            self._opened[name] = ShardedVersion(self._home / "versions" / name)
        return self._opened[name]


class _MicroBatches:
    """What Spark calls for each micro-batch of one start of a query."""

    def __init__(self, live: Live, write: Write, keep: Sequence[str], checkpoint: str) -> None:
        self._live, self._write, self._keep, self._checkpoint = live, write, tuple(keep), checkpoint
        self._run: Run | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        if self._run is None:
            query = _query_id(frame.sparkSession, self._checkpoint)
            self._run = Run(query, self._checkpoint, uuid.uuid4().hex)
            self._live.process(frame, number, self._write, self._keep, self._run)
            self._live.sweep()
            return
        self._live.process(frame, number, self._write, self._keep, self._run)


def _query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query of a checkpoint, as Spark keeps it there.

    It is written when the query starts, survives restarts, and is new if the checkpoint is. A checkpoint on the disk of
    the driver is read here, because no executor may see it; any other is read by Spark, which wrote it and knows its
    file system.
    """
    home = local_path(checkpoint)
    if home is not None and (home / "metadata").exists():
        return str(json.loads((home / "metadata").read_text())["id"])
    with quietly():
        (line,) = spark.read.text(f"{checkpoint}/metadata").collect()
    return str(json.loads(line[0])["id"])


def _with_all_regions(rows: DataFrame) -> DataFrame:
    """Return subscriptions with all columns of regions: later subscriptions may have regions of another kind."""
    kinds = {"geometry": "binary", **dict.fromkeys(("lon", "lat", "radius_m", *BOX), "double")}
    missing = [name for name in kinds if name not in rows.columns]
    return rows.select("*", *(functions.lit(None).cast(kinds[name]).alias(name) for name in missing))


def _micros(messages: DataFrame, name: str) -> Column:
    """Return a column of times as microseconds since 1970 UTC."""
    kind = messages.schema[name].dataType
    if isinstance(kind, TimestampType):
        return functions.unix_micros(name)
    if isinstance(kind, IntegralType):
        return functions.col(name).cast("long")
    raise ColumnError(
        f"{name} must be a timestamp, or an integer number of microseconds, not {kind.simpleString()}; "
        "nearcast.spark.prepare converts it"
    )
