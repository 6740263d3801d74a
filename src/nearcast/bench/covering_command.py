"""The command ``nearcast bench covering``."""

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

__all__ = ["covering"]


def covering(
    commands: Annotated[
        int, typer.Option(help="How many commands on rectangles.", min=1)
    ] = config.COVERING_COMMANDS,
    subscriptions: Annotated[
        int, typer.Option(help="How many full subscriptions.", min=1)
    ] = config.COVERING_SUBSCRIPTIONS,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure which subscriptions need not be forwarded.

    Follows random commands on rectangles of 3, 6 and 8 attributes by each index,
    and subscribes full ones: a box, words and tests. All must tell the same.

    For example:

    nearcast bench covering --commands 20000 --subscriptions 50000
    """
    from nearcast.bench import covering as benchmark
    from nearcast.bench.coverings import covering_scene

    where = covering_scene(commands, subscriptions, data)

    def run(tell: Progress) -> dict[str, Any]:
        return benchmark.compare(where, seed=seed, repeat=repeat, progress=tell)

    command = (
        f"nearcast bench covering --commands {commands} --subscriptions {subscriptions}"
        f"{' --data DIR' if data else ''} --seed {seed} --repeat {repeat}"
    )
    run_table("covering", command, run, json=json, plot=plot, floors=floors_file(check, floors))
