"""Running a benchmark command: measure, show, write, draw and check."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nearcast.errors import InputError, shown
from nearcast.storage.apart import keep_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console

    from nearcast.bench.measure import Progress

__all__ = ["check_writable", "console", "floors_file", "progress", "run_table"]


def check_writable(*files: str | Path | None, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse a file in a directory that does not exist, and one that is among the inputs; ``-`` is stdout."""
    outputs = [str(file) for file in files if file is not None and str(file) != "-"]
    for file in outputs:
        if not Path(file).absolute().parent.is_dir():
            raise InputError(f"cannot write {shown(file)}: its directory does not exist; create it first")
    keep_apart(outputs, [str(path) for path in inputs if path is not None])


def run_table(
    benchmark: str,
    command: str,
    run: Callable[[Progress], dict[str, Any]],
    *,
    json: str | None,
    plot: Path | None,
    floors: Path | None,
    data: Path | None = None,
) -> None:
    """Run, then show, write, draw and check; options that cannot work are refused before the measurement."""
    from nearcast.bench import floors as floor_files
    from nearcast.bench import pictures, report
    from nearcast.report import plots

    limits = floor_files.read(floors) if floors else []
    if plot:
        plots.check(plot)
    check_writable(plot, json, inputs=[data, floors])
    with progress() as tell:
        document = report.document(benchmark, command, run(tell))
    verdicts = floor_files.check(document, limits)
    if floors:
        document["floors"] = report.floors_as_json(verdicts)

    talk = console(stderr=True)
    page = talk if json == "-" else console()
    if json == "-":
        sys.stdout.write(report.to_json(document))
    else:
        page.print(report.table(document))
        if json:
            Path(json).write_text(report.to_json(document), encoding="utf-8")
    if plot:
        pictures.draw(document, plot)
    if floors:
        page.print(report.floors_table(verdicts) if verdicts else "no floor applies to this run")
    for mismatch in document["mismatches"]:
        talk.print(f"[bold red]wrong answer[/] {mismatch}", highlight=False)
    if document["mismatches"] or not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(1)


def floors_file(check: bool, floors: Path | None) -> Path | None:
    """Return the file of floors to compare with, or None without *check*."""
    from nearcast.bench.floors import DEFAULT_FILE

    return (floors or DEFAULT_FILE) if check else None


@contextmanager
def progress() -> Iterator[Progress]:
    """Show a progress bar on stderr, on a terminal only, until the work is done."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(bar_width=24), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


def console(*, stderr: bool = False) -> Console:
    """Return a console that does not squeeze tables that go to a file or a pipe."""
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=120)
