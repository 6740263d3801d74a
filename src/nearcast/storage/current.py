"""The current one of several versions: the file ``CURRENT`` beside them names it."""

from __future__ import annotations

import os

from nearcast.errors import IndexFileError, shown
from nearcast.storage.places import Place, place_at

__all__ = ["CURRENT", "current", "switch"]

CURRENT = "CURRENT"


def current(directory: str | os.PathLike[str] | Place) -> Place:
    """Return the version that the file ``CURRENT`` in *directory* names or, without that file, *directory* itself."""
    home = place_at(directory)
    try:
        content = home.read(CURRENT)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return home
    name = content.decode(errors="replace").strip()
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise IndexFileError(
            f"{home.local or home}/{CURRENT} names {shown(name)}, which is not a version beside it; save it again"
        )
    return home / name


def switch(directory: str | os.PathLike[str] | Place, version: str) -> None:
    """Make the existing version with this name the current one of *directory*, in one step."""
    place_at(directory).write(CURRENT, f"{version}\n".encode())
