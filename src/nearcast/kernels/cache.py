"""Compiled kernels that are found again: one file for each kernel and each combination of types, by content.

A kernel is compiled once per machine, whatever clone, environment or version of the package asks for it: its file is
named by the hash of its fingerprint, the types, the processor and the compiler. Looked up first is what came with the
package (a wheel may bring kernels compiled for x86-64-v3, see ``tools/build_wheel.py``), where the processor covers
that; then the user's own directory. A file that cannot be used for any reason is a miss, and the kernel is compiled.

The directory holds code, so it must belong to the user alone. It is ``NEARCAST_CACHE_DIR``, or ``nearcast/kernels`` in
the user's cache directory; where that cannot be written, one in the temporary directory.

The hooks are Numba's private ones (``Dispatcher._cache``, ``CompileResult._reduce`` and ``_rebuild``). The tests of
this module tell when a new Numba changes them; until then everything works, and nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pickle
import platform
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite
import numba
from llvmlite import binding
from numba.core import config as numba_config
from numba.core import types
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from nearcast import config
from nearcast.kernels.fingerprint import fingerprint

__all__ = ["SHIPPED", "KernelCache", "directory", "shipped_directory"]

_MAGIC = b"nearcast kernel 1\n"
_ENDING = ".kernel"
_ANNOTATION = 6  # where CompileResult._reduce has the annotated source: large, with paths of this machine
# What a wheel's kernels are compiled for, by machine: the processor, as Numba names it, and the features it must have.
SHIPPED = {
    "x86_64": (
        "x86-64-v3",
        ["avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2", "xsave"],
    ),
    "aarch64": ("generic", []),
}
_FLAGS = (
    "OPT",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "DEBUGINFO_DEFAULT",
    "BOUNDSCHECK",
    "FULL_TRACEBACKS",
    "ENABLE_AVX",
)
_log = logging.getLogger("nearcast")


class KernelCache(_Cache):
    """What a dispatcher asks before it compiles, and tells when it has."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._enabled = True

    @property
    def cache_path(self) -> str:
        """Where new files go."""
        return str(directory() or "")

    def enable(self) -> None:
        """Look kernels up, and keep them (from the beginning)."""
        self._enabled = True

    def disable(self) -> None:
        """Compile always."""
        self._enabled = False

    def flush(self) -> None:
        """Do nothing: files are named by content, so there are none to be forgotten."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel for these types, or None."""
        if not self._enabled:
            return None
        target_context.refresh()
        processor = target_context.codegen().magic_tuple()
        places = []
        if (shipped := shipped_directory()) is not None:
            places.append((shipped, (processor[0], SHIPPED[platform.machine()][0], "")))
        if (own := directory()) is not None:
            places.append((own, processor))
        for place, kind in places:
            key = self._key(sig, kind)
            with contextlib.suppress(Exception):  # whatever is wrong with a file, the kernel can be compiled
                parts = _read(_path(place, key), key)
                return CompileResult._rebuild(target_context, *parts)  # type: ignore[no-untyped-call]
        _tell()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel that was compiled."""
        place = directory()
        if not self._enabled or place is None or data.library.has_dynamic_globals or data.lifted:
            return
        parts = list(data._reduce())
        parts[_ANNOTATION] = ""
        key = self._key(sig, data.codegen.magic_tuple())
        with contextlib.suppress(OSError):  # a full disk, say: the kernel works, it is not kept
            payload: bytes = dumps(tuple(parts))  # type: ignore[no-untyped-call]
            _write(_path(place, key), key, payload)
            _prune(place)

    def _key(self, sig: Any, processor: tuple[str, str, str]) -> bytes:
        arguments = sig if isinstance(sig, tuple) else (*sig.args, sig.return_type)
        described = "\n".join(
            [fingerprint(self._function), *map(_type_name, arguments), *processor, *_compiler()]
        )
        return described.encode()


def _type_name(kind: Any) -> str:
    """Return a name of a type that no other type has; Numba's own leave out whose fields a named tuple has."""
    if isinstance(kind, types.NamedTuple | types.NamedUniTuple):
        owner = kind.instance_class
        inner = ", ".join(map(_type_name, kind.types))
        return f"{owner.__module__}.{owner.__qualname__}{owner._fields}({inner})"
    if isinstance(kind, types.Tuple | types.UniTuple):
        return f"({', '.join(map(_type_name, kind.types))})"
    if isinstance(kind, types.Dispatcher):
        return f"kernel {fingerprint(kind.dispatcher.py_func)}"
    return str(kind)


