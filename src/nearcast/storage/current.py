"""The current one of several versions: the file ``CURRENT`` beside them names it."""

from __future__ import annotations

from pathlib import Path

from nearcast.errors import IndexFileError, shown
from nearcast.storage.atomic import write_durably

__all__ = ["CURRENT", "current", "switch"]

CURRENT = "CURRENT"


def current(directory: Path) -> Path:
    """Return the version that the file ``CURRENT`` in *directory* names or, without that file, *directory* itself."""
    try:
        content = (directory / CURRENT).read_bytes()
    except OSError:
        return directory
    name = content.decode(errors="replace").strip()
    if name in ("", "..") or name != Path(name).name or "\0" in name:
        raise IndexFileError(
            f"{directory / CURRENT} names {shown(name)}, which is not a version beside it; save it again"
        )
    return directory / name


def switch(directory: Path, version: Path) -> None:
    """Make the existing *version* the current one of *directory*, in one step."""
    with write_durably(directory / CURRENT) as file:
        file.write(f"{version.name}\n".encode())
