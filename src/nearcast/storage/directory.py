"""An index at rest: a directory of flat arrays with a manifest.

=====================  =====================================================================================
``manifest.json``      format, index, version of Nearcast, space, attributes; bytes and CRC-32 of each file
``store.*.npy``        the clause columns
``structure.*.npy``    the index's own arrays
``words.*.npy``        the vocabulary of the keywords (absent where the caller speaks in codes)
``strings.*.npy``      the vocabulary of string attributes (likewise)
``ids.arrow``          the ids, in row order (absent where rows are ids)
``polygons.arrow``     the polygons as WKB, null where a shape is a circle (absent without shapes)
=====================  =====================================================================================

The directory is written under another name and renamed when every file is synced, so it appears whole or not at
all; the manifest goes last. It is never changed afterwards. Arrays are mapped copy-on-write: processes share the
pages, and what one changes stays its own.
"""

from __future__ import annotations

import json
import mmap
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast._version import __version__
from nearcast.columns.attributes import AttributeNames
from nearcast.columns.coding import Coding
from nearcast.columns.rows.clauses import ClauseStore
from nearcast.columns.vocabulary import Vocabulary
from nearcast.errors import IndexFileError, InputError, shown
from nearcast.geometry import WGS84, Planar, Space
from nearcast.storage.atomic import rename_durably, sync_directory, synced, write_durably

__all__ = ["CURRENT", "FORMAT", "Arrays", "current", "read", "restored_store", "switch", "write"]

FORMAT = 2  # raised when a file comes to mean something else: its layout, or the hash of kernels/hashing.py
CURRENT = "CURRENT"  # a file beside versions of an index: the name of the one that counts
_MANIFEST = "manifest.json"
_IDS, _POLYGONS = "ids.arrow", "polygons.arrow"


