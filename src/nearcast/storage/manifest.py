"""The manifest of a directory: what it holds, and how each file of it was when it was written.

It is JSON, and its last entry is a checksum of all that stands before it, so that damage to the manifest itself is told
before a word of it is believed.

================  ==========================================================================================
``format``        what files mean; another number is another layout, and is refused
``kind``          what rests here: ``index``, ``messages``, ``distribution``, …
``nearcast``      the version that wrote it, for readers
``document``      the values of what rests here that are no arrays
``files``         of each: how many bytes it has, and their XXH64; of an array also its type and shape
``checksum``      BLAKE2b of every byte before this entry
================  ==========================================================================================
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._version import __version__
from nearcast.errors import IndexFileError, shown
from nearcast.kernels.checksum import checksum
from nearcast.storage.atomic import write_durably

__all__ = [
    "FORMAT",
    "MANIFEST",
    "Manifest",
    "check_files",
    "file_content",
    "file_entry",
    "mapped",
    "read_manifest",
    "write_manifest",
]

FORMAT = 3  # raised when a file comes to mean something else: its layout, or the hash of kernels/hashing.py
_UNSEALED = (1, 2)  # formats whose manifests had no checksum
MANIFEST = "manifest.json"
_SEAL = ',\n "checksum": "{}"\n}}\n'  # how a manifest ends
_DIGEST = 16  # bytes
_SEALED = len(_SEAL.format("00" * _DIGEST))


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a directory says of itself."""

    kind: str
    document: dict[str, Any]
    files: dict[str, dict[str, Any]]  # by path below the directory


def write_manifest(directory: Path, kind: str, document: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    """Write the manifest of a directory whose files are on disk already; it is on disk at the end, or is not there."""
    values = {
        "format": FORMAT,
        "kind": kind,
        "nearcast": __version__,
        "document": dict(document),
        "files": dict(files),
    }
    body = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False).removesuffix("\n}").encode()
    with write_durably(directory / MANIFEST) as file:
        file.write(body + _seal(body))


def read_manifest(directory: Path, kind: str | None = None) -> Manifest:
    """Read the manifest of a directory, of the given *kind* or of any; raise where a bit of it is not as it was."""
    path = directory / MANIFEST
    try:
        content = path.read_bytes()
    except OSError:
        raise IndexFileError(f"{directory} is not an index directory: it has no {MANIFEST}") from None
    body = content[:-_SEALED]
    if content[-_SEALED:] != _seal(body):
        raise _refusal(directory, content)
    values = json.loads(content)
    if values["format"] != FORMAT:
        raise _other_format(directory, values["format"])
    manifest = Manifest(values["kind"], values["document"], values["files"])
    if kind not in (None, manifest.kind):
        raise IndexFileError(f"{directory} holds the kind {shown(manifest.kind)}, not {shown(kind)}")
    return manifest


def file_entry(content: NDArray[Any]) -> dict[str, Any]:
    """Return what a manifest says of a file with such a content."""
    return {"bytes": content.nbytes, "xxh64": f"{checksum(content):016x}"}


def file_content(path: Path, entry: Mapping[str, Any], *, verify: bool) -> NDArray[np.uint8]:
    """Return the bytes of a file, mapped copy-on-write; raise where they are not as many as its entry says.

    With *verify*, raise where they are others, too.
    """
    try:
        content = mapped(path)
    except OSError:
        raise IndexFileError(f"{path} is missing; save it again") from None
    if len(content) != entry["bytes"]:
        raise IndexFileError(
            f"{path} has {len(content):,} bytes, the manifest says {entry['bytes']:,}; save it again"
        )
    if verify and file_entry(content)["xxh64"] != entry["xxh64"]:
        raise IndexFileError(f"{path} is damaged: its checksum is not the manifest's; save it again")
    return content


def check_files(directory: Path, manifest: Manifest, *, verify: bool) -> None:
    """Raise unless all files are there, as long as they should be, and, with *verify*, as they were written."""
    for name, entry in manifest.files.items():
        file_content(directory / name, entry, verify=verify)


def mapped(path: Path) -> NDArray[np.uint8]:
    """Return the bytes of a file, mapped copy-on-write: pages are shared, and what is changed stays private."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)


def _seal(body: bytes) -> bytes:
    return _SEAL.format(hashlib.blake2b(body, digest_size=_DIGEST).hexdigest()).encode()


def _refusal(directory: Path, content: bytes) -> IndexFileError:
    """Return what to say of a manifest that does not end with its checksum."""
    try:
        values = json.loads(content)
        if values["format"] in _UNSEALED and "checksum" not in values:
            return _other_format(directory, values["format"])
    except (ValueError, KeyError, TypeError):
        pass
    return IndexFileError(f"{directory / MANIFEST} is damaged: its checksum is not its own; save it again")


def _other_format(directory: Path, version: Any) -> IndexFileError:
    return IndexFileError(
        f"{directory} has format {shown(version)}; Nearcast {__version__} reads format {FORMAT}; "
        "save it again with this version"
    )