@cache
def _compiler() -> list[str]:
    """Return what else decides the code: versions, and settings of Numba."""
    python = f"{platform.python_implementation()} {sys.implementation.cache_tag}"
    flags = [f"{name}={getattr(numba_config, name, None)}" for name in _FLAGS]
    return [python, f"numba {numba.__version__}", f"llvmlite {llvmlite.__version__}", *flags]


def _path(place: Path, key: bytes) -> Path:
    return place / (hashlib.sha256(key).hexdigest()[:40] + _ENDING)


def _read(path: Path, key: bytes) -> Any:
    """Return the parts of a compiled kernel; raise if the file is not exactly what was written under this key."""
    content = path.read_bytes()
    head = len(_MAGIC) + 32
    if (
        not content.startswith(_MAGIC)
        or hashlib.sha256(content[head:]).digest() != content[len(_MAGIC) : head]
    ):
        raise ValueError("the file is damaged")
    if not content.startswith(key, head):
        raise ValueError("the file holds another kernel")
    if (
        time.time() - path.stat().st_mtime > config.KERNEL_TOUCH_S
    ):  # so that old files are those that nobody uses
        with contextlib.suppress(OSError):
            os.utime(path)
    return pickle.loads(content[head + len(key) :])


def _write(path: Path, key: bytes, payload: bytes) -> None:
    body = key + payload
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(_MAGIC + hashlib.sha256(body).digest() + body)
    Path(file.name).replace(path)


@cache
def _prune(place: Path) -> None:
    """Once in a process, remove the files that were not used for longest, where there are too many."""
    files = sorted(((f.stat().st_mtime, f.stat().st_size, f) for f in place.iterdir()), reverse=True)
    total, oldest = 0, time.time() - config.KERNEL_UNUSED_S
    for used, size, file in files:
        total += size
        if total > config.KERNEL_CACHE_BYTES or used < oldest:
            file.unlink(missing_ok=True)


@cache
def directory() -> Path | None:
    """Return the directory of the user's compiled kernels, None where there can be none."""
    temporary = Path(tempfile.gettempdir()) / f"nearcast-kernels-{getattr(os, 'getuid', int)()}"
    chosen = os.environ.get("NEARCAST_CACHE_DIR")
    for place in [Path(chosen)] if chosen else [_user_cache() / "nearcast" / "kernels", temporary]:
        with contextlib.suppress(OSError, RuntimeError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(place):
                return place
    return None


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _is_private(place: Path) -> bool:
    """Tell whether a directory belongs to this user, who alone can write to it: what is in it is going to be run."""
    if not hasattr(os, "getuid"):
        return os.access(place, os.W_OK)
    status = place.lstat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(place, os.W_OK)


@cache
def shipped_directory() -> Path | None:
    """Return the kernels that came with the package, None where there are none or the processor is not up to them."""
    place = Path(__file__).parent / "compiled"
    _, needed = SHIPPED.get(platform.machine(), ("", ["unknown"]))
    features = binding.get_host_cpu_features()
    return place if place.is_dir() and all(features.get(name) for name in needed) else None


@cache
def _tell() -> None:
    """Say, once in a process, that compiling takes its time."""
    kept = directory()
    where = (
        f"and kept in {kept}"
        if kept
        else "and cannot be kept: set NEARCAST_CACHE_DIR to a directory of yours"
    )
    _log.warning("nearcast: compiling kernels for this machine; each is compiled once %s", where)
