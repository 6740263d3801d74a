"""Compiled code that several rooms share: hashing, sorted sets, posting lists, the decision itself.

A kernel sees arrays and scalars only; arrays that belong together come as one named tuple. It allocates nothing in
its inner loops, keeps no state, and holds no GIL, so that ``threads=`` is a plain thread pool. Every kernel is
cached on disk beside its source: it compiles once per machine. With ``NUMBA_DISABLE_JIT=1`` they run as plain Python,
for debuggers (all but :mod:`~nearcast.kernels.hashing`, which reads memory in a way that Python cannot).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numba

__all__ = ["kernel"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile *function* at its first call: cached on disk, without the GIL, with exact floating point.

    Division follows NumPy (no exception on zero), which spares a branch in every loop that divides.
    """
    compiled: Any = numba.njit(cache=True, nogil=True, fastmath=False, error_model="numpy")(function)
    # Numba calls a cached kernel fresh while its own file is unchanged, although kernels of other files are
    # compiled into it. Ours is fresh while the whole package is. The stamp is part of the version, which Numba reads
    # before anything else: what follows may name types that an upgrade has taken away.
    if hasattr(compiled, "_cache"):  # not under NUMBA_DISABLE_JIT
        compiled._cache._cache_file._version += f" {_package_stamp()}"
    kept: Callable[_P, _R] = compiled
    return kept


@cache
def _package_stamp() -> tuple[int, int]:
    """Return what changes when any source file of the package does: the newest change and the total size."""
    files = [path.stat() for path in Path(__file__).parents[1].rglob("*.py")]
    return max(file.st_mtime_ns for file in files), sum(file.st_size for file in files)
