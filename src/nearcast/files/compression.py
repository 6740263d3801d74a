"""Compressed files, recognised by their names; they are read and written piece by piece, never as a whole."""

from __future__ import annotations

import io
from pathlib import Path, PurePath
from typing import BinaryIO, cast

import pyarrow as pa

__all__ = ["endings", "open_reader", "open_writer"]

_CODECS = {".gz": "gzip", ".zst": "zstd"}


def endings(name: str) -> tuple[str, str | None]:
    """Return the ending that determines the format, and the codec of the ending behind it, if there is one.

    >>> endings("Messages.CSV.gz"), endings("messages.csv"), endings("messages.gz")
    (('.csv', 'gzip'), ('.csv', None), ('', 'gzip'))
    """
    path = PurePath(name.lower())
    codec = _CODECS.get(path.suffix)
    return (path.suffix if codec is None else PurePath(path.stem).suffix), codec


def open_reader(path: Path, codec: str | None) -> BinaryIO:
    """Open a file to read its uncompressed content."""
    if codec is None:
        return path.open("rb")
    return cast(BinaryIO, io.BufferedReader(pa.input_stream(str(path), compression=codec)))


def open_writer(file: BinaryIO, codec: str | None) -> BinaryIO:
    """Return a stream that compresses into *file*; closing it closes both."""
    return file if codec is None else cast(BinaryIO, pa.CompressedOutputStream(file, codec))
