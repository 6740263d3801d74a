"""Asking for memory before it is read, so that cache misses overlap."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic

__all__ = ["prefetch"]


def _prefetch(typingctx: Any, array: Any, row: Any) -> Any:
    """Ask for the cache line in which array[row] begins; it changes nothing but the time of the next read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = builder.extract_value(view.strides, 0)
        offset = builder.mul(context.cast(builder, arguments[1], signature.args[1], types.intp), stride)
        byte = ir.IntType(8).as_pointer()
        address = builder.gep(builder.bitcast(view.data, byte), [offset])
        number = ir.IntType(32)
        call = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        )
        builder.call(call, [address, number(0), number(3), number(1)])  # to read; keep; data
        return context.get_dummy_value()

    return types.void(array, row), generate


def _nothing(array: Any, row: int) -> None:
    """Do what a prefetch means to plain Python."""


prefetch: Any = _nothing if getattr(config, "DISABLE_JIT", 0) else intrinsic(_prefetch)
