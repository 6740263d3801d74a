"""The commands under ``nearcast bench``: tables and JSON on stdout, talk and progress on stderr.

Exit codes: 0 all well; 1 an index answered wrongly, a floor was missed, or something outside is lacking; 2 the
command cannot be run as given. Errors become a line and an exit code in :mod:`nearcast.cli`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast import config
from nearcast.bench.covering_command import covering
from nearcast.bench.running import (
    Check,
    FloorsFile,
    JsonFile,
    PlotFile,
    Repeat,
    Seed,
    floors_file,
    run_table,
)
from nearcast.bench.topk_command import topk
from nearcast.errors import UnknownError, shown

if TYPE_CHECKING:
    from nearcast.bench.measure import Progress

__all__ = ["app"]

app = typer.Typer(
    name="bench",
    no_args_is_help=True,
    help="Measure Nearcast on this machine: seeded workloads, rivals and floors in the same run.",
)


@app.command()
def matching(
    subscriptions: Annotated[
        int, typer.Option(help="How many subscriptions.", min=1)
    ] = config.BENCH_SUBSCRIPTIONS,
    messages: Annotated[int, typer.Option(help="How many messages.", min=1)] = config.BENCH_MESSAGES,
    index: Annotated[
        str,
        typer.Option(metavar="NAME[,NAME…]", help="The indexes to measure; the scan is always among them."),
    ] = config.DEFAULT_INDEX,
    workload: Annotated[
        str, typer.Option(metavar="NAME", help="ap-tree, mo-tree, misses, or real data: tweets, places.")
    ] = "ap-tree",
    seed: Seed = 0,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the real data is.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of one match call.", min=1)] = 1,
    repeat: Repeat = config.BENCH_REPEAT,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure matching: which subscriptions want each message.

    Builds each index, matches all messages, one message at a time too, then
    inserts and removes. The naive scan and the floor (verifying and writing
    answers that are known) run beside them, and the answers of all are
    compared with the scan's.

    For example:

    nearcast bench matching --subscriptions 100000 --messages 2000 --plot a.svg
    """

    def run(tell: Progress) -> dict[str, Any]:
        from nearcast import workloads
        from nearcast.bench import matching as benchmark

        tell(f"making the {workload} workload", 0.0)
        made = workloads.make(workload, subscriptions, messages, seed=seed, data=data)
        return benchmark.run(made, names, threads=threads, repeat=repeat, progress=tell)

    names = _index_names(index)
    _known_workload(workload)
    command = (
        f"nearcast bench matching --subscriptions {subscriptions} --messages {messages} "
        f"--index {','.join(names)} --workload {workload} --seed {seed} "
        f"--threads {threads} --repeat {repeat}"
    )
    if data:
        command += " --data DIR"
    run_table("matching", command, run, json=json, plot=plot, floors=floors_file(check, floors))


