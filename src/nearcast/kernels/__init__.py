"""Compiled code that several rooms share: hashing, sorted sets, ragged rows, growable posting lists.

A kernel sees arrays and scalars only; arrays that belong together come as one named tuple. It allocates nothing in its inner
loops, keeps no state, and holds no GIL, so that ``threads=`` is a plain thread pool. Every kernel is cached on disk beside its
source: it compiles once per machine. ``kernel.py_func`` is the same code as plain Python, for tests and debuggers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

__all__ = ["kernel"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile *function* at its first call: cached on disk, without the GIL, with exact floating point.

    Division follows NumPy (no exception on zero), which spares a branch in every loop that divides.
    """
    compiled: Callable[_P, _R] = numba.njit(cache=True, nogil=True, fastmath=False, error_model="numpy")(
        function
    )
    return compiled
