"""Running the figures of a paper: measure, show, write and draw them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from benchmarks.papers.tables import figure_markdown, figure_tables
from nearcast.bench import experiments, report
from nearcast.bench.experiments import Experiment
from nearcast.bench.running import check_writable, console, progress
from nearcast.errors import InputError, UnknownError, shown
from nearcast.report import plots
from nearcast.storage.apart import keep_apart

__all__ = ["figure_names", "run_figures"]

_Scene = TypeVar("_Scene")  # the sizes and datasets that the experiments of one paper share

OutDirectory = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Write the results (.json) and a plot (.svg) of each figure."),
]
Format = Annotated[
    Literal["table", "markdown"], typer.Option("--format", help="How the results are printed.")
]


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
    data: Path | None = None,
) -> None:
    """Run the figures named in *asked*, and show each as soon as it is done; *sizes* are the command's options.

    *run* measures an experiment; by default it is ``experiments.run``.
    """
    measure = run or experiments.run
    names = figure_names(asked, list(figures))
    check_writable(json, inputs=[data])
    if out:
        plots.check(out / "figure.svg")
        keep_apart([str(out)], [str(data) if data else None])
        _make_directory(out)
    command = f"python -m benchmarks {benchmark} --figure {{}} {sizes} --seed {seed} --repeat {repeat}"
    talk = console(stderr=True)
    bodies: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        with progress() as tell:

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
            sys.stdout.write(figure_markdown(body) + "\n")
            sys.stdout.flush()
        else:
            console().print(figure_tables(body))
        for mismatch in body["mismatches"]:
            talk.print(f"[bold red]wrong answer[/] figure {name}, {mismatch}", highlight=False)
    everything = report.document(benchmark, command.format(",".join(names)), {"figures": bodies})
    if json == "-":
        sys.stdout.write(report.to_json(everything))
    elif format == "table":
        console().print(report.machine_line(everything), style="dim", highlight=False)
    if json and json != "-":
        Path(json).write_text(report.to_json(everything), encoding="utf-8")
    if any(body["mismatches"] for body in bodies):
        raise typer.Exit(1)


def figure_names(asked: str | None, known: list[str]) -> list[str]:
    """Return the distinct figures of ``10,12``; a number includes all its letters, and a pair like 8-9."""
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
        raise InputError(f"cannot write to {shown(str(out))}: it is not a directory; give another one")
    out.mkdir(parents=True, exist_ok=True)
