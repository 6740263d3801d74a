"""``nearcast profile``: count the words, places and attributes of messages and subscriptions on Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast import config
from nearcast.cli import renaming, spark_session, talk
from nearcast.cli.renaming import Rename
from nearcast.cli.spark_session import Conf, Master, Verbose
from nearcast.errors import InputError
from nearcast.storage.apart import keep_apart
from nearcast.storage.places import place_at

if TYPE_CHECKING:
    from rich.table import Table

    from nearcast.spark import Profile

__all__ = ["profile"]


def profile(
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIRECTORY", help="Where versions of the profile are kept.", show_default=False
        ),
    ],
    messages: Annotated[
        str | None, typer.Option(metavar="PATH", help="Messages to count: Parquet, or the output of prepare.")
    ] = None,
    subscriptions: Annotated[
        str | None, typer.Option(metavar="PATH", help="Subscriptions to count, likewise.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw where messages are, as .svg or .png.")
    ] = None,
    rename: Rename = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Count words, places and attributes into a new version of a profile.

    The new version includes the counts of the latest version in DIRECTORY, so give each row once. Distributions are
    fitted to a profile (nearcast build --profile). Without --messages and --subscriptions the latest version is shown.
    """
    columns = renaming.parse(rename)
    rows = [None if path is None else spark_session.rows_of(path) for path in (messages, subscriptions)]
    keep_apart([directory, str(plot) if plot else None], rows)
    if plot:
        from nearcast.report import plots

        plots.check(plot)
    started = time.perf_counter()
    if messages is None and subscriptions is None:
        if columns:
            raise InputError("--rename is for rows to count; give --messages or --subscriptions too")
        from nearcast.spark import Profile

        if not place_at(directory).children():
            raise InputError(f"{directory} has no profile yet; give --messages or --subscriptions to count")
        made = Profile(directory)
    else:
        with talk.progress() as show:
            show("starting Spark", None)
            with spark_session.open_session("nearcast profile", master, conf, verbose) as spark:
                from nearcast.spark import profile as count

                show("counting", None)
                made = count(
                    directory,
                    messages=spark_session.typed_rows(spark, messages, "messages") if messages else None,
                    subscriptions=spark_session.typed_rows(spark, subscriptions, "subscriptions")
                    if subscriptions
                    else None,
                    columns=columns,
                )
    summary = _summary(made, time.perf_counter() - started)
    if plot:
        plots.draw_places(made.places(), f"{made.count('messages'):,} messages", plot)
    if json:
        talk.print_json(summary)
    else:
        talk.console().print(_table(summary))


def _summary(made: Profile, seconds: float) -> dict[str, Any]:
    sides = ("messages", "subscriptions")
    return {
        "profile": str(made.place.local or made.place),
        "version": made.version,
        "seconds": round(seconds, 3),
        "messages": made.count("messages"),
        "subscriptions": made.count("subscriptions"),
        "words": {side: made.words(side, config.CLI_PROFILE_WORDS).to_pylist() for side in sides},
        "attributes": {side: made.attributes(side).to_pylist() for side in sides},
        "sampled_messages": len(made.sample),
    }


def _table(summary: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table("", "messages", "subscriptions", title=f"profile, version {summary['version']}")
    table.add_row("counted", f"{summary['messages']:,}", f"{summary['subscriptions']:,}")

    def listed(key: str, side: str) -> str:
        return "\n".join(
            f"{row[key]} {row['count']:,}"
            + (f" ({row['low']:g} to {row['high']:g})" if row.get("low") is not None else "")
            for row in summary[f"{key}s"][side]
        )

    for key in ("word", "attribute"):
        table.add_row(f"{key}s", listed(key, "messages"), listed(key, "subscriptions"))
    table.add_row("sampled", f"{summary['sampled_messages']:,}", "")
    return table
