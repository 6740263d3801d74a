"""``python -m benchmarks``: the experiments of the papers, figure by figure, from a checkout.

The exit code is 0 for success, 1 if an index answered wrongly or something outside Nearcast is missing, and 2 if the
command cannot be run as given.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.papers.running import Format, OutDirectory, run_figures
from nearcast import config
from nearcast.bench.options import (
    CommandCount,
    JsonFile,
    Messages,
    PublishThreads,
    Queries,
    RealData,
    Repeat,
    ReplaySeconds,
    ResultCount,
    Seed,
    Steps,
    Subscriptions,
    TrialSeconds,
    ValidMessages,
    WindowSize,
)
from nearcast.cli import Commands

__all__ = ["app"]

app = typer.Typer(
    name="benchmarks",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Repeat the experiments of the papers on this machine: a table for each figure, all answers checked.",
)


@app.command("ap-tree")
def ap_tree(
    figure: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N…]", help="10a, 10b, 11, 12, 13, 14, 15, 16, 17, 18a, 18b; by default all."
        ),
    ] = None,
    subscriptions: Subscriptions = config.EXPERIMENT_SUBSCRIPTIONS,
    messages: Messages = config.EXPERIMENT_MESSAGES,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
) -> None:
    """Run the experiments of the AP-Tree paper (Figures 10 to 18).

    They vary fan-out and threshold, variants of the tree, datasets, keywords,
    areas, number of subscriptions, maintenance, and Boolean subscriptions. All
    indexes of a figure must give the same answers. --subscriptions is their
    number in figures that do not vary it.

    For example:

    python -m benchmarks ap-tree --figure 13,15 --subscriptions 50000 --out figures
    """
    from benchmarks.papers.ap_tree import FIGURES
    from nearcast.bench.datasets import scene

    sizes = f"--subscriptions {subscriptions} --messages {messages}" + (" --data DIR" if data else "")
    where = scene(subscriptions, messages, data)
    run_figures(
        "ap-tree",
        FIGURES,
        where,
        figure,
        sizes,
        seed=seed,
        repeat=repeat,
        out=out,
        json=json,
        format=format,
        data=data,
    )


@app.command()
def lfilter(
    figure: Annotated[
        str | None, typer.Option(metavar="N[,N…]", help="7, 8, 9, 10, 11; by default all.")
    ] = None,
    subscriptions: Subscriptions = config.EXPERIMENT_SUBSCRIPTIONS,
    messages: Messages = config.EXPERIMENT_MESSAGES,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
) -> None:
    """Run the experiments of the LFILTER paper (Figures 7 to 11).

    Short and long messages, points and ranges, are matched by the probing
    strategies of the MBRTrie, the three filters and other indexes, and with
    several numbers of subscriptions. All indexes of a figure must give the same
    answers. --subscriptions is their number in figures that do not vary it.

    For example:

    python -m benchmarks lfilter --figure 8 --subscriptions 50000 --out figures
    """
    from benchmarks.papers.lfilter import FIGURES
    from nearcast.bench.datasets import scene

    sizes = f"--subscriptions {subscriptions} --messages {messages}" + (" --data DIR" if data else "")
    where = scene(subscriptions, messages, data)
    run_figures(
        "lfilter",
        FIGURES,
        where,
        figure,
        sizes,
        seed=seed,
        repeat=repeat,
        out=out,
        json=json,
        format=format,
        data=data,
    )


@app.command()
def attributes(
    figure: Annotated[
        str | None,
        typer.Option(metavar="N[,N…]", help="4, 5, 6, 7, table5a, table5b, 8-9, 10-11, 12; by default all."),
    ] = None,
    subscriptions: Subscriptions = config.EXPERIMENT_SUBSCRIPTIONS,
    messages: Messages = config.EXPERIMENT_SUBSCRIPTIONS,
    queries: Queries = config.MO_QUERIES,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
) -> None:
    """Run the experiments of the MO-Tree paper (Figures 4 to 12, Table 5).

    Subscriptions have six intervals over 20 attributes, and a region. Messages
    query an index of subscriptions, and subscriptions query a store of messages;
    inserts, updates, removals and memory are measured, too. All structures must
    give the same answers. Figures that vary the number of subscriptions or
    messages begin with the given one.

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
            metavar="N[,N…]", help="10a, 10b, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20; by default all."
        ),
    ] = None,
    subscriptions: Subscriptions = config.TOPK_SUBSCRIPTIONS,
    window: WindowSize = config.TOPK_WINDOW,
    messages: Messages = config.TOPK_MESSAGES,
    k: ResultCount = config.TOPK_K,
    threads: PublishThreads = 1,
    seconds: TrialSeconds = config.TOPK_SECONDS,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
) -> None:
    """Run the experiments of the Skype paper (Figures 10 to 20, Table 4).

    Each trial fills a window, subscribes, and lets messages arrive. The time per
    arriving message (AMP) and per expired message (EMP) is shown by index and by
    kind of buffer. All must give the same results. Figures that vary the number
    of subscriptions or the window begin with the given one.

    For example:

    python -m benchmarks topk --figure 14 --subscriptions 100000 --window 100000
    """
    from benchmarks.papers.skype import FIGURES
    from nearcast.bench.topk import run
    from nearcast.bench.topk_workloads import ranking_scene

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
        data=data,
        run=partial(run, threads=threads, seconds=seconds),
    )


