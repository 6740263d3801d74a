"""The options of benchmark commands, of ``nearcast bench`` and of ``python -m benchmarks`` alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearcast import config

__all__ = [
    "Check",
    "CommandCount",
    "FloorsFile",
    "Indexes",
    "JsonFile",
    "Messages",
    "PlotFile",
    "PublishThreads",
    "Queries",
    "RealData",
    "Repeat",
    "ResultCount",
    "Seed",
    "Subscriptions",
    "TrialSeconds",
    "WindowSize",
    "WorkloadName",
]

# --- Sizes -------------------------------------------------------------------------------------------------------
Subscriptions = Annotated[int, typer.Option("--subscriptions", help="Number of subscriptions.", min=1)]
Messages = Annotated[int, typer.Option("--messages", help="Number of messages.", min=1)]
Queries = Annotated[
    int, typer.Option("--queries", help="Number of queries: messages, and as many subscriptions.", min=1)
]
WindowSize = Annotated[int, typer.Option("--window", help="Number of messages in the window.", min=1)]
ResultCount = Annotated[
    int, typer.Option("--k", help="Number of results per subscription.", min=1, max=config.RANKING_MAX_K)
]
CommandCount = Annotated[int, typer.Option("--commands", help="Number of commands on rectangles.", min=1)]

# --- What is measured, and on what ---------------------------------------------------------------------------------
Indexes = Annotated[str, typer.Option("--index", metavar="NAME[,NAME…]", help="Indexes to measure.")]
WorkloadName = Annotated[
    str,
    typer.Option(
        "--workload", metavar="NAME", help="ap-tree, mo-tree, misses, or real data: tweets, places."
    ),
]
RealData = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Directory of the real data.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same workload.", min=0)]

# --- How it is measured --------------------------------------------------------------------------------------------
Repeat = Annotated[int, typer.Option("--repeat", help="Runs of each measurement; the best counts.", min=1)]
PublishThreads = Annotated[int, typer.Option("--threads", help="Threads of one publish call.", min=1)]
TrialSeconds = Annotated[
    float,
    typer.Option("--seconds", help="A slow index publishes as many messages as it can in this time.", min=1),
]

# --- What is done with the results ---------------------------------------------------------------------------------
JsonFile = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the results as JSON; '-' writes them to stdout instead of the table.",
    ),
]
PlotFile = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw the results, as .svg or .png.")
]
Check = Annotated[bool, typer.Option("--check", help="Compare with the floors and exit 1 below one.")]
FloorsFile = Annotated[
    Path | None,
    typer.Option("--floors", metavar="FILE", help="The floors to check; by default benchmarks/floors.toml."),
]
