"""Compiled code that several packages share: hashing, sorted sets, posting lists, and the decision itself.

A kernel sees arrays and scalars only; arrays that belong together come as one named tuple. It allocates nothing in
its inner loops, keeps no state, and holds no GIL, so that ``threads=`` is a plain thread pool. Every kernel is
kept on disk (:mod:`~nearcast.kernels.cache`): it compiles once per machine. With ``NUMBA_DISABLE_JIT=1`` they run as
plain Python, for debuggers (all but :mod:`~nearcast.kernels.hashing`, which reads memory in a way that Python cannot).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba

from nearcast.kernels.cache import KernelCache

__all__ = ["kernel"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile *function* at its first call, or load it from the cache: without the GIL, with exact floating point.

    Division follows NumPy (no exception on zero), which saves a branch in every loop that divides.
    """
    compiled: Any = numba.njit(nogil=True, fastmath=False, error_model="numpy")(function)
    if hasattr(compiled, "_cache"):  # not under NUMBA_DISABLE_JIT
        compiled._cache = KernelCache(compiled.py_func)
    kept: Callable[_P, _R] = compiled
    return kept
