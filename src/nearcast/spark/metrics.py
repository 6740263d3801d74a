"""How many messages were matched, what that took, and how many deliveries it gave: by Spark's ``observe``.

The counts are part of the query itself, so they need no second job, and any listener of the platform sees them under
the names ``nearcast_messages`` and ``nearcast_deliveries``::

    counts = Metrics()
    counts.match(messages, version).write.parquet("deliveries")
    counts.get()  # {"messages": 1000, "deliveries": 9600, "candidates": 14200}

    spark.streams.addListener(MetricsListener(print))  # for every micro-batch of every measured stream
    Metrics().match(arriving, version).writeStream...start()
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation, functions
from pyspark.sql.streaming.listener import StreamingQueryListener

from nearcast.errors import InputError
from nearcast.spark.matching import open_for
from nearcast.spark.worker import CANDIDATES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["DELIVERIES", "MESSAGES", "Metrics", "MetricsListener", "MicroBatch"]

MESSAGES, DELIVERIES = "nearcast_messages", "nearcast_deliveries"  #: the names of the observations


class Metrics:
    """Counts the messages, candidates and deliveries of one query, which :meth:`match` returns.

    A candidate is a clause of a subscription whose box, words and tests fit a message. Circles and polygons have not
    decided yet, and a subscription may have several; where it is stored in several shards, each has its candidates.
    """

    def __init__(self) -> None:
        self._observed: dict[str, Observation] = {}

    def match(
        self, messages: DataFrame, subscriptions: DataFrame | str | os.PathLike[str], **how: Any
    ) -> DataFrame:
        """Do what :func:`nearcast.spark.match` does, and count.

        A query can hold only one measured match: Spark refuses two observations of the same name.
        """
        every = functions.count(functions.lit(1)).alias("messages")
        opened, rows = open_for(self._observe(messages, MESSAGES, every), subscriptions, **how)
        return opened.match(
            rows,
            how.get("keep", ()),
            how.get("keep_subscription", ()),
            observe=lambda found: self._observe(
                found,
                DELIVERIES,
                functions.count("message_id").alias("deliveries"),
                functions.coalesce(functions.sum(CANDIDATES), functions.lit(0)).alias("candidates"),
            ),
        )

    def get(self) -> dict[str, int]:
        """Return the counts of a batch: ``messages``, ``candidates`` and ``deliveries``, as its first action saw them.

        This waits until the action has ended. A task that Spark repeats may be counted again.
        """
        if not self._observed:
            raise InputError(
                "nothing was counted: call match with a batch DataFrame first; streams have a MetricsListener"
            )
        return {key: int(value) for each in self._observed.values() for key, value in each.get.items()}

    def _observe(self, frame: DataFrame, name: str, *counts: Column) -> DataFrame:
        if frame.isStreaming:
            return frame.observe(name, *counts)
        self._observed[name] = Observation(name)
        return frame.observe(self._observed[name], *counts)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one micro-batch of a measured stream did."""

    query: str | None  #: the name of the query (``queryName``), if it has one
    batch: int  #: the number of the micro-batch
    messages: int
    deliveries: int
    candidates: int  #: clauses whose box, words and tests fit, as :class:`Metrics` says
    seconds: float  #: from its trigger to its commit


class MetricsListener(StreamingQueryListener):
    """A listener for ``spark.streams.addListener`` that reports every micro-batch with messages of measured streams.

    *report* is a function of a :class:`MicroBatch`; Spark calls it in a thread of its own, after the commit.
    """

    def __init__(self, report: Callable[[MicroBatch], object]) -> None:
        self._report = report

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  Spark's name
        """Report the counts of a micro-batch, if it has some."""
        progress = event.progress
        observed = progress.observedMetrics
        if MESSAGES in observed and DELIVERIES in observed and observed[MESSAGES]["messages"]:
            self._report(
                MicroBatch(
                    progress.name,
                    progress.batchId,
                    observed[MESSAGES]["messages"],
                    observed[DELIVERIES]["deliveries"],
                    observed[DELIVERIES]["candidates"],
                    progress.batchDuration / 1000,
                )
            )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing."""
