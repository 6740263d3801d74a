"""What a kernel's machine code depends on, as a hash: its bytecode, constants, globals, and the kernels that it calls.

Two kernels with the same fingerprint compile to the same code, wherever and whenever their files were written.
Comments, docstrings and line numbers make no difference. Everything that a kernel names is followed: other kernels and
their globals, arrays and numbers by value, named tuples by their fields. A plain function of ours that a kernel names
stands for code that Numba finds by registration (``overload``), so the whole module that defines it is part of the
fingerprint.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

__all__ = ["fingerprint"]

_PACKAGE = __name__.partition(".")[0]
_FOLLOWED = ("LOAD_ATTR", "LOAD_METHOD")


@cache
def fingerprint(function: FunctionType) -> str:
    """Return the hash of everything that determines what *function* compiles to, except types and the processor."""
    reached, waiting = {function}, [function]
    while waiting:
        for called in _read(waiting.pop())[1]:
            if called not in reached:
                reached.add(called)
                waiting.append(called)
    own, others = _read(function)[0], sorted(_read(called)[0] for called in reached)
    return _hash([own, *others])


@cache
def _read(function: FunctionType) -> tuple[str, list[FunctionType]]:
    """Return the hash of a function alone, and the kernels that it names."""
    reader = _Reader()
    return _hash(reader.function(function)), reader.called


class _Reader:
    """Describes one function by strings that are the same on every machine."""

    def __init__(self) -> None:
        self.called: list[FunctionType] = []

    def function(self, function: FunctionType) -> Iterator[str]:
        yield function.__qualname__
        yield self._value(function.__defaults__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            yield f"{name}={self._value(cell.cell_contents)}"
        yield from self._code(function.__code__, function.__globals__, function.__doc__)

    def _code(self, code: CodeType, names: dict[str, Any], doc: str | None) -> Iterator[str]:
        yield code.co_code.hex()
        yield repr((code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_varnames, code.co_names))
        yield repr((code.co_freevars, code.co_cellvars))
        for number, constant in enumerate(code.co_consts):
            if number == 0 and doc is not None and constant == doc:
                continue
            if isinstance(constant, CodeType):
                yield from self._code(constant, names, None)
            else:
                yield self._value(constant)
        yield from self._globals(code, names)

    def _globals(self, code: CodeType, names: dict[str, Any]) -> Iterator[str]:
        """Describe each global that the code loads; if it is a module, the attribute that the code takes from it."""
        path = ""  # what is being loaded, while it is a module
        value: Any = None
        for step in dis.get_instructions(code):
            if path and step.opname in _FOLLOWED:
                path, value = f"{path}.{step.argval}", getattr(value, step.argval, None)
            elif path:
                yield f"{path}={self._value(value)}"
                path = ""
            if step.opname == "LOAD_GLOBAL" and step.argval in names:
                path, value = step.argval, names[step.argval]
            if path and not isinstance(value, ModuleType):
                yield f"{path}={self._value(value)}"
                path = ""

    def _value(self, value: Any) -> str:
        if value is None or isinstance(value, str | bytes | bool | int | float | complex):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, np.ndarray):
            content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            return f"array {value.dtype} {value.shape} {value.strides} {content}"
        if isinstance(value, np.generic):
            return f"scalar {value.dtype} {value.tobytes().hex()}"
        if isinstance(value, tuple | list):
            return f"{type(value).__qualname__}({', '.join(map(self._value, value))})"
        if isinstance(value, frozenset):
            return f"frozenset({', '.join(sorted(map(self._value, value)))})"
        compiled = getattr(value, "py_func", None) or getattr(value, "_defn", None)  # a kernel, an intrinsic
        if isinstance(compiled, FunctionType):
            self.called.append(compiled)
            return f"kernel {compiled.__qualname__}"
        name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
        if isinstance(value, type):
            return f"class {name} {getattr(value, '_fields', '')}"
        if isinstance(value, FunctionType) and name.startswith(f"{_PACKAGE}."):
            return f"function {name} {_module_hash(value.__module__)}"
        return f"{type(value).__qualname__} {name if callable(value) else repr(value)}"


@cache
def _module_hash(name: str) -> str:
    """Return the hash of a module's source, without its comments."""
    source = Path(inspect.getfile(sys.modules[name])).read_text(encoding="utf-8")
    return hashlib.sha256(ast.dump(ast.parse(source)).encode()).hexdigest()


def _hash(parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()
