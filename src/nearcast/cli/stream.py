"""``nearcast stream``: messages that arrive as files, matched until it is told to stop."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast import config
from nearcast.cli import sparked, talk
from nearcast.cli.sparked import Conf, Master, Verbose
from nearcast.errors import InputError, NearcastError, shown

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["stream"]


def stream(
    messages: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGES", help="A directory where Parquet files arrive.", show_default=False
        ),
    ],
    subscriptions: Annotated[
        str,
        typer.Argument(
            metavar="INDEX|SUBSCRIPTIONS",
            help="What nearcast build made, or Parquet of subscriptions.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="Where deliveries go, as Parquet.", show_default=False)
    ],
    checkpoint: Annotated[
        str,
        typer.Option(metavar="DIR", help="What is done is noted here; a restart goes on from it."),
    ],
    trigger: Annotated[
        str,
        typer.Option(metavar="TIME|once", help="A micro-batch so often (500ms, 10s), or all there is, once."),
    ] = "500ms",
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON at the end.")] = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Match messages as they arrive; stop by Ctrl-C or SIGTERM.

    Told to stop, it finishes the micro-batch it is at, and exits with 0. Broken off in any other way, it goes on from
    the checkpoint when it is started again: no delivery is lost, and none is twice in OUTPUT.
    """
    every = _trigger(trigger)
    with _told_to_stop() as stop, talk.progress() as show:
        show("starting Spark", None)
        with sparked.opened("nearcast stream", master, conf, verbose) as spark:
            from nearcast.spark import match
            from nearcast.spark.reading import located

            where = sparked.typed_path(messages, "messages")
            known = spark.read.parquet(where)
            arriving = spark.readStream.schema(known.schema).parquet(where)
            query = (
                match(arriving, sparked.index_or_rows(spark, subscriptions))
                .writeStream.format("parquet")
                .option("checkpointLocation", located(checkpoint))
                .trigger(**every)
                .start(located(output))
            )
            summary = _followed(query, stop, show)
    if json:
        talk.print_json(summary)
    else:
        talk.tell(
            f"{summary['messages']:,} messages in {summary['batches']:,} micro-batches, {summary['seconds']:.1f} s"
        )


def _trigger(written: str) -> dict[str, Any]:
    if written == "once":
        return {"availableNow": True}
    number = re.fullmatch(r"(\d+)\s*(ms|s|min)", written)
    if not number:
        raise InputError(f"--trigger is a time such as 500ms, 10s or 1min, or once, not {shown(written)}")
    unit = {"ms": "milliseconds", "s": "seconds", "min": "minutes"}[number[2]]
    return {"processingTime": f"{number[1]} {unit}"}


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
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


def _followed(query: StreamingQuery, stop: threading.Event, show: Any) -> dict[str, Any]:
    """Show what the query does until it ends, or until it is told to stop and has finished its micro-batch."""
    started = time.perf_counter()
    counted: dict[int, int] = {}  # messages of each micro-batch
    told: tuple[float, int] | None = None  # when it was told to stop, and after which micro-batch

    def note() -> int:
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                counted[int(progress["batchId"])] = int(progress["numInputRows"])
        return max(counted, default=-1)

    while query.isActive:
        last = note()
        show(f"{sum(counted.values()):,} messages in {len(counted):,} micro-batches", None)
        if stop.is_set():
            told = told or (time.perf_counter(), last)
            waited = time.perf_counter() - told[0] > config.CLI_DRAIN_SECONDS
            if waited or last > told[1] or not query.status["isTriggerActive"]:
                query.stop()
        time.sleep(config.CLI_POLL_SECONDS)
    failure = query.exception()
    if failure is not None:
        raise NearcastError(f"the stream failed: {sparked.first_sentence(str(failure))}")
    note()
    return {
        "messages": sum(counted.values()),
        "batches": len(counted),
        "seconds": round(time.perf_counter() - started, 3),
        "stopped": stop.is_set(),
    }