@app.command()
def engine(
    subscriptions: Annotated[
        int, typer.Option(help="How many subscriptions.", min=1)
    ] = config.BENCH_SUBSCRIPTIONS,
    messages: Annotated[int, typer.Option(help="How many messages.", min=1)] = config.BENCH_MESSAGES,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure the engine: what users meet, beside the bare index.

    Publishes tables, one message and one row at a time; subscribes tables of
    keywords, tables of distinct expressions, and one at a time. The index
    alone runs beside it on the same messages.

    For example:

    nearcast bench engine --subscriptions 100000 --check
    """

    def run(tell: Progress) -> dict[str, Any]:
        from nearcast import workloads
        from nearcast.bench import engine as benchmark

        tell("making the ap-tree workload", 0.0)
        made = workloads.make("ap-tree", subscriptions, messages, seed=seed)
        return benchmark.run(made, repeat=repeat, progress=tell)

    sizes = f"--subscriptions {subscriptions} --messages {messages}"
    command = f"nearcast bench engine {sizes} --seed {seed} --repeat {repeat}"
    run_table("engine", command, run, json=json, plot=plot, floors=floors_file(check, floors))


@app.command()
def turnover(
    subscriptions: Annotated[
        int, typer.Option(help="How many subscriptions there are.", min=1)
    ] = config.BENCH_SUBSCRIPTIONS,
    operations: Annotated[
        int, typer.Option(help="Inserts and removals in all, in batches of 1,000 by turns.", min=2)
    ] = config.BENCH_OPERATIONS,
    messages: Annotated[int, typer.Option(help="How many messages.", min=1)] = config.BENCH_MESSAGES,
    index: Annotated[
        str, typer.Option(metavar="NAME[,NAME…]", help="The indexes to measure.")
    ] = config.DEFAULT_INDEX,
    workload: Annotated[
        str, typer.Option(metavar="NAME", help="ap-tree, mo-tree, misses, or real data: tweets, places.")
    ] = "ap-tree",
    seed: Seed = 0,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the real data is.")] = None,
    repeat: Repeat = config.BENCH_REPEAT,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure inserts and removals, and matching after many of them.

    Subscriptions come and go in batches, so that their number stays the
    same. Then the index is compared with one that is built anew over what
    is left, in answers and in speed.

    For example:

    nearcast bench turnover --subscriptions 100000 --operations 100000
    """

    def run(tell: Progress) -> dict[str, Any]:
        from nearcast import workloads
        from nearcast.bench import turnover as benchmark

        tell(f"making the {workload} workload", 0.0)
        made = workloads.make(
            workload, subscriptions, messages, seed=seed, newcomers=operations // 2, data=data
        )
        return benchmark.run(made, names, repeat=repeat, progress=tell)

    names = _index_names(index)
    _known_workload(workload)
    command = (
        f"nearcast bench turnover --subscriptions {subscriptions} --operations {operations} "
        f"--messages {messages} --index {','.join(names)} --workload {workload} --seed {seed} --repeat {repeat}"
    )
    if data:
        command += " --data DIR"
    run_table("turnover", command, run, json=json, plot=plot, floors=floors_file(check, floors))


@app.command()
def vocabulary(
    words: Annotated[int, typer.Option(help="Words in the vocabulary.", min=1)] = config.BENCH_WORDS,
    keywords: Annotated[int, typer.Option(help="Keywords to look up.", min=1)] = config.BENCH_KEYWORDS,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure how fast strings become codes, on one core.

    Looks up keywords of an Arrow array, drawn by a Zipf law and uniformly,
    some of them unknown, beside pyarrow's own ways and a loop over a dict.

    For example:

    nearcast bench vocabulary --keywords 1000000 --check
    """

    def run(tell: Progress) -> dict[str, Any]:
        from nearcast.bench import vocabulary as benchmark

        return benchmark.run(vocabulary=words, keywords=keywords, seed=seed, repeat=repeat, progress=tell)

    command = (
        f"nearcast bench vocabulary --words {words} --keywords {keywords} --seed {seed} --repeat {repeat}"
    )
    run_table("vocabulary", command, run, json=json, plot=plot, floors=floors_file(check, floors))


@app.command()
def spark(
    subscriptions: Annotated[
        int, typer.Option(help="How many subscriptions there are.", min=1)
    ] = config.BENCH_SUBSCRIPTIONS,
    messages: Annotated[
        int, typer.Option(help="How many messages are matched.", min=1)
    ] = config.BENCH_SPARK_MESSAGES,
    seconds: Annotated[
        float, typer.Option(help="How long messages arrive at the given rate.", min=1)
    ] = config.BENCH_STREAM_SECONDS,
    rate: Annotated[
        int, typer.Option(help="Messages a second that arrive.", min=10)
    ] = config.BENCH_STREAM_RATE,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure the pipeline on local Spark, two cores.

    Batch and stream beside the same work in one process with two threads, from
    the same files and with the deliveries thrown away; the time of a
    micro-batch while messages arrive; what a worker needs to open the index.

    For example:

    nearcast bench spark --subscriptions 100000 --messages 100000
    """

    def run(tell: Progress) -> dict[str, Any]:
        from nearcast.bench import pipeline

        return pipeline.run(
            subscriptions, messages, seed=seed, repeat=repeat, seconds=seconds, rate=rate, progress=tell
        )

    command = (
        f"nearcast bench spark --subscriptions {subscriptions} --messages {messages} --seconds {seconds:g} "
        f"--rate {rate} --seed {seed} --repeat {repeat}"
    )
    run_table("spark", command, run, json=json, plot=plot, floors=floors_file(check, floors))


@app.command()
def attributes(
    subscriptions: Annotated[
        int, typer.Option(help="How many subscriptions are indexed.", min=1)
    ] = config.BENCH_SUBSCRIPTIONS,
    messages: Annotated[
        int, typer.Option(help="How many messages are stored.", min=1)
    ] = config.BENCH_SUBSCRIPTIONS,
    queries: Annotated[
        int, typer.Option(help="How many messages and subscriptions ask.", min=1)
    ] = config.MO_QUERIES,
    inserted: Annotated[
        bool,
        typer.Option(
            "--inserted",
            help="Also build the R*-Trees by inserts, as the paper does; minutes at a million.",
        ),
    ] = False,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Compare the MO-Tree with its rivals: attribute values beside places.

    Subscriptions with six intervals over 20 attributes and a region: messages
    ask for subscriptions, subscriptions for stored messages; inserts, updates,
    removals and memory. All must give the same answers.

    For example:

    nearcast bench attributes --subscriptions 50000 --messages 50000
    """

    def run(tell: Progress) -> dict[str, Any]:
        from nearcast.bench import attributes as benchmark

        return benchmark.run(
            subscriptions, messages, queries, inserted=inserted, seed=seed, repeat=repeat, progress=tell
        )

    command = (
        f"nearcast bench attributes --subscriptions {subscriptions} --messages {messages} --queries {queries}"
        f"{' --inserted' if inserted else ''} --seed {seed} --repeat {repeat}"
    )
    run_table("attributes", command, run, json=json, plot=plot, floors=floors_file(check, floors))


app.command()(topk)
app.command()(covering)


def _index_names(given: str) -> list[str]:
    """Return the names in ``a,b,c``, each once; one that does not exist is refused."""
    from nearcast.matching import INDEXES

    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    for name in names:
        if name not in INDEXES:
            raise UnknownError(f"no index {shown(name)}; there are {', '.join(INDEXES)}")
    return names


def _known_workload(name: str) -> None:
    from nearcast.workloads import WORKLOADS

    if name not in WORKLOADS:
        raise UnknownError(f"no workload {shown(name)}; there are {', '.join(WORKLOADS)}")
