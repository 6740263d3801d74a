"""Messages against subscriptions that change while they flow.

Both are streams, read by one query: a micro-batch has messages and records of change, and the changes come first. What
a micro-batch sees is fixed when it is first tried, and written down: which version of the index, which deltas, which
valid messages, which time. A repeat, after any failure, sees the same and delivers the same.

===================  ================================================================================================
``versions/``        sharded versions of the index
``deltas/`` …        what micro-batches changed: :mod:`nearcast.spark.live.deltas`
``states/`` …        what micro-batches see: :mod:`nearcast.spark.live.states`
``valid/``           messages that may still have to be delivered to who comes later: :mod:`nearcast.spark.live.valid`
===================  ================================================================================================

When the deltas have grown, a new version is made of the old one and them, in the background; a later micro-batch begins
with it. What no micro-batch will ask for again is removed.
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
from nearcast.sharding.version import Sharded
from nearcast.spark.columns import map_in_arrow, message_columns, quoted, subscription_columns
from nearcast.spark.deliveries import as_deliveries
from nearcast.spark.live import worker
from nearcast.spark.live.changes import check_columns
from nearcast.spark.live.deltas import Deltas, subscription_schema
from nearcast.spark.live.states import State, States
from nearcast.spark.live.valid import MARKS, ORDER, Seen, ValidMessages
from nearcast.spark.session import quietly
from nearcast.spark.versions import sharded_version, version_name
from nearcast.spark.worker import spark_ids

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Live"]

Write = Callable[["DataFrame", int], None]


class Live:
    """The deliveries of a stream of messages to subscriptions that a stream of changes keeps up to date.

    Opened again with another index, distribution or number of shards, it first makes a version of the subscriptions as
    they are in that form, and goes on with it; a micro-batch that was tried before keeps the version that it saw. The
    deliveries are the same in any form.

    Parameters
    ----------
    home
        Where versions, deltas, states and valid messages are kept: storage that the driver and every worker see under
        the same path. It belongs to one query and its checkpoint.
    subscriptions
        Those to begin with: a batch DataFrame. Only the first start looks at it.
    index, distribution, shards
        As :func:`nearcast.spark.build` takes them.
    valid_messages
        How many messages are kept for subscriptions to come. Of more, those that expire last: the others may be
        dropped, which :meth:`stats` counts.
    clock
        Returns the time in microseconds since 1970 UTC; it decides which messages are still valid.
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
        self._how = {"index": index, "distribution": distribution, "shards": shards}
        self._clock = clock
        self._compacting: threading.Thread | None = None
        self._states, self._deltas = States(self._home), Deltas(self._home)
        self._valid = ValidMessages(self._spark, self._home / "valid", valid_messages)
        if not self._states.numbers():
            self._states.keep(
                -1, State(self._built(_any_region(subscriptions.toArrow())), -1, (), 0, Seen((), 0))
            )
            return
        version, _ = self._states.beginning(self._last())
        if version.rpartition("-")[0] != version_name(**self._how):  # type: ignore[arg-type]
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
        """Start the query: *write* gets the deliveries of each micro-batch, and its number.

        They have the columns of all deliveries, and all are ``+``. The reason is ``publish`` for a new message. For one
        that was still valid when the subscription came or changed, and that it did not match as it was, it is the last
        change of the subscription: ``subscribe``, ``update`` or ``move``. A message that has expired when its
        micro-batch is first tried reaches nobody. One that is published again under its id takes the place of the
        earlier one for those who come later; of several in one micro-batch, the last by ``published_at``, or in the
        order that they are read in, counts.

        A micro-batch that was not finished comes again, with the same number and the same deliveries: *write* keeps
        one copy for each number. *trigger* is what Spark's ``trigger`` takes.
        """
        for name, frame in (("messages", messages), ("changes", changes)):
            if not frame.isStreaming:
                raise InputError(f"{name} must be a streaming DataFrame; read them with spark.readStream")
        version = self._path(self._last().version)
        check_columns(changes.columns, subscription_schema(version).names)
        tell_other_case(messages.columns, Sharded(version).coding.words()[1])
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
                deliveries = self._published(messages, state)
                late = self._joined(number, state)
                write(deliveries if late is None else deliveries.unionByName(late), number)
                self._valid.add(messages, number, state.valid, state.now)
        finally:
            frame.unpersist()
        self._tidy(number, state)
        self._compact_if_grown(state)

    def stats(self) -> dict[str, Any]:
        """Return plain figures, after the last micro-batch that was begun.

        ``version``, the ``deltas`` since and their ``delta_rows``; ``valid_messages`` (counted by a job) in
        ``valid_directories``; messages ``dropped`` for the limit and records ``refused`` since the beginning.
        """
        number, last = self._states.numbers()[-1], self._last()
        seen = self._valid.added(last.valid, number)
        with quietly():
            count = self._valid.count(seen, max(last.now, self._clock()))
        return {
            "batch": number,
            "version": last.version,
            "deltas": len(last.deltas),
            "delta_rows": self._deltas.rows(last.deltas),
            "valid_messages": count,
            "valid_directories": len(seen.segments),
            "dropped": last.valid.dropped,
            "refused": self._deltas.refused(),
        }

    # --- What a micro-batch sees -----------------------------------------------------------------------------------

    def _last(self) -> State:
        state = self._states.read(self._states.numbers()[-1])
        assert state is not None
        return state

    def _advance(self, frame: DataFrame, number: int) -> State:
        """Apply the changes of a micro-batch that is tried for the first time, and write down what it sees."""
        last, before = self._last(), self._states.numbers()[-1]
        if number <= before:
            raise InputError(
                f"{self._home} has seen micro-batch {before}, and now comes {number}, which it does not know: "
                "it belongs to another checkpoint; go on with that one, or begin in another directory"
            )
        now = max(last.now, self._clock())
        version, upto = self._states.beginning(last)
        deltas = tuple(delta for delta in last.deltas if delta > upto)
        records = frame.where("record IS NOT NULL").select("record.*").toArrow()
        if len(records) and self._deltas.apply(records, number, self._path(version), deltas):
            deltas += (number,)
        with quietly():
            seen = self._valid.after(last.valid, before, now)
        return self._states.keep(number, State(version, upto, deltas, now, seen))

    def _path(self, version: str) -> Path:
        return self._home / "versions" / version

    # --- Deliveries ------------------------------------------------------------------------------------------------

    def _published(self, messages: DataFrame, state: State) -> DataFrame:
        """Return the deliveries of the micro-batch's own messages."""
        version = str(self._path(state.version))
        deltas = [str(path) for path in self._deltas.paths(state.deltas)]
        if "expires_at" in messages.columns:
            messages = messages.where(f"expires_at IS NULL OR expires_at > {state.now}")
        needed = messages.drop(*TIMES)
        shards = Sharded(version).distribution.shards
        sent = map_in_arrow(needed, worker.sending(version, deltas), worker.sent_schema(needed.schema))
        divided = sent.repartitionById(shards, worker.SHARD) if shards > 1 else sent
        schema = "subscription_id {}, message_id {}".format(*self._id_types(needed, state))
        return as_deliveries(map_in_arrow(divided, worker.delivering(version, deltas), schema))

    def _joined(self, number: int, state: State) -> DataFrame | None:
        """Return what subscriptions that came or changed in this micro-batch receive of messages before it."""
        if number not in state.deltas:
            return None
        rows = self._deltas.there(number)
        boxes = subscriptions_of(rows, Coding.new()).clauses.boxes
        near = self._valid.near(state.valid, boxes, state.now)
        if near is None:
            return None
        files = [str(*self._deltas.paths([number], part)) for part in ("deltas", "before")]
        schema = "subscription_id {}, reason string, message_id {}".format(*self._id_types(near, state))
        schema += "".join(f", {name} long" for name in ORDER)
        found = map_in_arrow(near.drop(*(set(MARKS) - set(ORDER))), worker.joining(*files), schema)
        return as_deliveries(self._valid.latest(found, state.valid, "message_id"))

    def _id_types(self, messages: DataFrame, state: State) -> tuple[str, str]:
        """Return the types of the ids of subscriptions and of messages, as Spark calls them."""
        ids = subscription_schema(self._path(state.version)).field("id").type
        told = from_arrow_type(spark_ids(pa.array([], ids)).type).simpleString()
        return told, messages.schema["id"].dataType.simpleString()

    # --- Upkeep ----------------------------------------------------------------------------------------------------

    def _tidy(self, number: int, state: State) -> None:
        """Remove what no micro-batch will ask for again: this one may come again, those before it will not."""
        self._states.forget(number - 1)
        kept = [there for at in self._states.numbers() if (there := self._states.read(at)) is not None]
        self._deltas.forget(min(there.upto for there in kept))
        self._valid.tidy({name for there in kept for name in there.valid.segments}, number)
        if self._compacting is None or not self._compacting.is_alive():  # else a version is about to be named
            needed = self._states.versions()
            for path in (self._home / "versions").iterdir():
                if path.name not in needed:
                    shutil.rmtree(path)

    def _compact_if_grown(self, state: State) -> None:
        """Make a new version in the background, when the deltas are a part of the version that counts."""
        if self._states.beginning(state) != (state.version, state.upto):
            return
        if self._compacting is not None and self._compacting.is_alive():
            return
        rows = self._deltas.rows(state.deltas)
        whole = len(Sharded(self._path(state.version)))
        if rows > max(config.LIVE_DELTA_ROWS, config.LIVE_DELTA_SHARE * whole):
            self._compacting = threading.Thread(target=self._compact, args=(state,), daemon=True)
            self._compacting.start()

    def _compact(self, state: State) -> None:
        """Make a version of a version and the deltas since."""
        rows = self._deltas.subscriptions(self._path(state.version), state.deltas)
        self._states.begin_with(self._built(rows), max(state.deltas, default=state.upto))

    def _built(self, rows: pa.Table) -> str:
        versions = self._home / "versions"
        return sharded_version(self._spark, rows, versions, sample=None, **self._how).name  # type: ignore[arg-type]


def _any_region(rows: pa.Table) -> pa.Table:
    """Return subscriptions with all columns that a region can be in: one that comes later may have another form."""
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
        f"{name} must be a timestamp, or an integer of microseconds, not {kind.simpleString()}; "
        "nearcast.spark.prepare makes it one"
    )
