"""The directory that a demonstration writes to: only one that a demonstration made is ever changed."""

from __future__ import annotations

import shutil
from pathlib import Path

from nearcast.errors import InputError, shown

__all__ = ["check_output", "empty_output", "make_output"]

_MARKER = ".nearcast-demo"  # only a directory that holds this file is ever changed


def check_output(output: Path) -> None:
    """Raise if *output* is something that a run must not replace."""
    if output.exists() and not output.is_dir():
        raise InputError(f"{shown(str(output))} is a file; give a directory for the demonstration's output")
    if output.is_dir() and any(output.iterdir()) and not (output / _MARKER).is_file():
        raise InputError(
            f"the directory {shown(str(output))} was not made by nearcast demo, so it is not replaced; "
            "give another one with --output, or remove it"
        )


def make_output(output: Path) -> None:
    """Create the directory *output* with its marker, or take the one that an earlier run made."""
    check_output(output)
    output.mkdir(parents=True, exist_ok=True)
    (output / _MARKER).write_text(
        "nearcast demo made this directory, and replaces its content when it runs again.\n"
    )


def empty_output(output: Path) -> None:
    """Create the directory *output*, or empty it; the marker is written first and is kept."""
    make_output(output)
    for child in output.iterdir():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child.name != _MARKER:
            child.unlink()
