"""The queries behind ``nearcast stream``, and what they have done.

Without changes there is one query: a micro-batch is prepared once, its bad rows go to the quarantine, its good ones are
matched. With changes, :class:`nearcast.spark.Live` has a query of its own, and a second one, over the same messages and
with a checkpoint of its own, writes the quarantine; a row is judged by itself, so both judge alike.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from nearcast.cli.ends import Sink
from nearcast.cli.following import Followed
from nearcast.spark import Live, build, good_rows, match, prepare, quarantined_rows
from nearcast.spark.session import quietly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Pipeline"]


class Pipeline:
    """Messages on their way to deliveries.

    Parameters
    ----------
    messages
        A streaming DataFrame.
    write
        Gets the deliveries of each micro-batch.
    quarantine
        Gets the messages that cannot be used; without it, messages are taken as they are, and such a one stops the
        stream.
    checkpoint
        Where Spark notes what is done; whatever else belongs to the stream is beside it.
    trigger
        As Spark's ``trigger`` takes it.
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
        self._refused: Refused | None = None
        self._started = time.perf_counter()
        self.queries: list[Followed] = []

    def match(self, subscriptions: DataFrame | str) -> None:
        """Start the query over subscriptions, or over an index of them, as they are now."""
        if not isinstance(subscriptions, str):
            # Where workers of a cluster see the checkpoint, they see the index.
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
        """Start the query over subscriptions that change."""
        home = Path(self._checkpoint, "live")
        live = Live(home, subscriptions)
        self._refused = Refused(home / "refused")

        def deliver(frame: DataFrame, number: int) -> None:
            self._deliveries[number] = self._write(frame, number)

        good = self._messages if self._quarantine is None else good_rows(self._messages)
        self.queries.append(
            Followed(live.start(good, changes, deliver, checkpoint=self._checkpoint, **self._trigger))
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
        self.queries.append(Followed(query))

    def summary(self) -> dict[str, Any]:
        """Return what was done since the start."""
        main = self.queries[0]
        summary = {
            "messages": main.read(0),
            "deliveries": sum(self._deliveries.values()),
            "quarantined": sum(self._bad.values()),
            "batches": main.batches,
            "seconds": round(time.perf_counter() - self._started, 3),
        }
        if self._refused is not None:
            summary |= {"changes": main.read(1), "refused": self._refused.count()}
        return summary


class Refused:
    """How many records of change :class:`nearcast.spark.Live` refuses from now on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rows = dict.fromkeys(self._files(), 0)

    def _files(self) -> list[Path]:
        return list(self._directory.glob("*.parquet"))

    def count(self) -> int:
        """Return how many there are by now."""
        for file in self._files():
            if file not in self._rows:
                self._rows[file] = pq.read_metadata(file).num_rows
        return sum(self._rows.values())