class Arrays(NamedTuple):
    """The mapped arrays of a directory, by their part, and the names of its other files."""

    directory: Path
    store: dict[str, NDArray[Any]]
    structure: dict[str, NDArray[Any]]
    words: dict[str, NDArray[Any]]
    strings: dict[str, NDArray[Any]]
    others: set[str]


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
    parts = {"store": store.arrays(), "structure": structure}
    if store.vocabulary is not None:
        parts["words"] = store.vocabulary.arrays()
    if store.attributes is not None:
        parts["strings"] = store.attributes.strings.arrays()
    written: dict[str, dict[str, int]] = {}
    try:
        for part, columns in parts.items():
            for column, array in columns.items():
                name = f"{part}.{column}.npy"
                if progress:
                    progress(name)
                with _checked(draft / name, written) as file:
                    np.save(file, array, allow_pickle=False)
        if store.ids is not None:
            _write_arrow(draft / _IDS, store.ids, written)
        if store.shapes:
            import shapely

            wkb = pa.array(shapely.to_wkb(store.shapes.polygons), pa.large_binary())
            _write_arrow(draft / _POLYGONS, wkb, written)
        manifest = {
            "format": FORMAT,
            "index": index,
            "nearcast": __version__,
            "space": _space_to_json(store.space),
            "attributes": None
            if store.attributes is None
            else [[name, text] for name, text in store.attributes],
            "files": dict(written),
        }
        with _checked(draft / _MANIFEST, written) as file:
            file.write(json.dumps(manifest, indent=1).encode())
        sync_directory(draft)
        rename_durably(draft, directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return directory


def current(directory: Path) -> Path:
    """Return the index directory that *directory* is, or that its file ``CURRENT`` names."""
    try:
        name = (directory / CURRENT).read_text(encoding="utf-8").strip()
    except OSError:
        return directory
    return directory / name


def switch(directory: Path, version: Path) -> None:
    """Let the file ``CURRENT`` of *directory* name *version*, which is there, in one step."""
    with write_durably(directory / CURRENT) as file:
        file.write(f"{version.name}\n".encode())


def read(directory: Path, *, verify: bool) -> tuple[dict[str, Any], Arrays]:
    """Map the arrays of an index directory; return its manifest with them."""
    directory = directory.absolute()
    try:
        manifest = json.loads((directory / _MANIFEST).read_bytes())
        version = manifest["format"]
    except FileNotFoundError:
        raise IndexFileError(f"{directory} is not an index directory: it has no {_MANIFEST}") from None
    except (ValueError, KeyError, TypeError):
        raise _damaged(directory / _MANIFEST) from None
    if version != FORMAT:
        raise IndexFileError(
            f"{directory} has format {shown(version)}; Nearcast {__version__} reads format {FORMAT}; "
            "build the index again"
        )
    parts: dict[str, dict[str, NDArray[Any]]] = {"store": {}, "structure": {}, "words": {}, "strings": {}}
    others = set()
    try:
        files = {
            str(name): (int(entry["bytes"]), int(entry["crc32"])) for name, entry in manifest["files"].items()
        }
        for name, (size, checksum) in files.items():
            _check(directory / name, size, checksum if verify else None)
            part, _, column = name.removesuffix(".npy").partition(".")
            if name.endswith(".npy"):
                parts[part][column] = _map_array(directory / name)
            else:
                others.add(name)
        manifest["index"], manifest["space"], manifest["attributes"]
    except (KeyError, TypeError, AttributeError, ValueError):
        raise _damaged(directory / _MANIFEST) from None
    return manifest, Arrays(directory, **parts, others=others)


def restored_store(manifest: dict[str, Any], arrays: Arrays) -> ClauseStore:
    """Restore the clause rows of a directory."""
    try:
        space = _space_from_json(manifest["space"])
        words = Vocabulary.from_arrays(arrays.words) if arrays.words else None
        names = None
        if manifest["attributes"] is not None:
            columns = [(str(name), bool(text)) for name, text in manifest["attributes"]]
            names = AttributeNames(columns, Vocabulary.from_arrays(arrays.strings))
        ids = _read_arrow(arrays.directory / _IDS) if _IDS in arrays.others else None
        polygons = np.empty(len(arrays.store["circles"]), object)
        if len(polygons):
            import shapely

            wkb = _read_arrow(arrays.directory / _POLYGONS)
            polygons = shapely.from_wkb(np.array(wkb.to_pylist(), object))
        return ClauseStore.restored(Coding(words, names, space), ids, arrays.store, polygons)
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise IndexFileError(f"{arrays.directory} is damaged ({error}); save the index again") from None


def _damaged(path: Path) -> IndexFileError:
    return IndexFileError(f"{path} is damaged; save the index again")


def _check(path: Path, size: int, checksum: int | None) -> None:
    """Raise unless the file has the size, and the checksum where one is given."""
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise IndexFileError(f"{path} is missing; save the index again") from None
    if found != size:
        raise IndexFileError(f"{path} has {found:,} bytes, the manifest says {size:,}; save the index again")
    if checksum is not None:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if zlib.crc32(content) != checksum:
                raise IndexFileError(
                    f"{path} is damaged: its checksum is not the manifest's; save the index again"
                )


def _map_array(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    except ValueError:  # NumPy cannot map an array without elements
        try:
            array = np.load(path, allow_pickle=False)
        except ValueError:
            raise _damaged(path) from None
    return array.view(np.ndarray)  # a plain array to the compiler, still mapped


def _write_arrow(path: Path, array: pa.Array, written: dict[str, dict[str, int]]) -> None:
    with _checked(path, written) as file, pa.ipc.new_file(file, pa.schema([("value", array.type)])) as writer:
        writer.write_batch(pa.record_batch({"value": array}))


def _read_arrow(path: Path) -> pa.Array:
    try:
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all()["value"].combine_chunks()
    except (pa.ArrowInvalid, OSError):
        raise _damaged(path) from None


class _Checked:
    """A file that adds up the checksum of what is written to it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.bytes = self.crc32 = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write, and add to the checksum."""
        view = memoryview(data).cast("B")
        self.crc32 = zlib.crc32(view, self.crc32)
        self.bytes += len(view)
        self._file.write(view)
        return len(view)

    def flush(self) -> None:
        """Hand over to the system what was written."""
        self._file.flush()


@contextmanager
def _checked(path: Path, written: dict[str, dict[str, int]]) -> Iterator[_Checked]:
    """Open a new file; at the end it is on disk, and *written* has its size and checksum."""
    with synced(path) as file:
        checked = _Checked(file)
        yield checked
    written[path.name] = {"bytes": checked.bytes, "crc32": checked.crc32}


def _space_to_json(space: Space) -> Any:
    if isinstance(space, Planar):
        return [space.xmin, space.ymin, space.xmax, space.ymax]
    return "WGS84"


def _space_from_json(value: Any) -> Space:
    return WGS84 if value == "WGS84" else Planar(*value)
