"""``nearcast demo``: the whole pipeline on the sample data, from messages to a map."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearcast.cli import talk

if TYPE_CHECKING:
    from rich.table import Table

    from nearcast.demo.pipeline import Progress, Summary

__all__ = ["demo"]


def demo(
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Where the results go; those of an earlier run are replaced.",
        ),
    ] = Path("nearcast-demo"),
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Match sample messages on local Spark, and draw the map.

    A day of messages is matched with ten thousand subscriptions, in a stream that ends by itself. The results are
    deliveries in Parquet, and a report with a map that opens offline in a browser.
    """
    from nearcast.demo import pipeline
    from nearcast.spark import session

    pipeline.check_output(output)
    with talk.progress() as show:
        show("starting local Spark", None)
        spark = session("nearcast demo")
        show("starting the stream", None)
        summary = pipeline.run(spark, output, lambda progress: show(_line(progress), progress.share))
    if json:
        talk.print_json(summary.to_dict())
    else:
        talk.console().print(_table(summary))
        talk.tell(f"open {_relative(summary.report_path)} in a browser to see it on a map")


def _line(progress: Progress) -> str:
    return (
        f"batch {progress.batches}: {progress.messages:,} of {progress.total:,} messages, "
        f"{progress.deliveries:,} deliveries"
    )


def _table(summary: Summary) -> Table:
    from rich.table import Table

    from nearcast.demo.pipeline import LATENCY

    table = Table("", "", show_header=False, caption=f"latency: {LATENCY}", caption_justify="left")
    for name, figure in (
        ("messages", f"{summary.messages:,} in {summary.batches} micro-batches"),
        ("subscriptions", f"{summary.subscriptions:,}"),
        ("deliveries", f"{summary.deliveries:,}"),
        ("subscriptions reached", f"{summary.subscriptions_reached:,}"),
        ("messages/s", f"{summary.messages_per_second:,.0f}"),
        (
            "latency p50 / p95 / p99",
            f"{summary.latency_p50:.2f} s / {summary.latency_p95:.2f} s / {summary.latency_p99:.2f} s",
        ),
        ("deliveries (Parquet)", _relative(summary.deliveries_path)),
        ("report (HTML)", _relative(summary.report_path)),
    ):
        table.add_row(name, figure)
    return table


def _relative(path: str) -> str:
    """Return a path as people would type it from the current directory."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
