"""Places: directories by path or URI, on a disk or in an object store, behind one small set of operations.

Everything that has to last goes through a :class:`Place`: saved arrays, versions, states, deltas, valid messages.
A file appears whole or not at all, and is durable when a call returns. Beyond that, everything rests on two operations:

====================  ==============================  =========================  ================================
..                    a disk (a path, ``file:``)      an object store            ``hdfs:``
====================  ==============================  =========================  ================================
:meth:`Place.create`  a hard link, which never        a PUT that fails if the    a rename, which never replaces
                      replaces a file                 name exists
:meth:`~Place.swap`   compared under a lock of the    a PUT that fails if the    refused: HDFS cannot compare and
                      file system                     object has changed         replace in one step
====================  ==============================  =========================  ================================

A file system that lacks one of them is refused by name (:class:`~nearcast.errors.StorageError`).
"""

from __future__ import annotations

import importlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nearcast.errors import InputError, RuntimeUnavailableError, shown

__all__ = ["Entry", "Place", "place_at", "uri_of"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # two letters at least: C: is a drive
# Where each scheme is implemented; a module is imported when one of its URIs is first named.
_SCHEMES = {
    "file": "nearcast.storage.disk:Disk",
    "s3": "nearcast.storage.objects:ObjectStore",
    "gs": "nearcast.storage.objects:ObjectStore",
    "abfss": "nearcast.storage.objects:ObjectStore",
    "hdfs": "nearcast.storage.hdfs:Hdfs",
}
_EXTRAS = {"s3": "cloud", "gs": "cloud", "abfss": "cloud", "hdfs": "hdfs"}  # of pip
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}  # as Hadoop names them


class Entry(NamedTuple):
    """A file in a place."""

    name: str  # relative to the place, with / between parts
    size: int  # in bytes
    modified: float  # seconds since 1970


class Place(ABC):
    """A directory. Names of files are relative to it, with ``/`` between parts.

    A place need not exist before something is written to it, and object stores have no empty directories. Errors of the
    system (no permission, no connection, a full disk) are raised as they come.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.uri}>"

    def __str__(self) -> str:
        return self.uri

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.uri == other.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __reduce__(self) -> tuple[object, ...]:
        return place_at, (self.uri,)  # connections are not sent to other processes

    def __truediv__(self, name: str) -> Place:
        return type(self)(f"{self.uri}/{name}")

    @property
    def name(self) -> str:
        """The last part of the URI."""
        return self.uri.rpartition("/")[2]

    @property
    def local(self) -> Path | None:
        """The path, if this place is on a disk of this machine, so that its files can be mapped where they are."""
        return None

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file; raise FileNotFoundError if there is none."""

    @abstractmethod
    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        """Return the content of a file with a tag of its present state, for :meth:`swap`; None if there is no file."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open a file for reading at any position; raise FileNotFoundError if there is none."""

    @abstractmethod
    def download(self, name: str, path: Path) -> None:
        """Copy a file to a new local file; raise FileNotFoundError if there is none."""

    @abstractmethod
    def write(self, name: str, content: bytes | memoryview | Path) -> None:
        """Write a file, replacing any file of this name; *content* may be a local file."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> bool:
        """Write a file if there is none of this name; return whether this call wrote it."""

    @abstractmethod
    def swap(self, name: str, content: bytes, tag: str | None) -> bool:
        """Replace a file if its tag is still *tag* (None: if there is no file); return whether this call did."""

    @abstractmethod
    def entries(self, prefix: str = "") -> list[Entry]:
        """Return all files whose names begin with *prefix*, in subdirectories too, sorted by name.

        Unfinished files of interrupted writers are not among them.
        """

    def drafts(self) -> list[Entry]:
        """Return the unfinished files and directories of writers, each with the time of its last change.

        Writers that were killed leave them behind. Object stores have none: what is not complete is not there.
        """
        return []

    def sweep_drafts(self, before: float) -> None:
        """Remove what interrupted writers left here and in subdirectories, if it was last written before a time."""
        self.remove([draft.name for draft in self.drafts() if draft.modified < before])

    @abstractmethod
    def children(self) -> list[str]:
        """Return the names of the files and directories directly in this place, sorted; on a disk one may be empty."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Tell whether there is a file of this name."""

    @abstractmethod
    def remove(self, names: Sequence[str]) -> None:
        """Remove files; names of files that do not exist are ignored."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the place and everything in it; it may be gone already."""


def uri_of(path: str | os.PathLike[str] | Place) -> str:
    """Return the URI of a path or URI: absolute, with its scheme, without a slash at the end.

    Names are taken as they are: ``%20`` is three characters, as it is to Spark.

    >>> uri_of("/data/versions/"), uri_of("s3a://bucket/versions")
    ('file:///data/versions', 's3://bucket/versions')
    """
    if isinstance(path, Place):
        return path.uri
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"a place is a path or a URI, not {shown(path)}")
    text = os.fspath(path)
    if not isinstance(path, str) or not _SCHEME.match(text):
        return _file_uri(text)
    given, _, rest = text.partition(":")
    scheme = _ALIASES.get(given.lower(), given.lower())
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}:" for name in _SCHEMES)
        raise InputError(
            f"{shown(text)} has the unknown scheme {shown(given)}; give a path, or one of {known}"
        )
    host, slash, name = rest.removeprefix("//").partition("/") if rest.startswith("//") else ("", "/", rest)
    if scheme == "file":
        if host not in ("", "localhost"):
            raise InputError(f"{shown(text)} names another host; write file:///path, with three slashes")
        return _file_uri(slash + name.lstrip("/"))
    if not host:
        raise InputError(f"{shown(text)} names no bucket or host; write {scheme}://NAME/path")
    return f"{scheme}://{host}{slash}{name}".rstrip("/")


def _file_uri(path: str) -> str:
    return f"file://{Path(path).absolute().as_posix()}".rstrip("/")


def place_at(path: str | os.PathLike[str] | Place) -> Place:
    """Return the place at a path or URI; nothing is opened or created yet."""
    if isinstance(path, Place):
        return path
    uri = uri_of(path)
    scheme = uri.partition(":")[0]
    module, _, name = _SCHEMES[scheme].partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise RuntimeUnavailableError(
            f"{uri} needs the package {error.name}; install it with pip install 'nearcast[{_EXTRAS[scheme]}]'"
        ) from None
    found: Place = kind(uri)
    return found
