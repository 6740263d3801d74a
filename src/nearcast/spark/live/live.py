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

When there are many deltas, a new version is made in the background from the old one and the deltas; a later micro-batch
starts with it. Files that no micro-batch will need again are removed.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import IntegralType, TimestampType

from nearcast import config
from nearcast.columns.coding import Coding
from nearcast.columns.from_arrow.names import BOX, TIMES, tell_other_case
from nearcast.errors import ColumnError, InputError, shown
from nearcast.sharding.replica import subscriptions_of
from nearcast.sharding.version import ShardedVersion
from nearcast.spark.columns import map_in_arrow, message_columns, quoted, subscription_columns
from nearcast.spark.deliveries import as_deliveries
from nearcast.spark.live import worker
from nearcast.spark.live.changes import check_columns
from nearcast.spark.live.deltas import Deltas, subscription_schema
from nearcast.spark.live.message_store import MARKS, ORDER, Snapshot, ValidMessageStore
from nearcast.spark.live.states import State, States
from nearcast.spark.matching import match_version
from nearcast.spark.session import quietly
from nearcast.spark.versions import ensure_sharded_version, version_name
from nearcast.spark.worker import spark_ids
from nearcast.storage.places import uri_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Live"]

Write = Callable[["DataFrame", int], None]


class Live:
    """A query that delivers a stream of messages to subscriptions that a stream of changes keeps up to date.

    If it is opened again with another index, distribution or number of shards, it first builds the current
    subscriptions in that form, and continues with it; a micro-batch that was tried before keeps the version that it
    saw. The deliveries are the same in any form.

    Parameters
    ----------
    home
        Where versions, deltas, states and valid messages are kept: storage that the driver and every worker see under
        the same path. It belongs to one query and its checkpoint.
    subscriptions
        The first subscriptions: a batch DataFrame. Only the first start reads it.
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
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        subscriptions = subscription_columns(subscriptions)
        if isinstance(valid_messages, bool) or not isinstance(valid_messages, int) or valid_messages < 0:
            raise InputError(f"valid_messages must be a whole number from 0, not {shown(valid_messages)}")
        self._home = Path(home).absolute()
        self._spark: SparkSession = subscriptions.sparkSession
        self._form = {"index": index, "distribution": distribution, "shards": shards}
        self._clock = clock
        self._compacting: threading.Thread | None = None
        self._states, self._deltas = States(self._home), Deltas(self._home)
        self._valid = ValidMessageStore(self._spark, self._home / "valid", valid_messages)
        if not self._states.numbers():
            version = self._build(_with_all_regions(subscriptions.toArrow()))
            self._states.write(-1, State(version, -1, (), 0, Snapshot((), 0)))
            return
        version, _ = self._states.next_version(self._last())
        if version.rpartition("-")[0] != version_name(**self._form):  # type: ignore[arg-type]
            self._compact(self._last())

    # --- The query -------------------------------------------------------------------------------------------------

    def start(
        self,
        messages: DataFrame,
        changes: DataFrame,
        write: Write,
        *,
        checkpoint: str | os.PathLike[str],
        **trigger: Any,
    ) -> StreamingQuery:
        """Start the query; *write* is called with the deliveries of each micro-batch, and its number.

        They have the columns of all deliveries, and ``change`` is always ``+``. The reason is ``publish`` for a new
        message. A subscription that comes or changes also gets the earlier messages that are still valid and that it
        did not match before; their reason is its last change: ``subscribe``, ``update`` or ``move``. A message that has
        expired at the first attempt of its micro-batch is delivered to nobody. For later subscriptions, a message that
        is published again under its id replaces the earlier one; of several in one micro-batch, the last one by
        ``published_at`` counts, or else the last one that was read.

        A micro-batch that did not finish is repeated, with the same number and the same deliveries: *write* must keep
        one copy for each number. *trigger* has the arguments of Spark's ``trigger``.
        """
        for name, frame in (("messages", messages), ("changes", changes)):
            if not frame.isStreaming:
                raise InputError(f"{name} must be a streaming DataFrame; read them with spark.readStream")
        version = self._path(self._last().version)
        check_columns(changes.columns, subscription_schema(version).names)
        tell_other_case(messages.columns, ShardedVersion(version).coding.words()[1])
        needed = map(quoted, message_columns(messages).columns)
        times = [_micros(messages, name).alias(name) for name in TIMES if name in messages.columns]
        sides = {
            "message": messages.select(functions.struct(*needed, *times).alias("message")),
            "record": changes.select(functions.struct("*").alias("record")),
        }
        both = sides["message"].unionByName(sides["record"], allowMissingColumns=True)
        writer = both.writeStream.foreachBatch(lambda frame, number: self.process(frame, number, write))
        if trigger:
            writer = writer.trigger(**trigger)
        with quietly():
            return writer.option("checkpointLocation", os.fspath(checkpoint)).start()

    def process(self, frame: DataFrame, number: int, write: Write) -> None:
        """Deliver one micro-batch."""
        frame = frame.persist()
        try:
            state = self._states.read(number) or self._advance(frame, number)
            messages = frame.where("message IS NOT NULL").select("message.*")
            with quietly():
                deliveries = self._match_published(messages, state)
                late = self._match_earlier(number, state)
                write(deliveries if late is None else deliveries.unionByName(late), number)
                self._valid.add(messages, number, state.valid, state.now)
        finally:
            frame.unpersist()
        self._tidy(number, state)
        self._compact_if_grown(state)

    def stats(self) -> dict[str, Any]:
        """Return plain figures about the last micro-batch that was started.

        They are the number of the ``batch``, its ``version``, the number of later ``deltas`` and their ``delta_rows``,
        the ``valid_messages`` (counted by a job) and the ``valid_directories`` that hold them, and, since the
        beginning, the messages ``dropped`` because of the limit and the records ``refused``.
        """
        number, last = self._states.numbers()[-1], self._last()
        snapshot = self._valid.added(last.valid, number)
        with quietly():
            count = self._valid.count(snapshot, max(last.now, self._clock()))
        return {
            "batch": number,
            "version": last.version,
            "deltas": len(last.deltas),
            "delta_rows": self._deltas.rows(last.deltas),
            "valid_messages": count,
            "valid_directories": len(snapshot.segments),
            "dropped": last.valid.dropped,
            "refused": self._deltas.refused(),
        }

    # --- What a micro-batch sees -----------------------------------------------------------------------------------

    def _last(self) -> State:
        state = self._states.read(self._states.numbers()[-1])
        assert state is not None
        return state

    def _advance(self, frame: DataFrame, number: int) -> State:
        """Apply the changes of a micro-batch at its first attempt; write its state, and return it."""
        last, before = self._last(), self._states.numbers()[-1]
        if number <= before:
            raise InputError(
                f"{self._home} has processed micro-batch {before}, but has no state of micro-batch {number}: it "
                "belongs to another checkpoint; continue with that one, or start in another directory"
            )
        now = max(last.now, self._clock())
        version, upto = self._states.next_version(last)
        deltas = tuple(delta for delta in last.deltas if delta > upto)
        records = frame.where("record IS NOT NULL").select("record.*").toArrow()
        if len(records) and self._deltas.apply(records, number, self._path(version), deltas):
            deltas += (number,)
        with quietly():
            snapshot = self._valid.after(last.valid, before, now)
        return self._states.write(number, State(version, upto, deltas, now, snapshot))

    def _path(self, version: str) -> Path:
        return self._home / "versions" / version

    # --- Deliveries ------------------------------------------------------------------------------------------------

    def _match_published(self, messages: DataFrame, state: State) -> DataFrame:
        """Return the deliveries of the messages of this micro-batch."""
        version = uri_of(self._path(state.version))
        deltas = [uri_of(path) for path in self._deltas.paths(state.deltas)]
        if "expires_at" in messages.columns:
            messages = messages.where(f"expires_at IS NULL OR expires_at > {state.now}")
        return match_version(messages.drop(*TIMES), version, ShardedVersion(version), deltas)

    def _match_earlier(self, number: int, state: State) -> DataFrame | None:
        """Return the deliveries of earlier messages to subscriptions that came or changed in this micro-batch."""
        if number not in state.deltas:
            return None
        rows = self._deltas.subscribed(number)
        boxes = subscriptions_of(rows, Coding.new()).clauses.boxes
        near = self._valid.near(state.valid, boxes, state.now)
        if near is None:
            return None
        files = [uri_of(*self._deltas.paths([number], part)) for part in ("deltas", "before")]
        schema = "subscription_id {}, reason string, message_id {}".format(*self._id_types(near, state))
        schema += "".join(f", {name} long" for name in ORDER)
        found = map_in_arrow(near.drop(*(set(MARKS) - set(ORDER))), worker.joining_stage(*files), schema)
        return as_deliveries(self._valid.latest(found, state.valid, "message_id"))

    def _id_types(self, messages: DataFrame, state: State) -> tuple[str, str]:
        """Return the types of the ids of subscriptions and of messages, as Spark names them."""
        ids = subscription_schema(self._path(state.version)).field("id").type
        subscription_type = from_arrow_type(spark_ids(pa.array([], ids)).type).simpleString()
        return subscription_type, messages.schema["id"].dataType.simpleString()

    # --- Upkeep ----------------------------------------------------------------------------------------------------

    def _tidy(self, number: int, state: State) -> None:
        """Remove files that no micro-batch will need again: this one may be repeated, earlier ones will not."""
        self._states.forget(number - 1)
        kept = [each for at in self._states.numbers() if (each := self._states.read(at)) is not None]
        self._deltas.forget(min(each.upto for each in kept))
        self._valid.tidy({name for each in kept for name in each.valid.segments}, number)
        # While a compaction runs, its version is not named by any state yet.
        if self._compacting is None or not self._compacting.is_alive():
            needed = self._states.versions()
            for path in (self._home / "versions").iterdir():
                if path.name not in needed:
                    shutil.rmtree(path)

    def _compact_if_grown(self, state: State) -> None:
        """Make a new version in the background if the deltas are large in comparison with the version."""
        if self._states.next_version(state) != (state.version, state.upto):
            return
        if self._compacting is not None and self._compacting.is_alive():
            return
        rows = self._deltas.rows(state.deltas)
        whole = len(ShardedVersion(self._path(state.version)))
        if rows > max(config.LIVE_DELTA_ROWS, config.LIVE_DELTA_SHARE * whole):
            self._compacting = threading.Thread(target=self._compact, args=(state,), daemon=True)
            self._compacting.start()

    def _compact(self, state: State) -> None:
        """Make a new version from the version of *state* and its deltas."""
        rows = self._deltas.subscriptions(self._path(state.version), state.deltas)
        self._states.set_next_version(self._build(rows), max(state.deltas, default=state.upto))

    def _build(self, rows: pa.Table) -> str:
        """Build a version in the form of this query; return its name."""
        versions = self._home / "versions"
        frame = self._spark.createDataFrame(rows)
        return ensure_sharded_version(frame, versions, sample=None, **self._form).name  # type: ignore[arg-type]


def _with_all_regions(rows: pa.Table) -> pa.Table:
    """Return subscriptions with all columns of regions: later subscriptions may have regions of another kind."""
    kinds = {"geometry": pa.binary(), **dict.fromkeys(("lon", "lat", "radius_m", *BOX), pa.float64())}
    for name, kind in kinds.items():
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), kind))
    return rows


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
