"""The queries of ``nearcast stream``, and a summary of their work.

Without changes there is one query: each micro-batch is prepared once, its bad rows go to the quarantine, and its good
rows are matched. With changes, :class:`nearcast.spark.Live` has a query of its own, and a second query over the same
messages, with its own checkpoint, writes the quarantine. Each row is judged by itself, so both queries agree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.cli.endpoints import Sink
from nearcast.cli.monitor import QueryMonitor
from nearcast.spark import Live, build, good_rows, match, prepare, quarantined_rows
from nearcast.spark.session import quietly

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
        The directory in which Spark records its progress; everything else that belongs to the stream is there, too.
    trigger
        The arguments of Spark's ``trigger``.
    """

    def __init__(
        self,
        messages: DataFrame,
        *,
        write: Sink,
        quarantine: Sink | None,
        checkpoint: str,
        trigger: Mapping[str, Any],
    ) -> None:
        self._messages = messages if quarantine is None else prepare(messages, "messages")
        self._write, self._quarantine = write, quarantine
        self._checkpoint, self._trigger = checkpoint, trigger
        self._deliveries: dict[int, int] = {}  # by the number of the micro-batch
        self._bad: dict[int, int] = {}
        self._live: Live | None = None
        self._refused = 0  # records of change, before this start
        self._started = time.perf_counter()
        self.queries: list[QueryMonitor] = []

    def match(self, subscriptions: DataFrame | str) -> None:
        """Start the query for fixed subscriptions, or for an index of them."""
        if not isinstance(subscriptions, str):
            # Workers of a cluster that see the checkpoint see the index, too.
            home = None if "://" in self._checkpoint else Path(self._checkpoint, "index")
            subscriptions = os.fspath(build(subscriptions, home))
        index = subscriptions
        good = self._messages if self._quarantine is None else good_rows(self._messages)
        deliveries = match(good, index)  # raises now if columns are missing

        def matched(frame: DataFrame, number: int) -> None:
            self._deliveries[number] = self._write(frame, number)

        def prepared(frame: DataFrame, number: int) -> None:
            frame = frame.persist()
            try:
                self._set_aside(quarantined_rows(frame), number)
                matched(match(good_rows(frame), index), number)
            finally:
                frame.unpersist()

        if self._quarantine is None:
            self._start(deliveries, matched, self._checkpoint)
        else:
            self._start(self._messages, prepared, self._checkpoint)

    def live(self, subscriptions: DataFrame, changes: DataFrame) -> None:
        """Start the query for subscriptions that change."""
        home = Path(self._checkpoint, "live")
        live = Live(home, subscriptions)
        self._live, self._refused = live, live.refused_records

        def deliver(frame: DataFrame, number: int) -> None:
            self._deliveries[number] = self._write(frame, number)

        good = self._messages if self._quarantine is None else good_rows(self._messages)
        self.queries.append(
            QueryMonitor(live.start(good, changes, deliver, checkpoint=self._checkpoint, **self._trigger))
        )
        if self._quarantine is not None:
            beside = str(Path(self._checkpoint, "quarantine-query"))
            self._start(quarantined_rows(self._messages), self._set_aside, beside)

    def _set_aside(self, frame: DataFrame, number: int) -> None:
        assert self._quarantine is not None
        self._bad[number] = self._quarantine(frame, number)

    def _start(self, frame: DataFrame, work: Any, checkpoint: str) -> None:
        with quietly():
            writer = frame.writeStream.foreachBatch(work).trigger(**self._trigger)
            query: StreamingQuery = writer.option("checkpointLocation", checkpoint).start()
        self.queries.append(QueryMonitor(query))

    def summary(self) -> dict[str, Any]:
        """Return the counts since the start."""
        main = self.queries[0]
        summary = {
            "messages": main.read(0),
            "deliveries": sum(self._deliveries.values()),
            "quarantined": sum(self._bad.values()),
            "batches": main.batches,
            "seconds": round(time.perf_counter() - self._started, 3),
        }
        if self._live is not None:
            summary |= {"changes": main.read(1), "refused": self._live.refused_records - self._refused}
        return summary
