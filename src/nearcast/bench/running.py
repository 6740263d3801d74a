"""What the commands under ``nearcast bench`` share: their options; how they run, show, write, draw and check."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from nearcast.errors import InputError, UnknownError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console

    from nearcast.bench.experiments import Experiment
    from nearcast.bench.measure import Progress

__all__ = ["figure_names", "floors_file", "run_either", "run_figures", "run_table"]

_Scene = TypeVar("_Scene")  # what the experiments of one paper share

Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same workload.", min=0)]
Repeat = Annotated[int, typer.Option("--repeat", help="Runs of each measurement; the best counts.", min=1)]
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
ExperimentSubscriptions = Annotated[
    int, typer.Option("--subscriptions", help="How many subscriptions, where they do not vary.", min=1)
]
ExperimentMessages = Annotated[int, typer.Option("--messages", help="How many messages.", min=1)]
RealData = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Where the real data is; besides the synthetic.")
]
OutDirectory = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Write the results (.json) and a picture (.svg) for each figure."
    ),
]
Format = Annotated[
    Literal["table", "markdown"], typer.Option("--format", help="How the results are printed.")
]
FloorsFile = Annotated[
    Path | None,
    typer.Option(
        "--floors", metavar="FILE", help="The floors to check; benchmarks/floors.toml unless given."
    ),
]


def run_either(
    benchmark: str,
    figures: Mapping[str, Callable[[_Scene], Experiment]],
    where: _Scene,
    figure: str | None,
    sizes: str,
    run: Callable[[Progress], dict[str, Any]],
    *,
    check: bool,
    floors: Path | None,
    seed: int,
    repeat: int,
    out: Path | None,
    json: str | None,
    format: str,
    run_figure: Callable[..., dict[str, Any]] | None = None,
) -> None:
    """Run the figures that were asked for (``all`` of them), or else the table of all, which *run* measures."""
    if figure:
        if check:
            raise InputError("--check compares the table of all with its floors; leave --figure out")
        run_figures(
            benchmark,
            figures,
            where,
            None if figure == "all" else figure,
            sizes,
            seed=seed,
            repeat=repeat,
            out=out,
            json=json,
            format=format,
            run=run_figure,
        )
        return
    if out:
        _make_directory(out)
    run_table(
        benchmark,
        f"nearcast bench {benchmark} {sizes} --seed {seed} --repeat {repeat}",
        run,
        json=json or (str(out / f"{benchmark}.json") if out else None),
        plot=out / f"{benchmark}.svg" if out else None,
        floors=floors_file(check, floors),
        markdown=format == "markdown",
    )


def run_figures(
    benchmark: str,
    figures: Mapping[str, Callable[[_Scene], Experiment]],
    where: _Scene,
    asked: str | None,
    sizes: str,
    *,
    seed: int,
    repeat: int,
    out: Path | None,
    json: str | None,
    format: str,
    run: Callable[..., dict[str, Any]] | None = None,
) -> None:
    """Run the figures that were asked for, and show each as soon as it is there; *sizes* are the command's options.

    *run* measures an experiment: ``experiments.run``, unless given.
    """
    from nearcast.bench import experiments, report
    from nearcast.report import plots

    measure = run or experiments.run
    names = figure_names(asked, list(figures))
    if out:
        plots.check(out / "figure.svg")
        _make_directory(out)
    _check_writable(Path(json) if json and json != "-" else None)
    command = f"nearcast bench {benchmark} --figure {{}} {sizes} --seed {seed} --repeat {repeat}"
    talk = _console(stderr=True)
    bodies: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        with _progress() as tell:

            def step(text: str, share: float, name: str = name, number: int = number) -> None:
                tell(f"figure {name}: {text}", (number + share) / len(names))

            body = measure(figures[name](where), seed=seed, repeat=repeat, progress=step)
        bodies.append(body)
        if out:
            document = report.document(benchmark, command.format(name), body)
            (out / f"{benchmark}-{name}.json").write_text(report.to_json(document), encoding="utf-8")
            plots.draw_experiment(document, out / f"{benchmark}-{name}.svg")
        if json == "-":
            pass
        elif format == "markdown":
            sys.stdout.write(report.experiment_markdown(body) + "\n")
            sys.stdout.flush()
        else:
            _console().print(report.experiment_tables(body))
        for mismatch in body["mismatches"]:
            talk.print(f"[bold red]wrong answer[/] figure {name}, {mismatch}", highlight=False)
    everything = report.document(benchmark, command.format(",".join(names)), {"figures": bodies})
    if json == "-":
        sys.stdout.write(report.to_json(everything))
    elif format == "table":
        _console().print(report.machine_line(everything), style="dim", highlight=False)
    if json and json != "-":
        Path(json).write_text(report.to_json(everything), encoding="utf-8")
    if any(body["mismatches"] for body in bodies):
        raise typer.Exit(1)


def figure_names(asked: str | None, known: list[str]) -> list[str]:
    """Return the figures of ``10,12``, each once; a number stands for all its letters, and for a pair like 8-9."""
    if asked is None:
        return known
    names: list[str] = []
    for name in (part.strip() for part in asked.split(",")):
        found = [figure for figure in known if name in (figure, figure.rstrip("ab"), *figure.split("-"))]
        if not found:
            raise UnknownError(f"no figure {shown(name)}; there are {', '.join(known)}")
        names += found
    return list(dict.fromkeys(names))


def _make_directory(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"cannot write to {shown(str(out))}: it is not a directory")
    out.mkdir(parents=True, exist_ok=True)


def _check_writable(*files: Path | None) -> None:
    """Refuse a file in a directory that does not exist."""
    for file in files:
        if file and not file.absolute().parent.is_dir():
            raise InputError(
                f"cannot write {shown(str(file))}: its directory does not exist; create it first"
            )


def run_table(
    benchmark: str,
    command: str,
    run: Callable[[Progress], dict[str, Any]],
    *,
    json: str | None,
    plot: Path | None,
    floors: Path | None,
    markdown: bool = False,
) -> None:
    """Run, then show, write, draw and check; what cannot work is said before the measurement."""
    from nearcast.bench import floors as floor_files
    from nearcast.bench import pictures, report
    from nearcast.report import plots

    limits = floor_files.read(floors) if floors else []
    if plot:
        plots.check(plot)
    _check_writable(plot, Path(json) if json and json != "-" else None)
    with _progress() as tell:
        document = report.document(benchmark, command, run(tell))
    verdicts = floor_files.check(document, limits)
    if floors:
        document["floors"] = report.floors_as_json(verdicts)

    talk = _console(stderr=True)
    data = talk if json == "-" else _console()
    if json == "-":
        sys.stdout.write(report.to_json(document))
    else:
        if markdown:
            sys.stdout.write(report.markdown(document))
        else:
            data.print(report.table(document))
        if json:
            Path(json).write_text(report.to_json(document), encoding="utf-8")
    if plot:
        pictures.draw(document, plot)
    if floors:
        data.print(report.floors_table(verdicts) if verdicts else "no floor applies to this run")
    for mismatch in document["mismatches"]:
        talk.print(f"[bold red]wrong answer[/] {mismatch}", highlight=False)
    if document["mismatches"] or not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(1)


def floors_file(check: bool, floors: Path | None) -> Path | None:
    """Return the file of floors to compare with, if there is to be a comparison."""
    from nearcast.bench.floors import DEFAULT_FILE

    return (floors or DEFAULT_FILE) if check else None


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show a bar on stderr, on a terminal; it is gone when the work is done."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(bar_width=24), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=_console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


def _console(*, stderr: bool = False) -> Console:
    """Return a console that does not squeeze tables when they go to a file or a pipe."""
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=120)
