"""Streaming queries that a command follows until they end, or until it is told to stop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nearcast import config

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Followed", "follow", "told_to_stop"]


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """Give an event that is set by SIGTERM or SIGINT, instead of ending the process."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Followed:
    """A query, what it has read since it was started, and how it ends."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._rows: dict[int, tuple[int, ...]] = {}  # of each micro-batch: what each of its sources had
        self._told: tuple[float, int] | None = None  # when it was told to stop, and after which micro-batch
        self._stopped = False

    @property
    def batches(self) -> int:
        """How many micro-batches had something to read."""
        return len(self._rows)

    def read(self, source: int) -> int:
        """Return how many rows a source had, by its place in the query."""
        return sum(rows[source] for rows in self._rows.values())

    def look(self, stop: bool) -> bool:
        """Note what has happened; where *stop* says so, stop between two micro-batches. Tell whether it goes on."""
        active = self._query.isActive  # first: what a query says last, it says before it ends
        for progress in self._query.recentProgress:
            rows = tuple(int(source["numInputRows"]) for source in progress["sources"])
            if any(rows):
                self._rows[int(progress["batchId"])] = rows
        if not active:
            return False
        if stop:
            last = max(self._rows, default=-1)
            self._told = self._told or (time.perf_counter(), last)
            waited = time.perf_counter() - self._told[0] > config.CLI_DRAIN_SECONDS
            if waited or last > self._told[1] or not self._query.status["isTriggerActive"]:
                self.stop()
        return True

    def stop(self) -> None:
        """Stop it now; a micro-batch that is broken off comes again at the next start."""
        self._stopped = True
        self._query.stop()

    def failure(self) -> str | None:
        """Return the error that ended it, if one did; being stopped is none."""
        error = None if self._stopped else self._query.exception()
        return None if error is None else str(error)


def follow(queries: Sequence[Followed], stop: threading.Event, show: Callable[[], None]) -> str | None:
    """Follow queries until all have ended; when one fails, stop the others, and return its error."""
    while [query for query in queries if query.look(stop.is_set())]:
        show()
        if failure := _failure(queries):
            for query in queries:
                query.stop()
            return failure
        time.sleep(config.CLI_POLL_SECONDS)
    return _failure(queries)


def _failure(queries: Sequence[Followed]) -> str | None:
    return next((failure for query in queries if (failure := query.failure())), None)
