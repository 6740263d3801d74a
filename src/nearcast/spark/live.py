"""Messages against subscriptions that change while they flow.

Both are streams, read by one query: a micro-batch has messages and records of change, and the changes come first. What
a micro-batch sees is fixed when it is first tried, and written down: which version of the index, which deltas, which
time. A repeat, after any failure, sees the same and delivers the same.

===================  ================================================================================================
``versions/``        sharded versions of the index
``deltas/``          a Parquet file for each micro-batch that changed subscriptions; ``before/`` has how they were
``states/``          a JSON file for each micro-batch: the version, the deltas since, the time
``valid/``           the messages of a micro-batch that may still have to be delivered to somebody who comes later
``refused/``         records of change that could not be applied, with the reason
``ready.json``       the newest version, and the last micro-batch whose changes it has
===================  ================================================================================================

When the deltas have grown, a new version is made of the old one and them, in the background; a later micro-batch begins
with it.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions
from pyspark.sql.pandas.types import from_arrow_type

from nearcast import config
from nearcast.errors import InputError
from nearcast.replica import PUT, Router
from nearcast.sharded import ROW, SHARDS, SUBSCRIPTIONS, Sharded
from nearcast.spark import live_worker
from nearcast.spark.changes import check_columns, resolved
from nearcast.spark.columns import message_columns, require_id
from nearcast.spark.session import quietly
from nearcast.spark.versions import sharded_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Live"]

Write = Callable[["DataFrame", int], None]


class State(NamedTuple):
    """What a micro-batch sees."""

    version: str
    upto: int  # the last micro-batch whose changes are in the version
    deltas: tuple[int, ...]  # micro-batches with changes since
    now: int  # microseconds


class Live:
    """The deliveries of a stream of messages to subscriptions that a stream of changes keeps up to date.

    Parameters
    ----------
    home
        Where versions, deltas and states are kept: storage that the driver and every worker see under the same path.
        It belongs to one query and its checkpoint.
    subscriptions
        Those to begin with: a batch DataFrame. Only the first start looks at it.
    index, distribution, shards
        As :func:`nearcast.spark.build` takes them.
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
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        require_id(subscriptions.columns, "subscriptions")
        self._home = Path(home).absolute()
        self._spark: SparkSession = subscriptions.sparkSession
        self._how = {"index": index, "distribution": distribution, "shards": shards}
        self._clock = clock
        self._compacting: threading.Thread | None = None
        for name in ("deltas", "before", "states", "valid", "refused"):
            (self._home / name).mkdir(parents=True, exist_ok=True)
        if not self._states():
            version = self._built(subscriptions.toArrow())
            self._keep(-1, State(version, -1, (), 0))

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

        The deliveries have ``message_id``, ``subscription_id`` and ``reason``: ``publish`` for those of a new message,
        ``subscribe`` for a message that was still valid when the subscription came or changed. A micro-batch that was
        not finished comes again, with the same number and the same deliveries: *write* keeps one copy for each number.
        *trigger* is what Spark's ``trigger`` takes.
        """
        for name, frame in (("messages", messages), ("changes", changes)):
            if not frame.isStreaming:
                raise InputError(f"{name} must be a streaming DataFrame; read them with spark.readStream")
        check_columns(changes.columns)
        times = [name for name in ("expires_at",) if name in messages.columns]
        needed = message_columns(messages).columns
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
            state = self._read(number) or self._advance(frame, number)
            messages = frame.where("message IS NOT NULL").select("message.*")
            with quietly():
                deliveries = self._published(messages, state)
                late = self._joined(number, state)
                write(deliveries if late is None else deliveries.unionByName(late), number)
                self._remember(messages, number, state)
        finally:
            frame.unpersist()
        self._tidy(number, state)
        self._compact_if_grown(state)

    # --- What a micro-batch sees -----------------------------------------------------------------------------------

    def _advance(self, frame: DataFrame, number: int) -> State:
        """Apply the changes of a micro-batch that is tried for the first time, and write down what it sees."""
        last = self._read(max(self._states()))
        assert last is not None
        version, upto = self._ready(last)
        deltas = tuple(delta for delta in last.deltas if delta > upto)
        records = frame.where("record IS NOT NULL").select("record.*").toArrow()
        if len(records) and self._apply(records, number, Sharded(version), deltas):
            deltas += (number,)
        return self._keep(number, State(version, upto, deltas, max(last.now, self._clock())))

    def _apply(self, records: pa.Table, number: int, version: Sharded, deltas: Sequence[int]) -> bool:
        """Write the delta that records come to; tell whether anything changed."""
        path = version.directory / SUBSCRIPTIONS
        schema = pa.schema([field for field in pq.read_schema(path) if field.name not in (ROW, SHARDS)])
        done = resolved(
            records, schema.remove_metadata(), lambda ids: self._current(ids, path, schema, deltas)
        )
        if len(done.refused):
            _write(done.refused, self._home / "refused" / f"{number:012}.parquet")
        if not len(done.delta):
            return False
        router = Router(version)
        router.reach(self._paths(deltas))
        there = done.delta.filter(done.delta[PUT])
        stored = router.admit(there)
        lists = pa.ListArray.from_arrays(stored.offsets.astype("int32"), stored.shards)
        spread = pa.array(
            [
                None if not put else at
                for put, at in zip(done.delta[PUT].to_pylist(), _running(done.delta[PUT]))
            ],
            pa.int64(),
        )
        _write(done.before, self._home / "before" / f"{number:012}.parquet")
        _write(
            done.delta.append_column(SHARDS, lists.take(spread)),
            self._home / "deltas" / f"{number:012}.parquet",
        )
        return True

    def _current(
        self, ids: list[Any], path: Path, schema: pa.Schema, deltas: Sequence[int]
    ) -> dict[Any, dict[str, Any]]:
        """Return the subscriptions of these ids, as they are before the micro-batch."""
        wanted = pa.array(ids, schema.field("id").type)
        found: dict[Any, dict[str, Any]] = {}
        chosen = pc.field("id").isin(wanted)
        for row in pq.read_table(path, filters=chosen, columns=schema.names).to_pylist():
            found[row["id"]] = row
        for delta in self._paths(deltas):
            for row in pq.read_table(delta, filters=chosen).to_pylist():
                if row.pop(PUT):
                    found[row["id"]] = {name: row[name] for name in schema.names}
                else:
                    found.pop(row["id"], None)
        return found

    def _paths(self, deltas: Sequence[int]) -> list[Path]:
        return [self._home / "deltas" / f"{delta:012}.parquet" for delta in deltas]

    def _states(self) -> list[int]:
        return [int(file.stem) for file in (self._home / "states").glob("*.json")]

    def _read(self, number: int) -> State | None:
        try:
            written = json.loads((self._home / "states" / f"{number:012}.json").read_bytes())
        except FileNotFoundError:
            return None
        version = str(self._home / "versions" / written["version"])
        return State(version, written["upto"], tuple(written["deltas"]), written["now"])

    def _keep(self, number: int, state: State) -> State:
        document = state._asdict() | {"version": Path(state.version).name}
        _write_json(document, self._home / "states" / f"{number:012}.json")
        return state

    # --- Deliveries ------------------------------------------------------------------------------------------------

    def _published(self, messages: DataFrame, state: State) -> DataFrame:
        """Return the deliveries of the micro-batch's own messages."""
        version = Sharded(state.version)
        deltas = [str(path) for path in self._paths(state.deltas)]
        needed = messages.drop("expires_at")
        schema = self._schema(needed, version)
        shards = version.distribution.shards
        sent = needed.mapInArrow(
            live_worker.sending(state.version, deltas), live_worker.sent_schema(needed.schema)
        )
        divided = sent.repartitionById(shards, live_worker.SHARD) if shards > 1 else sent
        return divided.mapInArrow(live_worker.delivering(state.version, deltas), schema)

    def _joined(self, number: int, state: State) -> DataFrame | None:
        """Return what subscriptions that came or changed in this micro-batch receive of messages before it."""
        if number not in state.deltas:
            return None
        kept = [path for path in sorted((self._home / "valid").iterdir()) if int(path.name) < number]
        if not kept:
            return None
        frames = [self._spark.read.parquet(str(path)) for path in kept]
        valid = frames[0]
        for more in frames[1:]:
            valid = valid.unionByName(more, allowMissingColumns=True)
        valid = valid.where(functions.unix_micros("expires_at") > state.now).drop("expires_at")
        files = [str(self._home / part / f"{number:012}.parquet") for part in ("deltas", "before")]
        return valid.mapInArrow(live_worker.joining(*files), self._schema(valid, Sharded(state.version)))

    def _schema(self, messages: DataFrame, version: Sharded) -> str:
        from nearcast.spark.worker import spark_ids

        kind = messages.schema["id"].dataType.simpleString()
        ids = from_arrow_type(spark_ids(version.ids.slice(0, 0)).type).simpleString()
        return f"message_id {kind}, subscription_id {ids}, reason string"

    def _remember(self, messages: DataFrame, number: int, state: State) -> None:
        """Keep the messages that stay valid for a while."""
        if "expires_at" in messages.columns:
            valid = messages.where(functions.unix_micros("expires_at") > state.now)
            valid.write.mode("overwrite").parquet(str(self._home / "valid" / f"{number:012}"))

    # --- Upkeep ----------------------------------------------------------------------------------------------------

    def _tidy(self, number: int, state: State) -> None:
        """Remove what no micro-batch will ask for again: this one may come again, those before it will not."""
        last = self._read(number - 1)
        for file in (self._home / "states").glob("*.json"):
            if int(file.stem) < number - 1:
                file.unlink()
        for part in ("deltas", "before"):
            for file in (self._home / part).glob("*.parquet"):
                if last is not None and int(file.stem) <= min(last.upto, state.upto):
                    file.unlink()
        for path in (self._home / "valid").iterdir():
            if int(path.name) < number and last is not None and _expired(path, last.now):
                shutil.rmtree(path)

    def _compact_if_grown(self, state: State) -> None:
        """Make a new version in the background, when the deltas are a part of the version that counts."""
        if self._ready(state) != (state.version, state.upto):
            return
        if self._compacting is not None and self._compacting.is_alive():
            return
        rows = sum(pq.read_metadata(path).num_rows for path in self._paths(state.deltas))
        if rows > max(config.LIVE_DELTA_ROWS, config.LIVE_DELTA_SHARE * len(Sharded(state.version))):
            self._compacting = threading.Thread(target=self._compact, args=(state,), daemon=True)
            self._compacting.start()

    def _compact(self, state: State) -> None:
        """Make a version of a version and the deltas since."""
        path = Path(state.version) / SUBSCRIPTIONS
        schema = pa.schema([field for field in pq.read_schema(path) if field.name not in (ROW, SHARDS)])
        rows = pq.read_table(path, columns=schema.names)
        for file in self._paths(state.deltas):
            delta = pq.read_table(file)
            rows = rows.filter(pc.invert(pc.is_in(rows["id"], delta["id"].combine_chunks())))
            rows = pa.concat_tables([rows, delta.filter(delta[PUT]).select(schema.names).cast(rows.schema)])
        ready = {"version": Path(self._built(rows)).name, "upto": max(state.deltas)}
        _write_json(ready, self._home / "ready.json")

    def _ready(self, last: State) -> tuple[str, int]:
        """Return the version to begin with: that of the last micro-batch, or one that is ready to take its place."""
        try:
            ready = json.loads((self._home / "ready.json").read_bytes())
        except FileNotFoundError:
            return last.version, last.upto
        if ready["upto"] <= last.upto:
            return last.version, last.upto
        return str(self._home / "versions" / ready["version"]), ready["upto"]

    def _built(self, rows: pa.Table) -> str:
        return str(sharded_version(self._spark, rows, self._home / "versions", sample=None, **self._how))  # type: ignore[arg-type]


def _running(flags: pa.ChunkedArray) -> list[int]:
    """Return how many are set before each."""
    counts, count = [], 0
    for flag in flags.to_pylist():
        counts.append(count)
        count += flag
    return counts


def _write(table: pa.Table, path: Path) -> None:
    """Write a file that appears whole."""
    draft = path.with_suffix(f".{uuid.uuid4().hex}")
    pq.write_table(table, draft)
    draft.replace(path)


def _write_json(document: dict[str, Any], path: Path) -> None:
    """Write a file that appears whole."""
    draft = path.with_suffix(f".{uuid.uuid4().hex}")
    draft.write_text(json.dumps(document), encoding="utf-8")
    draft.replace(path)


def _expired(path: Path, now: int) -> bool:
    """Tell whether all messages that were kept there have expired."""
    for file in path.glob("*.parquet"):
        ends = pq.read_table(file, columns=["expires_at"])["expires_at"]
        latest = pc.max(ends.cast(pa.timestamp("us", "UTC")).cast(pa.int64())).as_py()
        if latest is not None and latest > now:
            return False
    return True
