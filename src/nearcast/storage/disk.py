"""A place on a disk: any file system that is mounted on this machine."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nearcast.errors import StorageError
from nearcast.storage.atomic import draft_name, is_draft, sync_directory, write_durably, write_synced
from nearcast.storage.places import Entry, Place

__all__ = ["Disk"]

_UNSUPPORTED = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV, errno.EMLINK, errno.ENOLCK)


class Disk(Place):
    """A directory on a disk. Drafts of files have names that begin with a dot, until they are complete."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._path = Path(uri.removeprefix("file://") or "/")

    @property
    def local(self) -> Path:
        """The path of the directory."""
        return self._path

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return (self._path / name).read_bytes()

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        """Return the content of a file, with a digest as its tag."""
        try:
            content = self.read(name)
        except FileNotFoundError:
            return None
        return content, _digest(content)

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        return (self._path / name).open("rb")

    def download(self, name: str, path: Path) -> None:
        """Copy a file."""
        shutil.copyfile(self._path / name, path)

    def write(self, name: str, content: bytes | memoryview | Path) -> None:
        """Write a draft, and rename it."""
        with write_durably(self._parent(name)) as file:
            if isinstance(content, Path):
                with content.open("rb") as source:
                    shutil.copyfileobj(source, file)
            else:
                file.write(content)

    def create(self, name: str, content: bytes) -> bool:
        """Write a draft, and give it a second name by a hard link, which fails if the name exists."""
        path = self._parent(name)
        draft = path.with_name(draft_name(path.name))
        try:
            with write_synced(draft) as file:
                file.write(content)
            os.link(draft, path)
            sync_directory(path.parent)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                raise StorageError(
                    f"the file system of {path.parent} has no hard links ({error.strerror}), so a file cannot be "
                    "created only if it does not exist; use another file system or an object store"
                ) from error
            raise
        finally:
            draft.unlink(missing_ok=True)
        return True

    def swap(self, name: str, content: bytes, tag: str | None) -> bool:
        """Compare the digest of the file and replace it, under a lock that ends with its process."""
        path = self._parent(name)
        with _locked(path.with_name(f".{path.name}.lock")):
            found = self.read_tagged(name)
            if tag != (None if found is None else found[1]):
                return False
            self.write(name, content)
        return True

    def entries(self, prefix: str = "") -> list[Entry]:
        """Return all files below the directory."""
        found = []
        start = self._path / prefix.rpartition("/")[0]
        for parent, directories, files in os.walk(start):
            directories[:] = [name for name in directories if not name.startswith(".")]
            for file in files:
                path = Path(parent, file)
                name = path.relative_to(self._path).as_posix()
                if file.startswith(".") or not name.startswith(prefix):
                    continue
                try:
                    about = path.stat()
                except FileNotFoundError:  # removed meanwhile
                    continue
                found.append(Entry(name, about.st_size, about.st_mtime))
        return sorted(found)

    def drafts(self) -> list[Entry]:
        """Return the drafts of files and of directories."""
        found = []
        for parent, directories, files in os.walk(self._path):
            drafts = filter(is_draft, [*directories, *files])
            found += [self._entry(Path(parent, name)) for name in drafts]
            directories[:] = [name for name in directories if not name.startswith(".")]
        return sorted(entry for entry in found if entry is not None)

    def _entry(self, path: Path) -> Entry | None:
        """Return a file, or a directory with all that it has, as one entry; None if it is gone meanwhile."""
        try:
            found = [path.stat(), *(each.stat() for each in path.rglob("*"))]
        except FileNotFoundError:
            return None
        size, modified = sum(each.st_size for each in found), max(each.st_mtime for each in found)
        return Entry(path.relative_to(self._path).as_posix(), size, modified)

    def sweep_drafts(self, before: float) -> None:
        """Remove old drafts."""
        for draft in self.drafts():
            if draft.modified < before:
                path = self._path / draft.name
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def children(self) -> list[str]:
        """Return the names in the directory."""
        try:
            return sorted(name for name in os.listdir(self._path) if not name.startswith("."))  # noqa: PTH208
        except FileNotFoundError:
            return []

    def exists(self, name: str) -> bool:
        """Tell whether there is such a file."""
        return (self._path / name).is_file()

    def remove(self, names: Sequence[str]) -> None:
        """Remove files."""
        for name in names:
            (self._path / name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self._path, ignore_errors=True)

    def _parent(self, name: str) -> Path:
        """Return the path of a file, after its directory was made."""
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ModuleNotFoundError:
        raise StorageError(f"this system cannot lock files, so {path.parent} cannot be used here") from None
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                raise StorageError(
                    f"the file system of {path.parent} has no locks ({error.strerror}), so a file cannot be replaced "
                    "only if it is unchanged; use another file system or an object store"
                ) from error
            raise
        yield
    finally:
        os.close(handle)
