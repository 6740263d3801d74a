"""The commands of ``nearcast bench``: tables and JSON on stdout, messages and progress on stderr.

The exit code is 0 for success, 1 if an index answered wrongly, a floor was missed or something outside Nearcast is
missing, and 2 if the command cannot be run as given. :mod:`nearcast.cli` turns errors into a line and an exit code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearcast import config
from nearcast.bench.moving_command import moving
from nearcast.bench.options import (
    Check,
    CommandCount,
    FloorsFile,
    Indexes,
    JsonFile,
    Messages,
    PlotFile,
    PublishThreads,
    Queries,
    RealData,
    Repeat,
    ResultCount,
    Seed,
    Subscriptions,
    TrialSeconds,
    WindowSize,
    WorkloadName,
)
from nearcast.bench.running import floors_file, run_table
from nearcast.errors import InputError, UnknownError, shown

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
    subscriptions: Subscriptions = config.BENCH_SUBSCRIPTIONS,
    messages: Messages = config.BENCH_MESSAGES,
    index: Indexes = config.DEFAULT_INDEX,
    workload: WorkloadName = "ap-tree",
    seed: Seed = 0,
    data: RealData = None,
    threads: Annotated[int, typer.Option(help="Threads of one match call.", min=1)] = 1,
    repeat: Repeat = config.BENCH_REPEAT,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure matching: which subscriptions want each message.

    Builds each index, matches all messages, also one at a time, then inserts
    and removes. The naive scan and the floor (verifying and writing known
    answers) are always measured, too, and all answers are compared with those
    of the scan.

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
    run_table("matching", command, run, json=json, plot=plot, floors=floors_file(check, floors), data=data)


@app.command()
def engine(
    subscriptions: Subscriptions = config.BENCH_SUBSCRIPTIONS,
    messages: Messages = config.BENCH_MESSAGES,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure the engine, which users call, and the bare index below it.

    Publishes tables, single messages and tables of one row; subscribes tables
    of keywords, tables of distinct expressions, and single subscriptions. The
    bare index is measured in the same run on the same messages.

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


@app.command("safe-regions")
def safe_regions(
    subscriptions: Subscriptions = config.WALKERS,
    messages: Messages = config.WALK_VALID,
    fitting: Annotated[
        int, typer.Option(help="Messages at a time that fit a subscription's words.", min=1)
    ] = config.WALK_FITTING,
    rate: Annotated[int, typer.Option(help="Messages that arrive per second.", min=1)] = 1,
    seconds: Annotated[int, typer.Option(help="How long subscribers walk.", min=1)] = config.WALK_SECONDS,
    at_most: Annotated[
        float | None, typer.Option(help="The largest radius of a safe region, in metres.", min=0)
    ] = None,
    seed: Seed = 0,
    data: RealData = None,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure how many reports safe regions spare, and what they cost.

    Subscribers walk (taxis, with --data; at random without) while messages
    arrive and expire. Everybody reports every step, or only on leaving its safe
    region or being asked: with the safe region of the AP-Tree paper, and with
    ours. What each is told is compared, second by second.

    For example:

    nearcast bench safe-regions --subscriptions 2000 --seconds 600
    """

    def run(tell: Progress) -> dict[str, Any]:
        from nearcast.bench import safe_regions as benchmark

        return benchmark.run(
            subscriptions, messages, fitting=fitting, rate=rate, seconds=seconds, at_most=at_most, seed=seed,
            data=data, progress=tell,
        )  # fmt: skip

    command = (
        f"nearcast bench safe-regions --subscriptions {subscriptions} --messages {messages} --fitting {fitting} "
        f"--rate {rate} --seconds {seconds}{f' --at-most {at_most:g}' if at_most is not None else ''} --seed {seed}"
        f"{' --data DIR' if data else ''}"
    )
    run_table(
        "safe-regions", command, run, json=json, plot=plot, floors=floors_file(check, floors), data=data
    )


