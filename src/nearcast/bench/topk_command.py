"""The command ``nearcast bench topk``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast import config
from nearcast.bench.running import (
    Check,
    FloorsFile,
    JsonFile,
    PlotFile,
    RealData,
    Repeat,
    Seed,
    floors_file,
    run_table,
)

if TYPE_CHECKING:
    from nearcast.bench.measure import Progress

__all__ = ["topk"]


def topk(
    subscriptions: Annotated[
        int, typer.Option(help="How many subscriptions.", min=1)
    ] = config.TOPK_SUBSCRIPTIONS,
    window: Annotated[
        int, typer.Option(help="How many messages the window holds.", min=1)
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
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure the best k messages of a window.

    Fills a window, subscribes, and lets messages arrive: the time of an
    arriving message (AMP) and of an expired one (EMP), by index and by the kind
    of buffers. All must give the same results.

    For example:

    nearcast bench topk --subscriptions 100000 --window 100000 --threads 2
    """
    from nearcast.bench import topk as benchmark
    from nearcast.bench.streams import ranking_scene

    where = ranking_scene(subscriptions, window, messages, k, data)

    def run(tell: Progress) -> dict[str, Any]:
        return benchmark.compare(
            where, seed=seed, repeat=repeat, threads=threads, seconds=seconds, only=only, progress=tell
        )

    command = (
        f"nearcast bench topk --subscriptions {subscriptions} --window {window} --messages {messages} --k {k} "
        f"--threads {threads} --seconds {seconds:g}{f' --only {only}' if only else ''}"
        f"{' --data DIR' if data else ''} --seed {seed} --repeat {repeat}"
    )
    run_table("topk", command, run, json=json, plot=plot, floors=floors_file(check, floors))
