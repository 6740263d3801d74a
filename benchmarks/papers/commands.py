"""``python -m benchmarks``: the experiments of the papers, figure by figure, from a checkout.

Exit codes: 0 all well; 1 an index answered wrongly, or something outside is lacking; 2 the command cannot be run as
given.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.papers.running import (
    ExperimentMessages,
    ExperimentSubscriptions,
    Format,
    OutDirectory,
    run_figures,
)
from nearcast import config
from nearcast.bench.running import JsonFile, RealData, Repeat, Seed
from nearcast.cli import Commands

__all__ = ["app"]

app = typer.Typer(
    name="benchmarks",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Repeat the papers' experiments on this machine: a table for each figure, all answers checked.",
)


@app.command("ap-tree")
def ap_tree(
    figure: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N…]", help="10a, 10b, 11, 12, 13, 14, 15, 16, 17, 18a, 18b; all unless given."
        ),
    ] = None,
    subscriptions: ExperimentSubscriptions = config.EXPERIMENT_SUBSCRIPTIONS,
    messages: ExperimentMessages = config.EXPERIMENT_MESSAGES,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
) -> None:
    """Run the experiments of the AP-Tree paper (Figures 10 to 18).

    Fan-out and threshold, variants of the tree, datasets, keywords, areas,
    number of subscriptions, maintenance, boolean subscriptions. All indexes of
    a figure must give the same answers.

    For example:

    python -m benchmarks ap-tree --figure 13,15 --subscriptions 50000 --out figures
    """
    from benchmarks.papers.ap_tree import FIGURES
    from nearcast.bench.scenes import scene

    sizes = f"--subscriptions {subscriptions} --messages {messages}" + (" --data DIR" if data else "")
    where = scene(subscriptions, messages, data)
    run_figures(
        "ap-tree", FIGURES, where, figure, sizes, seed=seed, repeat=repeat, out=out, json=json, format=format
    )


@app.command()
def lfilter(
    figure: Annotated[
        str | None, typer.Option(metavar="N[,N…]", help="7, 8, 9, 10, 11; all unless given.")
    ] = None,
    subscriptions: ExperimentSubscriptions = config.EXPERIMENT_SUBSCRIPTIONS,
    messages: ExperimentMessages = config.EXPERIMENT_MESSAGES,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
) -> None:
    """Run the experiments of the LFILTER paper (Figures 7 to 11).

    Short and long messages, points and ranges: probing strategies of the
    MBRTrie, the three filters, other indexes, number of subscriptions. All
    indexes of a figure must give the same answers.

    For example:

    python -m benchmarks lfilter --figure 8 --subscriptions 50000 --out figures
    """
    from benchmarks.papers.lfilter import FIGURES
    from nearcast.bench.scenes import scene

    sizes = f"--subscriptions {subscriptions} --messages {messages}" + (" --data DIR" if data else "")
    where = scene(subscriptions, messages, data)
    run_figures(
        "lfilter", FIGURES, where, figure, sizes, seed=seed, repeat=repeat, out=out, json=json, format=format
    )


@app.command()
def attributes(
    figure: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N…]", help="4, 5, 6, 7, table5a, table5b, 8-9, 10-11, 12; all unless given."
        ),
    ] = None,
    subscriptions: Annotated[
        int, typer.Option(help="How many subscriptions are indexed, where they are the fewest.", min=1)
    ] = config.EXPERIMENT_SUBSCRIPTIONS,
    messages: Annotated[
        int, typer.Option(help="How many messages are stored, likewise.", min=1)
    ] = config.EXPERIMENT_SUBSCRIPTIONS,
    queries: Annotated[
        int, typer.Option(help="How many messages and subscriptions ask.", min=1)
    ] = config.MO_QUERIES,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
) -> None:
    """Run the experiments of the MO-Tree paper (Figures 4 to 12, Table 5).

    Subscriptions with six intervals over 20 attributes and a region: messages
    ask for subscriptions, subscriptions for stored messages; inserts, updates,
    removals and memory. All must give the same answers.

    For example:

    python -m benchmarks attributes --figure 4,table5 --subscriptions 50000 --out figures
    """
    from benchmarks.papers.mo_tree import FIGURES, AttributeScene

    where = AttributeScene(subscriptions, messages, queries)
    sizes = f"--subscriptions {subscriptions} --messages {messages} --queries {queries}"
    run_figures(
        "attributes",
        FIGURES,
        where,
        figure,
        sizes,
        seed=seed,
        repeat=repeat,
        out=out,
        json=json,
        format=format,
    )


@app.command()
def topk(
    figure: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N…]", help="10a, 10b, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20; all unless given."
        ),
    ] = None,
    subscriptions: Annotated[
        int, typer.Option(help="How many subscriptions, where they are the fewest.", min=1)
    ] = config.TOPK_SUBSCRIPTIONS,
    window: Annotated[
        int, typer.Option(help="How many messages the window holds, likewise.", min=1)
    ] = config.TOPK_WINDOW,
    messages: Annotated[
        int, typer.Option(help="How many messages arrive when it is full.", min=1)
    ] = config.TOPK_MESSAGES,
    k: Annotated[
        int, typer.Option("--k", help="How many results a subscription has.", min=1, max=config.RANKING_MAX_K)
    ] = config.TOPK_K,
    threads: Annotated[int, typer.Option(help="Threads of one publish call.", min=1)] = 1,
    seconds: Annotated[
        float,
        typer.Option(help="A slow one publishes as many messages as it can in this time.", min=1),
    ] = config.TOPK_SECONDS,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
) -> None:
    """Run the experiments of the Skype paper (Figures 10 to 20, Table 4).

    Fills a window, subscribes, and lets messages arrive: the time of an
    arriving message (AMP) and of an expired one (EMP), by index and by the kind
    of buffers. All must give the same results.

    For example:

    python -m benchmarks topk --figure 14 --subscriptions 100000 --window 100000
    """
    from benchmarks.papers.skype import FIGURES
    from nearcast.bench.streams import ranking_scene
    from nearcast.bench.topk import run

    sizes = (
        f"--subscriptions {subscriptions} --window {window} --messages {messages} --k {k} --threads {threads} "
        f"--seconds {seconds:g}{' --data DIR' if data else ''}"
    )
    run_figures(
        "topk",
        FIGURES,
        ranking_scene(subscriptions, window, messages, k, data),
        figure,
        sizes,
        seed=seed,
        repeat=repeat,
        out=out,
        json=json,
        format=format,
        run=partial(run, threads=threads, seconds=seconds),
    )


@app.command()
def covering(
    figure: Annotated[
        str | None,
        typer.Option(metavar="N[,N…]", help="8, 9, table1, table2, 10, 11, 12, forwarded; all unless given."),
    ] = None,
    commands: Annotated[
        int, typer.Option(help="How many commands on rectangles, at the most.", min=1)
    ] = config.COVERING_COMMANDS,
    subscriptions: Annotated[
        int, typer.Option(help="How many full subscriptions, likewise.", min=1)
    ] = config.COVERING_SUBSCRIPTIONS,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
) -> None:
    """Run the experiments of the covering paper (Figures 8 to 12, Tables I and II).

    Follows random commands on rectangles by each index; besides, which share
    of full subscriptions must be forwarded. All must tell the same.

    For example:

    python -m benchmarks covering --figure 8 --commands 20000 --out figures
    """
    from benchmarks.papers.covering import FIGURES
    from nearcast.bench.covering import run
    from nearcast.bench.coverings import covering_scene

    sizes = f"--commands {commands} --subscriptions {subscriptions}{' --data DIR' if data else ''}"
    run_figures(
        "covering",
        FIGURES,
        covering_scene(commands, subscriptions, data),
        figure,
        sizes,
        seed=seed,
        repeat=repeat,
        out=out,
        json=json,
        format=format,
        run=run,
    )


@app.command()
def page(
    directory: Annotated[Path, typer.Argument(help="What --out wrote, and the tables of nearcast bench.")],
) -> None:
    """Put the results of a directory into docs/experiments.md; the text around them stays."""
    from benchmarks.papers.page import write_page

    for name in write_page(directory):
        typer.echo(f"{name}: no {name}.json, kept as it is", err=True)