@app.command()
def turnover(
    subscriptions: Subscriptions = config.BENCH_SUBSCRIPTIONS,
    operations: Annotated[
        int, typer.Option(help="Inserts and removals in all, in alternating batches of 1,000.", min=2)
    ] = config.BENCH_OPERATIONS,
    messages: Messages = config.BENCH_MESSAGES,
    index: Indexes = config.DEFAULT_INDEX,
    workload: WorkloadName = "ap-tree",
    seed: Seed = 0,
    data: RealData = None,
    repeat: Repeat = config.BENCH_REPEAT,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure inserts and removals, and matching after many of them.

    Subscriptions come and go in batches, so that their number stays the
    same. Then the index is compared with one that is newly built over the
    remaining subscriptions, in answers and in speed.

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
    run_table("turnover", command, run, json=json, plot=plot, floors=floors_file(check, floors), data=data)


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

    Looks up the keywords of an Arrow array, drawn by a Zipf law and uniformly,
    some of them unknown, and compares with pyarrow's own functions and a loop
    over a dict.

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
    subscriptions: Subscriptions = config.BENCH_SUBSCRIPTIONS,
    messages: Messages = config.BENCH_SPARK_MESSAGES,
    seconds: Annotated[
        float, typer.Option(help="Seconds for which messages arrive at the given rate.", min=1)
    ] = config.BENCH_STREAM_SECONDS,
    rate: Annotated[
        int, typer.Option(help="Messages that arrive per second.", min=10)
    ] = config.BENCH_STREAM_RATE,
    versions: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Write the version of the index here, and measure its first fetch."),
    ] = None,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure the pipeline on local Spark, two cores.

    Batch and stream are compared with the same work in one process with two
    threads, from the same files, with the deliveries thrown away. Also measures
    the time of a micro-batch while messages arrive, and what a worker needs to
    open the index; with --versions s3://…, also how long a machine takes to
    fetch it.

    For example:

    nearcast bench spark --subscriptions 100000 --messages 100000
    """

    def run(tell: Progress) -> dict[str, Any]:
        from nearcast.bench import pipeline

        return pipeline.run(
            subscriptions,
            messages,
            seed=seed,
            repeat=repeat,
            seconds=seconds,
            rate=rate,
            versions=versions,
            progress=tell,
        )

    command = (
        f"nearcast bench spark --subscriptions {subscriptions} --messages {messages} --seconds {seconds:g} "
        f"--rate {rate}{f' --versions {versions}' if versions else ''} --seed {seed} --repeat {repeat}"
    )
    run_table("spark", command, run, json=json, plot=plot, floors=floors_file(check, floors))


@app.command()
def attributes(
    subscriptions: Subscriptions = config.BENCH_SUBSCRIPTIONS,
    messages: Messages = config.BENCH_SUBSCRIPTIONS,
    queries: Queries = config.MO_QUERIES,
    inserted: Annotated[
        bool,
        typer.Option(
            "--inserted",
            help="Also build the R*-Trees by inserts, as the paper does; takes minutes at a million.",
        ),
    ] = False,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Compare the MO-Tree with its rivals: attribute values and places.

    Subscriptions have six intervals over 20 attributes, and a region. Messages
    query an index of subscriptions, and subscriptions query a store of messages;
    inserts, updates, removals and memory are measured, too. All structures must
    give the same answers.

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


@app.command()
def topk(
    subscriptions: Subscriptions = config.TOPK_SUBSCRIPTIONS,
    window: WindowSize = config.TOPK_WINDOW,
    messages: Messages = config.TOPK_MESSAGES,
    k: ResultCount = config.TOPK_K,
    threads: PublishThreads = 1,
    seconds: TrialSeconds = config.TOPK_SECONDS,
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

    Fills a window, subscribes, and lets messages arrive. Measures the time per
    arriving message (AMP) and per expired message (EMP), by index and by kind
    of buffer. All must give the same results.

    For example:

    nearcast bench topk --subscriptions 100000 --window 100000 --threads 2
    """
    from nearcast.bench import topk as benchmark
    from nearcast.bench.topk_workloads import ranking_scene

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
    run_table("topk", command, run, json=json, plot=plot, floors=floors_file(check, floors), data=data)


