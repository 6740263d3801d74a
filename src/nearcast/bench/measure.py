"""Measuring: the best of several runs, single calls, memory, and a description of the machine."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from nearcast.columns import Matches

__all__ = [
    "Columns",
    "Progress",
    "Structure",
    "affordable",
    "best_of",
    "each",
    "machine",
    "resident_bytes",
    "timed",
    "versions",
]

Progress = Callable[[str, float], None]  # called with the current step and the share that is done (0 to 1)

_CALIBRATION = 8  # queries by which the speed of a slow structure is estimated
_CALIBRATIONS = 3  # runs of these queries; the best one counts

_T = TypeVar("_T")


class Columns(Protocol):
    """Rows of one kind: a ``SubscriptionTable`` or a ``MessageBatch``."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def take(self, rows: Any, /) -> Self:
        """Return the given rows."""


class Structure(Protocol):
    """What is measured: an ``Index``, queried by messages, or a ``MessageStore``, queried by subscriptions."""

    def match(self, queries: Any, /, *, threads: int = 1) -> Matches:
        """Return the rows that each query matches."""

    def insert(self, more: Any, /) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Add rows."""

    def remove(self, rows: Any, /) -> None:
        """Remove rows."""

    def stats(self) -> dict[str, Any]:
        """Return plain figures."""


_Queries = TypeVar("_Queries", bound=Columns)


def timed(call: Callable[[], _T]) -> tuple[float, _T]:
    """Return the seconds that one call took, and its answer. The garbage collector is off meanwhile."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter()
        answer = call()
        return time.perf_counter() - start, answer
    finally:
        if collecting:
            gc.enable()


def best_of(repeat: int, call: Callable[[], _T]) -> tuple[float, _T]:
    """Return the seconds of the fastest of *repeat* calls, and the last answer.

    The best run shows what the code can do; the others show what else the machine did.
    """
    best, answer = timed(call)
    for _ in range(repeat - 1):
        seconds, answer = timed(call)
        best = min(best, seconds)
    return best, answer


def each(calls: Iterable[Callable[[], object]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Make the calls one after the other; return the seconds of each."""
    return np.array([timed(call)[0] for call in calls])


def affordable(structure: Structure, queries: _Queries, threads: int, seconds: float) -> _Queries:
    """Return as many of the first queries as *structure* can answer in *seconds*, but at least a few."""
    few = min(_CALIBRATION * threads, len(queries))
    first = queries.take(np.arange(few))
    took, _ = best_of(_CALIBRATIONS, lambda: structure.match(first, threads=threads))
    count = int(seconds / max(took, 1e-9) * few)
    return queries if count >= len(queries) else queries.take(np.arange(max(count, few)))


def resident_bytes() -> int | None:
    """Return the memory that the process occupies now, or None if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that determine the speed."""
    found = {"python": platform.python_version()}
    for package in ("nearcast", "numpy", "numba", "pyarrow"):
        found[package] = importlib.metadata.version(package)
    return found


def machine() -> dict[str, Any]:
    """Describe the machine without naming it: processor, cores that may be used, memory, system."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    memory: int | None = None
    if {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": cores,
        "memory_bytes": memory,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    """Return the model of the processor as the system writes it."""
    if sys.platform == "linux":
        try:
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
        except OSError:
            pass
    return platform.processor() or "unknown"
