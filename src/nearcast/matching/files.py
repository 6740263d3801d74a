"""An index at rest: a directory of flat arrays with a manifest.

::

    manifest.json         format, index, version of Nearcast, space, attributes, and per array: dtype, shape,
    bytes, CRC-32 <name>.npy            the clause columns, the structure's own arrays (structure.*), the
    vocabularies (words.*, strings.*) ids.arrow             the ids, in row order (absent where rows are ids)
    polygons.arrow        the polygons as WKB, null where a shape is a circle (absent without shapes)

The directory is written under another name and renamed when every file is synced, so it appears whole or not at
all; the manifest goes last. It is never changed afterwards. Arrays are mapped copy-on-write: processes share the
pages, and what one changes stays its own.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast._version import __version__
from nearcast.attributes import AttributeNames
from nearcast.columns import SubscriptionTable
from nearcast.errors import IndexFileError, shown
from nearcast.geometry import WGS84, Planar, Space
from nearcast.matching.store import ClauseStore
from nearcast.vocabulary import Vocabulary

__all__ = ["FORMAT", "Arrays", "read", "restored_store", "write"]

FORMAT = 1
_MANIFEST = "manifest.json"


class Arrays(NamedTuple):
    """The mapped arrays of a directory, by their part."""

    directory: Path
    store: dict[str, NDArray[Any]]
    structure: dict[str, NDArray[Any]]
    words: dict[str, NDArray[Any]]
    strings: dict[str, NDArray[Any]]


def write(
    directory: Path,
    index: str,
    store: ClauseStore,
    structure: dict[str, NDArray[Any]],
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write an index directory; see the module's description."""
    directory = directory.absolute()
    if directory.exists():
        raise IndexFileError(
            f"{directory} exists already; an index directory is never overwritten, choose another name"
        )
    draft = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}.draft")
    draft.mkdir(parents=True)
    try:
        parts: dict[str, dict[str, NDArray[Any]]] = {"store": store.arrays(), "structure": structure}
        if store.vocabulary is not None:
            parts["words"] = store.vocabulary.arrays()
        if store.attributes is not None:
            parts["strings"] = store.attributes.strings.arrays()
        arrays = {}
        for part, columns in parts.items():
            for name, array in columns.items():
                if progress:
                    progress(f"{part}.{name}")
                arrays[f"{part}.{name}"] = _write_array(draft / f"{part}.{name}.npy", array)
        if store.ids is not None:
            _write_arrow(draft / "ids.arrow", store.ids)
        if store.shapes:
            import shapely

            _write_arrow(
                draft / "polygons.arrow", pa.array(shapely.to_wkb(store.shapes.polygons), pa.large_binary())
            )
        manifest = {
            "format": FORMAT,
            "index": index,
            "nearcast": __version__,
            "space": _space_to_json(store.space),
            "attributes": None
            if store.attributes is None
            else [[name, text] for name, text in store.attributes],
            "arrays": arrays,
        }
        _write_synced(draft / _MANIFEST, json.dumps(manifest, indent=1).encode())
        _sync_directory(draft)
        draft.rename(directory)
        _sync_directory(directory.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return directory


def read(directory: Path, *, verify: bool) -> tuple[dict[str, Any], Arrays]:
    """Map the arrays of an index directory; return its manifest with them."""
    directory = directory.absolute()
    try:
        manifest = json.loads((directory / _MANIFEST).read_bytes())
        entries = manifest["arrays"]
        version = manifest["format"]
    except FileNotFoundError:
        raise IndexFileError(f"{directory} is not an index directory: it has no {_MANIFEST}") from None
    except (ValueError, KeyError, TypeError):
        raise IndexFileError(f"{directory / _MANIFEST} is damaged; save the index again") from None
    if version != FORMAT:
        raise IndexFileError(
            f"{directory} has format {shown(version)}; Nearcast {__version__} reads format {FORMAT}; "
            "build the index again"
        )
    parts: dict[str, dict[str, NDArray[Any]]] = {"store": {}, "structure": {}, "words": {}, "strings": {}}
    for name, entry in entries.items():
        part, _, column = name.partition(".")
        parts[part][column] = _map_array(directory / f"{name}.npy", entry, verify)
    return manifest, Arrays(directory, **parts)


def restored_store(manifest: dict[str, Any], arrays: Arrays) -> ClauseStore:
    """Restore the clause rows of a directory."""
    words = Vocabulary.from_arrays(arrays.words) if arrays.words else None
    names = None
    if manifest["attributes"] is not None:
        columns = [(str(name), bool(text)) for name, text in manifest["attributes"]]
        names = AttributeNames(columns, Vocabulary.from_arrays(arrays.strings))
    ids = _read_arrow(arrays.directory / "ids.arrow")
    polygons = np.empty(len(arrays.store["circles"]), object)
    if len(polygons):
        import shapely

        stored = _read_arrow(arrays.directory / "polygons.arrow")
        if stored is None or len(stored) != len(polygons):
            raise IndexFileError(f"{arrays.directory} lacks the polygons of its shapes; save the index again")
        polygons = shapely.from_wkb(np.array(stored.to_pylist(), object))
    empty = SubscriptionTable.from_arrays(np.empty((0, 4)), [0], [])
    table = SubscriptionTable(
        empty.clauses, empty.owners, 0, empty.shapes, ids, words, names, _space_from_json(manifest["space"])
    )
    return ClauseStore.restored(table, arrays.store, polygons)


def _write_array(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    array = np.ascontiguousarray(array)
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)
        _sync(file)
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "bytes": path.stat().st_size,
        "crc32": zlib.crc32(array.data.cast("B") if array.size else b""),
    }


def _map_array(path: Path, entry: dict[str, Any], verify: bool) -> NDArray[Any]:
    try:
        if path.stat().st_size != entry["bytes"]:
            raise IndexFileError(
                f"{path} has {path.stat().st_size:,} bytes, the manifest says {entry['bytes']:,}; save the index again"
            )
        # NumPy cannot map an array without elements.
        empty = 0 in entry["shape"]
        array: NDArray[Any] = np.load(path, mmap_mode=None if empty else "c", allow_pickle=False)
    except FileNotFoundError:
        raise IndexFileError(f"{path} is missing; save the index again") from None
    except (ValueError, OSError) as error:
        raise IndexFileError(f"{path} cannot be read ({error}); save the index again") from None
    if array.dtype.str != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise IndexFileError(
            f"{path} is {array.dtype}{array.shape}, the manifest says otherwise; save the index again"
        )
    if verify and zlib.crc32(array.data.cast("B") if array.size else b"") != entry["crc32"]:
        raise IndexFileError(
            f"{path} is damaged: its checksum differs from the manifest's; save the index again"
        )
    return array.view(np.ndarray)  # a plain array to the compiler, still mapped


def _write_arrow(path: Path, array: pa.Array) -> None:
    with path.open("wb") as file:
        with pa.ipc.new_file(file, pa.schema([("value", array.type)])) as writer:
            writer.write_batch(pa.record_batch({"value": array}))
        _sync(file)


def _read_arrow(path: Path) -> pa.Array | None:
    if not path.exists():
        return None
    try:
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all()["value"].combine_chunks()
    except pa.ArrowInvalid:
        raise IndexFileError(f"{path} is damaged; save the index again") from None


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        _sync(file)


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    if os.name == "nt":  # directories cannot be synced there
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _space_to_json(space: Space) -> Any:
    if isinstance(space, Planar):
        return [space.xmin, space.ymin, space.xmax, space.ymax]
    return "WGS84"


def _space_from_json(value: Any) -> Space:
    return WGS84 if value == "WGS84" else Planar(*value)