@app.command()
def covering(
    figure: Annotated[
        str | None,
        typer.Option(metavar="N[,N…]", help="8, 9, table1, table2, 10, 11, 12, forwarded; by default all."),
    ] = None,
    commands: CommandCount = config.COVERING_COMMANDS,
    subscriptions: Subscriptions = config.COVERING_SUBSCRIPTIONS,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
) -> None:
    """Run the experiments of the covering paper (Figures 8 to 12, Tables I and II).

    Each index executes random commands on rectangles. One more experiment shows
    the share of full subscriptions that must be forwarded. All must give the
    same answers. The given numbers are the largest in any figure.

    For example:

    python -m benchmarks covering --figure 8 --commands 20000 --out figures
    """
    from benchmarks.papers.covering import FIGURES
    from nearcast.bench.covering import run
    from nearcast.bench.covering_workloads import covering_scene

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
        data=data,
        run=run,
    )


@app.command()
def moving(
    figure: Annotated[
        str | None,
        typer.Option(metavar="N[,N…]", help="19, 20, 21, 22, 23, 24, 25; by default all."),
    ] = None,
    subscriptions: Subscriptions = config.MOVING_FIGURE_SUBSCRIPTIONS,
    messages: ValidMessages = config.MOVING_FIGURE_MESSAGES,
    steps: Steps = config.MOVING_FIGURE_STEPS,
    seconds: ReplaySeconds = config.MOVING_FIGURE_SECONDS,
    seed: Seed = 0,
    repeat: Repeat = 1,
    data: RealData = None,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
) -> None:
    """Run the experiments of the AP-Tree paper with moving subscriptions (Figures 19 to 25).

    Subscriptions travel on roads, and messages come and expire. The figures vary
    indexes, datasets, mobility, velocity, the size of regions, and the numbers of
    subscriptions and messages. All indexes of a figure must give the same answers.

    For example:

    python -m benchmarks moving --figure 19,21 --subscriptions 20000 --messages 20000 --out figures
    """
    from benchmarks.papers.moving import FIGURES
    from nearcast.bench.moving import run
    from nearcast.bench.moving_workloads import moving_scene

    sizes = (
        f"--subscriptions {subscriptions} --messages {messages} --steps {steps} --seconds {seconds:g}"
        f"{' --data DIR' if data else ''}"
    )
    run_figures(
        "moving",
        FIGURES,
        moving_scene(subscriptions, messages, steps, data),
        figure,
        sizes,
        seed=seed,
        repeat=repeat,
        out=out,
        json=json,
        format=format,
        data=data,
        run=partial(run, seconds=seconds),
    )


@app.command()
def build(
    home: Annotated[
        Path, typer.Argument(help="A directory for input and output; subscriptions there are reused.")
    ],
    subscriptions: Subscriptions = 50_000_000,
    messages: Messages = 200_000,
    shards: Annotated[int, typer.Option(help="Number of shards.", min=1)] = 8,
    distribution: Annotated[str, typer.Option(help="How subscriptions are divided.")] = "location",
    cores: Annotated[int, typer.Option(help="Tasks at a time.", min=1)] = 2,
    executor: Annotated[int, typer.Option(help="Megabytes for the executor's Java.", min=512)] = 1536,
    json: JsonFile = None,
) -> None:
    """Build many subscriptions in shards on Spark, and match messages with them.

    Spark is a small cluster on this machine: a driver with 2 GB, and one
    executor. The memory of every process is watched, and what some
    messages find is compared with an SQL query.

    For example:

    python -m benchmarks build large --subscriptions 1000000 --messages 20000
    """
    from benchmarks import large_build
    from nearcast.bench import report
    from nearcast.bench.running import console, progress

    with progress() as tell:
        found = large_build.run(
            home.absolute(), subscriptions, messages, shards, distribution, cores, executor, tell
        )
    console().print(large_build.table(found))
    if json:
        command = (
            f"python -m benchmarks build {home} --subscriptions {subscriptions} --messages {messages} "
            f"--shards {shards} --distribution {distribution} --cores {cores} --executor {executor}"
        )
        Path(json).write_text(report.to_json(report.document("build", command, found)), encoding="utf-8")
    for mismatch in found["mismatches"]:
        console(stderr=True).print(f"[bold red]wrong answer[/] {mismatch}", highlight=False)
    if found["mismatches"]:
        raise typer.Exit(1)


@app.command()
def page(
    directory: Annotated[Path, typer.Argument(help="Output of --out, and the tables of nearcast bench.")],
) -> None:
    """Put the results of a directory into docs/experiments.md; the text around them is kept."""
    from benchmarks.papers.page import write_page

    for name in write_page(directory):
        typer.echo(f"{name}: there is no {name}.json, so the table is kept", err=True)
