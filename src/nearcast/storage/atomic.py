"""Files that appear whole and stay: after a crash, of the machine too, there is the old file or the new one.

What is named by another file is on disk before that file is: write first what is named, then what names it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["rename_durably", "sync_directory", "sync_tree", "synced", "write_durably"]


@contextmanager
def synced(path: Path) -> Iterator[BinaryIO]:
    """Open a new file to be written; at the end its content is on disk."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def write_durably(path: Path) -> Iterator[BinaryIO]:
    """Open a file to be written that gets its name, in the place of one that has it, when its content is on disk.

    At the end the name is on disk too. After an error there is no such file, or still the one from before.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with synced(draft) as file:
            yield file
        rename_durably(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def rename_durably(draft: Path, path: Path) -> None:
    """Give *draft*, a file or a directory whose content is on disk, its name; at the end the name is on disk too."""
    draft.replace(path)
    sync_directory(path.parent)


def sync_tree(directory: Path) -> None:
    """Wait until everything in a directory is on disk, whoever wrote it."""
    for parent, _, files in os.walk(directory):
        for name in files:
            _sync(Path(parent, name))
        sync_directory(Path(parent))


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on disk."""
    if os.name != "nt":  # directories cannot be synced there
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
