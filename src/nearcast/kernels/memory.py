"""Ask for memory before it is needed, so that waits for several places overlap."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

__all__ = ["prefetch"]


def prefetch(array: Any, at: int) -> None:
    """Begin to load the cache line of entry (or row) *at* of an array; a hint only, also beyond its end."""


@intrinsic
def _prefetch_address(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        )
        # The flags mean: for reading, to be kept in all caches, data.
        builder.call(function, [builder.inttoptr(arguments[0], pointer), *(flag(k) for k in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(types.uintp), generate


@overload(prefetch, inline="always")
def _prefetch(array: Any, at: int) -> Any:
    def compiled(array: Any, at: int) -> None:
        _prefetch_address(array.ctypes.data + at * array.strides[0])  # type: ignore[call-arg]

    return compiled
