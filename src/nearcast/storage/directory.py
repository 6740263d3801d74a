"""Arrays on disk: a directory with one file for each array, and a manifest.

An array ``structure/heads`` is the file ``structure.heads``: its bytes and nothing else. Its type and shape are in the
manifest, which has a checksum of its own (:mod:`.manifest`), so that no file header has to be trusted. Everything that
is not an array is in the *document* of the manifest, as plain values.

It appears whole or not at all, and is never changed afterwards. On a disk it is written under another name, and renamed
when every file is complete. In an object store the files come first, under names that no other writer uses, and the
manifest last: without it there is no directory. To be read, a directory in an object store is fetched once into a cache
of this machine (:mod:`.cache`). Arrays are mapped copy-on-write: processes share the pages, and changes made by one
process stay private to it.

**Damage is an error, not a crash.** Every array that is not of floats (offsets, rows, codes, cells) could lead a kernel
out of another array. So its file is compared with its checksum whenever it is opened, at the speed of memory. This
catches everything that a check of ranges would catch, and more. Floats (coordinates and scores) cannot do such harm:
they are verified with ``verify=True``, and otherwise only if they are few.
"""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.errors import IndexFileError, NearcastError
from nearcast.storage.atomic import draft_name, rename_durably, sync_tree
from nearcast.storage.cache import discard, fetched
from nearcast.storage.manifest import (
    MANIFEST,
    encode_manifest,
    file_content,
    file_entry,
    read_manifest,
    write_manifest,
)
from nearcast.storage.places import Place, place_at

__all__ = ["Arrays", "read", "restoring", "write"]

Arrays = Mapping[str, NDArray[Any]]
_NAME = re.compile(r"[a-z0-9_-]+(/[a-z0-9_-]+)*")


def write(
    directory: str | Path | Place, kind: str, arrays: Arrays, document: Mapping[str, Any]
) -> Path | str:
    """Write arrays, and a document of plain values, to a new directory; return its path or, if it has none, its URI."""
    place = place_at(directory)
    files = _files(arrays)
    if place.local is None:
        _send(place, kind, arrays, document, files)
        return place.uri
    path = place.local
    if path.exists():
        raise _exists(path)
    draft = path.with_name(draft_name(path.name))
    draft.mkdir(parents=True)
    try:
        entries = {}
        for name, file in files.items():
            content, entries[file] = _content(file, arrays[name])
            (draft / file).write_bytes(content.data)
        sync_tree(draft)  # all files together at the end: most of them wait for the same write
        write_manifest(draft, kind, document, entries)
        rename_durably(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return path


def _send(
    place: Place, kind: str, arrays: Arrays, document: Mapping[str, Any], files: Mapping[str, str]
) -> None:
    """Write a directory to a place that has no renames: the files under names of their own, then the manifest.

    Before that, remove what writers that were killed have sent: it counts no more.
    """
    if place.exists(MANIFEST):
        raise _exists(place)
    old = time.time() - config.STORAGE_ABANDONED_SECONDS
    place.remove([entry.name for entry in place.entries("data-") if entry.modified < old])
    data = f"data-{uuid.uuid4().hex}"

    def send(item: tuple[str, str]) -> dict[str, Any]:
        name, file = item
        content, entry = _content(file, arrays[name])
        place.write(f"{data}/{file}", content.data)
        return entry

    try:
        with ThreadPoolExecutor(config.STORAGE_TRANSFERS) as pool:
            entries = dict(zip(files.values(), pool.map(send, files.items())))
        content = encode_manifest(kind, document, entries, data=data)
        if not place.create(MANIFEST, content) and _data_of(place) != data:
            raise _exists(place)
    except BaseException:
        if _data_of(place) != data:
            place.remove([f"{data}/{file}" for file in files.values()])
        raise


def _data_of(place: Place) -> str | None:
    """Return the subdirectory that the manifest names, if there is one.

    Whether a manifest was created, only the place can tell: the answer may have been lost on its way.
    """
    return read_manifest(place).data if place.exists(MANIFEST) else None


def read(
    directory: str | Path | Place, kind: str, *, verify: bool = False
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the document of a directory of this kind, and its arrays, mapped.

    With *verify* every file is compared with its checksum; without it, only those that the module docstring names.
    """
    place = place_at(directory)
    if place.local is not None:
        return _map(place.local, place.local, kind, verify)
    try:
        with fetched(place) as path:
            return _map(path, place, kind, verify)
    except IndexFileError:
        discard(place)  # the copy may be damaged, not the original
    with fetched(place) as path:
        return _map(path, place, kind, verify)


def _map(
    path: Path, shown_as: Any, kind: str, verify: bool
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    manifest = read_manifest(path, kind)
    with restoring(shown_as):
        arrays = {
            file.replace(".", "/"): _map_array(path / manifest.data / file, entry, verify)
            for file, entry in manifest.files.items()
        }
    return manifest.document, arrays


@contextmanager
def restoring(directory: Any) -> Iterator[None]:
    """Turn every error that occurs while an object is restored from a directory into an IndexFileError.

    None occurs if this version of Nearcast wrote the directory, since its bytes are those that were written.
    """
    try:
        yield
    except IndexFileError:
        raise
    except (NearcastError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise IndexFileError(
            f"{directory} does not hold what it should ({type(error).__name__}: {error}); save it again"
        ) from error


def _files(arrays: Arrays) -> dict[str, str]:
    """Return the file of each array."""
    for name in arrays:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not the name of an array; use lower-case letters, digits, - and _, and / between parts"
            )
    return {name: name.replace("/", ".") for name in arrays}


def _content(file: str, array: NDArray[Any]) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """Return the bytes of an array, and the entry of its file in the manifest."""
    shape, array = array.shape, np.ascontiguousarray(array)
    if array.dtype.hasobject:
        raise TypeError(
            f"{file} is an array of Python objects; only numbers, and records of numbers, can be stored"
        )
    content = array.reshape(-1).view(np.uint8)
    about = {"dtype": np.lib.format.dtype_to_descr(array.dtype), "shape": list(shape)}
    return content, file_entry(content) | about


def _exists(directory: Any) -> IndexFileError:
    return IndexFileError(f"{directory} exists already and is never overwritten; choose another name")


def _dtype(description: str | list[list[Any]]) -> np.dtype[Any]:
    """Return the type that a manifest describes: a number, or a record field by field."""
    if isinstance(description, str):
        return np.dtype(description)
    fields: Any = [(name, kind, *map(tuple, shape)) for name, kind, *shape in description]
    return np.lib.format.descr_to_dtype(fields)


def _map_array(path: Path, entry: dict[str, Any], verify: bool) -> NDArray[Any]:
    """Map the file of an array; raise if it is not as the manifest says."""
    kind, shape = _dtype(entry["dtype"]), tuple(entry["shape"])
    leads_nowhere = kind.kind == "f" and entry["bytes"] > config.STORAGE_ALWAYS_READ
    return file_content(path, entry, verify=verify or not leads_nowhere).view(kind).reshape(shape)
