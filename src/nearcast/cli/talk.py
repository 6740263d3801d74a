"""Output of commands: data to stdout, everything else to stderr, colour only on a terminal.

rich honours ``NO_COLOR``, ``FORCE_COLOR`` and ``TERM``.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nearcast.errors import NearcastWarning

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Show", "console", "print_json", "print_warnings", "progress", "tell"]

# Sets the current step, and the share of it that is done.
Show = Callable[[str, float | None], None]
_PIPE_WIDTH = 120  # width of tables that go to a file or a pipe


def console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _PIPE_WIDTH
    return made


def tell(sentence: str) -> None:
    """Print one line to stderr."""
    sys.stderr.write(sentence + "\n")


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print each distinct warning of Nearcast as a line; other warnings are shown as usual."""
    printed: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, NearcastWarning):
            before(message, category, *place, **more)
        elif str(message) not in printed:
            printed.add(str(message))
            tell(f"nearcast: {message}")

    with warnings.catch_warnings():
        before = warnings.showwarning
        warnings.simplefilter("always", NearcastWarning)
        warnings.showwarning = show
        yield


def print_json(document: Mapping[str, Any]) -> None:
    """Print a JSON object to stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")


@contextmanager
def progress() -> Iterator[Show]:
    """Show a progress bar on stderr, but only on a terminal.

    Yields the function that sets the current step and the share of it that is done (None if unknown).
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    columns = (BarColumn(bar_width=32), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def show(doing: str, share: float | None) -> None:
            bar.update(task, description=doing, completed=share or 0, total=None if share is None else 1)

        yield show
