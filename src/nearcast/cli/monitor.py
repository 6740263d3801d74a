"""Following streaming queries until they end, or until a signal asks the command to stop."""

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

__all__ = ["QueryMonitor", "follow", "stop_on_signal"]


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGINT set, instead of ending the process.

    After the first, all later ones are ignored until the process ends: an impatient second Ctrl-C must not turn an
    orderly end into an error, whether it comes before or after the summary.
    """
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if stop.is_set() else handler)


class QueryMonitor:
    """A streaming query, the rows that it has read since it was started, and how it ended."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self.batches = 0  # micro-batches that had something to read
        self._rows: tuple[int, ...] = ()  # of each source
        self._last = -1  # the last micro-batch that is among them
        self._asked: tuple[float, int] | None = None  # when it was asked to stop, and after which micro-batch
        self._stopped = False

    def read(self, source: int) -> int:
        """Return the number of rows of a source, given its position in the query."""
        return self._rows[source] if self._rows else 0

    def look(self, stop: bool) -> bool:
        """Record progress; with *stop*, stop between two micro-batches. Return whether the query is still running."""
        active = self._query.isActive  # asked first: a query reports its last progress before it ends
        for progress in self._query.recentProgress:
            rows, number = (
                [int(source["numInputRows"]) for source in progress["sources"]],
                int(progress["batchId"]),
            )
            if any(rows) and number > self._last:  # a query shows its last hundred again
                self._rows = tuple(map(sum, zip(self._rows or (0,) * len(rows), rows)))
                self.batches, self._last = self.batches + 1, number
        if not active:
            return False
        if stop:
            self._asked = self._asked or (time.perf_counter(), self._last)
            waited = time.perf_counter() - self._asked[0] > config.CLI_DRAIN_SECONDS
            if waited or self._last > self._asked[1] or not self._query.status["isTriggerActive"]:
                self.stop()
        return True

    def stop(self) -> None:
        """Stop the query now; a micro-batch that is interrupted is repeated at the next start."""
        self._stopped = True
        self._query.stop()

    def failure(self) -> str | None:
        """Return the error that ended the query, if one did; stopping it is not an error."""
        error = None if self._stopped else self._query.exception()
        return None if error is None else str(error)


def follow(queries: Sequence[QueryMonitor], stop: threading.Event, show: Callable[[], None]) -> str | None:
    """Follow queries until all have ended; if one fails, stop the others and return its error."""
    while [query for query in queries if query.look(stop.is_set())]:
        show()
        if failure := _failure(queries):
            for query in queries:
                query.stop()
            return failure
        time.sleep(config.CLI_POLL_SECONDS)
    return _failure(queries)


def _failure(queries: Sequence[QueryMonitor]) -> str | None:
    return next((failure for query in queries if (failure := query.failure())), None)
