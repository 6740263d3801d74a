"""The command ``nearcast bench covering``."""

from __future__ import annotations

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

__all__ = ["covering"]


def covering(
    figure: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N…]",
            help="8, 9, table1, table2, 10, 11, 12, forwarded, or all; none unless given.",
        ),
    ] = None,
    commands: Annotated[
        int, typer.Option(help="How many commands on rectangles; in a figure, at the most.", min=1)
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
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure which subscriptions need not be forwarded, or run the paper's experiments.

    Follows random commands on rectangles of 3, 6 and 8 attributes by each index,
    and subscribes full ones: a box, words and tests. One table of all; with
    --figure the experiments of the covering paper (Figures 8 to 12, Tables I
    and II) and the share that must be forwarded. All must tell the same.

    For example:

    nearcast bench covering --commands 20000 --subscriptions 50000
    """
    from nearcast.bench import covering as benchmark
    from nearcast.bench.covering_figures import FIGURES
    from nearcast.bench.coverings import covering_scene

    where = covering_scene(commands, subscriptions, data)

    def run(tell: Progress) -> dict[str, Any]:
        return benchmark.compare(where, seed=seed, repeat=repeat, progress=tell)

    sizes = f"--commands {commands} --subscriptions {subscriptions}"
    run_either(
        "covering",
        FIGURES,
        where,
        figure,
        sizes + (" --data DIR" if data else ""),
        run,
        check=check,
        floors=floors,
        seed=seed,
        repeat=repeat,
        out=out,
        json=json,
        format=format,
        run_figure=benchmark.run,
    )
