"""The manifest of a directory: what the directory holds, and the size and checksum of each file.

It is JSON. Its last entry is a checksum of everything before it, so that damage to the manifest itself is detected
before any of it is used.

================  ==========================================================================================
``format``        the version of the layout; any other number is refused
``kind``          what the directory holds: ``index``, ``messages``, ``distribution``, …
``nearcast``      the version of Nearcast that wrote it, for human readers
``document``      the values that are not arrays
``data``          the subdirectory with the files; missing if they are beside the manifest
``files``         for each file: its size in bytes and its XXH64; for an array, also its type and shape
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
from nearcast.storage.places import Place, place_at

__all__ = [
    "FORMAT",
    "MANIFEST",
    "Manifest",
    "check_files",
    "encode_manifest",
    "file_content",
    "file_entry",
    "mapped",
    "parse_manifest",
    "read_manifest",
    "write_manifest",
]

FORMAT = 8  # raised when the layout of a file changes, or the hash of kernels/hashing.py
_UNSEALED = (1, 2)  # formats whose manifests had no checksum
MANIFEST = "manifest.json"
_SEAL = ',\n "checksum": "{}"\n}}\n'  # the end of a manifest
_DIGEST = 16  # bytes
_SEALED = len(_SEAL.format("00" * _DIGEST))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a directory."""

    kind: str
    document: dict[str, Any]
    files: dict[str, dict[str, Any]]  # by path below the directory, or below its subdirectory *data*
    data: str  # may be empty
    digest: str  # of the content of the manifest, so of everything that it describes


def encode_manifest(
    kind: str, document: Mapping[str, Any], files: Mapping[str, Any], *, data: str = ""
) -> bytes:
    """Return the content of a manifest."""
    values: dict[str, Any] = {
        "format": FORMAT,
        "kind": kind,
        "nearcast": __version__,
        "document": dict(document),
        **({"data": data} if data else {}),
        "files": dict(files),
    }
    body = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False).removesuffix("\n}").encode()
    return body + _seal(body)


def parse_manifest(content: bytes, directory: Any, kind: str | None = None) -> Manifest:
    """Return the manifest with this content, of the given *kind* or of any; raise if any bit of it has changed."""
    body = content[:-_SEALED]
    if content[-_SEALED:] != _seal(body):
        raise _refusal(directory, content)
    values = json.loads(content)
    if values["format"] != FORMAT:
        raise _other_format(directory, values["format"])
    manifest = Manifest(
        values["kind"], values["document"], values["files"], values.get("data", ""), _digest(body)
    )
    if kind not in (None, manifest.kind):
        raise IndexFileError(f"{directory} holds the kind {shown(manifest.kind)}, not {shown(kind)}")
    return manifest


def write_manifest(directory: Path, kind: str, document: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    """Write the manifest of a directory whose files are already on disk, so that it is on disk or does not exist."""
    place_at(directory).write(MANIFEST, encode_manifest(kind, document, files))


def read_manifest(directory: str | Path | Place, kind: str | None = None) -> Manifest:
    """Read the manifest of a directory, of the given *kind* or of any; raise if any bit of it has changed."""
    place = place_at(directory)
    shown_place = place.local or place
    try:
        content = place.read(MANIFEST)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise IndexFileError(f"nothing is saved at {shown_place}: it has no {MANIFEST}") from None
    return parse_manifest(content, shown_place, kind)


def file_entry(content: NDArray[Any]) -> dict[str, Any]:
    """Return the entry in a manifest for a file with this content."""
    return {"bytes": content.nbytes, "xxh64": f"{checksum(content):016x}"}


def file_content(path: Path, entry: Mapping[str, Any], *, verify: bool) -> NDArray[np.uint8]:
    """Return the bytes of a file, mapped copy-on-write; raise if its size differs from its entry.

    With *verify*, also raise if its checksum differs.
    """
    try:
        content = mapped(path)
    # Any other error of the system says nothing about the file.
    except (FileNotFoundError, NotADirectoryError):
        raise IndexFileError(f"{path} is missing; save it again") from None
    if len(content) != entry["bytes"]:
        raise IndexFileError(
            f"{path} has {len(content):,} bytes, but the manifest says {entry['bytes']:,}; save it again"
        )
    if verify and file_entry(content)["xxh64"] != entry["xxh64"]:
        raise IndexFileError(f"{path} is damaged: its checksum differs from the manifest; save it again")
    return content


def check_files(directory: Path, manifest: Manifest, *, verify: bool) -> None:
    """Raise unless all files are there with the right size and, with *verify*, the right checksum."""
    for name, entry in manifest.files.items():
        file_content(directory / manifest.data / name, entry, verify=verify)


def mapped(path: Path) -> NDArray[np.uint8]:
    """Return the bytes of a file, mapped copy-on-write: pages are shared, and changes stay private."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=_DIGEST).hexdigest()


def _seal(body: bytes) -> bytes:
    return _SEAL.format(_digest(body)).encode()


def _refusal(directory: Any, content: bytes) -> IndexFileError:
    """Return the error for a manifest that does not end with its checksum."""
    try:
        values = json.loads(content)
        if values["format"] in _UNSEALED and "checksum" not in values:
            return _other_format(directory, values["format"])
    except (ValueError, KeyError, TypeError):
        pass
    return IndexFileError(f"{directory}/{MANIFEST} is damaged: its checksum is wrong; save it again")


def _other_format(directory: Any, version: Any) -> IndexFileError:
    return IndexFileError(
        f"{directory} has format {shown(version)}; Nearcast {__version__} reads format {FORMAT}; "
        "save it again with this version"
    )
