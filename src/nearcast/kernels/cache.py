"""A cache of compiled kernels, found by content: one file for each kernel and each combination of types.

A kernel is compiled once per machine, whichever clone, environment or version of the package asks for it: its file is
named by the hash of its fingerprint, the types, the processor and the compiler. Kernels that came with the package are
looked up first, if the processor can run them (a wheel may bring kernels compiled for x86-64-v3, see
``tools/build_wheel.py``), then those in the user's own directory. A file that cannot be used for any reason is a miss,
and the kernel is compiled. If several processes miss the same kernel at the same time, one of them compiles it
(:mod:`.turns`).

The directory holds code, so it must belong to the user alone. It is ``NEARCAST_CACHE_DIR``, or ``nearcast/kernels`` in
the user's cache directory; if that cannot be written to, it is one in the temporary directory.

The hooks are Numba's private ones (``Dispatcher._cache``, ``CompileResult._reduce`` and ``_rebuild``). If a new Numba
changes them, the tests of this module fail; everything else still works, but no kernel is kept.
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
from nearcast.kernels import turns
from nearcast.kernels.fingerprint import fingerprint

__all__ = ["SHIPPED", "KernelCache", "directory", "is_private", "private_directory", "shipped_directory"]

_MAGIC = b"nearcast kernel 1\n"
_ENDING = ".kernel"
_ANNOTATION = 6  # where CompileResult._reduce has the annotated source: large, with paths of this machine
# The processor that a wheel's kernels are compiled for, by machine: its name in Numba, and the features it must have.
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
    """The cache that a dispatcher asks before it compiles a kernel, and gives the kernel to afterwards."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._enabled = True

    @property
    def cache_path(self) -> str:
        """The directory of new files."""
        return str(directory() or "")

    def enable(self) -> None:
        """Look kernels up and keep them, which is the default."""
        self._enabled = True

    def disable(self) -> None:
        """Compile every kernel anew."""
        self._enabled = False

    def flush(self) -> None:
        """Do nothing: files are named by content, so none can be out of date."""

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
            if (found := self._loaded(sig, target_context, place, kind)) is not None:
                return found
        if own is not None:
            was_taken = turns.take(own, _path(own, self._key(sig, processor)).name)
            found = self._loaded(sig, target_context, own, processor) if was_taken else None
            if found is not None:  # another process has compiled it
                self._release(sig, processor)
                return found
        _announce()
        return None

    def _loaded(self, sig: Any, target_context: Any, place: Path, processor: tuple[str, str, str]) -> Any:
        """Return the kernel from a directory, or None: whatever is wrong with its file, it can be compiled."""
        key = self._key(sig, processor)
        with contextlib.suppress(Exception):
            parts = _read(_path(place, key), key)
            return CompileResult._rebuild(target_context, *parts)  # type: ignore[no-untyped-call]
        return None

    def _release(self, sig: Any, processor: tuple[str, str, str]) -> None:
        if (place := directory()) is not None:
            turns.release(place, _path(place, self._key(sig, processor)).name)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled kernel."""
        try:
            self._save(sig, data)
        finally:
            self._release(sig, data.codegen.magic_tuple())

    def _save(self, sig: Any, data: Any) -> None:
        place = directory()
        if not self._enabled or place is None or data.library.has_dynamic_globals or data.lifted:
            return
        parts = list(data._reduce())
        parts[_ANNOTATION] = ""
        key = self._key(sig, data.codegen.magic_tuple())
        # If the disk is full, for instance, the kernel works but is not kept.
        with contextlib.suppress(OSError):
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
    """Return a name that no other type has; Numba's own name of a named tuple leaves out its class and fields."""
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
    """Return what else determines the machine code: versions, and the settings of Numba."""
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
    # Files in use are touched now and then, so that the oldest files are those that nobody uses.
    if time.time() - path.stat().st_mtime > config.KERNEL_TOUCH_S:
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
    """Remove the files that have not been used for the longest time, if there are too many; once per process."""
    kernels = [file for file in place.iterdir() if file.is_file() and file.name != turns.LOCKS]
    files = sorted(((f.stat().st_mtime, f.stat().st_size, f) for f in kernels), reverse=True)
    total, oldest = 0, time.time() - config.KERNEL_UNUSED_S
    for used, size, file in files:
        total += size
        if total > config.KERNEL_CACHE_BYTES or used < oldest:
            file.unlink(missing_ok=True)


@cache
def directory() -> Path | None:
    """Return the directory of the user's compiled kernels; None if there cannot be one."""
    return private_directory("kernels")


def private_directory(kind: str) -> Path | None:
    """Return a directory of this user's cache, in which only this user can write; None if there cannot be one.

    ``NEARCAST_CACHE_DIR`` is the directory of kernels; other kinds have subdirectories there.
    """
    temporary = Path(tempfile.gettempdir()) / f"nearcast-{kind}-{getattr(os, 'getuid', int)()}"
    chosen = os.environ.get("NEARCAST_CACHE_DIR")
    named = [] if not chosen else [Path(chosen) if kind == "kernels" else Path(chosen) / kind]
    for place in named or [_user_cache() / "nearcast" / kind, temporary]:
        with contextlib.suppress(OSError, RuntimeError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_private(place):
                return place
    return None


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def is_private(place: Path) -> bool:
    """Tell whether a directory belongs to this user, and only this user can write to it."""
    if not hasattr(os, "getuid"):
        return os.access(place, os.W_OK)
    status = place.lstat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(place, os.W_OK)


@cache
def shipped_directory() -> Path | None:
    """Return the directory of the kernels that came with the package; None if there are none that can run here."""
    place = Path(__file__).parent / "compiled"
    _, needed = SHIPPED.get(platform.machine(), ("", ["unknown"]))
    features = binding.get_host_cpu_features()
    return place if place.is_dir() and all(features.get(name) for name in needed) else None


@cache
def _announce() -> None:
    """Say, once per process, that kernels are being compiled, which takes time."""
    kept = directory()
    where = (
        f"and kept in {kept}"
        if kept
        else "and cannot be kept; set NEARCAST_CACHE_DIR to a directory that only you can write to"
    )
    _log.warning("nearcast: compiling kernels for this machine; each is compiled once %s", where)
