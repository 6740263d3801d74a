"""Copies, on this machine, of directories in object stores: fetched once, and mapped by all processes of the user.

A copy is found by the digest of its manifest, so it never goes out of date, and equal parts of several versions are one
copy. It is made under a lock, checked by the checksums of the manifest, and appears whole or not at all. Copies that
were not used for the longest time are removed when all of them together exceed a limit. A process that has mapped a
copy keeps its pages even if the copy is removed.

The directory is ``parts`` in the user's cache directory for Nearcast; ``NEARCAST_CACHE_DIR`` names another one, and
``NEARCAST_CACHE_BYTES`` the limit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from nearcast import config
from nearcast.errors import IndexFileError, InputError, RuntimeUnavailableError, shown
from nearcast.kernels.cache import private_directory
from nearcast.storage.atomic import draft_name, is_draft
from nearcast.storage.manifest import MANIFEST, Manifest, check_files, parse_manifest
from nearcast.storage.places import Place

__all__ = ["cache_directory", "discard", "fetched"]

_LOCKS = 256  # files that are locked; copies share them by the first byte of their digests


@contextmanager
def fetched(place: Place) -> Iterator[Path]:
    """Provide the local copy of a directory in an object store; fetch it if it is not there.

    It is not removed while the context lasts, which is long enough to map its files.
    """
    content, manifest = _manifest(place)
    home = cache_directory()
    copy = home / manifest.digest
    while True:
        with _locked(home, manifest.digest, shared=True):
            if copy.is_dir():
                os.utime(copy)  # it was used now
                yield copy
                return
        with _locked(home, manifest.digest, shared=False):
            if not copy.is_dir():
                _fetch(place, content, manifest, copy)
        _prune(home, manifest.digest)


def discard(place: Place) -> None:
    """Remove the local copy of a directory, if there is one."""
    _, manifest = _manifest(place)
    home = cache_directory()
    with _locked(home, manifest.digest, shared=False):
        _remove(home / manifest.digest)


def cache_directory() -> Path:
    """Return the directory of the copies."""
    found = private_directory("parts")
    if found is None:
        raise RuntimeUnavailableError(
            "no directory can be written to for copies of remote files; name one with NEARCAST_CACHE_DIR"
        )
    return found


def _manifest(place: Place) -> tuple[bytes, Manifest]:
    try:
        content = place.read(MANIFEST)
    except FileNotFoundError:
        raise IndexFileError(f"nothing is saved at {place}: it has no {MANIFEST}") from None
    return content, parse_manifest(content, place)


def _fetch(place: Place, content: bytes, manifest: Manifest, copy: Path) -> None:
    """Make a copy, and check it; the caller has the lock."""
    draft = copy.with_name(draft_name(copy.name))
    try:
        for name in ("", *manifest.files):
            (draft / manifest.data / name).parent.mkdir(parents=True, exist_ok=True)

        def fetch(name: str) -> None:
            place.download(f"{manifest.data}/{name}".lstrip("/"), draft / manifest.data / name)

        try:
            with ThreadPoolExecutor(config.STORAGE_TRANSFERS) as pool:
                list(pool.map(fetch, manifest.files))
        except FileNotFoundError as error:
            raise IndexFileError(f"{place} is incomplete: {error}; save it again") from None
        (draft / MANIFEST).write_bytes(content)
        try:
            check_files(draft, manifest, verify=True)
        except IndexFileError as error:
            raise IndexFileError(f"{place}: {error}".replace(str(draft), str(place))) from None
        draft.rename(copy)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _prune(home: Path, used: str) -> None:
    """Remove the copies that were not used for the longest time, if all together are too large; not the one in use.

    Drafts count too. One whose lock is free was left by a process that was killed, and is removed.
    """
    limit, total, copies = _limit(), 0, []
    for path in home.iterdir():
        if is_draft(path.name):
            with contextlib.suppress(BlockingIOError), _locked(home, path.name[1:], shared=False, wait=False):
                shutil.rmtree(path, ignore_errors=True)
        if not path.is_dir():
            continue
        with contextlib.suppress(FileNotFoundError):
            size = sum(file.stat().st_size for file in path.rglob("*"))
            total += size
            if not path.name.startswith("."):
                copies.append((path.stat().st_mtime, size, path))
    for _, size, path in sorted(copies):
        if total <= limit:
            return
        if path.name != used:
            with contextlib.suppress(BlockingIOError), _locked(home, path.name, shared=False, wait=False):
                _remove(path)
                total -= size


def _remove(path: Path) -> None:
    """Remove a copy; it has another name before its files begin to go."""
    gone = path.with_name(draft_name(path.name))
    with contextlib.suppress(FileNotFoundError):
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _limit() -> int:
    chosen = os.environ.get("NEARCAST_CACHE_BYTES")
    if not chosen:
        return config.STORAGE_CACHE_BYTES
    if not chosen.isdecimal():
        raise InputError(f"NEARCAST_CACHE_BYTES must be a whole number of bytes, not {shown(chosen)}")
    return int(chosen)


@contextmanager
def _locked(home: Path, digest: str, *, shared: bool, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a copy; it ends with the process."""
    try:
        import fcntl
    except ModuleNotFoundError:
        raise RuntimeUnavailableError(
            "this system cannot lock files, so remote files cannot be read here"
        ) from None
    handle = os.open(home / f".lock-{int(digest[:8], 16) % _LOCKS:02x}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)
