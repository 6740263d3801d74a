"""A place in an object store: Amazon S3 and what speaks its language, Google Cloud Storage, Azure.

Credentials, region and endpoint come from the environment or the machine's role, as the tools of each provider read
them (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_KEY``, …)
on every machine that reads or writes. Conditional writes need a store that has them; all three providers do.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    NotFoundError,
    NotSupportedError,
    PreconditionError,
)
from obstore.store import from_url

from nearcast import config
from nearcast.errors import StorageError
from nearcast.storage.places import Entry, Place
from nearcast.storage.reader import buffered

if TYPE_CHECKING:
    from obstore import UpdateVersion

__all__ = ["ObjectStore"]

# Buckets and containers that were seen to refuse a request whose condition does not hold, and the condition.
_CONDITIONAL: set[tuple[str, str]] = set()
_NO_TAG = '"none" 0'  # no object has it


class ObjectStore(Place):
    """A prefix of the names of objects in a bucket or container."""

    @property
    def _store(self) -> Any:
        return _connect(self.uri, os.getpid())

    @property
    def _bucket(self) -> str:
        return self.uri.split("/")[2]

    def read(self, name: str) -> bytes:
        """Return the content of an object."""
        try:
            return bytes(obstore.get(self._store, name).bytes())
        except (NotFoundError, FileNotFoundError):
            raise self._missing(name) from None

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        """Return the content of an object; the tag is its ETag, which has no space, and its version, if any."""
        try:
            found = obstore.get(self._store, name)
        except (NotFoundError, FileNotFoundError):
            return None
        if not found.meta["e_tag"]:
            raise self._unconditional("it gives no ETags")
        return bytes(found.bytes()), f"{found.meta['e_tag']} {found.meta.get('version') or ''}".rstrip()

    def open(self, name: str) -> BinaryIO:
        """Open an object for reading: what is not in the buffer is requested."""
        try:
            reader = obstore.open_reader(self._store, name)
        except (NotFoundError, FileNotFoundError):
            raise self._missing(name) from None
        return buffered(reader, reader.size)

    def download(self, name: str, path: Path) -> None:
        """Copy an object to a file, piece by piece."""
        try:
            found = obstore.get(self._store, name)
        except (NotFoundError, FileNotFoundError):
            raise self._missing(name) from None
        with path.open("wb") as file:
            for piece in found.stream(min_chunk_size=config.STORAGE_PIECE):
                file.write(piece)

    def write(self, name: str, content: bytes | memoryview | Path) -> None:
        """Put an object."""
        obstore.put(self._store, name, content)

    def create(self, name: str, content: bytes) -> bool:
        """Put an object on condition that there is none; the first time, see whether the store minds the condition."""
        created = self._create(name, content)
        seen = self._bucket, "If-None-Match"
        if created and seen not in _CONDITIONAL:
            if self._create(name, content):  # the same again, so nothing is lost
                self.remove([name])
                raise self._unconditional("it ignores If-None-Match")
            _CONDITIONAL.add(seen)
        return created

    def _create(self, name: str, content: bytes) -> bool:
        try:
            obstore.put(self._store, name, content, mode="create")
        except (AlreadyExistsError, PreconditionError):
            return False
        except NotSupportedError as error:
            raise self._unconditional(error) from error
        return True

    def swap(self, name: str, content: bytes, tag: str | None) -> bool:
        """Put an object on condition that its tag is *tag*; the first time, see whether the store minds that."""
        if tag is None:
            return self.create(name, content)
        seen = self._bucket, "If-Match"
        if seen not in _CONDITIONAL:
            found = self.read_tagged(name)
            if found is None:
                return False
            # What is there, once more: nothing is lost.
            if self._swap(name, found[0], _NO_TAG):
                raise self._unconditional("it ignores If-Match")
            _CONDITIONAL.add(seen)
        return self._swap(name, content, tag)

    def _swap(self, name: str, content: bytes, tag: str) -> bool:
        e_tag, _, version = tag.partition(" ")
        condition: UpdateVersion = {"e_tag": e_tag}
        if version:
            condition["version"] = version
        try:
            obstore.put(self._store, name, content, mode=condition)
        except (PreconditionError, AlreadyExistsError, NotFoundError, FileNotFoundError):
            return False
        except NotSupportedError as error:
            raise self._unconditional(error) from error
        return True

    def entries(self, prefix: str = "") -> list[Entry]:
        """Return all objects whose names begin with *prefix*."""
        # The store lists whole directories only.
        listed = obstore.list(self._store, prefix.rpartition("/")[0] or None)
        found = (
            Entry(meta["path"], meta["size"], meta["last_modified"].timestamp())
            for chunk in listed
            for meta in chunk
        )
        return sorted(entry for entry in found if entry.name.startswith(prefix))

    def children(self) -> list[str]:
        """Return the first parts of the names of all objects."""
        listed = obstore.list_with_delimiter(self._store)
        names = [meta["path"] for meta in listed["objects"]] + list(listed["common_prefixes"])
        return sorted(name.rstrip("/").rpartition("/")[2] for name in names)

    def exists(self, name: str) -> bool:
        """Tell whether there is such an object."""
        try:
            obstore.head(self._store, name)
        except (NotFoundError, FileNotFoundError):
            return False
        return True

    def remove(self, names: Sequence[str]) -> None:
        """Delete objects."""
        try:
            obstore.delete(self._store, list(names))
        except (NotFoundError, FileNotFoundError):
            for name in names if len(names) > 1 else ():  # some stores stop at the first that does not exist
                self.remove([name])

    def clear(self) -> None:
        """Delete all objects."""
        self.remove([entry.name for entry in self.entries()])

    def _missing(self, name: str) -> FileNotFoundError:
        return FileNotFoundError(f"{self.uri}/{name} does not exist")

    def _unconditional(self, why: object) -> StorageError:
        return StorageError(
            f"the store of {self.uri} has no conditional writes ({why}), so one writer could replace what another has "
            "written; use a store that has them"
        )


_ENDPOINTS = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "GOOGLE_STORAGE_ENDPOINT",
)


@lru_cache(maxsize=config.STORAGE_CONNECTIONS)
def _connect(uri: str, process: int) -> Any:
    """Return a store; each process needs its own, since its connections and threads do not survive a fork."""
    # Without TLS only where the operator names such an endpoint.
    plain = any(os.environ.get(name, "").startswith("http:") for name in _ENDPOINTS)
    return from_url(uri, client_options={"allow_http": plain, "timeout": config.STORAGE_TIMEOUT})
