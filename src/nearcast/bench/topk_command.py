"""The command ``nearcast bench topk``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast import config
from nearcast.bench.running import (
    Check,
    FloorsFile,
    Format,
    JsonFile,
    OutDirectory,
    RealData,
    Repeat,
    Seed,
    run_either,
)

if TYPE_CHECKING:
    from nearcast.bench.measure import Progress

__all__ = ["topk"]


def topk(
    figure: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N…]",
            help="10a, 10b, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, or all; none unless given.",
        ),
    ] = None,
    subscriptions: Annotated[
        int, typer.Option(help="How many subscriptions; in a figure, where they are the fewest.", min=1)
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
    only: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Only these rows of the table: indexes and kinds of buffers."),
    ] = None,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    out: OutDirectory = None,
    json: JsonFile = None,
    format: Format = "table",
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure the best k messages of a window, or run the paper's experiments.

    Fills a window, subscribes, and lets messages arrive: the time of an
    arriving message (AMP) and of an expired one (EMP), by index and by the kind
    of buffers. One table of all; with --figure the experiments of the Skype
    paper (Figures 10 to 20, Table 4). All must give the same results.

    For example:

    nearcast bench topk --subscriptions 100000 --window 100000 --threads 2
    """
    from nearcast.bench import topk as benchmark
    from nearcast.bench.streams import ranking_scene
    from nearcast.bench.topk_figures import FIGURES

    where = ranking_scene(subscriptions, window, messages, k, data)

    def run(tell: Progress) -> dict[str, Any]:
        return benchmark.compare(
            where, seed=seed, repeat=repeat, threads=threads, seconds=seconds, only=only, progress=tell
        )

    sizes = (
        f"--subscriptions {subscriptions} --window {window} --messages {messages} --k {k} --threads {threads}"
        f" --seconds {seconds:g}"
    )
    run_either(
        "topk",
        FIGURES,
        where,
        figure,
        sizes + (f" --only {only}" if only else "") + (" --data DIR" if data else ""),
        run,
        check=check,
        floors=floors,
        seed=seed,
        repeat=repeat,
        out=out,
        json=json,
        format=format,
        run_figure=partial(benchmark.run, threads=threads, seconds=seconds),
    )
