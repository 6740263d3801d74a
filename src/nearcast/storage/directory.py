"""Arrays on disk: a directory with one file for each array, and a manifest.

An array ``structure/heads`` is the file ``structure.heads``: its bytes and nothing else. Its type and shape are in the
manifest, which has a checksum of its own (:mod:`.manifest`), so that no file header has to be trusted. Everything that
is not an array is in the *document* of the manifest, as plain values.

The directory is written under another name and renamed when every file is on disk. So it appears whole or not at all,
and it is never changed afterwards. Arrays are mapped copy-on-write: processes share the pages, and changes made by one
process stay private to it.

**Damage is an error, not a crash.** Every array that is not of floats (offsets, rows, codes, cells) could lead a kernel
out of another array. So its file is compared with its checksum whenever it is opened, at the speed of memory. This
catches everything that a check of ranges would catch, and more. Floats (coordinates and scores) cannot do such harm:
they are verified with ``verify=True``, and otherwise only if they are few.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast import config
from nearcast.errors import IndexFileError, NearcastError
from nearcast.storage.atomic import rename_durably, sync_tree
from nearcast.storage.manifest import file_content, file_entry, read_manifest, write_manifest

__all__ = ["Arrays", "read", "restoring", "write"]

Arrays = Mapping[str, NDArray[Any]]
_NAME = re.compile(r"[a-z0-9_-]+(/[a-z0-9_-]+)*")


def write(directory: str | Path, kind: str, arrays: Arrays, document: Mapping[str, Any]) -> Path:
    """Write arrays, and a document of plain values, to a new directory; return its path."""
    directory = Path(directory).absolute()
    if directory.exists():
        raise IndexFileError(f"{directory} exists already and is never overwritten; choose another name")
    draft = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}.draft")
    draft.mkdir(parents=True)
    try:
        files = {file: _write_array(draft / file, arrays[name]) for name, file in _files(arrays).items()}
        sync_tree(draft)  # all files together at the end: most of them wait for the same write
        write_manifest(draft, kind, document, files)
        rename_durably(draft, directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return directory


def read(
    directory: str | Path, kind: str, *, verify: bool = False
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the document of a directory of this kind, and its arrays, mapped.

    With *verify* every file is compared with its checksum; without it, only those that the module docstring names.
    """
    directory = Path(directory).absolute()
    manifest = read_manifest(directory, kind)
    with restoring(directory):
        arrays = {
            file.replace(".", "/"): _map_array(directory / file, entry, verify)
            for file, entry in manifest.files.items()
        }
    return manifest.document, arrays


@contextmanager
def restoring(directory: str | Path) -> Iterator[None]:
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


def _write_array(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    """Write the bytes of an array to a new file; return its entry in the manifest."""
    shape, array = array.shape, np.ascontiguousarray(array)
    if array.dtype.hasobject:
        raise TypeError(
            f"{path.name} is an array of Python objects; only numbers, and records of numbers, can be stored"
        )
    content = array.reshape(-1).view(np.uint8)
    path.write_bytes(content.data)
    return file_entry(content) | {
        "dtype": np.lib.format.dtype_to_descr(array.dtype),
        "shape": list(shape),
    }


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
