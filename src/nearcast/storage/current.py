"""Which of several versions counts: the one that the file ``CURRENT`` beside them names."""

from __future__ import annotations

from pathlib import Path

from nearcast.errors import IndexFileError, shown
from nearcast.storage.atomic import write_durably

__all__ = ["CURRENT", "current", "switch"]

CURRENT = "CURRENT"


def current(directory: Path) -> Path:
    """Return the version that *directory* is, or that its file ``CURRENT`` names."""
    try:
        content = (directory / CURRENT).read_bytes()
    except OSError:
        return directory
    name = content.decode(errors="replace").strip()
    if name in ("", "..") or name != Path(name).name or "\0" in name:
        raise IndexFileError(f"{directory / CURRENT} names {shown(name)}, which is no version beside it")
    return directory / name


def switch(directory: Path, version: Path) -> None:
    """Let the file ``CURRENT`` of *directory* name *version*, which is there, in one step."""
    with write_durably(directory / CURRENT) as file:
        file.write(f"{version.name}\n".encode())
