"""The options of benchmark commands, of ``nearcast bench`` and of ``python -m benchmarks`` alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearcast import config

__all__ = [
    "Arrivals",
    "Check",
    "CommandCount",
    "FloorsFile",
    "Indexes",
    "JsonFile",
    "MessageSource",
    "Messages",
    "Mobility",
    "MovesPerCall",
    "PlotFile",
    "PublishThreads",
    "Queries",
    "RealData",
    "Repeat",
    "ReplaySeconds",
    "ResultCount",
    "RoadsName",
    "Seed",
    "Steps",
    "Subscriptions",
    "TrialSeconds",
    "ValidMessages",
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
ValidMessages = Annotated[
    int, typer.Option("--messages", help="Number of messages that are valid at the beginning.", min=1)
]
Steps = Annotated[int, typer.Option("--steps", help="Number of steps, of 30 seconds each.", min=1)]
MovesPerCall = Annotated[int, typer.Option("--moves", help="Moves in one call.", min=1)]
Mobility = Annotated[
    float, typer.Option("--mobility", help="Share of the subscriptions that move in a step.", min=0, max=1)
]
Arrivals = Annotated[
    int | None,
    typer.Option("--arrivals", help="Messages that arrive in a step; by default as many as expire.", min=1),
]

# --- What is measured, and on what ---------------------------------------------------------------------------------
Indexes = Annotated[str, typer.Option("--index", metavar="NAME[,NAME…]", help="Indexes to measure.")]
WorkloadName = Annotated[
    str,
    typer.Option(
        "--workload", metavar="NAME", help="ap-tree, mo-tree, misses, or real data: tweets, places."
    ),
]
MessageSource = Annotated[
    str | None,
    typer.Option(
        "--workload",
        metavar="NAME",
        help="Messages: tweets-like (by default), gn-like, or, with --data, tweets (by default), places.",
    ),
]
RoadsName = Annotated[
    str | None,
    typer.Option(
        "--roads",
        metavar="NAME",
        help="Roads: town (by default), county, or, with --data, oldenburg (by default), san-joaquin, taxis.",
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
ReplaySeconds = Annotated[
    float,
    typer.Option("--seconds", help="A slow index replays as many steps as it can in this time.", min=1),
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
