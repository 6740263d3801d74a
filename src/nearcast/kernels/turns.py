"""Processes that need the same kernel at the same time: one compiles it, and the others wait and find it in the cache.

A lock is a byte of one file in the directory of the kernels. It belongs to a process: a child of it does not have it,
and it is free again when the process ends.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import cache
from pathlib import Path

from nearcast import config

try:
    import fcntl
except ImportError:  # on Windows, where everybody compiles
    fcntl = None  # type: ignore[assignment]

__all__ = ["LOCKS", "release", "take"]

LOCKS = ".locks"  # the file
_POLL_S = 0.02


def take(place: Path, name: str) -> bool:
    """Take the lock of a kernel, by the *name* of its file; return whether another process had it first.

    If somebody has it for longer than a compilation takes, go on without it.
    """
    file = _file(place)
    if fcntl is None or file is None:
        return False
    waited, until = False, time.monotonic() + config.KERNEL_WAIT_S
    while time.monotonic() < until:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(name))
        except BlockingIOError:
            waited = True
            time.sleep(_POLL_S)
        except OSError:  # a file system without locks
            return waited
        else:
            return waited
    return waited


def release(place: Path, name: str) -> None:
    """Give the lock back, if this process has it."""
    file = _file(place)
    if fcntl is not None and file is not None:
        with contextlib.suppress(OSError):
            fcntl.lockf(file, fcntl.LOCK_UN, 1, _byte(name))


@cache
def _file(place: Path) -> int | None:
    """Return a descriptor that is never closed: that would give back all locks of the process."""
    with contextlib.suppress(OSError):
        return os.open(place / LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return None


def _byte(name: str) -> int:
    return int(name[:7], 16)
