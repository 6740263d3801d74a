"""A file of Python around the reader of a store, which has fewer methods than Python's own files."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from nearcast import config

__all__ = ["buffered"]


def buffered(reader: Any, size: int) -> BinaryIO:
    """Return a file around *reader*, which reads *size* bytes in all and can ``read``, ``seek`` and ``tell``."""
    return io.BufferedReader(_Reader(reader, size), config.STORAGE_BUFFER)


class _Reader(io.RawIOBase):
    def __init__(self, reader: Any, size: int) -> None:
        self._reader, self._size = reader, size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._reader.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._reader.seek(offset, whence)
        return self.tell()

    def readinto(self, buffer: Any) -> int:
        content = memoryview(self._reader.read(min(len(buffer), max(self._size - self.tell(), 0))))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._reader.close()
        super().close()