@app.command()
def dskype(
    subscriptions: Subscriptions = config.TOPK_SUBSCRIPTIONS,
    window: WindowSize = config.TOPK_WINDOW,
    messages: Messages = config.TOPK_MESSAGES,
    k: ResultCount = config.TOPK_K,
    threads: PublishThreads = 1,
    seed: Seed = 0,
    data: RealData = None,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Simulate how top-k subscriptions are divided among shards.

    Fills a window, subscribes, and counts for each distribution how many shards
    store a subscription, and how many a message is sent to, from 4 to 1,024
    shards. Nothing is sent.

    For example:

    nearcast bench dskype --subscriptions 100000 --window 100000
    """
    from nearcast.bench import dskype as benchmark
    from nearcast.bench.topk_workloads import ranking_scene

    where = ranking_scene(subscriptions, window, messages, k, data)

    def run(tell: Progress) -> dict[str, Any]:
        return benchmark.simulate(where, seed=seed, threads=threads, progress=tell)

    command = (
        f"nearcast bench dskype --subscriptions {subscriptions} --window {window} --messages {messages} --k {k}"
        f"{' --data DIR' if data else ''} --seed {seed}"
    )
    run_table("dskype", command, run, json=json, plot=plot, floors=floors_file(check, floors))


@app.command("topk-calls")
def topk_calls(
    subscriptions: Subscriptions = config.TOPK_SUBSCRIPTIONS,
    window: WindowSize = config.TOPK_WINDOW,
    calls: Annotated[
        str, typer.Option(metavar="N[,N…]", help="Numbers of messages in a call.")
    ] = config.TOPK_CALLS,
    k: ResultCount = config.TOPK_K,
    threads: PublishThreads = 2,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    json: JsonFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure calls of the best k messages: by size, by threads, and new ones.

    Fills a window and subscribes. Then calls of each size take turns, with one
    thread and with several. New subscriptions are also measured in a window
    where all words weigh the same.

    For example:

    nearcast bench topk-calls --subscriptions 100000 --window 100000
    """
    from nearcast.bench import topk_calls as benchmark
    from nearcast.bench.topk_workloads import ranking_scene

    sizes = _whole_numbers(calls)
    messages = benchmark.measured_messages(sizes, threads, repeat)
    where = ranking_scene(subscriptions, window, messages, k, data)

    def run(tell: Progress) -> dict[str, Any]:
        return benchmark.run(where, sizes, seed=seed, repeat=repeat, threads=threads, progress=tell)

    command = (
        f"nearcast bench topk-calls --subscriptions {subscriptions} --window {window} --calls {calls} --k {k} "
        f"--threads {threads}{' --data DIR' if data else ''} --seed {seed} --repeat {repeat}"
    )
    run_table("topk-calls", command, run, json=json, plot=None, floors=floors_file(check, floors))


@app.command()
def covering(
    commands: CommandCount = config.COVERING_COMMANDS,
    subscriptions: Subscriptions = config.COVERING_SUBSCRIPTIONS,
    seed: Seed = 0,
    repeat: Repeat = config.BENCH_REPEAT,
    data: RealData = None,
    json: JsonFile = None,
    plot: PlotFile = None,
    check: Check = False,
    floors: FloorsFile = None,
) -> None:
    """Measure which subscriptions need not be forwarded.

    Each index executes random commands on rectangles of 3, 6 and 8 attributes,
    and on full subscriptions with a box, words and tests. All must give the
    same answers.

    For example:

    nearcast bench covering --commands 20000 --subscriptions 50000
    """
    from nearcast.bench import covering as benchmark
    from nearcast.bench.covering_workloads import covering_scene

    where = covering_scene(commands, subscriptions, data)

    def run(tell: Progress) -> dict[str, Any]:
        return benchmark.compare(where, seed=seed, repeat=repeat, progress=tell)

    command = (
        f"nearcast bench covering --commands {commands} --subscriptions {subscriptions}"
        f"{' --data DIR' if data else ''} --seed {seed} --repeat {repeat}"
    )
    run_table("covering", command, run, json=json, plot=plot, floors=floors_file(check, floors), data=data)


app.command()(moving)


def _whole_numbers(text: str) -> list[int]:
    """Return the positive numbers of an option."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"give whole numbers from 1, as in 1000,10000, not {shown(text)}")
    return list(dict.fromkeys(map(int, parts)))


def _index_names(given: str) -> list[str]:
    """Return the distinct names in ``a,b,c``; raise if one does not exist."""
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
