"""``nearcast demo``: the sample data from messages to a map, on Spark or with subscribers that move."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearcast.cli import talk

if TYPE_CHECKING:
    from nearcast.demo import moving as moving_day
    from nearcast.demo import pipeline

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
    moving: Annotated[
        bool,
        typer.Option("--moving", help="Show a hundred subscribers on the move instead, without Spark."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Match sample messages on local Spark, and draw the map.

    A day of messages is matched with ten thousand subscriptions, in a stream that ends by itself. The results are
    deliveries in Parquet, and a report with a map that opens offline in a browser. With --moving, a hundred people
    walk, cycle and drive through the same day, in one process, and the map shows what comes into their reach.
    """
    from nearcast.demo.output import check_output

    check_output(output)
    if moving:
        _tell_moving(_run_moving(output), json)
    else:
        _tell_stream(_run_stream(output), json)


def _run_stream(output: Path) -> pipeline.Summary:
    from nearcast.demo import pipeline
    from nearcast.spark import session

    def line(progress: pipeline.Progress) -> str:
        return (
            f"batch {progress.batches}: {progress.messages:,} of {progress.total:,} messages, "
            f"{progress.deliveries:,} deliveries"
        )

    with talk.progress() as show:
        show("starting local Spark", None)
        spark = session("nearcast demo")
        show("starting the stream", None)
        return pipeline.run(spark, output, lambda progress: show(line(progress), progress.share))


def _run_moving(output: Path) -> moving_day.Summary:
    from nearcast.demo import moving as moving_day

    def line(progress: moving_day.Progress) -> str:
        hour, minute = divmod(progress.minute, 60)
        return f"{hour:02}:{minute:02}, {progress.deliveries:,} deliveries"

    with talk.progress() as show:
        show("getting ready", None)
        return moving_day.run(output, lambda progress: show(line(progress), progress.share))


def _tell_stream(summary: pipeline.Summary, json: bool) -> None:
    from nearcast.demo.pipeline import LATENCY

    figures = {
        "messages": f"{summary.messages:,} in {summary.batches} micro-batches",
        "subscriptions": f"{summary.subscriptions:,}",
        "deliveries": f"{summary.deliveries:,}",
        "subscriptions reached": f"{summary.subscriptions_reached:,}",
        "messages/s": f"{summary.messages_per_second:,.0f}",
        "latency p50 / p95 / p99": (
            f"{summary.latency_p50:.2f} s / {summary.latency_p95:.2f} s / {summary.latency_p99:.2f} s"
        ),
    }
    _tell(summary, figures, f"latency: {LATENCY}", json)


def _tell_moving(summary: moving_day.Summary, json: bool) -> None:
    figures = {
        "messages": f"{summary.messages:,}",
        "subscribers": f"{summary.walking} walk, {summary.cycling} cycle, {summary.driving} drive",
        "moves": f"{summary.moves:,} in {summary.steps:,} minutes",
        "came into reach": f"{summary.came_by_move:,} by moving, {summary.came_by_publish:,} when published",
        "went": f"{summary.went_by_move:,} by moving, {summary.went_by_expire:,} expired",
    }
    _tell(summary, figures, None, json)


def _tell(
    summary: pipeline.Summary | moving_day.Summary,
    figures: Mapping[str, str],
    caption: str | None,
    json: bool,
) -> None:
    """Print a summary as JSON; or as a table, with the places of the results in the end."""
    from rich.table import Table

    if json:
        talk.print_json(summary.to_dict())
        return
    table = Table("", "", show_header=False, caption=caption, caption_justify="left")
    for name, figure in figures.items():
        table.add_row(name, figure)
    table.add_row("deliveries (Parquet)", _relative(summary.deliveries_path))
    table.add_row("report (HTML)", _relative(summary.report_path))
    talk.console().print(table)
    talk.tell(f"open {_relative(summary.report_path)} in a browser to see it on a map")


def _relative(path: str) -> str:
    """Return a path as people would type it from the current directory."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
