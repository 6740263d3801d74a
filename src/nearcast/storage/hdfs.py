"""A place in the Hadoop file system, spoken to directly: no Java is needed where Nearcast runs.

The settings of a cluster (high availability, Kerberos) are read from the files that ``HADOOP_CONF_DIR`` or
``HADOOP_HOME`` names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from hdfs_native import Client, WriteOptions

from nearcast import config
from nearcast.errors import StorageError
from nearcast.storage.atomic import draft_name, is_draft
from nearcast.storage.places import Entry, Place
from nearcast.storage.reader import buffered

__all__ = ["Hdfs"]


class Hdfs(Place):
    """A directory in HDFS. Drafts of files have names that begin with a dot, until they are complete."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        host, _, path = uri.removeprefix("hdfs://").partition("/")
        self._host, self._path = f"hdfs://{host}", f"/{path}".rstrip("/")

    @property
    def _client(self) -> Client:
        return _connect(self._host, os.getpid())

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self.open(name) as file:
            return file.read()

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        """Return the content of a file; its tag is of no use, since :meth:`swap` is refused."""
        try:
            return self.read(name), ""
        except FileNotFoundError:
            return None

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        try:
            reader = self._client.read(f"{self._path}/{name}")
        except FileNotFoundError:  # whose text is a trace of the server
            raise FileNotFoundError(f"{self.uri}/{name} does not exist") from None
        return buffered(reader, len(reader))

    def download(self, name: str, path: Path) -> None:
        """Copy a file, piece by piece."""
        with self.open(name) as source, path.open("wb") as file:
            shutil.copyfileobj(source, file, config.STORAGE_PIECE)

    def write(self, name: str, content: bytes | memoryview | Path) -> None:
        """Write a draft, and rename it."""
        self._client.rename(self._draft(name, content), f"{self._path}/{name}", True)

    def create(self, name: str, content: bytes) -> bool:
        """Write a draft, and rename it, which fails if the name exists."""
        draft = self._draft(name, content)
        try:
            self._client.rename(draft, f"{self._path}/{name}", False)
        except FileExistsError:
            self._client.delete(draft)
            return False
        return True

    def swap(self, name: str, content: bytes, tag: str | None) -> bool:
        """Create a file; a file that exists cannot be compared and replaced in one step."""
        if tag is None:
            return self.create(name, content)
        raise StorageError(
            f"HDFS cannot replace {self.uri}/{name} only if it is unchanged; use an object store or a disk for what "
            "several jobs add to, such as a profile"
        )

    def entries(self, prefix: str = "") -> list[Entry]:
        """Return all files below the directory."""
        listed = self._files(prefix.rpartition("/")[0])
        return [entry for entry in listed if "/." not in f"/{entry.name}" and entry.name.startswith(prefix)]

    def drafts(self) -> list[Entry]:
        """Return the drafts of files."""
        return [entry for entry in self._files("") if is_draft(entry.name.rpartition("/")[2])]

    def _files(self, directory: str) -> list[Entry]:
        """Return all files in a directory and below, those with hidden names too."""
        try:
            listed = list(self._client.list_status(f"{self._path}/{directory}".rstrip("/") or "/", True))
        except FileNotFoundError:
            return []
        return sorted(
            Entry(status.path.removeprefix(f"{self._path}/"), status.length, status.modification_time / 1000)
            for status in listed
            if not status.isdir
        )

    def children(self) -> list[str]:
        """Return the names in the directory."""
        try:
            names = [status.path.rpartition("/")[2] for status in self._client.list_status(self._path or "/")]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if not name.startswith("."))

    def exists(self, name: str) -> bool:
        """Tell whether there is such a file."""
        try:
            return not self._client.get_file_info(f"{self._path}/{name}").isdir
        except FileNotFoundError:
            return False

    def remove(self, names: Sequence[str]) -> None:
        """Delete files."""
        for name in names:
            self._client.delete(f"{self._path}/{name}")

    def clear(self) -> None:
        """Delete the directory."""
        self._client.delete(self._path or "/", True)

    def _draft(self, name: str, content: bytes | memoryview | Path) -> str:
        """Write a draft of a file; return its path."""
        parent, _, last = name.rpartition("/")
        draft = "/".join(filter(None, [self._path, parent, draft_name(last)]))
        with self._client.create(draft, WriteOptions(create_parent=True)) as file:
            if isinstance(content, Path):
                with content.open("rb") as source:
                    shutil.copyfileobj(source, file, config.STORAGE_PIECE)
            else:
                file.write(content)
        return draft


@lru_cache(maxsize=config.STORAGE_CONNECTIONS)
def _connect(host: str, process: int) -> Client:
    """Return a client; each process needs its own, since its connections and threads do not survive a fork."""
    return Client(host)
