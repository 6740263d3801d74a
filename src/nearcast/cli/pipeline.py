"""The queries of ``nearcast stream``, and a summary of their work.

Without changes there is one query: each micro-batch is prepared once, its bad rows go to the quarantine, and its good
rows are matched. With changes, :class:`nearcast.spark.Live` has a query of its own, and a second query over the same
messages, with its own checkpoint, writes the quarantine. Each row is judged by itself, so both queries agree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nearcast.cli.endpoints import Sink
from nearcast.cli.monitor import QueryMonitor
from nearcast.columns.from_arrow.renaming import Columns
from nearcast.spark import Live, build, good_rows, prepare, quarantined_rows
from nearcast.spark.columns import rename_columns
from nearcast.spark.matching import OpenVersion
from nearcast.spark.paths import spark_path
from nearcast.spark.session import quietly
from nearcast.storage.current import current

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Pipeline"]


class Pipeline:
    """The queries that turn messages into deliveries.

    Parameters
    ----------
    messages
        A streaming DataFrame.
    write
        A function that gets the deliveries of each micro-batch.
    quarantine
        A function that gets the messages that cannot be used. Without it, messages are taken as they are, and one that
        cannot be used stops the stream.
    checkpoint
        The directory in which Spark records its progress.
    home
        Where the index of the subscriptions, or their state if they change, is kept: storage that the driver and every
        worker see.
    trigger
        The arguments of Spark's ``trigger``.
    name
        The name of the query, if it has one.
    columns
        The names that messages have for our columns (:mod:`nearcast.columns.from_arrow.renaming`).
    """

    def __init__(
        self,
        messages: DataFrame,
        *,
        write: Sink,
        quarantine: Sink | None,
        checkpoint: str,
        home: str,
        trigger: Mapping[str, Any],
        columns: Columns,
        name: str | None = None,
    ) -> None:
        if quarantine is None:
            self._messages, _ = rename_columns(columns, messages=messages)
        else:
            self._messages = prepare(messages, "messages", columns=columns)
        self._write, self._quarantine = write, quarantine
        self._checkpoint, self._home, self._trigger, self._name = checkpoint, home, trigger, name
        self._deliveries, self._bad = 0, 0
        self._live: Live | None = None
        self._refused = 0  # records of change, before this start
        self._started = time.perf_counter()
        self.queries: list[QueryMonitor] = []

    def match(self, subscriptions: DataFrame | str) -> None:
        """Start the query for fixed subscriptions, or for an index of them."""
        if not isinstance(subscriptions, str):
            subscriptions = os.fspath(build(subscriptions, f"{self._home}/index"))
        # For as long as the query runs, whatever is built meanwhile.
        index = OpenVersion(current(subscriptions))
        good = self._messages if self._quarantine is None else good_rows(self._messages)
        deliveries = index.match(good)  # raises now if columns are missing

        def matched(frame: DataFrame, number: int) -> None:
            self._deliveries += self._write(frame, number)

        def prepared(frame: DataFrame, number: int) -> None:
            frame = frame.persist()
            try:
                self._set_aside(quarantined_rows(frame), number)
                matched(index.match(good_rows(frame)), number)
            finally:
                frame.unpersist()

        if self._quarantine is None:
            self._start(deliveries, matched, self._checkpoint, self._name)
        else:
            self._start(self._messages, prepared, self._checkpoint, self._name)

    def live(self, subscriptions: DataFrame, changes: DataFrame, *, shards: int, distribution: str) -> None:
        """Start the query for subscriptions that change."""
        live = Live(f"{self._home}/live", subscriptions, shards=shards, distribution=distribution)
        self._live, self._refused = live, live.refused_records

        def deliver(frame: DataFrame, number: int) -> None:
            self._deliveries += self._write(frame, number)

        good = self._messages if self._quarantine is None else good_rows(self._messages)
        where = spark_path(self._checkpoint)
        query = live.start(good, changes, deliver, checkpoint=where, query_name=self._name, **self._trigger)
        self.queries.append(QueryMonitor(query))
        if self._quarantine is not None:
            beside = f"{self._checkpoint}/quarantine-query"
            name = self._name and f"{self._name} quarantine"
            self._start(quarantined_rows(self._messages), self._set_aside, beside, name)

    def _set_aside(self, frame: DataFrame, number: int) -> None:
        assert self._quarantine is not None
        self._bad += self._quarantine(frame, number)

    def _start(self, frame: DataFrame, work: Any, checkpoint: str, name: str | None) -> None:
        with quietly():
            writer = frame.writeStream.foreachBatch(work).trigger(**self._trigger)
            if name is not None:
                writer = writer.queryName(name)
            query: StreamingQuery = writer.option("checkpointLocation", spark_path(checkpoint)).start()
        self.queries.append(QueryMonitor(query))

    def summary(self) -> dict[str, Any]:
        """Return the counts since the start."""
        main = self.queries[0]
        summary = {
            "messages": main.read(0),
            "deliveries": self._deliveries,
            "quarantined": self._bad,
            "batches": main.batches,
            "seconds": round(time.perf_counter() - self._started, 3),
        }
        if self._live is not None:
            summary |= {"changes": main.read(1), "refused": self._live.refused_records - self._refused}
        return summary
