"""Files that are compressed, as their names say: read and written piece by piece, never whole."""

from __future__ import annotations

import io
from pathlib import Path, PurePath
from typing import BinaryIO, cast

import pyarrow as pa

__all__ = ["endings", "reading", "written"]

_CODECS = {".gz": "gzip", ".zst": "zstd"}


def endings(name: str) -> tuple[str, str | None]:
    """Return the ending that tells the format, and the codec that the one behind it tells, if there is one.

    >>> endings("Messages.CSV.gz"), endings("messages.csv"), endings("messages.gz")
    (('.csv', 'gzip'), ('.csv', None), ('', 'gzip'))
    """
    path = PurePath(name.lower())
    codec = _CODECS.get(path.suffix)
    return (path.suffix if codec is None else PurePath(path.stem).suffix), codec


def reading(path: Path, codec: str | None) -> BinaryIO:
    """Open a file for what is in it."""
    if codec is None:
        return path.open("rb")
    return cast(BinaryIO, io.BufferedReader(pa.input_stream(str(path), compression=codec)))


def written(file: BinaryIO, codec: str | None) -> BinaryIO:
    """Return where to write what is to be in *file*; closing it closes both."""
    return file if codec is None else cast(BinaryIO, pa.CompressedOutputStream(file, codec))
