"""The demonstration on the sample data: a stream of messages, matched on local Spark, that ends and is summarised."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nearcast import config
from nearcast.demo import sample, write_report
from nearcast.demo.output import empty_output
from nearcast.errors import NearcastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["LATENCY", "Progress", "Summary", "run"]

LATENCY = "per message, from the start of its micro-batch to the commit of its deliveries"


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the stream."""

    batches: int
    messages: int
    total: int
    deliveries: int

    @property
    def share(self) -> float:
        """The share of the messages that is done."""
        return self.messages / self.total


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a run; times are in seconds."""

    messages: int
    subscriptions: int
    deliveries: int
    subscriptions_reached: int
    batches: int
    seconds: float  # of all micro-batches
    messages_per_second: float
    latency_p50: float
    latency_p95: float
    latency_p99: float
    deliveries_path: str
    report_path: str

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain values, for JSON."""
        return {**asdict(self), "latency_is": LATENCY}


def run(
    spark: SparkSession, output: Path, tell: Callable[[Progress], None] = lambda progress: None
) -> Summary:
    """Match the sample messages as a stream, write the deliveries and the report to *output*, and return a summary.

    The directory *output* is created, or replaced if an earlier run created it; any other directory that is not empty
    is refused. In the end it holds ``messages/`` and ``subscriptions.parquet`` (the sample data), ``deliveries/``
    (Parquet), ``report.html``, and the state of the stream: ``index/`` and ``checkpoint/``.
    """
    output = output.resolve()
    empty_output(output)
    messages, subscriptions, places = sample("messages"), sample("subscriptions"), sample("places")
    pq.write_table(subscriptions, output / "subscriptions.parquet")
    _stage(messages, output / "messages")
    query = _start(spark, output)
    batches = _finish(query, len(messages), tell)
    summary = _summed_up(batches, messages, subscriptions, output)
    write_report(
        summary.report_path,
        messages=messages,
        subscriptions=subscriptions,
        deliveries=_deliveries(output),
        summary=_cards(summary),
        places=places,
    )
    return summary


def _stage(messages: pa.Table, directory: Path) -> None:
    """Write the messages to files in the order of their times; Spark reads files by age, so the ages follow."""
    directory.mkdir()
    ordered = messages.sort_by("published_at")
    for number, rows in enumerate(np.array_split(np.arange(len(ordered)), config.DEMO_FILES)):
        part = ordered.take(pa.array(rows))
        file = directory / f"{number:02}.parquet"
        pq.write_table(part, file)
        os.utime(file, (number, part["published_at"][-1].as_py().timestamp()))


def _start(spark: SparkSession, output: Path) -> StreamingQuery:
    """Start the stream: one file per micro-batch, deliveries as Parquet, and an end when all files are done."""
    from pyspark.sql import functions

    from nearcast.spark import build, match

    index = build(spark.read.parquet(str(output / "subscriptions.parquet")), output / "index")
    staged = spark.read.parquet(str(output / "messages"))
    # Python workers start, and load the kernels, with the first batch that they get. Let that not be one of the stream.
    match(staged.limit(1), index).collect()
    files = spark.readStream.schema(staged.schema).option("maxFilesPerTrigger", 1)
    stream = files.parquet(str(output / "messages"))
    return (
        match(stream, index)
        .observe("deliveries", functions.count("*").alias("count"))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(output / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(output / "deliveries"))
    )


def _finish(
    query: StreamingQuery, total: int, tell: Callable[[Progress], None]
) -> list[tuple[int, float, int]]:
    """Wait for the end and report progress; return (messages, seconds, deliveries) of each micro-batch."""
    from pyspark.errors import PySparkException

    ended: bool | None = False
    try:
        while not ended:
            ended = query.awaitTermination(config.DEMO_POLL_SECONDS)
            batches = [
                (
                    progress["numInputRows"],
                    progress["durationMs"]["triggerExecution"] / 1000,
                    progress["observedMetrics"]["deliveries"]["count"],
                )
                for progress in query.recentProgress
                if progress["numInputRows"]
            ]
            messages, _, deliveries = map(sum, zip(*batches)) if batches else (0, 0, 0)
            tell(Progress(len(batches), int(messages), total, int(deliveries)))
    except PySparkException as error:
        raise NearcastError(f"the stream failed: {_reason(error)}") from error
    finally:
        query.stop()
    return batches


def _reason(error: Exception) -> str:
    """Return the line that says what went wrong: our own, if it was raised in a worker, else the first one."""
    lines = str(error).splitlines()
    ours = (line.partition(": ")[2] for line in lines if line.strip().startswith("nearcast.errors."))
    return next(ours, lines[0] if lines else type(error).__name__)


def _summed_up(
    batches: list[tuple[int, float, int]], messages: pa.Table, subscriptions: pa.Table, output: Path
) -> Summary:
    rows, seconds, _ = (np.array(column) for column in zip(*batches))
    p50, p95, p99 = np.quantile(np.repeat(seconds, rows), [0.5, 0.95, 0.99], method="inverted_cdf")
    deliveries = _deliveries(output)
    return Summary(
        messages=int(rows.sum()),
        subscriptions=len(subscriptions),
        deliveries=len(deliveries),
        subscriptions_reached=pc.count_distinct(deliveries["subscription_id"]).as_py(),
        batches=len(batches),
        seconds=round(float(seconds.sum()), 3),
        messages_per_second=round(float(rows.sum() / seconds.sum()), 1),
        latency_p50=float(p50),
        latency_p95=float(p95),
        latency_p99=float(p99),
        deliveries_path=str(output / "deliveries"),
        report_path=str(output / "report.html"),
    )


def _deliveries(output: Path) -> pa.Table:
    return pq.read_table(output / "deliveries", columns=["message_id", "subscription_id"])


def _cards(summary: Summary) -> dict[str, str | float | int]:
    """Return the figures at the top of the report."""
    return {
        "messages": summary.messages,
        "deliveries": summary.deliveries,
        "subscriptions": summary.subscriptions,
        "subscriptions reached": summary.subscriptions_reached,
        "messages/s": round(summary.messages_per_second),
        "latency p50": f"{summary.latency_p50:.2f} s",
        "latency p95": f"{summary.latency_p95:.2f} s",
        "latency p99": f"{summary.latency_p99:.2f} s",
    }
