"""Files that are written atomically: after any crash, even of the machine, there is the old file or the new one.

If one file refers to another, write the other one first: a file that is on disk must never refer to one that is not.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "draft_name",
    "is_draft",
    "rename_durably",
    "sync_directory",
    "sync_tree",
    "write_durably",
    "write_synced",
]

_DRAFT = re.compile(r"\..+\.[0-9a-f]{32}")


def draft_name(name: str) -> str:
    """Return a hidden name that nobody else uses, for a file or directory until it is complete."""
    return f".{name}.{uuid.uuid4().hex}"


def is_draft(name: str) -> bool:
    """Tell whether :func:`draft_name` may have returned a name; locks, and hidden files of others, have others."""
    return _DRAFT.fullmatch(name) is not None


@contextmanager
def write_synced(path: Path) -> Iterator[BinaryIO]:
    """Open a new file for writing; at the end its content is on disk."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def write_durably(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under its name, replacing any file there, once its content is on disk.

    At the end the name is on disk, too. After an error there is no such file, or still the one from before.
    """
    draft = path.with_name(draft_name(path.name))
    try:
        with write_synced(draft) as file:
            yield file
        rename_durably(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def rename_durably(draft: Path, path: Path) -> None:
    """Rename *draft*, a file or a directory whose content is on disk, to *path*; at the end its name is on disk too."""
    draft.replace(path)
    sync_directory(path.parent)


def sync_tree(directory: Path) -> None:
    """Wait until everything in a directory is on disk, whichever process wrote it."""
    for parent, _, files in os.walk(directory):
        for name in files:
            _sync(Path(parent, name))
        sync_directory(Path(parent))


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on disk."""
    if os.name != "nt":  # Windows cannot sync directories
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
